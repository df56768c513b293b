"""One run of the demo on a running cluster: feed, kill, fail over, restart, judge.

I/O: the cluster's clients, three streaming queries, the data below the demo's folder.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from stratalog import Admin, Cluster, NewTopic
from stratalog.jobs.demo.chart import Timeline, draw_chart
from stratalog.jobs.demo.clients import ClosedLoop, Tail, now_ms, pause
from stratalog.jobs.demo.log import BROKERS, TOPIC, client_of, count_hits, hit_of, read_lines
from stratalog.jobs.demo.queries import BatchCount, create_hits, read_counts, start_feed, start_hits, write_line_files
from stratalog.jobs.demo.replicas import compare_by_deltalake, compare_by_sql
from stratalog.jobs.demo.screen import Screen
from stratalog.jobs.demo.verdict import (
    Check,
    KeyedLine,
    Outcome,
    PartitionEpoch,
    differences,
    failover_ms,
    percentile,
    verdict,
)
from stratalog.replication.metadata.records import PartitionRecord

_LOG = logging.getLogger("stratalog.demo")

PARTITIONS = 6
SIDE_TOPIC = "closed-loop"
SIDE_PARTITIONS = 3
MEMBERS = 2
"""Queries of the group that reads the topic."""

DURABLE = {"min.insync.replicas": 2}

KILL_AT = 0.35
"""Share of the log that is acknowledged when the broker is killed."""

DEAD_FOR_MS = 3_000
"""Time between the failover and the restart of the killed broker."""

STEP_MS_MAX = 120_000
POLL_MS = 200
CALM_RECORDS = 300
"""Records of the closed loop on the cluster alone, before the queries start."""

PAUSE_MS = 20
"""Pause of the closed loop between two records while the queries run."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The result of a run."""

    checks: list[Check]
    before: dict[int, PartitionEpoch]
    after: dict[int, PartitionEpoch]
    chart: Path
    failover_version: int
    latency: list[str]

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)


