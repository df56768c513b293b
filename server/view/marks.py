"""The readable bounds of a partition. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stratalog.replication.progress.progress import ReplicaProgress
from stratalog.storage.log.state import NOTHING_REMOVED, RemovedRecords


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The readable offsets of a partition, `[log_start_offset, high_watermark)`, as the leader published them for the
    topic with this id, or as its table in a storage domain has them.

    removed  what of the leader's log, up to this version, may be gone that was read before
    """

    log_start_offset: int
    high_watermark: int
    leader_epoch: int
    version: int
    topic_id: str
    removed: RemovedRecords = NOTHING_REMOVED

    @classmethod
    def of(cls, entry: ReplicaProgress) -> Watermarks:
        """Those of an entry with a high watermark."""
        removed = RemovedRecords(entry.removed_version, entry.removed_end)
        bounds = entry.log_start_offset, entry.high_watermark, entry.leader_epoch, entry.version
        return cls(*bounds, entry.topic_id, removed)

    def later(self, published: Watermarks) -> Watermarks:
        """What was published since, whose bounds go no way back."""
        return replace(
            published,
            log_start_offset=max(self.log_start_offset, published.log_start_offset),
            high_watermark=max(self.high_watermark, published.high_watermark),
        )
