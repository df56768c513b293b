"""Topics of modern groups: ids, matches of regular expressions, a hash that detects changes. Pure.

Source: `CoordinatorMetadataImage`, `Utils.computeGroupHash` and `TopicRegexResolver` of Kafka 4.3.1. The hash is not
Kafka's (XXH3, with racks): it is only ever compared with itself.

Regular expressions are RE2's, as in Kafka, and bounded: see `client_pattern`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

from stratalog.replication.client_pattern import client_pattern
from stratalog.replication.metadata.image import ClusterImage


def topic_ids(image: ClusterImage, names: Iterable[str]) -> frozenset[str]:
    """Ids of those topics that exist."""
    return frozenset(image.topic_ids[name] for name in names if name in image.topic_ids)


def partition_counts(image: ClusterImage, names: Iterable[str]) -> dict[str, int]:
    """Numbers of partitions by topic id, of those topics that exist."""
    known = (name for name in names if name in image.topic_ids)
    return {image.topic_ids[name]: len(image.partitions_by_topic.get(name, ())) for name in known}


def topic_names(image: ClusterImage) -> dict[str, str]:
    """Names by topic id."""
    return {topic_id: name for name, topic_id in image.topic_ids.items()}


def metadata_hash(image: ClusterImage, names: Iterable[str]) -> int:
    """A signed 64-bit number of the ids and partition counts of the topics that exist; 0 of none."""
    counts = partition_counts(image, names)
    if not counts:
        return 0
    digest = blake2b(digest_size=8)
    for topic_id in sorted(counts):
        digest.update(f"{topic_id}:{counts[topic_id]};".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)


Matches = Callable[[str, Collection[str]], frozenset[str] | None]
"""Those of some topics' names that a whole expression matches; None when that is not known yet."""


class KnownTopics(NamedTuple):
    """The cluster's topics, and how regular expressions are resolved to their names."""

    image: ClusterImage
    matches: Matches


def matching_topics(regex: str, names: Collection[str]) -> frozenset[str]:
    """`Matches` that are known at once. Raises INVALID_REGULAR_EXPRESSION, as `topic_pattern`."""
    pattern = topic_pattern(regex)
    return frozenset(name for name in names if pattern.fullmatch(name))


def topic_pattern(regex: str) -> Any:
    """The compiled expression. Raises INVALID_REGULAR_EXPRESSION, as `client_pattern`."""
    return client_pattern(regex, "SubscribedTopicRegex")
