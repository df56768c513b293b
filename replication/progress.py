"""What one writer says of a replica that it moves, and where it says it. Pure.

Entries merge by (leader epoch, table version), never downwards (DESIGN §6). `progress_object` writes and reads
the objects that hold them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from storage.records import TopicPartition

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """One replica as its writer last saw it. A follower leaves `high_watermark` and `start_offset` UNKNOWN."""

    topic_partition: TopicPartition
    leader_epoch: int
    log_end_offset: int
    version: int
    high_watermark: int = UNKNOWN
    log_start_offset: int = 0
    start_offset: int = UNKNOWN
    topic_id: str = ""

    def supersedes(self, other: ReplicaProgress | None) -> bool:
        """True when this is newer: a later leader epoch, table version, or high watermark of the same version.

        A topic created anew under an old name counts from zero: the later statement of one writer wins.
        """
        return other is None or other.topic_id != self.topic_id or self._order() > other._order()

    def _order(self) -> tuple[int, int, int, int]:
        return (self.leader_epoch, self.version, self.high_watermark, self.log_start_offset)


def to_row(sequence: int, p: ReplicaProgress) -> list[Any]:
    return [
        sequence, *p.topic_partition, p.leader_epoch, p.log_end_offset, p.version,
        p.high_watermark, p.log_start_offset, p.start_offset, p.topic_id,
    ]  # fmt: skip


def from_row(row: list[Any]) -> tuple[int, ReplicaProgress]:
    return row[0], ReplicaProgress(TopicPartition(row[1], row[2]), *row[3:])


PROGRESS_PREFIX = "progress/"


def progress_prefix(broker_epoch: int) -> str:
    return f"{PROGRESS_PREFIX}{broker_epoch}/"


def leader_progress_path(broker_epoch: int) -> str:
    """What the broker's leader loop publishes, in the broker's own root."""
    return progress_prefix(broker_epoch) + "leader"


def fetch_progress_path(broker_epoch: int, session: str) -> str:
    """What one fetch session of the broker publishes, in the broker's own root."""
    return f"{progress_prefix(broker_epoch)}fetch-{session}"


def image_path(path: str) -> str:
    return path.replace("/fetch-", "/image-fetch-") if "/fetch-" in path else path + "-image"
