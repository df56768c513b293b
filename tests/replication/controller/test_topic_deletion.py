"""Replica states, and the deletion of a topic's replicas through them, also past a broker that is down."""

from __future__ import annotations

from itertools import product

import pytest

from stratalog.replication.controller.brokers import fence_brokers, register_broker
from stratalog.replication.controller.topic_deletion import (
    TopicDeletion,
    deletions_on,
    replicas_deleted,
    replicas_to_delete,
    topic_deletions,
)
from stratalog.replication.controller.topics import delete_topic
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import MetadataRecord, TopicDeletionRecord, TopicRecord
from stratalog.replication.metadata.state_changes import check_transitions, partition_lines, replica_lines
from stratalog.replication.metadata.states import ReplicaState, illegal_replica_step, replica_path, state_of_replica
from stratalog.replication.replica.deletions import ReplicaDeletions
from stratalog.storage.errors import IllegalStateError, StaleBrokerEpochError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import TopicPartition
from tests.replication.images import TOPIC, commit, image_of, partition
from tests.replication.memory_stores import MemoryStores, create, led_by, register

NON_EXISTENT, NEW, ONLINE, OFFLINE, STARTED, SUCCESSFUL, INELIGIBLE = ReplicaState
P0 = TopicPartition(TOPIC, 0)

LEGAL = {
    (NON_EXISTENT, NEW),
    (NEW, ONLINE), (ONLINE, ONLINE), (OFFLINE, ONLINE), (INELIGIBLE, ONLINE),
    (NEW, OFFLINE), (ONLINE, OFFLINE), (OFFLINE, OFFLINE), (INELIGIBLE, OFFLINE),
    (OFFLINE, STARTED), (STARTED, SUCCESSFUL), (STARTED, INELIGIBLE), (OFFLINE, INELIGIBLE),
    (SUCCESSFUL, NON_EXISTENT),
}  # fmt: skip


@pytest.mark.parametrize(("current", "target"), list(product(ReplicaState, ReplicaState)))
def test_the_table_of_legal_transitions(current: ReplicaState, target: ReplicaState) -> None:
    refusal = illegal_replica_step(P0, 2, current, (target,))
    assert (refusal == "") == ((current, target) in LEGAL)
    if refusal:
        assert refusal.startswith("Replica [Topic=orders,Partition=0,Replica=2] should be in one of ")
        assert refusal.endswith(f" states before moving to {target} state. Instead it is in {current} state")


EVENTS = [
    # what an event may do to a replica, as the image tells of it
    (NON_EXISTENT, ONLINE), (NON_EXISTENT, OFFLINE), (ONLINE, OFFLINE), (OFFLINE, ONLINE),
    (ONLINE, NON_EXISTENT), (OFFLINE, NON_EXISTENT), (ONLINE, STARTED), (OFFLINE, INELIGIBLE),
    (STARTED, INELIGIBLE), (INELIGIBLE, STARTED), (STARTED, NON_EXISTENT),
]  # fmt: skip


@pytest.mark.parametrize(("current", "target"), EVENTS)
def test_every_event_takes_a_replica_along_a_legal_path(current: ReplicaState, target: ReplicaState) -> None:
    path = replica_path(current, target)
    assert path[-1] is target
    assert illegal_replica_step(P0, 1, current, path) == ""


def test_a_replicas_state_is_what_the_image_says() -> None:
    image = image_of([1, 2, 3], partition((1, 2), 1, (1,)), fenced={2: False})
    assert [state_of_replica(image, P0, broker_id) for broker_id in (1, 2, 3)] == [ONLINE, OFFLINE, NON_EXISTENT]


def deleted(image: ClusterImage) -> dict[int, ReplicaState]:
    return {b: state for deletion in topic_deletions(image) for b, state in deletion.replica_states.items()}


def test_a_deletion_passes_its_states_broker_by_broker_and_outlives_one_that_is_down() -> None:
    image = image_of([1, 2, 3], partition((1, 2, 3), 1, (1, 2)), fenced={3: False})
    story: list[str] = []

    def happen(result: Result[object]) -> None:
        for record in result.records:
            story.extend([*partition_lines(image, record), *replica_lines(image, record)])
            image.becomes(image.fold(record))

    happen(delete_topic(image, TOPIC))
    assert topic_deletions(image) == [TopicDeletion(TOPIC, "id-orders", 1, {1: STARTED, 2: STARTED, 3: INELIGIBLE})]
    story.clear()
    happen(replicas_deleted(image, 1, 11, ["id-orders"]))
    assert deleted(image) == {2: STARTED, 3: INELIGIBLE}
    happen(fence_brokers(image, {2: 12}))
    assert deleted(image) == {2: INELIGIBLE, 3: INELIGIBLE}
    happen(register_broker(image, 3, "again", "/data/3"))
    assert deleted(image) == {2: INELIGIBLE, 3: STARTED}
    happen(replicas_deleted(image, 3, 14, ["id-orders"]))
    happen(register_broker(image, 2, "again", "/data/2"))
    happen(replicas_deleted(image, 2, 15, ["id-orders"]))
    assert (image.deletions, topic_deletions(image)) == ({}, [])
    whose = "Changed state of the replicas of topic orders on broker"
    assert story == [
        f"{whose} 1 from ReplicaDeletionStarted to ReplicaDeletionSuccessful",
        f"{whose} 1 from ReplicaDeletionSuccessful to NonExistentReplica",
        f"{whose} 2 from ReplicaDeletionStarted to ReplicaDeletionIneligible",
        f"{whose} 3 from ReplicaDeletionIneligible to OfflineReplica",
        f"{whose} 3 from OfflineReplica to ReplicaDeletionStarted",
        f"{whose} 3 from ReplicaDeletionStarted to ReplicaDeletionSuccessful",
        f"{whose} 3 from ReplicaDeletionSuccessful to NonExistentReplica",
        f"{whose} 2 from ReplicaDeletionIneligible to OfflineReplica",
        f"{whose} 2 from OfflineReplica to ReplicaDeletionStarted",
        f"{whose} 2 from ReplicaDeletionStarted to ReplicaDeletionSuccessful",
        f"{whose} 2 from ReplicaDeletionSuccessful to NonExistentReplica",
    ]


