"""A broker that coordinates groups with a shard that keeps a list, on tables in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from stratalog.replication.broker.broker import Broker
from stratalog.replication.broker.hosted_replicas import BrokerIdentity, BrokerSetup
from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.runtime.kinds import CoordinatorKind
from stratalog.replication.coordinator.runtime.remote_appends import Appends
from stratalog.replication.coordinator.shard.shard import CoordinatorShard, ShardPlace
from stratalog.replication.internal_topics import GROUP_METADATA_TOPIC
from stratalog.replication.metadata.records import ConfigRecord, RegisterBrokerRecord
from stratalog.replication.progress.progress import ReplicaProgress, follower_progress_path
from stratalog.replication.progress.progress_object import ProgressWriter
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.stores import Ports
from stratalog.storage.clock import RandomIds
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition
from tests.replication.list_shard import Added, Gone, ListShard
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores, commit, create, led_by
from tests.storage.logs import FakeClock

P0 = TopicPartition(GROUP_METADATA_TOPIC, 0)
GROUP = CoordinatorType.GROUP
FOLLOWER = 2
TOPIC_ID = "offsets"
CONFIG = BrokerConfig.from_properties({"stratalog.upkeep.interval.ms": 100_000_000, "offsets.commit.timeout.ms": 5_000})


class Driftable(FakeClock):
    """A clock whose wall time can be set."""

    shift_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms + self.shift_ms


class Coordinated:
    """Broker 1 leads partition 0 of `__consumer_offsets` under epoch 0; broker 2 follows by calls of `follow`."""

    def __init__(self, *, partitions: int = 1, min_isr: int = 1, peers: Mapping[int, Appends] | None = None) -> None:
        self.clock = Driftable()
        self.stores = MemoryStores(self.clock)
        self.shards: list[ListShard] = []
        self.broken: Callable[[ShardPlace], None] = lambda _place: None
        self.metadata = self.stores.metadata()
        self.broker = Broker(
            BrokerSetup(BrokerIdentity(1, "broker-1"), CONFIG, METADATA_ROOT),
            Ports(self.stores, self.clock, RandomIds()),
            coordinators={GROUP: CoordinatorKind(self._make, Gone)},
            peers=peers,
        )
        commit(self.metadata, RegisterBrokerRecord(FOLLOWER, 20, "run", "broker-2"))
        self.broker.start()
        states = [led_by(1, topic=GROUP_METADATA_TOPIC, partition=p) for p in range(partitions)]
        create(self.metadata, GROUP_METADATA_TOPIC, *states, topic_id=TOPIC_ID)
        commit(self.metadata, ConfigRecord(GROUP_METADATA_TOPIC, "min.insync.replicas", str(min_isr)))
        self.writer = ProgressWriter(self.stores.objects("broker-2"), follower_progress_path(20, 1, "a"))
        self.answers: list[object] = []
        self.epoch = 0

    def _make(self, place: ShardPlace) -> CoordinatorShard:
        self.broken(place)
        self.shards.append(ListShard(place))
        return self.shards[-1]

    @property
    def shard(self) -> ListShard:
        return self.shards[-1]

    def settle(self) -> None:
        """Let time pass for every poll, then run turns until nothing changes any more."""
        self.clock.now_ms += 200
        while self.broker.step() or self.broker.wakeup.wait_ms(0):
            pass

    def follow(self, end: int, partition: int = 0) -> None:
        topic_partition = TopicPartition(GROUP_METADATA_TOPIC, partition)
        self.writer.update([ReplicaProgress(topic_partition, self.epoch, end, end, topic_id=TOPIC_ID)])
        self.writer.publish()
        self.settle()

    def ask(self, request: object, key: str | int = 0) -> None:
        self.broker.calls.coordinator(GROUP, key, request, self.answers.append)

    def lead(self, leader: int, epoch: int, *, isr: tuple[int, ...] = (1, 2)) -> None:
        self.metadata.refresh()
        state = self.metadata.image.partition(P0)
        self.epoch = epoch
        changed = replace(state, leader=leader, leader_epoch=epoch, isr=isr, partition_epoch=state.partition_epoch + 1)
        commit(self.metadata, changed)
        self.settle()

    def stored(self) -> list[str]:
        log = self.broker.leaders[P0].log
        return [value.decode() for value in log.read(0, 1 << 20)["value"].to_pylist()]

    def taken(self) -> list[object]:
        """The answers since the last call; errors by their names."""
        answers, self.answers[:] = list(self.answers), []
        return [answer.name if isinstance(answer, StratalogError) else answer for answer in answers]


def coordinated(*, partitions: int = 1, min_isr: int = 1, peers: Mapping[int, Appends] | None = None) -> Coordinated:
    """A `Coordinated` with all shards folded. `peers`: the brokers that receive markers (default: its own)."""
    running = Coordinated(partitions=partitions, min_isr=min_isr, peers=peers)
    running.settle()
    for partition in range(partitions):
        running.follow(0, partition)
    return running


def added(position: int, value: str, epoch: int = 0) -> Added:
    return Added(position, value, epoch)
