"""A cluster in memory for client tests: metadata, tables and progress objects; the test acts as the leaders."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stratalog.replication.leader.log_offsets import LogOffsetSnapshot
from stratalog.replication.metadata.log import open_metadata
from stratalog.replication.metadata.records import (
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from stratalog.replication.progress.progress import UNKNOWN, ReplicaProgress, leader_progress_path
from stratalog.replication.progress.progress_object import ProgressWriter
from stratalog.replication.requests.coordinators import (
    Coordinator,
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from stratalog.replication.requests.delete_records import DeletedRecords, DeleteRecordsRequest, DeleteRecordsResponse
from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse, SentBatch
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.errors import (
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    StratalogError,
    UnknownTopicIdError,
)
from stratalog.storage.log.append import Appended
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import IdentifiedPartition, NewRecordBatch, TopicPartition, payload_table
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.transactions import LastStableOffset
from stratalog.storage.upkeep.retention_rules import HIGH_WATERMARK
from tests.replication.memory_stores import MemoryStores, commit
from tests.storage.logs import delete_records

ROOT = "memory:///metadata"


class MemoryCluster:
    """Brokers 1 to 3 and the test's topics. It is also a `RunningCluster`: its brokers append at once."""

    root = ROOT

    def __init__(self) -> None:
        self.stores = MemoryStores(ids=RandomIds())
        self.clock, self.ids = SystemClock(), RandomIds()
        self.metadata = open_metadata(self.stores, ROOT, self.clock, self.ids)
        self.metadata.create()
        self.logs: dict[tuple[int, TopicPartition], PartitionLog] = {}
        self.writers: dict[int, ProgressWriter] = {}
        self.running = {broker: MemoryBroker(self, broker) for broker in (1, 2, 3)}
        for broker in (1, 2, 3):
            self.commit(RegisterBrokerRecord(broker, broker, self.ids.new_id(), self.root_of(broker)))
            objects = self.stores.objects(self.root_of(broker))
            self.writers[broker] = ProgressWriter(objects, leader_progress_path(broker))

    def root_of(self, broker: int) -> str:
        return f"memory:///broker-{broker}"

    def brokers(self) -> Mapping[int, MemoryBroker]:
        return self.running

    def peers(self) -> Mapping[int, MemoryBroker]:
        return self.running

    def hosts(self, broker_id: int) -> bool:
        return broker_id in (1, 2, 3)

    def commit(self, *records: MetadataRecord) -> None:
        commit(self.metadata, *records)

    def create_topic(
        self, topic: str, partitions: int = 1, *, started: bool = True, topic_id: str | None = None
    ) -> list[TopicPartition]:
        made = [TopicPartition(topic, p) for p in range(partitions)]
        states = [PartitionRecord(topic, p, (1, 2, 3), 1, 0, (1, 2, 3), 0, 0) for p in range(partitions)]
        self.commit(TopicRecord(topic, topic_id or self.ids.new_id()), *states)
        if started:
            for topic_partition in made:
                self.start_leader(topic_partition)
                self.publish(topic_partition)
        return made

    def delete_topic(self, topic: str) -> None:
        """Remove the topic, and its tables, from which the next one of the name begins again."""
        self.commit(RemoveTopicRecord(topic, self.metadata.image.topic_ids[topic]))
        for broker, topic_partition in [key for key in self.logs if key[1].topic == topic]:
            self.logs.pop((broker, topic_partition)).table.drop()

    def state(self, topic_partition: TopicPartition) -> PartitionRecord:
        self.metadata.refresh()
        return self.metadata.image.partition(topic_partition)

    def elect(self, topic_partition: TopicPartition, leader: int, *, unclean: bool = False) -> None:
        """Elect a leader, which has not started yet."""
        state = self.state(topic_partition)
        self.commit(state.changed(leader=leader, bump_leader_epoch=True, unclean=unclean))

    def log(self, broker: int, topic_partition: TopicPartition) -> PartitionLog:
        key = (broker, topic_partition)
        if key not in self.logs:
            table = self.stores.table(self.root_of(broker), topic_partition)
            self.logs[key] = PartitionLog(table, LogConfig(), self.clock, self.ids)
            self.logs[key].exists_or_create(self.metadata.image.topic_ids[topic_partition.topic])
        return self.logs[key]

    def start_leader(self, topic_partition: TopicPartition) -> None:
        state = self.state(topic_partition)
        self.log(state.leader, topic_partition).start_epoch(state.leader_epoch, as_leader=True)

    def follow(self, broker: int, topic_partition: TopicPartition) -> None:
        """Copy everything from the leader as a follower."""
        state = self.state(topic_partition)
        log = self.log(broker, topic_partition)
        log.start_epoch(state.leader_epoch, as_leader=False)
        log.copy_from(self.log(state.leader, topic_partition), state.leader_epoch, 1 << 30)

    def append(self, topic_partition: TopicPartition, *values: bytes, time_ms: int = 1) -> None:
        """Append as the leader; nothing is committed before `publish`."""
        batch = NewRecordBatch(payload_table([(time_ms, None, value, None) for value in values]))
        self.append_batch(topic_partition, batch)

    def append_batch(self, topic_partition: TopicPartition, batch: NewRecordBatch) -> ProduceResponse:
        state = self.state(topic_partition)
        appended = self.log(state.leader, topic_partition).append([batch], state.leader_epoch, 1)
        assert isinstance(appended, Appended)
        result = appended.results[0]
        log_start_offset = self.log(state.leader, topic_partition).log_start_offset
        partition = self.metadata.image.identified(topic_partition)
        if isinstance(result, StratalogError):
            return ProduceResponse(partition, error=result, log_start_offset=log_start_offset)
        stored = (result.base_offset, result.last_offset, state.leader_epoch, result.duplicate)
        return ProduceResponse(partition, *stored, log_start_offset=log_start_offset)

    def publish(
        self,
        topic_partition: TopicPartition,
        high_watermark: int | None = None,
        log_start: int = 0,
        known_committed: int = UNKNOWN,
    ) -> None:
        """Publish a high watermark as the leader, by default its log end."""
        state = self.state(topic_partition)
        log = self.log(state.leader, topic_partition)
        end = log.log_end_offset if high_watermark is None else high_watermark
        topic_id = self.metadata.image.topic_ids[topic_partition.topic]
        progress = ReplicaProgress(
            topic_partition,
            state.leader_epoch,
            log.log_end_offset,
            log.version,
            end,
            log_start,
            0,
            topic_id,
            known_committed,
            *log.state.removed_records,
            state.unclean,
        )
        self.writers[state.leader].update([progress])
        self.writers[state.leader].publish()


