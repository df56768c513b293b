"""A disk that was replaced or emptied: its broker is electable nowhere by what the metadata remembers of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.replication.controller.brokers import (
    FoundRoot,
    fence_brokers,
    online_partitions,
    register_broker,
    report_offline,
)
from stratalog.replication.controller.election.leader_election import (
    elect_controlled_shutdown,
    elect_offline,
    elect_preferred,
    elect_reassigned,
)
from stratalog.replication.controller.election.preferred_leaders import ElectionType, elect_leaders
from stratalog.replication.metadata.records import (
    FenceBrokerRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    record_from_json,
    record_to_json,
)
from stratalog.storage.records import TopicPartition
from tests.replication.images import TOPIC, GrowingImage, brief, commit, image_of, offline, partition, state

P0 = TopicPartition(TOPIC, 0)
EPOCH = 5
"""The leader epoch of the image's partitions."""
REPLICAS = (1, 2, 3)
OLD, NEW = "old disk", "new disk"


def stopped(old: PartitionRecord, broker_id: int, *, clean: bool, min_isr: int = 1) -> GrowingImage:
    """Broker `broker_id`, known with its old disk, is down."""
    image = image_of(REPLICAS, old, fenced={broker_id: clean}, min_isr=min_isr)
    known = image.brokers[broker_id]
    brokers = {**image.brokers, broker_id: replace(known, registration=replace(known.registration, directory_id=OLD))}
    return GrowingImage.of(replace(image, brokers=brokers))


def found(epoch: int = -1, disk: str = OLD, held: frozenset[TopicPartition] | None = None) -> FoundRoot:
    return FoundRoot(epoch, disk, held)


MARKS = [
    pytest.param(found(12), True, id="the mark of that stop"),
    pytest.param(found(), False, id="no mark"),
    pytest.param(found(11), False, id="the mark of an earlier life, as on a disk restored from a copy"),
    pytest.param(found(12, NEW), False, id="the mark was copied to another disk"),
]


@pytest.mark.parametrize(("at_start", "stays"), MARKS)
def test_a_clean_stop_counts_only_with_its_mark_on_that_disk(at_start: FoundRoot, stays: bool) -> None:
    old = partition(REPLICAS, 1, (1,), elr=(2,))
    image = stopped(old, 2, clean=True, min_isr=2)
    commit(image, register_broker(image, 2, "again", "/data/2", found=at_start))
    assert state(image).elr == ((2,) if stays else ())
    commit(image, fence_brokers(image, {1: 11}))
    assert state(image).leader == (2 if stays else -1)


LAST_MEMBERS = [
    pytest.param(found(), (1, ()), id="the same disk: an absent table is one that never was"),
    pytest.param(found(-1, NEW, frozenset()), (-1, (1,)), id="another disk without the table"),
    pytest.param(found(-1, NEW), (-1, (1,)), id="another disk, not looked at"),
    pytest.param(found(-1, NEW, frozenset([P0])), (1, ()), id="its content was copied to another disk"),
]


@pytest.mark.parametrize(("at_start", "expected"), LAST_MEMBERS)
def test_the_last_member_with_another_disk_does_not_lead(
    at_start: FoundRoot, expected: tuple[int, tuple[int, ...]]
) -> None:
    image = stopped(partition(REPLICAS, -1, (1,)), 1, clean=False)
    commit(image, register_broker(image, 1, "again", "/data/1", found=at_start))
    commit(image, online_partitions(image))
    assert (state(image).leader, state(image).lost) == expected
    assert state(image).isr == (1,)
    assert state(image).unclean == 0


def test_where_others_are_in_sync_the_broker_with_another_disk_is_only_out_of_sync() -> None:
    image = stopped(partition(REPLICAS, 2, (1, 2)), 1, clean=False)
    commit(image, register_broker(image, 1, "again", "/data/1", found=found(-1, NEW, frozenset())))
    assert (brief(state(image)), state(image).lost) == ((2, (2,), 5), ())


def lost_image() -> GrowingImage:
    image = stopped(partition(REPLICAS, -1, (1,)), 1, clean=False)
    commit(image, register_broker(image, 1, "wiped", "/data/1", found=found(-1, NEW, frozenset())))
    assert state(image).lost == (1,)
    return image


def test_a_lost_log_is_found_again_with_its_old_disk_only() -> None:
    image = lost_image()
    commit(image, register_broker(image, 1, "still", "/data/1", found=found(-1, NEW, frozenset())))
    commit(image, online_partitions(image))
    assert (state(image).leader, state(image).lost) == (-1, (1,))
    commit(image, register_broker(image, 1, "put back", "/data/1", found=found(-1, OLD, frozenset([P0]))))
    commit(image, online_partitions(image))
    assert (state(image).leader, state(image).lost, state(image).unclean) == (1, (), 0)


def test_an_unclean_election_prefers_a_replica_that_has_a_log() -> None:
    image = lost_image()
    assert commit(image, elect_leaders(image, ElectionType.UNCLEAN, [P0])) == {P0: None}
    assert (state(image).leader, state(image).isr, state(image).lost, state(image).unclean) == (2, (2,), (), 1)


def test_an_unclean_election_lets_an_empty_replica_lead_when_there_is_no_other() -> None:
    image = lost_image()
    commit(image, fence_brokers(image, {2: 12, 3: 13}))
    commit(image, elect_leaders(image, ElectionType.UNCLEAN, [P0]))
    assert (state(image).leader, state(image).lost, state(image).unclean) == (1, (), 1)


