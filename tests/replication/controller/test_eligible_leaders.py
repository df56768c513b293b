"""Eligible leader replicas (KIP-966): who is one, after whatever changes the ISR, and in the records."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stratalog.replication.controller.brokers import (
    FoundRoot,
    IsrChange,
    alter_partition,
    fence_brokers,
    leave_isr,
    online_partitions,
    register_broker,
    report_offline,
    shut_down_broker,
)
from stratalog.replication.controller.election.eligible_leaders import with_eligible_leaders
from stratalog.replication.follower.repair import may_repair
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord, record_from_json, record_to_json
from stratalog.storage.files.damage import Damage
from stratalog.storage.records import TopicPartition
from tests.replication.images import TOPIC, brief, broker_epochs_of, commit, image_of, offline, partition, state

REPLICAS = (1, 2, 3)
P0 = TopicPartition(TOPIC, 0)


def eligible(image: ClusterImage) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`(elr, last_known_elr)`"""
    return state(image).elr, state(image).last_known_elr


CHANGES = [
    # isr, elr, last known -> isr, lost, min isr -> elr, last known
    pytest.param(((1, 2, 3), (), ()), (1, 2), (), 2, ((), ()), id="large enough: who leaves may miss what comes"),
    pytest.param(((1, 2), (), ()), (1,), (), 2, ((2,), ()), id="too small from here on: who leaves has all of it"),
    pytest.param(((1, 2, 3), (), ()), (1,), (), 2, ((2, 3), ()), id="two at once"),
    pytest.param(((1, 2, 3), (), ()), (1, 2), (), 3, ((3,), ()), id="two are too few for three"),
    pytest.param(((1, 2), (3,), ()), (1,), (), 3, ((3, 2), ()), id="one more"),
    pytest.param(((1,), (2, 3), ()), (1, 2), (), 2, ((), ()), id="large enough again"),
    pytest.param(((1,), (2, 3), ()), (1, 2), (), 3, ((3,), ()), id="one joins, it is still too small"),
    pytest.param(((1,), (2, 3), ()), (2,), (), 2, ((3, 1), ()), id="the ISR moves to an eligible one"),
    pytest.param(((1,), (2, 3), ()), (1,), (2,), 2, ((3,), (2,)), id="one restarts uncleanly"),
    pytest.param(((1,), (3,), (2,)), (1,), (3,), 2, ((), (2, 3)), id="and another one"),
    pytest.param(((1,), (3,), (2,)), (2,), (), 2, ((3, 1), ()), id="who is in the ISR is neither"),
    pytest.param(((1,), (2,), (3,)), (1,), (), 1, ((), ()), id="one is enough"),
    pytest.param(((1,), (2,), (3,)), (1,), (), 9, ((2,), (3,)), id="never as many as replicas"),
]


