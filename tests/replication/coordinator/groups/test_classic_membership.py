"""Who gets into a classic group and who may speak in its name: ids, static members, limits, Kafka's error each."""

from __future__ import annotations

from typing import Any

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.classic.group import GroupState
from stratalog.replication.requests.groups import (
    HeartbeatRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from tests.replication.group_coordinator import (
    NO_DELAY,
    Coordinator,
    error_name,
    is_member_id,
    join_request,
    protocols,
    sync_request,
)


def static(coordinator: Coordinator, *names: str, **changes: Any) -> dict[str, JoinGroupResponse]:
    """A stable group of static members, each with its name as instance id and as assignment."""
    tokens = {name: coordinator.ask(join_request(name, group_instance_id=name, **changes)) for name in names}
    coordinator.advance(0)
    joined = {name: coordinator.answered[token] for name, token in tokens.items()}
    coordinator.sync_all(joined)
    return joined


# Member ids (KIP-394)


def test_a_member_is_told_its_id_before_it_may_join() -> None:
    coordinator = Coordinator()
    first = coordinator.answer(join_request("c"))
    assert (error_name(first), is_member_id(first.member_id, "c")) == ("MEMBER_ID_REQUIRED", True)
    assert (coordinator.group().state, coordinator.group().members) == (GroupState.EMPTY, {})
    coordinator.ask(join_request("c", member_id=first.member_id))
    assert list(coordinator.group().members) == [first.member_id]


def test_a_client_of_an_older_version_joins_at_once() -> None:
    coordinator = Coordinator()
    token = coordinator.ask(join_request("c", requires_known_member_id=False, rebalance_timeout_ms=-1))
    coordinator.advance(0)
    assert coordinator.answered[token].generation_id == 1
    assert coordinator.group().rebalance_timeout_ms == 10_000


def test_an_id_that_nobody_comes_for_is_forgotten() -> None:
    coordinator = Coordinator()
    given = coordinator.answer(join_request("c")).member_id
    coordinator.advance(10_000)
    assert coordinator.group().pending_join == set()
    assert error_name(coordinator.answer(join_request("c", member_id=given))) == "UNKNOWN_MEMBER_ID"


def test_a_rebalance_waits_for_whom_it_gave_an_id() -> None:
    coordinator = Coordinator()
    a = coordinator.stable("a")["a"]
    given = coordinator.answer(join_request("b")).member_id
    again = coordinator.ask(join_request("a", member_id=a.member_id))
    assert again not in coordinator.answered
    coordinator.leave(given)
    assert coordinator.answered[again].generation_id == 2


# Refusals


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, "INVALID_GROUP_ID"),
        ({"session_timeout_ms": 5_999}, "INVALID_SESSION_TIMEOUT"),
        ({"session_timeout_ms": 1_800_001}, "INVALID_SESSION_TIMEOUT"),
        ({"session_timeout_ms": 6_000}, "MEMBER_ID_REQUIRED"),
        ({"session_timeout_ms": 1_800_000}, "MEMBER_ID_REQUIRED"),
        ({"protocols": protocols("sticky")}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocols": ()}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocols": protocols("sticky", "range")}, "MEMBER_ID_REQUIRED"),
        ({"protocol_type": "connect"}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocol_type": ""}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"member_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
        ({"group_id": "other", "member_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
        ({"group_id": "other", "protocols": ()}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"member_id": "nobody", "group_instance_id": "i"}, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_a_join_that_is_refused(changes: dict[str, Any], error: str) -> None:
    coordinator = Coordinator()
    coordinator.stable("a")
    answer = coordinator.answer(join_request("x", **changes))
    assert error_name(answer) == error
    assert (coordinator.group().state, len(coordinator.group().members)) == (GroupState.STABLE, 1)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, "NONE"),
        ({"group_id": ""}, "INVALID_GROUP_ID"),
        ({"group_id": "other"}, "UNKNOWN_MEMBER_ID"),
        ({"member_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
        ({"generation_id": 0}, "ILLEGAL_GENERATION"),
        ({"generation_id": 2}, "ILLEGAL_GENERATION"),
        ({"group_instance_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
        ({"group_instance_id": "b"}, "FENCED_INSTANCE_ID"),
    ],
)
def test_heartbeats_and_syncs_that_are_refused(changes: dict[str, Any], error: str) -> None:
    coordinator = Coordinator()
    joined = static(coordinator, "a", "b")["a"]
    asked = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id} | changes
    assert error_name(coordinator.answer(HeartbeatRequest(**asked))) == error
    assert error_name(coordinator.answer(SyncGroupRequest(**asked))) == error


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"protocol_type": "connect"}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocol_name": "sticky"}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocol_type": None, "protocol_name": None}, "NONE"),
    ],
)
def test_a_sync_under_another_protocol_is_refused(changes: dict[str, Any], error: str) -> None:
    coordinator = Coordinator()
    assert error_name(coordinator.answer(sync_request(coordinator.stable("a")["a"], **changes))) == error


