"""One simulated run: a seed gives the faults, the workload and the interleaving; then everything heals."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from random import Random

from storage.records import TopicPartition
from tests.simulation.cluster import METADATA_ROOT, TOPIC, SimCluster
from tests.simulation.invariants import Violation
from tests.simulation.scheduler import Faults


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended; `violation` None means that all invariants held."""

    seed: int
    steps: int
    acked: int
    leader_epochs: int
    violation: Violation | None
    story: tuple[str, ...]


def simulate(seed: int, *, duration_ms: int = 8_000, faults: Faults | None = None, partitions: int = 1) -> Outcome:
    """Run one seed: `duration_ms` of virtual time with faults, then until all is well again."""
    faults = faults or Faults.drawn(Random(seed))
    sim = SimCluster(seed, partitions=partitions, min_isr=1 + seed % 2, faults=faults)
    violation: Violation | None = None
    try:
        sim.set_up()
        sim.start_clients()
        _trouble(sim, duration_ms)
        _heal(sim)
        _check_end(sim)
    except Violation as found:
        violation = found
    epochs = sum(state.leader_epoch for state in sim.invariants.partitions.values())
    sim.scheduler.kill(list(sim.scheduler.actors))
    return Outcome(seed, sim.scheduler.steps, len(sim.invariants.acked), epochs, violation, tuple(sim.told))


def run_seeds(first_seed: int, count: int) -> list[Outcome]:
    """Several seeds one after the other, without the log lines that faults cause."""
    logging.disable(logging.CRITICAL)
    try:
        return [simulate(seed) for seed in range(first_seed, first_seed + count)]
    finally:
        logging.disable(logging.NOTSET)


def _trouble(sim: SimCluster, duration_ms: int) -> None:
    rng = sim.scheduler.random
    end_ms = sim.scheduler.now_ms + duration_ms
    while sim.scheduler.now_ms < end_ms:
        sim.scheduler.run_until(sim.scheduler.now_ms + rng.randrange(200, 1_500))
        weights = sim.scheduler.faults.weights
        if any(weights):
            rng.choices(TROUBLES, weights)[0](sim)


def _crash_or_restart(sim: SimCluster) -> None:
    broker_id = sim.scheduler.random.choice(list(sim.hosts))
    if sim.hosts[broker_id].broker is None:
        sim.tell(f"restart of broker {broker_id}")
        sim.start_host(broker_id)
    else:
        sim.crash(broker_id)


def _restart_all(sim: SimCluster) -> None:
    for broker_id, host in sim.hosts.items():
        if host.broker is None:
            sim.tell(f"restart of broker {broker_id}")
            sim.start_host(broker_id)


def _pause_broker(sim: SimCluster) -> None:
    rng = sim.scheduler.random
    sim.pause(f"host-{rng.choice(list(sim.hosts))}", rng.randrange(100, 3_000))


def _pause_session(sim: SimCluster) -> None:
    rng = sim.scheduler.random
    sessions = _sessions(sim)
    if sessions:
        sim.pause(rng.choice(sessions), rng.randrange(500, 5_000))


def _cut_broker(sim: SimCluster) -> None:
    """The broker is thought dead, but leads on: a zombie with clients and followers."""
    rng = sim.scheduler.random
    sim.cut(f"host-{rng.choice(list(sim.hosts))}", METADATA_ROOT, rng.randrange(500, 4_000))


def _cut_session(sim: SimCluster) -> None:
    rng = sim.scheduler.random
    sessions = _sessions(sim)
    if sessions:
        sim.cut(rng.choice(sessions), METADATA_ROOT, rng.randrange(500, 4_000))


def _sessions(sim: SimCluster) -> list[str]:
    return [actor.host for actor in sim.scheduler.actors if actor.host.startswith("fetch-")]


TROUBLES = (_crash_or_restart, _restart_all, _pause_broker, _pause_session, _cut_broker, _cut_session)


def _heal(sim: SimCluster) -> None:
    """No more faults: every partition gets a leader, every follower catches up (liveness)."""
    sim.scheduler.faults.is_on = False
    for broker_id, host in sim.hosts.items():
        if host.broker is None or host.broker.stopped_by is not None:
            sim.scheduler.kill(host.actors)
            sim.start_host(broker_id)
    sim.scheduler.run_until(sim.scheduler.now_ms + 20_000, lambda: _is_well(sim))
    if not _is_well(sim):
        states = {str(tp): state for tp, state in sim.invariants.partitions.items()}
        raise Violation("Liveness", f"20 s after the last fault not every replica is in sync: {states}")


def _is_well(sim: SimCluster) -> bool:
    for topic_partition, state in sim.invariants.partitions.items():
        if len(state.isr) < len(state.replicas):
            return False
        logs = [sim.invariants.log_of(broker_id, topic_partition) for broker_id in state.replicas]
        if any(log != logs[0] for log in logs):
            return False
    return bool(sim.invariants.partitions)


def _check_end(sim: SimCluster) -> None:
    for partition in range(sim.partitions):
        topic_partition = TopicPartition(TOPIC, partition)
        leader = sim.invariants.partitions[topic_partition].leader
        content = sim.invariants.log_of(leader, topic_partition)
        for (known, offset), value in sim.invariants.acked.items():
            if known == topic_partition and content.get(offset) != value:
                raise Violation(
                    "AckedRecordsNotLost", f"{topic_partition} offset {offset}: {value!r}, has {content.get(offset)!r}"
                )
        for (known, offset), read in sim.invariants.read.items():
            if known == topic_partition and content.get(offset) != read:
                raise Violation(
                    "ConsistentRead", f"{topic_partition} offset {offset}: {read!r}, has {content.get(offset)!r}"
                )
