"""Reassignment of partitions and its throttles, as changes of the metadata log (KIP-455, KIP-73).

I/O: through a `ClusterView`. The rules are in `replication.controller.reassignment` and `replication.follower.quota`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from stratalog.replication.controller.reassignment import (
    PartitionReassignment,
    Target,
    alter_partition_reassignments,
    list_partition_reassignments,
)
from stratalog.replication.follower.quota import Move, clear_throttles, set_throttle
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig


def alter_reassignments(
    view: ClusterView, targets: Mapping[TopicPartition, Target], *, allow_replication_factor_change: bool
) -> dict[TopicPartition, StratalogError | None]:
    """See `Admin.alter_partition_reassignments`."""

    def decide(image: ClusterImage) -> Result[dict[TopicPartition, StratalogError | None]]:
        def may_be_unclean(topic: str) -> bool:
            return LogConfig.from_properties(image.topic_config(topic)).unclean_leader_election_enable

        return alter_partition_reassignments(
            image, targets, unclean_of=may_be_unclean, allow_replication_factor_change=allow_replication_factor_change
        )

    return view.propose(decide)


def list_reassignments(
    view: ClusterView, topic_partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, PartitionReassignment]:
    """See `Admin.list_partition_reassignments`."""
    view.refresh()
    return list_partition_reassignments(view.image, topic_partitions)


def moves_of_replicas(
    under_way: Mapping[TopicPartition, PartitionReassignment],
    current: Mapping[TopicPartition, Sequence[int]],
    proposed: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Move]:
    """The moves of `proposed` and those under way: the brokers to copy from, and the brokers to copy to.

    current  the replicas of the proposed partitions as of now
    Source: `ReassignPartitionsCommand.calculateProposedMoveMap`.
    """
    moves = {
        named: Move(frozenset(each.replicas) - frozenset(each.adding), frozenset(each.adding))
        for named, each in under_way.items()
    }
    for named, replicas in proposed.items():
        known = moves.get(named)
        sources = known.sources if known is not None else frozenset(current[named])
        moves[named] = Move(sources, frozenset(replicas) - sources)
    return moves


def throttle(view: ClusterView, proposed: Mapping[TopicPartition, Sequence[int]], bytes_per_s: int) -> None:
    """See `Admin.throttle`."""
    view.refresh()
    current = {named: view.partition_state(named).replicas for named in proposed}
    moves = moves_of_replicas(list_partition_reassignments(view.image), current, proposed)
    view.propose(lambda image: set_throttle(image, moves, bytes_per_s))


def unthrottle(view: ClusterView, topics: Collection[str]) -> None:
    """See `Admin.unthrottle`."""
    view.propose(lambda image: clear_throttles(image, topics))
