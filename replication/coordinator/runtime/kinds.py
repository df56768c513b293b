"""Which coordinators there are: what makes the shards of each internal topic. Pure."""

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
    """What there is to know of a kind of coordinator.

    make                what makes its shards
    partitions_deleted  the request that tells each shard of partitions that are gone; None when it need not know
    """

    make: ShardFactory
    partitions_deleted: Callable[[tuple[TopicPartition, ...]], object] | None = None


COORDINATOR_KINDS: Mapping[CoordinatorType, CoordinatorKind] = {
    CoordinatorType.GROUP: CoordinatorKind(group_shard, PartitionsDeleted),
    CoordinatorType.TRANSACTION: CoordinatorKind(TransactionShard.at),
}
"""What a broker hosts unless it is told otherwise."""
