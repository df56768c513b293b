"""How far apart turns begin while many partitions move, a record here and a record there. Pure.

Each turn costs a publication and a read by each watcher, for one partition as for fifty. While few partitions move, a
turn begins as soon as something happens: the shortest way for a record. From `PARTITIONS_MIN` on, a turn waits a few
milliseconds so that more partitions share it. It waits longer where more loops of the interpreter are busy, and where
turns take longer: a loop works for a third of the time at most, so that three of them fit into one interpreter. Each
turn then also works longer. One busy partition is never delayed; its records share commits anyway.
"""

from __future__ import annotations

from collections.abc import Collection

from stratalog.replication import cadence
from stratalog.storage.records import TopicPartition

PARTITIONS_MIN = 8
APART_TIMES = 3
"""Factor by which turns begin further apart than they take, within these bounds."""
LOOPS_MAX = 3
"""The busy loops that count at most. So many count where a loop does not know the others."""


class TurnInterval:
    """The turn interval of one loop.

    >>> turns, loops = TurnInterval(), []
    >>> alone = TurnInterval(loops)
    >>> loops.append(alone)
    >>> for number in range(8):
    ...     turns.moved(TopicPartition("t", number), now_ms=100 + number)
    ...     alone.moved(TopicPartition("t", number), now_ms=100 + number)
    >>> turns.rest_ms(begun_ms=107, now_ms=108), turns.rest_ms(begun_ms=107, now_ms=113)
    (14, 12)
    >>> alone.rest_ms(begun_ms=107, now_ms=108), alone.rest_ms(begun_ms=107, now_ms=113)
    (4, 12)
    >>> turns.rest_ms(begun_ms=399, now_ms=400)  # nothing has moved for a while
    0
    """

    def __init__(self, loops: Collection[TurnInterval] | None = None) -> None:
        """`loops`: all loops of this interpreter, this one too; others may change it. None: they are not known."""
        self._loops = loops
        self._began_ms = 0
        self._moved: set[TopicPartition] = set()
        self._had_many = False

    def moved(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """A turn moved something of this partition."""
        self._turn_window(now_ms)
        self._moved.add(topic_partition)

    def moves_many(self, now_ms: int) -> bool:
        """Whether many partitions moved lately."""
        self._turn_window(now_ms)
        return self.is_busy(now_ms)

    def is_busy(self, now_ms: int) -> bool:
        """As `moves_many`, without a change of state: the other loops' threads ask."""
        is_recent = now_ms - self._began_ms < 2 * cadence.TURN_WINDOW.ms
        return is_recent and (self._had_many or len(self._moved) >= PARTITIONS_MIN)

    def rest_ms(self, begun_ms: int, now_ms: int) -> int:
        """How long to rest before the next turn, after one that began at `begun_ms`."""
        if not self.moves_many(now_ms):
            return 0
        took_ms = now_ms - begun_ms
        apart_ms = max(cadence.TURNS_APART.ms * self._busy_loops(now_ms), APART_TIMES * took_ms)
        return max(0, min(apart_ms, cadence.TURNS_APART_MOST.ms) - took_ms)

    def _busy_loops(self, now_ms: int) -> int:
        if self._loops is None:
            return LOOPS_MAX
        return min(max(1, sum(each.is_busy(now_ms) for each in self._loops)), LOOPS_MAX)

    def work_ms(self, few_ms: int, now_ms: int) -> int:
        """How long a turn works, `few_ms` while few partitions move."""
        return max(few_ms, cadence.TURN_WORK_MANY.ms) if self.moves_many(now_ms) else few_ms

    def _turn_window(self, now_ms: int) -> None:
        passed_ms = now_ms - self._began_ms
        if passed_ms < cadence.TURN_WINDOW.ms:
            return
        self._had_many = passed_ms < 2 * cadence.TURN_WINDOW.ms and len(self._moved) >= PARTITIONS_MIN
        self._began_ms = now_ms
        self._moved.clear()
