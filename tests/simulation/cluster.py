"""A whole cluster in memory: hosts with a broker, a controller candidate and fetch sessions.

All of it is the real code; only storage, time and identifiers are the simulation's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from stratalog.replication.broker.broker import Broker
from stratalog.replication.broker.calls import BrokerCalls
from stratalog.replication.broker.hosted_replicas import BrokerIdentity, BrokerSetup
from stratalog.replication.broker_root import mark_clean_shutdown
from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.controller import Controller
from stratalog.replication.controller.domains.storage_domains import add_storage_domain
from stratalog.replication.controller.sessions import session_path
from stratalog.replication.controller.topics import create_topic
from stratalog.replication.coordinator.runtime.kinds import CoordinatorKind
from stratalog.replication.folders import replica_of
from stratalog.replication.follower.partitions import FetchJob, FollowedPartitions
from stratalog.replication.follower.sessions.fetch_session import FollowerSession
from stratalog.replication.internal_topics import is_internal
from stratalog.replication.log_configs import DEFAULT_NAMES
from stratalog.replication.metadata.domain_claim import claim_domain
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.log import METADATA_COMMITS, open_metadata
from stratalog.replication.metadata.records import (
    CLUSTER_WIDE,
    ConfigRecord,
    FenceBrokerRecord,
    MetadataRecord,
    StorageDomainRecord,
    TopicRecord,
    record_from_json,
    value_of_row,
)
from stratalog.replication.metadata.storage_domains import DOMAIN_CONFIG
from stratalog.replication.progress.progress import progress_rows
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.produce import ProduceResponse
from stratalog.replication.stores import FarAppends, FileWriters, OneByOne, Ports, Together
from stratalog.storage.delta.commit_race import StoredCommit
from stratalog.storage.delta.table import LogTable
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import NewRecordBatch, TopicPartition
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import UpkeepLimits
from tests.simulation.erasures.erased import Erased
from tests.simulation.faults import Faults
from tests.simulation.invariants import DOMAINS, Invariants, Violation
from tests.simulation.metadata_model import MetadataModel
from tests.simulation.scheduler import Actor, Scheduler, SimClock, SimExecutor, SimIds, SimPool, SimSideBySide, SimTurn
from tests.simulation.stores import OTHER_TABLE, SimDisk, SimDomain, SimLogTable, SimObjects, continues_log
from tests.storage.memory_table import MemoryFiles

METADATA_ROOT = "memory:///metadata"
DOMAIN = "lake"
DOMAIN_ROOTS = {name: f"memory:///{name}" for name in DOMAINS}
TOPIC = "t"
SESSION_MS = 900
PROPERTIES = {
    "broker.session.timeout.ms": SESSION_MS,
    "broker.heartbeat.interval.ms": 200,
    "replica.lag.time.max.ms": 1000,
    "replica.fetch.backoff.ms": 50,
    "log.retention.check.interval.ms": 300,
    "offsets.commit.timeout.ms": 1_500,
    "producer.id.expiration.ms": 10 * 86_400_000,
    "offsets.topic.num.partitions": 2,
    "group.consumer.assignment.interval.ms": 50,
    "group.consumer.heartbeat.interval.ms": 100,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.min.session.timeout.ms": 700,
    "group.consumer.session.timeout.ms": 700,
    "group.initial.rebalance.delay.ms": 20,
    "group.min.session.timeout.ms": 100,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 2,
    "stratalog.metadata.poll.max.ms": 150,
    "stratalog.metadata.poll.ms": 40,
    "stratalog.inbox.poll.ms": 40,
    "stratalog.inbox.poll.max.ms": 40,
    "stratalog.upkeep.interval.ms": 250,
    "stratalog.progress.poll.min.ms": 10,
    "stratalog.progress.poll.max.ms": 60,
}
CONFIG = BrokerConfig.from_properties(PROPERTIES)
FETCH_SESSION_MS = 1_500
COMPACTED = (("cleanup.policy", "compact"), ("segment.files.max", "3"), ("min.cleanable.dirty.ratio", "0.1"))
UPKEEP = UpkeepLimits(
    checkpoint_commits=20,
    keep_commits=10,
    keep_ms=400,
    garbage_ms=500,
    merge_files_min=4,
    merge_spread_files=0,
    leader_first_ms=300,
)
QUICK_UPKEEP = UpkeepLimits(
    checkpoint_commits=6,
    keep_commits=3,
    keep_ms=150,
    garbage_ms=300,
    merge_files_min=3,
    merge_spread_files=0,
    leader_first_ms=100,
)


Disk = tuple[dict[str, MemoryFiles], dict[str, bytes]]
"""What is on a machine's disk: its tables and its small objects."""


