"""The largest lag of a follower behind its leader. I/O: folds the replicas' tables; no broker is called."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import StratalogError
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import TopicPartition


class ReplicaLag:
    """Keeps the folds of what it read, so that each further look costs a request for each replica."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._logs: dict[tuple[TopicPartition, str, str], LogReader] = {}

    def records_max(self, topics: Iterable[str]) -> int | None:
        """Records that the last follower lacks of what its leader has; None when no partition can be read.

        Replicas out of reach are left out, as is a partition without a leader.
        """
        view = self._view
        view.refresh()
        lags: list[int] = []
        for topic in topics:
            for topic_partition in view.image.partitions_of(topic) if topic in view.image.topic_ids else ():
                state = view.partition_state(topic_partition)
                ends = {replica: self._log_end(topic_partition, replica) for replica in state.replicas}
                leader_end = ends.pop(state.leader, None)
                if leader_end is not None:
                    lags += [max(0, leader_end - end) for end in ends.values() if end is not None] or [0]
        return max(lags, default=None)

    def _log_end(self, topic_partition: TopicPartition, broker_id: int) -> int | None:
        root = self._view.replica_root(topic_partition, broker_id)
        if root is None:
            return None
        key = (topic_partition, self._view.image.topic_ids[topic_partition.topic], root)
        with suppress(StratalogError):
            if key not in self._logs:
                self._logs[key] = LogReader(self._view.stores.table(root, topic_partition), self._view.clock)
            self._logs[key].refresh()
            return self._logs[key].log_end_offset
        return None
