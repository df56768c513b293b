"""A whole cluster in memory: hosts with a broker, a controller candidate and fetch sessions, and clients.

All of it is the real code; only storage, time and identifiers are the simulation's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from replication.broker import Broker, BrokerIdentity
from replication.config import BrokerConfig
from replication.controller import Controller
from replication.fetcher import FetchSession
from replication.followed_partitions import FollowedPartitions
from replication.metadata import METADATA_PARTITION
from replication.progress import leader_progress_path, progress_rows
from replication.requests import ACKS_ALL, ProduceRequest
from replication.state import PartitionRecord, RemoveTopicRecord, TopicRecord, record_from_json
from replication.stores import open_metadata, replica_of
from replication.topics import create_topic
from storage.chore import UpkeepLimits
from storage.config import LogConfig
from storage.errors import OffsetOutOfRangeError, StratalogError
from storage.log import PartitionLog
from storage.memory_table import MemoryDisk, MemoryLogTable
from storage.records import NewRecordBatch, TopicPartition, payload_table
from storage.store import MemoryStore
from storage.table import LogTable
from tests.simulation.invariants import Invariants
from tests.simulation.scheduler import Actor, Faults, Scheduler, SimClock, SimIds

METADATA_ROOT = "memory:///metadata"
TOPIC = "t"
CONFIG = BrokerConfig.from_properties(
    {
        "broker.session.timeout.ms": 900,
        "broker.heartbeat.interval.ms": 200,
        "replica.lag.time.max.ms": 1000,
        "replica.fetch.backoff.ms": 50,
        "stratalog.metadata.poll.ms": 40,
        "stratalog.inbox.poll.ms": 1_000_000,
        "stratalog.upkeep.interval.ms": 250,
        "stratalog.progress.poll.min.ms": 10,
        "stratalog.progress.poll.max.ms": 60,
    }
)
FETCH_SESSION_MS = 1_500
UPKEEP = UpkeepLimits(
    checkpoint_commits=20,
    keep_commits=10,
    keep_ms=400,
    garbage_ms=500,
    merge_files_min=4,
    merge_spread_files=0,
    leader_first_ms=300,
)


class SimObjects(MemoryStore):
    """The small objects of one root, with the scheduler between caller and effect."""

    def __init__(self, sim: SimCluster, root: str) -> None:
        super().__init__({}, lambda: sim.clock.wall_ms(), root)
        self._sim = sim
        self._root = root

    def put(self, path: str, data: bytes) -> None:
        self._sim.scheduler.access("put", self._root, path)
        super().put(path, data)
        self._sim.object_written(self._root, path, data)
        self._sim.scheduler.access("put:done", self._root, path)

    def get_optional(self, path: str) -> bytes | None:
        self._sim.scheduler.access("get", self._root, path)
        return super().get_optional(path)

    def list(self, prefix: str):  # type: ignore[no-untyped-def]
        self._sim.scheduler.access("list", self._root, prefix)
        return super().list(prefix)


class SimDisk(MemoryDisk):
    """A storage domain that tells the invariants of every version that comes to stand."""


@dataclass(slots=True)
class Host:
    """One machine: its disk stays, its processes come and go."""

    broker_id: int
    root: str
    disk: MemoryDisk
    broker: Broker | None = None
    actors: list[Actor] = field(default_factory=list)
    zombies: list[Broker] = field(default_factory=list)
    lives: int = 0


class SimCluster:
    """`brokers` hosts, one topic `t`, and the fault injection of one seed."""

    def __init__(
        self, seed: int, *, brokers: int = 3, partitions: int = 1, min_isr: int = 1, faults: Faults | None = None
    ) -> None:
        self.scheduler = Scheduler(seed, faults or Faults())
        self.clock = SimClock(self.scheduler)
        self.ids = SimIds(self.scheduler)
        self.metadata_disk = self._disk("metadata", -1)
        self.hosts = {i: Host(i, f"memory:///broker-{i}", self._disk(f"broker-{i}", i)) for i in range(1, brokers + 1)}
        self.invariants = Invariants({i: h.disk for i, h in self.hosts.items()})
        self._objects: dict[str, SimObjects] = {}
        self._disks = {METADATA_ROOT: self.metadata_disk, **{h.root: h.disk for h in self.hosts.values()}}
        self.partitions = partitions
        self.min_isr = min_isr
        self.value_count = 0
        self.told: list[str] = []

    # -- stores (the port `replication.stores.Stores`) -----------------------------------------------------

    def _disk(self, name: str, broker_id: int) -> MemoryDisk:
        disk = MemoryDisk(now_ms=lambda: self.clock.wall_ms())
        root = f"memory:///{name}"
        disk.access = lambda operation, table, detail: self._access(disk, root, broker_id, operation, table, detail)
        return disk

    def _access(self, disk: MemoryDisk, root: str, broker_id: int, operation: str, table: str, detail: str) -> None:
        if operation == "create:done":
            self._version_created(disk, broker_id, table, int(detail.rsplit("/", 1)[1]))
        self.scheduler.access(operation, root, f"{table}/{detail}")

    def objects(self, root: str) -> SimObjects:
        if root not in self._objects:
            self._objects[root] = SimObjects(self, root)
        return self._objects[root]

    def table(self, root: str, topic_partition: TopicPartition) -> LogTable:
        return MemoryLogTable(self._disks[root], str(topic_partition), self.ids)

    def replicas(self, root: str) -> list[TopicPartition]:
        return [found for name in list(self._disks[root].tables) if (found := replica_of(name)) is not None]

    # -- what the invariants see -------------------------------------------------------------------------

    def _version_created(self, disk: MemoryDisk, broker_id: int, table: str, version: int) -> None:
        stored = disk.tables[table].commits.get(version)
        if stored is None or (broker_id, table, stored.commit.commit_id) in self._seen_commits:
            return
        self._seen_commits.add((broker_id, table, stored.commit.commit_id))
        if version > 0 and version - 1 not in disk.tables[table].commits:
            return  # a ghost, or a version overtaken by clean-up: not part of the log
        if broker_id >= 0:
            topic, _, partition = table.rpartition("-")
            self.invariants.table_committed(broker_id, TopicPartition(topic, int(partition)), stored.commit)
        elif stored.commit.data_change:
            self._metadata_committed(stored.commit)

    _seen_commits: set[tuple[int, str, str]]

    def __new__(cls, *args: object, **kwargs: object) -> SimCluster:
        self = super().__new__(cls)
        self._seen_commits = set()
        return self

    def _metadata_committed(self, commit: object) -> None:
        files = self.metadata_disk.tables[str(METADATA_PARTITION)]
        for entry in commit.adds:  # type: ignore[attr-defined]
            for value in files.data_files[entry.path]["value"].to_pylist():
                record = record_from_json(value)
                self.tell(f"metadata: {value.decode()}")
                if isinstance(record, PartitionRecord):
                    self.invariants.partition_committed(record)
                elif isinstance(record, TopicRecord):
                    self.invariants.topic_ids[record.name] = record.topic_id
                elif isinstance(record, RemoveTopicRecord):
                    self.invariants.topic_ids.pop(record.name, None)

    def object_written(self, root: str, path: str, data: bytes) -> None:
        if path.startswith("progress/") and path.endswith("/leader"):
            broker_id = int(root.rsplit("-", 1)[1])
            for progress in progress_rows(data):
                self.invariants.high_watermark_published(broker_id, progress)

    def tell(self, event: str) -> None:
        """A line of the run's story, printed when it ends badly."""
        actor = self.scheduler.current
        self.told.append(f"{self.scheduler.now_ms:7d} {actor.name if actor else '-':14s} {event}")

    # -- hosts -------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        """Brokers up, topic created, without faults."""
        self.scheduler.faults.is_on = False
        metadata = open_metadata(self, METADATA_ROOT, self.clock, self.ids)
        metadata.create()
        for broker_id in self.hosts:
            self.start_host(broker_id)
        self.scheduler.run_until(self.scheduler.now_ms + 3_000, lambda: self._all_registered(metadata))
        metadata.propose(
            lambda image: create_topic(
                image,
                TOPIC,
                self.ids.new_id(),
                partitions=self.partitions,
                replication_factor=len(self.hosts),
                configs={"min.insync.replicas": str(self.min_isr)},
                start_index=self.scheduler.random.randrange(len(self.hosts)),
                shift=0,
                check_configs=LogConfig.from_properties,
            )
        )
        self.scheduler.run_until(self.scheduler.now_ms + 500)
        self.scheduler.faults.is_on = True

    def _all_registered(self, metadata: object) -> bool:
        metadata.refresh()  # type: ignore[attr-defined]
        return len(metadata.image.live_brokers()) == len(self.hosts)  # type: ignore[attr-defined]

    def start_host(self, broker_id: int) -> None:
        """A new process on the host: broker loop and controller candidate; fetch sessions once registered."""
        host = self.hosts[broker_id]
        host.lives += 1
        name = f"b{broker_id}.{host.lives}"
        broker = Broker(
            BrokerIdentity(broker_id, host.root),
            CONFIG,
            METADATA_ROOT,
            self,
            self.clock,
            self.ids,
            topic_defaults={"file.delete.delay.ms": 500},
            upkeep_limits=UPKEEP,
            on_registered=lambda epoch: self._start_sessions(host, epoch),
        )
        controller = Controller(broker_id, CONFIG, METADATA_ROOT, self, self.clock, self.ids, upkeep_limits=UPKEEP)
        host.broker = broker
        host.actors = [
            self.scheduler.spawn(name, f"host-{broker_id}", lambda: self._run_broker(broker)),
            self.scheduler.spawn(
                f"c{broker_id}.{host.lives}", f"host-{broker_id}", lambda: self._run_controller(controller, broker)
            ),
        ]

    def _run_broker(self, broker: Broker) -> None:
        started = False
        while broker.stopped_by is None:
            try:
                if not started:
                    broker.start()
                    started = True
                moved = broker.step()
            except StratalogError as reason:
                self.tell(f"broker error {reason}")
                moved = False
            self.clock.sleep_ms(1 if moved else 15)

    def _run_controller(self, controller: Controller, broker: Broker) -> None:
        while broker.stopped_by is None:
            try:
                controller.step()
            except StratalogError as reason:
                self.tell(f"controller error {reason}")
            self.clock.sleep_ms(controller.poll_interval_ms)

    def _start_sessions(self, host: Host, broker_epoch: int) -> None:
        for slot in range(CONFIG.stratalog_fetch_sessions):
            self.scheduler.spawn(
                f"f{host.broker_id}.{broker_epoch}.{slot}",
                f"fetch-{host.broker_id}.{broker_epoch}.{slot}",
                lambda slot=slot: self._run_sessions(host, broker_epoch, slot),
                delay_ms=10 + slot * FETCH_SESSION_MS // 2,
            )

    def _run_sessions(self, host: Host, broker_epoch: int, slot: int) -> None:
        followed: FollowedPartitions | None = None
        for number in range(10_000):
            session = FetchSession(
                host.broker_id,
                broker_epoch,
                host.root,
                f"{slot}-{number}-{self.ids.new_id()[:6]}",
                config=CONFIG,
                metadata_root=METADATA_ROOT,
                stores=self,
                clock=self.clock,
                ids=self.ids,
                upkeep_limits=UPKEEP,
                followed=followed,
            )
            try:
                session.run(FETCH_SESSION_MS)
            except StratalogError as reason:
                self.tell(f"fetch session error {reason}")
            # Most often Spark gives the next session the same worker, which still has what this one folded.
            followed = session.followed if self.scheduler.random.random() < 0.7 else None
            if session.is_over:
                return
            self.clock.sleep_ms(self.scheduler.random.randrange(10, 100))

    def crash(self, broker_id: int) -> None:
        """The process dies; its fetch tasks, elsewhere in the Spark cluster, live on as zombies."""
        host = self.hosts[broker_id]
        self.tell(f"crash of broker {broker_id}")
        self.scheduler.kill(host.actors)
        host.actors = []
        host.broker = None

    def pause(self, name: str, duration_ms: int) -> None:
        self.tell(f"pause of {name} for {duration_ms} ms")
        self.scheduler.pause(name, duration_ms)

    def cut(self, host: str, root: str, duration_ms: int) -> None:
        self.tell(f"{host} cannot reach {root} for {duration_ms} ms")
        self.scheduler.cut(host, root, duration_ms)

    # -- clients -----------------------------------------------------------------------------------------

    def start_clients(self, producers: int = 2, consumers: int = 1) -> None:
        for number in range(producers):
            idempotent = number % 2 == 0
            self.scheduler.spawn(f"p{number}", f"client-p{number}", lambda n=number, i=idempotent: self._produce(n, i))
        for number in range(consumers):
            self.scheduler.spawn(f"r{number}", f"client-r{number}", self._consume)

    def _produce(self, number: int, idempotent: bool) -> None:
        metadata = open_metadata(self, METADATA_ROOT, self.clock, self.ids)
        sequences = dict.fromkeys(range(self.partitions), 0)
        while True:
            partition = self.scheduler.random.randrange(self.partitions)
            count = self.scheduler.random.randrange(1, 4)
            values = [b"v%d" % (self.value_count + i) for i in range(count)]
            self.value_count += count
            payload = payload_table([(self.clock.wall_ms(), None, value, None) for value in values])
            batch = NewRecordBatch(payload, number, 0, sequences[partition]) if idempotent else NewRecordBatch(payload)
            outcome = self._send(
                metadata, TopicPartition(TOPIC, partition), batch, values, retries=50 if idempotent else 0
            )
            if idempotent and not outcome:
                return  # as Kafka's producer: after a failed batch the sequence is lost
            sequences[partition] += count
            self.clock.sleep_ms(self.scheduler.random.randrange(5, 80))

    def _send(
        self,
        metadata: object,
        topic_partition: TopicPartition,
        batch: NewRecordBatch,
        values: list[bytes],
        retries: int,
    ) -> bool:
        for _ in range(retries + 1):
            try:
                metadata.refresh()  # type: ignore[attr-defined]
            except StratalogError:
                continue
            leader = metadata.image.partition(topic_partition).leader  # type: ignore[attr-defined]
            broker = self.hosts[leader].broker if leader in self.hosts else None
            if broker is None:
                self.clock.sleep_ms(50)
                continue
            future = broker.produce(ProduceRequest(topic_partition, batch, ACKS_ALL, timeout_ms=1_500))
            patience = self.scheduler.random.randrange(200, 3_000)
            deadline = self.scheduler.now_ms + patience
            while not future.done() and self.scheduler.now_ms < deadline:
                self.clock.sleep_ms(10)
            if not future.done():
                continue
            response = future.result()
            if response.error is None:
                self.tell(
                    f"ack {topic_partition} [{response.base_offset}..{response.last_offset}] "
                    f"epoch {response.leader_epoch} {values}"
                )
                for i, value in enumerate(values):
                    self.invariants.acknowledged(topic_partition, response.base_offset + i, value)
                return True
            self.clock.sleep_ms(20)
        return False

    def _consume(self) -> None:
        metadata = open_metadata(self, METADATA_ROOT, self.clock, self.ids)
        positions = dict.fromkeys((TopicPartition(TOPIC, p) for p in range(self.partitions)), 0)
        while True:
            for topic_partition in positions:
                try:
                    metadata.refresh()
                    positions[topic_partition] = self._read(metadata, topic_partition, positions[topic_partition])
                except StratalogError:
                    pass
            self.clock.sleep_ms(60)

    def _read(self, metadata: object, topic_partition: TopicPartition, position: int) -> int:
        """Read from the leader's table up to the high watermark it published for its epoch."""
        image = metadata.image  # type: ignore[attr-defined]
        state = image.partitions[topic_partition]
        leader = image.brokers.get(state.leader)
        if leader is None:
            return position
        path = leader_progress_path(leader.broker_epoch)
        content = self.objects(leader.registration.root).get_register(path)
        for progress in progress_rows(content or b""):
            if progress.topic_partition != topic_partition or progress.leader_epoch != state.leader_epoch:
                continue
            if progress.high_watermark <= position:
                return position
            log = PartitionLog(self.table(leader.registration.root, topic_partition), LogConfig(), self.clock, self.ids)
            if log.leader_epoch != state.leader_epoch:
                return position
            try:
                table = log.read(position, 1 << 20, progress.high_watermark)
            except OffsetOutOfRangeError:
                return position
            for offset, value, producer, sequence in zip(
                *(table[c].to_pylist() for c in ("offset", "value", "producer_id", "sequence")), strict=True
            ):
                self.invariants.was_read(topic_partition, offset, value, producer, sequence)
                position = offset + 1
        return position
