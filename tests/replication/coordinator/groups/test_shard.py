"""A group shard's dispatch: administrators' requests, other kinds of groups, refusals, giving up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.shard import GroupShard, group_shard
from stratalog.replication.coordinator.groups.table import CONSUMER, DecisionBuilder, GroupTable, TimerKey
from stratalog.replication.coordinator.shard.shard import CoordinatorRecord, ShardPlace
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import CLUSTER_WIDE, ConfigRecord, PartitionRecord, of_broker
from stratalog.replication.requests.groups import (
    DeleteGroupsRequest,
    DescribedGroup,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListedGroup,
    ListGroupsRequest,
    MemberIdentity,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from stratalog.replication.requests.messages import error_response
from stratalog.storage.clock import RandomIds
from stratalog.storage.errors import (
    CoordinatorLoadInProgressError,
    InvalidRequestError,
    NotCoordinatorError,
    UnknownMemberIdError,
)
from stratalog.storage.records import TopicPartition
from tests.replication.group_coordinator import (
    NO_DELAY,
    START_MS,
    Coordinator,
    CountingIds,
    commit_request,
    error_name,
    join_request,
    protocols,
    sync_request,
)


def described(coordinator: Coordinator, group_id: str = "g") -> DescribedGroup:
    answer = coordinator.answer(DescribeGroupsRequest((group_id,)))
    group: DescribedGroup = answer.groups[0]
    return group


def test_a_stable_group_is_described_with_subscriptions_and_assignments() -> None:
    coordinator = Coordinator()
    joined = coordinator.stable("a", "b", protocols=protocols("range", subscription=b"sub"))
    group = described(coordinator)
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    members = [
        (each.client_id, each.client_host, each.member_metadata, each.member_assignment) for each in group.members
    ]
    assert members == [("a", "/127.0.0.1", b"sub", b"a"), ("b", "/127.0.0.1", b"sub", b"b")]
    assert [each.member_id for each in group.members] == [response.member_id for response in joined.values()]


def test_a_group_that_rebalances_is_described_without_its_protocol() -> None:
    coordinator = Coordinator()
    coordinator.stable("a")
    coordinator.join("b")
    group = described(coordinator)
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("PreparingRebalance", "consumer", "")
    assert [each.member_metadata for each in group.members] == [b"", b""]


def test_a_group_that_is_not_there_is_dead() -> None:
    group = described(Coordinator(), "nobody")
    assert (group.group_state, group.members, error_name(group)) == ("Dead", (), "GROUP_ID_NOT_FOUND")


@pytest.mark.parametrize(
    ("states", "types", "listed"),
    [
        ((), (), {"full", "empty", "simple"}),
        (("stable",), (), {"full"}),
        ((" Empty ", "STABLE"), (), {"full", "empty", "simple"}),
        (("Dead",), (), set()),
        ((), ("CLASSIC",), {"full", "empty", "simple"}),
        ((), ("consumer",), set()),
        (("stable",), ("classic", "share"), {"full"}),
    ],
)
def test_groups_are_listed_by_state_and_type(states: tuple[str, ...], types: tuple[str, ...], listed: set[str]) -> None:
    coordinator = Coordinator()
    coordinator.join("a", group_id="full")
    coordinator.advance(0)
    leader = next(iter(coordinator.group("full").members))
    coordinator.ask(SyncGroupRequest("full", 1, leader))
    coordinator.answer(join_request("b", group_id="empty"))
    coordinator.ask(commit_request({("t", 0): 1}, group_id="simple"))
    answer = coordinator.answer(ListGroupsRequest(states, types))
    assert {each.group_id for each in answer.groups} == listed
    if "full" in listed:
        assert ListedGroup("full", "consumer", "Stable", "classic") in answer.groups


def test_groups_without_members_are_deleted_with_their_offsets() -> None:
    coordinator = Coordinator()
    a = coordinator.stable("a")["a"]
    member = {"generation_id_or_member_epoch": 1, "member_id": a.member_id}
    coordinator.ask(commit_request({("t", 0): 1, ("t", 1): 2}, **member))
    coordinator.commit_in_transaction(5)
    request = DeleteGroupsRequest(("g", "nobody"))
    errors = [error_name(result) for result in coordinator.answer(request).results]
    assert errors == ["NON_EMPTY_GROUP", "GROUP_ID_NOT_FOUND"]
    coordinator.leave(a.member_id)
    assert [error_name(result) for result in coordinator.answer(request).results] == ["NONE", "GROUP_ID_NOT_FOUND"]
    assert (coordinator.all_committed(), coordinator.shard.table.groups) == ({}, {})
    coordinator.end_transaction(7, 0, is_commit=True)
    assert coordinator.all_committed() == {}
    assert coordinator.folded().table.groups == {}


def test_a_request_of_another_coordinator_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="str is no request of groups"):
        Coordinator().ask("what")


# Other kinds of groups


class JoinIn(NamedTuple):
    """A request of the kind of groups below: the only member of the group."""

    group_id: str
    member_id: str


class OtherGroup:
    """As little of a group as a shard needs; a member is a record with key version 3."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.member = ""
        self.group_type = CONSUMER

    @property
    def is_empty(self) -> bool:
        return not self.member

    @property
    def state_name(self) -> str:
        return "Stable" if self.member else "Empty"

    def tombstones(self) -> tuple[CoordinatorRecord, ...]:
        return (CoordinatorRecord(b"\0\3" + self.group_id.encode(), None),)

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id_or_member_epoch: int,
        is_transactional: bool,
        topics: Sequence[OffsetCommitRequestTopic] = (),
    ) -> None:
        if member_id != self.member:
            raise UnknownMemberIdError(member_id)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id not in (None, self.member):
            raise UnknownMemberIdError(str(member_id))

    def validate_offset_delete(self) -> None:
        pass

    def validate_delete(self) -> None:
        pass

    def is_subscribed_to(self, topic: str) -> bool:
        return False

    def retained_from_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, "consumer", self.state_name, self.group_type)

    def described(self) -> DescribedGroup:
        return DescribedGroup(self.group_id, self.state_name)


