"""Deliberate bugs of transactions of clients before KIP-890, whose transactions share an epoch of their producer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

from stratalog.replication.requests.transactions import TRANSACTION_VERSION_0
from stratalog.storage.producers import ProducerStates
from tests.simulation.coordinators.coordinated import Clients, simulate_coordinated
from tests.simulation.coordinators.coordinator_mutations import CoordinatorMutation
from tests.simulation.faults import Faults
from tests.simulation.run import Outcome

GIVING_UP = Clients(TRANSACTION_VERSION_0, late=0.0, members=0, gives_up=True)
UNFINISHED = ("Liveness", "NothingAborted", "WholeOrNot", "ExactlyOnce", "LastStableOffset")


@contextmanager
def batches_are_not_verified() -> Iterator[None]:
    """A log takes any batch that follows the producer's last one, as before KIP-890: one that comes behind the marker
    of its transaction begins another one, which nobody ends. Here for 40 s."""
    with (
        patch.object(ProducerStates, "check_transactional", lambda *_: None),
        patch("tests.simulation.coordinators.coordinated.END_MS", 40_000),
    ):
        yield


def _calm(rng: Random) -> Faults:
    """Few troubles: it is the network that delays batches, and transactions are many."""
    return Faults(
        switch=rng.choice([0.1, 0.2]),
        park=0.0,
        lost_request=0.0,
        lost_answer=0.0,
        trouble_ms=1_500,
        weights={"pause broker": 1, "pause session": 1},
    )


def _run(seed: int) -> Outcome:
    return simulate_coordinated(seed, clients=GIVING_UP, faults=_calm(Random(seed)))[0]


TRANSACTION_MUTATIONS: dict[str, CoordinatorMutation] = {
    "unverified batches": CoordinatorMutation(batches_are_not_verified, _run, UNFINISHED),
}
