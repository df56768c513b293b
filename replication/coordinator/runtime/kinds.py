"""The coordinators' state machines: the shard factory of each internal topic. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stratalog.replication.coordinator.groups.shard import group_shard
from stratalog.replication.coordinator.shard.shard import ShardFactory
from stratalog.replication.coordinator.transactions.shard import TransactionShard
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.groups import PartitionsDeleted
from stratalog.storage.records import TopicPartition


@dataclass(frozen=True, slots=True)
class CoordinatorKind:
    """A coordinator's state machine.

    make                its shard factory
    partitions_deleted  makes the request that notifies each shard of deleted partitions; None if it has none
    """

    make: ShardFactory
    partitions_deleted: Callable[[tuple[TopicPartition, ...]], object] | None = None


COORDINATOR_KINDS: Mapping[CoordinatorType, CoordinatorKind] = {
    CoordinatorType.GROUP: CoordinatorKind(group_shard, PartitionsDeleted),
    CoordinatorType.TRANSACTION: CoordinatorKind(TransactionShard.at),
}
"""Default of a broker."""
