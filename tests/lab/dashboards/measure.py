"""What the metrics port and the audit topic cost: `python -m tests.lab.dashboards.measure scrape` or `audit`.

I/O: brokers in processes of their own on memory-backed storage, sockets. Prints figures; nothing is compared.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import kafka
from kafka.admin import NewTopic

from tests.lab.bench.machine import cpu_s
from tests.lab.real.harness.broker_processes import BrokerProcess
from tests.server.audit.test_audit_log import wrong_password
from tests.server.metrics.test_broker_page import three_free_ports

KEPT_S = 1.2
"""A page is kept for so long at most."""
TOPICS, PARTITIONS = 100, 100
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required "


class OneBroker:
    """A broker process, its port for clients and its metrics port."""

    def __init__(self, folder: Path, settings: Mapping[str, object], protocol: str = "PLAINTEXT") -> None:
        self.port, self.metrics_port = three_free_ports(), three_free_ports()
        own = {
            "listeners": f"{protocol}://localhost:{self.port}",
            "stratalog.metrics.port": self.metrics_port,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "group.initial.rebalance.delay.ms": 0,
        }
        self.process = BrokerProcess(folder, 1, {**own, **settings}, "thread")
        self.process.start()
        self.process.await_started()

    def cpu_s(self) -> float:
        return cpu_s([self.process.pid])

    def page(self) -> bytes:
        with urllib.request.urlopen(f"http://localhost:{self.metrics_port}/metrics", timeout=120) as answer:
            return bytes(answer.read())


def measure_scrape(folder: Path, topics: int) -> None:
    """A broker that leads `topics * PARTITIONS` partitions, one record in each, and a group behind in all of them."""
    broker = OneBroker(folder, {})
    try:
        servers = f"localhost:{broker.port}"
        admin = kafka.KafkaAdminClient(bootstrap_servers=servers, request_timeout_ms=300_000)
        begun_s = time.monotonic()
        names = [f"t-{number}" for number in range(topics)]
        for name in names:
            admin.create_topics([NewTopic(name, PARTITIONS, 1)], timeout_ms=300_000)
        print(f"{topics * PARTITIONS} partitions created in {time.monotonic() - begun_s:.0f} s", flush=True)
        with kafka.KafkaProducer(
            bootstrap_servers=servers, linger_ms=100, request_timeout_ms=300_000, delivery_timeout_ms=600_000
        ) as producer:
            for name in names:
                for partition in range(PARTITIONS):
                    producer.send(name, b"x", partition=partition)
            producer.flush(600)
        with kafka.KafkaConsumer(bootstrap_servers=servers, group_id="g", enable_auto_commit=False) as consumer:
            for name in names:
                consumer.assign([kafka.TopicPartition(name, partition) for partition in range(PARTITIONS)])
                where = kafka.OffsetAndMetadata(0, "", -1)
                consumer.commit({kafka.TopicPartition(name, each): where for each in range(PARTITIONS)})
        wanted, dated = topics * PARTITIONS, 0
        while dated < wanted:
            time.sleep(5)
            dated = broker.page().count(b"\nkafka_consumergroup_lag_seconds{")
            print(f"{dated} partitions have an age after {time.monotonic() - begun_s:.0f} s", flush=True)
        times_s, cpus_s = [], []
        for _ in range(9):
            time.sleep(KEPT_S)
            before_s, begun_s = broker.cpu_s(), time.monotonic()
            page = broker.page()
            times_s.append(time.monotonic() - begun_s)
            cpus_s.append(broker.cpu_s() - before_s)
        series = sum(not line.startswith(b"#") for line in page.splitlines())
        took = f"median {statistics.median(times_s):.2f} s, longest {max(times_s):.2f} s"
        print(f"scrape: {took}; CPU {statistics.median(cpus_s):.2f} s; {series} series, {len(page) >> 10} KiB")
        before_s = broker.cpu_s()
        time.sleep(30)
        print(f"at rest with a group behind everywhere: {(broker.cpu_s() - before_s) / 0.30:.1f} % of a core")
    finally:
        broker.process.kill()


def measure_audit(folder: Path, rounds: int) -> None:
    """CPU of a broker under a storm of refused logins, with and without the topic, in turns."""
    login = f'{JAAS}username="admin" password="a" user_admin="a" user_bob="b";'
    secured: dict[str, object] = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.jaas.config": login,
        "connection.failed.authentication.delay.ms": 0,
    }
    audited = {**secured, "stratalog.audit.topic": "audit", "stratalog.audit.topic.replication.factor": 1}
    brokers = {
        name: OneBroker(folder / name, settings, "SASL_PLAINTEXT")
        for name, settings in (("off", secured), ("on", audited))
    }
    try:
        used: dict[str, list[float]] = {"off": [], "on": []}
        took_s: list[float] = []
        for _ in range(rounds):
            for name, broker in brokers.items():
                before_s, begun_s = broker.cpu_s(), time.monotonic()
                for _ in range(1_000):
                    wrong_password("localhost", broker.port)
                took_s.append(time.monotonic() - begun_s)
                time.sleep(1.5)  # what is written later belongs to it
                used[name].append(broker.cpu_s() - before_s)
        for name, values in used.items():
            median_s = statistics.median(values)
            print(f"audit {name}: 1,000 refused logins take {median_s:.3f} s of the broker's CPU {values}")
        more_s = statistics.mean(used["on"]) - statistics.mean(used["off"])
        second_s = statistics.mean(took_s)
        print(f"audit: {100 * more_s / second_s:.1f} % of a core more, at {1_000 / second_s:.0f} events a second; "
              f"{1e6 * more_s / 1_000:.0f} µs an event")  # fmt: skip
        kept = [line for line in brokers["on"].page().decode().splitlines() if line.startswith("stratalog_audit_")]
        print("\n".join(kept))
    finally:
        for broker in brokers.values():
            broker.process.kill()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("scrape", "audit"))
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="metrics-", dir="/dev/shm"))
    try:
        if given.what == "scrape":
            measure_scrape(folder, given.topics)
        else:
            measure_audit(folder, given.rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
