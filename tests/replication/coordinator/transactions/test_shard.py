"""The transaction coordinator: what it writes, answers and sends, and that a failover in any state loses nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.replication.coordinator.shard.shard import Decision, size_bytes
from stratalog.replication.coordinator.transactions.records import transaction_record
from stratalog.replication.requests.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)
from stratalog.storage.errors import (
    InvalidProducerEpochError,
    NotLeaderOrFollowerError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.transactions import EndMarker, marker_of
from tests.replication.transaction_tools import TX, A, B, C, Coordinator

OFFSETS = TopicPartition("__consumer_offsets", 7)


def init(coordinator: Coordinator, timeout_ms: int = 60_000, producer_id: int = -1, epoch: int = -1):
    return coordinator.ask(InitProducerIdRequest(TX, timeout_ms, producer_id, epoch))


def begun(*partitions: TopicPartition, version: int = 2, **settings: object) -> tuple[Coordinator, int, int]:
    coordinator = Coordinator((A, B, C, OFFSETS), **settings)
    producer = init(coordinator)
    add(coordinator, producer.producer_id, producer.producer_epoch, *partitions, version=version)
    return coordinator, producer.producer_id, producer.producer_epoch


def add(coordinator: Coordinator, producer_id: int, epoch: int, *partitions: TopicPartition, version: int = 2):
    asked = AddPartitionsToTxnRequest(TX, producer_id, epoch, partitions, transaction_version=version)
    return [error for _, error in coordinator.ask(asked).results]


def end(coordinator: Coordinator, producer_id: int, epoch: int, committed: bool = True, version: int = 2):
    return coordinator.ask(EndTxnRequest(TX, producer_id, epoch, committed, version))


def name(answer) -> str:
    return "NONE" if answer.error is None else answer.error.name


def test_a_transaction_from_its_id_to_its_last_marker():
    coordinator, producer_id, epoch = begun(A, B)
    assert (producer_id, epoch, coordinator.label()) == (1_001, 0, "Ongoing")
    answer = end(coordinator, producer_id, epoch)
    assert (answer.producer_id, answer.producer_epoch, name(answer)) == (producer_id, 1, "NONE")
    assert coordinator.label() == "PrepareCommit"
    assert [effect.topic_partition for effect in coordinator.effects] == [A, B]
    batch = coordinator.effects[0].batch
    marker = marker_of(batch.payload["key"][0].as_py(), batch.payload["value"][0].as_py())
    assert (batch.producer_id, batch.producer_epoch, batch.transaction_version) == (producer_id, 1, 2)
    assert marker == EndMarker(True, 0)
    first, second = coordinator.effects
    coordinator.written(first)
    assert coordinator.label() == "PrepareCommit"
    assert add(coordinator, producer_id, 1, A)[0].name == "CONCURRENT_TRANSACTIONS"
    assert name(end(coordinator, producer_id, epoch)) == "CONCURRENT_TRANSACTIONS"
    coordinator.written(second)
    assert coordinator.label() == "CompleteCommit"
    assert name(end(coordinator, producer_id, epoch)) == "NONE"
    assert add(coordinator, producer_id, 1, A) == [None]


def test_nothing_is_sent_before_the_outcome_is_committed():
    coordinator, producer_id, epoch = begun(A)
    decision = coordinator.shard.decide(EndTxnRequest(TX, producer_id, epoch, True, 2), 1, coordinator.now_ms)
    assert len(decision.records) == len(decision.effects) == len(decision.answers) == 1
    coordinator.accept(decision, is_stored=False)
    coordinator.fail_over()
    assert (coordinator.label(), coordinator.effects) == ("Ongoing", [])
    assert name(end(coordinator, producer_id, epoch, committed=False)) == "NONE"
    assert coordinator.label() == "PrepareAbort"


def test_a_marker_that_fails_comes_again():
    coordinator, producer_id, epoch = begun(A, B)
    end(coordinator, producer_id, epoch)
    first, second = coordinator.effects
    coordinator.effects.clear()
    coordinator.written(first, NotLeaderOrFollowerError("moved"))
    coordinator.written(second)
    assert coordinator.effects == []
    coordinator.pass_time(100)
    assert [(e.topic_partition, e.batch.producer_epoch) for e in coordinator.effects] == [(A, 1)]
    coordinator.write_markers()
    assert coordinator.label() == "CompleteCommit"
    coordinator.written(first)
    assert coordinator.label() == "CompleteCommit"


def test_a_deleted_topic_needs_no_marker():
    coordinator, producer_id, epoch = begun(A, C)
    end(coordinator, producer_id, epoch)
    first, second = coordinator.effects
    coordinator.written(first)
    coordinator.written(second, UnknownTopicOrPartitionError("not yet known there"))
    assert coordinator.label() == "PrepareCommit"
    coordinator.partitions.discard(C)
    coordinator.pass_time(100)
    assert coordinator.label() == "CompleteCommit"


@pytest.mark.parametrize("error", [InvalidProducerEpochError, TransactionCoordinatorFencedError])
def test_who_was_replaced_sends_no_more(error):
    coordinator, producer_id, epoch = begun(A, B)
    end(coordinator, producer_id, epoch)
    first, second = coordinator.effects
    coordinator.effects.clear()
    coordinator.written(first, NotLeaderOrFollowerError("moved"))
    coordinator.written(second, error("newer"))
    coordinator.pass_time(10_000)
    assert (coordinator.label(), coordinator.effects) == ("PrepareCommit", [])
    coordinator.fail_over()
    assert coordinator.write_markers() == [A, B]
    assert coordinator.label() == "CompleteCommit"


@pytest.mark.parametrize("state", ["Empty", "Ongoing", "PrepareCommit", "marked once", "CompleteCommit"])
@pytest.mark.parametrize("version", [0, 2])
def test_a_coordinator_killed_in_any_state_of_end_transaction(state, version):
    """The next one goes on where the log says; the producer's retry is answered as if nothing had been."""
    coordinator = Coordinator()
    producer = init(coordinator)
    producer_id, epoch = producer.producer_id, producer.producer_epoch
    if state == "Empty":
        coordinator.fail_over()
        assert coordinator.label() == "Empty"
    add(coordinator, producer_id, epoch, A, B, version=version)
    if state == "Ongoing":
        coordinator.fail_over()
        assert coordinator.label() == "Ongoing"
    assert name(end(coordinator, producer_id, epoch, version=version)) == "NONE"
    if state == "marked once":
        coordinator.written(coordinator.effects.pop(0))
    if state in ("PrepareCommit", "marked once"):
        coordinator.fail_over()
        assert coordinator.label() == "PrepareCommit"
        assert name(end(coordinator, producer_id, epoch, version=version)) == "CONCURRENT_TRANSACTIONS"
        assert name(end(coordinator, producer_id, epoch, committed=False, version=version)) == "INVALID_TXN_STATE"
    coordinator.write_markers()
    if state == "CompleteCommit":
        coordinator.fail_over()
    assert coordinator.label() == "CompleteCommit"
    answer = end(coordinator, producer_id, epoch, version=version)
    assert (name(answer), answer.producer_epoch) == ("NONE", epoch + (version == 2))
    next_epoch = answer.producer_epoch
    assert add(coordinator, producer_id, next_epoch, C, version=version) == [None]


