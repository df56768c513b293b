"""Where the records of an erasure's request end, by the leaders' logs: what a reader of the topic cannot wait for."""

from __future__ import annotations

import pytest

from stratalog.replication.metadata.records import EraseRecord
from stratalog.server.admin.erasure import ends_left
from stratalog.server.view.cluster_view import ClusterView
from tests.clients.memory_cluster import ROOT, MemoryCluster


def request(leader_epochs: tuple[int, ...]) -> EraseRecord:
    """About five records of the first partition, and two of the second."""
    return EraseRecord("t", 1, '{"key":{"equals":"bob"}}', (5, 2), "request", leader_epochs)


@pytest.mark.parametrize(
    ("leader_epochs", "ends"),
    [((0, 0), (3, 2)), ((1, 0), (5, 2)), ((), (5, 2))],
    ids=["records were lost since", "it is of the present epoch", "of an unknown epoch, as in earlier versions"],
)
def test_they_end_where_a_later_epoch_began(leader_epochs: tuple[int, ...], ends: tuple[int, ...]) -> None:
    cluster = MemoryCluster()
    first, second = cluster.create_topic("t", 2)
    cluster.append(first, b"a", b"bob", b"c")
    cluster.append(second, b"bob", b"d")
    cluster.follow(2, first)
    cluster.append(first, b"bob", b"e")
    cluster.elect(first, 2, unclean=True)
    view = ClusterView(ROOT, stores=cluster.stores, clock=cluster.clock, ids=cluster.ids)
    view.refresh()
    assert ends_left(view, request(leader_epochs)) == (5, 2), "the leader has not started: nobody knows yet"
    cluster.start_leader(first)
    cluster.publish(first)
    assert ends_left(view, request(leader_epochs)) == ends
    cluster.stores.lost.add(cluster.root_of(2))
    other = ClusterView(ROOT, stores=cluster.stores, clock=cluster.clock, ids=cluster.ids)
    other.refresh()
    assert ends_left(other, request(leader_epochs)) == (5, 2)
