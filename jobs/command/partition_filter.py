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
            self.pattern = re.compile(cleaned)
            """The expression itself, to be matched with whole names."""
        except re.error as reason:
            raise UsageError(f"{expression} is an invalid regex.") from reason
        self._exclude_internal = exclude_internal

    def allows(self, topic: str) -> bool:
        is_hidden = self._exclude_internal and is_internal(topic)
        return not is_hidden and self.pattern.fullmatch(topic) is not None


Rule = tuple[TopicFilter, Container[int]]
"""Topics by expression, and numbers of their partitions."""


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """Partitions that at least one of the rules allows."""

    rules: tuple[Rule, ...]

    def allows(self, topic_partition: TopicPartition) -> bool:
        topic, number = topic_partition
        return any(number in numbers and topics.allows(topic) for topics, numbers in self.rules)

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
        return PartitionFilter(((TopicFilter(topic or _ANY_TOPIC), listed),))


def _rule(pattern: str) -> Rule:
    matched = _RULE.fullmatch(pattern)
    if matched is None:
        raise UsageError(f"Invalid rule specification: {pattern}")
    topic, one, lower, upper = matched.groups()
    topics = TopicFilter(topic or _ANY_TOPIC)
    if one:
        return topics, {int(one)}
    return topics, range(int(lower or 0), int(upper) if upper else sys.maxsize)
