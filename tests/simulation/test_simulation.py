"""The protocol under crashes, pauses, cut links, lost answers and parked storage calls, by seed.

A failing seed prints itself; `python -m tests.simulation --seeds 1 --first-seed N` prints its story.
"""

from __future__ import annotations

import pytest

from stratalog.replication.follower.sessions.heartbeats import RESTING
from stratalog.replication.progress.progress import writer_state
from tests.simulation.clients import Admin, start_clients
from tests.simulation.cluster import Setting, SimCluster
from tests.simulation.faults import Faults
from tests.simulation.run import STEPS_MIN, repeatable, run_seeds, simulate

SEEDS = 100
"""`make simulate` runs 20,000."""


@pytest.mark.parametrize("first_seed", range(0, SEEDS, 50))
def test_all_invariants_hold_in_every_run(first_seed: int) -> None:
    outcomes = run_seeds(first_seed, 50)
    bad = {outcome.seed: str(outcome.violation) for outcome in outcomes if outcome.violation is not None}
    assert bad == {}, f"run `python -m tests.simulation --seeds 1 --first-seed {next(iter(bad), 0)}`"
    assert sum(outcome.acked for outcome in outcomes) > 400, "the runs must do some work"
    assert sum(outcome.leader_epochs for outcome in outcomes) > 25, "and leaders must change"
    assert min(outcome.steps for outcome in outcomes) >= STEPS_MIN


def test_one_seed_is_one_history() -> None:
    first, second = simulate(7), simulate(7)
    assert (first.steps, first.story) == (second.steps, second.story)


def test_sessions_rest_where_storage_is_polled_until_there_is_work() -> None:
    """Runs of seeds whose storage reports no writes go through this, too."""
    sim = SimCluster(1, Faults(), Setting(configs=(("min.insync.replicas", "2"),), notifies=False))

    def resting() -> int:
        contents = [content for host in sim.hosts.values() for content in sim.objects(host.root).objects.values()]
        return [writer_state(content) for content in contents].count(RESTING)

    with repeatable(), sim.metadata_model.watching():
        sim.set_up()
        sim.scheduler.run_until(sim.scheduler.now_ms + 3_000, lambda: resting() == len(sim.hosts), poll_ms=50)
        assert resting() == len(sim.hosts)
        start_clients(sim, 2)
        sim.scheduler.run_until(sim.scheduler.now_ms + 1_500, lambda: sim.invariants.acked_count > 20, poll_ms=50)
        assert sim.invariants.acked_count > 20
        sim.scheduler.kill(list(sim.scheduler.actors))


def test_an_admin_that_wakes_after_the_faults_does_nothing() -> None:
    """The end of a run is checked when all is at rest: a reassignment that begins there has not ended."""
    sim = SimCluster(1, Faults(), Setting())
    sim.set_up()
    before = len(sim.event_log)
    sim.scheduler.spawn("a0", "client-a0", Admin(sim).run)
    sim.scheduler.run_until(sim.scheduler.now_ms + 20)
    sim.scheduler.end_faults()
    sim.scheduler.run_until(sim.scheduler.now_ms + 1_000)
    assert sim.event_log[before:] == []
    sim.scheduler.kill(list(sim.scheduler.actors))
