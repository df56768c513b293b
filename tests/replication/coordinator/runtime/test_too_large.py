"""What a member may choose, and what does not fit into its log: it is refused, and no other group loses the shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stratalog.replication.requests.consumer_groups import ConsumerGroupHeartbeatRequest
from stratalog.replication.requests.groups import (
    DeleteGroupsRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.replication.coordinator.runtime.test_classic_groups import Groups
from tests.replication.group_coordinator import error_name, join_request, sync_request

MIB = 1 << 20
WIDE = "\u4e00"
"""A character of three bytes."""
LONG = "n" * 4_000
MEMBERS = 100
FAR = 1_000_000
"""An offset that the follower reports: it has everything."""
PARTS = ("topics", "partitions", "results", "members")


def commit(count: int, note: str = "", first: int = 0, group: str = "g") -> OffsetCommitRequest:
    partitions = tuple(OffsetCommitRequestPartition(first + each, 5, committed_metadata=note) for each in range(count))
    return OffsetCommitRequest(group, (OffsetCommitRequestTopic("t", partitions),))


def join(member_id: str, *names: str, group: str = "g") -> ConsumerGroupHeartbeatRequest:
    """A member of the modern protocol."""
    return ConsumerGroupHeartbeatRequest(
        group, member_id, member_epoch=0, rebalance_timeout_ms=1_000, subscribed_topic_names=names, topic_partitions=()
    )


def errors(answer: Any) -> set[str]:
    """The names of the errors of an answer and its parts."""
    if isinstance(answer, str):
        return {answer}
    parts = [part for name in PARTS for part in getattr(answer, name, ())]
    own = {error_name(answer)} if hasattr(answer, "error") else set()
    return own.union(*map(errors, parts)) - {"NONE"}


def asked(running: Groups, request: object) -> set[str]:
    """The names of the errors in what is answered."""
    running.ask(request)
    running.settle()
    running.follow(FAR)
    answers = running.taken()
    assert answers
    return set[str]().union(*map(errors, answers))


def test_notes_of_wide_characters_are_counted_in_bytes() -> None:
    running = Groups()
    before = running.groups
    assert asked(running, commit(100, WIDE * 4_096)) == {"UNKNOWN_SERVER_ERROR"}
    assert asked(running, commit(1, WIDE * 4_096)) == set()
    assert running.groups is before


def test_names_of_wide_characters_are_counted_in_bytes() -> None:
    running = Groups()
    before = running.groups
    names = [f"{each}{WIDE * 200}" for each in range(2_000)]
    assert asked(running, join("m", *names)) == {"UNKNOWN_SERVER_ERROR"}
    assert asked(running, join("m", *names[:100])) == set()
    assert running.groups is before


def delete_group() -> object:
    return DeleteGroupsRequest(("g" * 200,))


def delete_offsets() -> object:
    partitions = tuple(OffsetDeleteRequestPartition(each) for each in range(6_000))
    return OffsetDeleteRequest("g" * 200, (OffsetDeleteRequestTopic("t", partitions),))


@pytest.mark.parametrize("deletion", [delete_group, delete_offsets])
def test_more_offsets_than_a_batch_holds_are_deleted(deletion: Callable[[], object]) -> None:
    running = Groups()
    before = running.groups
    for first in range(0, 6_000, 1_000):
        assert asked(running, commit(1_000, first=first, group="g" * 200)) == set()
    assert asked(running, deletion()) == set()
    assert (running.groups is before, before.offsets.total) == (True, 0)


def test_members_whose_sessions_end_together_are_removed_in_pieces() -> None:
    """Their tombstones have more bytes than a batch. A shard that is lost by them would begin their sessions again, and
    be lost again."""
    running = Groups()
    before = running.groups
    for number in range(MEMBERS):
        assert asked(running, join(f"{number}-{LONG}", "t")) == set()
    running.clock.now_ms += 60_000
    for _ in range(20):
        running.settle()
        running.follow(FAR)
    assert running.groups is before
    assert running.groups.table.groups["g"].is_empty


def test_more_members_than_fit_into_a_batch_do_not_leave_at_once() -> None:
    running = Groups()
    before = running.groups
    members = tuple(MemberIdentity(f"{number}-{LONG}") for number in range(MEMBERS))
    for each in members:
        assert asked(running, join(each.member_id, "t")) == set()
    assert asked(running, LeaveGroupRequest("g", members)) == {"UNKNOWN_SERVER_ERROR"}
    assert asked(running, LeaveGroupRequest("g", members[:10])) == set()
    assert running.groups is before


def static_join(size_bytes: int) -> object:
    """A static member with a subscription of that size, and another protocol with an empty one."""
    protocols = (JoinGroupRequestProtocol("range", bytes(size_bytes)), JoinGroupRequestProtocol("other"))
    return join_request("a", group_instance_id="i", protocols=protocols)


def test_a_static_member_does_not_return_with_more_than_fits_into_its_groups_record() -> None:
    running = Groups()
    before = running.groups
    running.ask(static_join(10))
    for _ in range(2):
        running.clock.now_ms += 3_000
        running.settle()
        running.follow(FAR)
    [joined] = running.taken()
    assert isinstance(joined, JoinGroupResponse)
    assert asked(running, sync_request(joined, {joined.member_id: b"mine"})) == set()
    assert asked(running, static_join(MIB - 5_000)) == {"UNKNOWN_SERVER_ERROR"}
    assert asked(running, static_join(MIB // 2)) == set()
    assert running.groups is before


def test_names_of_protocols_are_kept_for_members_alone() -> None:
    running = Groups()
    joined = running.stable()
    group = running.groups.table.groups["g"]
    for number in range(3):
        protocols = (JoinGroupRequestProtocol("range"), JoinGroupRequestProtocol(f"p-{number}"))
        running.ask(join_request("a", member_id=joined.member_id, protocols=protocols))
        running.settle()
    assert set(group.supported_protocols) == {"range", "p-2"}


def test_a_member_with_very_many_protocols_is_refused() -> None:
    running = Groups()
    protocols = tuple(JoinGroupRequestProtocol(f"p-{number}") for number in range(50_000))
    assert asked(running, join_request("a", protocols=protocols)) == {"GROUP_MAX_SIZE_REACHED"}
