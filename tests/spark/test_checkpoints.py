"""Delta on Spark reads the checkpoints that we write."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from tests.storage.checkpoints import checkpointed_log

pytestmark = pytest.mark.spark


def test_delta_spark_reads_our_checkpoints(spark: SparkSession, tmp_path: Path) -> None:
    directory, values = checkpointed_log(tmp_path)
    table = spark.read.format("delta").load(directory)
    ordered = table.orderBy(col("base_offset") + col("offset_delta")).select("value")
    assert [bytes(row.value).decode() for row in ordered.collect()] == values
    assert table.where("base_offset < 30").count() > 0
    history = spark.sql(f"DESCRIBE DETAIL delta.`{directory}`").first()
    assert history is not None
    assert history["numFiles"] > 1
