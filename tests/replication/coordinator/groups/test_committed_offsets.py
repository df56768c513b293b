"""Committed offsets through the shard: who may commit, what is told, transactions, expiry, removal."""

from __future__ import annotations

from typing import Any

import pytest

from stratalog.replication import cadence
from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.records import (
    OffsetCommitValue,
    decode_offset_commit,
    encode_offset_commit,
    offset_commit_key,
)
from stratalog.replication.coordinator.shard.shard import CoordinatorRecord, Decision
from stratalog.replication.requests.groups import (
    DeleteGroupsRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    PartitionsDeleted,
    PartitionsDeletedDone,
    TxnOffsetCommitRequest,
)
from stratalog.storage.cadence import MINUTE_MS
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.wire.consumer_protocol import Subscription, encode_subscription
from tests.replication.group_coordinator import (
    START_MS,
    Coordinator,
    commit_request,
    error_name,
    join_request,
    protocols,
)

WEEK_MS = 10_080 * MINUTE_MS
ROUND_MS = 600_000


def reading(*topics: str) -> dict[str, Any]:
    """A JoinGroup's protocols with a subscription to these."""
    return {"protocols": protocols("range", subscription=encode_subscription(Subscription(topics)))}


def as_member(joined: JoinGroupResponse, **changes: Any) -> dict[str, Any]:
    return {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id} | changes


# Who may commit


