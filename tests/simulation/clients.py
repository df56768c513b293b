"""The workload of a simulated cluster: producers, a consumer, and an admin."""

from __future__ import annotations

from collections.abc import Callable

from stratalog.replication.broker.broker import Broker
from stratalog.replication.controller.domains.placements import BROKERS
from stratalog.replication.controller.election.preferred_leaders import ElectionType, elect_leaders
from stratalog.replication.controller.reassignment import alter_partition_reassignments, is_reassigning
from stratalog.replication.controller.topics import alter_config, create_topic, delete_topic
from stratalog.replication.metadata.image import BrokerState
from stratalog.replication.metadata.log import MetadataLog, open_metadata
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.metadata.storage_domains import COPIES_CONFIG, DOMAIN_CONFIG, replica_root
from stratalog.replication.progress.progress import leader_progress_path, progress_rows
from stratalog.replication.requests.delete_records import DeleteRecordsRequest
from stratalog.replication.requests.produce import ACKS_ALL, ACKS_LEADER, ProduceRequest, ProduceResponse
from stratalog.server.view.domain_tables import committed_end
from stratalog.storage.errors import OffsetOutOfRangeError, StratalogError
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import (
    CONTROL_ATTRIBUTE,
    IdentifiedPartition,
    NewRecordBatch,
    TopicPartition,
    payload_table,
)
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.retention_rules import HIGH_WATERMARK
from tests.simulation.cluster import METADATA_ROOT, TOPIC, SimCluster
from tests.simulation.invariants import DOMAINS, Log
from tests.simulation.scheduler import SimEvent

KEYS = 5
SENDS_MAX = 50
OTHER_TOPICS = 3
"""Names of topics that are created and deleted."""


def start_clients(sim: SimCluster, producers: int = 2, consumers: int = 1) -> None:
    """Begin with the workload; the first producer is idempotent, the next one is not. All but the consumers stop when
    faults do."""
    for number in range(producers):
        producer = Producer(sim, number, is_idempotent=number % 2 == 0)
        sim.scheduler.spawn(f"p{number}", f"client-p{number}", producer.run)
    for number in range(consumers):
        sim.scheduler.spawn(f"r{number}", f"client-r{number}", Consumer(sim).run)
    sim.scheduler.spawn("a0", "client-a0", Admin(sim).run)
    if sim.setting.recreates:
        sim.scheduler.spawn("a1", "client-a1", Recreator(sim).run)


class Client:
    """A client's own view of the metadata log."""

    def __init__(self, sim: SimCluster) -> None:
        self.sim = sim
        self.random = sim.scheduler.random
        self.metadata: MetadataLog = open_metadata(sim, METADATA_ROOT, sim.clock, sim.ids)

    def partitions(self) -> list[PartitionRecord]:
        """The partitions of the newest metadata; none when the log is out of reach."""
        try:
            self.metadata.refresh()
        except StratalogError:
            return []
        return list(self.metadata.image.partitions.values())

    def called(self, state: PartitionRecord) -> Broker | None:
        """The leader's broker, or an earlier process of it that is still at work; None if there is none."""
        host = self.sim.hosts.get(state.leader)
        brokers = [] if host is None else [b for b in (host.broker, *host.zombies) if b is not None]
        return self.random.choice(brokers) if brokers else None

    def log_of(self, state: PartitionRecord) -> Log:
        return self.metadata.image.topic_ids.get(state.topic, ""), state.partition


class Producer(Client):
    """Sends batches of numbered values. With acks=all it reports acknowledgements to the invariants."""

    def __init__(self, sim: SimCluster, number: int, *, is_idempotent: bool) -> None:
        super().__init__(sim)
        self._producer_id = number
        self._is_idempotent = is_idempotent
        self._sequences: dict[Log, int] = {}

    def run(self) -> None:
        while self.sim.scheduler.faults.is_on:
            states = self.partitions()
            if states:
                self.produce(self.random.choice(states))
            self.sim.clock.sleep_ms(self.random.randrange(5, self.sim.setting.pause_ms_max))

    def produce(self, state: PartitionRecord) -> None:
        log, sim = self.log_of(state), self.sim
        count = self.random.randrange(1, 4)
        values = [b"v%d" % (sim.value_count + i) for i in range(count)]
        sim.value_count += count
        sim.invariants.sent_to.update(dict.fromkeys(values, log))
        rows = [(sim.clock.wall_ms(), b"k%d" % self.random.randrange(KEYS), value, None) for value in values]
        payload = payload_table(rows)
        if not self._is_idempotent:
            acks = ACKS_LEADER if self.random.random() < 0.2 else ACKS_ALL
            self._send(state.topic_partition, log, NewRecordBatch(payload), values, acks)
            return
        sequence = self._sequences.get(log, 0)
        batch = NewRecordBatch(payload, self._producer_id, 0, sequence)
        for _ in range(SENDS_MAX):
            if self._send(state.topic_partition, log, batch, values, ACKS_ALL):
                self._sequences[log] = sequence + count
                return
            if not self.partitions() or self.metadata.image.topic_ids.get(state.topic, "") != log[0]:
                break
        self._producer_id += 100  # as Kafka's producer: after a failed batch the sequence is lost
        self._sequences.clear()

    def _send(
        self, topic_partition: TopicPartition, log: Log, batch: NewRecordBatch, values: list[bytes], acks: int
    ) -> bool:
        """One try; whether it was acknowledged."""
        sim = self.sim
        state = self.metadata.image.partitions.get(topic_partition)
        broker = None if state is None else self.called(state)
        if broker is None:
            sim.clock.sleep_ms(50)
            return False
        answered: list[ProduceResponse] = []
        event = SimEvent(sim.scheduler)

        def complete(response: ProduceResponse) -> None:
            answered.append(response)
            event.set()
            sim.on_appended(broker, batch, response)
            if response.error is None and acks == ACKS_ALL:
                epoch = response.leader_epoch
                sim.log_event(f"ack {topic_partition} [{response.base_offset}..] epoch {epoch} {values}")
                for i, value in enumerate(values):
                    sim.invariants.acknowledged(log, response.base_offset + i, value)

        partition = IdentifiedPartition(log[0], topic_partition)
        broker.calls.produce_then(ProduceRequest(partition, batch, acks, timeout_ms=1_500), complete)
        event.wait(self.random.randrange(200, 3_000) / 1_000)
        if not answered or answered[0].error is not None:
            sim.clock.sleep_ms(20)
            return False
        return True


