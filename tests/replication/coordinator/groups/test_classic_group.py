"""A classic group by itself: its states, its votes, its record."""

from __future__ import annotations

import pytest

from stratalog.replication.coordinator.groups.classic.group import (
    VALID_PREVIOUS_STATES,
    ClassicGroup,
    ClassicMember,
    GroupState,
)
from stratalog.replication.coordinator.groups.records import decode_group_metadata
from stratalog.replication.requests.groups import JoinGroupRequestProtocol
from stratalog.storage.errors import CoordinatorNotAvailableError, GroupIdNotFoundError, IllegalStateError

S = GroupState
ALLOWED = {
    (S.PREPARING_REBALANCE, S.EMPTY),
    (S.EMPTY, S.PREPARING_REBALANCE),
    (S.STABLE, S.PREPARING_REBALANCE),
    (S.COMPLETING_REBALANCE, S.PREPARING_REBALANCE),
    (S.PREPARING_REBALANCE, S.COMPLETING_REBALANCE),
    (S.COMPLETING_REBALANCE, S.STABLE),
} | {(state, S.DEAD) for state in S}


def member(name: str, favourites: str = "x", instance_id: str | None = None) -> ClassicMember:
    protocols = tuple(JoinGroupRequestProtocol(each, f"{name}-{each}".encode()) for each in favourites)
    return ClassicMember(name, instance_id, "client", "/host", 60_000, 10_000, "consumer", protocols)


def group_of(*members: ClassicMember) -> ClassicGroup:
    group = ClassicGroup("g", 1)
    for each in members:
        group.add(each)
    return group


@pytest.mark.parametrize("source", S)
@pytest.mark.parametrize("target", S)
def test_only_the_legal_transitions_are_made(source: GroupState, target: GroupState) -> None:
    group = ClassicGroup("g", 1)
    group.state = source
    assert (source in VALID_PREVIOUS_STATES[target]) == ((source, target) in ALLOWED)
    if (source, target) in ALLOWED:
        group.transition_to(target, 5)
        assert (group.state, group.previous_state, group.state_timestamp_ms) == (target, source, 5)
    else:
        with pytest.raises(IllegalStateError, match=f"moving to {target.value} state. Instead it is in {source.value}"):
            group.transition_to(target, 5)
        assert group.state is source


@pytest.mark.parametrize(
    ("favourites", "selected"),
    [
        (["x"], "x"),
        (["xy", "yx", "yzx"], "y"),
        (["xy", "yx"], "x"),
        (["ba", "ab"], "a"),
        (["zyx", "yzx", "xz"], "z"),
        (["xyz", "zyx", "zx"], "z"),
    ],
)
def test_the_protocol_with_most_votes_wins_ties_as_in_a_hash_map(favourites: list[str], selected: str) -> None:
    group = group_of(*(member(str(number), each) for number, each in enumerate(favourites)))
    assert group.select_protocol() == selected


def test_a_group_without_a_protocol_in_common_is_a_defect() -> None:
    with pytest.raises(IllegalStateError, match="2 members have no protocol in common"):
        group_of(member("a", "x"), member("b", "y")).select_protocol()
    with pytest.raises(IllegalStateError, match="member a does not support protocol z"):
        member("a").metadata("z")


def test_the_first_leads_and_after_it_the_next() -> None:
    group = group_of(member("a"), member("b"), member("c"))
    assert group.leader == "a"
    group.remove("a")
    assert group.leader == "b"
    group.awaiting_join["c"] = 1
    assert group.elect_joined_leader()
    assert group.leader == "c"
    for name in "bc":
        group.remove(name)
    assert (group.leader, group.elect_joined_leader()) == (None, False)


def test_what_the_record_states_is_what_is_folded() -> None:
    group = group_of(member("a", "xy"), member("b", "yx", instance_id="i"))
    group.transition_to(S.PREPARING_REBALANCE, 2)
    group.begin_generation(3)
    group.members["a"].assignment = b"A"
    group.transition_to(S.STABLE, 4)
    record = group.state_record()
    assert record.value is not None
    folded = ClassicGroup.folded("g", record.value)
    assert folded.metadata_value() == group.metadata_value() == decode_group_metadata(record.value)
    assert (folded.state, folded.last_value, folded.static_members) == (S.STABLE, record.value, {"i": "b"})
    assert (folded.leader, folded.generation_id, folded.protocol_name) == ("a", 1, "x")
    assert folded.supports_protocols("consumer", [JoinGroupRequestProtocol("x")])


def test_a_group_that_was_just_made_states_that_it_is_empty() -> None:
    group = group_of(member("a"))
    record = group.creation_record()
    assert record.value is not None
    folded = ClassicGroup.folded("g", record.value)
    assert (folded.state, folded.members, folded.protocol_type, folded.state_timestamp_ms) == (S.EMPTY, {}, None, 1)


def test_a_dead_group_sends_members_to_look_for_the_coordinator() -> None:
    group = group_of(member("a"))
    group.transition_to(S.DEAD, 9)
    with pytest.raises(CoordinatorNotAvailableError):
        group.validate_offset_commit("a", None, 0, False)
    with pytest.raises(CoordinatorNotAvailableError):
        group.validate_alive()
    for validate in (group.validate_delete, group.validate_offset_delete):
        with pytest.raises(GroupIdNotFoundError):
            validate()
    with pytest.raises(GroupIdNotFoundError):
        group.validate_offset_fetch(None, -1)


@pytest.mark.parametrize(
    ("state", "protocol_type", "topics", "since_ms"),
    [
        (S.EMPTY, None, None, 100),
        (S.STABLE, None, None, 100),
        (S.EMPTY, "consumer", frozenset(), 500),
        (S.EMPTY, "connect", None, 500),
        (S.STABLE, "consumer", frozenset("t"), 100),
        (S.STABLE, "consumer", None, None),
        (S.STABLE, "connect", None, None),
        (S.PREPARING_REBALANCE, "consumer", frozenset("t"), None),
        (S.COMPLETING_REBALANCE, "consumer", frozenset("t"), None),
    ],
)
def test_since_when_the_retention_of_an_offset_counts(
    state: GroupState, protocol_type: str | None, topics: frozenset[str] | None, since_ms: int | None
) -> None:
    """KIP-211, of an offset committed at 100 in a group whose state is from 500."""
    group = ClassicGroup("g", 500)
    group.state, group.protocol_type, group.subscribed_topics = state, protocol_type, topics
    assert group.retained_from_ms(100) == since_ms
    group.state_timestamp_ms = None
    assert group.retained_from_ms(100) == (100 if since_ms == 500 else since_ms)
