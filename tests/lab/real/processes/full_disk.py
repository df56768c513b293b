"""A cluster of which one root is a small disk that fills up; run by test_full_disk in a mount namespace of its own.

Prints its observations as one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.jobs.replicas.replica_verification import main as verify_replicas
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.storage.errors import StratalogError
from tests.waiting import wait_until

FULL = 2
SETTINGS = {"replica.lag.time.max.ms": 2_000, "broker.session.timeout.ms": 3_000, "broker.heartbeat.interval.ms": 500}
ASSIGNMENT = {0: (2, 1, 3), 1: (2, 3, 1), 2: (1, 2, 3)}
"""Broker 2 leads partitions 0 and 1."""
RECORD_BYTES = 50_000
RECORDS = 200


def mount(root: Path, size: str, *, again: bool = False) -> None:
    options = f"{'remount,' if again else ''}size={size}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(root)], check=True)


def run(path: Path) -> dict[str, object]:
    root = path / f"broker-{FULL}"
    root.mkdir(parents=True)
    mount(root, "3m")
    with Cluster.start(path, fetcher="thread", config=SETTINGS) as cluster:
        admin = Admin(cluster)
        configs = {"min.insync.replicas": 2, "max.message.bytes": 10_000_000}
        admin.create_topics([NewTopic("t", configs=configs, replica_assignment=ASSIGNMENT)])
        sent: list[bytes] = []
        with Producer(cluster, acks="all", delivery_timeout_ms=60_000) as producer:
            for number in range(RECORDS):
                value = number.to_bytes(4, "big") + os.urandom(RECORD_BYTES)
                producer.send("t", value, partition=0).result(60)
                sent.append(value)
            others = [producer.send("t", b"x", partition=p).result(60).offset for p in (1, 2)]
            full = admin.describe_topics(["t"])["t"].partitions
            is_alive = FULL in {b.broker_id for b in admin.describe_cluster().brokers if not b.fenced}
            mount(root, "200m", again=True)
            wait_until(lambda: all(FULL in s.isr for s in admin.describe_topics(["t"])["t"].partitions), "all in sync")
            producer.send("t", b"last", partition=0).result(60)
        with Consumer(cluster, auto_offset_reset="earliest") as consumer:
            consumer.assign([("t", 0)])
            got: list[bytes | None] = []
            wait_until(lambda: bool(got.extend(r.value for r in consumer.poll(100))) or len(got) > RECORDS, "all read")
        return {
            "leaders": [s.leader for s in full],
            "in_isr": [FULL in s.isr for s in full],
            "is_alive": is_alive,
            "others": others,
            "all_read": got == [*sent, b"last"],
            "verified": verify_replicas(["--root", cluster.root, "--once"]),
        }


if __name__ == "__main__":
    try:
        seen = run(Path(sys.argv[1]))
    except StratalogError as error:
        sys.exit(f"{error.name}: {error}")
    print(json.dumps(seen))
