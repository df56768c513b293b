"""A broker on a standalone Spark cluster: its fetch sessions run on two machines, of which one is lost."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.producer.producer import Producer
from stratalog.server.admin.admin import NewTopic
from tests.lab.real.harness.broker_processes import BrokerProcess, BrokerProcesses, ClusterWatch
from tests.lab.real.harness.parties import replicas_are_equal
from tests.lab.real.processes.standalone_spark import Application, Machine, StandaloneSpark
from tests.waiting import wait_until

SETTINGS = {"broker.session.timeout.ms": 6_000, "broker.heartbeat.interval.ms": 1_000}
TOPIC, SUBMITTED = "orders", 3

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[StandaloneSpark]:
    with StandaloneSpark(tmp_path / "spark") as spark:
        yield spark


def brokers_with(tmp_path: Path, application: Application) -> BrokerProcesses:
    """Brokers 1 and 2 in threads, broker 3 by spark-submit to the cluster."""
    running = BrokerProcesses(tmp_path, SETTINGS)
    running.by_id[SUBMITTED] = BrokerProcess(tmp_path, SUBMITTED, SETTINGS, "auto", application.launcher)
    return running


def test_sessions_run_on_two_executors_and_one_machine_is_lost(tmp_path: Path, standalone: StandaloneSpark) -> None:
    application = standalone.application()
    with brokers_with(tmp_path, application) as brokers:
        assert "follower fetch by spark" in brokers[SUBMITTED].output()
        Admin(brokers.metadata_root).create_topics([NewTopic(TOPIC, 3, 3, {"min.insync.replicas": 2})])
        watch = ClusterWatch(brokers.metadata_root, TOPIC)
        watch.await_in_sync()
        application.await_tasks_on(2)
        pauses_s: list[float] = []
        with Producer(brokers.metadata_root, acks="all") as producer:

            def send(count: int) -> None:
                for number in range(count):
                    begun = time.monotonic()
                    assert producer.send(TOPIC, f"order {number}", key=str(number)).result(60).offset >= 0
                    pauses_s.append(time.monotonic() - begun)

            send(100)
            standalone.workers[0].kill()
            send(300)
        in_sync_s = watch.await_in_sync(60)
        print(f"longest pause {max(pauses_s):.1f} s, in sync after {in_sync_s:.1f} s more")
        assert max(pauses_s) <= SETTINGS["broker.session.timeout.ms"] / 1000
        for broker_id in (1, 2):
            brokers[broker_id].stop()
        assert replicas_are_equal(brokers.folder, TOPIC, (1, 2, 3), 3)


def test_executors_that_see_other_storage_leave_fetching_to_threads(tmp_path: Path) -> None:
    """Each worker has another file system where the brokers' roots are, as on another machine without the mount."""
    (tmp_path / "data").mkdir()
    hidden = f'mount -t tmpfs none {tmp_path / "data"} && exec "$0" "$@"'
    prefix = ("unshare", "--mount", "sh", "-c", hidden)
    if shutil.which("unshare") is None or subprocess.run([*prefix, "true"], check=False).returncode:
        pytest.skip("no mount namespaces here: they need root and unshare")
    machine = Machine(prefix=prefix)
    with (
        StandaloneSpark(tmp_path / "spark", (machine, machine)) as spark,
        brokers_with(tmp_path / "data", spark.application()) as brokers,
    ):
        submitted = brokers[SUBMITTED]
        assert "follower fetch by thread" in submitted.output()
        log = (submitted.root / "logs" / "server.log").read_text() + submitted.output()
        assert "does not reach" in log
        Admin(brokers.metadata_root).create_topics([NewTopic(TOPIC, 1, 3, {"min.insync.replicas": 3})])
        wait_until(ClusterWatch(brokers.metadata_root, TOPIC).is_in_sync, "all replicas in sync")
        with Producer(brokers.metadata_root, acks="all") as producer:
            assert producer.send(TOPIC, "stored by all three").result(60).offset == 0
