"""How far apart turns begin while many partitions move, a record here and a record there. Pure.

Each turn costs a publication, and a look by everybody who waits for one, whether it tells of one partition or of
fifty. As long as few partitions move, a turn begins as soon as something happens: that is the shortest way for a
record. From `PARTITIONS_MIN` on, a turn waits a few milliseconds for company, and the longer the more turns take: a
loop then works for a third of the time at most, so that three of them find room in one interpreter. For the same
reason a turn then takes up more before it ends. One partition may be as busy as it likes: its records already go
together into one commit.
"""

from __future__ import annotations

from stratalog.storage.records import TopicPartition

WINDOW_MS = 100
PARTITIONS_MIN = 8
APART_MS, APART_MS_MAX = 15, 25
APART_TIMES = 3
"""Turns begin so many times further apart than they take, within these bounds."""
WORK_MS_MANY = 8
"""A turn that is cut off tells of what it did, and the next one follows at once: with many partitions that would be a
publication, and looks at it, for every second record, and the more of them the more there is to catch up with."""


class TurnPace:
    """The pace of one loop.

    >>> pace = TurnPace()
    >>> for number in range(8):
    ...     pace.moved(TopicPartition("t", number), now_ms=100 + number)
    >>> pace.rest_ms(begun_ms=107, now_ms=108), pace.rest_ms(begun_ms=107, now_ms=111)
    (14, 11)
    >>> pace.rest_ms(begun_ms=399, now_ms=400)  # nothing has moved for a while
    0
    """

    def __init__(self) -> None:
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
        return self._had_many or len(self._moved) >= PARTITIONS_MIN

    def rest_ms(self, begun_ms: int, now_ms: int) -> int:
        """How long to rest before the next turn, after one that began at `begun_ms`."""
        if not self.moves_many(now_ms):
            return 0
        took_ms = now_ms - begun_ms
        return max(0, min(max(APART_MS, APART_TIMES * took_ms), APART_MS_MAX) - took_ms)

    def work_ms(self, few_ms: int, now_ms: int) -> int:
        """How long a turn goes on to take up what waits, `few_ms` while few partitions move."""
        return max(few_ms, WORK_MS_MANY) if self.moves_many(now_ms) else few_ms

    def _turn_window(self, now_ms: int) -> None:
        passed_ms = now_ms - self._began_ms
        if passed_ms < WINDOW_MS:
            return
        self._had_many = passed_ms < 2 * WINDOW_MS and len(self._moved) >= PARTITIONS_MIN
        self._began_ms = now_ms
        self._moved.clear()
