"""Three brokers by spark-submit on a standalone cluster whose workers have networks of their own, on disks and on S3.

A worker is lost while records flow, and the demo runs on disks as on one machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stratalog.clients.admin.admin import Admin, NewTopic
from stratalog.jobs.demo.clients import ClosedLoop, now_ms
from stratalog.jobs.demo.run import DemoRun
from stratalog.jobs.demo.screen import Screen, print_verdict
from tests.real.processes.broker_processes import ClusterWatch
from tests.real.processes.standalone_spark import StandaloneSpark
from tests.real.submitted.machines import machines
from tests.real.submitted.submitted_brokers import WORKER_CORES, WORKER_MEMORY, SubmittedBrokers
from tests.stores import servers
from tests.waiting import wait_until

LOCAL, S3 = "local", "s3"
SETTINGS = {"broker.session.timeout.ms": 6_000, "broker.heartbeat.interval.ms": 1_000}
OF_S3 = SETTINGS | {
    # the server of these tests runs in one thread
    "stratalog.inbox.poll.ms": 200,
    "stratalog.metadata.poll.ms": 200,
    "stratalog.progress.poll.min.ms": 20,
    "stratalog.progress.poll.max.ms": 100,
}
TOPIC, PARTITIONS = "orders", 3
BEFORE, WATCHED_S = 100, 40
PAUSE_S_MAX, IN_SYNC_S_MAX = 4.0, 30.0

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]
STORES = [
    pytest.param(LOCAL, id=LOCAL),
    pytest.param(S3, id=S3, marks=pytest.mark.stores),
]


@pytest.fixture(params=STORES)
def parties(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[StandaloneSpark, SubmittedBrokers]]:
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        host, workers = stack.enter_context(machines(2))
        environment, url, settings = {}, str(tmp_path), SETTINGS
        if request.param == S3:
            if reason := servers.lacking()["s3_server"]:
                pytest.skip(reason)
            server = stack.enter_context(servers.s3_server(host))
            environment, url, settings = dict(server.environment), server.new_root(), OF_S3
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


@pytest.mark.parametrize("parties", [LOCAL], indirect=True)  # the demo asks more of an S3 server than that one gives
def test_the_demo_holds(spark: SparkSession, parties: tuple[StandaloneSpark, SubmittedBrokers], tmp_path: Path) -> None:
    _, brokers = parties
    brokers.await_sessions_on_both()
    with Screen() as screen:
        run = DemoRun(tmp_path, brokers, spark, screen)  # type: ignore[arg-type]  # it has the calls of a Cluster
        try:
            judged = run.run()
        finally:
            run.stop_queries()
    print_verdict(judged.checks, judged.before, judged.after, TOPIC)
    assert judged.holds
