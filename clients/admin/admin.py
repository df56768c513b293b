"""The admin client: what is committed to the metadata log, and what the leaders of partitions are asked for.

I/O: as `MetadataAdmin`, and requests to leaders.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from stratalog.clients.admin.record_deletion import RecordDeletion
from stratalog.clients.connected_cluster import CalledBrokers, connection_of_root
from stratalog.replication.requests.delete_records import DeletedRecords
from stratalog.server.admin.admin import MetadataAdmin
from stratalog.server.bootstrap import Cluster
from stratalog.server.view.cluster_view import DEFAULT_TIMEOUT_MS, ClusterView
from stratalog.storage.records import TopicPartition


class Admin(MetadataAdmin):
    """Calls block until their commit is made; those that create partitions, until the leaders have started.

    cluster     a running `Cluster` or `RemoteCluster`, or the URL or path of its metadata root: leaders are called
                through their inboxes then, unless `connection` says otherwise
    connection  configs of connections (`security.protocol`, `stratalog.transport`: see docs/produce-and-consume.md)
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        view: ClusterView | None = None,
        rng: random.Random | None = None,
        connection: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(cluster, timeout_ms=timeout_ms, view=view, rng=rng)
        self._cluster = cluster
        self._connection = connection_of_root(connection or {})

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, DeletedRecords]:
        """Delete the records before an offset in each partition; -1: all below the high watermark (KIP-107).

        The answer for a partition has the low watermark, the least log start offset of its live replicas, or its
        `error`: OffsetOutOfRangeError (above the high watermark), PolicyViolationError (`cleanup.policy` without
        delete), UnknownTopicOrPartitionError, RequestTimedOutError (a live replica has not followed in time). Nothing
        is raised, and no partition waits for another. Readers see the new start at once; segments wholly
        below it leave storage later, with retention.
        """
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        with CalledBrokers(self._cluster, self._view.stores, self._connection) as brokers:
            return RecordDeletion(self._view, brokers, offsets, limit_ms).run()