class MemoryBroker:
    """Appends and publishes at once, unless `script` holds other answers: an error, or None for silence."""

    def __init__(self, cluster: MemoryCluster, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.script: list[StratalogError | None] = []
        self.requests: list[ProduceRequest] = []
        self.deletions: list[DeleteRecordsRequest] = []

    def find_coordinator(
        self, request: FindCoordinatorRequest, answer: Callable[[FindCoordinatorResponse], None]
    ) -> None:
        """No broker of this cluster coordinates anything: see `memory_coordinator`."""
        error = CoordinatorNotAvailableError("no coordinators here")
        answer(FindCoordinatorResponse(tuple(Coordinator(key, error=error) for key in request.coordinator_keys)))

    def coordinator(
        self, kind: CoordinatorType, key: str | int, request: object, answer: Callable[[object], None]
    ) -> None:
        answer(NotCoordinatorError(f"broker {self.broker_id} does not coordinate {key}"))

    def log_offsets(self, partition: IdentifiedPartition) -> LogOffsetSnapshot | None:
        state = self.cluster.metadata.image.partition(partition.topic_partition)
        log = self.cluster.log(state.leader, partition.topic_partition)
        if not log.has_started(state.leader_epoch):
            return None
        known = log.cached_producers
        transactions = None if known is None else known.transactions
        return LogOffsetSnapshot(state.leader_epoch, log.log_end_offset, log.epochs, transactions, LastStableOffset())

    def delete_records(self, request: DeleteRecordsRequest, complete: Callable[[DeleteRecordsResponse], None]) -> None:
        """As a leader without followers, or as the `script` says."""
        self.deletions.append(request)
        if self.script:
            error = self.script.pop(0)
            if error is not None:
                complete(dict.fromkeys(request.offsets, DeletedRecords(error=error)))
            return
        complete({each: self._deleted(each, offset) for each, offset in request.offsets.items()})

    def _deleted(self, partition: IdentifiedPartition, offset: int) -> DeletedRecords:
        if self.cluster.metadata.image.state_of(partition) is None:
            return DeletedRecords(error=UnknownTopicIdError(f"{partition} is unknown"))
        log = self.cluster.log(self.broker_id, partition.topic_partition)
        delete_records(log, log.log_end_offset if offset == HIGH_WATERMARK else offset)
        self.cluster.publish(partition.topic_partition, log_start=log.log_start_offset)
        return DeletedRecords(log.log_start_offset)

    def every_coordinator(self, kind: CoordinatorType, request: object, answer: Callable[[list[object]], None]) -> None:
        answer([])

    def produce_then(self, request: ProduceRequest, complete: Callable[[ProduceResponse], None]) -> None:
        self.requests.append(request)
        if self.script:
            error = self.script.pop(0)
            if error is not None:
                complete(ProduceResponse(request.partition, error=error))
            return
        if self.cluster.metadata.image.state_of(request.partition) is None:
            complete(ProduceResponse(request.partition, error=UnknownTopicIdError(f"{request.partition} is unknown")))
            return
        batch: NewRecordBatch | SentBatch | StratalogError = request.batch
        if isinstance(batch, SentBatch):
            (batch,) = batch.read([batch])
        if isinstance(batch, StratalogError):
            complete(ProduceResponse(request.partition, error=batch))
            return
        response = self.cluster.append_batch(request.topic_partition, batch)
        self.cluster.publish(request.topic_partition)
        complete(response)
