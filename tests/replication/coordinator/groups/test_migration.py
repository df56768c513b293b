"""A group changes its protocol while it has members, as in a rolling restart with `group.protocol=consumer`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.classic.group import ClassicGroup, GroupState
from stratalog.replication.coordinator.groups.modern.group import ModernGroup
from stratalog.replication.requests.consumer_groups import CLASSIC_MEMBER, CONSUMER_MEMBER
from stratalog.replication.requests.groups import (
    HeartbeatRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from stratalog.storage.errors import StratalogError
from tests.replication.consumer_groups import GROUP, Consumer, partitions_of
from tests.replication.group_coordinator import NO_DELAY, commit_request, error_name
from tests.replication.mixed_groups import ClassicConsumer, MixedCoordinator, joining

Member = ClassicConsumer | Consumer


def config(**changes: Any) -> BrokerConfig:
    return replace(NO_DELAY, group_consumer_assignment_interval_ms=0, **changes)


def mixed(**changes: Any) -> MixedCoordinator:
    return MixedCoordinator(config(**changes))


def modern(coordinator: MixedCoordinator, name: str, instance_id: str | None = None) -> Consumer:
    return Consumer(coordinator, name, ("t",), instance_id)  # type: ignore[arg-type]


def settle(*members: Member, turns: int = 12) -> None:
    """Turns of all, one after the other: at no time has a partition two owners."""
    for _ in range(turns):
        for member in members:
            member.coordinator.advance(0)
            member.settle()
            owned = [partition for each in members for partition in each.owned]
            assert len(owned) == len(set(owned)), [(each.owned) for each in members]


def classic_pair(coordinator: MixedCoordinator, **changes: Any) -> tuple[ClassicConsumer, ClassicConsumer]:
    pair = ClassicConsumer(coordinator, "c1", **changes), ClassicConsumer(coordinator, "c2", **changes)
    settle(*pair)
    assert [len(each.owned) for each in pair] == [2, 2]
    return pair


def names_of(member: ClassicConsumer) -> set[str]:
    return {error.name for error in member.refused}


def kind(coordinator: MixedCoordinator) -> str:
    (listed,) = coordinator.answer(ListGroupsRequest()).groups
    return f"{listed.group_type} {listed.group_state}"


@pytest.mark.parametrize("is_eager", [True, False])
def test_a_rolling_restart_to_the_modern_protocol_and_back(is_eager: bool) -> None:
    coordinator = mixed()
    c1, c2 = classic_pair(coordinator, is_eager=is_eager)
    assert kind(coordinator) == "classic Stable"
    c1.leave()
    settle(c2)
    m1 = modern(coordinator, "m1")
    settle(c2, m1)
    assert kind(coordinator) == "consumer Stable"
    assert (len(c2.owned), len(m1.owned)) == (2, 2)
    assert c2.generation == m1.epoch == coordinator.described().group_epoch
    assert {each.member_id: each.member_type for each in coordinator.described().members} == {
        c2.member_id: CLASSIC_MEMBER,
        "m1": CONSUMER_MEMBER,
    }
    c2.leave()
    m2 = modern(coordinator, "m2")
    settle(m1, m2)
    assert (len(m1.owned), len(m2.owned)) == (2, 2)
    c3 = ClassicConsumer(coordinator, "c3", is_eager=is_eager)
    settle(m1, m2, c3)
    assert m1.owned | m2.owned | c3.owned == coordinator.partitions("t")
    m1.leave()
    settle(m2, c3)
    assert kind(coordinator) == "consumer Stable"
    m2.leave()
    assert kind(coordinator) == "classic PreparingRebalance"
    settle(c3)
    assert (kind(coordinator), c3.owned) == ("classic Stable", coordinator.partitions("t"))


def test_a_generation_becomes_a_group_epoch_and_offsets_stay() -> None:
    coordinator = mixed()
    c1, _ = classic_pair(coordinator)
    committed = commit_request(
        {("t", 0): 7}, group_id=GROUP, member_id=c1.member_id, generation_id_or_member_epoch=c1.generation
    )
    assert error_name(coordinator.answer(committed).topics[0].partitions[0]) == "NONE"
    generation = c1.generation
    coordinator.answer(joining("m1"))
    assert coordinator.described().group_epoch == generation + 1
    assert coordinator.all_committed(GROUP) == {"t-0": 7}
    owners = {each.member_id: each.assignment for each in coordinator.described().members}
    assert partitions_of(owners[c1.member_id].topic_partitions) == c1.owned


def test_members_of_the_classic_protocol_follow_by_heartbeats() -> None:
    coordinator = mixed()
    c1, c2 = classic_pair(coordinator, is_eager=False)
    m1 = modern(coordinator, "m1")
    m1.settle()
    assert (m1.epoch, m1.owned) == (c1.generation + 1, frozenset())
    heartbeat = HeartbeatRequest(GROUP, c1.generation, c1.member_id)
    assert error_name(coordinator.answer(heartbeat)) == "REBALANCE_IN_PROGRESS"
    sync = SyncGroupRequest(GROUP, c1.generation, c1.member_id)
    assert error_name(coordinator.answer(sync)) == "REBALANCE_IN_PROGRESS"
    settle(c1, c2, m1)
    assert sorted(len(each.owned) for each in (c1, c2, m1)) == [1, 1, 2]
    for wrong, changes in (
        ("ILLEGAL_GENERATION", {"generation_id": c1.generation - 1}),
        ("UNKNOWN_MEMBER_ID", {"member_id": "m1", "generation_id": m1.epoch}),
        ("UNKNOWN_MEMBER_ID", {"member_id": "nobody"}),
        ("UNKNOWN_MEMBER_ID", {"group_instance_id": "nobody"}),
    ):
        heartbeat = HeartbeatRequest(GROUP, c1.generation, c1.member_id)
        assert error_name(coordinator.answer(replace(heartbeat, **changes))) == wrong
    for wrong, changes in (
        ("INCONSISTENT_GROUP_PROTOCOL", {"protocol_type": "connect"}),
        ("INCONSISTENT_GROUP_PROTOCOL", {"protocol_name": "sticky"}),
        ("NONE", {}),
    ):
        sync = SyncGroupRequest(GROUP, c1.generation, c1.member_id)
        assert error_name(coordinator.answer(replace(sync, **changes))) == wrong


@pytest.mark.parametrize(
    ("late", "is_owner", "name"),
    [
        (0, True, "NONE"),
        (0, False, "NONE"),
        (-1, True, "NONE"),
        (-1, False, "ILLEGAL_GENERATION"),
        (1, True, "ILLEGAL_GENERATION"),
    ],
)
def test_a_member_of_the_classic_protocol_commits_with_its_generation(late: int, is_owner: bool, name: str) -> None:
    """With an older one what it has had since then, as members of the modern protocol do (KIP-1251)."""
    coordinator = mixed()
    c1, c2 = classic_pair(coordinator, is_eager=False)
    m1 = modern(coordinator, "m1")
    settle(c1, c2, m1)
    partition = min(c1.owned if is_owner else coordinator.partitions("t") - c1.owned)
    generation = {"member_id": c1.member_id, "generation_id_or_member_epoch": c1.generation + late}
    request = commit_request({("t", partition.partition): 7}, group_id=GROUP, **generation)
    assert error_name(coordinator.answer(request).topics[0].partitions[0]) == name


def test_requests_that_wait_are_answered_when_the_group_changes() -> None:
    coordinator = mixed()
    c1, c2 = classic_pair(coordinator)
    c1.joins = True
    c1.settle()
    assert c1.token is not None
    m1 = modern(coordinator, "m1")
    m1.settle()
    c1.settle()
    assert names_of(c1) == {"REBALANCE_IN_PROGRESS"}
    settle(c1, c2, m1)
    assert c1.owned | c2.owned | m1.owned == coordinator.partitions("t")


def test_a_group_in_its_first_rebalance_is_upgraded() -> None:
    coordinator = MixedCoordinator(config(group_initial_rebalance_delay_ms=3_000))
    c1 = ClassicConsumer(coordinator, "c1")
    settle(c1, turns=3)
    assert kind(coordinator) == "classic PreparingRebalance"
    m1 = modern(coordinator, "m1")
    settle(c1, m1)
    assert (len(c1.owned), len(m1.owned)) == (2, 2)
    coordinator.advance(20_000)
    settle(c1, m1)
    assert kind(coordinator) == "consumer Stable"


def test_static_members_change_the_protocol_without_leaving() -> None:
    coordinator = mixed()
    c1, c2 = (ClassicConsumer(coordinator, f"c{at}", instance_id=f"i{at}") for at in (1, 2))
    settle(c1, c2)
    before = {each.instance_id: each.owned for each in (c1, c2)}
    m1 = modern(coordinator, "m1", "i1")
    settle(c2, m1)
    assert m1.owned == before["i1"]
    old = HeartbeatRequest(GROUP, c1.generation, c1.member_id, "i1")
    assert error_name(coordinator.answer(old)) == "FENCED_INSTANCE_ID"
    m2 = modern(coordinator, "m2", "i2")
    settle(m1, m2)
    assert (m1.owned, m2.owned) == (before["i1"], before["i2"])
    c3 = ClassicConsumer(coordinator, "c3", instance_id="i1")
    m1.leave(-2)
    settle(c3, m2)
    assert (kind(coordinator), c3.owned) == ("consumer Stable", before["i1"])
    c4 = ClassicConsumer(coordinator, "c4", instance_id="i2")
    m2.leave(-2)
    settle(c3, c4)
    assert kind(coordinator) == "classic Stable"
    assert {c3.owned, c4.owned} == set(before.values())


def test_a_topic_that_is_not_assigned_yet_is_when_the_group_becomes_classic() -> None:
    """The returning member reads another topic, too: the target is stale, and the classic group rebalances."""
    coordinator = MixedCoordinator(config(), topics={"t": 4, "u": 2})
    c1 = ClassicConsumer(coordinator, "c1")
    m1 = modern(coordinator, "m1", "i1")
    settle(c1, m1)
    m1.leave(-2)
    back = ClassicConsumer(coordinator, "c2", ("t", "u"), instance_id="i1")
    settle(c1, back)
    assert kind(coordinator) == "classic Stable"
    assert c1.owned | back.owned == coordinator.partitions("t", "u")


@pytest.mark.parametrize("compacted", [False, True])
def test_a_coordinator_that_takes_over_knows_the_group(compacted: bool) -> None:
    coordinator = mixed()
    c1, c2 = classic_pair(coordinator)
    m1 = modern(coordinator, "m1")
    settle(c1, c2, m1)
    before = coordinator.shard.table.groups[GROUP]
    coordinator.fail_over(compacted=compacted)
    after = coordinator.shard.table.groups[GROUP]
    assert isinstance(before, ModernGroup)
    assert isinstance(after, ModernGroup)
    assert after.members == before.members
    settle(c1, c2, m1)
    assert (names_of(c1), m1.errors) == ({"REBALANCE_IN_PROGRESS"}, [])
    m1.leave()
    coordinator.fail_over(compacted=compacted)
    classic = coordinator.shard.table.groups[GROUP]
    assert isinstance(classic, ClassicGroup)
    assert (classic.state, sorted(classic.members)) == (GroupState.STABLE, sorted([c1.member_id, c2.member_id]))
    settle(c1, c2)
    assert c1.owned | c2.owned == coordinator.partitions("t")


def test_a_member_that_does_not_join_again_in_time_is_removed() -> None:
    coordinator = mixed()
    c1, c2 = classic_pair(coordinator)
    m1 = modern(coordinator, "m1")
    settle(m1, turns=2)
    told = HeartbeatRequest(GROUP, c1.generation, c1.member_id)
    for _ in range(3):
        assert error_name(coordinator.answer(told)) == "REBALANCE_IN_PROGRESS"
        settle(c2, m1)
        coordinator.advance(20_000)
    assert c1.member_id not in [each.member_id for each in coordinator.described().members]
    settle(c2, m1)
    assert c2.owned | m1.owned == coordinator.partitions("t")


def test_a_member_that_joins_and_does_not_sync_in_time_is_removed() -> None:
    coordinator = mixed()
    c1, m1 = ClassicConsumer(coordinator, "c1"), modern(coordinator, "m1")
    settle(m1)
    settle(c1, turns=2)
    joined = HeartbeatRequest(GROUP, c1.generation, c1.member_id)
    for _ in range(3):
        assert error_name(coordinator.answer(joined)) in ("NONE", "REBALANCE_IN_PROGRESS")
        settle(m1)
        coordinator.advance(20_000)
    assert [each.member_id for each in coordinator.described().members] == ["m1"]


def test_a_member_of_the_classic_protocol_has_its_own_session() -> None:
    coordinator = mixed()
    c1, c2 = classic_pair(coordinator)
    m1 = modern(coordinator, "m1")
    settle(c1, c2, m1)
    coordinator.advance(29_999)
    settle(c2, m1, turns=1)
    coordinator.advance(1)
    assert {each.member_id for each in coordinator.described().members} == {c2.member_id, "m1"}


def test_several_sessions_end_at_once_and_the_others_are_a_classic_group() -> None:
    coordinator = mixed()
    c1, c2 = classic_pair(coordinator)
    m1, m2 = modern(coordinator, "m1"), modern(coordinator, "m2")
    settle(c1, c2, m1, m2)
    coordinator.advance(16_000)
    settle(c1, c2, turns=1)  # their sessions end 30 s from now, those of the others 29 s
    coordinator.leap(29_500)
    settle(c1, c2)
    assert kind(coordinator) == "classic Stable"
    assert c1.owned | c2.owned == coordinator.partitions("t")
    assert names_of(c1) | names_of(c2) == {"REBALANCE_IN_PROGRESS"}
    assert isinstance(coordinator.folded().table.groups[GROUP], ClassicGroup)


def test_a_session_that_ends_with_the_last_modern_one_is_over() -> None:
    coordinator = mixed()
    c1, c2 = classic_pair(coordinator)
    m1 = modern(coordinator, "m1")
    settle(c1, c2, m1)
    coordinator.advance(20_000)
    settle(c2, turns=1)
    gone = c1.member_id
    coordinator.leap(26_000)
    group = coordinator.shard.table.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert gone not in group.members
    settle(c2)
    assert c2.owned == coordinator.partitions("t")


def test_an_administrator_removes_members_of_either_protocol() -> None:
    coordinator = mixed()
    c1 = ClassicConsumer(coordinator, "c1", instance_id="i1")
    m1, m2 = modern(coordinator, "m1", "i2"), modern(coordinator, "m2")
    settle(c1, m1, m2)
    identities = (MemberIdentity("", "i2"), MemberIdentity("", "nobody"), MemberIdentity("other", "i1"))
    answer = coordinator.answer(LeaveGroupRequest(GROUP, identities))
    assert [error_name(each) for each in answer.members] == ["NONE", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"]
    answer = coordinator.answer(LeaveGroupRequest(GROUP, (MemberIdentity("m2"),)))
    assert kind(coordinator) == "classic PreparingRebalance"


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades", "joins"),
    [
        ("bidirectional", True, True, True),
        ("upgrade", True, False, True),
        ("downgrade", False, True, True),
        ("disabled", False, False, False),
    ],
)
def test_the_policy_says_what_may_happen(policy: str, upgrades: bool, downgrades: bool, joins: bool) -> None:
    settings = {"group_consumer_migration_policy": policy}
    coordinator = mixed(**settings)
    classic_pair(coordinator)
    refused = coordinator.answer(joining("m1")).error
    assert (refused is None) is upgrades
    if refused is not None:
        assert "because online upgrade is disabled" in str(refused)
        assert kind(coordinator) == "classic Stable"
    coordinator = mixed(**settings)
    m1, c1 = modern(coordinator, "m1"), ClassicConsumer(coordinator, "c1")
    settle(m1)
    settle(c1, m1, turns=6)
    assert ("INCONSISTENT_GROUP_PROTOCOL" in names_of(c1)) is not joins
    m1.leave()
    settle(c1, turns=1)
    assert (kind(coordinator).split()[0] == "classic") is (downgrades or not joins)


def test_a_group_that_others_lead_or_of_another_type_stays_classic() -> None:
    coordinator = mixed()
    classic_pair(coordinator, user_data=b"mine")
    refused = coordinator.answer(joining("m1")).error
    assert "an unsupported custom assignor" in str(refused)
    assert kind(coordinator) == "classic Stable"
    coordinator = mixed(group_consumer_max_size=1)
    classic_pair(coordinator)
    assert "exceeds the consumer group maximum size" in str(coordinator.answer(joining("m1")).error)
    coordinator = mixed()
    token = coordinator.join("connector", group_id=GROUP, protocol_type="connect")
    coordinator.advance(0)
    assert coordinator.answered[token].error is None
    assert "does not use the consumer embedded protocol" in str(coordinator.answer(joining("m1")).error)
    assert isinstance(coordinator.answer(joining("m1")).error, StratalogError)


def test_a_group_with_too_many_members_for_a_classic_one_stays_modern() -> None:
    coordinator = mixed(group_max_size=1)
    c1, c2 = ClassicConsumer(coordinator, "c1"), ClassicConsumer(coordinator, "c2")
    m1 = modern(coordinator, "m1")
    settle(m1)
    settle(m1, c1, c2)
    m1.leave()
    assert kind(coordinator).startswith("consumer ")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"protocols": ("sticky",)}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocols": ()}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"instance_id": "nobody", "member_id": "c9"}, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_what_a_member_of_the_classic_protocol_is_refused_for(changes: dict[str, Any], name: str) -> None:
    coordinator = mixed()
    c1, m1 = ClassicConsumer(coordinator, "c1"), modern(coordinator, "m1")
    settle(c1, m1)
    stranger = ClassicConsumer(coordinator, "c2", **changes)
    stranger.settle()
    assert names_of(stranger) == {name}
    assert stranger.coordinator.described().group_state in ("Stable", "Reconciling")


def test_members_of_the_classic_protocol_that_are_left_alone_take_what_is_free() -> None:
    """Where the policy forbids the downgrade; new partitions, too, are noticed then."""
    coordinator = mixed(group_consumer_migration_policy="upgrade")
    c1, m1 = ClassicConsumer(coordinator, "c1"), modern(coordinator, "m1")
    settle(c1, m1)
    assert (len(c1.owned), len(m1.owned)) == (2, 2)
    m1.leave()
    settle(c1)
    assert (kind(coordinator), len(c1.owned)) == ("consumer Stable", 4)
    coordinator.add_partitions("t", 2)
    settle(c1)
    assert len(c1.owned) == 6


def test_a_removed_member_of_the_classic_protocol_gives_up_before_it_joins_again() -> None:
    coordinator = mixed()
    c1, m1 = ClassicConsumer(coordinator, "c1", is_eager=False), modern(coordinator, "m1")
    settle(c1, m1)
    c1.joins = True
    coordinator.advance(44_000)
    m1.settle()
    c1.settle()
    assert ("UNKNOWN_MEMBER_ID" in names_of(c1), c1.owned) == (True, frozenset())
    settle(c1, m1)
    assert (len(c1.owned), len(m1.owned)) == (2, 2)


def test_a_cooperative_member_that_has_not_sent_sync_group_still_owns_what_it_had() -> None:
    coordinator = mixed()
    c1, c2 = classic_pair(coordinator, is_eager=False)
    c3, m1 = ClassicConsumer(coordinator, "c3", is_eager=False), modern(coordinator, "m1")
    for member in (c3, c3, c1, c1, c2, c2, c1, c1):
        member.settle()
    assert (kind(coordinator), len(c1.owned), len(c2.owned)) == ("classic Stable", 1, 2)
    settle(m1, c1, c3, c2)
    assert c1.owned | c2.owned | c3.owned | m1.owned == coordinator.partitions("t")


def test_a_coordinator_that_takes_over_before_the_group_has_rebalanced_lets_it() -> None:
    coordinator = mixed()
    c1, c2 = classic_pair(coordinator)
    m1 = modern(coordinator, "m1")
    settle(c1, c2, m1)
    m1.leave()
    coordinator.fail_over()
    settle(c1, c2)
    assert c1.owned | c2.owned == coordinator.partitions("t")


def test_members_leave_an_empty_modern_group_each_with_an_error() -> None:
    coordinator = mixed()
    m1 = modern(coordinator, "m1")
    settle(m1)
    m1.leave()
    answer = coordinator.answer(LeaveGroupRequest(GROUP, (MemberIdentity("m1"), MemberIdentity("", "nobody"))))
    assert (error_name(answer), [error_name(each) for each in answer.members]) == ("NONE", ["UNKNOWN_MEMBER_ID"] * 2)