def test_a_broker_says_so_once_and_only_under_its_registration() -> None:
    image = image_of([1, 2], partition((1, 2), 1, (1, 2)))
    commit(image, delete_topic(image, TOPIC))
    with pytest.raises(StaleBrokerEpochError):
        replicas_deleted(image, 1, 10, ["id-orders"])
    assert commit(image, replicas_deleted(image, 1, 11, ["id-orders", "unknown"])) == ("id-orders",)
    again = replicas_deleted(image, 1, 11, ["id-orders"])
    assert (again.records, again.response) == ((), ())
    assert [deletion.topic_id for deletion in deletions_on(image, 2)] == ["id-orders"]
    assert deletions_on(image, 1) == []


def test_a_deletion_does_not_begin_again_on_a_broker_that_is_done() -> None:
    image = image_of([1, 2], partition((1, 2), 1, (1, 2)))
    commit(image, delete_topic(image, TOPIC))
    commit(image, replicas_deleted(image, 1, 11, ["id-orders"]))
    back: tuple[MetadataRecord, ...] = (TopicDeletionRecord(TOPIC, "id-orders", 1, (1, 2)),)
    with pytest.raises(IllegalStateError, match="Replica=1] should be in one of OfflineReplica states"):
        check_transitions(image, back)


def test_only_what_no_new_topic_of_that_name_has_here_is_deleted() -> None:
    image = image_of([1, 2], partition((1, 2), 1, (1, 2)), partition((2,), 2, (2,), number=1))
    held = [TopicPartition(TOPIC, 2), TopicPartition(TOPIC, 1), P0, TopicPartition("other", 0)]
    assert replicas_to_delete(image, 1, {TOPIC}, held) == [TopicPartition(TOPIC, 1), TopicPartition(TOPIC, 2)]


def test_a_broker_drops_what_is_left_of_a_removed_topic_and_reports() -> None:
    stores = MemoryStores()
    metadata = stores.metadata()
    register(metadata, 1, 5)
    register(metadata, 2, 6)
    create(metadata, "t", led_by(1))
    create(metadata, "kept", led_by(1, topic="kept"), topic_id="id-kept")
    for topic, topic_id in (("t", "id"), ("kept", "id-kept")):
        table = stores.table("broker-1", TopicPartition(topic, 0))
        PartitionLog(table, metadata.log.config, stores.clock, stores.ids).exists_or_create(topic_id)
    deletions = ReplicaDeletions(1, "broker-1", stores.ports(), metadata)
    assert not deletions.step(5)
    metadata.propose(lambda image: delete_topic(image, "t"))
    assert deletions.step(4), "under a registration that is over it deletes, but says nothing"
    assert metadata.image.deletions["id"].brokers == (1, 2)
    assert deletions.step(5)
    assert stores.replicas("broker-1") == [TopicPartition("kept", 0)]
    assert metadata.image.deletions["id"].brokers == (2,)
    assert not deletions.step(5)


def test_a_table_that_a_session_has_already_made_for_the_next_topic_of_the_name_stays() -> None:
    """The broker's loop has heard of the removal only, its fetch session of the next topic too."""
    stores = MemoryStores()
    metadata = stores.metadata()
    register(metadata, 1, 5)
    create(metadata, "t", led_by(1, replicas=(1,)))
    metadata.propose(lambda image: delete_topic(image, "t"))
    table = stores.table("broker-1", TopicPartition("t", 0))
    PartitionLog(table, metadata.log.config, stores.clock, stores.ids).exists_or_create("newer")
    assert ReplicaDeletions(1, "broker-1", stores.ports(), metadata).step(5)
    assert metadata.image.deletions == {}
    assert stores.replicas("broker-1") == [TopicPartition("t", 0)]


def test_a_topic_created_again_says_nothing_about_the_deletion_of_its_predecessor() -> None:
    image = image_of([1], partition((1,), 1, (1,)))
    commit(image, delete_topic(image, TOPIC))
    image = image.fold(TopicRecord(TOPIC, "id-new"))
    assert [deletion.topic_id for deletion in topic_deletions(image)] == ["id-orders"]
