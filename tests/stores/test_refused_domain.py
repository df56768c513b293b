"""A bucket that refuses a cluster with 403: leaders give way one after the other, nothing is lost, and all return."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.replication import cadence
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.records import TopicPartition
from tests.stores.cloud.faults import CloudFault
from tests.stores.cloud.simulated import SimulatedCloud, endpoint_of, simulated_cloud
from tests.stores.servers import StoreServer
from tests.waiting import wait_until

TP = TopicPartition("orders", 0)
COUNT = 30
RETURN_S = (cadence.DOMAIN_RETRY.most_ms + 20_000) / 1_000

Near = tuple[SimulatedCloud, str]


@pytest.fixture
def near(versity_server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Near]:
    """A bucket that refuses what it is told to, and a folder in it."""
    name, url = endpoint_of(versity_server)
    with simulated_cloud(url, "0ms") as cloud:
        monkeypatch.setenv(name, cloud.url)
        yield cloud, versity_server.new_root()


@pytest.mark.stores
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kinds", [("put",), ("conditional_put",), ()], ids=["data files", "commits", "everything"])
def test_a_domain_that_answers_403_loses_nothing(near: Near, kinds: tuple[str, ...]) -> None:
    cloud, root = near
    with Cluster.start(root, fetcher="thread") as cluster:
        Admin(cluster).create_topics([NewTopic("orders", 1, 3, {"min.insync.replicas": 1})])
        view = ClusterView(cluster)

        def state() -> PartitionRecord:
            view.refresh()
            return view.image.partition(TP)

        with Producer(cluster, acks="all", delivery_timeout_ms=240_000) as producer:
            first = [producer.send("orders", b"%d" % n, partition=0).result(60).offset for n in range(COUNT)]
            cloud.fault(CloudFault.DENY, *kinds, key="*/domain/orders*", times=None)
            waiting = [producer.send("orders", b"%d" % n, partition=0) for n in range(COUNT, 2 * COUNT)]
            wait_until(lambda: set(state().offline) == {1, 2, 3}, "each has given way", 120)
            assert not any(each.done() for each in waiting)
            cloud.no_faults()
            assert first + [each.result(120).offset for each in waiting] == list(range(2 * COUNT))
        wait_until(lambda: len(state().isr) == 3 and not state().offline, "all are back", RETURN_S)
        with Consumer(cluster, auto_offset_reset="earliest") as consumer:
            consumer.assign([TP])
            found: list[bytes | None] = []
            wait_until(
                lambda: bool(found.extend(r.value for r in consumer.poll(200))) or len(found) >= 2 * COUNT, "read"
            )
        assert found == [b"%d" % n for n in range(2 * COUNT)]
