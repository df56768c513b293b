"""Deliberate bugs of coordinators, groups and transactions, as `mutations` has those of the log's protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from random import Random
from unittest.mock import patch

from stratalog.replication.controller.brokers import OfflineReplica, report_offline
from stratalog.replication.coordinator.groups import migration
from stratalog.replication.coordinator.groups.classic.group import ClassicGroup
from stratalog.replication.coordinator.groups.committed_offsets import CommittedOffsets
from stratalog.replication.coordinator.groups.modern.group import ModernGroup
from stratalog.replication.coordinator.groups.modern.member import Reconciliation
from stratalog.replication.coordinator.groups.modern.requests import ModernGroups
from stratalog.replication.coordinator.runtime.hosted_shard import HostedShard
from stratalog.replication.coordinator.runtime.runtime import CoordinatorRuntime
from stratalog.replication.leader.append_queue import AppendQueue
from stratalog.replication.leader.replica import LeaderReplica
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.requests.produce import ACKS_LEADER, HandOverRequest, ProduceRequest
from stratalog.replication.requests.transactions import TRANSACTION_VERSION_0
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import NO_PRODUCER_ID, TopicPartition
from tests.simulation.coordinators.consumer_members import epochs_begin_anew
from tests.simulation.coordinators.coordinated import Clients, simulate_coordinated
from tests.simulation.coordinators.coordinators import LISTS, start_askers
from tests.simulation.faults import Faults, Focus
from tests.simulation.mutations.mutation import Patches
from tests.simulation.run import Outcome, setting_of, simulate

# -- coordinators of lists -------------------------------------------------------------------------------


def answered_by_the_leader_alone() -> AbstractContextManager[object]:
    """Answers are sent before the records are replicated."""
    return patch("stratalog.replication.coordinator.runtime.hosted_shard.ACKS_ALL", ACKS_LEADER)


@contextmanager
def appended_under_any_epoch() -> Iterator[None]:
    """A leader accepts a decision of an earlier epoch, also one that waited in its queue since."""
    refusal, overtaken = LeaderReplica._refusal, patch.object(AppendQueue, "arrives_in", lambda *_: None)

    def of_any_epoch(self: LeaderReplica, request: ProduceRequest | HandOverRequest) -> StratalogError | None:
        if isinstance(request, ProduceRequest):
            request = replace(request, expected_leader_epoch=None)
        return refusal(self, request)

    with patch.object(LeaderReplica, "_refusal", of_any_epoch), overtaken:
        yield


def kept_after_a_failed_append() -> AbstractContextManager[object]:
    """A shard continues with state that its log does not have."""
    return patch.object(HostedShard, "_fail", lambda _self, _reason, _token=-1: None)


# -- the tables of coordinators --------------------------------------------------------------------------


def absent_tables_are_lost_ones() -> AbstractContextManager[object]:
    """What a leader found without its table counts under later states, also when the others have left the ISR."""

    def report(
        image: ClusterImage, broker_id: int, broker_epoch: int, offline: Iterable[OfflineReplica]
    ) -> Result[tuple[TopicPartition, ...]]:
        known = [(each, image.state_of(each.partition)) for each in offline]
        counted = [each._replace(partition_epoch=state.partition_epoch) for each, state in known if state is not None]
        return report_offline(image, broker_id, broker_epoch, counted)

    return patch("stratalog.replication.broker.isr_changes.report_offline", report)


# -- classic groups and transactions ---------------------------------------------------------------------


def reads_are_answered_from_memory() -> AbstractContextManager[object]:
    """A deposed coordinator that does not know it answers from its state, as in Kafka."""

    def confirm(self: CoordinatorRuntime, _now_ms: int) -> None:
        for topic_partition in self._reading:
            self._shards[topic_partition].confirm()
        self._reading.clear()

    return patch.object(CoordinatorRuntime, "_confirm_reads", confirm)


@contextmanager
def offsets_count_before_the_commit() -> Iterator[None]:
    """A transaction's offsets count once they are stored."""
    replay = CommittedOffsets.replay

    def at_once(
        self: CommittedOffsets, group_id: str, partition: TopicPartition, value: object, _producer_id: int
    ) -> bool:
        return replay(self, group_id, partition, value, NO_PRODUCER_ID)  # type: ignore[arg-type]

    with patch.object(CommittedOffsets, "replay", at_once):
        yield


def members_of_any_generation_commit() -> AbstractContextManager[object]:
    """A former member may commit, in any generation of the group."""
    return patch.object(ClassicGroup, "validate_offset_commit", lambda *_: None)


# -- groups of KIP-848 -----------------------------------------------------------------------------------


def partitions_move_before_they_are_given_up() -> AbstractContextManager[object]:
    """A partition is assigned at once to the member of the target assignment."""
    return patch.object(Reconciliation, "_is_free", lambda *_: True)


def members_of_any_epoch_commit() -> AbstractContextManager[object]:
    """A former member may commit, in any epoch."""
    return patch.object(ModernGroup, "validate_offset_commit", lambda *_: None)


