"""The demo's topic moves to three other brokers under load, its controller is killed halfway: nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.jobs.demo.run import DURABLE, PARTITIONS, TOPIC
from stratalog.jobs.topics.reassign_partitions import main
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from tests.domains import only_in_roots
from tests.lab.real.harness.history import ACK, FAIL, SEND, History, assert_clean
from tests.lab.real.harness.parties import HighWatermarkWatch, Reader, Writer, events_with_replicas
from tests.waiting import wait_until

OLD, NEW = (1, 2, 3), (4, 5, 6)
SETTINGS = {
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 200,
    "replica.lag.time.max.ms": 2_000,
}
ALL = ",".join(f"{TOPIC}-{p}" for p in range(PARTITIONS))
SLOW, FAST = "500", "1000000000"
"""The throttle in bytes a second: with the first no copy ends within minutes, so the controller dies during the move on
slow machines, too; with the second the move ends."""
ACKS_BEFORE = 3_000
ACKS_AWAITED = 300

Tool = Callable[..., list[str]]


@pytest.mark.timeout(300)
def test_a_topic_moves_under_load_and_outlives_its_controller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only_in_roots("a move copies, and takes time")
    history = History(tmp_path / "history.jsonl")
    with Cluster.start(tmp_path / "cluster", brokers=6, fetcher="thread", config=SETTINGS) as cluster:
        tool = tool_of(cluster, capsys)
        admin = Admin(cluster)
        configs = {**DURABLE, "file.delete.delay.ms": 1_000}
        rotated = {p: rotated_by(OLD, p) for p in range(PARTITIONS)}
        admin.create_topics([NewTopic(TOPIC, configs=configs, replica_assignment=rotated)])
        plan = plan_file(tmp_path)
        with (
            HighWatermarkWatch(cluster.root, TOPIC, history),
            Reader(cluster.root, TOPIC, history, "reader"),
            Writer(cluster, TOPIC, history, "writer-1", pause_s=0.01),
            Writer(cluster, TOPIC, history, "writer-2", pause_s=0.01, max_in_flight=1),
        ):
            await_acks(history, ACKS_BEFORE)
            started = tool("--execute", "--throttle", SLOW, "--reassignment-json-file", plan)
            assert started[-1] == f"Successfully started partition reassignments for {ALL}"
            await_acks(history)
            kill_the_controller_in_the_middle(cluster, admin, tool, plan)
            await_acks(history)
            tool("--execute", "--additional", "--throttle", FAST, "--reassignment-json-file", plan)
            wait_until(lambda: admin.list_partition_reassignments() == {}, "the end of the reassignment")
            await_acks(history)
            wait_until(lambda: all_in_sync(admin), "all new replicas in sync")
        wait_until(lambda: all_alive(admin), "brokers that a busy machine had fenced")
        assert tool("--verify", "--reassignment-json-file", plan) == [
            "Status of partition reassignment:",
            *(f"Reassignment of partition {TOPIC}-{p} is completed." for p in range(PARTITIONS)),
            "",
            "Clearing broker-level throttles on brokers 1,2,3,4,5,6",
            f"Clearing topic-level throttles on topic {TOPIC}",
        ]
        Reader(cluster.root, TOPIC, history, "late-reader").start().stop()
        wait_until(lambda: directories(cluster, OLD) == [], "the old replicas deleted")
        events = events_with_replicas(history, cluster.path, TOPIC, NEW, PARTITIONS)
    assert [event.value for event in events if event.kind == FAIL] == []
    assert history.counts[ACK] == history.counts[SEND]
    assert_clean(events)


def rotated_by(brokers: tuple[int, ...], partition: int) -> list[int]:
    first = partition % len(brokers)
    return [*brokers[first:], *brokers[:first]]


def plan_file(folder: Path) -> str:
    """Each partition to the new brokers, led by another one of them."""
    rows = [{"topic": TOPIC, "partition": p, "replicas": rotated_by(NEW, p)} for p in range(PARTITIONS)]
    path = folder / "plan.json"
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(path)


def tool_of(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Tool:
    """The reassign-partitions tool; the lines it prints."""

    def run(*arguments: str) -> list[str]:
        capsys.readouterr()
        assert main.call(["--root", cluster.root, *arguments]) == 0
        return capsys.readouterr().out.splitlines()

    return run


def kill_the_controller_in_the_middle(cluster: Cluster, admin: Admin, tool: Tool, plan: str) -> None:
    """Kill the controller during the copies, wait until another broker is the controller, and restart it."""
    before = admin.describe_cluster()
    assert len(admin.list_partition_reassignments()) == PARTITIONS
    states = tool("--verify", "--reassignment-json-file", plan)[1 : 1 + PARTITIONS]
    assert states == [f"Reassignment of partition {TOPIC}-{p} is still in progress." for p in range(PARTITIONS)]
    cluster.kill(before.controller_id)
    wait_until(lambda: admin.describe_cluster().controller_epoch > before.controller_epoch, "another controller")
    assert len(admin.list_partition_reassignments()) == PARTITIONS, "a plan outlives its controller"
    cluster.restart(before.controller_id)


def await_acks(history: History, count: int = ACKS_AWAITED) -> None:
    enough = history.counts[ACK] + count
    wait_until(lambda: history.counts[ACK] > enough, f"{count} more acknowledgements")


def all_in_sync(admin: Admin) -> bool:
    states = admin.describe_topics([TOPIC])[TOPIC].partitions
    return all(set(state.isr) == set(state.replicas) == set(NEW) and state.leader in NEW for state in states)


def all_alive(admin: Admin) -> bool:
    """True when the tool lists every broker as alive."""
    return not any(broker.fenced for broker in admin.describe_cluster().brokers)


def directories(cluster: Cluster, broker_ids: tuple[int, ...]) -> list[Path]:
    """The topic's replica directories on these brokers."""
    return [found for i in broker_ids for found in (cluster.path / f"broker-{i}").glob(f"{TOPIC}-*")]
