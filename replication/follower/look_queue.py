"""Which of its partitions a fetch session works on next. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from stratalog.storage.records import TopicPartition


class LookQueue:
    """`soon` has those with something to copy, `checks` those that are only checked; some are delayed.

    >>> one, two, three = (TopicPartition("t", number) for number in (1, 2, 3))
    >>> queue = LookQueue()
    >>> queue.check([one, two])
    >>> queue.add(three)
    >>> queue.delay(two, due_ms=70)
    >>> queue.add(two)
    >>> [str(each) for each in [*queue.soon, *queue.checks]], queue.due_in_ms(now_ms=50, idle_ms=1_000)
    (['t-3', 't-1', 't-2'], 0)
    >>> queue.release_due(now_ms=70)
    >>> [str(each) for each in queue.soon]
    ['t-3', 't-2']
    """

    def __init__(self) -> None:
        self.soon: OrderedDict[TopicPartition, None] = OrderedDict()
        self.checks: OrderedDict[TopicPartition, None] = OrderedDict()
        self._later: dict[TopicPartition, int] = {}
        self._later_ms = 0
        self._held: set[TopicPartition] = set()

    def __bool__(self) -> bool:
        """Whether something is queued."""
        return bool(self.soon or self.checks)

    def clear(self) -> None:
        """Drop all but what is delayed."""
        self.soon.clear()
        self.checks.clear()

    def add(self, topic_partition: TopicPartition) -> None:
        """Copy it soon, unless it is delayed."""
        if topic_partition not in self._later:
            self.soon[topic_partition] = None

    def check(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Check them when nothing is more urgent, and one of them in each turn."""
        self.checks.update(OrderedDict.fromkeys(topic_partitions))

    def delay(self, topic_partition: TopicPartition, due_ms: int, *, is_held: bool = False) -> None:
        """Not before `due_ms`; `is_held`: not even if its leader publishes something meanwhile."""
        self._later_ms = min(self._later_ms, due_ms) if self._later else due_ms
        self._later[topic_partition] = due_ms
        if is_held:
            self._held.add(topic_partition)

    def is_delayed(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._later

    def published(self, topic_partition: TopicPartition) -> None:
        """Its leader published something: a delay ends, unless the partition is held."""
        if topic_partition not in self._held:
            self._later.pop(topic_partition, None)

    def release(self, topic_partition: TopicPartition) -> None:
        """End its delay, even if it is held."""
        self._later.pop(topic_partition, None)
        self._held.discard(topic_partition)

    def release_due(self, now_ms: int) -> None:
        """Copy soon what was delayed until now."""
        if not self._later or now_ms < self._later_ms:
            return
        for topic_partition in [tp for tp, due_ms in self._later.items() if due_ms <= now_ms]:
            self.release(topic_partition)
            self.soon[topic_partition] = None
        self._later_ms = min(self._later.values(), default=0)

    def due_in_ms(self, now_ms: int, idle_ms: int) -> int:
        """How long until something is queued; `idle_ms` when nothing is delayed."""
        if self:
            return 0
        return max(0, self._later_ms - now_ms) if self._later else idle_ms