def test_a_delayed_commit_cannot_finish_a_later_transaction():
    """Jepsen on Kafka's protocol: the commit of transaction 1, sent twice, arrives again when transaction 2 is open.

    Under version 2 it has an epoch of its own and is fenced. Before version 2 nothing tells it from the commit of
    transaction 2, and it ends that one: why KIP-890 came.
    """
    outcomes = {}
    for version in (0, 2):
        coordinator, producer_id, epoch = begun(A, version=version)
        delayed = EndTxnRequest(TX, producer_id, epoch, True, version)
        epoch = coordinator.ask(delayed).producer_epoch
        coordinator.write_markers()
        assert add(coordinator, producer_id, epoch, B, version=version) == [None]
        outcomes[version] = (name(coordinator.ask(delayed)), coordinator.label())
    assert outcomes == {0: ("NONE", "PrepareCommit"), 2: ("PRODUCER_FENCED", "Ongoing")}


def test_a_delayed_add_of_an_ended_transaction_is_fenced_under_version_2():
    coordinator, producer_id, epoch = begun(A)
    end(coordinator, producer_id, epoch)
    coordinator.write_markers()
    assert add(coordinator, producer_id, epoch, B)[0].name == "PRODUCER_FENCED"
    assert coordinator.label() == "CompleteCommit"


