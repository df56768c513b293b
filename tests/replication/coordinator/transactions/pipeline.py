"""A transactional client with several requests in flight, and all that its batches meet, by seed.

Real are the leaders with their queues and logs on tables in memory, the copies, the questions to the coordinator, the
coordinator's shard, the markers. Of this file are the wires, which deliver late, the leader elections, and the client.
It does as Kafka's clients do: batches of a partition in order, up to five requests in flight, retries behind the first
batch without an answer. Brokers stand still, connections break, leaders and the coordinator change.

NothingMissing  no batch is refused for good: all that a client of Kafka's may send is stored at last
Committed       read_committed reads the records of the committed transactions, once and in order, and no others
Stable          when all is quiet, the last stable offset is the end of each log
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any

from stratalog.replication.coordinator.runtime.remote_appends import RemoteAppends
from stratalog.replication.coordinator.shard.shard import RemoteAppended
from stratalog.replication.coordinator.transactions.add_partitions import (
    Answer,
    Question,
    Retries,
    ask_while_ending,
    produce_in_transaction,
)
from stratalog.replication.coordinator.transactions.held_batches import HeldBatches
from stratalog.replication.leader.append_queue import AppendQueue
from stratalog.replication.leader.purgatory import ProducePurgatory
from stratalog.replication.leader.replica import LeaderPorts, LeaderReplica, WaitingAppend
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.progress.progress import ReplicaProgress
from stratalog.replication.requests.produce import ACKS_LEADER, ProduceRequest, ProduceResponse
from stratalog.replication.requests.transactions import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from stratalog.server.view.read_committed import without_aborted
from stratalog.storage.errors import (
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceNumberError,
    StratalogError,
    UnknownProducerIdError,
)
from stratalog.storage.log.leader_epochs import LeaderEpochCache
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import (
    TRANSACTIONAL_ATTRIBUTE,
    NewRecordBatch,
    TopicPartition,
    payload_table,
)
from stratalog.storage.topic_config import LogConfig
from tests.replication.memory_stores import MemoryStores, led_by
from tests.replication.transaction_tools import TX, Coordinator

BROKERS = (1, 2)
TOPIC_ID = "id"
PLAIN = b"not in a transaction"
IN_FLIGHT_MAX = 5
RECORDS_MAX = 20
LAG_MS_MAX = 1_000_000
TIMEOUT_MS = 900_000
QUIET_ROUNDS_MAX = 300

Wire = deque[Callable[[], None]]
"""What is on its way from one place to another, in order."""


class BrokenPromiseError(AssertionError):
    """A promise of this module's docstring does not hold."""


class Broker:
    """The part of a broker that batches and markers reach. `is_still`: its loop does nothing; its replicas follow."""

    def __init__(self, number: int, world: World) -> None:
        self.number = number
        self.world = world
        self.leaders: dict[TopicPartition, LeaderReplica] = {}
        self.purgatory = ProducePurgatory()
        self.queue = AppendQueue(number, self.leaders, world.stores.clock)
        self.held = HeldBatches()
        self.is_still = False

    def produce_then(self, request: ProduceRequest, complete: Callable[[ProduceResponse], None]) -> None:
        self.queue.put(WaitingAppend(request, complete))

    def turn(self) -> None:
        if self.is_still:
            return
        self._follow_metadata()
        now_ms = self.world.stores.clock.monotonic_ms()
        for _ in self.queue.append(now_ms, within_ms=1_000):
            pass

    def _follow_metadata(self) -> None:
        for named, state in self.world.partitions.items():
            led = self.leaders.get(named)
            if led is not None and led.leader_epoch != state.leader_epoch:
                del self.leaders[named]
                led.resign(NotLeaderOrFollowerError(f"{named}: leader epoch {state.leader_epoch}"))
            if state.leader == self.number and named not in self.leaders:
                ports = LeaderPorts(self.number, self.world.stores.clock, self.purgatory)
                replica = LeaderReplica(state, TOPIC_ID, self.world.new_log(self.number, named), ports)
                assert replica.start(self.world.stores.clock.monotonic_ms())
                self.leaders[named] = replica