class Consumer(Client):
    """Reads every partition from its leader's table, up to the high watermark that was published for its epoch."""

    def __init__(self, sim: SimCluster) -> None:
        super().__init__(sim)
        self.positions: dict[Log, int] = {}
        self.skipped: dict[Log, list[range]] = {}
        """The offsets that this consumer was moved beyond, since the log that it read began later. A log start by
        retention is local: after a failover the log may begin earlier again."""
        self.since_ms = 0
        """When the present read began."""
        self._readers: dict[tuple[str, Log], LogReader] = {}

    def run(self) -> None:
        while True:
            for state in self.partitions():
                leader = self.metadata.image.brokers.get(state.leader)
                if leader is not None:
                    try:
                        self.read(state, leader)
                    except StratalogError:
                        self._readers.clear()
            self.sim.clock.sleep_ms(self.random.randrange(30, 200))

    def read(self, state: PartitionRecord, leader: BrokerState) -> None:
        """Read the new records of one partition."""
        log, topic_partition = self.log_of(state), state.topic_partition
        root = replica_root(self.metadata.image, state, state.leader)
        assert root is not None
        position, end = self.positions.get(log, 0), self._published_end(state, leader)
        if end is not None and end <= position:
            return
        self.since_ms = self.sim.scheduler.now_ms
        reader = self._readers.get((root, log))
        if reader is None or self.random.random() < 0.1:
            reader = self._readers[root, log] = LogReader(self.sim.table(root, topic_partition), self.sim.clock)
        reader.refresh()
        if (end is not None and reader.leader_epoch != state.leader_epoch) or reader.topic_id != log[0]:
            return
        end = committed_end(reader.epochs, state.leader_epoch, reader.log_end_offset) if end is None else end
        if end <= position:
            return
        try:
            self.take(log, reader, position, end)
        except OffsetOutOfRangeError:
            self.positions[log] = max(position, reader.log_start_offset)
            self.skipped.setdefault(log, []).append(range(position, self.positions[log]))

    def _published_end(self, state: PartitionRecord, leader: BrokerState) -> int | None:
        """The high watermark that the leader of this epoch published; 0 for none. None where all replicas have one
        table, whose end is it."""
        if state.has_one_table:
            return None
        objects = self.sim.objects(leader.registration.root)
        content = objects.get_register(leader_progress_path(leader.broker_epoch)) or b""
        for progress in progress_rows(content):
            if progress.topic_partition == state.topic_partition and progress.leader_epoch == state.leader_epoch:
                return progress.high_watermark
        return 0

    def was_moved_beyond(self, log: Log, offset: int) -> bool:
        """Whether this offset was deleted before it was read."""
        return any(offset in each for each in self.skipped.get(log, ()))

    def take(self, log: Log, reader: LogReader, position: int, high_watermark: int) -> None:
        """Read from `position` on."""
        rows = reader.read(position, 1 << 20, high_watermark)
        columns = (rows[name].to_pylist() for name in ("offset", "value", "attributes"))
        for offset, value, attributes in zip(*columns, strict=True):
            position = offset + 1
            if not attributes & CONTROL_ATTRIBUTE:  # clients skip records that compaction emptied
                self.sim.invariants.was_read(log, offset, value, self.since_ms)
        self.positions[log] = position


