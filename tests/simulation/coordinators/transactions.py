"""Processors that read, process and write exactly once, in a simulated cluster with its real coordinators.

A processor turns the inputs 0, 1, 2 … of its name into one record each, on partitions drawn at random, and commits its
position as a group's offset in the same transaction. Two processors share each name, so they fence each other.

NothingAborted      read_committed reads no record of a transaction that was aborted, or whose commit was not requested
ExactlyOnce         no input is read twice; at the end those below the committed offset are read, and no others
WholeOrNot          at the end all records of a transaction are read, or none; all if its commit was acknowledged
LastStableOffset    below it every transaction has its marker, by the log's rows
CommittedOffset     a stable offset is one whose commit was requested, and none before an acknowledged one
Liveness            after all faults no transaction stays open
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from stratalog.replication.broker.broker import Broker
from stratalog.replication.broker.calls import BrokerCalls
from stratalog.replication.coordinator.runtime.find_coordinator import coordinator_partition
from stratalog.replication.coordinator.transactions.add_partitions import (
    commit_in_transaction,
    coordinator_asker,
    produce_in_transaction,
)
from stratalog.replication.metadata.image import BrokerState
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.groups import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
)
from stratalog.replication.requests.produce import ACKS_ALL, ProduceRequest, ProduceResponse
from stratalog.replication.requests.transactions import (
    TRANSACTION_VERSION_2,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from stratalog.server.view.read_committed import without_aborted
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import (
    CONTROL_ATTRIBUTE,
    TRANSACTIONAL_ATTRIBUTE,
    IdentifiedPartition,
    NewRecordBatch,
    payload_table,
)
from tests.simulation.clients import Consumer
from tests.simulation.cluster import TOPIC, SimCluster
from tests.simulation.coordinators.coordinator_clients import GROUP, TRANSACTION, CoordinatorClient
from tests.simulation.invariants import Log, Violation
from tests.simulation.scheduler import SimEvent

TRANSACTION_MS = 1_000
SENDS_MAX = 12
INPUTS_MAX = 3
SLOW = 0.1
"""The probability that the batch of a client that gives up is on its way for long: it may come after its marker."""


@dataclass(slots=True)
class Attempt:
    """One transaction of a processor. `stored`: its acknowledged records; `shown`: those that a reader received."""

    label: str
    name: str
    inputs: range
    is_commit_asked: bool = False
    is_committed: bool = False
    is_aborted: bool = False
    stored: dict[bytes, tuple[Log, int]] = field(default_factory=dict)
    shown: set[bytes] = field(default_factory=set)


class Book:
    """The requests and answers of processors, and the records of readers."""

    def __init__(self, sim: SimCluster) -> None:
        self.sim = sim
        self.attempts: dict[str, Attempt] = {}
        self.places: dict[tuple[str, int], tuple[Log, int]] = {}
        self.was_moved_beyond: Callable[[Log, int], bool] = lambda _log, _offset: False
        """Whether the reader was moved beyond a deleted record."""

    def fail(self, invariant: str, message: str) -> None:
        """No promise holds once the last holder of a log lost it with its disk."""
        if not any(history.lossy for history in self.sim.invariants.histories.values()):
            raise Violation(invariant, message)

    def begin(self, name: str, inputs: range) -> Attempt:
        label = f"{name}/{len(self.attempts)}"
        return self.attempts.setdefault(label, Attempt(label, name, inputs))

    @property
    def committed_count(self) -> int:
        return sum(each.is_committed for each in self.attempts.values())

    def committed_end(self, name: str) -> int:
        """The last input of acknowledged transactions."""
        return max((each.inputs.stop for each in self._of(name) if each.is_committed), default=0)

    def shown(self, log: Log, offset: int, value: bytes) -> None:
        """A read_committed reader received this record."""
        label, _, number = value.decode().partition(":")
        attempt = self.attempts[label]
        attempt.shown.add(value)
        if attempt.is_aborted or not attempt.is_commit_asked:
            self.fail("NothingAborted", f"{value!r} at {log} {offset}: {attempt}")
        place = self.places.setdefault((attempt.name, int(number)), (log, offset))
        if place != (log, offset):
            self.fail("ExactlyOnce", f"input {number} of {attempt.name} is at {place} and at {(log, offset)}")

    def check_offset(self, name: str, offset: int, committed_end: int) -> None:
        """A stable offset was read; `committed_end`: the one acknowledged before the read."""
        possible = {0, *(each.inputs.stop for each in self._of(name) if each.is_commit_asked and not each.is_aborted)}
        if offset < committed_end or offset not in possible:
            self.fail(
                "CommittedOffset", f"{name}: {offset} is committed, acknowledged {committed_end}, possible {possible}"
            )

    def _of(self, name: str) -> Iterator[Attempt]:
        return (each for each in self.attempts.values() if each.name == name)

    def check_end(self, offsets: dict[str, int]) -> None:
        """Readers have read everything; `offsets`: each name's stable offset."""
        for attempt in self.attempts.values():
            missing = {value for value in attempt.stored if value not in attempt.shown}
            missing = {value for value in missing if not self.was_moved_beyond(*attempt.stored[value])}
            if missing and (attempt.is_committed or attempt.shown):
                self.fail("WholeOrNot", f"{attempt.label} lacks {missing}: {attempt}")
        for name, offset in offsets.items():
            beyond = [number for other, number in self.places if other == name and number >= offset]
            if beyond:
                self.fail("ExactlyOnce", f"{name}: inputs {beyond} are shown, {offset} is committed")
            absent = [number for number in range(offset) if (name, number) not in self.places]
            absent = [number for number in absent if not self._was_deleted(name, number)]
            if absent:
                self.fail("ExactlyOnce", f"{name}: inputs {absent} are not shown, {offset} is committed")

    def _was_deleted(self, name: str, number: int) -> bool:
        values = ((each, f"{each.label}:{number}".encode()) for each in self._of(name) if each.is_commit_asked)
        places = (each.stored[value] for each, value in values if value in each.stored)
        return any(self.was_moved_beyond(*place) for place in places)