def test_in_an_empty_group_nobody_syncs_or_heartbeats() -> None:
    coordinator = Coordinator()
    a = coordinator.stable("a")["a"]
    coordinator.leave(a.member_id)
    assert error_name(coordinator.answer(sync_request(a))) == "UNKNOWN_MEMBER_ID"
    assert coordinator.heartbeat(a) == "UNKNOWN_MEMBER_ID"


def test_sessions_end_without_heartbeats_and_go_on_with_them() -> None:
    coordinator = Coordinator()
    joined = coordinator.stable("a", "b")
    coordinator.advance(9_999)
    assert coordinator.heartbeat(joined["a"]) == "NONE"
    coordinator.advance(1)
    assert list(coordinator.group().members) == [joined["a"].member_id]
    assert coordinator.group().state is GroupState.PREPARING_REBALANCE


# group.max.size


def test_a_group_has_at_most_group_max_size_members() -> None:
    coordinator = Coordinator(BrokerConfig(group_initial_rebalance_delay_ms=0, group_max_size=2))
    tokens = [coordinator.join(name) for name in "ab"]
    refused = coordinator.answer(join_request("c"))
    assert (error_name(refused), refused.member_id) == ("GROUP_MAX_SIZE_REACHED", "")
    coordinator.advance(0)
    joined = [coordinator.answered[token] for token in tokens]
    assert error_name(coordinator.answer(join_request("c"))) == "GROUP_MAX_SIZE_REACHED"
    assert error_name(coordinator.answer(join_request("a", member_id=joined[0].member_id))) == "NONE"


def test_after_the_limit_was_lowered_the_last_to_come_again_are_out() -> None:
    coordinator = Coordinator()
    joined = coordinator.stable("a", "b", "c")
    coordinator.config = BrokerConfig(group_max_size=2)
    coordinator.crash()
    assert coordinator.group().state is GroupState.PREPARING_REBALANCE
    tokens = {name: coordinator.ask(join_request(name, member_id=joined[name].member_id)) for name in "cab"}
    assert error_name(coordinator.answered[tokens["b"]]) == "GROUP_MAX_SIZE_REACHED"
    coordinator.advance(60_000)
    assert {coordinator.answered[tokens[name]].generation_id for name in "ca"} == {2}


# Static members (KIP-345)


def test_a_static_member_that_comes_back_keeps_its_assignment_without_a_rebalance() -> None:
    coordinator = Coordinator()
    joined = static(coordinator, "a", "b")
    records = len(coordinator.log)
    back = coordinator.answer(join_request("b", group_instance_id="b"))
    assert (back.generation_id, back.members, back.skip_assignment) == (1, (), False)
    assert is_member_id(back.member_id, "b")
    assert back.member_id != joined["b"].member_id
    assert coordinator.group().state is GroupState.STABLE
    assert coordinator.answer(sync_request(back, group_instance_id="b")).assignment == b"b"
    assert len(coordinator.log) == records + 1
    folded = coordinator.folded().table.groups["g"]
    assert folded.static_members["b"] == back.member_id  # type: ignore[attr-defined]


def test_the_old_self_of_a_static_member_is_fenced() -> None:
    coordinator = Coordinator()
    old = static(coordinator, "a", "b")["b"]
    coordinator.ask(join_request("b", group_instance_id="b"))
    assert coordinator.heartbeat(old, group_instance_id="b") == "FENCED_INSTANCE_ID"
    assert error_name(coordinator.answer(sync_request(old, group_instance_id="b"))) == "FENCED_INSTANCE_ID"
    again = join_request("b", group_instance_id="b", member_id=old.member_id)
    assert error_name(coordinator.answer(again)) == "FENCED_INSTANCE_ID"
    assert coordinator.commit_offset(
        1, generation_id_or_member_epoch=1, member_id=old.member_id, group_instance_id="b"
    ) == ("FENCED_INSTANCE_ID")
    left = coordinator.leave(MemberIdentity(old.member_id, "b"))
    assert error_name(left.members[0]) == "FENCED_INSTANCE_ID"
    assert coordinator.heartbeat(old) == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize("supports_skipping", [True, False])
def test_a_static_leader_that_comes_back_does_not_assign_again(supports_skipping: bool) -> None:
    """KIP-814: newer clients are told to skip it; older ones are told that their old self leads."""
    coordinator = Coordinator()
    old = static(coordinator, "a", "b")["a"]
    back = coordinator.answer(join_request("a", group_instance_id="a", supports_skipping_assignment=supports_skipping))
    assert coordinator.group().leader == back.member_id
    if supports_skipping:
        assert (back.leader, back.skip_assignment, len(back.members)) == (back.member_id, True, 2)
    else:
        assert (back.leader, back.skip_assignment, back.members) == (old.member_id, False, ())