@contextmanager
def sessions_end_with_their_coordinator() -> Iterator[None]:
    """A new coordinator waits for members that died meanwhile for ever; here for twenty sessions."""
    with (
        patch.object(ModernGroups, "loaded", lambda *_: None),
        patch("tests.simulation.coordinators.coordinated.END_MS", 14_000),
    ):
        yield


def upgraded_members_own_nothing() -> AbstractContextManager[object]:
    """A group that becomes a modern one forgets what its members of the classic protocol still use."""
    upgraded = migration._upgraded
    return patch.object(migration, "_upgraded", lambda *given: replace(upgraded(*given), assigned={}))


# -- the runs that find them -------------------------------------------------------------------

LATE = Clients(late=0.3)
FENCED = Clients(fenced=0.5)
CONSUMERS = Clients(names=(), members=0, consumers=3)
MIXED = replace(CONSUMERS, assignors=("cooperative-sticky",))
BEFORE_KIP_890 = Clients(TRANSACTION_VERSION_0, late=0.3)
"""Late requests: only the epoch of a producer identifies their transaction. Without its bump with each transaction a
delayed commit ends a later one."""


def run_lists(seed: int, faults: Faults | None = None) -> Outcome:
    """One seed of coordinators whose state is lists."""
    setting = replace(setting_of(seed), sinks=0, coordinators=LISTS, workload=start_askers)
    return simulate(seed, faults=faults, setting=setting)


def run_lists_cut_off(seed: int) -> Outcome:
    """As `run_lists`, with faults after which deposed coordinators do not know that they are deposed."""
    return run_lists(seed, _cut_off(Random(seed)))


def run_mixed(seed: int) -> Outcome:
    """One seed of a group that changes its protocol to and fro."""
    with epochs_begin_anew():
        return simulate_coordinated(seed, clients=MIXED)[0]


def _cut_off(rng: Random) -> Faults:
    """Brokers that are regarded as dead lead on, as they cannot reach the metadata log."""
    return Faults(
        switch=rng.choice([0.1, 0.3]),
        park=rng.choice([0.0, 0.001]),
        lost_request=0,
        lost_answer=0,
        trouble_ms=rng.choice([400, 800]),
        weights={"cut broker": 4, "pause broker": rng.choice([0, 2]), "pause controller": 1, "restart all": 1},
    )


def _started_late(rng: Random) -> Faults:
    """The first leader of a new topic is slow to begin, so nobody has a table when it is started again; others too."""
    return Faults(
        switch=rng.choice([0.1, 0.3]),
        focus=Focus("create", rng.choice([0.2, 0.5]), "b", "/__"),
        lost_request=0,
        lost_answer=0,
        trouble_ms=300,
        weights={"second process": 4, "pause broker": 3, "pause controller": 2, "restart all": 2},
    )


def _with(clients: Clients, faults: Callable[[Random], Faults] | None = None) -> Callable[[int], Outcome]:
    """Runs with these clients, under the usual faults or this mix."""

    def run(seed: int) -> Outcome:
        return simulate_coordinated(seed, clients=clients, faults=faults(Random(seed)) if faults else None)[0]

    return run


@dataclass(frozen=True, slots=True)
class CoordinatorMutation:
    """A rule switched off.

    run         a seed with the rule, where `patches` are not applied
    invariants  one of these breaks; empty: any
    run_off     a seed without the rule, if that needs another run
    """

    patches: Patches
    run: Callable[[int], Outcome]
    invariants: tuple[str, ...] = ()
    run_off: Callable[[int], Outcome] | None = None


COORDINATOR_MUTATIONS: dict[str, CoordinatorMutation] = {
    "lists: acks one": CoordinatorMutation(answered_by_the_leader_alone, run_lists),
    "lists: any epoch": CoordinatorMutation(appended_under_any_epoch, run_lists_cut_off),
    "lists: failed append": CoordinatorMutation(kept_after_a_failed_append, run_lists),
    "absent coordinators": CoordinatorMutation(
        absent_tables_are_lost_ones, _with(Clients(members=0), _started_late), ("Liveness",)
    ),
    "one epoch for transactions": CoordinatorMutation(nullcontext, _with(LATE), run_off=_with(BEFORE_KIP_890)),
    "reads from memory": CoordinatorMutation(reads_are_answered_from_memory, _with(LATE, _cut_off)),
    "coordinators: acks one": CoordinatorMutation(answered_by_the_leader_alone, _with(LATE)),
    "offsets before the commit": CoordinatorMutation(offsets_count_before_the_commit, _with(LATE)),
    "any generation": CoordinatorMutation(members_of_any_generation_commit, _with(FENCED)),
    "moved before given up": CoordinatorMutation(
        partitions_move_before_they_are_given_up, _with(CONSUMERS), ("OneOwner", "FencedEpoch")
    ),
    "any member epoch": CoordinatorMutation(
        members_of_any_epoch_commit, _with(CONSUMERS), ("FencedEpoch", "CommittedOffset")
    ),
    "sessions end": CoordinatorMutation(sessions_end_with_their_coordinator, _with(CONSUMERS), ("Liveness",)),
    "upgraded with nothing": CoordinatorMutation(
        upgraded_members_own_nothing, run_mixed, ("OneOwner", "FencedEpoch", "CommittedOffset")
    ),
}
