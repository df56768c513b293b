"""Groups and transactions under crashes, pauses, cut links, lost answers and late requests, by seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from random import Random
from unittest.mock import patch

import pytest

from replication.committed_offsets import CommittedOffsets
from replication.coordinator_runtime import CoordinatorRuntime
from replication.group import ClassicGroup
from replication.requests import ACKS_LEADER
from replication.transaction_requests import TRANSACTION_VERSION_0
from storage.records import NO_PRODUCER_ID, TopicPartition
from storage.transactions import Transactions
from tests.simulation.coordinated import COMMITTING, ENDING, Clients, simulate_coordinated
from tests.simulation.faults import Faults
from tests.simulation.run import COMPACTED, Outcome, quiet

SEEDS = 24
CLEANED = (*COMPACTED, ("delete.retention.ms", "300"))
STATES = (
    *("folding", "PreparingRebalance", "CompletingRebalance", "Stable", COMMITTING),
    *("Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", ENDING),
)
"""Of join, sync, commit and end-transaction."""


def run(seed: int) -> tuple[Outcome, Counter[str]]:
    with quiet():
        return simulate_coordinated(seed)


@pytest.mark.parametrize("first_seed", range(0, SEEDS, 12))
def test_transactions_and_groups_hold_in_every_run(first_seed: int) -> None:
    outcomes = [run(seed)[0] for seed in range(first_seed, first_seed + 12)]
    assert {o.seed: str(o.violation) for o in outcomes if o.violation is not None} == {}
    assert sum(outcome.answered for outcome in outcomes) > 50, "the runs must do some work"


@pytest.mark.parametrize("first_seed", range(0, 12, 6))
def test_transactions_hold_where_the_topic_is_compacted(first_seed: int) -> None:
    """Aborted records and old markers go from each replica by itself, soon."""
    dropped: Counter[bool] = Counter()

    def counted(known: Transactions, end_offset: int) -> Transactions:
        after = without_aborted(known, end_offset)
        dropped[True] += len(known.aborted) - len(after.aborted)
        return after

    without_aborted = Transactions.without_aborted
    with quiet(), patch.object(Transactions, "without_aborted", counted):
        outcomes = [simulate_coordinated(seed, configs=CLEANED)[0] for seed in range(first_seed, first_seed + 6)]
    assert {o.seed: str(o.violation) for o in outcomes if o.violation is not None} == {}
    assert sum(outcome.answered for outcome in outcomes) > 25, "the runs must do some work"
    assert dropped[True] > 5, "and the cleaner, too"


def test_a_deposed_coordinator_under_which_the_metadata_log_was_cleaned_up_tells_nothing_old() -> None:
    assert run(3602)[0].violation is None


def test_what_a_power_cut_just_before_the_last_fault_took_is_known_before_the_run_ends() -> None:
    """Of a partition whose only replica it was. Nothing else ailed, so the run was looked at before the restart."""
    assert run(600_082)[0].violation is None


@pytest.mark.slow
@pytest.mark.long
def test_coordinators_are_killed_in_every_state() -> None:
    killed_in: Counter[str] = Counter()
    with quiet():
        for seed in range(1_000, 1_050):
            weights = {"crash": 3, "restart all": 3}
            outcome, states = simulate_coordinated(seed, faults=Faults(trouble_ms=250, weights=weights))
            assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
            killed_in += states
    assert {state: killed_in[state] for state in STATES if not killed_in[state]} == {}


# -- what happens without a rule -------------------------------------------------------------------------


def reads_are_told_from_memory() -> AbstractContextManager[object]:
    """Whoever was deposed and does not know it tells what it has, as in Kafka."""

    def confirm(self: CoordinatorRuntime, _now_ms: int) -> None:
        for topic_partition in self._reading:
            self._shards[topic_partition].confirm()
        self._reading.clear()

    return patch.object(CoordinatorRuntime, "_confirm_reads", confirm)


def answered_by_the_leader_alone() -> AbstractContextManager[object]:
    """Answers are told before the records are replicated."""
    return patch("replication.hosted_shard.ACKS_ALL", ACKS_LEADER)


@contextmanager
def offsets_count_before_the_commit() -> Iterator[None]:
    """A transaction's offsets count as soon as they are stored."""
    replay = CommittedOffsets.replay

    def at_once(
        self: CommittedOffsets, group_id: str, partition: TopicPartition, value: object, _producer_id: int
    ) -> bool:
        return replay(self, group_id, partition, value, NO_PRODUCER_ID)  # type: ignore[arg-type]

    with patch.object(CommittedOffsets, "replay", at_once):
        yield


def members_of_any_generation_commit() -> AbstractContextManager[object]:
    """Whoever was a member may commit, in whatever generation the group is."""
    return patch.object(ClassicGroup, "validate_offset_commit", lambda *_: None)


LATE = Clients(late=0.3)
FENCED = Clients(fenced=0.5)
BEFORE_KIP_890 = Clients(TRANSACTION_VERSION_0, late=0.3)
"""Requests come late, and nothing but the epoch of a producer tells of which transaction they are: without its bump
with each transaction a delayed commit ends a later one."""


def cut_off(rng: Random) -> Faults:
    """Brokers that are thought dead lead on, as they cannot reach the metadata log."""
    return Faults(
        switch=rng.choice([0.1, 0.3]),
        park=rng.choice([0.0, 0.001]),
        lost_request=0,
        lost_answer=0,
        trouble_ms=rng.choice([400, 800]),
        weights={"cut broker": 4, "pause broker": rng.choice([0, 2]), "pause controller": 1, "restart all": 1},
    )


@pytest.mark.parametrize(
    ("mutation", "clients", "faults", "seeds"),
    [
        (nullcontext, BEFORE_KIP_890, None, (57, 79, 104)),
        (reads_are_told_from_memory, LATE, cut_off, (15, 33, 70)),
        (answered_by_the_leader_alone, LATE, None, (0, 1, 3)),
        (offsets_count_before_the_commit, LATE, None, (1, 2, 6)),
        (members_of_any_generation_commit, FENCED, None, (1, 2, 3)),
    ],
)
def test_without_this_rule_an_invariant_breaks(
    mutation: Callable[[], AbstractContextManager[object]],
    clients: Clients,
    faults: Callable[[Random], Faults] | None,
    seeds: tuple[int, ...],
) -> None:
    """A change of the product may change what a seed does, so one of several is enough."""

    def violated(seed: int, mutation: Callable[[], AbstractContextManager[object]], clients: Clients) -> bool:
        drawn = None if faults is None else faults(Random(seed))
        with quiet(), mutation():
            return simulate_coordinated(seed, clients=clients, faults=drawn)[0].violation is not None

    found = next((seed for seed in seeds if violated(seed, mutation, clients)), None)
    assert found is not None
    with_all_rules = LATE if clients is BEFORE_KIP_890 else clients
    assert not violated(found, nullcontext, with_all_rules), "with all rules the same seed is clean"