def test_a_static_member_that_comes_back_with_another_favourite_begins_a_rebalance() -> None:
    coordinator = Coordinator()
    both = protocols("range", "sticky")
    static(coordinator, "a", "b", protocols=both)
    coordinator.ask(join_request("b", group_instance_id="b", protocols=protocols("sticky")))
    assert coordinator.group().state is GroupState.PREPARING_REBALANCE


def test_a_static_member_that_comes_back_while_the_leader_assigns_begins_a_rebalance() -> None:
    """The leader assigns to the old id."""
    coordinator = Coordinator()
    tokens = [coordinator.ask(join_request(name, group_instance_id=name)) for name in "ab"]
    coordinator.advance(0)
    a, b = (coordinator.answered[token] for token in tokens)
    waiting = coordinator.ask(sync_request(b, group_instance_id="b"))
    back = coordinator.ask(join_request("b", group_instance_id="b"))
    assert error_name(coordinator.answered[waiting]) == "FENCED_INSTANCE_ID"
    assert coordinator.group().state is GroupState.PREPARING_REBALANCE
    again = coordinator.ask(join_request("a", group_instance_id="a", member_id=a.member_id))
    assert [coordinator.answered[token].generation_id for token in (back, again)] == [2, 2]


def test_a_static_member_that_joins_twice_is_fenced_in_its_first_join() -> None:
    coordinator = Coordinator()
    coordinator.stable("x")
    first = coordinator.ask(join_request("a", group_instance_id="a"))
    second = coordinator.ask(join_request("a", group_instance_id="a"))
    fenced = coordinator.answered[first]
    assert (error_name(fenced), second in coordinator.answered) == ("FENCED_INSTANCE_ID", False)
    coordinator.advance(60_000)
    assert coordinator.answered[second].generation_id == 2


def test_static_members_stay_through_a_rebalance_that_they_miss() -> None:
    coordinator = Coordinator()
    joined = static(coordinator, "a", "b", session_timeout_ms=300_000)
    coordinator.join("c", session_timeout_ms=300_000)
    coordinator.ask(
        join_request("a", group_instance_id="a", member_id=joined["a"].member_id, session_timeout_ms=300_000)
    )
    coordinator.advance(60_000)
    assert joined["b"].member_id in coordinator.group().members
    assert coordinator.group().generation_id == 2


# LeaveGroup


def test_each_member_that_leaves_has_an_answer_of_its_own() -> None:
    coordinator = Coordinator()
    joined = static(coordinator, "a", "b", "c")
    answer = coordinator.leave(
        MemberIdentity(joined["a"].member_id),
        MemberIdentity(group_instance_id="b"),
        MemberIdentity(joined["c"].member_id, "b"),
        MemberIdentity("nobody"),
        MemberIdentity(group_instance_id="nobody"),
        MemberIdentity(),
    )
    errors = [error_name(member) for member in answer.members]
    assert errors == ["NONE", "NONE", *["UNKNOWN_MEMBER_ID"] * 4]
    assert list(coordinator.group().members) == [joined["c"].member_id]
    assert coordinator.group().state is GroupState.PREPARING_REBALANCE


def test_leaving_a_group_that_is_not_there() -> None:
    coordinator = Coordinator()
    answer = coordinator.leave("m", "n")
    assert [error_name(member) for member in answer.members] == ["UNKNOWN_MEMBER_ID"] * 2
    nameless = coordinator.answer(LeaveGroupRequest("", (MemberIdentity("m"),)))
    assert error_name(nameless) == "INVALID_GROUP_ID"


def test_who_leaves_while_it_waits_is_answered() -> None:
    coordinator = Coordinator()
    joined = coordinator.stable("a", "b")
    waiting = coordinator.ask(join_request("a", member_id=joined["a"].member_id))
    coordinator.leave(joined["a"].member_id)
    assert error_name(coordinator.answered[waiting]) == "UNKNOWN_MEMBER_ID"
    last = coordinator.ask(join_request("b", member_id=joined["b"].member_id))
    assert coordinator.answered[last].leader == joined["b"].member_id


def test_who_leaves_while_it_waits_for_its_assignment_is_answered() -> None:
    coordinator = Coordinator(NO_DELAY)
    tokens = [coordinator.join(name) for name in "ab"]
    coordinator.advance(0)
    b = coordinator.answered[tokens[1]]
    waiting = coordinator.ask(sync_request(b))
    coordinator.leave(b.member_id)
    assert error_name(coordinator.answered[waiting]) == "UNKNOWN_MEMBER_ID"
