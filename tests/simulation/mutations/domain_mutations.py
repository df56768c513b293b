"""Deliberate bugs in a storage domain, where a deposed leader and its successor write to one table.

The commit race and the epoch in the table are the only fence between them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from random import Random
from unittest.mock import patch

from stratalog.replication.broker.hosted_replicas import HostedReplicas
from stratalog.replication.controller.brokers import IsrChange
from stratalog.replication.leader.partition import Partition
from stratalog.replication.leader.replica import AppendGroup, LeaderReplica
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.storage.delta.table import Conflict
from stratalog.storage.errors import StoreUnavailableError, StratalogError
from stratalog.storage.files.data_file import DataFile
from stratalog.storage.log.append import Appended
from stratalog.storage.upkeep.chore import UpkeepDone, UpkeepView
from stratalog.storage.upkeep.chores import Vacuum
from stratalog.storage.upkeep.merge_plan import MergePlan
from stratalog.storage.upkeep.merging import Merging
from tests.simulation.clients import Admin
from tests.simulation.cluster import QUICK_UPKEEP, Setting
from tests.simulation.faults import Faults, Focus
from tests.simulation.mutations.late_mutations import open_appends_are_forgotten
from tests.simulation.mutations.log_mutations import (
    conflicts_are_not_read_back,
    no_epoch_check_on_commits,
    orphaned_commits_count,
    time_does_not_pass,
)
from tests.simulation.mutations.mutation import COMPLETE, NO_FOCUS, Mutation, mix
from tests.storage.memory_table import MemoryLogTable

IN_DOMAIN = Setting(in_domain=True)
BUSY = Setting(in_domain=True, upkeep=QUICK_UPKEEP, pause_ms_max=20)
TWICE = ("NoDuplicates", "NoDuplicateSequence", *COMPLETE)


def answered_before_the_commit() -> AbstractContextManager[object]:
    """A leader takes a commit for made whose outcome it does not know."""
    original = LeaderReplica._append

    def append(replica: LeaderReplica, group: AppendGroup) -> Appended | Conflict:
        try:
            return original(replica, group)
        except StoreUnavailableError:
            left = replica.log._open_append
            if left is None:
                raise
            replica.log._open_append = None
            return left.appended

    return patch.object(LeaderReplica, "_append", append)


@contextmanager
def folders_without_the_topics_id() -> Iterator[None]:
    """The table of a topic is found by its name alone."""

    def topic_folder(topic: str, _topic_id: str) -> str:
        return topic

    with (
        patch("stratalog.replication.metadata.storage_domains.topic_folder", topic_folder),
        patch("tests.simulation.invariants.topic_folder", topic_folder),
    ):
        yield


def deposed_leaders_delete_what_is_in_doubt() -> AbstractContextManager[object]:
    """A leader that is deposed takes an append whose outcome it does not know for lost, and deletes its data file."""
    original = LeaderReplica.resign

    def resign(replica: LeaderReplica, error: StratalogError) -> None:
        left = replica.log._open_append
        original(replica, error)
        if left is not None:
            replica.log.table.delete_objects([entry.path for entry in left.appended.files])

    return patch.object(LeaderReplica, "resign", resign)


def lost_merges_delete_what_they_replace() -> AbstractContextManager[object]:
    """A leader that slept deletes the files that its merge was to replace, though another leader has committed since
    and its table names them."""
    original = Merging._lost

    def lost(merging: Merging, plan: MergePlan, view: UpkeepView, file: DataFile | None) -> UpkeepDone:
        if plan.copied is None:
            view.log.table.delete_objects([entry.path for entry in plan.files])
        return original(merging, plan, view, file)

    return patch.object(Merging, "_lost", lost)


def _hedged(focus: Focus = NO_FOCUS, **weights: int) -> Callable[[Random], Faults]:
    """Of a seed: requests are slow and made again beside themselves, and few are lost."""

    def mixed(rng: Random) -> Faults:
        return replace(mix(focus, **weights)(rng), doubled=0.3)

    return mixed


def _late(focus: Focus = NO_FOCUS, **weights: int) -> Callable[[Random], Faults]:
    """Of a seed: requests are given up and arrive later, and answers are lost."""

    def mixed(rng: Random) -> Faults:
        return replace(mix(focus, **weights)(rng), lost_request=0.03, lost_answer=0.01, late=0.9, doubled=0.05)

    return mixed


@contextmanager
def leaders_keep_their_domain() -> Iterator[None]:
    """A leader that cannot reach its domain tries on, and reports nothing. No admin moves leaderships either."""
    with patch.object(HostedReplicas, "give_way", lambda *_: None), patch.object(Admin, "run", lambda *_: None):
        yield


@contextmanager
def offline_replicas_join() -> Iterator[None]:
    """A leader adds each live replica to the ISR, also one that reported that it cannot reach the domain."""
    original = Partition.may_join

    def may_join(partition: Partition, live: Collection[int], *, again: bool = False) -> set[int]:
        state, partition.state = partition.state, replace(partition.state, offline=())
        try:
            return original(partition, live, again=again)
        finally:
            partition.state = state

    def check_isr(_image: ClusterImage, _current: PartitionRecord, _change: IsrChange) -> None:
        return

    with (
        patch.object(Partition, "may_join", may_join),
        patch("stratalog.replication.controller.brokers._check_isr", check_isr),
    ):
        yield


def _cut_off(rng: Random) -> Faults:
    """Little but cuts between a broker and the domain, which last."""
    return replace(mix(cut_from_domain=1)(rng), trouble_ms=4_500, park=0.0)


def unnamed_files_stay() -> AbstractContextManager[object]:
    """Nothing looks for files that no commit names."""
    return patch.object(Vacuum, "begin", lambda *_: None)


def strays_stay() -> AbstractContextManager[object]:
    """Nothing looks for commits that late requests make where clean-up has been."""
    return patch.object(MemoryLogTable, "delete_strays", lambda *_: 0)


def _late_twice(rng: Random) -> Faults:
    return replace(_late(crash=1, restart_all=1)(rng), doubled=0.3)


DOMAIN_MUTATIONS: Mapping[str, Mutation] = {
    "append without epoch in a domain": Mutation(
        no_epoch_check_on_commits,
        ("MonotonicLeaderEpoch", "LogMatching", "NoDuplicates", "NoDuplicateSequence"),
        mix(Focus("create", 0.2, "b", "/t-0/"), 2_000, pause_broker=3, cut_broker=3, second_process=2, restart_all=1),
        IN_DOMAIN,
    ),
    "answered before the commit": Mutation(
        answered_before_the_commit, ("AckedRecordsNotLost", "ConsistentRead"), mix(crash=1, restart_all=1), IN_DOMAIN
    ),
    "orphaned commits in a domain": Mutation(
        orphaned_commits_count,
        ("CommitsFollow", *COMPLETE, "MonotonicHighWatermark"),
        mix(Focus("create", 0.3, "b", "lake"), 4_000, pause_broker=3, cut_broker=2, crash=1, restart_all=2),
        Setting(in_domain=True, upkeep=QUICK_UPKEEP, pause_ms_max=20),
        8_000,
    ),
    "folders by name": Mutation(
        folders_without_the_topics_id,
        ("OwnTopic", "CommittedFilesStand", "Liveness", *COMPLETE),
        mix(Focus("create", 0.2, "b", "lake"), 2_000, pause_broker=2, crash=1, restart_all=2),
        Setting(in_domain=True, recreates=True),
        6_000,
    ),
    "hedge that commits twice": Mutation(conflicts_are_not_read_back, TWICE, _hedged(crash=1), IN_DOMAIN),
    "late appends in a domain": Mutation(
        open_appends_are_forgotten, TWICE, _late(crash=1), Setting(in_domain=True, pause_ms_max=30)
    ),
    "deposed leader deletes an append": Mutation(
        deposed_leaders_delete_what_is_in_doubt,
        ("CommittedFilesStand",),
        _late(Focus("create:done", 0.2, "b", "lake"), cut_from_domain=3, cut_broker=3, pause_broker=2, restart_all=1),
        BUSY,
    ),
    "deposed leader deletes a merge": Mutation(
        lost_merges_delete_what_they_replace,
        ("CommittedFilesStand",),
        mix(Focus("create", 0.3, "b", "lake"), 3_000, pause_broker=3, cut_broker=3, second_process=2, restart_all=1),
        BUSY,
        6_000,
    ),
    "slept past a clean-up in a domain": Mutation(
        time_does_not_pass,
        ("CommitsFollow", *COMPLETE),
        mix(Focus("create", 0.3, "b", "lake"), 4_000, pause_broker=3, second_process=2, crash=1, restart_all=2),
        Setting(in_domain=True, upkeep=QUICK_UPKEEP, pause_ms_max=30),
        8_000,
    ),
    "leaders keep their domain": Mutation(leaders_keep_their_domain, ("GivesWay",), _cut_off, IN_DOMAIN, 30_000),
    "offline replicas join": Mutation(offline_replicas_join, ("InSyncCanServe",), _cut_off, IN_DOMAIN, 15_000),
    "unnamed files stay": Mutation(
        unnamed_files_stay,
        ("NothingOrphaned",),
        _late(crash=3, restart_all=2),
        Setting(in_domain=True, upkeep=QUICK_UPKEEP),
    ),
    "strays stay": Mutation(strays_stay, ("NothingOrphaned",), _late_twice, BUSY),
}
