"""Deliberate bugs about requests that outlive their sender's patience, or the topic that they name."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import replace
from random import Random
from unittest.mock import patch

from stratalog.replication.leader.append_queue import AppendQueue
from stratalog.replication.leader.delete_records import RecordDeletions
from stratalog.replication.metadata.log import METADATA_PARTITION
from stratalog.storage.delta.commit_race import StoredCommit
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.objects.port import always
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from tests.simulation.cluster import Setting
from tests.simulation.faults import Faults, Focus
from tests.simulation.mutations.mutation import COMPLETE, NO_FOCUS, Mutation, mix
from tests.storage.memory_table import MemoryLogTable

RECREATED = Setting(recreates=True, producers=4, pause_ms_max=30)


def open_appends_are_forgotten() -> AbstractContextManager[object]:
    """What a lost request did not commit by the time of its failure is never committed, so it is made again."""
    return patch.object(PartitionLog, "_outcome_of_open", lambda *_: None)


def deletions_ask_before() -> AbstractContextManager[object]:
    """What stands in a table's place is deleted, whatever it is by now: it was asked about before."""
    drop = MemoryLogTable.drop

    def asked_before(self: MemoryLogTable, is_still: Callable[[], bool] = always) -> bool:
        if not is_still():
            return False
        self._disk.access("delete", self._name, "_delta_log")
        return drop(self)

    return patch.object(MemoryLogTable, "drop", asked_before)


def appends_by_name() -> AbstractContextManager[object]:
    """A waiting batch goes to whichever topic has the name when the leader's loop gets to it."""
    distribute = AppendQueue._distribute

    def by_name(self: AppendQueue, now_ms: int) -> None:
        for waiting in self._inbound:
            if (led := self._leaders.get(waiting.request.topic_partition)) is not None:
                named = IdentifiedPartition(led.topic_id, waiting.request.topic_partition)
                waiting.request = replace(waiting.request, partition=named)
        distribute(self, now_ms)

    return patch.object(AppendQueue, "_distribute", by_name)


def deletions_by_name() -> AbstractContextManager[object]:
    """A request to delete records goes to whichever topic has the name when the leader's loop gets to it."""
    step = RecordDeletions.step

    def by_name(self: RecordDeletions, live: Collection[int]) -> set[TopicPartition]:
        for request in self._inbound:
            request.wanted = {named(self, each): offset for each, offset in request.wanted.items()}
        return step(self, live)

    def named(self: RecordDeletions, partition: IdentifiedPartition) -> IdentifiedPartition:
        led = self._leaders.get(partition.topic_partition)
        return partition if led is None else partition._replace(topic_id=led.topic_id)

    return patch.object(RecordDeletions, "step", by_name)


def tables_without_ids() -> AbstractContextManager[object]:
    """A commit names no table: one that arrives late in the place of a deleted table is damage of the next one."""
    return patch.object(StoredCommit, "is_of_another", lambda *_: False)


def what_is_known_is_durable() -> AbstractContextManager[object]:
    """Commits whose answer was lost are said again without a sync."""
    sync_others = PartitionLog.sync_others

    def of_metadata_alone(log: PartitionLog) -> None:
        if str(METADATA_PARTITION) in log.name:
            sync_others(log)

    return patch.multiple(PartitionLog, sync_others=of_metadata_alone, _sync_epoch=of_metadata_alone)


def _twice(focus: Focus, park_ms_max: int = 2_000, **weights: int) -> Callable[[Random], Faults]:
    """Of a seed: requests arrive twice, the second time later."""

    def mixed(rng: Random) -> Faults:
        return replace(mix(focus, park_ms_max, **weights)(rng), doubled=0.3, lost_request=0.03, late=0.9)

    return mixed


def _unanswered(rng: Random) -> Faults:
    """Answers are lost, with those to the question what was stored, and later the power."""
    return replace(mix(power_cut=4, power_cut_of_all=2, restart_all=3)(rng), lost_answer=0.03, outage_ms=100)


def _late(focus: Focus = NO_FOCUS, lost_request: float = 0.03, **weights: int) -> Callable[[Random], Faults]:
    """Of a seed: requests are lost, and arrive later."""

    def mixed(rng: Random) -> Faults:
        return replace(mix(focus, **weights)(rng), lost_request=lost_request, late=0.9)

    return mixed


LATE_MUTATIONS: dict[str, Mutation] = {
    "late appends": Mutation(
        open_appends_are_forgotten, ("NoDuplicates", "NoDuplicateSequence"), _late(crash=1), Setting(pause_ms_max=30)
    ),
    "appends by name": Mutation(appends_by_name, ("OwnTopic",), mix(pause_broker=4, slow_store=2), RECREATED),
    "tables without ids": Mutation(
        tables_without_ids,
        ("NotOffline", "Liveness"),
        _twice(Focus("create", 0.3, "f", "/t-0/"), 500, removed_table=4),
        Setting(pause_ms_max=300),
    ),
    "known is durable": Mutation(
        what_is_known_is_durable, ("Liveness", *COMPLETE), _unanswered, Setting(brokers=2, recreates=True)
    ),
    "deletions ask before": Mutation(
        deletions_ask_before, (), mix(Focus("delete", 0.5, "", "/u"), restart_all=1, crash=2), RECREATED
    ),
    "deletions by name": Mutation(
        deletions_by_name, ("DeletedAsAsked",), _late(pause_broker=4, slow_store=2), RECREATED
    ),
}
