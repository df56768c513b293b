"""KIP-848 groups, and groups that change to that protocol and back, by seed.

Under crashes, pauses, cut links, lost answers and members that hang.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.coordinators.consumer_members import epochs_begin_anew
from tests.simulation.coordinators.coordinated import simulate_coordinated
from tests.simulation.coordinators.coordinator_mutations import CONSUMERS, MIXED
from tests.simulation.run import quiet

SEEDS = 12


@pytest.mark.parametrize("first_seed", range(0, SEEDS, 12))
def test_a_partition_has_one_member_and_the_group_becomes_stable(first_seed: int) -> None:
    with quiet():
        outcomes = [simulate_coordinated(seed, clients=CONSUMERS)[0] for seed in range(first_seed, first_seed + 12)]
    assert {o.seed: str(o.violation) for o in outcomes if o.violation is not None} == {}
    assert sum(outcome.answered for outcome in outcomes) > 15, "the runs must do some work"


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_group_that_changes_its_protocol_to_and_fro(assignor: str) -> None:
    with quiet(), epochs_begin_anew():
        clients = replace(MIXED, assignors=(assignor,))
        outcomes = [simulate_coordinated(seed, clients=clients)[0] for seed in range(SEEDS // 2)]
    assert {o.seed: str(o.violation) for o in outcomes if o.violation is not None} == {}
    assert sum(outcome.answered for outcome in outcomes) > 5, "the runs must do some work"