class OtherGroups:
    """The kind: it also takes heartbeats of the classic protocol."""

    group_type = CONSUMER
    key_versions = frozenset({3})
    timer_kinds = frozenset({"other"})

    def __init__(self, table: GroupTable) -> None:
        self.table = table
        self.expired: list[TimerKey] = []

    @property
    def requests(self) -> Mapping[type, Callable[[Any, int, DecisionBuilder], None]]:
        return {JoinIn: self.join_in, HeartbeatRequest: lambda _, token, decision: decision.answer(token, "beat")}

    def join_in(self, request: JoinIn, token: int, decision: DecisionBuilder) -> None:
        self.table.remove_if_empty_of_other_type(request.group_id, CONSUMER, decision)
        group = self.table.groups.setdefault(request.group_id, OtherGroup(request.group_id))
        if not isinstance(group, OtherGroup):
            raise InvalidRequestError(f"{request.group_id} is {group.group_type}")
        group.member = request.member_id
        decision.records.append(CoordinatorRecord(b"\0\3" + group.group_id.encode(), request.member_id.encode()))
        self.table.timers.schedule(TimerKey("other", group.group_id), decision.now_ms + 5)
        decision.answer(token, "in")

    def replay(self, record: CoordinatorRecord, timestamp_ms: int) -> None:
        group_id = record.key[2:].decode()
        present = self.table.groups.get(group_id)
        if record.value is None:
            if isinstance(present, OtherGroup):
                del self.table.groups[group_id]
        elif not (isinstance(present, OtherGroup) and present.member == record.value.decode()):
            group = self.table.groups[group_id] = OtherGroup(group_id)
            group.member = record.value.decode()

    def loaded(self, decision: DecisionBuilder) -> None:
        pass

    def expire(self, key: TimerKey, decision: DecisionBuilder) -> None:
        self.expired.append(key)

    def unload(self, now_ms: int) -> list[tuple[int, object]]:
        return []


class TwoKinds(Coordinator):
    def folded(self) -> GroupShard:
        shard = GroupShard(self.config, self.ids, [OtherGroups])
        for record, timestamp_ms, _, _ in self.log:
            assert isinstance(record, CoordinatorRecord)
            shard.replay(record, timestamp_ms)
        return shard

    def kinds(self) -> dict[str, str]:
        """Group id -> type, as a fold of the log has it; the same as here."""
        here, folded = (
            {group_id: group.group_type for group_id, group in shard.table.groups.items()}
            for shard in (self.shard, self.folded())
        )
        assert here == folded
        return here


def test_an_empty_group_is_replaced_by_one_of_another_kind_and_keeps_its_offsets() -> None:
    coordinator = TwoKinds(NO_DELAY)
    a = coordinator.stable("a")["a"]
    with pytest.raises(InvalidRequestError):
        coordinator.ask(JoinIn("g", "m"))
    coordinator.commit_offset(4, generation_id_or_member_epoch=1, member_id=a.member_id)
    coordinator.leave(a.member_id)
    assert coordinator.answer(JoinIn("g", "m")) == "in"
    assert coordinator.kinds() == {"g": CONSUMER}
    assert coordinator.all_committed() == {"t-0": 4}
    other = coordinator.shard.table.groups["g"]
    assert isinstance(other, OtherGroup)
    other.member = ""
    coordinator.join("b")
    assert coordinator.kinds() == {"g": "classic"}
    assert coordinator.all_committed() == {"t-0": 4}