@dataclass(slots=True)
class Host:
    """One machine: its disk stays, its processes come and go."""

    broker_id: int
    root: str
    disk: SimDisk
    broker: Broker | None = None
    actors: list[Actor] = field(default_factory=list)
    zombies: list[Broker] = field(default_factory=list)
    is_leaving: bool = False
    lives: int = 0

    @property
    def process(self) -> str:
        """The scheduler's name of the newest process."""
        return f"host-{self.broker_id}.{self.lives}"

    @property
    def controller(self) -> str:
        return f"control-{self.broker_id}.{self.lives}"


@dataclass(frozen=True, slots=True)
class Setting:
    """The setting of a run, besides its faults.

    configs       of the topic that exists from the beginning
    notifies      whether storage notifies of changes (as a local disk does), or is polled
    pause_ms_max  the longest pause of a producer between two batches
    coordinators  those that the brokers host
    workload      the clients of these coordinators, besides the clients of every run
    producers     the number of producers of every run
    is_durable    whether writes survive a power cut once they are answered, as on an object store
    recreates     whether topics are deleted and made again under their clients
    erases        whether records are erased by their keys
    endpoint      whether clients also fetch from what brokers remember of batches
    sinks         the number of Spark sinks, which hand files over to leaders
    calls_max     so many calls to storage are made side by side, as where a store is far away; 1: one after the other
    file_writers_ms  the longest time in which another thread writes the file of an append; 0: the broker's loop does
    in_domain     whether topics are in a storage domain that the brokers share, of which no power cut takes anything
    moves         whether topics move between the brokers' roots and two domains, and have copies there
    beside        whether leaders store appends beside their loop, as where a store is far away
    """

    brokers: int = 3
    partitions: int = 1
    configs: tuple[tuple[str, str], ...] = ()
    upkeep: UpkeepLimits = UPKEEP
    notifies: bool = True
    pause_ms_max: int = 80
    coordinators: Mapping[CoordinatorType, CoordinatorKind] = field(default_factory=dict)
    workload: Callable[[SimCluster], Workload] | None = None
    producers: int = 2
    is_durable: bool = False
    recreates: bool = False
    erases: bool = False
    endpoint: bool = False
    sinks: int = 0
    calls_max: int = 1
    file_writers_ms: int = 0
    in_domain: bool = False
    moves: bool = False
    beside: bool = False


@dataclass(frozen=True, slots=True)
class SimThreads:
    """`replication.stores.Threads`: each thread is an actor of the process `host`, and dies with its `actors`."""

    scheduler: Scheduler
    host: str
    actors: list[Actor]

    def start(self, name: str, run: Callable[[], None]) -> None:
        self.actors.append(self.scheduler.spawn(name, self.host, run))


class Workload(Protocol):
    """Running clients of coordinators, and the invariants of their answers."""

    @property
    def acked_count(self) -> int:
        """The number of acknowledged requests."""
        ...

    def check_end(self) -> None:
        """Check once more after all faults. Raises `Violation`."""
        ...


def with_defaults(created: Result[str]) -> Result[str]:
    """The creation of a topic, and with it the defaults of all topics."""
    given = {"file.delete.delay.ms": "500", "stratalog.snapshot.retention.ms": "0"}
    defaults = [ConfigRecord(CLUSTER_WIDE, DEFAULT_NAMES[name], value) for name, value in given.items()]
    return replace(created, records=(*created.records, *defaults))


def _with_domain(image: ClusterImage) -> Result[StorageDomainRecord]:
    """A storage domain, in which all topics are made."""
    added = add_storage_domain(image, DOMAIN, DOMAIN_ROOTS[DOMAIN], durable=True)
    return replace(added, records=(*added.records, ConfigRecord(CLUSTER_WIDE, DOMAIN_CONFIG, DOMAIN)))