class Processor(CoordinatorClient):
    """One of the processors of a name. Under version 0 a missing answer ends its turn; with `gives_up` the processor
    then aborts its transaction first, while its batch or its offsets may be under way."""

    def __init__(
        self, sim: SimCluster, book: Book, name: str, version: int, late: float, *, gives_up: bool = False
    ) -> None:
        super().__init__(sim, name, late)
        self._gives_up = gives_up
        self._book = book
        self._version = version
        self._is_new = version >= TRANSACTION_VERSION_2
        self._sequences: dict[Log, int] = {}

    def run(self) -> None:
        while self.goes_on:
            producer = self._begin()
            position = self.stable_offset() if producer is not None else None
            while producer is not None and position is not None and self.goes_on:
                producer, position = self._transact(*producer, position)
                self.rest(1, 120)
            self.rest(5, 400)

    def deliver(self, kind: CoordinatorType, key: str, request: object) -> None:
        """A late InitProducerId would fence every processor, so that nothing else would happen."""
        if not isinstance(request, InitProducerIdRequest):
            super().deliver(kind, key, request)

    def hand(
        self, broker: Broker, kind: CoordinatorType, key: str, request: object, answer: Callable[[object], None]
    ) -> None:
        """The group's coordinator requests the verification of offsets from the transaction's."""
        partition = coordinator_partition(self.metadata.image, GROUP, self.name)
        if not isinstance(request, TxnOffsetCommitRequest) or partition is None:
            super().hand(broker, kind, key, request, answer)
            return
        commit_in_transaction(
            partial(broker.calls.coordinator, kind, key),
            coordinator_asker(lambda: broker.metadata.image, self._running()),
            request,
            partition,
            self._version,
            answer,
        )

    def _running(self) -> dict[int, BrokerCalls]:
        return {number: host.broker.calls for number, host in self.sim.hosts.items() if host.broker is not None}

    def _begin(self) -> tuple[int, int] | None:
        self._sequences.clear()
        request = InitProducerIdRequest(self.name, TRANSACTION_MS)
        answer, error = self.ask(TRANSACTION, self.name, request)
        if error is not None or not isinstance(answer, InitProducerIdResponse):
            return None
        return answer.producer_id, answer.producer_epoch

    def stable_offset(self) -> int | None:
        """The offset where the group continues; None if unknown."""
        topics = (OffsetFetchRequestTopic(TOPIC, (0,)),)
        request = OffsetFetchRequest((OffsetFetchRequestGroup(self.name, topics),), require_stable=True)
        committed_end = self._book.committed_end(self.name)
        answer, error = self.ask(GROUP, self.name, request)
        if error is not None or not isinstance(answer, OffsetFetchResponse):
            return None
        offset = max(0, answer.groups[0].topics[0].partitions[0].committed_offset)
        self._book.check_offset(self.name, offset, committed_end)
        return offset

    def _transact(self, producer_id: int, epoch: int, position: int) -> tuple[tuple[int, int] | None, int]:
        """One transaction; the producer and offset to continue with, None when the producer has to begin again."""
        states = [state for state in self.partitions() if state.topic == TOPIC]
        if not states:
            return (producer_id, epoch), position
        attempt = self._book.begin(self.name, range(position, position + self.random.randrange(1, INPUTS_MAX + 1)))
        targets = [self.random.choice(states) for _ in attempt.inputs]
        is_whole = self._write(attempt, producer_id, epoch, targets) and self._commit_offset(
            attempt, producer_id, epoch
        )
        if is_whole is False and not self._is_new:
            if self._gives_up:
                self._abort(attempt, producer_id, epoch)
            return None, position
        is_commit = is_whole and self.random.random() < 0.8
        attempt.is_commit_asked |= is_commit
        request = EndTxnRequest(self.name, producer_id, epoch, is_commit, self._version)
        answer, error = self.ask(TRANSACTION, self.name, request, is_repeated=self._is_new)
        if error is not None or not isinstance(answer, EndTxnResponse):
            return None, position
        if is_commit:
            attempt.is_committed = True
            position = attempt.inputs.stop
        else:
            attempt.is_aborted = True
            if attempt.shown:
                self._book.fail("NothingAborted", f"{attempt} was shown before its abort was acknowledged")
        if not self._is_new:
            return (producer_id, epoch), position
        self._sequences.clear()
        return (answer.producer_id, answer.producer_epoch), position

    def _abort(self, attempt: Attempt, producer_id: int, epoch: int) -> None:
        """End the transaction although something of it is under way, as Kafka's producer does when a batch has expired;
        the next one has another epoch."""
        request = EndTxnRequest(self.name, producer_id, epoch, False, self._version)
        _, error = self.ask(TRANSACTION, self.name, request, is_repeated=False)
        attempt.is_aborted |= error is None

    def _write(self, attempt: Attempt, producer_id: int, epoch: int, targets: list[PartitionRecord]) -> bool:
        """Whether every record is stored; False also if unknown."""
        own = self.name, producer_id, epoch
        if not self._is_new:
            wanted = tuple(sorted({state.topic_partition for state in targets}))
            request = AddPartitionsToTxnRequest(*own, wanted, transaction_version=self._version)
            answer, error = self.ask(TRANSACTION, self.name, request, is_repeated=False)
            if error is not None or answer is None:
                return False
        for number, state in zip(attempt.inputs, targets, strict=True):
            value = f"{attempt.label}:{number}".encode()
            if not self._produce(attempt, state, value, producer_id, epoch):
                return False
        return True

    def _produce(self, attempt: Attempt, state: PartitionRecord, value: bytes, producer_id: int, epoch: int) -> bool:
        log = self.log_of(state)
        self.sim.invariants.sent_to[value] = log
        key = value if self.sim.is_compacted(TOPIC) else b"k"  # of each transaction all or nothing is read
        payload = payload_table([(self.sim.clock.wall_ms(), key, value, None)])
        sequence = self._sequences.get(log, 0)
        batch = NewRecordBatch(payload, producer_id, epoch, sequence, attributes=TRANSACTIONAL_ATTRIBUTE)
        for _ in range(SENDS_MAX):
            response = self._send(
                ProduceRequest(IdentifiedPartition(log[0], state.topic_partition), batch, ACKS_ALL, timeout_ms=1_500)
            )
            if response is not None and response.error is None:
                self._sequences[log] = sequence + 1
                attempt.stored[value] = log, response.base_offset
                self.sim.invariants.acknowledged(log, response.base_offset, value)
                return True
            if response is not None and response.error is not None and not response.error.retriable:
                return False
            if not self.goes_on or (response is None and not self._is_new):
                return False
            self.rest(5, 60)
            self.partitions()
        return False

    def _send(self, request: ProduceRequest) -> ProduceResponse | None:
        state = self.metadata.image.partitions.get(request.topic_partition)
        brokers = [] if state is None else self.processes(state.leader)
        if not brokers:
            return None
        answers: list[ProduceResponse] = []
        event = SimEvent(self.sim.scheduler)

        def complete(response: ProduceResponse) -> None:
            answers.append(response)
            event.set()

        broker = self.random.choice(brokers)
        if self._gives_up and self.random.random() < SLOW:
            deliver = partial(self._deliver, broker, request, complete)
            self.sim.scheduler.spawn(f"slow {self.name}", f"client-{self.name}", deliver, self.random.randrange(2_500))
        else:
            self._deliver(broker, request, complete)
        if self._late and self.random.random() < self._late:
            late = self.random.choice(brokers)
            self.sim.scheduler.spawn(
                f"late {self.name}",
                f"client-{self.name}",
                lambda: self._deliver(late, request, lambda _response: None),
                self.random.randrange(20, 2_000),
            )
        event.wait(self.random.randrange(100 if self._gives_up else 500, 3_000) / 1_000)
        self.sim.log_event(f"{self.name}: {request.batch.payload['value'].to_pylist()} {answers}")
        return answers[0] if answers else None

    def _deliver(self, broker: Broker, request: ProduceRequest, complete: object) -> None:
        ask = coordinator_asker(lambda: broker.metadata.image, self._running())
        produce_in_transaction(broker.calls, ask, request, self.name, self._version, complete)  # type: ignore[arg-type]

    def _commit_offset(self, attempt: Attempt, producer_id: int, epoch: int) -> bool:
        own = self.name, producer_id, epoch
        partition = coordinator_partition(self.metadata.image, GROUP, self.name)
        if partition is None:
            return False
        if not self._is_new:
            request = AddOffsetsToTxnRequest(*own, self.name, partition, self._version)
            answer, error = self.ask(TRANSACTION, self.name, request, is_repeated=False)
            if error is not None or answer is None:
                return False
        topics = (OffsetCommitRequestTopic(TOPIC, (OffsetCommitRequestPartition(0, attempt.inputs.stop),)),)
        commit = TxnOffsetCommitRequest(self.name, self.name, producer_id, epoch, topics)
        answer, error = self.ask(GROUP, self.name, commit, is_repeated=self._is_new)
        return error is None and answer is not None