@dataclass(slots=True, eq=False)
class Sent:
    """One batch of the client. `is_out`: a request with it has no answer. `is_again`: one failed, it is retried."""

    named: TopicPartition
    sequence: int
    values: list[str]
    batch: NewRecordBatch
    is_out: bool = False
    is_again: bool = False


@dataclass(slots=True, eq=False)
class Request:
    """A Produce request on its connection; `error` is its answer, None a good one, ... none yet."""

    sent: Sent
    error: StratalogError | Any | None = ...


class Connection:
    """To one broker; the broker begins its requests in their order, and its answers leave in that order."""

    def __init__(self, client: Client, broker: Broker) -> None:
        self.client = client
        self.broker = broker
        self.wire: Wire = deque()
        self.open: deque[Request] = deque()

    def send(self, sent: Sent) -> None:
        request = Request(sent)
        sent.is_out = True
        self.open.append(request)
        self.wire.append(lambda: self._arrived(request))

    def _arrived(self, request: Request) -> None:
        client, world = self.client, self.client.world
        asked = ProduceRequest(world.image.identified(request.sent.named), request.sent.batch)
        complete = lambda response: self._answered(request, response.error)  # noqa: E731
        version, held = client.version, self.broker.held
        produce_in_transaction(self.broker, world.asker(version), asked, TX, version, complete, held=held)

    def _answered(self, request: Request, error: StratalogError | None) -> None:
        request.error = error
        while self.open and self.open[0].error is not ...:
            done = self.open.popleft()
            self.client.answered(done.sent, done.error)

    def end(self) -> None:
        """It breaks: what was not read is lost, answers are not received."""
        self.wire.clear()
        lost, self.open = self.open, deque()
        for request in lost:
            self.client.answered(request.sent, NotLeaderOrFollowerError("the connection broke"))


@dataclass(slots=True)
class Part:
    """The client's batches of a partition, of its transaction, that are not stored as far as it knows."""

    leader: int
    sequence: int = 0
    unstored: list[Sent] = field(default_factory=list)


