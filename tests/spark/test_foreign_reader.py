"""Delta on Spark reads a replica's table at every stage, with the right offsets."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from stratalog.storage.log.partition_log import PartitionLog
from tests.storage.files.test_batch_file_fast import FILES, in_order, made
from tests.storage.logs import Replicas, contents, write
from tests.storage.upkeep.test_foreign_hands import STAGES

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def read_by_spark(spark: SparkSession, log: PartitionLog, root: Path) -> list[tuple[int, str]]:
    rows = spark.read.format("delta").load(str(root / "1" / "t-0")).select("base_offset", "offset_delta", "value")
    found = [(row.base_offset + row.offset_delta, bytes(row.value).decode()) for row in rows.collect()]
    return sorted(each for each in found if each[0] >= log.log_start_offset)


def test_delta_spark_reads_every_stage_with_the_offsets_right(spark: SparkSession, tmp_path: Path) -> None:
    log = Replicas.new(tmp_path).leader()
    write(log, "a b c", *[f"v{number}" for number in range(8)], "x y z w")
    assert read_by_spark(spark, log, tmp_path) == contents(log)
    for stage in STAGES:
        stage(log)
        assert read_by_spark(spark, log, tmp_path) == contents(log)


def test_sparks_parquet_reader_finds_the_rows_of_files_that_were_put_together_by_hand(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number, table in enumerate(FILES[-60:]):
        (tmp_path / f"{number}.parquet").write_bytes(made(table))
    found = spark.read.parquet(str(tmp_path)).toArrow()
    assert in_order(found) == in_order(pa.concat_tables(FILES[-60:]))
