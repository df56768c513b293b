"""The states of partitions, which may follow which, and that every decision is held to them (promise 11)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from stratalog.replication.controller.brokers import fence_brokers
from stratalog.replication.controller.topics import create_partitions, create_topic, delete_topic
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import (
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicDeletionRecord,
    TopicRecord,
)
from stratalog.replication.metadata.state_changes import check_transitions, partition_lines, replica_lines
from stratalog.replication.metadata.states import (
    PartitionState,
    illegal_partition_step,
    partition_path,
    state_of_partition,
)
from stratalog.storage.errors import IllegalStateError
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig
from tests.replication.images import TOPIC, commit, image_of, partition, state
from tests.replication.memory_stores import MemoryStores

NON_EXISTENT, NEW, ONLINE, OFFLINE = PartitionState
P0 = TopicPartition(TOPIC, 0)

LEGAL = {
    # as in Kafka: NonExistent -> New; Online, Offline -> Online; New, Online -> Offline; Offline -> NonExistent
    (NON_EXISTENT, NEW),
    (NEW, ONLINE), (ONLINE, ONLINE), (OFFLINE, ONLINE),
    (NEW, OFFLINE), (ONLINE, OFFLINE), (OFFLINE, OFFLINE),
    (OFFLINE, NON_EXISTENT),
}  # fmt: skip


@pytest.mark.parametrize(("current", "target"), list(product(PartitionState, PartitionState)))
def test_the_table_of_legal_transitions(current: PartitionState, target: PartitionState) -> None:
    refusal = illegal_partition_step(P0, current, (target,))
    assert (refusal == "") == ((current, target) in LEGAL)
    if refusal:
        assert refusal.startswith(f"Partition {P0} should be in one of ")
        assert refusal.endswith(f" states before moving to {target} state. Instead it is in {current} state")


@pytest.mark.parametrize(
    ("before", "after", "is_creation", "path"),
    [
        pytest.param(None, partition((1, 2), 1, (1, 2)), True, (NEW, ONLINE), id="created"),
        pytest.param(None, partition((1, 2), -1, (1, 2)), True, (NEW, OFFLINE), id="created without a leader"),
        pytest.param(partition((1, 2), 1, (1, 2)), partition((1, 2), 2, (2,)), False, (ONLINE,), id="led by another"),
        pytest.param(partition((1, 2), 1, (1,)), partition((1, 2), -1, (1,)), False, (OFFLINE,), id="its leader died"),
        pytest.param(partition((1, 2), 1, (1,)), None, False, (OFFLINE, NON_EXISTENT), id="removed"),
        pytest.param(partition((1, 2), -1, (1,)), None, False, (NON_EXISTENT,), id="removed while it was offline"),
    ],
)
def test_a_record_moves_a_partition_along_a_legal_path(
    before: PartitionRecord | None, after: PartitionRecord | None, is_creation: bool, path: tuple[PartitionState, ...]
) -> None:
    assert partition_path(before, after, is_creation=is_creation) == path
    assert path[-1] == state_of_partition(after)
    assert illegal_partition_step(P0, state_of_partition(before), path) == ""


ILLEGAL: list[tuple[str, tuple[MetadataRecord, ...], str]] = [
    (
        "a leader for a partition whose topic is gone",
        (replace(partition((1, 2), 2, (2,)), topic="gone"),),
        (
            "Partition gone-0 should be in one of NewPartition,OnlinePartition,OfflinePartition states before moving "
            "to OnlinePartition state. Instead it is in NonExistentPartition state"
        ),
    ),
    (
        "a partition created where there is one",
        (partition((1, 2), 1, (1, 2), partition_epoch=0),),
        (
            "Partition orders-0 should be in one of NonExistentPartition states before moving to NewPartition state. "
            "Instead it is in OnlinePartition state"
        ),
    ),
    (
        "a topic created over one of its name",
        (TopicRecord(TOPIC, "other"), partition((1, 2), 1, (1, 2))),
        (
            "Partition orders-0 should be in one of NonExistentPartition states before moving to NewPartition state. "
            "Instead it is in OnlinePartition state"
        ),
    ),
    (
        "a leader in the commit that removes the topic",
        (RemoveTopicRecord(TOPIC, "id-orders"), partition((1, 2), 2, (2,))),
        (
            "Partition orders-0 should be in one of NewPartition,OnlinePartition,OfflinePartition states before moving "
            "to OnlinePartition state. Instead it is in NonExistentPartition state"
        ),
    ),
    (
        "two creations in one commit",
        (
            TopicRecord("new", "id-new"),
            replace(partition((1, 2), 1, (1, 2)), topic="new"),
            replace(partition((1, 2), 2, (1, 2)), topic="new"),
        ),
        (
            "Partition new-0 should be in one of NonExistentPartition states before moving to NewPartition state. "
            "Instead it is in OnlinePartition state"
        ),
    ),
    (
        "the removal of another topic of that name",
        (RemoveTopicRecord(TOPIC, "id-before"),),
        "Topic orders with id id-before should exist before its removal. Its id is id-orders",
    ),
    (
        "replicas deleted of a topic that stands",
        (TopicDeletionRecord(TOPIC, "id-orders", 1, (1, 2)),),
        (
            "Replica [Topic=orders,Partition=0,Replica=1] should be in one of OfflineReplica states before moving to "
            "ReplicaDeletionStarted state. Instead it is in NonExistentReplica state"
        ),
    ),
]


@pytest.mark.parametrize(("records", "reason"), [case[1:] for case in ILLEGAL], ids=[case[0] for case in ILLEGAL])
def test_an_illegal_transition_is_refused_in_kafkas_words(records: tuple[MetadataRecord, ...], reason: str) -> None:
    image = image_of([1, 2], partition((1, 2), 1, (1, 2)))
    with pytest.raises(IllegalStateError) as refusal:
        check_transitions(image, records)
    assert str(refusal.value) == reason
    assert refusal.value.name == "UNKNOWN_SERVER_ERROR"


def test_an_illegal_decision_is_logged_and_commits_nothing(caplog: pytest.LogCaptureFixture) -> None:
    metadata = MemoryStores().metadata()
    records = (partition((1, 2), 1, (1, 2)),)

    def decide(image: ClusterImage) -> Result[None]:
        return Result(records, None)

    with pytest.raises(IllegalStateError, match="Instead it is in NonExistentPartition state"):
        metadata.propose(decide)
    assert metadata.log.log_end_offset == 0
    assert "refused 1 records: Partition orders-0 should be in one of" in caplog.text
    assert caplog.records[0].name == "stratalog.state.change"


def test_a_topics_life_from_creation_to_removal_in_the_state_change_log() -> None:
    image = image_of([1, 2, 3])
    story: list[str] = []

    def happen(result: Result[object]) -> None:
        for record in result.records:
            story.extend(partition_lines(image, record))
            image.becomes(image.fold(record))

    check_configs = LogConfig.validated
    happen(create_topic(image, "t", "id-t", assignment={0: (1, 2)}, check_configs=check_configs))
    happen(create_partitions(image, "t", 2, {1: (3, 1)}))
    happen(fence_brokers(image, {1: 11}))
    happen(fence_brokers(image, {2: 12}))
    happen(delete_topic(image, "t"))
    states = [
        '{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}',
        '{"controller_epoch":3,"leader":3,"version":1,"leader_epoch":0,"isr":[3,1]}',
        '{"controller_epoch":3,"leader":2,"version":1,"leader_epoch":1,"isr":[2]}',
        '{"controller_epoch":3,"leader":3,"version":1,"leader_epoch":0,"isr":[3]}',
    ]
    assert story == [
        "Changed partition t-0 state from NonExistentPartition to NewPartition with assigned replicas 1,2",
        f"Changed partition t-0 from NewPartition to OnlinePartition with state {states[0]}",
        "Changed partition t-1 state from NonExistentPartition to NewPartition with assigned replicas 3,1",
        f"Changed partition t-1 from NewPartition to OnlinePartition with state {states[1]}",
        f"Changed partition t-0 from OnlinePartition to OnlinePartition with state {states[2]}",
        f"Changed partition t-1 from OnlinePartition to OnlinePartition with state {states[3]}",
        "Changed partition t-0 state from OnlinePartition to OfflinePartition",
        "Changed partition t-0 state from OfflinePartition to NonExistentPartition",
        "Changed partition t-1 state from OnlinePartition to OfflinePartition",
        "Changed partition t-1 state from OfflinePartition to NonExistentPartition",
        "Changed state of the replicas of topic t on broker 1 from OfflineReplica to ReplicaDeletionIneligible",
        "Changed state of the replicas of topic t on broker 2 from OfflineReplica to ReplicaDeletionIneligible",
        "Changed state of the replicas of topic t on broker 3 from OnlineReplica to OfflineReplica",
        "Changed state of the replicas of topic t on broker 3 from OfflineReplica to ReplicaDeletionStarted",
    ]


def test_replicas_come_and_go_with_their_brokers_and_assignments() -> None:
    image = image_of([1, 2, 3], partition((1, 2), 1, (1, 2)))
    fence, moved = fence_brokers(image, {2: 12}).records
    assert list(replica_lines(image, fence)) == [
        "Changed state of replica 2 for partition orders-0 from OnlineReplica to OfflineReplica"
    ]
    commit(image, Result((fence, moved), None))
    assert list(replica_lines(image, replace(state(image), replicas=(1, 3), isr=(1,)))) == [
        "Changed state of replica 2 for partition orders-0 from OfflineReplica to ReplicaDeletionStarted",
        "Changed state of replica 2 for partition orders-0 from ReplicaDeletionStarted to ReplicaDeletionSuccessful",
        "Changed state of replica 2 for partition orders-0 from ReplicaDeletionSuccessful to NonExistentReplica",
        "Changed state of replica 3 for partition orders-0 from NonExistentReplica to NewReplica",
        "Changed state of replica 3 for partition orders-0 from NewReplica to OnlineReplica",
    ]