class Client:
    """One transactional producer.

    version        of its transactions: 2, or 0 as librdkafka's and older ones
    is_one_by_one  retries one batch at a time, as Java's; else all of them in order, as franz-go
    gives_up       now and then aborts a transaction whose batches are under way, and begins the next one under the
                   same epoch, which needs version 0. Only `Stable` holds then: Kafka cannot tell them apart, either
    """

    def __init__(self, world: World, rng: Random, version: int, *, is_one_by_one: bool, gives_up: bool) -> None:
        self.world, self.rng = world, rng
        self.version, self.is_one_by_one, self.gives_up = version, is_one_by_one, gives_up
        self.connections = {number: Connection(self, broker) for number, broker in world.brokers.items()}
        self.parts = {named: Part(state.leader) for named, state in world.partitions.items()}
        self.producer_id, self.epoch = -1, -1
        self.left: list[TopicPartition] | None = None
        self.added: set[TopicPartition] = set()
        self.written: dict[TopicPartition, list[str]] = {}
        self.expected: dict[TopicPartition, list[str]] = {named: [] for named in world.partitions}
        self.ending: bool | None = None
        self.values = self.transactions = 0
        self.is_done = False

    def step(self) -> None:
        if self.producer_id < 0:
            given = self.world.coordinator.ask(InitProducerIdRequest(TX, TIMEOUT_MS))
            self.producer_id, self.epoch = given.producer_id, given.producer_epoch
        elif self.left is None:
            if not self.is_done:
                self._begin()
        elif self.left:
            self._write(self.left)
        elif self.ending is not None or not any(part.unstored for part in self.parts.values()):
            self._end()
        self._send()

    def _begin(self) -> None:
        count = self.rng.randint(1, self.rng.choice([3, RECORDS_MAX]))
        self.left = [self.rng.choice(list(self.parts)) for _ in range(count)]
        if self.rng.random() < 0.7:
            self.left.sort()
        self.added, self.written = set(), {named: [] for named in self.parts}

    def _write(self, left: list[TopicPartition]) -> None:
        """A batch of up to three records."""
        named = left[-1]
        if self.version < 2 and named not in self.added:
            asked = AddPartitionsToTxnRequest(TX, self.producer_id, self.epoch, (named,))
            ((_, error),) = self.world.ask_now(asked).results
            if error is None:
                self.added.add(named)
            elif not error.retriable:
                raise BrokenPromiseError(f"AddPartitionsToTxn: {error.name}: {error}")
            return
        part, values = self.parts[named], list[str]()
        while left and left[-1] == named and len(values) < 3:
            left.pop()
            self.values += 1
            values.append(f"{self.transactions}:{self.values}")
        payload = payload_table([(1, None, value.encode(), None) for value in values])
        batch = NewRecordBatch(payload, self.producer_id, self.epoch, part.sequence, attributes=TRANSACTIONAL_ATTRIBUTE)
        part.unstored.append(Sent(named, part.sequence, values, batch))
        part.sequence += len(values)
        self.written[named].extend(values)

    def _send(self) -> None:
        for part in self.parts.values():
            connection = self.connections[part.leader]
            is_retrying = any(each.is_again for each in part.unstored)
            if is_retrying and any(each.is_out for each in part.unstored):
                continue
            for sent in part.unstored[:1] if is_retrying and self.is_one_by_one else part.unstored:
                if len(connection.open) >= IN_FLIGHT_MAX:
                    break
                if not sent.is_out:
                    sent.is_again = False
                    connection.send(sent)

    def answered(self, sent: Sent, error: StratalogError | None) -> None:
        part = self.parts[sent.named]
        sent.is_out = False
        if sent not in part.unstored:
            return  # of a transaction that was given up
        if error is None:
            part.unstored.remove(sent)
            return
        is_of_order = isinstance(error, OutOfOrderSequenceNumberError | UnknownProducerIdError)
        is_behind = is_of_order and sent is not part.unstored[0]
        if error.retriable or is_behind:
            sent.is_again = True
            part.leader = self.world.partitions[sent.named].leader
        elif self.gives_up:
            self.give_up()
        else:
            raise BrokenPromiseError(f"NothingMissing: {sent.named} {sent.values}: {error.name}: {error}")

    def give_up(self) -> None:
        """Abort although batches are under way; their sequences are used again."""
        if self.left is None or self.ending is not None:
            return
        for part in self.parts.values():
            if part.unstored:
                part.sequence, part.unstored = part.unstored[0].sequence, []
        self.left, self.ending = [], False

    def _end(self) -> None:
        if self.ending is None:
            self.ending = self.rng.random() < 0.5
        answer = self.world.ask_now(EndTxnRequest(TX, self.producer_id, self.epoch, self.ending, self.version))
        error = answer.error
        if error is not None and not error.retriable and not (self.gives_up and error.name == "INVALID_TXN_STATE"):
            raise BrokenPromiseError(f"EndTxn: {error.name}: {error}")
        if (error is not None and error.retriable) or self.rng.random() < 0.1:
            return  # or the answer is lost
        if error is None and (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            for part in self.parts.values():
                part.sequence = 0
        if self.ending:
            for named, values in self.written.items():
                self.expected[named].extend(values)
        self.left, self.ending = None, None
        self.transactions += 1

    def reconnect(self, number: int) -> None:
        broken = self.connections[number]
        self.connections[number] = Connection(self, broken.broker)
        broken.end()


class World:
    """Two brokers, partitions with a replica on each, a coordinator, a client. `step` is one event, by the seed."""

    def __init__(
        self, seed: int, *, version: int | None = None, gives_up: bool = False, has_faults: bool = True
    ) -> None:
        self.rng = rng = Random(seed)
        self.stores = MemoryStores()
        named = [TopicPartition("t", number) for number in range(rng.choice([1, 2, 3]) if has_faults else 1)]
        self.partitions: dict[TopicPartition, PartitionRecord] = {}
        self.logs: dict[tuple[int, TopicPartition], PartitionLog] = {}
        for each in named:
            self.partitions[each] = led_by(rng.choice(BROKERS), partition=each.partition)
            for number in BROKERS:
                log = self.new_log(number, each)
                log.exists_or_create(TOPIC_ID)
                log.start_epoch(0, as_leader=False)
        self.brokers = {number: Broker(number, self) for number in BROKERS}
        self.coordinator = Coordinator(named)
        self.passed_ms = self.stores.clock.now_ms
        self.steps = 0
        self.plan: list[tuple[int, Callable[[], None]]] = []
        self.questions: list[tuple[Question, Answer]] = []
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.marker_wires: dict[int, Wire] = {number: deque() for number in BROKERS}
        self.markers = self._remote_appends()
        version = rng.choice([0, 2]) if version is None else version
        self.client = Client(self, rng, version, is_one_by_one=rng.random() < 0.5, gives_up=gives_up)
        self.fault_rate = rng.choice([0.02, 0.05, 0.15]) if has_faults else 0.0
        self.answer_rate = rng.choice([1.0, 1.0, 0.1]) if has_faults else 1.0
        for broker in self.brokers.values():
            broker.turn()

    def _remote_appends(self) -> RemoteAppends:
        def peer(number: int) -> Any:
            def produce_then(request: ProduceRequest, complete: Callable[[ProduceResponse], None]) -> None:
                self.marker_wires[number].append(lambda: self.brokers[number].produce_then(request, complete))

            return SimpleNamespace(produce_then=produce_then)

        def notify(shard: Any, outcome: RemoteAppended, _now_ms: int) -> None:
            if shard is self.coordinator.shard:
                self.coordinator.written(SimpleNamespace(**vars_of(outcome)), outcome.error)  # type: ignore[arg-type]
                self._perform()

        return RemoteAppends(
            lambda: self.image, {n: peer(n) for n in BROKERS}, lambda work: work(self.stores.clock.now_ms), notify
        )

    def _perform(self) -> None:
        effects, self.coordinator.effects = self.coordinator.effects, []
        for effect in effects:
            self.markers.perform(self.coordinator.shard, effect, self.stores.clock.now_ms)  # type: ignore[arg-type]

    def new_log(self, number: int, named: TopicPartition) -> PartitionLog:
        """Another instance on a replica."""
        config = LogConfig.from_properties({"min.insync.replicas": "1"})
        return PartitionLog(self.stores.table(f"broker-{number}", named), config, self.stores.clock, self.stores.ids)

    @property
    def image(self) -> ClusterImage:
        return ClusterImage(topic_ids={"t": TOPIC_ID}, partitions=self.partitions)

    def log(self, number: int, named: TopicPartition) -> PartitionLog:
        """The replica as of now; for reading, and for copies to it."""
        log = self.logs.setdefault((number, named), self.new_log(number, named))
        log.refresh()
        return log

    # -- the coordinator -----------------------------------------------------------------------------------

    def asker(self, version: int) -> Callable[[Question, Answer], None]:
        def ask(question: Question, answer: Answer) -> None:
            self.questions.append((question, answer))

        def schedule_once(call: Callable[[], None], delay_ms: int) -> None:
            self.timers.append((self.stores.clock.now_ms + delay_ms, call))

        retries = Retries(20, 100, lambda: self.stores.clock.now_ms, schedule_once)
        return ask_while_ending(ask, retries) if version >= 2 else ask

    def ask_now(self, request: object) -> Any:
        answer = self.coordinator.ask(request)
        self._perform()
        return answer

    def answer_question(self) -> None:
        if not self.questions or self.rng.random() >= self.answer_rate:
            return
        question, answer = self.questions.pop(self.rng.randrange(len(self.questions)))
        is_lost = self.rng.random() < self.fault_rate / 4
        answer(NotCoordinatorError("it has moved") if is_lost else self.ask_now(question))

    def fail_over(self) -> None:
        self.coordinator.fail_over()
        self._perform()

    # -- leaders -------------------------------------------------------------------------------------------

    def elect(self, named: TopicPartition) -> None:
        """The other replica leads, which has all that was acknowledged."""
        state = self.partitions[named]
        other = next(number for number in BROKERS if number != state.leader)
        self.partitions[named] = replace(
            state, leader=other, leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1
        )

    def copy(self, named: TopicPartition) -> None:
        """The follower copies, and the leader learns how far it is."""
        state = self.partitions[named]
        leader, epoch = self.log(state.leader, named), state.leader_epoch
        if leader.leader_epoch != epoch:
            return
        number = next(number for number in BROKERS if number != state.leader)
        log = self.log(number, named)
        if log.leader_epoch < epoch:
            own, theirs = (log.epochs, log.log_end_offset), (leader.epochs, leader.log_end_offset)
            log.start_epoch(epoch, as_leader=False, truncate_to=LeaderEpochCache.agreed_end(*own, *theirs))
        log.copy_from(leader, epoch, 1 << 20)
        led = self.brokers[state.leader].leaders.get(named)
        if led is None or led.partition is None or led.leader_epoch != epoch or self.brokers[state.leader].is_still:
            return
        progress = ReplicaProgress(named, epoch, log.log_end_offset, log.version, topic_id=TOPIC_ID)
        now_ms = self.stores.clock.monotonic_ms()
        led.partition.follower_progressed(number, progress, now_ms)
        led.partition.maybe_increment_high_watermark(now_ms, LAG_MS_MAX)
        led.complete_waiting()

    # -- events --------------------------------------------------------------------------------------------

    def step(self) -> None:
        rng = self.rng
        self.stores.clock.now_ms += rng.choice([0, 1, 1, 5, 20])
        self.steps += 1
        while self.plan and self.plan[0][0] <= self.steps:
            self.plan.pop(0)[1]()
        if rng.random() < self.fault_rate:
            elect = lambda: self.elect(rng.choice(list(self.partitions)))  # noqa: E731
            rng.choice([elect, self._stand_still, self.fail_over, self._break, self._give_up, self._go_and_return])()
            return
        rng.choice([
            self.client.step,
            self.client.step,
            self._deliver,
            self._deliver,
            self._deliver_marker,
            lambda: rng.choice(list(self.brokers.values())).turn(),
            lambda: rng.choice(list(self.brokers.values())).turn(),
            lambda: self.copy(rng.choice(list(self.partitions))),
            self.answer_question,
            self._pass_time,
            self._write_plain,
        ])()  # fmt: skip

    def _deliver(self) -> None:
        wires = [each.wire for each in self.client.connections.values() if each.wire]
        if wires:
            self.rng.choice(wires).popleft()()

    def _deliver_marker(self) -> None:
        wires = [wire for wire in self.marker_wires.values() if wire]
        if wires:
            self.rng.choice(wires).popleft()()

    def _write_plain(self) -> None:
        """Another client writes, without a transaction, and does not wait for the copies."""
        named = self.rng.choice(list(self.partitions))
        leaders = [broker for broker in self.brokers.values() if named in broker.leaders]
        if leaders and self.rng.random() < 0.5:
            plain = NewRecordBatch(payload_table([(1, None, PLAIN, None)]))
            self.rng.choice(leaders).produce_then(
                ProduceRequest(self.image.identified(named), plain, ACKS_LEADER), lambda _response: None
            )

    def _stand_still(self) -> None:
        broker = self.rng.choice(list(self.brokers.values()))
        broker.is_still = not broker.is_still

    def _go_and_return(self) -> None:
        """A leader is deposed, perhaps while it stands still, and elected again when its replica has what the other one
        wrote; it may learn of both at once."""
        if self.plan:
            return
        rng, named = self.rng, self.rng.choice(list(self.partitions))
        broker = self.brokers[self.partitions[named].leader]
        broker.is_still = rng.random() < 0.7
        back = self.steps + rng.choice([40, 100, 200])

        def elect_again() -> None:
            self.copy(named)
            self.elect(named)

        self.plan = [
            (self.steps + rng.randint(0, 8), lambda: self.elect(named)),
            (self.steps + rng.randint(9, 12), self._give_up),
            (back, elect_again),
            (back + rng.randint(0, 9), lambda: setattr(broker, "is_still", False)),
        ]

    def _break(self) -> None:
        self.client.reconnect(self.rng.choice(BROKERS))

    def _give_up(self) -> None:
        if self.client.gives_up:
            self.client.give_up()

    def _pass_time(self) -> None:
        now_ms = self.stores.clock.now_ms
        due = [call for at_ms, call in self.timers if at_ms <= now_ms]
        self.timers = [each for each in self.timers if each[0] > now_ms]
        for call in due:
            call()
        self.markers.expire(now_ms)
        self.coordinator.pass_time(now_ms - self.passed_ms)
        self.passed_ms = now_ms
        self._perform()

    # -- the end -------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Nothing stands still or breaks any more, and the client ends its transaction."""
        self.client.is_done, self.fault_rate, self.answer_rate = True, 0.0, 1.0
        for broker in self.brokers.values():
            broker.is_still = False
        self.plan.clear()
        for _ in range(QUIET_ROUNDS_MAX):
            self.stores.clock.now_ms += 40
            for event in (self.client.step, self._pass_time, *[self._deliver] * 6, *[self._deliver_marker] * 6):
                event()
            while self.questions:
                self.answer_question()
            for broker in self.brokers.values():
                broker.turn()
            for named in self.partitions:
                self.copy(named)
            if self.client.left is None and self._is_quiet():
                return
        raise BrokenPromiseError(
            f"Stable: not quiet, the transaction is {self.coordinator.label()}, client {self._waits()}"
        )

    def _is_quiet(self) -> bool:
        is_waiting = self.questions or self.timers or any(self.marker_wires.values())
        is_open = any(each.open for each in self.client.connections.values())
        state = self.coordinator.state()
        return not (is_waiting or is_open) and (state is None or state.state.may_expire) and self._is_stable()

    def _is_stable(self) -> bool:
        return all(log.last_stable_offset(log.log_end_offset) == log.log_end_offset for log in self._leaders_logs())

    def _leaders_logs(self) -> list[PartitionLog]:
        return [self.log(state.leader, named) for named, state in self.partitions.items()]

    def _waits(self) -> str:
        ends = {
            log.name: (log.last_stable_offset(log.log_end_offset), log.log_end_offset) for log in self._leaders_logs()
        }
        unstored = {str(named): len(part.unstored) for named, part in self.client.parts.items()}
        return f"left {self.client.left}, unstored {unstored}, last stable offsets and ends {ends}"

    def check(self) -> None:
        if self.client.gives_up:
            return
        for (named, expected), log in zip(self.client.expected.items(), self._leaders_logs(), strict=True):
            found = committed(log)
            if found != expected:
                raise BrokenPromiseError(f"Committed: {named} is read as {found}, committed was {expected}")


def committed(log: PartitionLog) -> list[str]:
    """What a reader under read_committed is given."""
    end = log.last_stable_offset(log.log_end_offset)
    found: list[str] = []
    for rows in log.read_range(0, end):
        shown = without_aborted(rows, log.aborted_transactions(0, end)).to_pylist()
        found.extend(row["value"].decode() for row in shown if row["attributes"] == TRANSACTIONAL_ATTRIBUTE)
    return found


def vars_of(outcome: RemoteAppended) -> dict[str, object]:
    return {"topic_partition": outcome.topic_partition, "context": outcome.context}


def run(
    seed: int, *, steps: int = 800, version: int | None = None, gives_up: bool = False, has_faults: bool = True
) -> World:
    """One history. Raises BrokenPromiseError."""
    world = World(seed, version=version, gives_up=gives_up, has_faults=has_faults)
    for _ in range(steps):
        world.step()
    world.settle()
    world.check()
    return world
