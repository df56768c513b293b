"""The listener keeps the newest numbers for Prometheus and appends all of them to its table. Spark's events are made
here as Spark Connect makes them; tests/spark has a running query."""

from __future__ import annotations

import shutil
import socket
import urllib.request
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from deltalake import DeltaTable
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent

from stratalog.clients.spark.progress.listener import ProgressListener
from stratalog.replication.metrics import Metric
from stratalog.server.cluster import Cluster
from stratalog.storage.errors import LogDirNotFoundError
from stratalog.storage.records import TopicPartition
from tests.clients.still_cluster import StillCluster
from tests.waiting import wait_until

RUN = "00000000-0000-0000-0000-000000000001"


def event(batch_id: int, end: int, latest: int) -> QueryProgressEvent:
    offsets = {"t": {"0": end}, "@ids": {"t": "id-of-t"}}
    source = {
        "description": "PythonScan", "startOffset": None, "endOffset": offsets, "latestOffset": {"t": {"0": latest}},
        "numInputRows": 2, "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0,
    }  # fmt: skip
    body: dict[str, Any] = {
        "id": RUN, "runId": RUN, "name": "orders", "timestamp": "2026-11-25T12:00:00.000Z", "batchId": batch_id,
        "batchDuration": 1, "numInputRows": 2, "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0,
        "durationMs": {}, "stateOperators": [], "sources": [source],
        "sink": {"description": "noop", "numOutputRows": 2},
    }  # fmt: skip
    return QueryProgressEvent.fromJson({"progress": body})


@pytest.fixture
def cluster(tmp_path: Path) -> StillCluster:
    made = StillCluster(tmp_path / "cluster")
    made.create_topic("t", 1)
    return made


def values(metrics: list[Metric]) -> dict[str, float]:
    prefix = "stratalog_spark_source_"
    own = [m for m in metrics if m.name.startswith(prefix) and m.values]
    return {m.name.removeprefix(prefix): next(iter(m.values.values())) for m in own}  # type: ignore[misc]


def test_numbers_are_served_and_stored(cluster: StillCluster, tmp_path: Path) -> None:
    table = str(tmp_path / "progress")
    with ProgressListener(cluster.root, port=0, table=table, interval_ms=20) as listener:
        listener.onQueryProgress(event(1, 3, 9))
        listener.onQueryProgress(event(2, 8, 9))
        wait_until(lambda: "replicaLagMax" in values(listener.metrics()), "the replicas' lag")
        assert values(listener.metrics()) == {
            "minOffsetsBehindLatest": 1, "maxOffsetsBehindLatest": 1, "avgOffsetsBehindLatest": 1.0, "replicaLagMax": 0,
        }  # fmt: skip
        with urllib.request.urlopen(f"http://localhost:{listener.port}/metrics", timeout=30) as answer:
            assert 'maxOffsetsBehindLatest{query="orders",source="0"} 1.0\n' in answer.read().decode()
        listener.onQueryProgress(event(3, 9, 9))
        listener.onQueryTerminated(QueryTerminatedEvent(UUID(RUN), UUID(RUN), None, None))
        assert "maxOffsetsBehindLatest" not in values(listener.metrics())
    rows = sorted(DeltaTable(table).to_pyarrow_table().to_pylist(), key=lambda row: row["batchId"])
    assert [(row["batchId"], row["maxOffsetsBehindLatest"]) for row in rows] == [(1, 6), (2, 1), (3, 0)]
    assert (rows[0]["queryName"], rows[0]["topics"], rows[0]["numInputRows"]) == ("orders", ["t"], 2)


def test_rows_wait_while_the_table_cannot_be_written(
    cluster: StillCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "progress").write_text("a file where the table's folder should be")
    with ProgressListener(cluster.root, table=str(tmp_path / "progress"), interval_ms=20) as listener:
        listener.onQueryProgress(event(1, 3, 9))
        wait_until(lambda: "1 rows of progress wait" in caplog.text, "a refused write")
        (tmp_path / "progress").unlink()
    assert DeltaTable(str(tmp_path / "progress")).to_pyarrow_table().num_rows == 1


def test_queries_go_on_while_the_cluster_cannot_be_read(
    cluster: StillCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with ProgressListener(cluster.root, interval_ms=20) as listener:
        shutil.rmtree(cluster.root)
        listener.onQueryProgress(event(1, 3, 9))
        wait_until(lambda: "the replicas' lag is not known" in caplog.text, "a failed look")
        assert values(listener.metrics())["maxOffsetsBehindLatest"] == 6


def test_a_query_is_behind_as_a_group_of_its_name_is(cluster: StillCluster) -> None:
    t0 = TopicPartition("t", 0)
    cluster.commit(t0, list("abcdef"), first_ms=1_000_000)
    with ProgressListener(cluster.root, interval_ms=20) as listener:
        listener.onQueryProgress(event(1, 2, 2))

        def shown(name: str) -> float | None:
            values = {m.name: dict(m.values) for m in listener.metrics()}.get(f"kafka_consumergroup_{name}", {})
            return values.get((("consumergroup", "orders"), ("topic", "t"), ("partition", "0")))  # type: ignore[return-value]

        wait_until(lambda: shown("lag") == 4, "four records that came after the batch")
        before_s = cluster.clock.wall_ms() / 1_000
        age_s = shown("lag_seconds")
        assert age_s is not None
        assert before_s - 1_000.003 <= age_s <= cluster.clock.wall_ms() / 1_000 - 1_000.001
        listener.onQueryProgress(event(2, 6, 6))
        wait_until(lambda: shown("lag_seconds") == 0, "a query that has read everything")
        listener.onQueryTerminated(QueryTerminatedEvent(UUID(RUN), UUID(RUN), None, None))
        assert shown("lag") is None


def test_a_listener_needs_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(LogDirNotFoundError):
        ProgressListener(str(tmp_path))


@pytest.mark.slow
def test_a_cluster_in_this_process_serves_the_numbers(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    config = {"stratalog.metrics.port": port}
    with (
        Cluster.start(tmp_path / "cluster", brokers=1, fetcher="thread", config=config) as cluster,
        ProgressListener(cluster, interval_ms=20) as listener,
    ):
        listener.onQueryProgress(event(1, 3, 9))
        with urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        assert 'stratalog_spark_source_maxOffsetsBehindLatest{query="orders",source="0"} 6.0\n' in text
        assert "kafka_server_replicamanager_leadercount " in text
