"""A group shard in a broker's runtime: its records are those of a replicated log, and a new leader folds them."""

from __future__ import annotations

from typing import Any

from stratalog.replication.coordinator.groups.shard import GroupShard, group_shard
from stratalog.replication.coordinator.shard.shard import CoordinatorShard, ShardPlace
from stratalog.replication.requests.groups import (
    HeartbeatRequest,
    JoinGroupResponse,
    ListGroupsRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    TxnOffsetCommitRequest,
)
from tests.replication.coordinated import Coordinated
from tests.replication.coordinator.runtime.test_effects import end_transaction
from tests.replication.group_coordinator import commit_request, error_name, join_request, sync_request


class Groups(Coordinated):
    """Broker 1 coordinates every group on a log that broker 2 follows."""

    def __init__(self) -> None:
        super().__init__()
        self.settle()
        self.follow(0)

    def _make(self, place: ShardPlace) -> CoordinatorShard:
        self.groups = group_shard(place)
        return self.groups

    def answer(self, request: object, end: int | None = None) -> Any:
        """The answer when the follower has the log up to `end`; None if there is none yet."""
        self.ask(request)
        self.settle()
        if end is not None:
            assert self.answers == []
            self.follow(end)
        told = self.answers[:]
        self.answers.clear()
        return told[0] if told else None

    def stable(self) -> JoinGroupResponse:
        """A group of one member, whose generation is the second record."""
        first = self.answer(join_request("a"), end=1)
        assert self.answer(join_request("a", member_id=first.member_id)) is None
        self.clock.now_ms += 3_000
        self.settle()
        joined = self.answers.pop()
        assert isinstance(joined, JoinGroupResponse)
        synced = self.answer(sync_request(joined, {joined.member_id: b"mine"}), end=2)
        assert synced.assignment == b"mine"
        return joined


def committed(running: Groups) -> dict[str, int]:
    response = running.answer(OffsetFetchRequest((OffsetFetchRequestGroup("g"),)))
    return {
        f"{topic.name}-{each.partition_index}": each.committed_offset
        for topic in response.groups[0].topics
        for each in topic.partitions
    }


def test_members_and_offsets_outlive_their_coordinator() -> None:
    running = Groups()
    joined = running.stable()
    own = {"generation_id_or_member_epoch": 1, "member_id": joined.member_id}
    told = running.answer(commit_request({("t", 0): 41}, **own), end=3)
    assert error_name(told.topics[0].partitions[0]) == "NONE"
    first: GroupShard = running.groups
    running.lead(2, 1)
    assert running.answer(HeartbeatRequest("g", 1, joined.member_id)).name == "NOT_COORDINATOR"
    running.lead(1, 2)
    running.follow(3)
    assert running.groups is not first
    assert error_name(running.answer(HeartbeatRequest("g", 1, joined.member_id))) == "NONE"
    assert running.answer(sync_request(joined)).assignment == b"mine"
    assert committed(running) == {"t-0": 41}


def test_what_was_not_replicated_was_not_told_and_is_gone() -> None:
    running = Groups()
    joined = running.stable()
    own = {"generation_id_or_member_epoch": 1, "member_id": joined.member_id}
    running.ask(commit_request({("t", 0): 41}, **own))
    running.settle()
    waiting = running.answer(join_request("a", member_id=joined.member_id))
    assert waiting is None
    running.lead(2, 1)
    assert running.taken() == ["NOT_COORDINATOR"] * 2


def test_sessions_end_by_the_brokers_clock() -> None:
    running = Groups()
    joined = running.stable()
    running.clock.now_ms += 10_000
    running.settle()
    running.follow(3)
    assert error_name(running.answer(HeartbeatRequest("g", 1, joined.member_id))) == "UNKNOWN_MEMBER_ID"
    assert running.groups.table.groups["g"].state_name == "Empty"


def test_offsets_of_a_transaction_count_from_its_marker_on_and_after_a_failover() -> None:
    running = Groups()
    running.answer(commit_request({("t", 0): 1}), end=1)
    topics = commit_request({("t", 0): 5}).topics
    told = running.answer(TxnOffsetCommitRequest("x", "g", 7, 0, topics, verified_offset=1), end=2)
    assert error_name(told.topics[0].partitions[0]) == "NONE"
    assert committed(running) == {"t-0": 1}
    running.lead(2, 1)
    running.lead(1, 2)
    running.follow(2)
    assert committed(running) == {"t-0": 1}
    end_transaction(running, 7, is_commit=True)
    running.settle()
    running.follow(3)
    assert running.taken() == [None]
    assert committed(running) == {"t-0": 5}


def test_a_listing_that_fails_by_a_defect_does_not_make_the_shard_fold_anew() -> None:
    """One request reaches every shard of a broker."""
    running = Groups()
    running.stable()
    folded = running.groups
    running.ask(ListGroupsRequest(states_filter=None))  # type: ignore[arg-type]
    running.settle()
    assert running.taken() == ["UNKNOWN_SERVER_ERROR"]
    listed = running.answer(ListGroupsRequest())
    assert [group.group_id for group in listed.groups] == ["g"]
    assert running.groups is folded