def test_no_clean_selector_elects_a_lost_replica() -> None:
    lost = replace(partition(REPLICAS, -1, (1,)), lost=(1,))
    assert elect_offline(lost, REPLICAS, unclean=False) is None
    assert elect_preferred(lost, REPLICAS) is None
    assert elect_reassigned(lost, REPLICAS, (1, 2)) is None
    assert elect_controlled_shutdown(lost, REPLICAS, {2}) is None


# -- a table that is gone under a broker that runs -------------------------------------------------------


@pytest.mark.parametrize(
    ("isr", "elr", "fenced", "expected"),
    [
        pytest.param((1, 2), (), {}, (2, (2,), ()), id="another member leads"),
        pytest.param((1,), (3,), {}, (3, (3,), ()), id="an eligible one leads"),
        pytest.param((1,), (3,), {3: False}, (-1, (3,), ()), id="an eligible one is waited for"),
        pytest.param((1,), (), {}, (-1, (1,), (1,)), id="nobody leads"),
    ],
)
def test_a_leader_whose_table_is_gone(
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    fenced: dict[int, bool],
    expected: tuple[int, tuple[int, ...], tuple[int, ...]],
) -> None:
    image = image_of(REPLICAS, partition(REPLICAS, 1, isr, elr=elr), fenced=fenced, min_isr=2)
    absent = offline(image, P0, absent=True)
    assert commit(image, report_offline(image, 1, 11, absent)) == (P0,)
    now = state(image)
    assert (now.leader, now.isr, now.lost) == expected
    assert 1 not in now.elr
    assert report_offline(image, 1, 11, absent).records == (), "reported twice it is the same"


@pytest.mark.parametrize("absent", [True, False])
@pytest.mark.parametrize("isr", [(1,), (1, 2)])
def test_a_report_counts_for_the_state_under_which_it_was_judged(isr: tuple[int, ...], absent: bool) -> None:
    """Perhaps the others have left the ISR since, under the same leader epoch: the leader judges again."""
    image = image_of(REPLICAS, partition(REPLICAS, 1, (1, 2, 3)))
    judged = offline(image, P0, absent=absent)
    image = image.fold(state(image).changed(isr=isr, bump_leader_epoch=False))
    assert report_offline(image, 1, 11, judged).records == ()
    again = report_offline(image, 1, 11, offline(image, P0, absent=absent))
    assert bool(again.records) == (absent or len(isr) > 1)


def test_a_report_of_a_deleted_topics_replica_does_not_concern_the_next_one() -> None:
    image = image_of(REPLICAS, partition(REPLICAS, 1, (1, 2)))
    judged = offline(image, P0)
    image = image.fold(TopicRecord(TOPIC, "another id"))
    image = image.fold(partition(REPLICAS, 1, (1, 2)))
    assert report_offline(image, 1, 11, judged).records == ()
    assert commit(image, report_offline(image, 1, 11, offline(image, P0))) == (P0,)


def test_a_leader_without_a_table_waits_for_an_eligible_one_that_may_have_records() -> None:
    image = image_of(REPLICAS, partition(REPLICAS, 1, (1,), elr=(3,)), fenced={3: False}, min_isr=2)
    assert commit(image, report_offline(image, 1, 11, offline(image, P0, absent=True))) == (P0,)
    assert (state(image).leader, state(image).isr, state(image).lost) == (-1, (3,), ())


# -- registration before recovery ------------------------------------------------------------------------


def test_a_broker_that_recovers_is_fenced_and_fences_its_earlier_process() -> None:
    image = image_of(REPLICAS, partition(REPLICAS, 1, (1,)))
    decision = register_broker(image, 1, "next", "/data/1", recovers=True)
    assert decision.records[0] == RegisterBrokerRecord(1, 14, "next", "/data/1")
    assert decision.records[-1] == FenceBrokerRecord(1, 14)
    assert commit(image, decision) == 14
    assert not image.is_live(1)
    assert brief(state(image)) == (-1, (1,), 6)
    assert online_partitions(image).records == ()
    assert commit(image, register_broker(image, 1, "next", "/data/1")) == 15
    commit(image, online_partitions(image))
    assert brief(state(image)) == (1, (1,), 7)


def test_a_crash_while_it_recovers_leaves_no_clean_stop() -> None:
    image = image_of(REPLICAS, partition(REPLICAS, 1, (1,)), fenced={1: True})
    commit(image, register_broker(image, 1, "next", "/data/1", recovers=True))
    assert not image.brokers[1].clean_shutdown


# -- the records ---------------------------------------------------------------------------------------------


def test_records_of_earlier_releases_have_no_disk_and_no_lost_log() -> None:
    before = (
        b'{"type":"RegisterBroker","broker_id":1,"broker_epoch":2,"incarnation_id":"i","root":"r","rack":null,'
        b'"endpoint":null}'
    )
    assert record_from_json(before) == RegisterBrokerRecord(1, 2, "i", "r")
    assert record_to_json(RegisterBrokerRecord(1, 2, "i", "r"))[1] == before
    lost = replace(partition(REPLICAS, -1, (1,)), lost=(1,))
    for record in (RegisterBrokerRecord(1, 2, "i", "r", directory_id="d"), lost):
        assert record_from_json(record_to_json(record)[1]) == record
