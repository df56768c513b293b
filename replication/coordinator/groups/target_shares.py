"""What the coordinator's assignors share out and to whom. Pure.

Source: Kafka's `GroupSpec`, `MemberSubscription` and `MemberAssignment`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class TopicIdPartition(NamedTuple):
    """A partition of a topic that is named by its id (32 hexadecimal digits): what a member owns and is assigned."""

    topic_id: str
    partition: int


Shares = dict[str, frozenset[TopicIdPartition]]
"""Target partitions of each member id; every member has an entry."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member as an assignor sees it: the existing topics that it subscribes to, and its target so far."""

    topic_ids: frozenset[str]
    target: frozenset[TopicIdPartition] = frozenset()
    instance_id: str | None = None
