"""Groups and transactions under crashes, pauses, cut links, lost answers and late requests, by seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from unittest.mock import patch

import pytest

from replication.committed_offsets import CommittedOffsets
from replication.coordinator_runtime import CoordinatorRuntime
from replication.group import ClassicGroup
from replication.requests import ACKS_LEADER
from replication.transaction_requests import TRANSACTION_VERSION_0
from storage.records import NO_PRODUCER_ID, TopicPartition
from tests.simulation.coordinated import COMMITTING, ENDING, Clients, simulate_coordinated
from tests.simulation.run import Outcome, quiet

SEEDS = 24
STATES = (
    *("folding", "PreparingRebalance", "CompletingRebalance", "Stable", COMMITTING),
    *("Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", ENDING),
)
"""Of join, sync, commit and end-transaction."""


def run(
    seed: int, mutation: Callable[[], AbstractContextManager[object]] = nullcontext, clients: Clients | None = None
) -> tuple[Outcome, Counter[str]]:
    with quiet(), mutation():
        return simulate_coordinated(seed, clients=clients)


@pytest.mark.parametrize("first_seed", range(0, SEEDS, 12))
def test_transactions_and_groups_hold_in_every_run(first_seed: int) -> None:
    outcomes = [run(seed)[0] for seed in range(first_seed, first_seed + 12)]
    assert {o.seed: str(o.violation) for o in outcomes if o.violation is not None} == {}
    assert sum(outcome.answered for outcome in outcomes) > 50, "the runs must do some work"


@pytest.mark.slow
@pytest.mark.long
def test_coordinators_are_killed_in_every_state() -> None:
    killed_in: Counter[str] = Counter()
    for seed in range(1_000, 1_100):
        outcome, states = run(seed)
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


def any_generation_commits() -> AbstractContextManager[object]:
    """A member that was fenced goes on with its generation."""
    return patch.object(ClassicGroup, "validate_offset_commit", lambda self, *arguments: None)


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


LATE = Clients(late=0.3)
BEFORE_KIP_890 = Clients(TRANSACTION_VERSION_0, late=0.3)
"""Requests come late, and nothing but the epoch of a producer tells of which transaction they are: without its bump
with each transaction a delayed commit ends a later one."""


@pytest.mark.parametrize(
    ("mutation", "clients", "seeds"),
    [
        (nullcontext, BEFORE_KIP_890, (0,)),
        (reads_are_told_from_memory, LATE, (0,)),
        (answered_by_the_leader_alone, LATE, (0,)),
        (any_generation_commits, LATE, (0,)),
        (offsets_count_before_the_commit, LATE, (0,)),
    ],
)
def test_without_this_rule_an_invariant_breaks(
    mutation: Callable[[], AbstractContextManager[object]], clients: Clients, seeds: tuple[int, ...]
) -> None:
    """A change of the product may change what a seed does, so one of several is enough."""
    broken = [seed for seed in seeds if run(seed, mutation, clients)[0].violation is not None]
    assert broken
    assert run(broken[0], clients=LATE)[0].violation is None, "with all rules the same seed is clean"
