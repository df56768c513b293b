"""A comparison of all replicas of a topic, record for record, by two Delta readers that are not ours.

I/O: reads the replicas' tables, with SQL through delta-spark and with deltalake; stratalog's own reader is not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from stratalog.jobs.demo.verdict import ReplicaComparison

POSITION = ("base_offset + offset_delta AS offset", "base_offset + batch_base AS batch_offset", "leader_epoch")
PRODUCER = ("producer_id", "producer_epoch", "sequence", "attributes")
DATA = ("timestamp", "timestamp_type", "key", "value", "headers", *PRODUCER)


def compare_by_sql(spark: SparkSession, brokers: Sequence[Path], topic: str, partitions: int) -> ReplicaComparison:
    """Group the rows of all replicas by all columns: each record must be there once for every broker."""
    columns = ", ".join([*POSITION, *DATA])
    replicas = [
        f"SELECT {partition} AS `partition`, {number} AS broker, {columns} FROM delta.`{broker}/{topic}-{partition}`"
        for partition in range(partitions)
        for number, broker in enumerate(brokers)
    ]
    row = spark.sql(f"""
        WITH replicas AS ({" UNION ALL ".join(replicas)}),
        records AS (
          SELECT count(*) AS copies, count(DISTINCT broker) AS brokers
          FROM replicas GROUP BY `partition`, offset, batch_offset, leader_epoch, {", ".join(DATA)}
        )
        SELECT coalesce(sum(copies), 0) AS copies,
               count_if(copies <> {len(brokers)} OR brokers <> {len(brokers)}) AS differing
        FROM records
    """).collect()[0]
    return ReplicaComparison(len(brokers), row.copies, row.differing)


def compare_by_deltalake(brokers: Sequence[Path], topic: str, partitions: int) -> ReplicaComparison:
    """Sort every replica by offset and compare it with the first broker's."""
    rows = differing = 0
    for partition in range(partitions):
        first, *others = [_records(broker / f"{topic}-{partition}") for broker in brokers]
        rows += first.num_rows + sum(other.num_rows for other in others)
        differing += max((_count_differing(first, other) for other in others), default=0)
    return ReplicaComparison(len(brokers), rows, differing)


def _records(path: Path) -> pa.Table:
    rows = DeltaTable(str(path)).to_pyarrow_table()
    base = rows["base_offset"].to_numpy()
    offsets = pa.array(base + rows["offset_delta"].to_numpy())
    batch_offsets = pa.array(base + rows["batch_base"].to_numpy())
    columns = [offsets, batch_offsets, rows["leader_epoch"], *(rows[name] for name in DATA)]
    return pa.table(columns, names=["offset", "batch_offset", "leader_epoch", *DATA]).sort_by("offset")


def _count_differing(first: pa.Table, other: pa.Table) -> int:
    if first.equals(other):
        return 0
    ones: list[dict[str, object]] = first.to_pylist()
    others: list[dict[str, object]] = other.to_pylist()
    unequal = sum(one != another for one, another in zip(ones, others, strict=False))
    return abs(len(ones) - len(others)) + unequal
