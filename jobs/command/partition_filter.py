"""Which partitions a tool is about: Kafka's topic-partition patterns (TopicPartitionFilter, KIP-635). Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stratalog.jobs.command.arguments import TopicFilter
from stratalog.jobs.command.terminal import UsageError
from stratalog.storage.records import TopicPartition

_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
_ANY_TOPIC = ".*"


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """Topics by expression, and of them the partitions `[first, end)` (end None: all that follow) or those listed."""

    topics: TopicFilter
    first: int = 0
    end: int | None = None
    listed: frozenset[int] | None = None

    def allows(self, topic_partition: TopicPartition) -> bool:
        topic, partition = topic_partition
        if not self.topics.allows(topic):
            return False
        if self.listed is not None:
            return partition in self.listed
        return self.first <= partition and (self.end is None or partition < self.end)


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """Partitions that any of the rules allows."""

    rules: tuple[PartitionRule, ...]

    def allows(self, topic_partition: TopicPartition) -> bool:
        return any(rule.allows(topic_partition) for rule in self.rules)

    @staticmethod
    def from_patterns(patterns: str) -> PartitionFilter:
        """`topic:partition`, `topic:lower-upper` (upper exclusive), `topic:lower-`, `topic:-upper`, `topic`, `:1` …,
        with commas between; a topic is a regular expression. UsageError for anything else.

        >>> rules = PartitionFilter.from_patterns("a.*:1-3,:7")
        >>> [p for p in range(9) if rules.allows(TopicPartition("ab", p))]
        [1, 2, 7]
        """
        return PartitionFilter(tuple(_rule(pattern) for pattern in patterns.split(",")))

    @staticmethod
    def from_topic(topic: str | None, partitions: str | None) -> PartitionFilter:
        """A topic's expression (None: all topics) and partition numbers with commas between (None: all).

        UsageError when one is no number.
        """
        listed = None
        if partitions:
            numbers = partitions.split(",")
            if not all(number.isascii() and number.isdigit() for number in numbers):
                raise UsageError(
                    f"--partitions expects a comma separated list of numeric partition ids, but received: {partitions}"
                )
            listed = frozenset(map(int, numbers))
        return PartitionFilter((PartitionRule(TopicFilter(topic or _ANY_TOPIC), listed=listed),))


def _rule(pattern: str) -> PartitionRule:
    matched = _RULE.fullmatch(pattern)
    if matched is None:
        raise UsageError(f"Invalid rule specification: {pattern}")
    topic, one, lower, upper = matched.groups()
    topics = TopicFilter(topic or _ANY_TOPIC)
    if one:
        return PartitionRule(topics, listed=frozenset({int(one)}))
    return PartitionRule(topics, int(lower or 0), int(upper) if upper else None)
