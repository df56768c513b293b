"""Three brokers by spark-submit on a standalone cluster whose workers have networks of their own, on disks and on S3.

A worker is lost while records flow, and the demo runs on disks as on one machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stratalog.clients.admin.admin import Admin
from stratalog.clients.spark.registration import register_data_source
from stratalog.jobs.demo import run as demo
from stratalog.jobs.demo.clients import ClosedLoop, now_ms
from stratalog.jobs.demo.screen import Screen, print_verdict
from stratalog.server.admin.admin import NewTopic
from tests.lab.real.harness.broker_processes import ClusterWatch
from tests.lab.real.processes.standalone_spark import StandaloneSpark
from tests.lab.real.submitted.machines import machines
from tests.lab.real.submitted.submitted_brokers import WORKER_CORES, WORKER_MEMORY, SubmittedBrokers
from tests.stores import servers
from tests.waiting import wait_until

LOCAL, MOTO, VERSITY = "local", "s3_server", "versity_server"
SETTINGS = {"broker.session.timeout.ms": 6_000, "broker.heartbeat.interval.ms": 1_000}
OF_MOTO = SETTINGS | {
    # this server runs in one thread
    "stratalog.inbox.poll.ms": 200,
    "stratalog.metadata.poll.ms": 200,
    "stratalog.progress.poll.min.ms": 20,
    "stratalog.progress.poll.max.ms": 100,
}
TOPIC, PARTITIONS = "orders", 3
BEFORE, WATCHED_S = 100, 40
PAUSE_S_MAX, IN_SYNC_S_MAX = 4.0, 30.0

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]
STORES = [pytest.param(LOCAL), *(pytest.param(name, marks=pytest.mark.stores) for name in (MOTO, VERSITY))]
OF_THE_DEMO = [each for each in STORES if each.values != (MOTO,)]
"""The demo asks more of a server than moto gives."""


@pytest.fixture(params=STORES)
def parties(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[StandaloneSpark, SubmittedBrokers]]:
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        host, workers = stack.enter_context(machines(2))
        environment, url, settings = {}, str(tmp_path), SETTINGS
        if request.param != LOCAL:
            server = stack.enter_context(servers.S3_SERVERS[request.param](host))
            environment, url = dict(server.environment), server.new_root()
            settings = OF_MOTO if request.param == MOTO else SETTINGS
        for name, value in environment.items():
            patch.setenv(name, value)
        made = StandaloneSpark(tmp_path / "spark", workers, WORKER_CORES, WORKER_MEMORY, host)
        spark = stack.enter_context(made)
        yield spark, stack.enter_context(SubmittedBrokers(tmp_path, url, spark, settings, environment))


def test_a_lost_worker_pauses_acknowledgements_briefly(parties: tuple[StandaloneSpark, SubmittedBrokers]) -> None:
    spark, brokers = parties
    Admin(brokers.root).create_topics([NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": 2})])
    watch = ClusterWatch(brokers.root, TOPIC)
    watch.await_in_sync()
    brokers.await_sessions_on_both()
    loop = ClosedLoop(brokers, TOPIC, PARTITIONS)
    loop.start()
    wait_until(lambda: len(loop.acks) >= BEFORE or loop.failure, "records before", timeout_s=120)
    killed_ms = now_ms()
    spark.workers[0].kill()
    out_of_sync_s = 0.0
    while (passed_s := (now_ms() - killed_ms) / 1000) < WATCHED_S:
        if not watch.is_in_sync():
            out_of_sync_s = passed_s
        time.sleep(0.1)
    loop.end()
    before_s, pause_s = (
        max((ack.latency_ms for ack in loop.acks if (ack.acked_ms > killed_ms) == after), default=0) / 1000
        for after in (False, True)
    )
    count = sum(ack.acked_ms > killed_ms for ack in loop.acks)
    print(
        f"longest pause {pause_s:.1f} s ({before_s:.1f} s before), {count} records, ISR full by {out_of_sync_s:.1f} s"
    )
    assert count > 0
    assert pause_s <= PAUSE_S_MAX
    assert out_of_sync_s <= IN_SYNC_S_MAX


@contextmanager
def finding_the_store(spark: SparkSession, environment: Mapping[str, str]) -> Iterator[None]:
    """Let the session's queries find the store, whose server started after the session's JVM."""
    names = {f"spark.stratalog.storage.{name.lower().replace('_', '.')}": text for name, text in environment.items()}
    for name, text in names.items():
        spark.conf.set(name, text)
    register_data_source(spark)
    try:
        yield
    finally:
        for name in names:
            spark.conf.unset(name)
        register_data_source(spark)


@pytest.mark.parametrize("parties", OF_THE_DEMO, indirect=True)
def test_the_demo_holds(spark: SparkSession, parties: tuple[StandaloneSpark, SubmittedBrokers], tmp_path: Path) -> None:
    _, brokers = parties
    brokers.await_sessions_on_both()
    with finding_the_store(spark, brokers.environment), Screen() as screen:
        run = demo.DemoRun(tmp_path, brokers, spark, screen)  # type: ignore[arg-type]  # it has the calls of a Cluster
        try:
            judged = run.run()
        finally:
            run.stop_queries()
    print_verdict(judged.checks, judged.before, judged.after, demo.TOPIC)
    assert judged.holds