def test_a_new_producer_of_the_name_aborts_what_is_open_and_fences_the_older_one():
    coordinator, producer_id, epoch = begun(A)
    assert name(init(coordinator)) == "CONCURRENT_TRANSACTIONS"
    assert coordinator.label() == "PrepareAbort"
    assert name(init(coordinator)) == "CONCURRENT_TRANSACTIONS"
    (effect,) = coordinator.effects
    assert (effect.batch.producer_epoch, marker_of(effect.batch.payload["key"][0].as_py(), b"\0" * 6).is_commit) == (
        1,
        False,
    )
    coordinator.write_markers()
    newer = init(coordinator)
    assert (newer.producer_id, newer.producer_epoch) == (producer_id, 2)
    assert add(coordinator, producer_id, epoch, A)[0].name == "PRODUCER_FENCED"
    assert name(end(coordinator, producer_id, epoch, version=0)) == "PRODUCER_FENCED"
    assert add(coordinator, producer_id, 2, A) == [None]


def test_a_transaction_that_lasts_too_long_is_aborted_and_its_producer_fenced():
    coordinator, producer_id, epoch = begun(A)
    coordinator.pass_time(30_000)
    coordinator.fail_over()
    coordinator.pass_time(30_000)
    assert coordinator.label() == "Ongoing"
    coordinator.pass_time(1)
    assert coordinator.label() == "PrepareAbort"
    coordinator.write_markers()
    assert coordinator.label() == "CompleteAbort"
    assert add(coordinator, producer_id, epoch, A)[0].name == "PRODUCER_FENCED"
    assert name(end(coordinator, producer_id, epoch)) == "INVALID_TXN_STATE"


@pytest.mark.parametrize(
    ("timeout_ms", "answer"),
    [
        (900_000, "NONE"),
        (900_001, "INVALID_TRANSACTION_TIMEOUT"),
        (0, "INVALID_TRANSACTION_TIMEOUT"),
        (-1, "INVALID_TRANSACTION_TIMEOUT"),
    ],
)
def test_the_longest_timeout(timeout_ms, answer):
    assert name(init(Coordinator(), timeout_ms)) == answer
    assert name(init(Coordinator(transaction_max_timeout_ms=1_000), 1_001)) == "INVALID_TRANSACTION_TIMEOUT"


def test_a_name_that_nobody_uses_is_forgotten():
    coordinator, producer_id, epoch = begun(A, transactional_id_expiration_ms=100_000)
    end(coordinator, producer_id, epoch)
    coordinator.write_markers()
    coordinator.pass_time(99_999)
    assert coordinator.label() == "CompleteCommit"
    coordinator.fail_over()
    coordinator.pass_time(1)
    assert coordinator.state() is None
    assert coordinator.log[-1].value is None
    assert name(end(coordinator, producer_id, epoch)) == "INVALID_PRODUCER_ID_MAPPING"
    assert (init(coordinator).producer_id, coordinator.shard.next_due_ms) == (1_002, 210_000)


def test_epochs_that_are_used_up_bring_a_new_id():
    coordinator, producer_id, _ = begun(A)
    last = 2**15 - 2
    coordinator.accept(Decision((transaction_record(replace(coordinator.state(), producer_epoch=last)),)))
    for is_retry in (False, True):
        answer = end(coordinator, producer_id, last, committed=False)
        coordinator.write_markers()
        assert (answer.producer_id, answer.producer_epoch, name(answer)) == (1_002, 0, "NONE"), is_retry
    assert add(coordinator, 1_002, 0, A) == [None]


def test_without_a_producer_id_at_hand_one_has_to_come_again():
    coordinator = Coordinator()
    coordinator.next_id = None
    assert name(init(coordinator)) == "COORDINATOR_LOAD_IN_PROGRESS"
    assert coordinator.log == []


def test_offsets_of_a_group_are_a_partition_of_the_transaction():
    coordinator, producer_id, epoch = begun(A)
    asked = AddOffsetsToTxnRequest(TX, producer_id, epoch, "group", OFFSETS, 2)
    assert name(coordinator.ask(asked)) == "NONE"
    (described,) = coordinator.ask(DescribeTransactionsRequest((TX,))).transaction_states
    assert (described.topic_partitions, described.transaction_state) == ((OFFSETS, A), "Ongoing")
    assert (described.transaction_timeout_ms, described.transaction_start_time_ms) == (60_000, 10_000)
    end(coordinator, producer_id, epoch)
    coordinator.written(coordinator.effects[0])
    (described,) = coordinator.ask(DescribeTransactionsRequest((TX,))).transaction_states
    assert described.topic_partitions == (A,)