class CommittedReader(Consumer):
    """Reads as a consumer under read_committed."""

    def __init__(self, sim: SimCluster, book: Book) -> None:
        super().__init__(sim)
        self._book = book
        book.was_moved_beyond = self.was_moved_beyond

    def read(self, state: PartitionRecord, leader: BrokerState) -> None:
        if state.topic == TOPIC:
            super().read(state, leader)

    def take(self, log: Log, reader: LogReader, position: int, high_watermark: int) -> None:
        stable = reader.last_stable_offset(high_watermark)
        if self.random.random() < 0.3:
            self._check_stable(log, reader, stable)
        if stable <= position:
            return
        transactions = reader.producers.transactions
        rows = reader.read(position, 1 << 20, stable)
        end = rows["offset"][-1].as_py() + 1 if rows.num_rows else stable
        rows = without_aborted(rows, transactions.aborted_between(position, end))
        columns = (rows[name].to_pylist() for name in ("offset", "value", "attributes"))
        for offset, value, attributes in zip(*columns, strict=True):
            if not attributes & CONTROL_ATTRIBUTE and value is not None:
                self._book.shown(log, offset, value)
        self.positions[log] = end

    def _check_stable(self, log: Log, reader: LogReader, stable: int) -> None:
        """The naive rule: each producer of a transactional record below the last stable offset has a later marker."""
        rows = reader.read(reader.log_start_offset, 1 << 24, reader.log_end_offset)
        columns = (rows[name].to_pylist() for name in ("offset", "producer_id", "attributes", "key"))
        first_open: dict[int, int] = {}
        for offset, producer_id, attributes, key in zip(*columns, strict=True):
            if attributes & CONTROL_ATTRIBUTE and key is not None:  # otherwise compaction has emptied it
                first_open.pop(producer_id, None)
            elif attributes & (CONTROL_ATTRIBUTE | TRANSACTIONAL_ATTRIBUTE) == TRANSACTIONAL_ATTRIBUTE:
                first_open.setdefault(producer_id, offset)
        if any(offset < stable for offset in first_open.values()):
            self._book.fail("LastStableOffset", f"{log}: {stable}, open since {first_open}")
