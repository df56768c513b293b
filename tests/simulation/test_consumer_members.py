"""KIP-848 groups under crashes, pauses, cut links, lost answers and members that hang, by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from unittest.mock import patch

import pytest

from replication.consumer_group import ConsumerGroup
from replication.consumer_group_kind import ConsumerGroupKind
from replication.consumer_group_member import Reconciliation
from tests.simulation.coordinated import Clients, simulate_coordinated
from tests.simulation.run import Outcome, quiet

CONSUMERS = Clients(names=(), members=0, consumers=3)
SEEDS = 24


def run(seed: int, mutation: Callable[[], AbstractContextManager[object]] = nullcontext) -> Outcome:
    with quiet(), mutation():
        return simulate_coordinated(seed, clients=CONSUMERS)[0]


@pytest.mark.parametrize("first_seed", range(0, SEEDS, 12))
def test_a_partition_has_one_member_and_the_group_settles(first_seed: int) -> None:
    outcomes = [run(seed) for seed in range(first_seed, first_seed + 12)]
    assert {o.seed: str(o.violation) for o in outcomes if o.violation is not None} == {}
    assert sum(outcome.answered for outcome in outcomes) > 25, "the runs must do some work"


# -- what happens without a rule -------------------------------------------------------------------------


def partitions_move_before_they_are_given_up() -> AbstractContextManager[object]:
    """Whoever a partition is meant for gets it at once."""
    return patch.object(Reconciliation, "_is_free", lambda *_: True)


def members_of_any_epoch_commit() -> AbstractContextManager[object]:
    """Whoever was a member may commit, in whatever epoch."""
    return patch.object(ConsumerGroup, "validate_offset_commit", lambda *_: None)


@contextmanager
def sessions_end_with_their_coordinator() -> Iterator[None]:
    """Who takes over waits for members that died meanwhile, for ever; here it is waited for twenty sessions."""
    with (
        patch.object(ConsumerGroupKind, "loaded", lambda *_: None),
        patch("tests.simulation.coordinated.END_MS", 14_000),
    ):
        yield


@pytest.mark.parametrize(
    ("mutation", "invariants", "seeds"),
    [
        (partitions_move_before_they_are_given_up, ("OneOwner", "FencedEpoch"), (0, 1, 2)),
        (members_of_any_epoch_commit, ("FencedEpoch", "CommittedOffset"), (4, 25, 26, 33)),
        (sessions_end_with_their_coordinator, ("Liveness",), (1, 2, 3)),
    ],
)
def test_without_this_rule_an_invariant_breaks(
    mutation: Callable[[], AbstractContextManager[object]], invariants: tuple[str, ...], seeds: tuple[int, ...]
) -> None:
    """A change of the product may change what a seed does, so one of several is enough."""

    def breaks(seed: int) -> bool:
        violation = run(seed, mutation).violation
        return violation is not None and violation.invariant in invariants

    found = next((seed for seed in seeds if breaks(seed)), None)
    assert found is not None
    assert run(found).violation is None, "with all rules the same seed is clean"
