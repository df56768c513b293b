"""The states of partitions and replicas, as in Kafka's controller, and the legal transitions between them. Pure.

A state follows from the image. Of a partition: whether it exists and has a leader. Of a replica: whether it is assigned
and its broker is live; for a removed topic, how far its deletion is. A deletion waits for brokers that are down
(ReplicaDeletionIneligible) and ends when each broker has reported that its replicas are gone (`topic_deletion`).

Here one commit is a whole event, so a record may move a partition or replica through several states: a creation goes
through NewPartition, a removal through OfflinePartition. Each step must be in the tables. That refuses decisions about
a partition that is gone already, or that is there already. Source: `PartitionState`, `ReplicaState`,
`ZkPartitionStateMachine` and `ZkReplicaStateMachine` of Kafka 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord, TopicDeletionRecord
from stratalog.storage.records import TopicPartition

S = TypeVar("S", bound=StrEnum)


class PartitionState(StrEnum):
    """Kafka's names of a partition's states."""

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
    """The state of a partition; of one that does not exist for None."""
    if partition is None:
        return PartitionState.NON_EXISTENT
    return PartitionState.OFFLINE if partition.leader == NO_LEADER else PartitionState.ONLINE


def partition_path(
    before: PartitionRecord | None, after: PartitionRecord | None, *, is_creation: bool = False
) -> tuple[PartitionState, ...]:
    """The states that a partition goes through from `before` to `after`, the last one its new one.

    `is_creation`: `after` is the first record of a partition that is created, with its topic or as that grows. It goes
    through NewPartition in any case: over an existing partition that is illegal.
    """
    if after is None:
        is_offline = state_of_partition(before) is PartitionState.OFFLINE
        return (() if is_offline else (PartitionState.OFFLINE,)) + (PartitionState.NON_EXISTENT,)
    target = state_of_partition(after)
    return (PartitionState.NEW, target) if is_creation else (target,)


def illegal_partition_step(
    topic_partition: TopicPartition, current: PartitionState, path: tuple[PartitionState, ...]
) -> str:
    """The reason, in Kafka's words, why a partition in state `current` must not go along `path`; "" if it may."""
    return _illegal_step(f"Partition {topic_partition}", VALID_PREVIOUS_PARTITION_STATES, current, path)


def _illegal_step(what: str, valid_previous: Mapping[S, tuple[S, ...]], current: S, path: tuple[S, ...]) -> str:
    for target in path:
        if current not in valid_previous[target]:
            legal = ",".join(valid_previous[target])
            return (
                f"{what} should be in one of {legal} states before moving to {target} state. "
                f"Instead it is in {current} state"
            )
        current = target
    return ""


class ReplicaState(StrEnum):
    """Kafka's names of a replica's states."""

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

_PATHS: Mapping[tuple[ReplicaState, ReplicaState], tuple[ReplicaState, ...]] = {
    (_NON_EXISTENT, _ONLINE): (_NEW, _ONLINE),
    (_NON_EXISTENT, _OFFLINE): (_NEW, _OFFLINE),
    (_ONLINE, _STARTED): (_OFFLINE, _STARTED),
    (_ONLINE, _INELIGIBLE): (_OFFLINE, _INELIGIBLE),
    (_INELIGIBLE, _STARTED): (_OFFLINE, _STARTED),
    (_STARTED, _NON_EXISTENT): (_SUCCESSFUL, _NON_EXISTENT),
    # It left the assignment of an existing partition: its broker drops the replica when it folds that.
    (_ONLINE, _NON_EXISTENT): (_OFFLINE, _STARTED, _SUCCESSFUL, _NON_EXISTENT),
    (_OFFLINE, _NON_EXISTENT): (_STARTED, _SUCCESSFUL, _NON_EXISTENT),
}
"""The steps of events that take a replica through several states."""


def replica_path(current: ReplicaState, target: ReplicaState) -> tuple[ReplicaState, ...]:
    """The states that one event takes a replica through; empty when it stays where it is.

    >>> [str(state) for state in replica_path(ReplicaState.ONLINE, ReplicaState.DELETION_STARTED)]
    ['OfflineReplica', 'ReplicaDeletionStarted']
    """
    if current is target:
        return ()
    return _PATHS.get((current, target), (target,))


def state_of_replica(image: ClusterImage, topic_partition: TopicPartition, broker_id: int) -> ReplicaState:
    """The state of a replica of an existing topic."""
    partition = image.partitions.get(topic_partition)
    if partition is None or broker_id not in partition.replicas:
        return _NON_EXISTENT
    return _ONLINE if image.is_live(broker_id) else _OFFLINE


def state_of_deletion(image: ClusterImage, deletion: TopicDeletionRecord, broker_id: int) -> ReplicaState:
    """The state of a broker's replicas of a removed topic."""
    if broker_id not in deletion.brokers:
        return _NON_EXISTENT
    return _STARTED if image.is_live(broker_id) else _INELIGIBLE


def illegal_replica_step(
    topic_partition: TopicPartition, broker_id: int, current: ReplicaState, path: tuple[ReplicaState, ...]
) -> str:
    """As `illegal_partition_step`, for a replica."""
    what = f"Replica [Topic={topic_partition.topic},Partition={topic_partition.partition},Replica={broker_id}]"
    return _illegal_step(what, VALID_PREVIOUS_REPLICA_STATES, current, path)
