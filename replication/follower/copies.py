"""A bounded part of a replica that is to be copied, and what became of it. I/O: through the replica's logs."""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.replication.follower.replica import FollowedReplica
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition

CopyOutcome = bool | StratalogError | None
"""Of a copy: whether there may be more to do at once; why it failed; None: the tables are to be opened again."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A bounded part of a replica that is to be copied; `before`: what the session has copied of it so far."""

    replica: FollowedReplica
    max_bytes: int
    count_before: int
    bytes_before: int

    @property
    def topic_partition(self) -> TopicPartition:
        return self.replica.state.topic_partition

    def make(self) -> CopyOutcome:
        """Copy it, perhaps in a thread beside the others of a turn."""
        try:
            if not self.replica.has_started and not self.replica.stands():
                return None
            return self.replica.catch_up(self.max_bytes)
        except StratalogError as reason:
            return reason
