"""Transactions in a partition log: carried, copied, truncated, compacted and folded again with the records."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from stratalog.storage.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    StratalogError,
    UnverifiedTransactionError,
)
from stratalog.storage.log.append import BatchAppended, HandedFiles
from stratalog.storage.log.copy import Copied
from stratalog.storage.log.partition_log import WHOLE_PRODUCERS_COMMITS, PartitionLog
from stratalog.storage.records import CONTROL_ATTRIBUTE, TRANSACTIONAL_ATTRIBUTE, NewRecordBatch, data_table
from stratalog.storage.transactions import AbortedTransaction, EndMarker, marker_batch, marker_of
from tests.storage.logs import MIB, Replicas, append, batch, idempotent, started, write


def transactional(values: str, sequence: int, producer_id: int = 7, epoch: int = 0, verified: int = 1 << 40):
    plain = idempotent(values.split(), sequence, producer_id, epoch)
    return replace(plain, attributes=TRANSACTIONAL_ATTRIBUTE, verified_offset=verified, verified_leader_epoch=0)


def marker(is_commit: bool, producer_id: int = 7, epoch: int = 0, coordinator: int = 0, version: int = 0):
    return marker_batch(producer_id, epoch, EndMarker(is_commit, coordinator), 5_000, version)


def result(log: PartitionLog, new: NewRecordBatch, epoch: int = 0) -> BatchAppended | StratalogError:
    return append(log, new, epoch=epoch).results[0]


def aborted(log: PartitionLog) -> list[tuple[int, int, int]]:
    return [tuple(a) for a in log.aborted_transactions(0, log.log_end_offset)]


def stable(log: PartitionLog) -> int:
    return log.last_stable_offset(log.log_end_offset)


def committed(log: PartitionLog) -> list[str]:
    """The records of a reader under read_committed, by definition: every record up to the last stable offset except
    those of aborted transactions and markers."""
    ranges = log.aborted_transactions(0, stable(log))
    found = []
    for rows in log.read_range(log.log_start_offset, stable(log)):
        for row in rows.to_pylist():
            of_producer = [a for a in ranges if a.producer_id == row["producer_id"]]
            is_out = any(a.first_offset <= row["offset"] <= a.last_offset for a in of_producer)
            if not is_out and not row["attributes"] & CONTROL_ATTRIBUTE:
                found.append(row["value"].decode())
    return found


def test_a_transaction_is_open_until_its_marker(replicas):
    log = replicas.leader()
    write(log, "x")
    assert result(log, transactional("a b", 0)) == BatchAppended(1, 2)
    write(log, "y")
    assert (stable(log), log.log_end_offset) == (1, 4)
    assert result(log, marker(True)) == BatchAppended(4, 4)
    assert (stable(log), aborted(log), committed(log)) == (5, [], ["x", "a", "b", "y"])
    append(log, transactional("c", 2))
    append(log, marker(False))
    assert (stable(log), aborted(log), committed(log)) == (7, [(7, 5, 6)], ["x", "a", "b", "y"])


def handed(log: PartitionLog, *files: str, epoch: int = 0, verified: int = 1 << 40) -> HandedFiles:
    """Files of a sink's tasks, whose rows have no sequences; each of its transactions is a batch."""
    of_task = replace(transactional("", 0, epoch=epoch), base_sequence=-1)
    tables = (data_table([replace(of_task, content=batch(words.split()).payload)]) for words in files)
    written = tuple(log.table.write_file(table, None) for table in tables)
    return HandedFiles(
        written, "sink/7", epoch, 7, epoch, is_transactional=True, verified_offset=verified, verified_leader_epoch=0
    )


def test_files_of_a_sink_are_part_of_a_transaction(replicas):
    log = replicas.leader()
    write(log, "x")
    first = handed(log, "a b", "c", verified=-1)
    (refused,) = log.append_files([first], 0, 1).results
    assert isinstance(refused, UnverifiedTransactionError)
    assert refused.log_end_offset == 1
    first = replace(first, verified_offset=1)
    assert log.append_files([first], 0, 1).results == (BatchAppended(1, 3),)
    assert log.append_files([first], 0, 1).results == (BatchAppended(-1, 3, duplicate=True),)
    assert (stable(log), log.log_end_offset) == (1, 4)
    append(log, marker(False, epoch=1, version=2))
    assert isinstance(log.append_files([first], 0, 1).results[0], InvalidProducerEpochError)
    assert log.append_files([handed(log, "d", epoch=2)], 0, 1).results == (BatchAppended(5, 5),)
    append(log, marker(True, epoch=3, version=2))
    assert (stable(log), aborted(log), committed(log)) == (7, [(7, 1, 4)], ["x", "d"])
    nobody = replace(handed(log, "e"), producer_id=-1, producer_epoch=-1)
    assert isinstance(log.append_files([nobody], 0, 1).results[0], InvalidRecordError)


