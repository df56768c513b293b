"""A request that is refused leaves nothing that only a garbage collection finds: a broker seldom runs one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from stratalog.storage.errors import StratalogError
from tests.clients.kafka_client import FETCH, LIST_OFFSETS, METADATA, PRODUCE, KafkaClient
from tests.clients.memory_cluster import MemoryCluster

ABSENT_PARTITION = {"partition_index": 0, "timestamp": -1}
REFUSED: list[tuple[int, int, dict[str, Any]]] = [
    (METADATA, 9, {"topics": [{"name": "no such topic"}], "allow_auto_topic_creation": False}),
    (PRODUCE, 9, {"acks": -1, "topic_data": [{"name": "absent", "partition_data": [{"index": 0, "records": b"x"}]}]}),
    (LIST_OFFSETS, 7, {"topics": [{"name": "absent", "partitions": [ABSENT_PARTITION]}]}),
    (FETCH, 11, {"topics": [{"topic": "absent", "partitions": [{"partition": 0}]}]}),
    (37, 3, {"topics": [{"name": "absent", "count": 3}], "timeout": 1_000}),
    (43, 2, {"topic_partitions": [{"topic": "absent", "partitions": [0]}], "timeout": 1_000}),
    (45, 0, {"topics": [{"name": "absent", "partitions": [{"partition_index": 0, "replicas": [1]}]}]}),
]


@pytest.fixture(scope="module")
def client() -> Iterator[KafkaClient]:
    cluster = MemoryCluster()
    with KafkaClient(cluster, stores=cluster.stores) as made:
        yield made


@pytest.mark.parametrize(("key", "version", "values"), REFUSED)
def test_a_refusal_is_no_garbage(client: KafkaClient, key: int, version: int, values: dict[str, Any]) -> None:
    client.ask(key, version, values)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(10):
            client.ask(key, version, values)
        gc.collect()
        left = [each for each in gc.garbage if isinstance(each, StratalogError)]
        assert left == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