@pytest.mark.parametrize(
    ("request_", "found", "unknown"),
    [
        (ListTransactionsRequest(), [(TX, 1_001, "Ongoing")], ()),
        (ListTransactionsRequest(("Ongoing", "Odd")), [(TX, 1_001, "Ongoing")], ("Odd",)),
        (ListTransactionsRequest(("Empty",)), [], ()),
        (ListTransactionsRequest((), (1_001, 3)), [(TX, 1_001, "Ongoing")], ()),
        (ListTransactionsRequest((), (3,)), [], ()),
        (ListTransactionsRequest((), (), 500), [(TX, 1_001, "Ongoing")], ()),
        (ListTransactionsRequest((), (), 501), [], ()),
    ],
)
def test_list_transactions(request_, found, unknown):
    coordinator, _, _ = begun(A)
    coordinator.pass_time(501)
    answer = coordinator.ask(request_)
    assert [tuple(vars_of(each)) for each in answer.transaction_states] == found
    assert answer.unknown_state_filters == unknown


def vars_of(listing):
    return listing.transactional_id, listing.producer_id, listing.transaction_state


def test_a_verification_changes_nothing():
    coordinator, producer_id, epoch = begun(A)
    written = len(coordinator.log)
    asked = AddPartitionsToTxnRequest(TX, producer_id, epoch, (A, B), verify_only=True)
    assert coordinator.shard.decide(asked, 1, coordinator.now_ms).is_read  # another coordinator may have ended it
    errors = [error for _, error in coordinator.ask(asked).results]
    assert (errors[0], errors[1].name, len(coordinator.log)) == (None, "TRANSACTION_ABORTABLE", written)


def test_an_empty_name_is_an_invalid_request():
    coordinator = Coordinator()
    assert name(coordinator.ask(InitProducerIdRequest("", 1_000))) == "INVALID_REQUEST"
    assert name(coordinator.ask(EndTxnRequest("", 1, 0, True))) == "INVALID_REQUEST"
    asked = (("",), "INVALID_REQUEST"), (("nobody",), "TRANSACTIONAL_ID_NOT_FOUND")
    for names, error in asked:
        (described,) = coordinator.ask(DescribeTransactionsRequest(names)).transaction_states
        assert name(described) == error
    assert coordinator.ask("what is this").name == "INVALID_REQUEST"


def many(ids: int, partitions: int) -> Coordinator:
    """Transactions with so many partitions of topics with long names, all under way since the same time."""
    names = [TopicPartition(f"{number:0249}", 0) for number in range(partitions)]
    coordinator = Coordinator(names)
    for number in range(ids):
        transactional_id = f"{number:04000}"
        producer = coordinator.ask(InitProducerIdRequest(transactional_id, 60_000, -1, -1))
        asked = AddPartitionsToTxnRequest(
            transactional_id, producer.producer_id, producer.producer_epoch, tuple(names), transaction_version=2
        )
        assert {error for _, error in coordinator.ask(asked).results} == {None}
    return coordinator


def test_transactions_that_time_out_together_are_aborted_in_decisions_that_fit_into_a_batch():
    """A shard that is lost by them would be folded again, and lost again by the same."""
    coordinator = many(200, 5)
    coordinator.now_ms += 60_001
    sizes = []
    while (decision := coordinator.shard.expire(coordinator.now_ms)).records:
        coordinator.accept(decision)
        sizes.append(size_bytes(decision.records))
    assert len(sizes) > 1
    assert max(sizes) < LogConfig().max_message_bytes // 2
    assert len(coordinator.effects) == 200 * 5


def test_a_transaction_has_as_many_partitions_as_its_record_can_name():
    coordinator = many(1, 1_000)
    producer = coordinator.state(f"{0:04000}")
    assert producer is not None
    more = tuple(TopicPartition(f"{number:0240}", 1) for number in range(3_000))
    asked = AddPartitionsToTxnRequest(
        producer.transactional_id, producer.producer_id, producer.producer_epoch, more, transaction_version=2
    )
    assert {error.name for _, error in coordinator.ask(asked).results} == {"UNKNOWN_SERVER_ERROR"}
    assert len(coordinator.state(producer.transactional_id).partitions) == 1_000


def test_the_markers_of_a_transaction_are_one_batch():
    coordinator, producer_id, epoch = begun(A, B)
    end(coordinator, producer_id, epoch)
    first, second = coordinator.effects
    assert first.batch is second.batch
