"""AlterReplicaLogDirs with one log directory: what is there stays, other directories are not found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from stratalog.replication.metadata.acls import Principal
from tests.clients.kafka_client import KafkaClient, code
from tests.clients.memory_cluster import MemoryCluster

ALTER, DESCRIBE = 34, 35


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create_topic("t", 2)
    return made


def moved(client: KafkaClient, *moves: tuple[str, str, Sequence[int]], version: int = 2) -> list[tuple[str, int, int]]:
    dirs = [{"path": path, "topics": [{"name": topic, "partitions": numbers}]} for path, topic, numbers in moves]
    results = client.ask(ALTER, version, {"dirs": dirs}).results
    return sorted((each.topic_name, p.partition_index, code(p)) for each in results for p in each.partitions)


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_is_in_the_one_directory_and_in_no_other(
    client: KafkaClient, cluster: MemoryCluster, version: int
) -> None:
    (place,) = client.ask(DESCRIBE, 4, {"topics": None}).results
    assert moved(client, (place.log_dir, "t", [0, 1, 2]), version=version) == [("t", 0, 0), ("t", 1, 0), ("t", 2, 3)]
    assert moved(client, ("/no/such/dir", "t", [0])) == [("t", 0, 57)]
    assert moved(client, (place.log_dir, "t", [0]), ("relative", "t", [0])) == [("t", 0, 57)]
    assert moved(client) == []


def test_a_broker_without_a_replica_says_so(client: KafkaClient, cluster: MemoryCluster) -> None:
    (place,) = client.ask(DESCRIBE, 4, {"topics": None}).results
    state = cluster.state(cluster.create_topic("other", started=False)[0])
    cluster.commit(replace(state, replicas=(2, 3), isr=(2, 3), leader=2, partition_epoch=1))
    assert moved(client, (place.log_dir, "other", [0])) == [("other", 0, 9)]


def test_only_those_who_may_alter_the_cluster_move_replicas(cluster: MemoryCluster) -> None:
    settings = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:root"}
    with KafkaClient(cluster, stores=cluster.stores, settings=settings) as client:
        client.principal = Principal("User:alice")
        assert moved(client, ("/any", "t", [0])) == [("t", 0, 31)]
        client.principal = Principal("User:root")
        assert moved(client, ("/any", "t", [0])) == [("t", 0, 57)]
