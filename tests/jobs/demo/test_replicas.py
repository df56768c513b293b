"""The demo's replica comparison: both readers see equal replicas as equal, and each kind of difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from stratalog.jobs.demo.replicas import compare_by_deltalake, compare_by_sql
from stratalog.jobs.demo.verdict import ReplicaComparison
from stratalog.storage.records import DATA_SCHEMA, NewRecordBatch, data_table, payload_table

Change = Callable[[pa.Table], pa.Table]


def stored(values: list[bytes]) -> pa.Table:
    """Records as a replica's table holds them: one file, base offset 10, epoch 4."""
    rows = data_table([NewRecordBatch(payload_table([(1_000, b"key", value, None) for value in values]))])
    count = rows.num_rows
    rows = rows.append_column("leader_epoch", pa.repeat(pa.scalar(4, pa.int32()), count))
    return rows.append_column("base_offset", pa.repeat(pa.scalar(10, pa.int64()), count))


def with_column(rows: pa.Table, name: str, values: list[object]) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type))


CHANGES: dict[str, tuple[Change, int, int]] = {
    "equal": (lambda rows: rows, 9, 0),
    "merged otherwise": (
        lambda rows: with_column(
            with_column(with_column(rows, "base_offset", [8, 8, 8]), "offset_delta", [2, 3, 4]), "batch_base", [2, 2, 2]
        ),
        9,
        0,
    ),
    "stored in another order": (lambda rows: rows.take([2, 0, 1]), 9, 0),
    "another value": (lambda rows: with_column(rows, "value", [b"a", b"X", b"c"]), 9, 2),
    "another epoch": (lambda rows: with_column(rows, "leader_epoch", [4, 4, 5]), 9, 2),
    "the last record is missing": (lambda rows: rows.slice(0, 2), 8, 1),
    "a record twice": (lambda rows: rows.take([0, 1, 2, 2]), 10, 1),
}
"""What happened to the third replica: the change, rows in all replicas, groups of rows that SQL finds unequal."""


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The first two brokers, which Spark then knows from test to test."""
    brokers = [tmp_path_factory.mktemp("unchanged") / f"broker-{number}" for number in (1, 2)]
    for broker in brokers:
        write_deltalake(str(broker / "t-0"), stored([b"a", b"b", b"c"]))
    return brokers


@pytest.mark.parametrize("name", CHANGES)
def test_differences_between_replicas_are_found(
    spark: SparkSession, unchanged: list[Path], tmp_path: Path, name: str
) -> None:
    change, rows, differing_groups = CHANGES[name]
    assert set(DATA_SCHEMA.names) < set(stored([b"a"]).schema.names)
    brokers = [*unchanged, tmp_path / "broker-3"]
    write_deltalake(str(brokers[2] / "t-0"), change(stored([b"a", b"b", b"c"])))
    assert compare_by_sql(spark, brokers, "t", 1) == ReplicaComparison(3, rows, differing_groups)
    by_deltalake = compare_by_deltalake(brokers, "t", 1)
    assert (by_deltalake.rows, by_deltalake.differing > 0) == (rows, differing_groups > 0)
