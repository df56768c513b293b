"""Faster starts of Spark's Python processes: the imports of a worker, and a cluster that works without them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from stratalog.replication.fast_start.linked_home import linked_home

PROJECT = Path(__file__).parents[2]
WITHOUT = """
import sys
from stratalog import Cluster, Producer, Admin, stratalog_session
from stratalog.replication.fast_start import planners
spark = stratalog_session("without", fetch_slots=6, extra={"spark.stratalog.fast.start": "false"}, log_dir=sys.argv[1])
assert planners._OF_THIS_PROCESS == []
with Cluster.start(sys.argv[1] + "/cluster", brokers=3, spark=spark) as cluster:
    Admin(cluster).create_topic("t", partitions=2, replication_factor=3, min_insync_replicas=2)
    with Producer(cluster) as producer:
        for number in range(100):
            producer.send("t", value=str(number))
    source = spark.readStream.format("stratalog").option("stratalog.root", cluster.root).option("subscribe", "t")
    query = (
        source.option("startingOffsets", "earliest").load().writeStream.format("memory").queryName("q")
        .trigger(availableNow=True).option("checkpointLocation", sys.argv[1] + "/checkpoint").start()
    )
    query.awaitTermination()
    print("rows", spark.table("q").count())
"""


def test_a_worker_imports_spark_as_it_is_installed(spark: SparkSession) -> None:
    def homes(batches):  # type: ignore[no-untyped-def]
        import pyspark

        for batch in batches:
            yield pa.RecordBatch.from_arrays([pa.array([pyspark.__file__] * batch.num_rows)], ["home"])

    found = spark.range(1).mapInArrow(homes, "home string").first()
    assert found is not None
    assert ".zip" not in found.home


def test_a_chosen_home_is_not_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = linked_home(tmp_path)
    assert home is not None
    assert linked_home(tmp_path) == home
    assert (Path(home) / "jars").is_dir()
    assert not (Path(home) / "python").exists()
    Path(home).chmod(0o777)
    assert linked_home(tmp_path) is None
    Path(home).chmod(0o700)
    monkeypatch.setenv("SPARK_HOME", "anywhere")
    assert linked_home(tmp_path) is None


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(400)
def test_brokers_fetch_and_queries_read_without_fast_starts(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path)], env=environment, cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert "rows 100" in done.stdout, done.stderr
