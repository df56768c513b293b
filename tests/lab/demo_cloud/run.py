"""One run of the demo in a simulated bucket: idle, single records, an outside reader, full load, the kill, the end.

I/O: a bucket of versitygw behind a relay, a cluster of this process whose roots lie in it, its clients.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from stratalog import Admin, Cluster, ClusterView, NewTopic, Producer, StratalogError
from stratalog.clients.records import RecordMetadata
from stratalog.jobs.demo.clients import Tail, now_ms
from stratalog.jobs.demo.log import BROKERS, TOPIC, chunks, client_of, read_lines
from stratalog.jobs.demo.verdict import Ack, KeyedLine, differences, failover_ms
from stratalog.replication.metadata.records import NO_LEADER
from tests.lab.bench.benches.latency import OpenLoop
from tests.lab.bench.benches.time_to_table import times_to_reader_ms
from tests.lab.bench.payload import Payload
from tests.lab.bench.simulated.figures import CloudRound, Load
from tests.lab.bench.simulated.spans import TIMEOUT_S, closed_loop_ms, full_load, span
from tests.lab.demo_cloud.screen import CLOSED, KILLED, OUTSIDE, CloudOutcome
from tests.lab.demo_cloud.stored import (
    Place,
    has_java,
    moved,
    records_by_deltalake,
    rows_by_deltalake,
    rows_by_spark,
    tables_of,
)
from tests.stores.cloud.simulated import SimulatedCloud
from tests.waiting import wait_until

SIDE_TOPIC, READ_TOPIC, BULK_TOPIC = "closed-loop", "read-outside", "full-load"
PARTITIONS, SIDE_PARTITIONS = 6, 3
DURABLE = {"min.insync.replicas": 2}
SETTLE_S, IDLE_S = 40, 20
CLOSED_S, CLOSED_ACKS_MAX = 30, 200
READ_LOOP = OpenLoop(SIDE_PARTITIONS, rate_per_s=20, warm_s=3, window_s=15)
OUTSIDE_READER = "tests.lab.bench.simulated.outside_reader"
BULK_S, BULK_VALUE_BYTES = 10, 1_024
CHUNK, KILL_AT = 200, 0.4


def measured(cloud: SimulatedCloud, cluster: Cluster, folder: Path, show: Callable[[str], None]) -> CloudRound:
    """Latencies, requests and bytes, before anything is killed."""
    admin = Admin(cluster)
    admin.create_topics([NewTopic(each, SIDE_PARTITIONS, BROKERS, DURABLE) for each in (SIDE_TOPIC, READ_TOPIC)])
    admin.create_topics([NewTopic(each, PARTITIONS, BROKERS, DURABLE) for each in (TOPIC, BULK_TOPIC)])
    payload = Payload.make(folder, BULK_VALUE_BYTES)
    with Producer(cluster, acks="all", linger_ms=0) as producer:
        for partition in range(SIDE_PARTITIONS):
            producer.send(SIDE_TOPIC, b"first", partition=partition).result(TIMEOUT_S)
    show(f"nothing to do, for {SETTLE_S} s and another {IDLE_S} s that are measured")
    time.sleep(SETTLE_S)
    with span(cloud) as idle:
        time.sleep(IDLE_S)
    show("one record at a time, acks=all")
    with span(cloud) as closed:
        closed_ms = closed_loop_ms(cluster, SIDE_TOPIC, lambda number: b"record %d" % number, CLOSED_S, CLOSED_ACKS_MAX)
    show(f"{READ_LOOP.rate_per_s} records a second, read by deltalake in another process")
    outside_ms = times_to_reader_ms(cluster, READ_TOPIC, bytes(90), READ_LOOP, OUTSIDE_READER)
    show(f"as much as there can be, for {BULK_S} s")
    with span(cloud) as bulk:
        bulk_bytes, _ = full_load(cluster, BULK_TOPIC, payload, BULK_S)
    latencies = {CLOSED: closed_ms, OUTSIDE: outside_ms}
    return CloudRound(latencies, closed(), idle(), len(closed_ms), Load(bulk(), bulk_bytes))


@dataclass
class WebLog:
    """The web log under way: what was acknowledged, where and when. `run` once."""

    cluster: Cluster
    show: Callable[[str], None]
    lines: Sequence[str] = field(default_factory=read_lines)
    acks: list[Ack] = field(default_factory=list)
    places: dict[Place, bytes] = field(default_factory=dict)
    failures: list[StratalogError] = field(default_factory=list)
    killed: int = NO_LEADER
    failover_ms: float | None = None

    def run(self) -> list[KeyedLine]:
        """Send all of it, kill the broker that leads most, start it again; what a consumer read meanwhile."""
        tail = Tail(self.cluster.root, TOPIC)
        tail.start()
        self.show(f"the web log, {len(self.lines):,} lines")
        led, kill_ms, dead_ms = set[int](), 0.0, 0.0
        with Producer(self.cluster, acks="all", delivery_timeout_ms=1_000 * TIMEOUT_S) as producer:
            for number, chunk in enumerate(chunks(self.lines, CHUNK)):
                if self.killed == NO_LEADER and number * CHUNK >= KILL_AT * len(self.lines):
                    led = self._choose()
                    kill_ms = now_ms()
                    self.cluster.kill(self.killed)
                    dead_ms = now_ms()
                for line in chunk:
                    self._send(producer, line)
                producer.flush(TIMEOUT_S)
        self.failover_ms = failover_ms(self.acks, led, kill_ms, dead_ms)
        self.show(f"broker {self.killed} starts again")
        self.cluster.restart(self.killed)
        wait_until(lambda: tail.count >= len(self.lines), "all records to be consumed", TIMEOUT_S)
        tail.end()
        return tail.consumed()

    def _send(self, producer: Producer, line: str) -> None:
        sent_ms = now_ms()

        def answered(found: RecordMetadata | None, error: StratalogError | None) -> None:
            if found is not None:
                self.acks.append(Ack(found.partition, sent_ms, now_ms()))
                self.places[Place(found.partition, found.offset)] = line.encode()
            elif error is not None:
                self.failures.append(error)

        producer.send(TOPIC, line, key=client_of(line), on_delivery=answered)

    def _choose(self) -> set[int]:
        """Choose the broker that leads most partitions; those partitions."""
        leaders = [each.leader for each in Admin(self.cluster).describe_topics([TOPIC])[TOPIC].partitions]
        self.killed, _ = Counter(leaders).most_common(1)[0]
        self.show(f"broker {self.killed} is killed")
        return {partition for partition, leader in enumerate(leaders) if leader == self.killed}


def demo(cloud: SimulatedCloud, url: str, folder: Path, show: Callable[[str], None]) -> tuple[CloudOutcome, CloudRound]:
    """All steps in the bucket's folder at `url`; the brokers are stopped in the end. Raises StratalogError."""
    show("three brokers start in an empty bucket")
    with Cluster.start(url, BROKERS, fetcher="thread", progress=None) as cluster:
        figures = measured(cloud, cluster, folder, show)
        web_log = WebLog(cluster, show)
        consumed = web_log.run()
        urls, root = tables_of(ClusterView(cluster.root), TOPIC), cluster.root
    show("all brokers are stopped; the bucket is read")
    found = records_by_deltalake(urls)
    stored = {"deltalake": rows_by_deltalake(urls)}
    if has_java():
        stored["Spark"] = rows_by_spark(root, TOPIC)
    figures = _with(figures, KILLED, [ack.latency_ms for ack in web_log.acks])
    sent = [KeyedLine(client_of(line), line) for line in web_log.lines]
    outcome = CloudOutcome(
        sent=len(sent),
        acknowledged=len(web_log.acks),
        differences=differences(sent, consumed),
        killed=web_log.killed,
        failover_ms=web_log.failover_ms,
        stored=stored,
        moved=moved(web_log.places, found),
    )
    return outcome, figures


def _with(figures: CloudRound, loop: str, times_ms: Sequence[float]) -> CloudRound:
    return replace(figures, latencies_ms={**figures.latencies_ms, loop: times_ms})
