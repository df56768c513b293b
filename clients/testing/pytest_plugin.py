"""The pytest plugin of `pip install stratalog`: fixtures `kafka_cluster` and `kafka_topic`.

I/O: a cluster in this process, made at the first test that asks for it. pytest loads this module at its start, so it
imports the cluster only then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from stratalog.clients.testing.in_memory_cluster import InMemoryCluster

MARKER = "kafka_topic(partitions=1, replication_factor=None, config={}): how the fixture `kafka_topic` makes its topic"
TOPIC_LENGTH_MAX = 200

_numbers = count(1)
_RUNNING: pytest.StashKey[InMemoryCluster] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known. pytest would compile every module of a plugin's distribution anew, for the texts of its
    assertions: the first run would wait a second for that, and hold the modules' syntax trees."""
    config.addinivalue_line("markers", MARKER)
    marked = getattr(config.pluginmanager.rewrite_hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked.discard("stratalog")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Undo the failures that a test asked for: the next one has a whole cluster."""
    if "kafka_cluster" in getattr(item, "fixturenames", ()) and _RUNNING in item.config.stash:
        item.config.stash[_RUNNING].heal()


@pytest.fixture(scope="session")
def kafka_cluster_options() -> dict[str, Any]:
    """Arguments of `InMemoryCluster.start_new`: override it in a conftest.py, for one broker or other settings."""
    return {}


@pytest.fixture(scope="session")
def kafka_cluster(kafka_cluster_options: dict[str, Any], pytestconfig: pytest.Config) -> Iterator[InMemoryCluster]:
    """Three brokers in this process, in memory, for all tests of the run; clients connect to `bootstrap_servers`."""
    from stratalog.clients.testing.in_memory_cluster import InMemoryCluster

    with InMemoryCluster.start_new(**kafka_cluster_options) as cluster:
        pytestconfig.stash[_RUNNING] = cluster
        try:
            yield cluster
        finally:
            del pytestconfig.stash[_RUNNING]


@pytest.fixture
def kafka_topic(kafka_cluster: InMemoryCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic of this test's own, which is deleted afterwards. See the marker `kafka_topic`."""
    marker = request.node.get_closest_marker("kafka_topic")
    wanted: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
    brokers = len(kafka_cluster.brokers())
    name = f"{re.sub(r'[^a-zA-Z0-9._-]+', '-', request.node.name)[:TOPIC_LENGTH_MAX]}-{next(_numbers)}"
    admin = kafka_cluster.admin()
    admin.create_topic(
        name, wanted.get("partitions", 1), wanted.get("replication_factor") or min(3, brokers), wanted.get("config")
    )
    yield name
    admin.delete_topics([name])
