"""Topics by regular expression, and partitions by Kafka's patterns (TopicPartitionFilter, KIP-635). Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Container
from dataclasses import dataclass

from stratalog.jobs.command.terminal import UsageError
from stratalog.replication.internal_topics import is_internal
from stratalog.storage.records import TopicPartition

_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
_ANY_TOPIC = ".*"
_ALL = range(sys.maxsize)


class TopicFilter:
    """Topics by a regular expression over the whole name; a comma means "or", as in Kafka.

    >>> [t for t in ("a", "ab", "b") if TopicFilter("a.*, b").allows(t)]
    ['a', 'ab', 'b']
    """

    def __init__(self, expression: str, *, exclude_internal: bool = False) -> None:
        cleaned = re.sub(r"^[\"']+|[\"']+$", "", expression.strip().replace(",", "|").replace(" ", ""))
        try:
            self._pattern = re.compile(cleaned)
        except re.error as reason:
            raise UsageError(f"{expression} is an invalid regex.") from reason
        self._exclude_internal = exclude_internal

    @property
    def pattern(self) -> re.Pattern[str]:
        """The expression itself, to be matched with whole names."""
        return self._pattern

    def allows(self, topic: str) -> bool:
        if self._exclude_internal and is_internal(topic):
            return False
        return self._pattern.fullmatch(topic) is not None


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """Topics by expression, and numbers of their partitions."""

    topics: TopicFilter
    partitions: Container[int] = _ALL

    def allows(self, topic_partition: TopicPartition) -> bool:
        return self.topics.allows(topic_partition.topic) and topic_partition.partition in self.partitions


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

        UsageError when one is not a number.
        """
        listed: Container[int] = _ALL
        if partitions:
            numbers = partitions.split(",")
            if not all(number.isascii() and number.isdigit() for number in numbers):
                raise UsageError(
                    f"--partitions expects a comma separated list of numeric partition ids, but received: {partitions}"
                )
            listed = frozenset(map(int, numbers))
        return PartitionFilter((PartitionRule(TopicFilter(topic or _ANY_TOPIC), listed),))


def _rule(pattern: str) -> PartitionRule:
    matched = _RULE.fullmatch(pattern)
    if matched is None:
        raise UsageError(f"Invalid rule specification: {pattern}")
    topic, one, lower, upper = matched.groups()
    topics = TopicFilter(topic or _ANY_TOPIC)
    if one:
        return PartitionRule(topics, {int(one)})
    return PartitionRule(topics, range(int(lower or 0), int(upper) if upper else sys.maxsize))
