"""A request leaves nothing that only a garbage collection finds: a broker seldom runs one, and its threads stand then.

What a request refers to in a circle stays until such a collection, with all that hangs on it: 100,000 elements of one
request, their answers and errors kept a process for a second.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.storage.errors import StratalogError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.schema import request_type
from tests.clients.kafka_client import ANSWER_S, KafkaClient
from tests.clients.memory_cluster import MemoryCluster
from tests.lab.real.fuzz.bad_frames import SETTINGS, TOPICS
from tests.lab.real.fuzz.expensive_frames import ExpensiveFrames, arrays_of

ABSENT_PARTITION = {"partition_index": 0, "timestamp": -1}
REFUSED: list[tuple[int, int, dict[str, Any]]] = [
    (ApiKey.METADATA, 9, {"topics": [{"name": "no such topic"}], "allow_auto_topic_creation": False}),
    (
        ApiKey.PRODUCE,
        9,
        {"acks": -1, "topic_data": [{"name": "absent", "partition_data": [{"index": 0, "records": b"x"}]}]},
    ),
    (ApiKey.LIST_OFFSETS, 7, {"topics": [{"name": "absent", "partitions": [ABSENT_PARTITION]}]}),
    (ApiKey.FETCH, 11, {"topics": [{"topic": "absent", "partitions": [{"partition": 0}]}]}),
    (37, 3, {"topics": [{"name": "absent", "count": 3}], "timeout": 1_000}),
    (43, 2, {"topic_partitions": [{"topic": "absent", "partitions": [0]}], "timeout": 1_000}),
    (45, 0, {"topics": [{"name": "absent", "partitions": [{"partition_index": 0, "replicas": [1]}]}]}),
]


ELEMENTS, OBJECTS_MAX = 1_000, 300
"""Of the array that is grown, and what a request may leave: a circle of its own, but nothing for each element."""


@contextmanager
def garbage() -> Iterator[list[Any]]:
    """What the body left in circles, once it has ended."""
    left: list[Any] = []
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield left
        gc.collect()
        left += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.fixture(scope="module")
def client() -> Iterator[KafkaClient]:
    cluster = MemoryCluster()
    with KafkaClient(cluster, stores=cluster.stores) as made:
        yield made


@pytest.mark.parametrize(("key", "version", "values"), REFUSED)
def test_a_refusal_is_no_garbage(client: KafkaClient, key: int, version: int, values: dict[str, Any]) -> None:
    client.ask(key, version, values)
    with garbage() as left:
        for _ in range(10):
            client.ask(key, version, values)
    assert [each for each in left if isinstance(each, StratalogError)] == []


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaClient]:
    settings = {**SETTINGS, "stratalog.fetch.sessions": 1}
    folder = Path(tmp_path_factory.mktemp("garbage"))
    with Cluster.start(folder, fetcher="thread", config=settings) as cluster:
        Admin(cluster.root).create_topics([NewTopic(topic, 20, 1) for topic in TOPICS])
        with KafkaClient(cluster, config=cluster.config) as made:
            yield made


@pytest.mark.parametrize("is_same", [True, False])
def test_a_large_request_leaves_no_garbage_for_each_of_its_elements(running: KafkaClient, is_same: bool) -> None:
    frames = ExpensiveFrames(1, {api.key: [api.versions[-1]] for api in running.handlers[1].apis})
    found: dict[tuple[int, str], Counter[str]] = {}
    for key, (version,) in frames.served:
        for field in arrays_of(request_type(key, version)):
            frame = frames.grown(key, version, field, ELEMENTS, is_same=is_same)
            with garbage() as left:
                assert running.sent(frame, key, version).is_there.wait(ANSWER_S)
            if len(left) > OBJECTS_MAX:
                found[key, field.name] = Counter(type(each).__qualname__ for each in left)
            left.clear()
    assert found == {}