def test_files_of_a_sink_whose_marker_was_cut_off_are_open_again(replicas):
    log = replicas.leader()
    log.append_files([handed(log, "a", "b")], 0, 1)
    append(log, marker(True, epoch=1, version=2))
    log.start_epoch(1, as_leader=True, truncate_to=2)
    assert (stable(log), log.log_end_offset) == (0, 2)
    assert log.append_files([handed(log, "a", "b")], 1, 1).results == (BatchAppended(-1, 1, duplicate=True),)
    append(log, marker(False, epoch=1, version=2), epoch=1)
    assert (stable(log), aborted(log), committed(log)) == (3, [(7, 0, 2)], [])


def test_a_group_commit_holds_a_whole_transaction(replicas):
    log = replicas.leader()
    append(log, transactional("a", 0), batch("p"), transactional("b", 1), marker(False), transactional("c", 0, 8))
    assert (stable(log), aborted(log)) == (4, [(7, 0, 3)])
    assert replicas.log().producers == log.producers


def test_a_restart_a_follower_and_a_new_leader_know_the_same(replicas):
    log = replicas.leader()
    append(log, transactional("a", 0))
    append(log, marker(False))
    append(log, transactional("b", 1))
    reopened = replicas.log()
    assert (stable(reopened), aborted(reopened)) == (2, [(7, 0, 1)])
    follower = replicas.follower("2", 0)
    assert isinstance(follower.copy_from(reopened, 0, MIB), Copied)
    started(follower, 1)
    assert (stable(follower), aborted(follower), follower.producers) == (2, [(7, 0, 1)], log.producers)
    assert result(follower, transactional("c", 2, verified=-1), epoch=1) == BatchAppended(3, 3)
    append(follower, marker(True, coordinator=2), epoch=1)
    assert (stable(follower), committed(follower)) == (5, ["b", "c"])
    assert isinstance(result(follower, marker(True, coordinator=1), epoch=1), StratalogError)


def test_the_first_batch_of_a_transaction_must_be_verified(replicas):
    log = replicas.leader()
    refused = result(log, transactional("a", 0, verified=-1))
    assert isinstance(refused, InvalidTxnStateError)
    assert result(log, transactional("a", 0, verified=0)) == BatchAppended(0, 0)
    assert result(log, transactional("b", 1, verified=-1)) == BatchAppended(1, 1)
    assert result(log, transactional("b", 1, verified=-1)) == BatchAppended(1, 1, duplicate=True)
    assert isinstance(result(log, idempotent("c", 2)), InvalidTxnStateError)
    append(log, marker(True))
    assert isinstance(result(log, transactional("c", 2, verified=2)), InvalidTxnStateError)


def test_a_delayed_commit_cannot_finish_a_later_transaction(replicas):
    """Jepsen's finding, KIP-890: the marker of transaction 1 arrives again when transaction 2 is open."""
    log = replicas.leader()
    append(log, transactional("a", 0, epoch=0))
    assert isinstance(result(log, marker(True, epoch=1, version=2)), BatchAppended)
    append(log, transactional("b", 0, epoch=1))
    assert isinstance(result(log, marker(True, epoch=1, version=2)), InvalidProducerEpochError)
    assert (stable(log), committed(log)) == (2, ["a"])
    append(log, marker(False, epoch=2, version=2))
    assert (stable(log), committed(log)) == (4, ["a"])


def test_the_next_transaction_waits_for_the_marker_of_the_one_before(replicas):
    """Found on three brokers: a batch of the next epoch joined the open transaction, whose marker was then refused."""
    log = replicas.leader()
    append(log, transactional("a", 0, epoch=0))
    assert isinstance(result(log, transactional("b", 0, epoch=1, verified=-1)), InvalidTxnStateError)
    assert isinstance(result(log, marker(True, epoch=1, version=2)), BatchAppended)
    assert isinstance(result(log, transactional("b", 0, epoch=1)), BatchAppended)
    assert committed(log) == ["a"]