def test_somebody_without_a_group_commits_and_reads_it_back() -> None:
    coordinator = Coordinator()
    assert coordinator.commit_offset(42) == "NONE"
    found = coordinator.committed()
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata, found.error) == (42, 5, "", None)
    record, timestamp_ms, producer_id, _ = coordinator.log[-1]
    assert record == CoordinatorRecord(
        offset_commit_key("g", "t", 0), encode_offset_commit(OffsetCommitValue(42, 5, "", START_MS))
    )
    assert (timestamp_ms, producer_id) == (START_MS, -1)
    assert coordinator.group().is_empty


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, "NONE"),
        ({"member_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
        ({"generation_id_or_member_epoch": 0}, "ILLEGAL_GENERATION"),
        ({"generation_id_or_member_epoch": 2}, "ILLEGAL_GENERATION"),
        ({"generation_id_or_member_epoch": -1}, "ILLEGAL_GENERATION"),
        ({"generation_id_or_member_epoch": -1, "member_id": ""}, "UNKNOWN_MEMBER_ID"),
        ({"group_instance_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
        ({"group_id": "other"}, "GROUP_ID_NOT_FOUND"),
        ({"group_id": "other", "generation_id_or_member_epoch": -1}, "NONE"),
    ],
)
def test_a_commit_to_a_group_with_members(changes: dict[str, Any], error: str) -> None:
    coordinator = Coordinator()
    joined = coordinator.stable("a")["a"]
    assert coordinator.commit_offset(1, **as_member(joined, **changes)) == error


def test_a_commit_while_the_group_rebalances() -> None:
    """While members join, the old generation may still commit; the new one not before its assignments are stored."""
    coordinator = Coordinator()
    joined = coordinator.stable("a", "b")
    waiting = coordinator.ask(join_request("a", member_id=joined["a"].member_id))
    assert coordinator.commit_offset(1, **as_member(joined["b"])) == "NONE"
    again = coordinator.ask(join_request("b", member_id=joined["b"].member_id))
    assert {waiting, again} <= coordinator.answered.keys()
    assert coordinator.commit_offset(2, **as_member(joined["b"])) == "ILLEGAL_GENERATION"
    assert coordinator.commit_offset(2, **as_member(coordinator.answered[again])) == "REBALANCE_IN_PROGRESS"
    assert coordinator.committed().committed_offset == 1


def test_a_commit_keeps_the_session() -> None:
    coordinator = Coordinator()
    a = coordinator.stable("a")["a"]
    for offset in range(3):
        coordinator.advance(9_000)
        assert coordinator.commit_offset(offset, **as_member(a)) == "NONE"


@pytest.mark.parametrize(("length", "error"), [(4_096, "NONE"), (4_097, "OFFSET_METADATA_TOO_LARGE")])
def test_metadata_has_a_length_limit(length: int, error: str) -> None:
    coordinator = Coordinator()
    partitions = (OffsetCommitRequestPartition(0, 7, -1, "x" * length), OffsetCommitRequestPartition(1, 8, -1, None))
    answer = coordinator.answer(OffsetCommitRequest("g", (OffsetCommitRequestTopic("t", partitions),)))
    assert [error_name(each) for each in answer.topics[0].partitions] == [error, "NONE"]
    assert coordinator.all_committed() == ({"t-0": 7, "t-1": 8} if error == "NONE" else {"t-1": 8})


# Fetches


def test_fetches_of_several_groups_and_of_what_is_not_there() -> None:
    coordinator = Coordinator()
    coordinator.ask(commit_request({("t", 0): 1, ("t", 2): 3, ("u", 0): 9}, metadata="note"))
    asked = OffsetFetchRequestTopic("t", (0, 1))
    request = OffsetFetchRequest(
        (OffsetFetchRequestGroup("g", (asked,)), OffsetFetchRequestGroup("h", (asked,)), OffsetFetchRequestGroup("h"))
    )
    g, h, everything = coordinator.answer(request).groups
    found, missing = g.topics[0].partitions
    assert (found.committed_offset, found.metadata) == (1, "note")
    assert (missing.committed_offset, missing.committed_leader_epoch, missing.metadata) == (-1, -1, "")
    assert [each.committed_offset for each in h.topics[0].partitions] == [-1, -1]
    assert (everything.topics, everything.error, h.error) == ((), None, None)
    assert coordinator.all_committed() == {"t-0": 1, "t-2": 3, "u-0": 9}


# Transactions


@pytest.mark.parametrize(("is_commit", "offset"), [(True, 5), (False, 1)])
def test_what_a_transaction_commits_counts_from_its_marker_on(is_commit: bool, offset: int) -> None:
    coordinator = Coordinator()
    coordinator.commit_offset(1)
    assert coordinator.commit_in_transaction(5) == "NONE"
    assert coordinator.log[-1][2:] == (7, 0)
    assert coordinator.committed().committed_offset == 1
    unstable = coordinator.committed(require_stable=True)
    assert (error_name(unstable), unstable.committed_offset) == ("UNSTABLE_OFFSET_COMMIT", -1)
    coordinator.end_transaction(7, 0, is_commit)
    assert coordinator.committed(require_stable=True).committed_offset == offset
    coordinator.crash()
    assert coordinator.committed(require_stable=True).committed_offset == offset


def test_a_plain_commit_after_the_transactional_one_counts() -> None:
    coordinator = Coordinator()
    coordinator.commit_in_transaction(5)
    coordinator.commit_offset(6)
    coordinator.end_transaction(7, 0, is_commit=True)
    assert coordinator.committed().committed_offset == 6


def test_two_open_transactions_are_told_apart() -> None:
    coordinator = Coordinator()
    for producer_id in (7, 8):
        coordinator.commit_in_transaction(producer_id * 10, producer_id)
    coordinator.end_transaction(8, 0, is_commit=True)
    assert error_name(coordinator.committed(require_stable=True)) == "UNSTABLE_OFFSET_COMMIT"
    coordinator.end_transaction(7, 0, is_commit=False)
    assert coordinator.committed(require_stable=True).committed_offset == 80
    coordinator.end_transaction(7, 0, is_commit=True)
    assert coordinator.committed().committed_offset == 80


def test_an_older_epoch_of_a_producer_is_refused() -> None:
    coordinator = Coordinator()
    coordinator.commit_in_transaction(5, epoch=3)
    coordinator.end_transaction(7, 4, is_commit=False)
    assert coordinator.commit_in_transaction(6, epoch=3) == "INVALID_PRODUCER_EPOCH"
    assert coordinator.commit_in_transaction(6, epoch=4) == "NONE"
    coordinator.crash()
    assert coordinator.commit_in_transaction(6, epoch=3) == "INVALID_PRODUCER_EPOCH"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"generation_id": 1, "member_id": "own"}, "NONE"),
        ({"generation_id": -1}, "NONE"),
        ({"generation_id": 0, "member_id": "own"}, "ILLEGAL_GENERATION"),
        ({"generation_id": 1, "member_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
        ({"generation_id": 1, "member_id": "own", "group_instance_id": "i"}, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_whose_transactional_commits_are_taken(changes: dict[str, Any], error: str) -> None:
    """Those of clients before KIP-447, who say no generation, always."""
    coordinator = Coordinator()
    joined = coordinator.stable("a")["a"]
    if changes.get("member_id") == "own":
        changes = changes | {"member_id": joined.member_id}
    assert coordinator.commit_in_transaction(5, **changes) == error


def test_transactional_commits_to_no_group() -> None:
    coordinator = Coordinator()
    assert coordinator.commit_in_transaction(5, generation_id=0) == "ILLEGAL_GENERATION"
    nameless = TxnOffsetCommitRequest(
        "x", "", 7, 0, (OffsetCommitRequestTopic("t", (OffsetCommitRequestPartition(0, 1),)),)
    )
    assert error_name(coordinator.answer(nameless).topics[0].partitions[0]) == "INVALID_GROUP_ID"


def transactional(offset: int) -> TxnOffsetCommitRequest:
    """Of partition t-0, by producer 7."""
    topics = (OffsetCommitRequestTopic("t", (OffsetCommitRequestPartition(0, offset),)),)
    return TxnOffsetCommitRequest("x", "g", 7, 0, topics)


def test_a_plain_commit_that_was_decided_after_a_transactional_one_counts() -> None:
    """The shard folds it earlier, as transactional records are folded when they are stored; the log has it later."""
    coordinator = Coordinator(commits_at_once=False)
    coordinator.ask(transactional(5))
    coordinator.ask(commit_request({("t", 0): 6}))
    coordinator.end_transaction(7, 0, is_commit=True)
    coordinator.commits_at_once = True
    coordinator.commit()
    assert coordinator.committed().committed_offset == 6
    coordinator.crash()
    assert coordinator.committed().committed_offset == 6


def test_a_transactional_commit_that_was_decided_after_a_plain_one_counts() -> None:
    coordinator = Coordinator(commits_at_once=False)
    coordinator.ask(commit_request({("t", 0): 6}))
    coordinator.ask(transactional(5))
    coordinator.end_transaction(7, 0, is_commit=True)
    coordinator.commits_at_once = True
    coordinator.commit()
    assert coordinator.committed().committed_offset == 5
    coordinator.crash()
    assert coordinator.committed().committed_offset == 5


@pytest.mark.parametrize(
    "removal",
    [
        DeleteGroupsRequest(("g",)),
        OffsetDeleteRequest("g", (OffsetDeleteRequestTopic("t", (OffsetDeleteRequestPartition(0),)),)),
        PartitionsDeleted((IdentifiedPartition("", TopicPartition("t", 0)),)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_is_removed_while_a_transaction_commits_it_stays_removed(removal: object) -> None:
    coordinator = Coordinator(commits_at_once=False)
    coordinator.ask(commit_request({("u", 0): 1}))
    coordinator.ask(transactional(5))
    coordinator.ask(removal)
    coordinator.end_transaction(7, 0, is_commit=True)
    coordinator.commits_at_once = True
    coordinator.commit()
    assert "t-0" not in coordinator.all_committed()
    here = coordinator.shard.table.groups.keys()
    coordinator.crash()
    assert "t-0" not in coordinator.all_committed()
    assert coordinator.shard.table.groups.keys() == here


def test_what_the_log_refuses_of_a_transaction_leaves_nothing_behind() -> None:
    coordinator = Coordinator(commits_at_once=False)
    refused = coordinator.ask(transactional(5))
    coordinator.refuse_transactions()
    assert coordinator.answered[refused].name == "INVALID_PRODUCER_EPOCH"
    coordinator.ask(transactional(6))
    coordinator.end_transaction(7, 0, is_commit=True)
    coordinator.commits_at_once = True
    coordinator.commit()
    assert coordinator.committed(require_stable=True).committed_offset == 6
    coordinator.commits_at_once = False
    coordinator.ask(transactional(7))
    coordinator.refuse_transactions()
    offsets = coordinator.shard.offsets
    assert offsets.has_more("g", offsets.count("g")), "the refused one is expected"
    coordinator.commits_at_once = True
    coordinator.commit()
    coordinator.advance(3 * ROUND_MS)
    assert not offsets.has_more("g", offsets.count("g"))


# Expiry


def test_offsets_of_an_empty_group_expire_a_week_after_it_became_empty_and_the_group_with_them() -> None:
    coordinator = Coordinator()
    a = coordinator.stable("a", **reading("t"))["a"]
    coordinator.commit_offset(1, **as_member(a))
    for _ in range(20):
        coordinator.advance(9_000)
        coordinator.heartbeat(a)
    coordinator.leave(a.member_id)
    coordinator.advance(WEEK_MS - 1)
    assert coordinator.all_committed() == {"t-0": 1}
    coordinator.advance(ROUND_MS)
    assert coordinator.all_committed() == {}
    assert coordinator.shard.table.groups == {}
    assert coordinator.folded().table.groups == {}


def test_offsets_of_a_group_with_members_expire_where_nobody_reads_them() -> None:
    coordinator = Coordinator()
    timeouts = {"session_timeout_ms": 1_800_000}
    a = coordinator.stable("a", **timeouts, **reading("t"))["a"]
    coordinator.ask(commit_request({("t", 0): 1, ("u", 0): 2}, **as_member(a)))
    for _ in range(WEEK_MS // 1_200_000 + 1):
        coordinator.advance(1_200_000)
        assert coordinator.heartbeat(a) == "NONE"
    assert coordinator.all_committed() == {"t-0": 1}
    assert coordinator.group().state_name == "Stable"


def test_offsets_without_a_group_expire_a_week_after_their_commit() -> None:
    coordinator = Coordinator()
    coordinator.commit_offset(1)
    coordinator.advance(WEEK_MS // 2)
    coordinator.commit_offset(2, "u")
    coordinator.advance(WEEK_MS // 2 + ROUND_MS)
    assert coordinator.all_committed() == {"u-0": 2}
    assert "g" in coordinator.shard.table.groups


def test_an_offset_with_a_retention_of_its_own_expires_by_it() -> None:
    """OffsetCommit of versions 2 to 4; version 1 of the record keeps the time."""
    coordinator = Coordinator()
    coordinator.commit_offset(1, retention_time_ms=1_000)
    record = coordinator.log[-1][0]
    assert isinstance(record, CoordinatorRecord)
    assert record.value is not None
    assert (record.value[:2], decode_offset_commit(record.value).expire_timestamp) == (b"\0\1", START_MS + 1_000)
    coordinator.advance(ROUND_MS)
    assert coordinator.all_committed() == {}


def test_an_offset_stays_while_a_transaction_has_one_for_its_partition() -> None:
    coordinator = Coordinator(BrokerConfig(offsets_retention_minutes=1))
    coordinator.commit_offset(1)
    coordinator.commit_in_transaction(2)
    coordinator.advance(2 * ROUND_MS)
    assert coordinator.all_committed() == {"t-0": 1}
    coordinator.end_transaction(7, 0, is_commit=False)
    coordinator.advance(ROUND_MS)
    assert coordinator.all_committed() == {}
    assert coordinator.shard.table.groups == {}


def test_very_many_expire_in_pieces() -> None:
    coordinator = Coordinator(BrokerConfig(offsets_retention_minutes=1))
    name = "t" * 200
    for first in range(0, 6_000, 1_000):
        coordinator.ask(commit_request({(name, first + each): 1 for each in range(1_000)}))
    coordinator.commits_at_once = False
    coordinator.advance(ROUND_MS)
    sizes = [sum(len(record.key) for record in decision.records) for decision in coordinator.uncommitted]
    assert max(sizes) < 600_000
    assert len([size for size in sizes if size]) == 3
    coordinator.commit()
    assert coordinator.shard.table.groups == {}


def test_a_round_over_very_many_groups_goes_in_pieces() -> None:
    coordinator = Coordinator(BrokerConfig(offsets_retention_minutes=1))
    for number in range(8):
        coordinator.ask(commit_request({("t", each): 1 for each in range(2_000)}, group_id=f"g{number}"))
    coordinator.commits_at_once = False
    coordinator.advance(ROUND_MS)
    sizes = [len(decision.records) for decision in coordinator.uncommitted if isinstance(decision, Decision)]
    assert [size for size in sizes if size] == [6_003, 6_003, 4_002]
    coordinator.commit()
    assert coordinator.shard.table.groups == {}


# Removal


def delete(coordinator: Coordinator, *topics: str, group_id: str = "g") -> Any:
    partitions = (OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(1))
    asked = tuple(OffsetDeleteRequestTopic(topic, partitions) for topic in topics)
    return coordinator.answer(OffsetDeleteRequest(group_id, asked))


def test_offsets_of_topics_that_nobody_reads_can_be_deleted() -> None:
    coordinator = Coordinator()
    a = coordinator.stable("a", **reading("t"))["a"]
    coordinator.ask(commit_request({("t", 0): 1, ("u", 0): 2}, **as_member(a)))
    answer = delete(coordinator, "t", "u")
    told = {topic.name: [error_name(each) for each in topic.partitions] for topic in answer.topics}
    assert told == {"t": ["GROUP_SUBSCRIBED_TO_TOPIC"] * 2, "u": ["NONE"] * 2}
    assert coordinator.all_committed() == {"t-0": 1}


@pytest.mark.parametrize(
    ("group_id", "protocol_type", "error"),
    [
        ("", "consumer", "INVALID_GROUP_ID"),
        ("h", "consumer", "GROUP_ID_NOT_FOUND"),
        ("g", "connect", "NON_EMPTY_GROUP"),
    ],
)
def test_offsets_that_cannot_be_deleted(group_id: str, protocol_type: str, error: str) -> None:
    coordinator = Coordinator()
    coordinator.stable("a", protocol_type=protocol_type)
    answer = delete(coordinator, "t", group_id=group_id)
    assert (error_name(answer), answer.topics) == (error, ())


def test_an_offset_that_only_a_transaction_has_is_deleted_from_it() -> None:
    coordinator = Coordinator()
    coordinator.commit_in_transaction(5)
    delete(coordinator, "t")
    coordinator.end_transaction(7, 0, is_commit=True)
    assert coordinator.all_committed() == {}


def test_the_offsets_of_a_deleted_topic_go_from_every_group() -> None:
    coordinator = Coordinator()
    for group_id in "gh":
        coordinator.ask(commit_request({("t", 0): 1, ("t", 1): 2, ("u", 0): 3}, group_id=group_id))
    coordinator.commit_in_transaction(9)
    partitions = tuple(IdentifiedPartition("", TopicPartition("t", at)) for at in (0, 1))
    assert coordinator.answer(PartitionsDeleted(partitions)) == PartitionsDeletedDone()
    coordinator.end_transaction(7, 0, is_commit=True)
    for group_id in "gh":
        assert coordinator.all_committed(group_id) == {"u-0": 3}


def test_very_many_offsets_of_a_deleted_topic_go_in_pieces_and_new_ones_stay() -> None:
    coordinator = Coordinator()
    name = "t" * 200
    for first in range(0, 4_000, 1_000):
        coordinator.ask(commit_request({(name, first + each): 1 for each in range(1_000)}))
    gone = tuple(IdentifiedPartition("", TopicPartition(name, each)) for each in range(4_000))
    coordinator.ask(PartitionsDeleted(gone))
    left = coordinator.all_committed()
    assert 0 < len(left) < 4_000
    kept = min(left, key=lambda each: int(each.rpartition("-")[2]))
    coordinator.ask(commit_request({(name, int(kept.rpartition("-")[2])): 7}))
    coordinator.advance(0)
    assert coordinator.all_committed() == {kept: 7}


OLD_ID, NEW_ID = "0" * 31 + "1", "0" * 31 + "2"


def of_topic(topic_id: str) -> Coordinator:
    """A coordinator whose metadata has a topic `t` of this id."""
    coordinator = Coordinator()
    coordinator.shard.table.topic_ids = lambda: {"t": topic_id}
    return coordinator


def commit_by_id(coordinator: Coordinator, topic_id: str, offset: int) -> str:
    topic = OffsetCommitRequestTopic("t", (OffsetCommitRequestPartition(0, offset),), topic_id)
    return error_name(coordinator.answer(OffsetCommitRequest("g", (topic,))).topics[0].partitions[0])


def test_a_topic_that_was_created_again_has_no_offsets_of_the_one_before() -> None:
    """Also after a failover, by which a coordinator misses the deletion."""
    coordinator = of_topic(OLD_ID)
    assert coordinator.commit_offset(500) == "NONE"
    coordinator.crash()
    coordinator.shard.table.topic_ids = lambda: {"t": NEW_ID}
    assert coordinator.committed().committed_offset == -1
    assert coordinator.all_committed() == {}
    assert coordinator.commit_offset(3) == "NONE"
    assert coordinator.committed().committed_offset == 3


def test_a_late_commit_for_a_deleted_topic_does_not_replace_that_of_the_next_one() -> None:
    coordinator = of_topic(NEW_ID)
    assert commit_by_id(coordinator, NEW_ID, 3) == "NONE"
    assert commit_by_id(coordinator, OLD_ID, 500) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert coordinator.committed().committed_offset == 3


def test_the_deletion_of_a_topic_keeps_the_offsets_of_the_next_one() -> None:
    """The broker that commits may know the new topic before the coordinator's loop knows that the old one is gone."""
    coordinator = of_topic("")
    assert commit_by_id(coordinator, NEW_ID, 3) == "NONE"
    coordinator.ask(PartitionsDeleted((IdentifiedPartition(OLD_ID, TopicPartition("t", 0)),)))
    assert coordinator.committed().committed_offset == 3
    coordinator.ask(PartitionsDeleted((IdentifiedPartition(NEW_ID, TopicPartition("t", 0)),)))
    assert coordinator.committed().committed_offset == -1


def test_offsets_of_a_topic_that_is_gone_are_removed_after_some_minutes() -> None:
    coordinator = of_topic(OLD_ID)
    coordinator.commit_offset(500)
    coordinator.crash()
    coordinator.shard.table.topic_ids = lambda: {"u": NEW_ID}
    coordinator.advance(cadence.OFFSET_GONE.ms - 1)
    assert coordinator.shard.offsets.total == 1
    coordinator.advance(cadence.OFFSET_GONE.ms)
    assert coordinator.shard.offsets.total == 0
