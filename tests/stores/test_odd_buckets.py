"""Buckets that refuse what no append needs, or whose clock is hours off: records are acknowledged, and none is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.records import TopicPartition
from tests.stores.cloud.faults import CloudFault
from tests.stores.cloud.simulated import SimulatedCloud, endpoint_of, simulated_cloud
from tests.stores.servers import StoreServer
from tests.waiting import wait_until

TP = TopicPartition("orders", 0)
SETTINGS = {"stratalog.upkeep.interval.ms": 500}
COUNT = 30
HOURS_S = 5 * 3_600.0

Odd = Callable[[SimulatedCloud], object]
Near = tuple[SimulatedCloud, str]


@pytest.fixture
def near(versity_server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Near]:
    """A bucket, and a folder in it."""
    name, url = endpoint_of(versity_server)
    with simulated_cloud(url, "0ms") as cloud:
        monkeypatch.setenv(name, cloud.url)
        yield cloud, versity_server.new_root()


@pytest.mark.stores
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("odd", "may_lead"),
    [
        (lambda cloud: cloud.fault(CloudFault.DENY, "delete", key="*/domain/*", times=None), True),
        (lambda cloud: cloud.fault(CloudFault.DENY, "list", key="*/domain/*", times=None), False),
        (lambda cloud: cloud.clock_off(HOURS_S), True),
        (lambda cloud: cloud.clock_off(-HOURS_S), True),
    ],
    ids=["no deletions", "no listings", "clock ahead", "clock behind"],
)
def test_an_odd_bucket_loses_nothing(near: Near, odd: Odd, may_lead: bool) -> None:
    """`may_lead`: whether another leader can begin its epoch meanwhile."""
    cloud, root = near
    with Cluster.start(root, fetcher="thread", config=SETTINGS) as cluster:
        Admin(cluster).create_topics([NewTopic("orders", 1, 3, {"min.insync.replicas": 1})])
        with Producer(cluster, acks="all", delivery_timeout_ms=120_000) as producer:

            def send(first: int) -> list[int]:
                sent = [producer.send("orders", b"%d" % n, partition=0) for n in range(first, first + COUNT)]
                return [each.result(120).offset for each in sent]

            offsets = send(0)
            odd(cloud)
            offsets += send(COUNT)
            if may_lead:
                cluster.kill(ClusterView(cluster).leader(TP))
            offsets += send(2 * COUNT)
        cloud.no_faults()
        assert offsets == list(range(3 * COUNT))
        with Consumer(cluster, auto_offset_reset="earliest") as consumer:
            consumer.assign([TP])
            got: list[bytes | None] = []
            wait_until(lambda: bool(got.extend(r.value for r in consumer.poll(200))) or len(got) >= 3 * COUNT, "read")
        assert got == [b"%d" % n for n in range(3 * COUNT)]
