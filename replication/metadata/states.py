"""The states of a partition, as Kafka's controller knows them, and which may follow which. Pure.

The image of the cluster is the truth, and a state is what it says of a partition. A record moves a partition along a
path: one that creates it goes through NewPartition, one that removes it through OfflinePartition, since here a whole
event is one commit. Every step must stand in the table, which keeps out what was decided about a partition that is
not there any more, or is there already.
Source: `PartitionState` and `ZkPartitionStateMachine.doHandleStateChanges` of Kafka 3.

The states of a replica, as Kafka's controller knows them, and which may follow which. Pure.

Like a partition's, a state is what the image says: whether the replica is assigned, whether its broker is up, and for
a removed topic how far its deletion is. A deletion waits for brokers that are down (ReplicaDeletionIneligible) and
ends when each of them has said that its replicas are gone (`topic_deletion`).
Source: `ReplicaState` and `ZkReplicaStateMachine.doHandleStateChanges` of Kafka 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord, TopicDeletionRecord
from stratalog.storage.records import TopicPartition


class PartitionState(StrEnum):
    """Kafka's names."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


VALID_PREVIOUS_PARTITION_STATES: Mapping[PartitionState, tuple[PartitionState, ...]] = {
    PartitionState.NON_EXISTENT: (PartitionState.OFFLINE,),
    PartitionState.NEW: (PartitionState.NON_EXISTENT,),
    PartitionState.ONLINE: (PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE),
    PartitionState.OFFLINE: (PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE),
}
"""State -> the states from which a partition may move there."""


def state_of_partition(partition: PartitionRecord | None) -> PartitionState:
    """What the image says of a partition; None: it has no such partition."""
    if partition is None:
        return PartitionState.NON_EXISTENT
    return PartitionState.OFFLINE if partition.leader == NO_LEADER else PartitionState.ONLINE


def partition_path(
    before: PartitionRecord | None, after: PartitionRecord | None, *, is_creation: bool = False
) -> tuple[PartitionState, ...]:
    """The states that a partition goes through from `before` to `after`, the last one its new one.

    `is_creation`: `after` is the first record of a partition that is being created, with its topic or as it grows. It
    goes through NewPartition, wherever it comes from: over an existing partition that is illegal.
    """
    if after is None:
        return (
            (PartitionState.NON_EXISTENT,)
            if state_of_partition(before) is PartitionState.OFFLINE
            else (PartitionState.OFFLINE, PartitionState.NON_EXISTENT)
        )
    target = state_of_partition(after)
    return (PartitionState.NEW, target) if is_creation else (target,)


def illegal_partition_step(
    topic_partition: TopicPartition, current: PartitionState, path: tuple[PartitionState, ...]
) -> str:
    """Why a partition in state `current` may not go along `path`, in Kafka's words; empty when it may."""
    for target in path:
        if current not in VALID_PREVIOUS_PARTITION_STATES[target]:
            legal = ",".join(VALID_PREVIOUS_PARTITION_STATES[target])
            return (
                f"Partition {topic_partition} should be in one of {legal} states before moving to {target} state. "
                f"Instead it is in {current} state"
            )
        current = target
    return ""


class ReplicaState(StrEnum):
    """Kafka's names."""

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


_NON_EXISTENT, _NEW, _ONLINE, _OFFLINE, _STARTED, _SUCCESSFUL, _INELIGIBLE = ReplicaState

VALID_PREVIOUS_REPLICA_STATES: Mapping[ReplicaState, tuple[ReplicaState, ...]] = {
    _NON_EXISTENT: (_SUCCESSFUL,),
    _NEW: (_NON_EXISTENT,),
    _ONLINE: (_NEW, _ONLINE, _OFFLINE, _INELIGIBLE),
    _OFFLINE: (_NEW, _ONLINE, _OFFLINE, _INELIGIBLE),
    _STARTED: (_OFFLINE,),
    _SUCCESSFUL: (_STARTED,),
    _INELIGIBLE: (_OFFLINE, _STARTED),
}
"""State -> the states from which a replica may move there."""


_WAYS: Mapping[tuple[ReplicaState, ReplicaState], tuple[ReplicaState, ...]] = {
    (_NON_EXISTENT, _ONLINE): (_NEW, _ONLINE),
    (_NON_EXISTENT, _OFFLINE): (_NEW, _OFFLINE),
    (_ONLINE, _STARTED): (_OFFLINE, _STARTED),
    (_ONLINE, _INELIGIBLE): (_OFFLINE, _INELIGIBLE),
    (_INELIGIBLE, _STARTED): (_OFFLINE, _STARTED),
    (_STARTED, _NON_EXISTENT): (_SUCCESSFUL, _NON_EXISTENT),
    # It left the assignment while the partition lives on: its broker drops it when it hears of that.
    (_ONLINE, _NON_EXISTENT): (_OFFLINE, _STARTED, _SUCCESSFUL, _NON_EXISTENT),
    (_OFFLINE, _NON_EXISTENT): (_STARTED, _SUCCESSFUL, _NON_EXISTENT),
}
"""The states on the way, where one event takes a replica over several."""


def replica_path(current: ReplicaState, target: ReplicaState) -> tuple[ReplicaState, ...]:
    """The states that one event takes a replica through; empty when it stays where it is.

    >>> [str(state) for state in replica_path(ReplicaState.ONLINE, ReplicaState.DELETION_STARTED)]
    ['OfflineReplica', 'ReplicaDeletionStarted']
    """
    if current is target:
        return ()
    return _WAYS.get((current, target), (target,))


def state_of_replica(image: ClusterImage, topic_partition: TopicPartition, broker_id: int) -> ReplicaState:
    """What the image says of a replica of a topic that exists."""
    partition = image.partitions.get(topic_partition)
    if partition is None or broker_id not in partition.replicas:
        return _NON_EXISTENT
    return _ONLINE if _is_up(image, broker_id) else _OFFLINE


def state_of_deletion(image: ClusterImage, deletion: TopicDeletionRecord, broker_id: int) -> ReplicaState:
    """What the image says of a broker's replicas of a topic that was removed; the topic's id is its own for ever."""
    if broker_id not in deletion.brokers:
        return _NON_EXISTENT
    return _STARTED if _is_up(image, broker_id) else _INELIGIBLE


def illegal_replica_step(
    topic_partition: TopicPartition, broker_id: int, current: ReplicaState, path: tuple[ReplicaState, ...]
) -> str:
    """Why a replica in state `current` may not go along `path`, in Kafka's words; empty when it may."""
    for target in path:
        if current not in VALID_PREVIOUS_REPLICA_STATES[target]:
            legal = ",".join(VALID_PREVIOUS_REPLICA_STATES[target])
            return (
                f"Replica [Topic={topic_partition.topic},Partition={topic_partition.partition},Replica={broker_id}] "
                f"should be in one of {legal} states before moving to {target} state. Instead it is in {current} state"
            )
        current = target
    return ""


def _is_up(image: ClusterImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced
