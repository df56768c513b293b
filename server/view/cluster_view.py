"""The cluster as readers see it, from storage alone: topics, leaders, high watermarks, committed records.

I/O: folds the metadata log, polls the leaders' progress objects and tables in storage domains, reads partition tables.
No broker is called.
A stale view is safe: records that a leader once published as committed stay committed, so an old image only
delays. High watermarks never go back within one view, but for an unclean election or a topic that is created again.

What is asked of a view most, topics and partitions, is the view itself; the rest are parts that share its image. No
lock is held for all of it. The metadata log, each progress object and each partition have one of their own, for their
folds; the image and what was published so far are there without these, and data files are read without a lock.
"""

from __future__ import annotations

from stratalog.replication.stores import Stores
from stratalog.server.bootstrap import Cluster
from stratalog.server.view.domain_tables import DomainTables
from stratalog.server.view.leader_progress import led_here_of
from stratalog.server.view.offsets import ViewOffsets
from stratalog.server.view.partition_logs import PartitionLogs
from stratalog.server.view.progress_changes import ProgressChanges
from stratalog.server.view.records import CommittedRecords, Isolation, ReadUncommitted
from stratalog.server.view.topology import ClusterTopology
from stratalog.server.view.watermarks import PublishedWatermarks
from stratalog.storage.clock import Clock, Ids

DEFAULT_TIMEOUT_MS = 30_000


class ClusterView(ClusterTopology):
    """Refreshes itself where needed. Thread-safe; calls may block on storage.

    changes     what moved since a reader last asked, and waiting for more
    watermarks  the readable bounds of partitions, as published
    records     committed records
    offsets     first and last offsets, and those of timestamps
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        stores: Stores | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        """`cluster`: a running `Cluster`, with whose brokers it shares the fold of the metadata log and what they
        publish; or the URL or path of its metadata root. `timeout_ms`: how long to wait for a partition's leader to
        start before LeaderNotAvailableError."""
        super().__init__(cluster, stores, clock, ids)
        logs = PartitionLogs(self.stores, self.clock)
        tables = DomainTables(self, logs, led_here_of(cluster), self.progress.add_moves)
        self.changes = ProgressChanges(self, tables)
        self.watermarks = PublishedWatermarks(self, tables, timeout_ms)
        self.records = CommittedRecords(self, logs, self.watermarks, self.changes, self._isolation())
        self.offsets = self._offsets()

    def _isolation(self) -> Isolation:
        return ReadUncommitted()

    def _offsets(self) -> ViewOffsets:
        return ViewOffsets(self.watermarks, self.records)