class Admin(Client):
    """Does one of `ACTIONS` now and then."""

    def run(self) -> None:
        while self.sim.scheduler.faults.is_on:
            self.sim.clock.sleep_ms(self.random.randrange(50, 500))
            if not self.sim.scheduler.faults.is_on:
                return  # what it began now, as a reassignment, would be under way when the end is checked
            try:
                self.metadata.refresh()
                self.random.choice(MOVES if self.sim.setting.moves else ACTIONS)(self)
            except StratalogError as reason:
                self.sim.log_event(f"refused: {reason}")

    def make_topic(self) -> None:
        """One of a few names, so that names recur while tables of deleted topics are still there."""
        name = f"u{self.random.randrange(OTHER_TOPICS)}"
        self._make(name, self.random.randrange(3))

    def _make(self, name: str, start_index: int) -> None:
        self.metadata.propose(
            lambda image: create_topic(
                image,
                name,
                self.sim.ids.new_id(),
                partitions=self.random.randrange(1, 3),
                replication_factor=2,
                start_index=start_index,
                shift=0,
                check_configs=LogConfig.validated,
            )
        )

    def remove_topic(self) -> None:
        others = [topic for topic in self.metadata.image.topic_ids if topic != TOPIC]
        if others:
            topic = self.random.choice(others)
            self.metadata.propose(lambda image: delete_topic(image, topic))

    def change_config(self) -> None:
        changes = {"segment.files.max": str(self.random.randrange(2, 9))}
        topic = self.random.choice(list(self.metadata.image.topic_ids))
        self.metadata.propose(lambda image: alter_config(image, topic, changes, check_configs=LogConfig.validated))

    def remove_records(self) -> None:
        """DeleteRecords of one partition, up to a random offset or to the high watermark."""
        self._remove_records_of(self.random.choice(list(self.metadata.image.partitions.values())))

    def _remove_records_of(self, state: PartitionRecord) -> None:
        leader = self.called(state)
        history = self.sim.invariants.history(state.topic_partition)
        if leader is None or history is None or self.sim.is_compacted(state.topic):
            return
        end = history.high_watermark
        offset = self.random.choice((HIGH_WATERMARK, self.random.randrange(end + 1)))
        partition = self.metadata.image.identified(state.topic_partition)
        self.sim.invariants.may_delete(self.log_of(state), None if offset == HIGH_WATERMARK else offset)
        leader.calls.delete_records(DeleteRecordsRequest({partition: offset}, 1_000), lambda _answers: None)
        self.sim.log_event(f"delete records of {partition} below {offset}")

    def reassign(self) -> None:
        """Other replicas for a partition, perhaps more or fewer, or the cancellation of its reassignment."""
        state = self.random.choice(list(self.metadata.image.partitions.values()))
        brokers = list(self.sim.hosts)
        fewest = min(2, len(brokers)) if state.topic == TOPIC else 1
        target = self.random.sample(brokers, self.random.randrange(fewest, len(brokers) + 1))
        wanted = {state.topic_partition: None if is_reassigning(state) and self.random.random() < 0.5 else target}
        answers = self.metadata.propose(lambda image: alter_partition_reassignments(image, wanted))
        self.sim.log_event(f"reassign {wanted}: {answers}")

    def move(self) -> None:
        """Another place for a topic, and perhaps copies in others."""
        topic, places = self.random.choice(list(self.metadata.image.topic_ids)), ["", *DOMAINS]
        home = self.random.choice(places)
        copies = [each or BROKERS for each in places if each != home and self.random.random() < 0.3]
        changes = {DOMAIN_CONFIG: home, COPIES_CONFIG: ",".join(copies)}
        self.metadata.propose(lambda image: alter_config(image, topic, changes, check_configs=LogConfig.validated))
        self.sim.log_event(f"move {topic} to {changes}")

    def elect(self) -> None:
        """Preferred leaders for all partitions."""
        answers = self.metadata.propose(lambda image: elect_leaders(image, ElectionType.PREFERRED))
        self.sim.log_event(f"elect preferred leaders: {answers}")


class Recreator(Admin):
    """Deletes a topic and makes it again at once, with the same leader and while requests to the old one are on their
    way: both are one refresh for a broker."""

    def run(self) -> None:
        while self.sim.scheduler.faults.is_on:
            self.sim.clock.sleep_ms(self.random.randrange(50, 300))
            if not self.sim.scheduler.faults.is_on:
                return
            try:
                self.metadata.refresh()
                self._recreate(f"u{self.random.randrange(OTHER_TOPICS)}")
            except StratalogError as reason:
                self.sim.log_event(f"refused: {reason}")

    def _recreate(self, name: str) -> None:
        states = self.metadata.image.partitions_of(name)
        if not states:
            self._make(name, self.random.randrange(3))
            return
        first = self.random.choice([self.metadata.image.partitions[each] for each in states])
        if self.random.random() < 0.5:
            self._remove_records_of(first)
        self.metadata.propose(lambda image: delete_topic(image, name))
        self._make(name, max(0, first.leader - 1))
        self.sim.log_event(f"{name} was made again")


ACTIONS: tuple[Callable[[Admin], None], ...] = (
    Admin.make_topic,
    Admin.remove_topic,
    Admin.change_config,
    Admin.remove_records,
    Admin.reassign,
    Admin.reassign,
    Admin.elect,
)
"""The admin's actions."""
MOVES = (*ACTIONS, Admin.move, Admin.move, Admin.move)
"""The same where there are storage domains to move to."""
