"""Delta on Spark reads a replica's table at every stage, with the right offsets, and refuses to write to it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from stratalog.storage.log.partition_log import PartitionLog
from tests.storage.files.test_batch_file_fast import FILES, in_order, made
from tests.storage.logs import Replicas, contents, started, write
from tests.storage.upkeep.test_foreign_hands import STAGES, as_before, files_below, live_log

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MERGE = (
    "MERGE INTO {table} t USING (SELECT * FROM {table} LIMIT 1) s "
    "ON s.base_offset = t.base_offset AND s.offset_delta = t.offset_delta WHEN MATCHED THEN DELETE"
)
WRITES = [
    "INSERT INTO {table} SELECT * FROM {table} LIMIT 1",
    "INSERT OVERWRITE {table} SELECT * FROM {table} LIMIT 1",
    "DELETE FROM {table} WHERE offset_delta = 1",
    "UPDATE {table} SET value = NULL WHERE offset_delta = 1",
    MERGE,
    "OPTIMIZE {table}",
    "VACUUM {table}",
    "RESTORE TABLE {table} TO VERSION AS OF 2",
    "ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    "ALTER TABLE {table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "ALTER TABLE {table} DROP FEATURE stratalog",
]
"""Statements that write to a table, or delete files of it."""


def values_of(rows: DataFrame) -> list[tuple[int, str]]:
    found = rows.select("base_offset", "offset_delta", "value").collect()
    return sorted((row.base_offset + row.offset_delta, bytes(row.value).decode()) for row in found)


def read_by_spark(spark: SparkSession, log: PartitionLog, root: Path) -> list[tuple[int, str]]:
    rows = spark.read.format("delta").load(str(root / "1" / "t-0"))
    return [each for each in values_of(rows) if each[0] >= log.log_start_offset]


def test_delta_spark_reads_every_stage_with_the_offsets_right(spark: SparkSession, tmp_path: Path) -> None:
    log = Replicas.new(tmp_path).leader()
    write(log, "a b c", *[f"v{number}" for number in range(8)], "x y z w")
    assert read_by_spark(spark, log, tmp_path) == contents(log)
    for stage in STAGES:
        stage(log)
        assert read_by_spark(spark, log, tmp_path) == contents(log)


def test_delta_spark_refuses_to_write(spark: SparkSession, tmp_path: Path) -> None:
    """The log stays as it is, and its owner continues. RESTORE and ALTER TABLE fail on the table's schema already."""
    log = live_log(tmp_path)
    delta_log, table = tmp_path / "1" / "t-0" / "_delta_log", f"delta.`{tmp_path}/1/t-0`"
    before = files_below(delta_log)
    for statement in WRITES:
        with pytest.raises(Exception, match=r"stratalog|DELTA_NESTED_NOT_NULL_CONSTRAINT"):
            spark.sql(statement.format(table=table)).collect()
    assert {path for path in files_below(delta_log) if not path.endswith(".crc")} == before
    write(log, "more", epoch=1)
    assert read_by_spark(spark, log, tmp_path) == contents(log)


@pytest.mark.long
def test_delta_spark_reads_on_over_the_upgrade_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """By batch, by stream and by version, from commits and from a checkpoint."""
    path = str(tmp_path / "1" / "t-0")
    with as_before():
        old = Replicas.new(tmp_path).leader()
        write(old, "a b", "c")
    checkpoints, target = tmp_path / "checkpoints", tmp_path / "target"

    def stream() -> list[tuple[int, str]]:
        rows = spark.readStream.format("delta").option("ignoreDeletes", "true").load(path)
        writer = rows.writeStream.format("parquet").option("checkpointLocation", str(checkpoints))
        writer.trigger(availableNow=True).start(str(target)).awaitTermination()
        return values_of(spark.read.schema(rows.schema).parquet(str(target)))

    assert stream() == contents(old)
    log = Replicas.new(tmp_path).log()
    started(log, 1)
    write(log, "d e", epoch=1)
    assert read_by_spark(spark, log, tmp_path) == stream() == contents(log)
    log.table.checkpoint()
    write(log, "f", epoch=1)
    spark.catalog.clearCache()
    assert read_by_spark(spark, log, tmp_path) == stream() == contents(log)
    for version, count in ((old.version, 3), (old.version + 1, 3), (log.version - 1, 5), (log.version, 6)):
        rows = spark.read.format("delta").option("versionAsOf", version).load(path)
        assert values_of(rows) == contents(log)[:count]
    features = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()[0]
    assert (features.minReaderVersion, features.minWriterVersion) == (1, 7)


def test_sparks_parquet_reader_finds_the_rows_of_files_that_were_put_together_by_hand(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number, table in enumerate(FILES[-60:]):
        (tmp_path / f"{number}.parquet").write_bytes(made(table))
    found = spark.read.parquet(str(tmp_path)).toArrow()
    assert in_order(found) == in_order(pa.concat_tables(FILES[-60:]))
