"""Decisions on storage domains, and on partitions whose replicas share one table there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from stratalog.replication.controller.brokers import (
    FoundRoot,
    IsrChange,
    alter_partition,
    fence_brokers,
    online_partitions,
    register_broker,
    report_offline,
    report_online,
    shut_down_broker,
)
from stratalog.replication.controller.domains.storage_domains import add_storage_domain, remove_storage_domain
from stratalog.replication.controller.election.preferred_leaders import ElectionType, elect_leaders
from stratalog.replication.controller.reassignment import alter_partition_reassignments
from stratalog.replication.controller.topic_deletion import replicas_deleted
from stratalog.replication.controller.topics import alter_config, create_partitions, create_topic, delete_topic
from stratalog.replication.leader.partition import Partition
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import NO_LEADER, ConfigRecord, PartitionRecord
from stratalog.replication.metadata.storage_domains import DOMAIN_CONFIG, replica_root
from stratalog.storage.errors import (
    InvalidConfigError,
    InvalidRequestError,
    StaleBrokerEpochError,
    UnknownStorageDomainError,
)
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig
from tests.replication.images import TOPIC, GrowingImage, brief, commit, image_of, offline, partition, state

TP = TopicPartition(TOPIC, 0)
LAKE = "s3://bucket/lake"


def shared(replicas: Sequence[int], leader: int, isr: Sequence[int]) -> PartitionRecord:
    return replace(partition(replicas, leader, isr), domain="lake")


def image_with(*states: PartitionRecord, fenced: dict[int, bool] | None = None) -> GrowingImage:
    image = image_of((1, 2, 3), *states, fenced=fenced)
    commit(image, add_storage_domain(image, "lake", LAKE, durable=True))
    return image


def folded(image: GrowingImage, *records: object) -> ClusterImage:
    image.becomes(image.fold(*records))  # type: ignore[arg-type]
    return image


# -- domains ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "url", "reason"),
    [
        ("", "s3://b/x", "'' is no name of a storage domain"),
        ("a/b", "s3://b/x", "'a/b' is no name"),
        ("lake", "s3://bucket/other", "the storage domain 'lake' is s3://bucket/lake, not s3://bucket/other"),
        ("sea", LAKE, "the storage domain 'lake' is s3://bucket/lake"),
        ("sea", f"{LAKE}/deep", "neither may be inside the other"),
        ("sea", "s3://bucket", "neither may be inside the other"),
        ("sea", "/data/2/inside", "the root of broker 2 is /data/2"),
        ("sea", "/data", "the root of broker 1 is /data/1"),
    ],
)
def test_a_place_that_cannot_be_a_domain_is_refused(name: str, url: str, reason: str) -> None:
    image = image_with()
    with pytest.raises(InvalidRequestError, match=reason.replace("'", ".")):
        add_storage_domain(image, name, url, durable=True)


def test_places_whose_names_begin_alike_are_apart() -> None:
    image = image_with()
    assert commit(image, add_storage_domain(image, "lake2", f"{LAKE}-2/", durable=True)).url == f"{LAKE}-2"
    assert add_storage_domain(image, "lake2", f"{LAKE}-2", durable=True).records == ()


def test_a_domain_in_use_is_neither_removed_nor_called_perishable() -> None:
    image = image_with(shared((1, 2, 3), 1, (1, 2, 3)))
    with pytest.raises(InvalidRequestError, match="1 partitions are in it"):
        remove_storage_domain(image, "lake")
    with pytest.raises(InvalidRequestError, match="has to be durable: 1 partitions are in it"):
        add_storage_domain(image, "lake", LAKE, durable=False)
    commit(image, delete_topic(image, TOPIC))
    with pytest.raises(InvalidRequestError, match="the deleted topic orders still has tables in it"):
        remove_storage_domain(image, "lake")
    for broker_id in (1, 2, 3):
        commit(image, replicas_deleted(image, broker_id, 10 + broker_id, ["id-orders"]))
    folded(image, ConfigRecord("", DOMAIN_CONFIG, "lake"))
    with pytest.raises(InvalidRequestError, match=f"{DOMAIN_CONFIG} names it"):
        remove_storage_domain(image, "lake")
    folded(image, ConfigRecord("", DOMAIN_CONFIG, None))
    commit(image, remove_storage_domain(image, "lake"))
    with pytest.raises(UnknownStorageDomainError, match="there is no storage domain 'lake'; there are: none"):
        remove_storage_domain(image, "lake")


# -- where a topic is ------------------------------------------------------------------------------------


def made(image: GrowingImage, factor: int = 3, **configs: str) -> PartitionRecord:
    given = {name.replace("_", "."): value for name, value in configs.items()}
    commit(
        image,
        create_topic(image, TOPIC, "id-orders", 1, factor, configs=given, check_configs=LogConfig.validated),
    )
    return state(image)


def test_a_topic_is_made_where_its_config_says() -> None:
    assert made(image_with()).domain == ""
    image = image_with()
    assert made(image, stratalog_storage_domain="lake").domain == "lake"
    assert replica_root(image, state(image), 2) == f"{LAKE}/orders.id-orders"
    commit(image, create_partitions(image, TOPIC, 2))
    assert state(image, 1).domain == "lake"


def test_the_default_of_all_topics_counts_and_a_topic_can_say_otherwise() -> None:
    image = image_with()
    folded(image, ConfigRecord("", DOMAIN_CONFIG, "lake"))
    assert made(image).domain == "lake"
    image = image_with()
    folded(image, ConfigRecord("", DOMAIN_CONFIG, "lake"))
    assert made(image, stratalog_storage_domain="").domain == ""
    assert replica_root(image, state(image), 2) == "/data/2"


def test_a_topic_is_not_made_in_an_unknown_or_a_perishable_domain() -> None:
    image = image_with()
    with pytest.raises(UnknownStorageDomainError, match="there is no storage domain 'sea'; there are: lake"):
        made(image, stratalog_storage_domain="sea")
    commit(image, add_storage_domain(image, "disk", "/shared", durable=False))
    with pytest.raises(InvalidConfigError, match="disk, which is not durable"):
        made(image, stratalog_storage_domain="disk")


def altered(image: GrowingImage, **changes: str | None) -> PartitionRecord:
    named = {name.replace("_", "."): value for name, value in changes.items()}
    commit(image, alter_config(image, TOPIC, named, check_configs=LogConfig.validated))
    return state(image)


def test_a_config_says_where_a_topic_goes() -> None:
    image = image_with()
    made(image, stratalog_storage_domain="lake")
    assert alter_config(image, TOPIC, {DOMAIN_CONFIG: "lake"}, check_configs=LogConfig.validated).records == ()
    replicas = state(image).replicas
    moving = altered(image, stratalog_storage_domain="")
    assert (moving.target, moving.domain) == (tuple((r, "") for r in replicas), "lake")
    assert moving.leader_epoch == 0
    back = altered(image, stratalog_storage_domain="lake")
    assert (back.target, back.domain, back.partition_epoch) == ((), "lake", 2)


def test_what_a_move_cannot_do_now_is_refused() -> None:
    image = image_with()
    made(image)
    for wanted, refusal in (("sea", UnknownStorageDomainError), ("disk", InvalidConfigError)):
        commit(image, add_storage_domain(image, "disk", "/shared", durable=False))
        with pytest.raises(refusal):
            altered(image, stratalog_storage_domain=wanted)
    first = state(image)
    image.becomes(image.fold(replace(first.changed(bump_leader_epoch=False), left=("lake",))))
    with pytest.raises(InvalidRequestError, match="is being deleted: try again later"):
        altered(image, stratalog_storage_domain="lake")
    image.becomes(image.fold(replace(state(image).changed(bump_leader_epoch=False), left=(), adding=(9,))))
    with pytest.raises(InvalidRequestError, match="orders-0 is being reassigned"):
        altered(image, stratalog_storage_domain="lake")
    altered_once = replace(state(image).changed(bump_leader_epoch=False), adding=())
    image.becomes(image.fold(altered_once))
    altered(image, stratalog_storage_domain="lake")
    refused = commit(image, alter_partition_reassignments(image, {TP: (1,)}))[TP]
    assert "moves to other places" in str(refused)


def test_one_broker_cannot_follow_itself() -> None:
    image = image_with(partition((1,), 1, (1,)), fenced={2: False, 3: False})
    with pytest.raises(InvalidRequestError, match="none but 1 is live"):
        altered(image, stratalog_storage_domain="lake")


def test_a_domain_with_racks_is_used_by_their_brokers() -> None:
    image = image_with()
    for broker_id, rack in ((1, "east"), (2, "east"), (3, "west")):
        commit(image, register_broker(image, broker_id, f"run-{broker_id}c", f"/data/{broker_id}", rack))
    commit(image, add_storage_domain(image, "west", "s3://west/logs", durable=True, racks=("west",)))
    assert made(image, 1, stratalog_storage_domain="west").replicas == (3,)
    commit(image, delete_topic(image, TOPIC))
    commit(image, add_storage_domain(image, "lake", LAKE, durable=True, racks=("east",)))
    both = made(image, 1, stratalog_storage_domain="lake", stratalog_storage_copies="west")
    assert [(r, both.domain_of(r)) for r in both.replicas] == [(both.replicas[0], "lake"), (3, "west")]
    assert (both.isr, both.leader) == (both.replicas[:1], both.replicas[0])
    assert both.replicas[0] in (1, 2)
    promoted = altered(image, stratalog_storage_domain="west", stratalog_storage_copies="lake")
    assert promoted.target == ((3, "west"), (both.replicas[0], "lake"))
    with pytest.raises(InvalidConfigError, match="each place is named once"):
        altered(image, stratalog_storage_copies="west")


def test_a_copy_needs_a_broker_without_a_replica() -> None:
    image = image_with(partition((1, 2, 3), 1, (1, 2, 3)))
    with pytest.raises(InvalidConfigError, match="needs a live broker that may use it"):
        altered(image, stratalog_storage_copies="lake")


def test_the_deletion_of_a_topic_names_the_domains_with_its_tables() -> None:
    image = image_with(shared((1, 2, 3), 1, (1, 2, 3)))
    commit(image, delete_topic(image, TOPIC))
    (deletion,) = image.deletions.values()
    assert (deletion.brokers, deletion.domains) == ((1, 2, 3), ("lake",))


# -- who leads it ----------------------------------------------------------------------------------------


def test_each_live_replica_may_lead_though_it_was_never_in_the_isr() -> None:
    image = image_with(shared((1, 2, 3), 1, (1,)))
    commit(image, fence_brokers(image, {1: 11}))
    assert brief(state(image)) == (2, (2, 3), 6)
    assert state(image).unclean == 0
    commit(image, fence_brokers(image, {2: 12, 3: 13}))
    assert brief(state(image)) == (NO_LEADER, (2, 3), 7)
    epoch = commit(image, register_broker(image, 1, "run-1b", "/data/1"))
    assert epoch == 14
    commit(image, online_partitions(image))
    assert brief(state(image)) == (1, (1,), 8)
    assert state(image).elr == ()


def test_a_restart_begins_a_leader_epoch_and_takes_nobody_out_of_the_isr() -> None:
    """The disk of the broker, perhaps another one, has nothing of the partition."""
    image = image_with(shared((1, 2, 3), 2, (1, 2, 3)))
    another_disk = FoundRoot(directory_id="new", held=frozenset())
    commit(image, register_broker(image, 1, "run-1b", "/data/1", found=another_disk))
    assert brief(state(image)) == (2, (1, 2, 3), 5)
    commit(image, register_broker(image, 2, "run-2b", "/data/2", found=another_disk))
    assert brief(state(image)) == (2, (1, 2, 3), 6)


def test_a_controlled_shutdown_lets_another_live_replica_lead() -> None:
    image = image_with(shared((1, 2, 3), 1, (1,)))
    assert commit(image, shut_down_broker(image, 1, 11)) == ()
    assert brief(state(image)) == (2, (2, 3), 6)


def test_the_leader_adds_live_replicas_without_progress_of_theirs() -> None:
    image = image_with(shared((1, 2, 3), 1, (1,)))
    named = image.identified(TP)
    change = IsrChange(named, 5, 9, (1, 2, 3), {2: 12, 3: 13})
    commit(image, alter_partition(image, 1, 11, [change]))
    assert brief(state(image)) == (1, (1, 2, 3), 5)


def test_a_preferred_leader_outside_the_isr_leads() -> None:
    image = image_with(shared((1, 2, 3), 2, (2,)))
    commit(image, elect_leaders(image, ElectionType.PREFERRED, [TP]))
    assert brief(state(image)) == (1, (1, 2, 3), 6)


@pytest.mark.parametrize(
    ("fenced", "target", "expected"),
    [
        ({}, (2, 3), (2, (2, 3), 6)),
        ({}, (1, 2), (1, (1, 2), 6)),
        ({}, (3, 2, 1), (1, (1, 2), 5)),
        ({2: False}, (2, 3), (3, (3,), 6)),
        ({2: False, 3: False}, (2, 3), (NO_LEADER, (2, 3), 6)),
    ],
)
def test_a_reassignment_moves_no_byte_and_is_over_at_once(
    fenced: dict[int, bool], target: tuple[int, ...], expected: tuple[int, tuple[int, ...], int]
) -> None:
    image = image_with(shared((1, 2, 3), 1, (1, 2)), fenced=fenced)
    assert commit(image, alter_partition_reassignments(image, {TP: target})) == {TP: None}
    assert brief(state(image)) == expected
    assert (state(image).replicas, state(image).adding, state(image).removing) == (target, (), ())


def test_a_table_that_is_gone_takes_its_partition_offline_until_somebody_looks_again() -> None:
    image = image_with(shared((1, 2, 3), 1, (1, 2, 3)))
    commit(image, report_offline(image, 1, 11, offline(image, TP, absent=True)))
    assert brief(state(image)) == (NO_LEADER, (1, 2, 3), 6)
    commit(image, online_partitions(image))
    assert state(image).leader == NO_LEADER
    commit(image, register_broker(image, 3, "run-3b", "/data/3"))
    commit(image, online_partitions(image))
    assert brief(state(image)) == (1, (1, 2, 3), 7)


# -- a domain that some brokers cannot reach -------------------------------------------------------------


def away(image: GrowingImage, broker_id: int) -> None:
    commit(image, report_offline(image, broker_id, 10 + broker_id, offline(image, TP)))


def back(image: GrowingImage, broker_id: int) -> tuple[TopicPartition, ...]:
    return commit(image, report_online(image, broker_id, 10 + broker_id, [image.identified(TP)]))


def test_leaders_that_cannot_serve_give_way_one_after_the_other_and_the_last_one_stays() -> None:
    image = image_with(shared((1, 2, 3), 1, (1,)))
    for broker_id, expected in ((1, (2, (2, 3), 6)), (2, (3, (3,), 7)), (3, (3, (3,), 7))):
        away(image, broker_id)
        assert brief(state(image)) == expected
    assert state(image).offline == (1, 2, 3)
    assert report_offline(image, 3, 13, offline(image, TP)).records == (), "reported twice it is the same"


@pytest.mark.parametrize(
    ("leader", "isr", "gone", "returning", "expected"),
    [
        (2, (2, 3), (1,), 1, (2, (2, 3), 5, ())),  # the leader adds it to the ISR
        (3, (3,), (1, 2, 3), 1, (1, (1,), 6, (2, 3))),
        (3, (3,), (1, 2, 3), 3, (3, (3,), 5, (1, 2))),
        (NO_LEADER, (3,), (1, 2), 2, (2, (2,), 6, (1,))),
        (3, (3,), (1,), 2, (3, (3,), 5, (1,))),  # it had reported nothing
    ],
)
def test_a_replica_that_reaches_its_domain_again_leads_where_no_other_can(
    leader: int,
    isr: tuple[int, ...],
    gone: tuple[int, ...],
    returning: int,
    expected: tuple[int, tuple[int, ...], int, tuple[int, ...]],
) -> None:
    fenced = {3: False} if leader == NO_LEADER else None
    image = image_with(replace(shared((1, 2, 3), leader, isr), offline=gone), fenced=fenced)
    assert back(image, returning) == ((TP,) if returning in gone else ())
    assert (*brief(state(image)), state(image).offline) == expected


def test_no_election_chooses_a_replica_that_cannot_reach_the_domain() -> None:
    image = image_with(replace(shared((1, 2, 3), 3, (3,)), offline=(1, 2)))
    commit(image, elect_leaders(image, ElectionType.PREFERRED, [TP]))
    assert brief(state(image)) == (3, (3,), 5)
    commit(image, fence_brokers(image, {3: 13}, lambda _topic: True))
    assert brief(state(image)) == (NO_LEADER, (3,), 6), "an unclean election would say that records are lost"
    commit(image, online_partitions(image, lambda _topic: True))
    assert state(image).leader == NO_LEADER
    commit(image, register_broker(image, 2, "run-2b", "/data/2"))
    commit(image, online_partitions(image))
    assert (*brief(state(image)), state(image).offline) == (2, (2,), 7, (1,)), "a new process tries anew"


def test_the_leader_does_not_add_a_replica_that_cannot_reach_the_domain() -> None:
    image = image_with(replace(shared((1, 2, 3), 1, (1,)), offline=(2,)))
    named = image.identified(TP)
    (refused,) = commit(image, alter_partition(image, 1, 11, [IsrChange(named, 5, 9, (1, 2, 3), {2: 12, 3: 13})]))
    assert isinstance(refused, InvalidRequestError)
    assert "broker 2 reported that it cannot serve the partition" in str(refused)
    led = Partition(state(image), 1, 0, 0, 0)
    led.maybe_increment_high_watermark(0, 1_000)
    assert led.may_join((1, 2, 3)) == {3}
    commit(image, alter_partition(image, 1, 11, [IsrChange(named, 5, 9, (1, 3), {3: 13})]))
    assert brief(state(image)) == (1, (1, 3), 5)


def test_a_reassignment_chooses_no_replica_that_cannot_reach_the_domain() -> None:
    image = image_with(replace(shared((1, 2, 3), 3, (3,)), offline=(1,)))
    commit(image, alter_partition_reassignments(image, {TP: (1, 2)}))
    assert (*brief(state(image)), state(image).offline) == (2, (2,), 6, (1,))


def test_a_replica_with_another_table_leads_when_all_of_a_domain_cannot_reach_it() -> None:
    followed = replace(shared((1, 2, 3), 1, (1, 2, 3)), elsewhere=((3, "sea"),))
    image = image_with(followed)
    away(image, 1)
    assert brief(state(image)) == (2, (2, 3), 6)
    away(image, 2)
    assert (*brief(state(image)), state(image).unclean) == (3, (3,), 7, 0)
    assert back(image, 1) == (TP,)
    assert (*brief(state(image)), state(image).offline) == (3, (3,), 7, (2,)), "it copies first"
    behind = image_with(replace(followed, isr=(1, 2)))
    away(behind, 1)
    away(behind, 2)
    assert brief(state(behind)) == (2, (2,), 6), "3 may lack what is committed"


def test_a_replica_that_has_left_the_domain_may_lead() -> None:
    assert replace(shared((1, 2, 3), 3, (3,)), offline=(1, 2), elsewhere=((2, ""),)).offline == (1,)


def test_a_report_of_a_process_that_is_over_changes_nothing() -> None:
    image = image_with(replace(shared((1, 2, 3), 3, (3,)), offline=(1, 2)))
    with pytest.raises(StaleBrokerEpochError):
        report_online(image, 1, 10, [image.identified(TP)])
