"""Coordinators under crashes, pauses, cut links, lost answers and parked storage calls, by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from unittest.mock import patch

import pytest

from replication.hosted_shard import HostedShard
from replication.leader_replica import LeaderReplica
from replication.requests import ACKS_LEADER, HandedFiles, ProduceRequest
from storage.errors import StratalogError
from tests.simulation.coordinators import LISTS, start_askers
from tests.simulation.run import Outcome, quiet, setting_of, simulate

SEEDS = 60


def run(seed: int, mutation: Callable[[], AbstractContextManager[object]] = nullcontext) -> Outcome:
    with quiet(), mutation():
        return simulate(seed, setting=replace(setting_of(seed), coordinators=LISTS, workload=start_askers))


@pytest.mark.parametrize("first_seed", range(0, SEEDS, 20))
def test_nobody_gets_two_answers_and_no_answer_is_taken_back(first_seed: int) -> None:
    outcomes = [run(seed) for seed in range(first_seed, first_seed + 20)]
    assert {o.seed: str(o.violation) for o in outcomes if o.violation is not None} == {}
    assert sum(outcome.answered for outcome in outcomes) > 100, "the runs must do some work"


# -- what happens without a rule -------------------------------------------------------------------------


def answered_by_the_leader_alone() -> AbstractContextManager[object]:
    """Answers are told before the records are replicated."""
    return patch("replication.hosted_shard.ACKS_ALL", ACKS_LEADER)


@contextmanager
def appended_under_any_epoch() -> Iterator[None]:
    """Whoever leads takes a decision of an earlier epoch."""
    refusal = LeaderReplica._refusal

    def of_any_epoch(self: LeaderReplica, request: ProduceRequest | HandedFiles) -> StratalogError | None:
        if isinstance(request, ProduceRequest):
            request = replace(request, expected_leader_epoch=None)
        return refusal(self, request)

    with patch.object(LeaderReplica, "_refusal", of_any_epoch):
        yield


def kept_after_a_failed_append() -> AbstractContextManager[object]:
    """A shard goes on with what its log does not have."""
    return patch.object(HostedShard, "_fail", lambda _self, _reason, _token=-1: None)


@pytest.mark.parametrize(
    ("mutation", "seeds"),
    [
        (answered_by_the_leader_alone, (0, 2, 8)),
        (appended_under_any_epoch, (34, 65, 111, 360)),
        (kept_after_a_failed_append, (4, 12, 37)),
    ],
)
def test_without_this_rule_an_invariant_breaks(
    mutation: Callable[[], AbstractContextManager[object]], seeds: tuple[int, ...]
) -> None:
    """A change of the product may change what a seed does, so one of several is enough."""
    broken = [seed for seed in seeds if run(seed, mutation).violation is not None]
    assert broken
    assert run(broken[0]).violation is None, "with all rules the same seed is clean"
