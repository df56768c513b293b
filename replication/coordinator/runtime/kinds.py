"""The coordinators' state machines: the shard factory of each internal topic. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from stratalog.replication.coordinator.groups.modern.topics import Matches, matching_topics
from stratalog.replication.coordinator.groups.shard import group_shard
from stratalog.replication.coordinator.shard.shard import ShardFactory
from stratalog.replication.coordinator.transactions.shard import TransactionShard
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.groups import PartitionsDeleted
from stratalog.storage.records import IdentifiedPartition


@dataclass(frozen=True, slots=True)
class CoordinatorKind:
    """A coordinator's state machine.

    make                its shard factory
    partitions_deleted  makes the request that notifies each shard of deleted partitions; None if it has none
    """

    make: ShardFactory
    partitions_deleted: Callable[[tuple[IdentifiedPartition, ...]], object] | None = None


def coordinator_kinds(matches: Matches = matching_topics) -> Mapping[CoordinatorType, CoordinatorKind]:
    """Those of a broker. `matches` resolves the regular expressions of groups."""
    return {
        CoordinatorType.GROUP: CoordinatorKind(partial(group_shard, matches=matches), PartitionsDeleted),
        CoordinatorType.TRANSACTION: CoordinatorKind(TransactionShard.at),
    }


COORDINATOR_KINDS = coordinator_kinds()
"""Those in which expressions are resolved at once."""
