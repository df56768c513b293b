"""A cluster in memory and a client of its brokers, for tests of what the server answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.kafka_client import KafkaClient
from tests.clients.memory_cluster import MemoryCluster


@pytest.fixture
def cluster() -> MemoryCluster:
    """With topic `t` of one partition; a file may have another one."""
    made = MemoryCluster()
    made.create_topic("t")
    return made


@pytest.fixture
def client(cluster: MemoryCluster) -> Iterator[KafkaClient]:
    with KafkaClient(cluster, stores=cluster.stores) as made:
        yield made
