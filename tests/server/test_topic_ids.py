"""Topic ids are resolved by the metadata at hand; only an unknown one is looked for on storage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stratalog.replication.metadata.records import RemoveTopicRecord
from stratalog.server.request.broker import ServedBroker
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import UnknownTopicIdError
from tests.clients.memory_cluster import ROOT, MemoryCluster


@pytest.fixture
def broker(cluster: MemoryCluster) -> Iterator[ServedBroker]:
    made = ServedBroker(cluster, 1, view=ClusterView(cluster, stores=cluster.stores))
    yield made
    made.scheduler.close()


@pytest.fixture
def accesses(cluster: MemoryCluster) -> list[str]:
    found: list[str] = []
    cluster.stores.disks[ROOT].access = lambda operation, _table, detail: found.append(f"{operation} {detail}")
    return found


def test_a_known_id_is_resolved_without_storage(
    cluster: MemoryCluster, broker: ServedBroker, accesses: list[str]
) -> None:
    topic_id = broker.view.image.topic_ids["t"]
    for _ in range(100):
        assert broker.topic_name(topic_id) == "t"
    assert accesses == []


def test_a_new_topic_and_an_id_that_nobody_has_are_looked_for_once_each(
    cluster: MemoryCluster, broker: ServedBroker, accesses: list[str]
) -> None:
    cluster.create_topic("u", started=False)
    new_id = cluster.metadata.image.topic_ids["u"]
    accesses.clear()
    assert broker.topic_name(new_id) == "u"
    folded = len(accesses)
    assert folded > 0
    assert broker.topic_name(new_id) == "u"
    assert len(accesses) == folded
    with pytest.raises(UnknownTopicIdError, match="no topic has the id"):
        broker.topic_name("f" * 32)
    assert len(accesses) > folded


def test_the_id_of_a_topic_that_is_gone_is_unknown_as_soon_as_metadata_was_folded(
    cluster: MemoryCluster, broker: ServedBroker
) -> None:
    topic_id = broker.view.image.topic_ids["t"]
    assert broker.topic_name(topic_id) == "t"
    cluster.commit(RemoveTopicRecord("t", topic_id))
    broker.view.refresh()
    with pytest.raises(UnknownTopicIdError):
        broker.topic_name(topic_id)
