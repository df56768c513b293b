"""clients: Kafka's own Java tools, unchanged, against Kafka and against three broker processes of ours.

I/O: both clusters, over TCP, from a JVM of its own for each measurement. `kafka-producer-perf-test`,
`kafka-consumer-perf-test` and `kafka-e2e-latency` have the clients' defaults except acks=all and the batch size named
in a row; topics have six partitions, three replicas, `min.insync.replicas=2`. The sides take turns in one run.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.lab.bench.benches.produce import WARM_AGAIN_S_MAX
from tests.lab.bench.lab import BROKERS, PARTITIONS, Lab, Outcome, show
from tests.lab.bench.measures import Row, Spread, is_warm, rows_of
from tests.lab.bench.payload import Payload
from tests.lab.foreign.served import Form, Served

SIZES_BYTES = (100, 1024)
BATCH_BYTES = (16_384, 262_144)
WARM_RECORDS = {100: 300_000, 1024: 60_000}
ROUND_S = 6
"""The length of a round on the side that is faster in its last warm-up. The other one sends and reads as many records:
a tool's first seconds, in which its JVM compiles what it runs, then count alike."""
LATENCY_RECORDS, LATENCY_BYTES = 2_000, 100
READ_MS_MAX = 60_000
PERF_LINE = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec .* (\d+) ms 99th", re.MULTILINE)
LATENCY_LINE = re.compile(r"Percentiles: 50th = (\d+), 99th = (\d+), 99\.9th = (\d+)")


@dataclass(frozen=True, slots=True)
class Side:
    """A cluster as its clients see it: `bootstrap.servers`, Kafka's tools, and producers' configs by name."""

    name: str
    bootstrap: str
    tool: Callable[..., str]
    configs: Mapping[str, str] = field(default_factory=dict)

    def run(self, main: str, *arguments: object) -> str:
        """The printed text of a tool; PeerError when it failed."""
        return self.tool(f"org.apache.kafka.tools.{main}", "--bootstrap-server", self.bootstrap, *arguments)

    def new_topic(self, lab: Lab, stem: str, partitions: int = PARTITIONS) -> str:
        name = lab.fresh(stem)
        self.run(
            "TopicCommand", "--create", "--topic", name, "--partitions", partitions, "--replication-factor", BROKERS,
            "--config", "min.insync.replicas=2",
        )  # fmt: skip
        return name

    def delete(self, topic: str) -> None:
        """Free the room of a topic: data on tmpfs is memory."""
        self.run("TopicCommand", "--delete", "--topic", topic)

    def produced(self, topic: str, payload: Payload, count: int, batch_bytes: int) -> float:
        """Records a second until all are acknowledged. RuntimeError when one was refused."""
        text = self.run(
            "ProducerPerformance", "--topic", topic, "--num-records", count, "--payload-file", payload.lines,
            "--throughput", -1, "--command-property", "acks=all", f"batch.size={batch_bytes}",
            *(f"{name}={value}" for name, value in self.configs.items()),
        )  # fmt: skip
        sent, rate, _ = PERF_LINE.findall(text)[-1]
        if int(sent) != count:
            raise RuntimeError(f"{self.name}: {sent} of {count} records were acknowledged:\n{text[-2000:]}")
        return float(rate)

    def consumed(self, topic: str, count: int) -> float:
        """Records a second of fetching, without the time to join a group. RuntimeError when records are missing."""
        text = self.run("ConsumerPerformance", "--topic", topic, "--num-records", count, "--timeout", READ_MS_MAX)
        names, *_, values = [line.split(", ") for line in text.splitlines() if ", " in line]
        found = dict(zip(names, values, strict=True))
        if int(found["data.consumed.in.nMsg"]) < count:
            raise RuntimeError(f"{self.name}: {found['data.consumed.in.nMsg']} of {count} records were read")
        return float(found["fetch.nMsg.sec"])

    def latency(self, topic: str) -> Mapping[str, float]:
        """From send to the consumer's poll, one record at a time [ms]."""
        text = self.run(
            "EndToEndLatency", "--topic", topic, "--num-records", LATENCY_RECORDS, "--producer-acks", "all",
            "--record-size", LATENCY_BYTES,
        )  # fmt: skip
        p50, p99, p999 = LATENCY_LINE.findall(text)[-1]
        return {"p50": float(p50), "p99": float(p99), "p99.9": float(p999)}


def clients(lab: Lab) -> Outcome:
    """Producing and consuming for both record sizes and batch sizes, then latency."""
    rows: list[Row] = []
    with Served(Form.BROKERS) as served:
        sides = (Side("ours", served.bootstrap, lab.peer.tool), Side("Kafka", lab.peer.bootstrap, lab.peer.tool))
        for size_bytes in SIZES_BYTES:
            for batch_bytes in BATCH_BYTES:
                rows += _throughput(lab, sides, size_bytes, batch_bytes)
        rows += _latency(lab, sides)
    return Outcome(rows)


def _throughput(lab: Lab, sides: tuple[Side, Side], size_bytes: int, batch_bytes: int) -> list[Row]:
    payload = lab.payload(size_bytes)
    of = f"{'100 B' if size_bytes == 100 else '1 KiB'}, batch.size={batch_bytes}"
    count = round(ROUND_S * max(warm(lab, side, payload, size_bytes, batch_bytes) for side in sides))
    produced: list[list[float]] = [[], []]
    consumed: list[list[float]] = [[], []]
    for number in range(lab.rounds):
        for which, side in enumerate(sides):
            topic = side.new_topic(lab, "clients")
            produced[which].append(side.produced(topic, payload, count, batch_bytes))
            consumed[which].append(side.consumed(topic, count))
            side.delete(topic)
        rates = [f"{rates[-1]:,.0f}" for rates in (*produced, *consumed)]
        show(f"clients {of}, {number + 1}: produced {rates[0]} against {rates[1]}, read {rates[2]} against {rates[3]}")
    return [
        Row(bench, of, "records/s", False, Spread.of(ours), Spread.of(peer))
        for bench, (ours, peer) in (("clients_produce", produced), ("clients_consume", consumed))
    ]


def warm(lab: Lab, side: Side, payload: Payload, size_bytes: int, batch_bytes: int, admin: Side | None = None) -> float:
    """Run until three runs in a row differ by at most 5 %, or the time is up; the last rate, records a second.

    `admin` makes the topic; None: the side itself.
    """
    runs: list[float] = []
    until = time.monotonic() + WARM_AGAIN_S_MAX
    maker = admin or side
    topic = maker.new_topic(lab, "clients-warm")
    while not is_warm(runs) and time.monotonic() < until:
        runs.append(side.produced(topic, payload, WARM_RECORDS[size_bytes], batch_bytes))
    maker.delete(topic)
    show(f"{side.name}, warm-up: {', '.join(f'{run:,.0f}' for run in runs)} records/s")
    return runs[-1]


def _latency(lab: Lab, sides: tuple[Side, Side]) -> list[Row]:
    topics = [side.new_topic(lab, "clients-latency", 1) for side in sides]
    ours: list[Mapping[str, float]] = []
    peer: list[Mapping[str, float]] = []
    for number in range(lab.rounds):
        for side, topic, found in zip(sides, topics, (ours, peer), strict=True):
            found.append(side.latency(topic))
        show(f"clients e2e-latency, {number + 1}: {ours[-1]} against {peer[-1]} ms")
    return rows_of("clients_latency", "ms", ours, peer)
