"""How often an idle cluster asks an object store: requests are paid by number."""

from __future__ import annotations

import time

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.producer.producer import Producer
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.storage.objects.opened import open_store
from tests.stores.cloud.simulated import simulated_cloud
from tests.stores.servers import StoreServer

BROKERS, PARTITIONS = 3, 6
IDLE_S, MEASURED_S = 30, 20
REQUESTS_PER_S_MAX, WRITES_PER_S_MAX = 20, 3
"""Of one broker. Writes are paid much more than reads."""
ACK_S_MAX = 3

pytestmark = [pytest.mark.stores, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]


@pytest.mark.parametrize("server_name", ["s3_server", "versity_server"])
def test_a_broker_of_an_idle_cluster_makes_twenty_requests_a_second_at_most(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, server_name: str
) -> None:
    server: StoreServer = request.getfixturevalue(server_name)
    with simulated_cloud(server.environment["AWS_ENDPOINT_URL"], "0ms") as cloud:
        monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.url)
        with Cluster.start(server.new_root(), brokers=BROKERS, fetcher="thread") as cluster:
            Admin(cluster).create_topics([NewTopic("orders", PARTITIONS, BROKERS)])
            with Producer(cluster, acks="all") as producer:
                for each in [producer.send("orders", "first", partition=number) for number in range(PARTITIONS)]:
                    each.result(60)
                time.sleep(IDLE_S)
                cloud.reset()
                time.sleep(MEASURED_S)
                asked = cloud.counts().by_kind
                began = time.monotonic()
                producer.send("orders", "later", partition=0).result(60)
                acked_s = time.monotonic() - began
            rates = {kind: count / MEASURED_S / BROKERS for kind, count in asked.items()}
            print(f"requests/s of an idle broker: {rates}; a record is acknowledged after {acked_s:.2f} s")
            assert open_store(cluster.root).list("sessions/"), "requests went through the relay"
            assert 0 < sum(rates.values()) <= REQUESTS_PER_S_MAX
            assert sum(rates.get(kind, 0) for kind in ("put", "conditional_put", "copy")) <= WRITES_PER_S_MAX
            assert acked_s <= ACK_S_MAX
