"""A schema registry keeps its schemas and elects its master at a listener."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.server.cluster import Cluster
from tests.lab.foreign.python import schema_registry

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "group.initial.rebalance.delay.ms": 0,
}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("registry")
    with Cluster.start(folder / "cluster", brokers=1, fetcher="thread", config=SETTINGS) as cluster:
        yield cluster.bootstrap_servers


def test_instances_elect_their_master(bootstrap: str) -> None:
    schema_registry.elect_masters(bootstrap)


def test_schemas_are_read_as_they_were_written(bootstrap: str) -> None:
    schema_registry.keep_schemas(bootstrap, 1)
