"""`ProgressListener` follows streaming queries: numbers at a metrics port, and rows in a Delta table."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from stratalog import ProgressListener
from tests.clients.still_cluster import StillCluster
from tests.waiting import wait_until


def text_of(port: int | None) -> str:
    with urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def test_a_query_is_behind_by_what_its_limit_left(ours: SparkSession, tmp_path: Path) -> None:
    cluster = StillCluster(tmp_path / "cluster")
    t0, t1 = cluster.create_topic("t", 2)
    cluster.commit(t0, list("abcdef"))
    cluster.commit(t1, ["g"])
    table = str(tmp_path / "progress")
    listener = ProgressListener(cluster.root, port=0, table=table, interval_ms=100)
    ours.streams.addListener(listener)
    try:
        stream = ours.readStream.format("stratalog").option("stratalog.root", cluster.root).option("subscribe", "t")
        frame = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 2).load()
        writer = frame.writeStream.format("noop").queryName("lagging")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            query.processAllAvailable()
            done = 'stratalog_spark_source_maxOffsetsBehindLatest{query="lagging",source="0"} 0.0'
            wait_until(lambda: done in text_of(listener.port), "the last micro-batch at the metrics port")
            wait_until(lambda: "replicaLagMax 0" in text_of(listener.port), "the replicas' lag")
        finally:
            query.stop()
        wait_until(lambda: "lagging" not in text_of(listener.port), "the end of the query")
    finally:
        ours.streams.removeListener(listener)
        listener.close()
    rows = [row for row in DeltaTable(table).to_pyarrow_table().to_pylist() if row["numInputRows"]]
    rows.sort(key=lambda row: row["batchId"])
    assert sum(row["numInputRows"] for row in rows) == 7
    assert (rows[0]["queryName"], rows[0]["topics"], rows[0]["queryId"]) == ("lagging", ["t"], str(query.id))
    behind = [row["maxOffsetsBehindLatest"] for row in rows]
    assert behind == sorted(behind, reverse=True)
    assert (behind[0], behind[-1]) == (5, 0)
    assert all(row["minOffsetsBehindLatest"] <= row["avgOffsetsBehindLatest"] for row in rows)
