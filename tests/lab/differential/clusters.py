"""Kafka and stratalog as peers of a dialogue, with the same settings. I/O: processes, sockets, folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stratalog import Cluster
from tests.lab.differential.dialogue import Peer

SETTINGS: dict[str, object] = {
    "auto.create.topics.enable": False,
    "auto.leader.rebalance.enable": False,
    "group.initial.rebalance.delay.ms": 0,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "log.message.timestamp.after.max.ms": 3_600_000,
}
OURS: dict[str, object] = {"listeners": "PLAINTEXT://127.0.0.1:0"}


@contextmanager
def stratalog(folder: Path, **more: object) -> Iterator[Peer]:
    """Three brokers in this process. `more`: settings besides `SETTINGS`."""
    with Cluster.start(folder, fetcher="thread", config={**SETTINGS, **OURS, **more}) as cluster:
        found = [address.rsplit(":", 1) for address in cluster.bootstrap_servers.split(",")]
        addresses = {broker: (host, int(port)) for broker, (host, port) in enumerate(found, start=1)}
        with Peer(addresses) as peer:
            yield peer