def test_requests_to_a_group_of_another_kind() -> None:
    coordinator = TwoKinds(NO_DELAY)
    coordinator.answer(JoinIn("g", "m"))
    assert coordinator.answer(HeartbeatRequest("g", 1, "m")) == "beat"
    assert error_name(coordinator.answer(HeartbeatRequest("h", 1, "m"))) == "UNKNOWN_MEMBER_ID"
    assert error_name(coordinator.answer(join_request("a"))) == "INCONSISTENT_GROUP_PROTOCOL"
    assert error_name(coordinator.answer(SyncGroupRequest("g", 1, "m"))) == "UNKNOWN_MEMBER_ID"
    assert coordinator.commit_offset(1, member_id="n") == "UNKNOWN_MEMBER_ID"
    assert coordinator.commit_offset(1, member_id="m", generation_id_or_member_epoch=1) == "NONE"
    fetch = OffsetFetchRequest((OffsetFetchRequestGroup("g", member_id="n"), OffsetFetchRequestGroup("g", None, "m")))
    assert [error_name(group) for group in coordinator.answer(fetch).groups] == ["UNKNOWN_MEMBER_ID", "NONE"]
    listed = coordinator.answer(ListGroupsRequest(types_filter=("Consumer",))).groups
    assert [(each.group_id, each.group_type) for each in listed] == [("g", "consumer")]


def test_timers_go_to_the_kind_whose_they_are() -> None:
    coordinator = TwoKinds(NO_DELAY)
    coordinator.answer(JoinIn("g", "m"))
    coordinator.advance(5)
    kind = next(each for each in coordinator.shard._kinds if isinstance(each, OtherGroups))
    assert kind.expired == [TimerKey("other", "g")]


def test_records_of_a_kind_that_is_not_known_are_passed_over() -> None:
    shard = GroupShard(NO_DELAY, CountingIds())
    shard.replay(CoordinatorRecord(b"\0\x08what", b"ever"), START_MS)
    assert shard.table.groups == {}


# Errors in the runtime's place


def test_who_waits_when_a_shard_is_given_up() -> None:
    coordinator = Coordinator()
    waiting = coordinator.join("a")
    coordinator.join("b", group_id="h")
    coordinator.advance(0)
    h = coordinator.group("h")
    syncing = coordinator.join("c", group_id="h")
    error = NotCoordinatorError("moved")
    answers = dict(coordinator.shard.unload(error))
    assert answers.keys() == {syncing}
    assert (answers[syncing].error, answers[syncing].member_id) == (error, list(h.members)[1])
    assert waiting not in answers
    assert error_name(coordinator.answer(sync_request(coordinator.answered[waiting]))) == "COORDINATOR_NOT_AVAILABLE"


@pytest.mark.parametrize(
    "request_",
    [
        JoinGroupRequest("g", 10_000, member_id="m"),
        SyncGroupRequest("g", 1, "m"),
        HeartbeatRequest("g", 1, "m"),
        LeaveGroupRequest("g", (MemberIdentity("m"),)),
        commit_request({("t", 0): 1}),
        TxnOffsetCommitRequest("x", "g", 1, 0, commit_request({("t", 0): 1}).topics),
        OffsetFetchRequest((OffsetFetchRequestGroup("g"),)),
        OffsetDeleteRequest("g", ()),
        DescribeGroupsRequest(("g",)),
        ListGroupsRequest(),
        DeleteGroupsRequest(("g",)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_every_request_has_a_response_for_an_error(request_: object) -> None:
    found = str(error_response(request_, NotCoordinatorError("moved")))
    assert "NotCoordinatorError('moved')" in found
    assert type(error_response(request_, NotCoordinatorError("moved"))).__name__ == (
        type(request_).__name__.replace("Request", "Response")
    )


def test_heartbeats_are_content_while_a_coordinator_loads() -> None:
    loading = CoordinatorLoadInProgressError("loading")
    assert error_response(HeartbeatRequest("g", 1, "m"), loading).error is None
    with pytest.raises(InvalidRequestError):
        error_response("what", loading)


def test_a_record_may_be_as_large_as_the_leader_has_it_for_itself() -> None:
    named = TopicPartition("__consumer_offsets", 0)
    image = ClusterImage()
    image = image.fold(PartitionRecord(named.topic, 0, (1, 2), 1, 0, (1, 2), 0, 1))
    image = image.fold(ConfigRecord(CLUSTER_WIDE, "message.max.bytes", "9000"))
    table = group_shard(ShardPlace(named, 0, BrokerConfig(), RandomIds(), lambda: image, lambda: None)).table
    assert table.record_bytes_max() == 9_000
    image = image.fold(ConfigRecord(of_broker(1), "message.max.bytes", "500"))
    image = image.fold(ConfigRecord(of_broker(2), "message.max.bytes", "100"))
    assert table.record_bytes_max() == 500
