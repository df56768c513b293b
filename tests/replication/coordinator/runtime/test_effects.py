"""What coordinators do with transactions: pending records, markers, and appends to partitions of others."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from stratalog.replication.coordinator.shard.shard import RemoteAppend
from stratalog.replication.leader.replica import WaitingAppend
from stratalog.replication.requests.produce import HandOverRequest, ProduceRequest, ProduceResponse
from stratalog.storage.files.data_file import DataFile
from stratalog.storage.log.append import HandedFiles
from stratalog.storage.records import (
    CONTROL_ATTRIBUTE,
    TRANSACTIONAL_ATTRIBUTE,
    IdentifiedPartition,
    NewRecordBatch,
    TopicPartition,
    payload_table,
)
from tests.replication.coordinated import FOLLOWER, P0, Coordinated, added, coordinated
from tests.replication.coordinator.runtime.test_remote_appends import Leader
from tests.replication.list_shard import Add, Read
from tests.replication.memory_stores import commit, create, led_by
from tests.storage.logs import batch


def marker(producer_id: int, *, is_commit: bool) -> NewRecordBatch:
    payload = payload_table([(1, struct.pack(">hh", 0, is_commit), bytes(6), None)])
    return NewRecordBatch(payload, producer_id, 0, attributes=TRANSACTIONAL_ATTRIBUTE | CONTROL_ATTRIBUTE)


def end_transaction(running: Coordinated, producer_id: int, *, is_commit: bool) -> None:
    append_marker(running, marker(producer_id, is_commit=is_commit))


def append_marker(running: Coordinated, batch: NewRecordBatch) -> None:
    request = ProduceRequest(running.metadata.image.identified(P0), batch)
    running.broker.calls.produce_then(request, lambda response: running.answers.append(response.error))


def test_records_of_a_transaction_count_when_its_marker_is_committed() -> None:
    running = coordinated()
    for producer_id, value in ((7, "a"), (7, "b"), (8, "c")):
        running.ask(Add(value, producer_id, 0))
    running.settle()
    assert (running.stored(), running.shard.pending) == (["a", "b", "c"], {})
    running.follow(3)
    assert running.taken() == [added(0, "a"), added(0, "b"), added(0, "c")]
    assert running.shard.pending == {7: ["a", "b"], 8: ["c"]}
    log = running.broker.leaders[P0].log
    rows = log.read(0, 1 << 20)
    assert rows["attributes"].to_pylist() == [TRANSACTIONAL_ATTRIBUTE] * 3
    assert rows["batch_base_offset"].to_pylist() == [0, 0, 2]
    end_transaction(running, 7, is_commit=True)
    end_transaction(running, 8, is_commit=False)
    running.settle()
    assert (running.taken(), running.shard.values) == ([], [])
    running.follow(5)
    assert running.taken() == [None, None]
    assert (running.shard.values, running.shard.pending) == (["a", "b"], {})


def test_a_fold_knows_what_was_pending_and_what_was_ended() -> None:
    running = coordinated()
    for producer_id, value in ((7, "a"), (8, "b"), (9, "c")):
        running.ask(Add(value, producer_id, 0))
    running.settle()
    running.follow(3)
    end_transaction(running, 7, is_commit=True)
    end_transaction(running, 8, is_commit=False)
    running.settle()
    running.follow(5)
    running.lead(1, 1)
    running.follow(5)
    assert len(running.shards) == 2
    assert (running.shard.values, running.shard.pending) == (["a"], {9: ["c"]})


def test_a_fenced_transactional_producer_spoils_nobody_else() -> None:
    """The log refuses its records; the shard never heard of them and need not be folded again."""
    running = coordinated()
    running.ask(Add("a", 7, 3))
    running.settle()
    running.follow(1)
    running.taken()
    running.ask(Add("old", 7, 2))
    running.ask(Read())
    running.settle()
    running.follow(1)
    assert running.taken() == ["INVALID_PRODUCER_EPOCH", ()]
    assert (len(running.shards), running.shard.pending) == (1, {7: ["a"]})


def test_clients_do_not_write_to_internal_topics() -> None:
    running = coordinated()
    answers: list[ProduceResponse] = []
    running.broker.calls.produce_then(
        ProduceRequest(running.metadata.image.identified(P0), batch(["x"])), answers.append
    )
    unknown = TopicPartition("__transaction_state", 0)
    running.broker.calls.produce_then(
        ProduceRequest(IdentifiedPartition("", unknown), marker(7, is_commit=True)), answers.append
    )
    handed = HandOverRequest(
        IdentifiedPartition("", P0), HandedFiles((DataFile("f", 1, 1, 0, 0, None, None),), "query", 1)
    )
    running.broker.calls.append(WaitingAppend(handed, answers.append))
    running.settle()
    assert [str(answer.error) for answer in answers] == [
        "Cannot append to internal topic __consumer_offsets",
        "Cannot append to internal topic __transaction_state",
        "Cannot append to internal topic __consumer_offsets",
    ]
    assert {answer.error.code for answer in answers if answer.error} == {17}
    assert running.stored() == []


def test_an_effect_is_performed_once_its_decision_is_committed_and_its_outcome_comes_back() -> None:
    running = coordinated()
    create(running.metadata, "t", led_by(1, replicas=(1,)), topic_id="id")
    running.settle()
    target = TopicPartition("t", 0)
    missing = RemoteAppend(TopicPartition("nowhere", 0), batch(["x"]), "second")
    running.ask(Add("a", effects=(RemoteAppend(target, batch(["effect"]), "first"), missing)))
    running.settle()
    log = running.broker.leaders[target].log
    assert log.log_end_offset == 0
    running.follow(1)
    assert log.log_end_offset == 1
    outcomes = ((each.context, each.error and each.error.name) for each in running.shard.outcomes)
    assert sorted(outcomes, key=str) == [
        ("first", None), ("second", "UNKNOWN_TOPIC_OR_PARTITION"),
    ]  # fmt: skip


def test_an_effect_at_a_broker_that_died_is_given_up_when_the_metadata_says_who_leads() -> None:
    silent = Leader()
    running = coordinated(peers={FOLLOWER: silent})
    target = TopicPartition("t", 0)
    create(running.metadata, "t", led_by(FOLLOWER), topic_id="id")
    running.settle()
    running.ask(Add("a", effects=(RemoteAppend(target, batch(["effect"]), "first"),)))
    running.settle()
    running.follow(1)
    assert (len(silent.completions), running.shard.outcomes) == (1, [])
    running.metadata.refresh()
    state = running.metadata.image.partition(target)
    commit(running.metadata, replace(state, leader=1, leader_epoch=1, partition_epoch=state.partition_epoch + 1))
    began_ms = running.clock.now_ms
    running.settle()
    (outcome,) = running.shard.outcomes
    assert (outcome.error and outcome.error.name) == "NOT_LEADER_OR_FOLLOWER"
    assert running.clock.now_ms - began_ms == 200, "not the time-out of 30 s"


def test_an_effect_at_a_broker_that_never_answers_is_timed_out() -> None:
    running = coordinated()
    target = TopicPartition("t", 0)
    create(running.metadata, "t", led_by(1), topic_id="id")  # its follower copies nothing
    running.settle()
    running.ask(Add("a", effects=(RemoteAppend(target, batch(["effect"]), "first"),)))
    running.settle()
    running.follow(1)
    due_ms = running.broker.coordinators.next_due_ms
    assert due_ms is not None
    running.clock.now_ms = due_ms
    running.settle()
    (outcome,) = running.shard.outcomes
    assert (outcome.error and outcome.error.name) == "REQUEST_TIMED_OUT"


@pytest.mark.parametrize(("epoch", "told"), [(1, None), (0, "FENCED_LEADER_EPOCH"), (2, "UNKNOWN_LEADER_EPOCH")])
def test_a_marker_for_another_leader_epoch_is_refused(epoch: int, told: str | None) -> None:
    running = coordinated()
    running.lead(1, 1)
    running.follow(0)
    request = ProduceRequest(
        running.metadata.image.identified(P0), marker(7, is_commit=True), expected_leader_epoch=epoch
    )
    running.broker.calls.produce_then(request, lambda response: running.answers.append(response.error))
    running.settle()
    running.follow(1)
    assert running.taken() == [told]
