"""`spark-submit jobs/broker.py`: a broker with Spark beside two that fetch in threads."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.producer.producer import Producer
from stratalog.server.admin.admin import NewTopic
from stratalog.server.view.cluster_view import ClusterView
from tests.lab.real.harness.broker_processes import PROJECT, BrokerProcess, BrokerProcesses, ClusterWatch
from tests.lab.real.harness.parties import replicas_are_equal
from tests.lab.real.processes.python_workers import children
from tests.lab.real.processes.standalone_spark import BIN, ENVIRONMENT
from tests.waiting import wait_until

SETTINGS = {"broker.session.timeout.ms": 6_000, "broker.heartbeat.interval.ms": 1_000}
TOPIC, SUBMITTED = "orders", 3
SPARK_SUBMIT = (*ENVIRONMENT, f"SPARK_CONF_DIR={PROJECT / 'conf'}", str(BIN / "spark-submit"))

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[BrokerProcesses]:
    """Brokers 1 and 2 in threads, broker 3 by spark-submit; a topic that all three follow or lead."""
    running = BrokerProcesses(tmp_path, SETTINGS)
    launcher = [*SPARK_SUBMIT, "--master", "local[*]", "jobs/broker.py"]
    running.by_id[SUBMITTED] = BrokerProcess(tmp_path, SUBMITTED, SETTINGS, "spark", launcher)
    with running:
        Admin(running.metadata_root).create_topics([NewTopic(TOPIC, 3, 3, {"min.insync.replicas": 3})])
        ClusterWatch(running.metadata_root, TOPIC).await_in_sync()
        yield running


def driver_of(submitted: BrokerProcess) -> int:
    """The Python process that spark-submit's JVM started."""
    (driver,) = [pid for pid in children(submitted.pid) if b"broker.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return driver


def has_left_in_order(metadata_root: str) -> bool:
    state = ClusterView(metadata_root).image.brokers[SUBMITTED]
    return state.fenced and state.clean_shutdown


def test_a_submitted_broker_replicates_by_spark_and_ends_with_0_after_sigterm(brokers: BrokerProcesses) -> None:
    submitted = brokers[SUBMITTED]
    assert "follower fetch by spark" in submitted.output()
    with Producer(brokers.metadata_root, acks="all") as producer:
        sent = [producer.send(TOPIC, f"order {i}", key=str(i)) for i in range(30)]
        assert all(each.result(60).offset >= 0 for each in sent)  # min.insync.replicas=3: by broker 3, too
    os.kill(driver_of(submitted), signal.SIGTERM)
    assert submitted.wait() == 0
    assert "Stopped.\n" in submitted.output()
    assert has_left_in_order(brokers.metadata_root)
    assert replicas_are_equal(brokers.folder, TOPIC, (1, 2, 3), 3)


def test_a_broker_whose_spark_ends_moves_its_leaderships_and_reports_it(brokers: BrokerProcesses) -> None:
    submitted = brokers[SUBMITTED]
    os.kill(submitted.pid, signal.SIGTERM)  # spark-submit's JVM, of whose end its Python process is not notified
    submitted.wait()
    log = submitted.root / "logs" / "server.log"  # its output goes through that JVM
    wait_until(lambda: "broker 3: shut down completed" in log.read_text(), "the end of its Python process")
    assert "broker 3 cannot follow any more: the Spark application has ended" in log.read_text()
    assert has_left_in_order(brokers.metadata_root)
