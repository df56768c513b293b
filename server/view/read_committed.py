"""Reading with `isolation.level=read_committed`: up to the last stable offset, without aborted records.

I/O: as `ClusterView`. A reader folds a partition's transactions from the same commits as its files, so no broker is
called and nothing is read in addition while a log has no transaction. In Kafka a Fetch response lists the aborted
transactions and the consumer filters (`CompletedFetch`); here the view does. It takes the list before it reads the
records: when compaction removes these, the list loses them, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stratalog.server.offset_spec import LATEST_TIMESTAMP, ListedOffset, OffsetSpec
from stratalog.server.view.cluster_view import ClusterView
from stratalog.server.view.marks import Watermarks
from stratalog.server.view.offsets import ViewOffsets
from stratalog.server.view.records import Isolation
from stratalog.storage.config_def import ConfigKey, one_of
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import TRANSACTIONAL_ATTRIBUTE, TopicPartition
from stratalog.storage.transactions import AbortedTransaction, Transactions

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
ISOLATION_LEVEL = ConfigKey(
    "isolation.level", "STRING", READ_UNCOMMITTED, validator=one_of(READ_COMMITTED, READ_UNCOMMITTED)
)


class ReadCommitted:
    """Records below the last stable offset, without those of aborted transactions."""

    def readable_end(self, log: LogReader, marks: Watermarks, end: int) -> int:
        return max(marks.log_start_offset, log.log_start_offset, log.last_stable_offset(end))

    def transactions_of(self, log: LogReader) -> Transactions:
        return log.producers.transactions

    def kept(self, rows: pa.Table, aborted: Sequence[AbortedTransaction]) -> pa.Table:
        return without_aborted(rows, aborted)


class StableOffsets(ViewOffsets):
    """The offsets of a view whose partitions end at their last stable offset."""

    def last_stable_offset(self, topic_partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset below which the outcome of every transaction is known; waits and raises as `watermarks.of`."""
        return self.readable_end(topic_partition, self._watermarks.of(topic_partition, timeout_ms))

    def readable_end(self, topic_partition: TopicPartition, marks: Watermarks) -> int:
        """As `last_stable_offset`, within the published bounds."""
        with self._records.locked(topic_partition):
            return self._records.readable_log(topic_partition, marks)[1]

    def end_offsets(
        self, topic_partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The last stable offset of each partition."""
        marks = self._watermarks.of_all(topic_partitions, timeout_ms)
        ends = self._records.at_once(lambda tp: self.readable_end(tp, marks[tp]), marks)
        return dict(zip(marks, ends, strict=True))

    def list_offset(
        self, topic_partition: TopicPartition, spec: OffsetSpec, timeout_ms: int | None = None
    ) -> ListedOffset:
        """As `ViewOffsets.list_offset`, among the records below the last stable offset."""
        if spec.timestamp != LATEST_TIMESTAMP:
            return super().list_offset(topic_partition, spec, timeout_ms)
        marks = self._watermarks.of(topic_partition, timeout_ms)
        return ListedOffset(self.readable_end(topic_partition, marks), leader_epoch=marks.leader_epoch)


class ReadCommittedView(ClusterView):
    """A view whose partitions end at their last stable offset; `watermarks` still has the high watermark."""

    offsets: StableOffsets

    def _isolation(self) -> Isolation:
        return ReadCommitted()

    def _offsets(self) -> StableOffsets:
        return StableOffsets(self.watermarks, self.records)


def view_of(isolation_level: str) -> type[ClusterView]:
    """The class of view that reads at this level."""
    return ReadCommittedView if is_read_committed(isolation_level) else ClusterView


def is_read_committed(isolation_level: str) -> bool:
    """InvalidConfigError for a level that Kafka does not have."""
    return bool(ISOLATION_LEVEL.parse(isolation_level) == READ_COMMITTED)


def without_aborted(rows: pa.Table, aborted: Sequence[AbortedTransaction]) -> pa.Table:
    """`rows` (columns `offset`, `producer_id`, `attributes`; in order of offset) without those of aborted transactions.

    With an aborted transaction [10, 14] of producer 7, its rows 10 to 14 are removed; other producers' rows stay.
    """
    if not aborted or rows.num_rows == 0 or pc.max(rows["attributes"]).as_py() < TRANSACTIONAL_ATTRIBUTE:
        return rows
    offsets, producers = rows["offset"].to_numpy(), rows["producer_id"].to_numpy()
    counts = np.ones(rows.num_rows, bool)
    for producer_id, first_offset, last_offset in aborted:
        first = int(np.searchsorted(offsets, first_offset))
        end = int(np.searchsorted(offsets, last_offset, side="right"))
        counts[first:end] &= producers[first:end] != producer_id
    return rows if counts.all() else rows.filter(pa.array(counts))
