"""A cluster without running brokers: tables, metadata and leaders' progress on disk, changed only by the test."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from stratalog.replication.metadata.image import Result
from stratalog.replication.metadata.log import open_metadata
from stratalog.replication.metadata.records import (
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    StorageDomainRecord,
    TopicRecord,
)
from stratalog.replication.metadata.storage_domains import replica_root
from stratalog.replication.progress.progress import ReplicaProgress, leader_progress_path
from stratalog.replication.progress.progress_object import ProgressWriter
from stratalog.replication.stores import DeltaStores
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.log.append import Appended, BatchAppended
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.objects.store_settings import FROM_ENVIRONMENT, StoreSettings
from stratalog.storage.records import Header, NewRecordBatch, TopicPartition, payload_table
from stratalog.storage.topic_config import LogConfig
from tests import domains
from tests.domains import only_in_roots

Row = tuple[int | None, bytes | None, bytes | None, Sequence[Header] | None]


class StillCluster:
    """Brokers 1 and 2; broker 1 leads every partition until a call of `lead`."""

    def __init__(self, place: Path | str, settings: StoreSettings = FROM_ENVIRONMENT) -> None:
        """`place`: a folder, or the URL of one in an object store, which `settings` describe."""
        self.clock = SystemClock()
        self._place = place if "://" in str(place) else f"file://{place}"
        self.root = f"{place}/metadata"
        self._roots = {1: f"{place}/broker-1", 2: f"{place}/broker-2"}
        if isinstance(place, Path):
            for root in (self.root, *self._roots.values()):
                Path(root).mkdir(parents=True)
        self.stores = DeltaStores(RandomIds(), settings=settings)
        self.metadata = open_metadata(self.stores, self.root, self.clock, RandomIds())
        self.metadata.create()
        self.logs: dict[tuple[int, TopicPartition], PartitionLog] = {}
        self.progress = {
            i: ProgressWriter(self.stores.objects(root), leader_progress_path(i)) for i, root in self._roots.items()
        }
        self.commit_metadata(*(RegisterBrokerRecord(i, i, f"life-{i}", root) for i, root in self._roots.items()))
        if domains.IS_ON:
            self.commit_metadata(StorageDomainRecord(domains.NAME, f"{self._place}/domain", durable=True))

    @property
    def roots(self) -> dict[int, str]:
        """Those of the brokers, with their tables."""
        only_in_roots("it looks into brokers' roots")
        return self._roots

    def commit_metadata(self, *records: MetadataRecord) -> None:
        self.metadata.propose(lambda image: Result(records, None))

    def view(self) -> ClusterView:
        return ClusterView(self.root, stores=self.stores)

    def create_topic(self, topic: str, partitions: int, topic_id: str = "") -> list[TopicPartition]:
        self.commit_metadata(TopicRecord(topic, topic_id or f"id-of-{topic}"))
        created = [TopicPartition(topic, number) for number in range(partitions)]
        for topic_partition in created:
            self.lead(topic_partition, 1, 0)
            self.publish(topic_partition, 0)
        return created

    def create_again(self, topic: str, partitions: int, topic_id: str) -> list[TopicPartition]:
        """Delete the topic, with its tables, and create another one of its name."""
        self.commit_metadata(RemoveTopicRecord(topic, self.metadata.image.topic_ids[topic]))
        for broker_id, topic_partition in [key for key in self.logs if key[1].topic == topic]:
            del self.logs[broker_id, topic_partition]
            shutil.rmtree(f"{self._roots[broker_id]}/{topic_partition}", ignore_errors=domains.IS_ON)
        return self.create_topic(topic, partitions, topic_id)

    def lead(self, topic_partition: TopicPartition, leader: int, epoch: int) -> None:
        """Elect a leader under a new epoch; its table starts the epoch, nothing is published yet."""
        domain = domains.NAME if domains.IS_ON else ""
        self.commit_metadata(PartitionRecord(*topic_partition, (1, 2), leader, epoch, (1, 2), epoch, 1, domain=domain))
        log = self.log(topic_partition, leader)
        log.exists_or_create(self.metadata.image.topic_ids[topic_partition.topic])
        log.start_epoch(epoch, as_leader=True)

    def log(self, topic_partition: TopicPartition, broker_id: int) -> PartitionLog:
        key = (broker_id, topic_partition)
        if broker_id != self.leader(topic_partition):
            only_in_roots("a follower has a log of its own")
        if key not in self.logs:
            state = self.metadata.image.partitions.get(topic_partition)
            root = None if state is None else replica_root(self.metadata.image, state, broker_id)
            if root is not None and root.startswith("file://"):
                Path(root.removeprefix("file://")).mkdir(parents=True, exist_ok=True)
            table = self.stores.table(root or self._roots[broker_id], topic_partition)
            self.logs[key] = PartitionLog(table, LogConfig(), self.clock, RandomIds())
        return self.logs[key]

    def leader(self, topic_partition: TopicPartition) -> int:
        return self.metadata.image.partition(topic_partition).leader

    def append(self, topic_partition: TopicPartition, rows: Sequence[Row]) -> None:
        """Append to the leader's log; not committed until `publish`."""
        self.append_batch(topic_partition, NewRecordBatch(payload_table(rows)))

    def append_batch(self, topic_partition: TopicPartition, batch: NewRecordBatch) -> None:
        log = self.log(topic_partition, self.leader(topic_partition))
        appended = log.append([batch], log.leader_epoch, self.clock.wall_ms())
        assert isinstance(appended, Appended)
        assert isinstance(appended.results[0], BatchAppended)

    def publish(self, topic_partition: TopicPartition, high_watermark: int) -> None:
        """Publish a high watermark as the leader."""
        leader = self.leader(topic_partition)
        log = self.log(topic_partition, leader)
        if high_watermark < log.log_end_offset:
            only_in_roots("not all of the log is committed")
        writer = self.progress[leader]
        writer.update(
            [
                ReplicaProgress(
                    topic_partition,
                    log.leader_epoch,
                    log.log_end_offset,
                    log.version,
                    high_watermark,
                    log.log_start_offset,
                    0,
                    self.metadata.image.topic_ids[topic_partition.topic],
                )
            ]
        )
        writer.publish()

    def commit(self, topic_partition: TopicPartition, values: Sequence[str], *, first_ms: int = 1_000) -> None:
        """Append records with equal key and value, a millisecond apart, and publish them as committed."""
        rows: list[Row] = [(first_ms + i, v.encode(), v.encode(), None) for i, v in enumerate(values)]
        self.append(topic_partition, rows)
        self.publish(topic_partition, self.log(topic_partition, self.leader(topic_partition)).log_end_offset)
