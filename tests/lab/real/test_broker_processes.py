"""Brokers as processes of their own: they form a cluster, refuse a second process, stop in order, survive kills."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import KafkaStorageError
from tests.lab.real.harness.broker_processes import ENVIRONMENT, PROJECT, BrokerProcess, BrokerProcesses, ClusterWatch
from tests.lab.real.harness.parties import replicas_are_equal
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {"broker.session.timeout.ms": 4_000, "broker.heartbeat.interval.ms": 500, "replica.lag.time.max.ms": 4_000}
TOPIC = "orders"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    """Three running brokers; a test that stops one starts it again."""
    with BrokerProcesses(tmp_path_factory.mktemp("processes"), SETTINGS) as running:
        yield running


def new_topic(brokers: BrokerProcesses, name: str, partitions: int = 3) -> ClusterWatch:
    Admin(brokers.metadata_root).create_topics([NewTopic(name, partitions, 3, {"min.insync.replicas": 2})])
    watch = ClusterWatch(brokers.metadata_root, name)
    watch.await_in_sync()
    return watch


def send(root: str, topic: str, values: list[str]) -> list[int]:
    with Producer(root, acks="all") as producer:
        return [each.result(60).offset for each in [producer.send(topic, value, key=value) for value in values]]


def values_of(root: str, topic: str, count: int) -> set[str]:
    with Consumer(root, auto_offset_reset="earliest") as consumer:
        consumer.assign_all(topic)
        found: list[str] = []
        wait_until(
            lambda: found.extend((r.value or b"").decode() for r in consumer.poll(200)) or len(found) >= count,
            "records",
        )
        return set(found)


@contextmanager
def another(folder: Path, broker_id: int, **overrides: object) -> Iterator[BrokerProcess]:
    """A broker process beside those of a cluster; its start is not awaited."""
    settings = SETTINGS | {name.replace("__", "."): value for name, value in overrides.items()}
    process = BrokerProcess(folder, broker_id, settings, "thread")
    process.output_file = folder / f"another-{broker_id}.out"
    process.start()
    try:
        yield process
    finally:
        if process.is_running:
            process.kill()


def test_three_processes_that_start_at_once_form_one_cluster(brokers: BrokerProcesses) -> None:
    greetings = [brokers[i].output() for i in (1, 2, 3)]
    ids = [re.match(rf"broker {i} of cluster (\w+)\n", text) for i, text in enumerate(greetings, start=1)]
    assert len({match[1] for match in ids if match}) == 1
    assert None not in ids
    view = ClusterView(brokers.metadata_root)
    assert sorted(view.image.live_brokers()) == [1, 2, 3]
    watch = ClusterWatch(brokers.metadata_root, TOPIC)
    wait_until(lambda: watch.controller() in (1, 2, 3), "a controller")


def test_what_one_process_produces_through_them_another_reads(brokers: BrokerProcesses) -> None:
    new_topic(brokers, TOPIC)
    sent = [f"order {i}" for i in range(50)]
    send(brokers.metadata_root, TOPIC, sent)
    assert values_of(brokers.metadata_root, TOPIC, 50) == set(sent)
    wait_until(lambda: replicas_are_equal(brokers.folder, TOPIC, (1, 2, 3), 3), "equal replicas")


def test_the_console_tools_work_with_brokers_in_other_processes(brokers: BrokerProcesses) -> None:
    new_topic(brokers, "typed", partitions=1)
    flags = ["--root", brokers.metadata_root, "--topic", "typed"]
    tool(["stratalog", "produce", *flags], "one\ntwo\n")
    assert tool(["stratalog", "consume", *flags, "--from-beginning", "--max-messages", "2"]) == "one\ntwo\n"


def tool(arguments: list[str], lines: str = "") -> str:
    ended = subprocess.run(
        [sys.executable, "-m", *arguments], input=lines, capture_output=True, text=True, timeout=60, env=ENVIRONMENT,
        cwd=PROJECT, check=True,
    )  # fmt: skip
    return ended.stdout


def test_sigterm_moves_the_leaderships_and_ends_with_0(brokers: BrokerProcesses) -> None:
    watch = new_topic(brokers, "handed-over")
    victim = watch.leaders()[0]
    assert brokers[victim].stop() == 0
    assert brokers[victim].output().endswith("Stopping ...\nStopped.\n")
    image = ClusterView(brokers.metadata_root).image
    assert (image.brokers[victim].fenced, image.brokers[victim].clean_shutdown) == (True, True)
    assert victim not in watch.leaders()
    assert send(brokers.metadata_root, "handed-over", ["after"]) == [0]
    brokers[victim].start()
    brokers[victim].await_started()
    watch.await_in_sync()


def test_a_killed_broker_is_fenced_by_the_others_and_comes_back(brokers: BrokerProcesses) -> None:
    watch = new_topic(brokers, "survives")
    victim = watch.controller()
    brokers[victim].kill()
    sent = [f"value {i}" for i in range(20)]
    send(brokers.metadata_root, "survives", sent)  # acknowledged by two, once the dead one is out of the ISR
    assert watch.controller() != victim
    brokers[victim].start()
    brokers[victim].await_started()
    watch.await_in_sync()
    assert values_of(brokers.metadata_root, "survives", 20) == set(sent)
    wait_until(lambda: replicas_are_equal(brokers.folder, "survives", (1, 2, 3), 3), "equal replicas")


def test_a_paused_broker_registers_anew_and_its_zombie_writes_do_not_count(brokers: BrokerProcesses) -> None:
    watch = new_topic(brokers, "paused")
    victim = watch.leaders()[0]
    brokers[victim].pause()
    try:
        wait_until(lambda: victim not in watch.leaders(), "other leaders")
        send(brokers.metadata_root, "paused", ["meanwhile"])
    finally:
        brokers[victim].resume()
    watch.await_in_sync()
    assert brokers[victim].is_running
    send(brokers.metadata_root, "paused", ["afterwards"])
    assert values_of(brokers.metadata_root, "paused", 2) == {"meanwhile", "afterwards"}
    wait_until(lambda: replicas_are_equal(brokers.folder, "paused", (1, 2, 3), 3), "equal replicas")


def test_a_second_process_on_the_same_root_is_refused(brokers: BrokerProcesses) -> None:
    with another(brokers.folder, 2) as second:
        assert second.wait() == 1
        assert second.output().startswith("ERROR KAFKA_STORAGE_ERROR: Failed to acquire lock on file .lock in ")
    assert brokers[2].is_running


def test_a_second_process_of_the_same_id_is_refused(brokers: BrokerProcesses, tmp_path: Path) -> None:
    with another(brokers.folder, 2, log__dirs=tmp_path / "elsewhere") as second:
        assert second.wait() == 1
        assert f"ERROR DUPLICATE_BROKER_REGISTRATION: broker 2 is live on {brokers[2].root} " in second.output()
    assert brokers[2].is_running


def test_an_embedded_cluster_on_roots_of_running_processes_is_refused(brokers: BrokerProcesses) -> None:
    with pytest.raises(KafkaStorageError, match=r"Failed to acquire lock on file \.lock"):
        Cluster.start(brokers.folder, fetcher="thread")
    assert all(brokers[i].is_running for i in (1, 2, 3))


def test_a_broker_whose_metadata_is_gone_does_not_create_a_new_cluster(tmp_path: Path) -> None:
    with BrokerProcesses(tmp_path, SETTINGS, broker_ids=(1,)) as brokers:
        assert brokers[1].stop() == 0
        shutil.move(tmp_path / "metadata", tmp_path / "unmounted")
        with another(tmp_path, 1) as again:
            assert again.wait() == 1
            assert "ERROR INCONSISTENT_CLUSTER_ID: " in again.output()
            assert "is it mounted" in again.output()
        assert not (tmp_path / "metadata").exists()


@pytest.fixture
def receives_ctrl_c() -> Iterator[None]:
    """Tests that run in the background ignore Ctrl-C, and so would the processes that they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("receives_ctrl_c")
