"""How far a group is behind: what it has committed, beside the high watermarks. I/O: leaders' progress objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stratalog.clients.client_view import ClientView
from stratalog.clients.records import OffsetAndMetadata
from stratalog.replication.html_table import html_fields, html_table
from stratalog.storage.records import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group. `high_watermark` is None while its leader has published none, and of one that is gone.

    `lag` counts offsets: control records and records that compaction removed, too.
    """

    topic_partition: TopicPartition
    committed_offset: int
    high_watermark: int | None

    @property
    def lag(self) -> int | None:
        return None if self.high_watermark is None else max(0, self.high_watermark - self.committed_offset)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """Every partition for which a group has committed an offset, in order."""

    group_id: str
    partitions: tuple[PartitionLag, ...]

    @property
    def total(self) -> int:
        """The lag of all partitions whose high watermark is known."""
        return sum(each.lag or 0 for each in self.partitions)

    def _repr_html_(self) -> str:
        rows = [
            (*each.topic_partition, each.committed_offset, each.high_watermark, each.lag) for each in self.partitions
        ]
        header = ("topic", "partition", "committed offset", "high watermark", "lag")
        return html_table(f"group {self.group_id}", header, rows) + html_fields({"lag": self.total})


def lag_of(view: ClientView, group_id: str, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> GroupLag:
    """The lag behind these offsets; no leader is waited for."""
    marks = view.watermarks.published_now(sorted(committed))
    ends = {
        topic_partition: None if found is None else found.high_watermark for topic_partition, found in marks.items()
    }
    return GroupLag(group_id, tuple(PartitionLag(tp, committed[tp].offset, end) for tp, end in ends.items()))
