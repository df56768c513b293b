"""Kafka and stratalog as peers of a dialogue, with the same settings. I/O: processes, sockets, folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stratalog.clients.endpoint.kafka_endpoint import KafkaEndpoint
from stratalog.replication.config import BrokerConfig
from stratalog.replication.process.cluster import Cluster
from tests.differential.dialogue import Peer

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


class KeptEndpoint(KafkaEndpoint):
    """An endpoint that a test asks for the ports that were free."""

    made: KeptEndpoint

    def __init__(self, config: BrokerConfig) -> None:
        super().__init__(config)
        type(self).made = self


@contextmanager
def stratalog(folder: Path) -> Iterator[Peer]:
    """Three brokers in this process."""
    with Cluster.start(folder, fetcher="thread", config={**SETTINGS, **OURS}, endpoint=KeptEndpoint) as cluster:
        bound = {broker: KeptEndpoint.made.advertised(broker)[0] for broker in cluster.brokers()}
        with Peer({broker: (listener.host, listener.port) for broker, listener in bound.items()}) as peer:
            yield peer