def test_a_late_batch_of_an_ended_transaction_is_refused(replicas):
    """The bumped epoch of the marker fences it, under version 2."""
    log = replicas.leader()
    append(log, transactional("a", 0, epoch=0))
    append(log, marker(False, epoch=1, version=2))
    assert isinstance(result(log, transactional("late", 1, epoch=0)), InvalidProducerEpochError)
    assert isinstance(result(log, transactional("b", 0, epoch=1)), BatchAppended)


@pytest.mark.parametrize(
    ("cut", "is_open", "ranges", "epoch"),
    [
        (8, 5, [(7, 0, 2)], 2),
        (6, 5, [(7, 0, 2)], 2),
        (5, -1, [(7, 0, 2)], 2),
        (4, 3, [(7, 0, 2)], 1),
        (2, 0, [], 0),
        (1, 0, [], 0),
    ],
)
def test_a_truncation_of_a_marker_opens_its_transaction_again(replicas, cut, is_open, ranges, epoch):
    """0 a, 1 b, 2 abort; 3 c, 4 commit; 5 d, 6 e, 7 a plain one."""
    log = replicas.leader()
    append(log, transactional("a", 0))
    append(log, transactional("b", 1))
    append(log, marker(False, epoch=1, version=2))
    append(log, transactional("c", 0, epoch=1))
    append(log, marker(True, epoch=2, version=2))
    append(log, transactional("d", 0, epoch=2))
    append(log, transactional("e", 1, epoch=2))
    write(log, "x")
    log.start_epoch(1, as_leader=True, truncate_to=cut)
    for known in (log, replicas.log()):
        transaction = known.producers.transactions.of(7)
        assert (transaction.first_offset, aborted(known)) == (is_open, ranges)
        assert known.producers.producers[7].producer_epoch == epoch
    follower = replicas.follower("2", 1)
    follower.copy_from(log, 1, MIB)
    assert (stable(follower), aborted(follower)) == (stable(log), ranges)


def test_a_short_copy_knows_no_more_than_its_records(replicas):
    log = replicas.leader()
    append(log, transactional("a", 0))
    append(log, transactional("b", 1))
    append(log, marker(False))
    append(log, transactional("c", 2))
    follower = replicas.follower("2", 0)
    for end, is_open, ranges in [(1, 0, []), (2, 0, []), (3, -1, [(7, 0, 2)]), (4, 3, [(7, 0, 2)])]:
        follower.copy_from(log, 0, 0)
        assert follower.log_end_offset == end
        assert follower.producers.transactions.of(7).first_offset == is_open
        assert aborted(follower) == ranges


def test_whole_states_carry_transactions(replicas):
    log = replicas.leader()
    append(log, transactional("a", 0))
    append(log, marker(False))
    append(log, transactional("b", 1))
    for _ in range(2 * WHOLE_PRODUCERS_COMMITS):
        write(log, "x")
    assert log.state.producers_number != 0
    reopened = replicas.log()
    assert (stable(reopened), aborted(reopened)) == (2, [(7, 0, 1)])


def test_a_log_without_transactions_has_no_txns_of_them(replicas):
    log = replicas.leader()
    for sequence in range(WHOLE_PRODUCERS_COMMITS + 2):
        append(log, idempotent("a", sequence))
    ((path, _),) = log.table.list_objects("_producers/")
    assert set(json.loads(log.table.read_object(path))) == {"producers", "sinks"}


class Naive:
    """The transactions by the rows alone, one after the other."""

    def __init__(self, log: PartitionLog) -> None:
        self.open: dict[int, int] = {}
        self.aborted: list[AbortedTransaction] = []
        self.ended: list[tuple[int, int]] = []
        for rows in log.read_range(log.log_start_offset, log.log_end_offset):
            for row in rows.to_pylist():
                self.take(row)

    def take(self, row) -> None:
        producer_id, offset = row["producer_id"], row["offset"]
        if not row["attributes"] & TRANSACTIONAL_ATTRIBUTE:
            return
        if not row["attributes"] & CONTROL_ATTRIBUTE:
            self.open.setdefault(producer_id, offset)
            return
        end = marker_of(row["key"], row["value"])
        first = self.open.pop(producer_id, None)
        if first is not None:
            self.ended.append((first, offset))
            if not end.is_commit:
                self.aborted.append(AbortedTransaction(producer_id, first, offset))

    def stable(self, high_watermark: int) -> int:
        undecided = [first for first, last in self.ended if last >= high_watermark]
        return min([high_watermark, *self.open.values(), *undecided])


