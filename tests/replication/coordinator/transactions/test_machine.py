"""Read, process, write in transactions, by Hypothesis: whatever is killed, delayed or repeated, a reader under
read_committed sees each input once.

Two partitions take the outputs, a third the input offsets. Processors of one transactional id read where the last
committed offset says, write outputs and the next offset in one transaction, and end it. The coordinator dies and is
folded again, its writes get lost, markers come late, twice or not at all, a processor freezes while the next one takes
over and comes back as a zombie, and old requests arrive long after they were sent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stratalog.replication.coordinator.shard.shard import RemoteAppend
from stratalog.replication.requests.transactions import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from stratalog.server.view.read_committed import without_aborted
from stratalog.storage.errors import (
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    StratalogError,
    UnverifiedTransactionError,
)
from stratalog.storage.log.append import BatchAppended
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import CONTROL_ATTRIBUTE, TRANSACTIONAL_ATTRIBUTE, NewRecordBatch, TopicPartition
from tests.examples import examples
from tests.replication.transaction_tools import TX, A, B, Coordinator
from tests.storage.logs import Replicas, append, batch

OFFSETS = TopicPartition("__consumer_offsets", 0)
PARTITIONS = (A, B, OFFSETS)
INPUTS_AT_ONCE = 2
VERSION = 2


class Cluster:
    """Leaders of the three partitions, each on a disk of its own, and the coordinator."""

    def __init__(self) -> None:
        self.coordinator = Coordinator(PARTITIONS)
        self.disks = {partition: Replicas.new() for partition in PARTITIONS}
        self.logs: dict[TopicPartition, PartitionLog] = {tp: disk.leader() for tp, disk in self.disks.items()}

    def append(self, partition: TopicPartition, new: NewRecordBatch) -> BatchAppended | StratalogError:
        return append(self.logs[partition], new).results[0]

    def produce(self, partition: TopicPartition, new: NewRecordBatch) -> StratalogError | None:
        """As `transactional_produce`: the coordinator is asked before the first batch of a transaction."""
        result = self.append(partition, new)
        if isinstance(result, UnverifiedTransactionError):
            asked = AddPartitionsToTxnRequest(
                TX, new.producer_id, new.producer_epoch, (partition,), transaction_version=VERSION
            )
            answer = self.coordinator.ask(asked)
            refusal = NotCoordinatorError("it is gone") if answer is None else answer.results[0][1]
            if refusal is not None:
                return refusal
            result = self.append(partition, replace(new, verified_offset=result.log_end_offset))
        return None if isinstance(result, BatchAppended) else result

    def committed(self, partition: TopicPartition) -> list[str]:
        """What a reader under read_committed is given."""
        log = self.logs[partition]
        end = log.last_stable_offset(log.log_end_offset)
        found: list[str] = []
        for rows in log.read_range(0, end):
            shown = without_aborted(rows, log.aborted_transactions(0, end))
            of_records = [row for row in shown.to_pylist() if not row["attributes"] & CONTROL_ATTRIBUTE]
            found.extend(row["value"].decode() for row in of_records)
        return found

    @property
    def is_stable(self) -> bool:
        return all(log.last_stable_offset(log.log_end_offset) == log.log_end_offset for log in self.logs.values())


class Processor:
    """Goes one request further with each `step`; any error that is not to be tried again makes it begin again."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.begin_anew()

    def begin_anew(self) -> None:
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[TopicPartition, int] = {}
        self.next_input: int | None = None
        self.done: list[TopicPartition] = []
        self.sent: list[tuple[Any, ...]] = []

    def step(self, *, commits: bool = True) -> None:
        if self.producer_id < 0:
            answer = self.cluster.coordinator.ask(InitProducerIdRequest(TX, 60_000))
            if answer is not None and answer.error is None:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        elif self.next_input is None:
            if self.cluster.is_stable:  # as a consumer that waits for stable offsets, KIP-447
                offsets = self.cluster.committed(OFFSETS)
                self.next_input = int(offsets[-1]) if offsets else 0
        elif len(self.done) < len(PARTITIONS):
            self._write(PARTITIONS[len(self.done)])
        else:
            self._end(commits)

    def _write(self, partition: TopicPartition) -> None:
        first = self.next_input
        assert first is not None
        outputs = [str(first + number) for number in range(INPUTS_AT_ONCE)]
        values = [str(first + INPUTS_AT_ONCE)] if partition == OFFSETS else outputs
        sequence = self.sequences.get(partition, 0)
        plain = batch(values, producer_id=self.producer_id, epoch=self.epoch, sequence=sequence)
        new = replace(plain, attributes=TRANSACTIONAL_ATTRIBUTE)
        self.sent.append(("produce", partition, new))
        error = self.cluster.produce(partition, new)
        if error is None:
            self.sequences[partition] = sequence + len(values)
            self.done.append(partition)
        elif not error.retriable:
            self.begin_anew()

    def _end(self, commits: bool) -> None:
        request = EndTxnRequest(TX, self.producer_id, self.epoch, commits, VERSION)
        self.sent.append(("end", request))
        answer = self.cluster.coordinator.ask(request)
        if answer is None or answer.error is not None:
            if answer is not None and answer.error.name == "CONCURRENT_TRANSACTIONS":
                return
            self.begin_anew()
            return
        if answer.producer_epoch != self.epoch or answer.producer_id != self.producer_id:
            self.sequences = {}
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.done, self.next_input = [], None


class TransactionMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.cluster = Cluster()
        self.processors = [Processor(self.cluster), Processor(self.cluster)]
        self.late: list[tuple[Any, ...]] = []
        self.seen: list[str] = []

    @rule(
        which=st.sampled_from([0, 0, 0, 1]),
        steps=st.integers(1, 8),
        commits=st.integers(0, 4).map(bool),
        all_is_well=st.booleans(),
    )
    def work(self, which: int, steps: int, commits: bool, all_is_well: bool) -> None:
        for _ in range(steps):
            if all_is_well:
                self.settle()
            self.processors[which].step(commits=commits)
        self.late.extend(self.processors[which].sent)
        self.processors[which].sent.clear()

    def settle(self) -> None:
        """Every marker that waits is written at once."""
        effects, self.cluster.coordinator.effects = self.cluster.coordinator.effects, []
        for effect in effects:
            self.late.append(("marker", effect))
            self.cluster.coordinator.written(effect, self._write_marker(effect))

    @rule(which=st.integers(0, 1))
    def die(self, which: int) -> None:
        self.processors[which].begin_anew()

    @rule(wanted=st.sampled_from(["end", "marker", "produce"]), age=st.integers(0, 6))
    def arrive_late(self, wanted: str, age: int) -> None:
        """A request that was sent some time ago, perhaps answered already, comes once more."""
        sent = [each for each in self.late if each[0] == wanted][-1 - age :]
        if not sent:
            return
        kind, *content = sent[0]
        if kind == "end":
            self.cluster.coordinator.ask(*content)
        elif kind == "produce":
            self.cluster.produce(*content)
        else:
            self._write_marker(content[0])

    @rule(number=st.integers(0, 1_000), fate=st.sampled_from(["written", "written", "unheard", "refused", "lost"]))
    def send_marker(self, number: int, fate: str) -> None:
        effects = self.cluster.coordinator.effects
        if not effects:
            return
        effect = effects.pop(number % len(effects))
        self.late.append(("marker", effect))
        error: StratalogError | None = None
        if fate == "refused":
            error = NotLeaderOrFollowerError("moved")
        elif fate == "lost":
            error = RequestTimedOutError("nobody answers")
        else:
            error = self._write_marker(effect)
        if fate == "unheard":
            error = RequestTimedOutError("the answer is lost")
        self.cluster.coordinator.written(effect, error)

    def _write_marker(self, effect: RemoteAppend) -> StratalogError | None:
        result = self.cluster.append(effect.topic_partition, effect.batch)
        return None if isinstance(result, BatchAppended) else result

    @rule()
    def kill_coordinator(self) -> None:
        self.cluster.coordinator.fail_over()

    @rule(which=st.integers(0, 1), steps=st.integers(1, 3))
    def lose_what_the_coordinator_writes(self, which: int, steps: int) -> None:
        """It decides, cannot write it down, and another one takes over."""
        coordinator, accept = self.cluster.coordinator, self.cluster.coordinator.accept
        coordinator.accept = lambda decision: accept(decision, is_stored=False)  # type: ignore[method-assign]
        try:
            for _ in range(steps):
                self.processors[which].step()
        finally:
            del coordinator.accept
        coordinator.fail_over()

    @rule(partition=st.sampled_from(PARTITIONS))
    def restart_leader(self, partition: TopicPartition) -> None:
        self.cluster.logs[partition] = self.cluster.disks[partition].log()

    @rule(duration_ms=st.sampled_from([100, 1_000, 61_000]))
    def pass_time(self, duration_ms: int) -> None:
        self.cluster.coordinator.pass_time(duration_ms)

    @invariant()
    def nobody_sees_an_input_twice(self) -> None:
        for partition in (A, B):
            shown = self.cluster.committed(partition)
            assert shown == [str(number) for number in range(len(shown))], partition

    def teardown(self) -> None:
        """Faults stop; a last processor takes over. Then every input up to its offset is there, once."""
        if not hasattr(self, "cluster"):
            return
        last = Processor(self.cluster)
        for _ in range(60):
            last.step()
            self.settle()
            self.cluster.coordinator.pass_time(100)
        for _ in range(12):
            if last.done or not self.cluster.is_stable:
                last.step()
                self.settle()
        assert self.cluster.is_stable, "a transaction is open that nobody ends"
        reached = int(self.cluster.committed(OFFSETS)[-1])
        assert reached >= INPUTS_AT_ONCE * 5
        for partition in (A, B):
            assert self.cluster.committed(partition) == [str(number) for number in range(reached)]


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(
    max_examples=examples(60), stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