@pytest.mark.parametrize(("before", "isr", "lost", "min_isr", "expected"), CHANGES)
def test_who_is_eligible_follows_from_the_isr(
    before: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    isr: tuple[int, ...],
    lost: tuple[int, ...],
    min_isr: int,
    expected: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    old = partition(REPLICAS, 1, before[0], elr=before[1], last_known_elr=before[2])
    new = with_eligible_leaders(old, old.changed(isr=isr, bump_leader_epoch=False), min_isr, lost)
    assert (new.elr, new.last_known_elr) == expected
    assert with_eligible_leaders(old, new, min_isr, lost) == new, "decided twice it is the same"


def test_a_partition_of_one_replica_needs_no_second_one() -> None:
    old = replace(partition((1, 2), 1, (1,), elr=(2,)), replicas=(1,))
    assert old.elr == (), "who is not assigned any more is not eligible"
    assert with_eligible_leaders(old, old.changed(bump_leader_epoch=False), 2).elr == ()


def test_a_replica_that_moves_to_another_place_has_another_table() -> None:
    old = partition(REPLICAS, 1, (1,), elr=(2, 3), last_known_elr=())
    new = with_eligible_leaders(old, replace(old.changed(bump_leader_epoch=True), elsewhere=((2, "lake"),)), 2)
    assert (new.elr, new.last_known_elr) == ((3,), ())


def test_an_unclean_election_ends_all_eligibility() -> None:
    old = partition(REPLICAS, 1, (1,), elr=(2,), last_known_elr=(3,))
    new = old.changed(leader=3, isr=(3,), bump_leader_epoch=True, unclean=True)
    assert (new.elr, new.last_known_elr) == ((), ())
    new = with_eligible_leaders(old, new, 2)
    assert (new.elr, new.last_known_elr) == ((), ())


def test_a_change_that_knows_nothing_of_eligibility_ends_it() -> None:
    """Whoever changes an ISR without asking who is eligible loses availability, never records."""
    old = partition(REPLICAS, 1, (1,), elr=(2, 3))
    assert old.changed(isr=(1, 2), bump_leader_epoch=False).elr == ()
    assert old.changed(isr=(1,), bump_leader_epoch=True).elr == (2, 3), "the same ISR"


# -- every decision that changes an ISR ------------------------------------------------------------------


def test_the_last_replica_standing_dies_and_an_eligible_one_leads() -> None:
    image = image_of(REPLICAS, partition(REPLICAS, 1, REPLICAS), min_isr=2)
    commit(image, fence_brokers(image, {3: 13}))
    assert (brief(state(image)), eligible(image)) == ((1, (1, 2), 5), ((), ()))
    commit(image, fence_brokers(image, {2: 12}))
    assert (brief(state(image)), eligible(image)) == ((1, (1,), 5), ((2,), ()))
    commit(image, fence_brokers(image, {1: 11}))
    assert (brief(state(image)), eligible(image)) == ((-1, (1,), 6), ((2,), ()))
    commit(image, register_broker(image, 3, "run-3", "/data/3"))
    assert online_partitions(image).records == (), "broker 3 left while the others committed on"
    commit(image, register_broker(image, 2, "run-2", "/data/2"))
    assert commit(image, online_partitions(image)) == (P0,)
    assert (brief(state(image)), eligible(image)) == ((2, (2,), 7), ((1,), ()))
    assert state(image).unclean == 0


RESTARTS = [
    # leader, isr, elr, fenced, who restarts with another process -> leader, isr, bumps the epoch, elr, last known
    pytest.param(1, (1,), (2,), {2}, 2, (1, (1,), False, (), (2,)), id="an eligible one: it may have lost its log"),
    pytest.param(1, (1,), (2, 3), {2, 3}, 2, (1, (1,), False, (3,), (2,)), id="of two eligible ones"),
    pytest.param(1, (1,), (2,), {3}, 3, (1, (1,), False, (2,), ()), id="one that is neither"),
    pytest.param(1, (1,), (2, 3), set(), 1, (2, (2,), True, (3,), (1,)), id="a leader alone: an eligible one leads"),
    pytest.param(1, (1,), (2, 3), {2}, 1, (3, (3,), True, (2,), (1,)), id="one that is live"),
    pytest.param(1, (1,), (2,), {2}, 1, (-1, (2,), True, (), (1,)), id="none is: it is waited for, as for the ISR"),
    pytest.param(-1, (1,), (2,), {1, 2}, 1, (-1, (2,), True, (), (1,)), id="the same after it was fenced"),
    pytest.param(1, (1,), (), set(), 1, (1, (1,), True, (), ()), id="nobody else: it leads on"),
]


@pytest.mark.parametrize(("leader", "isr", "elr", "fenced", "broker_id", "expected"), RESTARTS)
def test_an_unclean_restart_ends_a_brokers_eligibility(
    leader: int,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    fenced: set[int],
    broker_id: int,
    expected: tuple[int, tuple[int, ...], bool, tuple[int, ...], tuple[int, ...]],
) -> None:
    old = partition(REPLICAS, leader, isr, elr=elr)
    image = image_of(REPLICAS, old, fenced=dict.fromkeys(fenced, False), min_isr=2)
    commit(image, register_broker(image, broker_id, "another", f"/data/{broker_id}"))
    now = state(image)
    assert (now.leader, now.isr, now.leader_epoch > old.leader_epoch, now.elr, now.last_known_elr) == expected


@pytest.mark.parametrize(("incarnation", "clean"), [("run-2", False), ("again", True)])
def test_who_was_only_fenced_or_stopped_cleanly_stays_eligible(incarnation: str, clean: bool) -> None:
    old = partition(REPLICAS, 1, (1,), elr=(2,))
    image = image_of(REPLICAS, old, fenced={2: clean}, min_isr=2)
    commit(image, register_broker(image, 2, incarnation, "/data/2", found=FoundRoot(12)))
    assert state(image) == old


def test_a_leaders_own_isr_changes_say_who_is_eligible() -> None:
    image = image_of(REPLICAS, partition(REPLICAS, 1, (1, 2)), min_isr=2)

    def change(*isr: int) -> PartitionRecord:
        now = state(image)
        asked = IsrChange(image.identified(P0), now.leader_epoch, now.partition_epoch, isr, broker_epochs_of(image))
        (answer,) = commit(image, alter_partition(image, 1, 11, [asked]))
        assert answer == state(image), "the leader goes on with what is committed"
        return state(image)

    assert change(1).elr == (2,)
    assert change(1, 3).elr == ()


def test_a_controlled_shutdown_leaves_eligible_replicas_behind_and_the_leadership_to_one() -> None:
    image = image_of(REPLICAS, partition(REPLICAS, 1, (1, 2)), min_isr=2)
    assert commit(image, shut_down_broker(image, 2, 12)) == ()
    assert (brief(state(image)), eligible(image)) == ((1, (1,), 5), ((2,), ()))
    commit(image, register_broker(image, 2, "again", "/data/2", found=FoundRoot(12)))
    assert commit(image, shut_down_broker(image, 1, 11)) == ()
    assert (brief(state(image)), eligible(image)) == ((2, (2,), 6), ((1,), ()))


def test_a_damaged_table_ends_eligibility() -> None:
    image = image_of(REPLICAS, partition(REPLICAS, 1, (1,), elr=(2, 3)), min_isr=2)
    assert commit(image, leave_isr(image, 2, 12, image.identified(P0), ends_epoch=False)) == 6
    assert eligible(image) == ((3,), (2,))
    assert leave_isr(image, 2, 12, image.identified(P0), ends_epoch=False).records == ()
    assert commit(image, report_offline(image, 1, 11, offline(image, P0))) == (P0,)
    assert (brief(state(image)), eligible(image)) == ((3, (3,), 7), ((), (2, 1)))


@pytest.mark.parametrize(("isr", "elr", "may"), [((1,), (2,), False), ((1, 2), (), False), ((1,), (3,), True)])
def test_an_eligible_replica_does_not_heal_before_it_has_withdrawn(
    isr: tuple[int, ...], elr: tuple[int, ...], may: bool
) -> None:
    """To heal is to truncate, and it may be elected meanwhile."""
    assert may_repair(Damage("torn", leader_epoch=4), partition(REPLICAS, 1, isr, elr=elr), 2) is may


# -- records ---------------------------------------------------------------------------------------------


def test_a_record_without_the_fields_is_read_and_written_as_before() -> None:
    record = partition((1, 2), 1, (1, 2))
    value = record_to_json(record)[1]
    assert set(json.loads(value)) == {
        "type", "topic", "partition", "replicas", "leader", "leader_epoch", "isr", "partition_epoch",
        "controller_epoch", "adding", "removing", "unclean",
    }  # fmt: skip
    assert record_from_json(value) == record


def test_a_record_with_the_fields_comes_back_as_it_was() -> None:
    record = partition(REPLICAS, 1, (1,), elr=(2,), last_known_elr=(3,))
    assert record_from_json(record_to_json(record)[1]) == record
    assert json.loads(record_to_json(record)[1])["elr"] == [2]
