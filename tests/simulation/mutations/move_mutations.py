"""Deliberate bugs in moves between places, and in partitions whose replicas have tables in several."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from unittest.mock import patch

from stratalog.replication.controller.domains import moves
from stratalog.replication.leader.partition import Partition
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.progress.progress import ReplicaProgress
from tests.simulation.cluster import Setting
from tests.simulation.mutations.mutation import COMPLETE, NO_FOCUS, Mutation, mix

MOVES = Setting(brokers=4, moves=True, in_domain=True, pause_ms_max=30)
FROM_ROOTS = Setting(brokers=4, moves=True, pause_ms_max=30, configs=(("min.insync.replicas", "2"),))
LOST = (*COMPLETE, "MonotonicHighWatermark", "NoDuplicates", "NoDuplicateSequence")


def a_table_leads_that_is_still_copied() -> AbstractContextManager[object]:
    """All replicas change to a table as soon as one has it, whatever that lacks."""

    def in_shared_table(state: PartitionRecord) -> PartitionRecord | None:
        there = {state.domain_of(r) for r in state.replicas} - {""}
        changed = {r: domain for r, domain in moves._to_move(state) if domain in there}
        return moves._placed(state, changed) if changed else None

    return patch.object(moves, "_in_shared_table", in_shared_table)


def a_leaders_table_is_taken_for_all() -> AbstractContextManager[object]:
    """A leader in a storage domain commits by its table alone, also where others are in the ISR."""
    original = Partition.maybe_increment_high_watermark

    def maybe_increment(partition: Partition, now_ms: int, lag_ms_max: int) -> bool:
        if partition.state.domain_of(partition.broker_id):
            return partition._commit_all()
        return original(partition, now_ms, lag_ms_max)

    return patch.object(Partition, "maybe_increment_high_watermark", maybe_increment)


def progress_counts_for_every_table() -> AbstractContextManager[object]:
    """What one follower has copied is taken for what all have."""

    def follower_progressed(partition: Partition, replica: int, progress: ReplicaProgress, now_ms: int) -> bool:
        if replica not in partition.followers or progress.leader_epoch != partition.leader_epoch:
            return False
        moved = [partition._progressed(each, progress, now_ms) for each in partition.followers.values()]
        return True in moved

    return patch.object(Partition, "follower_progressed", follower_progressed)


MOVE_MUTATIONS: Mapping[str, Mutation] = {
    "table leads that is still copied": Mutation(
        a_table_leads_that_is_still_copied, LOST, mix(crash=1, slow_store=1), FROM_ROOTS
    ),
    "leader's table is taken for all": Mutation(
        a_leaders_table_is_taken_for_all, LOST, mix(crash=2, restart_all=1, cut_from_domain=1), MOVES
    ),
    "progress counts for every table": Mutation(
        progress_counts_for_every_table, LOST, mix(NO_FOCUS, crash=2, restart_all=1), MOVES
    ),
}
