"""Rounds of random brokers killed and restarted under acks=all producers: nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from tests.lab.real.harness.history import ACK, FAIL, SEND, History, assert_clean
from tests.lab.real.harness.parties import HighWatermarkWatch, Reader, Writer, events_with_replicas
from tests.waiting import wait_until

SEED = int(os.environ.get("STRATALOG_KILL_SEED", "20"))
BROKERS = (1, 2, 3)
PARTITIONS = 4
TOPIC = "survivors"
SESSIONS = {
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 5_000,
}
ACKS_AWAITED = 150


@pytest.mark.timeout(300)
@pytest.mark.parametrize("rounds", [5, pytest.param(30, marks=[pytest.mark.slow, pytest.mark.long])])
def test_rounds_of_killed_brokers_lose_nothing(rounds: int, tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    rng = random.Random(SEED)
    with Cluster.start(tmp_path / "cluster", fetcher="thread", config=SESSIONS) as cluster:
        admin = Admin(cluster)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": 2})])
        with (
            HighWatermarkWatch(cluster.root, TOPIC, history),
            Reader(cluster.root, TOPIC, history, "reader"),
            Writer(cluster, TOPIC, history, "writer-1", pause_s=0.02),
            Writer(cluster, TOPIC, history, "writer-2", pause_s=0.02, max_in_flight=1),
        ):
            wait_until(lambda: history.counts[ACK] > ACKS_AWAITED, "the first acknowledgements")
            for _ in range(rounds):
                kill_and_restart(cluster, admin, history, rng)
            wait_until(lambda: all_in_sync(admin), "all replicas in sync again")
        Reader(cluster.root, TOPIC, history, "late-reader").start().stop()
        assert leader_epochs(admin) >= rounds
        events = events_with_replicas(history, cluster.path, TOPIC, BROKERS, PARTITIONS)
    assert_everything_was_answered(history)
    assert_clean(events)


def kill_and_restart(cluster: Cluster, admin: Admin, history: History, rng: random.Random) -> None:
    """One round: one broker or two, mostly the leader of some partition; what is awaited in between varies."""
    states = admin.describe_topics([TOPIC])[TOPIC].partitions
    leaders = sorted({state.leader for state in states if state.leader in BROKERS})
    victims = rng.sample(BROKERS, 2) if rng.random() < 0.2 else [rng.choice(leaders or BROKERS)]
    for victim in victims:
        cluster.kill(victim)
    if len(victims) == 1 and rng.random() < 0.7:
        wait_until(lambda: is_led_without(admin, victims[0]), f"other leaders than broker {victims[0]}")
        await_acks(history)
    for victim in victims:
        cluster.restart(victim)
    await_acks(history)
    if rng.random() < 0.5:
        wait_until(lambda: all_in_sync(admin), "all replicas in sync")


def await_acks(history: History) -> None:
    enough = history.counts[ACK] + ACKS_AWAITED
    wait_until(lambda: history.counts[ACK] > enough, f"{ACKS_AWAITED} more acknowledgements")


def is_led_without(admin: Admin, victim: int) -> bool:
    states = admin.describe_topics([TOPIC])[TOPIC].partitions
    return all(state.leader not in (victim, -1) or set(state.isr) == {victim} for state in states)


def leader_epochs(admin: Admin) -> int:
    """The sum of leader epochs: a run without a failover would prove nothing."""
    return sum(state.leader_epoch for state in admin.describe_topics([TOPIC])[TOPIC].partitions)


def all_in_sync(admin: Admin) -> bool:
    return all(len(state.isr) == len(BROKERS) for state in admin.describe_topics([TOPIC])[TOPIC].partitions)


def assert_everything_was_answered(history: History) -> None:
    """Every record was acknowledged: a producer that may wait two minutes has no error in such a run."""
    assert [event.value for event in history.events() if event.kind == FAIL] == []
    assert history.counts[ACK] == history.counts[SEND]
