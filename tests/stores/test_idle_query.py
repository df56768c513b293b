"""How often an idle streaming query asks an object store: requests are paid by number."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from stratalog.clients.admin.admin import Admin
from stratalog.clients.producer.producer import Producer
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from tests.stores.cloud.simulated import simulated_cloud
from tests.stores.servers import StoreServer
from tests.stores.test_cluster_on_a_store import SETTINGS
from tests.waiting import wait_until

PARTITIONS, RECORDS = 6, 12
IDLE_S, MEASURED_S = 15, 20
REQUESTS_PER_S_MAX = 5
FIRST_RECORD_S_MAX = 10

pytestmark = [pytest.mark.stores, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(s3_server: StoreServer) -> Iterator[Cluster]:
    with Cluster.start(s3_server.new_root(), brokers=3, fetcher="thread", config=SETTINGS) as running:
        Admin(running).create_topics([NewTopic("orders", PARTITIONS, 3)])
        yield running


def send(cluster: Cluster) -> None:
    with Producer(cluster) as producer:
        sent = [producer.send("orders", f"order {i}", partition=i % PARTITIONS) for i in range(RECORDS)]
        for each in sent:
            each.result(60)


def rows(query: StreamingQuery) -> int:
    """The records that a query has read. Raises the error that ended it."""
    if (reason := query.exception()) is not None:
        raise reason
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def test_an_idle_query_makes_five_requests_a_second_at_most(
    spark: SparkSession, cluster: Cluster, s3_server: StoreServer, tmp_path: Path
) -> None:
    """Three brokers lead partitions; only the query's requests go through the relay."""
    send(cluster)
    with simulated_cloud(s3_server.environment["AWS_ENDPOINT_URL"], "0ms") as cloud:
        environment = {**s3_server.environment, "AWS_ENDPOINT_URL": cloud.url}
        store = {f"stratalog.storage.{name.lower().replace('_', '.')}": value for name, value in environment.items()}
        options = {"stratalog.root": cluster.root, "subscribe": "orders", "startingOffsets": "earliest", **store}
        stream = spark.readStream.format("stratalog").options(**options).load()
        sink = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = sink.start()
        try:
            wait_until(lambda: rows(query) == RECORDS, "the first batches", timeout_s=120, pause_s=0.5)
            time.sleep(IDLE_S)
            cloud.reset()
            time.sleep(MEASURED_S)
            asked = cloud.counts().by_kind
            per_s = asked.total() / MEASURED_S
            print(f"{per_s:.1f} requests/s of an idle query: {dict(asked)}")
            assert 0 < per_s <= REQUESTS_PER_S_MAX
            began = time.monotonic()
            send(cluster)
            wait_until(lambda: rows(query) == 2 * RECORDS, "what comes later", FIRST_RECORD_S_MAX, pause_s=0.1)
            print(f"all {RECORDS} records of the next batches after {time.monotonic() - began:.1f} s")
        finally:
            query.stop()
