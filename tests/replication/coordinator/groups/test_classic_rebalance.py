"""Rebalances of classic groups: what begins one, whom it waits for, who is answered what."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.classic.group import GroupState
from stratalog.wire.consumer_protocol import Subscription, encode_subscription
from tests.replication.group_coordinator import (
    Coordinator,
    error_name,
    is_member_id,
    join_request,
    protocols,
    sync_request,
)


def test_two_members_get_one_generation_and_each_its_assignment() -> None:
    coordinator = Coordinator()
    joined = coordinator.stable("a", "b")
    a, b = joined["a"], joined["b"]
    assert (a.generation_id, b.generation_id, a.protocol_name, a.protocol_type) == (1, 1, "range", "consumer")
    assert a.leader == b.leader == a.member_id
    assert [member.member_id for member in a.members] == [a.member_id, b.member_id]
    assert b.members == ()
    assert coordinator.group().state is GroupState.STABLE
    assert coordinator.answer(sync_request(b)).assignment == b"b"
    assert is_member_id(a.member_id, "a")


def test_a_follower_that_syncs_first_waits_for_the_leader() -> None:
    coordinator = Coordinator()
    tokens = [coordinator.join(name) for name in "ab"]
    coordinator.advance(0)
    a, b = (coordinator.answered[token] for token in tokens)
    waiting = coordinator.ask(sync_request(b))
    assert waiting not in coordinator.answered
    leader = coordinator.answer(sync_request(a, {a.member_id: b"A", b.member_id: b"B"}))
    assert (leader.assignment, coordinator.answered[waiting].assignment) == (b"A", b"B")


def test_a_member_that_the_leader_left_out_gets_nothing() -> None:
    coordinator = Coordinator()
    tokens = [coordinator.join(name) for name in "ab"]
    coordinator.advance(0)
    a, b = (coordinator.answered[token] for token in tokens)
    coordinator.ask(sync_request(a, {a.member_id: b"A", "nobody": b"N"}))
    assert coordinator.answer(sync_request(b)).assignment == b""


# What begins a rebalance


def _joins(coordinator: Coordinator) -> None:
    coordinator.join("c")


def _leaves(coordinator: Coordinator) -> None:
    assert error_name(coordinator.leave(next(iter(coordinator.group().members)))) == "NONE"


def _dies(coordinator: Coordinator) -> None:
    _, *others = coordinator.group().members
    for _ in range(2):
        coordinator.advance(6_000)
        for member_id in others:
            coordinator.heartbeat(coordinator.rejoined[member_id])


def _changes_its_subscription(coordinator: Coordinator) -> None:
    follower = list(coordinator.group().members)[1]
    coordinator.ask(join_request("b", member_id=follower, protocols=protocols("range", subscription=b"other")))


def _leader_joins_again(coordinator: Coordinator) -> None:
    coordinator.ask(join_request("a", member_id=coordinator.group().leader))


@pytest.mark.parametrize(
    "trigger", [_joins, _leaves, _dies, _changes_its_subscription, _leader_joins_again], ids=lambda each: each.__name__
)
def test_what_begins_a_rebalance(trigger: Callable[[Coordinator], None]) -> None:
    """A new member, one that leaves, one whose session ends, other topics, more partitions (the leader joins again)."""
    coordinator = Coordinator()
    joined = coordinator.stable("a", "b", "c")
    coordinator.rejoined = {response.member_id: response for response in joined.values()}  # type: ignore[attr-defined]
    trigger(coordinator)
    assert coordinator.group().state is GroupState.PREPARING_REBALANCE
    alive = [each for each in joined.values() if each.member_id in coordinator.group().members]
    told = {coordinator.heartbeat(each) for each in alive}
    assert told == {"REBALANCE_IN_PROGRESS"}


def test_a_follower_that_joins_again_unchanged_begins_none() -> None:
    coordinator = Coordinator()
    b = coordinator.stable("a", "b")["b"]
    again = coordinator.answer(join_request("b", member_id=b.member_id))
    assert (again.generation_id, again.error, coordinator.group().state) == (1, None, GroupState.STABLE)


def test_a_member_that_does_not_ask_for_its_assignment_is_out() -> None:
    coordinator = Coordinator()
    tokens = [coordinator.join(name, session_timeout_ms=100_000) for name in "ab"]
    coordinator.advance(0)
    a, b = (coordinator.answered[token] for token in tokens)
    coordinator.ask(sync_request(a))
    coordinator.advance(60_000)
    group = coordinator.group()
    assert (group.state, list(group.members)) == (GroupState.PREPARING_REBALANCE, [a.member_id])
    assert coordinator.heartbeat(b) == "UNKNOWN_MEMBER_ID"


def test_a_rebalance_waits_for_all_up_to_the_longest_rebalance_timeout() -> None:
    coordinator = Coordinator()
    joined = coordinator.stable("a", "b", session_timeout_ms=1_000_000)
    slow = coordinator.join("c", rebalance_timeout_ms=90_000, session_timeout_ms=1_000_000)
    b = coordinator.ask(join_request("b", member_id=joined["b"].member_id, session_timeout_ms=1_000_000))
    coordinator.advance(59_999)
    assert not {slow, b} & coordinator.answered.keys()
    coordinator.advance(30_000)
    assert not {slow, b} & coordinator.answered.keys()
    coordinator.advance(1)
    answers = [coordinator.answered[token] for token in (slow, b)]
    assert {answer.generation_id for answer in answers} == {2}
    assert joined["a"].member_id not in coordinator.group().members
    assert answers[0].leader == joined["b"].member_id


def test_a_rebalance_is_over_when_the_last_one_joins() -> None:
    coordinator = Coordinator()
    joined = coordinator.stable("a", "b")
    tokens = [coordinator.join("c")]
    tokens += [coordinator.ask(join_request(name, member_id=joined[name].member_id)) for name in "ab"]
    assert {coordinator.answered[token].generation_id for token in tokens} == {2}


def test_members_that_wait_for_their_assignment_are_sent_back_by_the_next_rebalance() -> None:
    coordinator = Coordinator()
    tokens = [coordinator.join(name) for name in "ab"]
    coordinator.advance(0)
    b = coordinator.answered[tokens[1]]
    waiting = coordinator.ask(sync_request(b))
    coordinator.join("c")
    assert error_name(coordinator.answered[waiting]) == "REBALANCE_IN_PROGRESS"
    assert error_name(coordinator.answer(sync_request(b))) == "REBALANCE_IN_PROGRESS"


def test_an_initial_rebalance_waits_longer_as_members_come() -> None:
    """group.initial.rebalance.delay.ms 3,000: another 3 s after each 3 s in which somebody came, up to the rebalance
    timeout of the first, 10 s: 3 + 3 + 3 + 1."""
    coordinator = Coordinator(BrokerConfig())
    first = coordinator.join("a", rebalance_timeout_ms=10_000)
    for wait_ms in (3_000, 3_000, 3_000, 999):
        coordinator.join("x", rebalance_timeout_ms=10_000)
        assert first not in coordinator.answered
        coordinator.advance(wait_ms)
    assert first not in coordinator.answered
    coordinator.advance(1)
    assert len(coordinator.answered[first].members) == 5


def test_an_initial_rebalance_to_which_nobody_comes_takes_one_delay() -> None:
    coordinator = Coordinator(BrokerConfig())
    first = coordinator.join("a")
    coordinator.advance(2_999)
    assert first not in coordinator.answered
    coordinator.advance(1)
    assert coordinator.answered[first].generation_id == 1


def test_a_group_that_everybody_left_is_empty_and_says_so_in_the_log() -> None:
    coordinator = Coordinator()
    a = coordinator.stable("a")["a"]
    coordinator.leave(a.member_id)
    group, folded = coordinator.group(), coordinator.folded().table.groups["g"]
    assert (group.state, group.generation_id, group.protocol_name) == (GroupState.EMPTY, 2, None)
    assert (folded.state_name, folded.generation_id) == ("Empty", 2)  # type: ignore[attr-defined]


def test_a_new_member_that_waits_too_long_is_out_and_told_so() -> None:
    """Five minutes: it has no id to heartbeat with, and its client may be gone."""
    coordinator = Coordinator()
    coordinator.stable("a", session_timeout_ms=1_800_000, rebalance_timeout_ms=1_000_000)
    waiting = coordinator.join("b")
    coordinator.advance(299_999)
    assert waiting not in coordinator.answered
    coordinator.advance(1)
    assert error_name(coordinator.answered[waiting]) == "UNKNOWN_MEMBER_ID"


def test_a_member_that_waits_keeps_its_session_until_it_is_answered() -> None:
    coordinator = Coordinator()
    joined = coordinator.stable("a", "b", session_timeout_ms=20_000)
    again = coordinator.ask(join_request("a", member_id=joined["a"].member_id, session_timeout_ms=20_000))
    coordinator.advance(19_999)
    coordinator.heartbeat(joined["b"])
    coordinator.advance(10_000)
    assert again not in coordinator.answered
    assert len(coordinator.group().members) == 2
    coordinator.advance(10_000)
    answer = coordinator.answered[again]
    assert (answer.generation_id, [member.member_id for member in answer.members]) == (2, [joined["a"].member_id])


def test_only_static_members_are_left_and_none_comes_the_group_waits_for_their_sessions() -> None:
    coordinator = Coordinator()
    timeouts = {"rebalance_timeout_ms": 1_000, "session_timeout_ms": 10_000}
    static = {name: coordinator.ask(join_request(name, group_instance_id=name, **timeouts)) for name in "ab"}
    coordinator.advance(0)
    coordinator.sync_all({name: coordinator.answered[token] for name, token in static.items()})
    leaver = coordinator.join("c", **timeouts)
    coordinator.leave(next(each for each in coordinator.group().members if each.startswith("c-")))
    assert error_name(coordinator.answered[leaver]) == "UNKNOWN_MEMBER_ID"
    coordinator.advance(9_999)
    assert (coordinator.group().state, len(coordinator.group().members)) == (GroupState.PREPARING_REBALANCE, 2)
    coordinator.advance(1_001)
    assert coordinator.group().state is GroupState.EMPTY


def test_the_protocol_is_the_one_most_want_of_those_that_all_have() -> None:
    coordinator = Coordinator()
    tokens = [
        coordinator.join(name, protocols=protocols(*names))
        for name, names in {"a": ("x", "y"), "b": ("y", "z", "x"), "c": ("y", "x")}.items()
    ]
    coordinator.advance(0)
    assert {coordinator.answered[token].protocol_name for token in tokens} == {"y"}


def test_the_group_knows_what_its_members_read() -> None:
    coordinator = Coordinator()
    for name, topics in {"a": ("t", "u"), "b": ("u", "v")}.items():
        coordinator.join(name, protocols=protocols("range", subscription=encode_subscription(Subscription(topics))))
    coordinator.advance(0)
    assert coordinator.group().subscribed_topics == {"t", "u", "v"}
    coordinator = Coordinator()
    coordinator.join("a", protocols=protocols("range", subscription=b"\0\3what"))
    coordinator.advance(0)
    assert coordinator.group().subscribed_topics is None
    assert coordinator.group().is_subscribed_to("any")


def test_a_request_sent_again_takes_the_place_of_the_one_that_waits() -> None:
    coordinator = Coordinator()
    joined = coordinator.stable("a", "b")
    request = join_request("a", member_id=joined["a"].member_id)
    first, second = coordinator.ask(request), coordinator.ask(request)
    assert error_name(coordinator.answered[first]) == "REBALANCE_IN_PROGRESS"
    coordinator.ask(join_request("b", member_id=joined["b"].member_id))
    assert coordinator.answered[second].generation_id == 2
    sync = sync_request(coordinator.answered[second], generation_id=2, member_id=joined["b"].member_id)
    first, second = coordinator.ask(sync), coordinator.ask(sync)
    assert error_name(coordinator.answered[first]) == "REBALANCE_IN_PROGRESS"
    assert second not in coordinator.answered


def test_a_member_that_lost_the_answer_to_its_join_gets_it_again() -> None:
    coordinator = Coordinator()
    tokens = [coordinator.join(name) for name in "ab"]
    coordinator.advance(0)
    a, b = (coordinator.answered[token] for token in tokens)
    assert coordinator.answer(join_request("a", member_id=a.member_id)) == a
    assert coordinator.answer(join_request("b", member_id=b.member_id)) == b
    coordinator.ask(join_request("b", member_id=b.member_id, protocols=protocols("range", subscription=b"other")))
    assert coordinator.group().state is GroupState.PREPARING_REBALANCE