class DemoRun:
    """Runs below `path`, where the cluster has its directories; `run` once."""

    def __init__(self, path: Path, cluster: Cluster, spark: SparkSession, screen: Screen) -> None:
        self._path = path
        self._cluster = cluster
        self._spark = spark
        self._screen = screen
        self._admin = Admin(cluster)
        self._lines = read_lines()
        self._table = path / "hits"
        self._queries: list[StreamingQuery] = []
        self._loop = ClosedLoop(cluster, SIDE_TOPIC, SIDE_PARTITIONS)
        self._tail = Tail(cluster.root, TOPIC)
        screen.status.sent = len(self._lines)

    def run(self) -> Judged:
        """All steps in order; the cluster is stopped at the end. Raises StratalogError or Spark's error."""
        self._stage("creating the topic")
        self._create_topics()
        self._measure_alone()
        self._start_queries()
        self._wait("the web log flows", self._is_kill_due)
        self._kill_busiest()
        self._wait(f"broker {self._killed} was killed: waiting for its session to expire", self._has_failed_over)
        self._failed_over_ms = now_ms()
        self._failover_version = DeltaTable(f"{self._cluster.root}/__cluster_metadata-0").version()
        self._wait("failed over: the web log flows again", lambda: now_ms() > self._failed_over_ms + DEAD_FOR_MS)
        self._restart()
        self._wait(f"broker {self._killed} is back and catches up", self._is_done)
        return self._judge()

    # -- the steps ---------------------------------------------------------------------------------------

    def _create_topics(self) -> None:
        self._admin.create_topics(
            [NewTopic(TOPIC, PARTITIONS, BROKERS, DURABLE), NewTopic(SIDE_TOPIC, SIDE_PARTITIONS, BROKERS, DURABLE)]
        )

    def _measure_alone(self) -> None:
        self._stage("one record at a time, acks=all, on the cluster alone")
        self._loop.start()
        while len(self._loop.acks) < CALM_RECORDS and self._loop.failure is None:
            pause(POLL_MS)
        self._loop.pause_ms = PAUSE_MS

    def _start_queries(self) -> None:
        self._stage("starting the streaming queries")
        write_line_files(self._lines, self._path / "lines")
        checkpoints = self._path / "checkpoints"
        root = self._cluster.root
        self._start_ms = now_ms()
        self._tail.start()
        self._queries.append(start_feed(self._spark, root, TOPIC, self._path / "lines", checkpoints / "feed"))
        create_hits(self._spark, self._table)
        for member in range(1, MEMBERS + 1):
            checkpoint = checkpoints / f"hits-{member}"
            self._queries.append(start_hits(self._spark, root, TOPIC, self._table, checkpoint, member))
        self._feed, *self._members = map(BatchCount, self._queries)

    def _is_kill_due(self) -> bool:
        """True when enough is acknowledged and every replica is in sync, which takes a while after a start."""
        has_begun = self._screen.status.acknowledged >= KILL_AT * len(self._lines)
        return has_begun and self._is_all_in_sync()

    def _is_all_in_sync(self) -> bool:
        states = [state for topic in (TOPIC, SIDE_TOPIC) for state in self._partitions(topic)]
        return all(len(state.isr) == BROKERS for state in states)

    def _kill_busiest(self) -> None:
        self._before = self._epochs(TOPIC)
        busiest, _ = Counter(state.leader for state in self._before.values()).most_common(1)[0]
        side = self._epochs(SIDE_TOPIC)
        self._killed = busiest
        self._dead_partitions = {partition for partition, state in side.items() if state.leader == busiest}
        self._feed_minute = hit_of(self._lines[self._screen.status.acknowledged]).minute
        self._kill_ms = now_ms()
        self._cluster.kill(busiest)
        self._dead_ms = now_ms()

    def _has_failed_over(self) -> bool:
        leaders = {s.leader for topic in (TOPIC, SIDE_TOPIC) for s in self._epochs(topic).values()}
        return self._killed not in leaders and self._failover_ms() is not None

    def _failover_ms(self) -> float | None:
        return failover_ms(self._loop.acks, self._dead_partitions, self._kill_ms, self._dead_ms)

    def _restart(self) -> None:
        self._stage(f"restarting broker {self._killed}")
        self._restart_ms = now_ms()
        self._cluster.restart(self._killed)

    def _is_done(self) -> bool:
        status, sent = self._screen.status, len(self._lines)
        everything = min(status.acknowledged, status.consumed, status.read) >= sent
        return everything and self._is_all_in_sync()

    def stop_queries(self) -> None:
        """Stop the queries, those that run."""
        for query in self._queries:
            query.stop()

    # -- the end -----------------------------------------------------------------------------------------

    def _judge(self) -> Judged:
        self._stage("stopping")
        acknowledged, shares = self._feed.rows(), [member.rows() for member in self._members]
        self._loop.end()
        self._tail.end()
        consumed = self._tail.consumed()
        after = self._epochs(TOPIC)
        self.stop_queries()
        self._cluster.stop()
        self._stage("comparing all replicas, record for record")
        brokers = [self._path / f"broker-{number}" for number in range(1, BROKERS + 1)]
        counts, expected = read_counts(self._spark, self._table), count_hits(self._lines)
        outcome = Outcome(
            sent=len(self._lines),
            acknowledged=acknowledged,
            consumed=len(consumed),
            counted=counts.total(),
            shares=shares,
            counts_differ=sum(counts[hit] != expected[hit] for hit in counts.keys() | expected.keys()),
            differences=differences([KeyedLine(client_of(line), line) for line in self._lines], consumed),
            failover_ms=self._failover_ms(),
            before=self._before,
            after=after,
            killed=self._killed,
            sql=compare_by_sql(self._spark, brokers, TOPIC, PARTITIONS),
            deltalake=compare_by_deltalake(brokers, TOPIC, PARTITIONS),
        )
        chart = self._path / "demo.png"
        draw_chart(chart, counts, self._loop.acks, self._timeline(outcome.failover_ms))
        return Judged(verdict(outcome), self._before, after, chart, self._failover_version, self._latency())

    def _timeline(self, took_ms: float | None) -> Timeline:
        return Timeline(self._start_ms, self._kill_ms, took_ms, self._restart_ms, self._killed, self._feed_minute)

    def _latency(self) -> list[str]:
        alone = [ack.latency_ms for ack in self._loop.acks if ack.acked_ms <= self._start_ms]
        beside = [ack.latency_ms for ack in self._loop.acks if ack.acked_ms > self._start_ms]
        return [
            f"acks=all, one record in flight, the cluster alone:   {_percentiles(alone)}",
            f"acks=all, one record in flight, beside the queries:  {_percentiles(beside)}",
        ]

    # -- waiting, refreshing -----------------------------------------------------------------------------

    def _wait(self, stage: str, is_over: Callable[[], bool]) -> None:
        """Show the stage until it is over, or STEP_MS_MAX has passed: then the verdict fails."""
        self._stage(stage)
        end_ms = now_ms() + STEP_MS_MAX
        while now_ms() < end_ms:
            self._refresh()
            if is_over():
                return
            pause(POLL_MS)

    def _stage(self, stage: str) -> None:
        _LOG.info("%s", stage)
        self._screen.status.stage = stage
        self._screen.show()

    def _refresh(self) -> None:
        """Refresh the screen. Raises the error that stopped a client or a query."""
        for client in (self._loop, self._tail):
            if client.failure is not None:
                raise client.failure
        status = self._screen.status
        status.acknowledged, status.consumed = self._feed.rows(), self._tail.count
        status.read = sum(member.rows() for member in self._members)
        status.latency_ms = percentile([ack.latency_ms for ack in self._loop.acks[-50:]], 50)
        led = Counter(state.leader for state in self._partitions(TOPIC))
        in_sync = Counter(broker for state in self._partitions(TOPIC) for broker in state.isr)
        running = self._cluster.brokers()
        status.brokers = {
            broker: f"leads {led[broker]}, in sync with {in_sync[broker]}" if broker in running else "[red]dead[/]"
            for broker in range(1, BROKERS + 1)
        }
        self._screen.show()

    def _partitions(self, topic: str) -> tuple[PartitionRecord, ...]:
        return self._admin.describe_topics([topic])[topic].partitions

    def _epochs(self, topic: str) -> dict[int, PartitionEpoch]:
        return {state.partition: PartitionEpoch(state.leader, state.leader_epoch) for state in self._partitions(topic)}


def _percentiles(latencies: list[float]) -> str:
    p50, p90, p99 = (percentile(latencies, percent) for percent in (50, 90, 99))
    slowest = max(latencies, default=0.0)
    return f"p50 {p50:.1f} ms, p90 {p90:.1f} ms, p99 {p99:.1f} ms, max {slowest:,.0f} ms of {len(latencies):,} records"
