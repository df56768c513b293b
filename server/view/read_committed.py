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
from stratalog.server.view.cluster_view import ClusterView, Watermarks
from stratalog.storage.config_def import ConfigKey, one_of
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import TRANSACTIONAL_ATTRIBUTE, TopicPartition
from stratalog.storage.transactions import AbortedTransaction, Transactions

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
ISOLATION_LEVEL = ConfigKey(
    "isolation.level", "STRING", READ_UNCOMMITTED, validator=one_of(READ_COMMITTED, READ_UNCOMMITTED)
)


class ReadCommittedView(ClusterView):
    """A view whose partitions end at their last stable offset; `watermarks` still has the high watermark."""

    def last_stable_offset(self, topic_partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset below which the outcome of every transaction is known; waits and raises as `watermarks`."""
        return self.readable_end(topic_partition, self.watermarks(topic_partition, timeout_ms))

    def readable_end(self, topic_partition: TopicPartition, marks: Watermarks) -> int:
        """As `last_stable_offset`, within the published bounds."""
        with self._logs.of(topic_partition).lock:
            return self._readable_log(topic_partition, marks)[1]

    def end_offsets(
        self, topic_partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The last stable offset of each partition."""
        marks = self.all_watermarks(topic_partitions, timeout_ms)
        return dict(zip(marks, self.at_once(lambda tp: self.readable_end(tp, marks[tp]), marks), strict=True))

    def list_offset(
        self, topic_partition: TopicPartition, spec: OffsetSpec, timeout_ms: int | None = None
    ) -> ListedOffset:
        """As `ClusterView.list_offset`, among the records below the last stable offset."""
        if spec.timestamp != LATEST_TIMESTAMP:
            return super().list_offset(topic_partition, spec, timeout_ms)
        marks = self.watermarks(topic_partition, timeout_ms)
        return ListedOffset(self.readable_end(topic_partition, marks), leader_epoch=marks.leader_epoch)

    def _readable_log(self, topic_partition: TopicPartition, marks: Watermarks) -> tuple[LogReader, int]:
        log, end = super()._readable_log(topic_partition, marks)
        return log, max(marks.log_start_offset, log.log_start_offset, log.last_stable_offset(end))

    def _transactions_of(self, log: LogReader) -> Transactions:
        return log.producers.transactions

    def _kept(self, rows: pa.Table, aborted: Sequence[AbortedTransaction]) -> pa.Table:
        return without_aborted(rows, aborted)


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