def test_ctrl_c_while_it_starts_ends_it_in_order(tmp_path: Path) -> None:
    with another(tmp_path, 1) as starting:
        wait_until(lambda: (tmp_path / "broker-1" / ".lock").exists(), "its lock")
        os.kill(starting.pid, signal.SIGINT)
        assert starting.wait() == 0
        assert starting.output().endswith("Stopping ...\nStopped.\n")


@pytest.mark.parametrize(
    ("overrides", "error"),
    [
        ({"num__partition": 1}, "ERROR INVALID_CONFIG: Unknown broker config name: num.partition"),
        ({"broker__id": "two"}, "Invalid value two for configuration broker.id: Not a number of type INT"),
        ({"log__dirs": "a,b"}, "Invalid value a,b for configuration log.dirs: Value must be one directory"),
    ],
)
def test_wrong_settings_are_named_and_nothing_is_made(tmp_path: Path, overrides: dict[str, object], error: str) -> None:
    with another(tmp_path, 1, **overrides) as process:
        assert process.wait() == 1
        assert error in process.output()
    assert [path.name for path in tmp_path.iterdir()] == ["another-1.out"]


def test_a_process_joins_the_brokers_of_an_embedded_cluster(tmp_path: Path) -> None:
    """Its leaders are not in the process of the producer's cluster: they receive records through their inbox."""
    with (
        Cluster.start(tmp_path, brokers=2, fetcher="thread", config=SETTINGS) as cluster,
        BrokerProcesses(tmp_path, SETTINGS, broker_ids=(3,)),
    ):
        Admin(cluster).create_topics([NewTopic(TOPIC, replica_assignment={0: [3, 1], 1: [1, 3]})])
        ClusterWatch(cluster.root, TOPIC).await_in_sync()
        with Producer(cluster) as producer:
            sent = [producer.send(TOPIC, f"{i}", partition=i % 2) for i in range(40)]
            assert [each.result(30).offset for each in sent] == [i // 2 for i in range(40)]
        assert values_of(cluster.root, TOPIC, 40) == {str(i) for i in range(40)}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
def test_spark_source_and_sink_work_with_brokers_in_other_processes(
    brokers: BrokerProcesses, spark: SparkSession, tmp_path: Path
) -> None:
    new_topic(brokers, "sparks")
    root, rows = brokers.metadata_root, spark.range(100).selectExpr("string(id) AS key", "string(id) AS value")
    rows.write.format("stratalog").mode("append").option("stratalog.root", root).option("topic", "sparks").save()
    source = spark.readStream.format("stratalog").option("stratalog.root", root).option("subscribe", "sparks")
    new_topic(brokers, "copied")
    copied = source.option("startingOffsets", "earliest").load().select("key", "value").writeStream.format("stratalog")
    copied = copied.option("stratalog.root", root).option("topic", "copied").trigger(availableNow=True)
    copied.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(120)
    found = spark.read.format("stratalog").option("stratalog.root", root).option("subscribe", "copied").load()
    assert sorted(int(row.value) for row in found.collect()) == list(range(100))