class SimCluster:
    """`setting.brokers` hosts, one topic `t`, and the fault injection of one seed."""

    def __init__(self, seed: int, faults: Faults, setting: Setting) -> None:
        self.scheduler = Scheduler(seed, faults)
        self.clock = SimClock(self.scheduler)
        self.ids = SimIds(self.scheduler)
        self.setting = setting
        self._objects: dict[str, SimObjects] = {}
        self.metadata_disk = SimDisk(
            METADATA_ROOT, self.scheduler, self.clock, self._metadata_created, lambda _table, _files, _path: None
        )
        self.hosts = {i: self._host(i) for i in range(1, setting.brokers + 1)}
        self.kills = 0
        self.domains = {name: self._domain(name) for name in DOMAINS}
        self.invariants = Invariants(
            {
                **{DOMAINS[name]: disk for name, disk in self.domains.items()},
                **{i: host.disk for i, host in self.hosts.items()},
            },
            session_silence_ms_min=SESSION_MS // 2,
            root_silence_ms_min=SESSION_MS // 3,
            retained=frozenset({TOPIC}),
            erased=Erased(lambda: self.scheduler.now_ms),
        )
        self._disks = {METADATA_ROOT: self.metadata_disk, **{h.root: h.disk for h in self.hosts.values()}}
        self._beats_ms: dict[str, int] = {}
        self._checked_ms: dict[tuple[str, str], int] = {}
        self._root_silent_ms: dict[int, int] = {}
        """For how long a broker's own root had answered no write of it when its process gave it up."""
        self._controllers: dict[str, Controller] = {}
        self._peers: dict[int, BrokerCalls] = {}
        self.on_crash: Callable[[Broker], None] = lambda _broker: None
        """Called with a process before it dies."""
        self.on_appended: Callable[[Broker, NewRecordBatch, ProduceResponse], None] = lambda *_: None
        """Called in a broker's loop when it answers a batch."""
        self.metadata_model = MetadataModel()
        self.value_count = 0
        self.event_log: list[str] = []

    def _host(self, broker_id: int) -> Host:
        root = f"memory:///broker-{broker_id}"

        def created(table: str, version: int, stored: StoredCommit) -> None:
            self._replica_created(broker_id, table, version, stored)

        def deleted(table: str, files: MemoryFiles, path: str) -> None:
            topic_partition = replica_of(table)
            if topic_partition is not None:
                self.invariants.file_deleted(broker_id, topic_partition, files, path)

        kept_ms = self.setting.upkeep.keep_ms if self.setting.is_durable else 0
        return Host(broker_id, root, SimDisk(root, self.scheduler, self.clock, created, deleted, kept_ms))

    def _domain(self, name: str) -> SimDomain:
        def created(table: str, version: int, stored: StoredCommit) -> None:
            if continues_log(self.domains[name].tables[table], version, stored):
                place = replica_of(table.rpartition("/")[2])
                assert place is not None
                self.invariants.table_committed(DOMAINS[name], place, version, stored.commit, table)

        def deleted(table: str, files: MemoryFiles, path: str) -> None:
            place = replica_of(table.rpartition("/")[2])
            assert place is not None
            self.invariants.file_deleted(DOMAINS[name], place, files, path)

        kept_ms = self.setting.upkeep.keep_ms
        domain = SimDomain(DOMAIN_ROOTS[name], self.scheduler, self.clock, created, deleted, kept_ms)
        domain.topic_ids = lambda: self.invariants.topic_ids.values()
        return domain

    # -- stores (the port `replication.stores.Stores`) -----------------------------------------------------

    def objects(self, root: str) -> SimObjects:
        if root not in self._objects:
            seen = self.object_written, self._object_read, self._object_arrived_late
            notifies, is_durable = self.setting.notifies, self.setting.is_durable
            self._objects[root] = SimObjects(
                root, self.scheduler, self.clock, *seen, reports_writes=notifies, is_durable=is_durable
            )
        return self._objects[root]

    def table(self, root: str, topic_partition: TopicPartition) -> LogTable:
        place, _, folder = root.rpartition("/")
        for name, domain in DOMAIN_ROOTS.items():
            if place == domain:
                return SimLogTable(self.domains[name], f"{folder}/{topic_partition}", self.ids)
        return SimLogTable(self._disks[root], str(topic_partition), self.ids)

    def replicas(self, root: str) -> list[TopicPartition]:
        return [found for name in list(self._disks[root].tables) if (found := replica_of(name)) is not None]

    def replica_table(self, broker_id: int, topic_partition: TopicPartition) -> LogTable:
        """That of a broker's replica, wherever it is."""
        owner, name = self.invariants.place_of(broker_id, topic_partition)
        found = next((disk for each, disk in self.domains.items() if DOMAINS[each] == owner), None)
        return SimLogTable(found or self.hosts[owner].disk, name, self.ids)

    # -- calls of the invariants -------------------------------------------------------------------------

    def _replica_created(self, broker_id: int, table: str, version: int, stored: StoredCommit) -> None:
        # A version 0 of another partition's table, all alone, says what this one's said: an empty log of the topic.
        if stored.previous_id == OTHER_TABLE and version > 1:
            raise Violation("RecoveredLog", f"{table} on {broker_id}: version {version} follows {OTHER_TABLE!r}")
        if not continues_log(self.hosts[broker_id].disk.tables[table], version, stored):
            return
        topic_partition = replica_of(table)
        if topic_partition is not None:
            self.invariants.table_committed(broker_id, topic_partition, version, stored.commit)

    def _metadata_created(self, table: str, version: int, stored: StoredCommit) -> None:
        files = self.metadata_disk.tables[table]
        self.objects(METADATA_ROOT).report_write(f"{METADATA_COMMITS}{version}", is_new=True)
        commit = stored.commit
        if not continues_log(files, version, stored):
            return
        if commit.removes:  # a merge or compaction
            self._check_metadata()
            return
        records = [
            record_from_json(value_of_row(key, value))
            for entry in commit.adds
            for key, value in zip(*(files.data_files[entry.path][n].to_pylist() for n in ("key", "value")), strict=True)
        ]
        self.metadata_model.committed(records)
        self.metadata_committed(records)
        for record in records:
            if isinstance(record, TopicRecord) and self.is_compacted(record.name):
                self.invariants.compacted.add(record.topic_id)
        actor = self.scheduler.current
        controller = self._controllers.get(actor.name) if actor is not None else None
        fenced = [record.broker_id for record in records if isinstance(record, FenceBrokerRecord)]
        fences_itself = controller is not None and controller.broker_id in fenced
        by = None if controller is None or fences_itself else (controller.broker_id, controller.epoch)
        self.invariants.metadata_committed(records, by)
        for broker_id in fenced:
            if fences_itself:
                self.invariants.fenced_itself(broker_id, self._root_silent_ms[broker_id])
            elif by is not None and actor is not None:
                self._check_fence(actor, broker_id)

    def _check_metadata(self) -> None:
        """Fold the metadata log again, in no time."""
        faults = self.scheduler.faults
        was_on, faults.is_on = faults.is_on, False
        open_metadata(self, METADATA_ROOT, self.clock, self.ids).refresh()
        faults.is_on = was_on

    def recover_metadata(self) -> None:
        """Cut off what a power cut tore of the metadata log, and forget what was committed above, in no time."""
        faults = self.scheduler.faults
        was_on, faults.is_on = faults.is_on, False
        left = open_metadata(self, METADATA_ROOT, self.clock, self.ids)
        left.log.table.recover_tail()
        left.refresh()
        faults.is_on = was_on
        self.metadata_model.lost_power(left)
        self.invariants.metadata_lost(left.image)

    def metadata_committed(self, records: Sequence[MetadataRecord]) -> None:
        """These records were committed to the metadata log."""
        for record in records:
            self.log_event(f"metadata: {record}")

    def is_compacted(self, topic: str) -> bool:
        return is_internal(topic) or (topic == TOPIC and ("cleanup.policy", "compact") in self.setting.configs)

    def _check_fence(self, actor: Actor, broker_id: int) -> None:
        path = session_path(broker_id)
        if (actor.name, path) in self._checked_ms:
            self.invariants.fenced(broker_id, self._checked_ms[actor.name, path])

    def object_written(self, root: str, path: str, data: bytes) -> None:
        if path.startswith("sessions/"):
            self._beats_ms[path] = self.scheduler.now_ms
        else:
            self._check_published(root, path, data, is_late=False)

    def _object_arrived_late(self, root: str, path: str, data: bytes) -> None:
        self._check_published(root, path, data, is_late=True)

    def _check_published(self, root: str, path: str, data: bytes, *, is_late: bool) -> None:
        if path.startswith("progress/") and path.endswith("/leader"):
            broker_id = int(root.rsplit("-", 1)[1])
            for progress in progress_rows(data):
                self.invariants.high_watermark_published(broker_id, progress, is_late=is_late)

    def _object_read(self, path: str) -> None:
        """Records the age of a session when a controller read it."""
        actor = self.scheduler.current
        if actor is not None and actor.name in self._controllers and path in self._beats_ms:
            self._checked_ms[actor.name, path] = self.scheduler.now_ms - self._beats_ms[path]

    def log_event(self, event: str) -> None:
        """A line of the run's story, printed when an invariant breaks."""
        actor = self.scheduler.current
        self.event_log.append(f"{self.scheduler.now_ms:7d} {actor.name if actor else '-':14s} {event}")

    # -- hosts -------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        """Brokers up, topic created, without faults."""
        self.scheduler.faults.is_on = False
        metadata = open_metadata(self, METADATA_ROOT, self.clock, self.ids)
        metadata.create()
        for broker_id in self.hosts:
            self.start_host(broker_id)
        self.scheduler.run_until(
            self.scheduler.now_ms + 3_000, lambda: len(self.invariants.live) == len(self.hosts), poll_ms=5
        )
        if self.setting.in_domain:
            metadata.propose(_with_domain)
        for name in DOMAINS if self.setting.moves else ():
            metadata.propose(partial(add_storage_domain, name=name, url=DOMAIN_ROOTS[name], durable=True))
        for name, domain in metadata.image.storage_domains.items():
            claim_domain(self.objects(domain.url), metadata.image.cluster_id, name)
        metadata.propose(
            lambda image: with_defaults(
                create_topic(
                    image,
                    TOPIC,
                    self.ids.new_id(),
                    partitions=self.setting.partitions,
                    replication_factor=min(3, len(self.hosts)),
                    configs=dict(self.setting.configs),
                    start_index=self.scheduler.random.randrange(len(self.hosts)),
                    shift=0,
                    check_configs=LogConfig.validated,
                )
            )
        )
        self.scheduler.run_until(self.scheduler.now_ms + 200)
        self.scheduler.faults.is_on = True

    def start_host(self, broker_id: int) -> None:
        """A new process on the host: broker loop and controller candidate; fetch sessions once registered."""
        host = self.hosts[broker_id]
        host.lives += 1
        host.actors = []
        threads = SimThreads(self.scheduler, host.process, host.actors)
        host.is_leaving = False
        broker = Broker(
            BrokerSetup(
                BrokerIdentity(broker_id, host.root),
                CONFIG,
                METADATA_ROOT,
                upkeep_limits=self.setting.upkeep,
            ),
            Ports(
                self,
                self.clock,
                self.ids,
                threads=threads,
                together=self._together(host.process, host.actors),
                file_writers=self._file_writers(host),
                appends=FarAppends(self._pool(host)) if self.setting.beside else None,
            ),
            on_registered=lambda epoch: self._start_sessions(host, epoch),
            coordinators=self.setting.coordinators,
            peers=self._peers,
        )
        self._peers[broker_id] = broker.calls
        controller = Controller(
            broker_id,
            broker.incarnation_id,
            CONFIG,
            METADATA_ROOT,
            Ports(self, self.clock, self.ids),
            self.setting.upkeep,
        )
        name, process = f"c{broker_id}.{host.lives}", host.process
        self._controllers[name] = controller
        host.broker = broker
        host.actors += [
            self.scheduler.spawn(f"b{broker_id}.{host.lives}", host.process, lambda: self._run_broker(host, broker)),
            self.scheduler.spawn(name, host.controller, lambda: self._run_controller(controller, broker, process)),
        ]

    def _run_broker(self, host: Host, broker: Broker) -> None:
        started = False
        while broker.stopped_by is None:
            try:
                if not started:
                    broker.start()
                    started = True
                elif host.is_leaving and host.broker is broker:
                    try:
                        broker.shut_down()
                    finally:
                        host.is_leaving = False  # it is tried once
                    break
                moved = broker.step()
                pause_ms = broker.wait_ms(moved=moved)
                rest_ms = broker.rest_ms()
                if rest_ms:
                    self.clock.sleep_ms(rest_ms)
            except StratalogError as reason:
                self.log_event(f"broker error {reason}")
                pause_ms = 50
            broker.wakeup.wait_ms(pause_ms)

    def _run_controller(self, controller: Controller, broker: Broker, process: str) -> None:
        while broker.stopped_by is None:
            try:
                given_up = broker.epoch_to_give_up()
                if given_up is not None:
                    answered_ms = self.scheduler.answered_ms.get((process, broker.root), 0)
                    self._root_silent_ms[broker.broker_id] = self.scheduler.now_ms - answered_ms
                controller.step(given_up)
                if controller.expects_changes:
                    broker.expect_metadata()
            except StratalogError as reason:
                self.log_event(f"controller error {reason}")
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
        job = FetchJob(host.broker_id, broker_epoch, host.root, METADATA_ROOT, CONFIG)
        followed: FollowedPartitions | None = None
        for number in range(10_000):
            name = f"{slot}-{number}-{self.ids.new_id()[:6]}"
            if followed is None:
                followed = FollowedPartitions(job, 0, self._ports_of_worker(host, job, slot), self.setting.upkeep)
            session = FollowerSession(followed, name)
            try:
                session.run(FETCH_SESSION_MS)
            except StratalogError as reason:
                self.log_event(f"fetch session error {reason}")
            # Most often Spark runs the next session in the same worker, which still has the fold of this one.
            followed = session.followed if self.scheduler.random.random() < 0.7 else None
            if session.is_over:
                return
            self.clock.sleep_ms(self.scheduler.random.randrange(10, 100))

    def _ports_of_worker(self, host: Host, job: FetchJob, slot: int) -> Ports:
        """Those of a new worker, with an executor of its own where upkeep is slow."""
        name = f"{host.broker_id}.{job.broker_epoch}.{slot}"
        slow_ms = self.scheduler.faults.slow_work_ms
        executor = SimExecutor(self.scheduler, f"u{name}", f"fetch-{name}", slow_ms) if slow_ms else None
        threads = SimThreads(self.scheduler, f"fetch-{name}", [])
        turn = SimTurn(self.scheduler, (host.root, METADATA_ROOT))
        together = self._together(f"fetch-{name}", [], turn.away)
        return Ports(self, self.clock, self.ids, executor, threads=threads, turn=turn, together=together)

    def _file_writers(self, host: Host) -> FileWriters | None:
        """A thread that writes the files of all appends, small ones too."""
        if not self.setting.file_writers_ms:
            return None
        name = f"f{host.broker_id}.{host.lives}"
        return FileWriters(SimExecutor(self.scheduler, name, host.process, self.setting.file_writers_ms), bytes_min=0)

    def _pool(self, host: Host) -> SimPool:
        """The threads that store appends beside the loop; each append is an actor of its own."""
        return SimPool(self.scheduler, f"b{host.broker_id}.{host.lives}+", host.process, host.actors)

    def _together(self, host: str, actors: list[Actor], *away: Callable[[Callable[[], Any]], Any]) -> Together:
        calls_max = self.setting.calls_max
        return SimSideBySide(self.scheduler, calls_max, host, actors, *away) if calls_max > 1 else OneByOne()

    def sessions_of(self, broker_id: int | None = None) -> list[Actor]:
        """Fetch sessions that run, of one broker or of all."""
        prefix = "fetch-" if broker_id is None else f"fetch-{broker_id}."
        return [actor for actor in self.scheduler.actors if actor.host.startswith(prefix)]

    def pause(self, name: str, duration_ms: int) -> None:
        self.log_event(f"pause of {name} for {duration_ms} ms")
        self.scheduler.pause(name, duration_ms)

    def cut(self, name: str, root: str, duration_ms: int) -> None:
        self.log_event(f"{name} cannot reach {root} for {duration_ms} ms")
        self.scheduler.cut(name, root, duration_ms)

    def replace_disk(self, broker_id: int, new: Disk) -> Disk:
        """Replace what is on the disk of a machine that has stopped; the answer is what was on it."""
        host = self.hosts[broker_id]
        self.scheduler.stops[host.root] += 1
        objects = self.objects(host.root)
        before = (dict(host.disk.tables), dict(objects.objects))
        for live, content in ((host.disk.tables, new[0]), (objects.objects, new[1])):
            live.clear()
            live.update(content)  # type: ignore[arg-type]
        return before

    def has_left(self, host: Host) -> bool:
        """Whether the controlled shutdown of the host's broker is over."""
        return not host.is_leaving and (host.broker is None or host.broker.stopped_by is not None)

    def mark_clean(self, host: Host, broker: Broker) -> None:
        """After a controlled shutdown and the end of the fetch tasks."""
        self.crash(host.broker_id)
        self.scheduler.kill(self.sessions_of(host.broker_id))
        host.disk.sync_all()
        mark_clean_shutdown(self.objects(host.root), broker.broker_epoch)

    def crash(self, broker_id: int) -> None:
        """The process dies; its fetch tasks, elsewhere in the Spark cluster, live on as zombies."""
        host = self.hosts[broker_id]
        self.kills += 1
        self.log_event(f"crash of broker {broker_id}")
        if host.broker is not None:
            self.on_crash(host.broker)
        self.scheduler.kill(host.actors)
        if host.broker is not None:
            host.broker.wakeup.close()
        host.actors = []
        host.broker = None
