"""Which of its partitions a fetch session looks at next. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from stratalog.storage.records import TopicPartition


class LookQueue:
    """Those with something to copy come soon, those that are only looked at after them, and some not before a time.

    >>> one, two, three = (TopicPartition("t", number) for number in (1, 2, 3))
    >>> queue = LookQueue()
    >>> queue.check([one, two])
    >>> queue.mark(three)
    >>> queue.put_off(two, due_ms=70)
    >>> queue.mark(two)
    >>> [str(each) for each in [*queue.soon, *queue.checks]], queue.due_in_ms(now_ms=50, idle_ms=1_000)
    (['t-3', 't-1', 't-2'], 0)
    >>> queue.take_up(now_ms=70)
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
        """Whether there is something to look at now."""
        return bool(self.soon or self.checks)

    def clear(self) -> None:
        """Nothing is to be looked at but what was put off."""
        self.soon.clear()
        self.checks.clear()

    def mark(self, topic_partition: TopicPartition) -> None:
        """Look at it soon, unless it was put off."""
        if topic_partition not in self._later:
            self.soon[topic_partition] = None

    def check(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Look at them when nothing is more urgent, and at one in each turn."""
        self.checks.update(OrderedDict.fromkeys(topic_partitions))

    def put_off(self, topic_partition: TopicPartition, due_ms: int, *, is_held: bool = False) -> None:
        """Not before `due_ms`; `is_held`: whatever its leader publishes meanwhile."""
        self._later_ms = min(self._later_ms, due_ms) if self._later else due_ms
        self._later[topic_partition] = due_ms
        if is_held:
            self._held.add(topic_partition)

    def is_put_off(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._later

    def heard_of(self, topic_partition: TopicPartition) -> None:
        """Its leader published something: what it was put off for may have come, unless it is held."""
        if topic_partition not in self._held:
            self._later.pop(topic_partition, None)

    def begin_anew(self, topic_partition: TopicPartition) -> None:
        """Why it was put off or held does not count any more."""
        self._later.pop(topic_partition, None)
        self._held.discard(topic_partition)

    def take_up(self, now_ms: int) -> None:
        """Look soon at what was put off until now."""
        if not self._later or now_ms < self._later_ms:
            return
        for topic_partition in [tp for tp, due_ms in self._later.items() if due_ms <= now_ms]:
            self.begin_anew(topic_partition)
            self.soon[topic_partition] = None
        self._later_ms = min(self._later.values(), default=0)

    def due_in_ms(self, now_ms: int, idle_ms: int) -> int:
        """How long until there is something to look at; `idle_ms`: where nothing was put off."""
        if self:
            return 0
        return max(0, self._later_ms - now_ms) if self._later else idle_ms
