"""The states of a partition, as Kafka's controller knows them, and which may follow which (ROWS R15). Pure.

The image of the cluster is the truth, and a state is what it says of a partition. A record moves a partition along a
path: one that creates it goes through NewPartition, one that removes it through OfflinePartition, since here a whole
event is one commit. Every step must stand in the table, which keeps out what was decided about a partition that is
not there any more, or is there already.
Source: `PartitionState` and `ZkPartitionStateMachine.doHandleStateChanges` of Kafka 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from stratalog.replication.metadata.image import NO_LEADER, PartitionRecord
from stratalog.storage.records import TopicPartition


class PartitionState(StrEnum):
    """Kafka's names."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


_NON_EXISTENT, _NEW, _ONLINE, _OFFLINE = PartitionState

VALID_PREVIOUS_STATES: Mapping[PartitionState, tuple[PartitionState, ...]] = {
    _NON_EXISTENT: (_OFFLINE,),
    _NEW: (_NON_EXISTENT,),
    _ONLINE: (_NEW, _ONLINE, _OFFLINE),
    _OFFLINE: (_NEW, _ONLINE, _OFFLINE),
}
"""State -> the states from which a partition may move there."""


def state_of_partition(partition: PartitionRecord | None) -> PartitionState:
    """What the image says of a partition; None: it has no such partition."""
    if partition is None:
        return _NON_EXISTENT
    return _OFFLINE if partition.leader == NO_LEADER else _ONLINE


def partition_path(
    before: PartitionRecord | None, after: PartitionRecord | None, *, is_creation: bool = False
) -> tuple[PartitionState, ...]:
    """The states that a partition goes through from `before` to `after`, the last one its new one.

    `is_creation`: `after` is the first record of a partition that is being created, with its topic or as it grows. It
    goes through NewPartition, wherever it comes from: over an existing partition that is illegal.
    """
    if after is None:
        return (_NON_EXISTENT,) if state_of_partition(before) is _OFFLINE else (_OFFLINE, _NON_EXISTENT)
    target = state_of_partition(after)
    return (_NEW, target) if is_creation else (target,)


def illegal_partition_step(
    topic_partition: TopicPartition, current: PartitionState, path: tuple[PartitionState, ...]
) -> str:
    """Why a partition in state `current` may not go along `path`, in Kafka's words; empty when it may."""
    for target in path:
        if current not in VALID_PREVIOUS_STATES[target]:
            legal = ",".join(VALID_PREVIOUS_STATES[target])
            return (
                f"Partition {topic_partition} should be in one of {legal} states before moving to {target} state. "
                f"Instead it is in {current} state"
            )
        current = target
    return ""