class Life:
    """Two replicas, producers with one transaction after the other, and all events of logs."""

    def __init__(self, replicas: Replicas, seed: int) -> None:
        self.chance = random.Random(seed)
        self.replicas = replicas
        self.epoch = 0
        self.leader, self.follower = replicas.leader("1"), replicas.follower("2", 0)
        self.brokers = ["1", "2"]
        self.high_watermark = 0

    def write(self) -> None:
        group = []
        known = self.leader.producers
        for producer_id in self.chance.sample(range(4), self.chance.choice([1, 2])):
            entry, transaction = known.producers.get(producer_id), known.transactions.of(producer_id)
            epoch = entry.producer_epoch if entry else 0
            sequence = entry.batches[-1].last_sequence + 1 if entry and entry.batches else 0
            if transaction.is_open and self.chance.random() < 0.4:
                group.append(marker(self.chance.random() < 0.5, producer_id, epoch + 1, self.epoch, version=2))
            elif transaction.is_open or transaction.marker_offset < self.high_watermark:
                group.append(transactional("r" * self.chance.choice([1, 3]), sequence, producer_id, epoch))
        if group:
            append(self.leader, *group, epoch=self.epoch)

    def copy(self) -> None:
        self.leader.refresh()
        self.follower.copy_from(self.leader, self.epoch, self.chance.choice([0, MIB]))
        self.high_watermark = max(self.high_watermark, self.follower.log_end_offset)

    def fail_over(self) -> None:
        self.leader, self.follower = self.follower, self.leader
        self.brokers.reverse()
        self.epoch += 1
        started(self.leader, self.epoch)
        self.follower.start_epoch(self.epoch, as_leader=False, truncate_to=self.leader.log_end_offset)

    def lose(self) -> None:
        """An unclean election: committed records are lost, perhaps of several transactions."""
        end = self.chance.randint(0, self.leader.log_end_offset)
        self.epoch += 1
        self.leader.start_epoch(self.epoch, as_leader=True, truncate_to=end)
        self.follower.start_epoch(self.epoch, as_leader=False, truncate_to=end)
        self.high_watermark = min(self.high_watermark, end)

    def reopen(self) -> None:
        self.leader, self.follower = (self.replicas.log(broker) for broker in self.brokers)

    def step(self) -> None:
        weights = {self.write: 14, self.copy: 6, self.fail_over: 2, self.lose: 1, self.reopen: 1}
        (action,) = self.chance.choices(list(weights), list(weights.values()))
        action()

    def check(self) -> None:
        for log in (self.leader, self.follower):
            naive = Naive(log)
            known = log.producers.transactions
            assert {i: t.first_offset for i, t in known.producers.items() if t.is_open} == naive.open
            assert list(known.aborted) == naive.aborted
            for high_watermark in range(self.high_watermark, log.log_end_offset + 1):
                assert log.last_stable_offset(high_watermark) == naive.stable(high_watermark)


@pytest.mark.parametrize("seed", range(12))
def test_the_state_is_that_of_the_rows(replicas, seed):
    if replicas.root is not None and seed > 2:
        seed += 100
    life = Life(replicas, seed)
    for number in range(70):
        life.step()
        if number % 3 == 0:
            life.check()
    life.reopen()
    life.check()


def test_the_last_stable_offset_is_never_above_what_a_reader_has_folded(replicas):
    """A reader may know a high watermark above the end of its fold."""
    leader = replicas.leader()
    assert isinstance(result(leader, idempotent(["a", "b"], 0)), BatchAppended)
    assert leader.last_stable_offset(7) == 2


def test_a_verification_of_another_leader_epoch_begins_no_transaction(replicas):
    """A leader refuses a batch at 10 and the coordinator is asked. Meanwhile it is cut to 5, follows, and the producer,
    which has one epoch for all its transactions, aborts: the marker is at 5, below the end of that time."""
    log = replicas.leader()
    write(log, "a b c d e")
    write(log, "f g h i j")
    sent = transactional("x", 0, verified=-1)
    (refused,) = append(log, sent).results
    log.start_epoch(1, as_leader=False, truncate_to=5)
    log.start_epoch(2, as_leader=True)
    append(log, marker(False), epoch=2)
    for late in (replace(sent, **refused.verification), replace(sent, verified_offset=refused.log_end_offset)):
        (result,) = append(log, late, epoch=2).results
        assert isinstance(result, UnverifiedTransactionError)
    assert (stable(log), log.log_end_offset) == (6, 6)
    assert append(log, replace(sent, **result.verification), epoch=2).results == (BatchAppended(6, 6),)
