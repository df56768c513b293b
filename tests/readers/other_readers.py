"""What other engines read of a replica: offset, leader epoch, value, timestamp (ms) of each row. I/O: reads tables."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

Row = tuple[int, int, bytes | None, int | None]
Rows = list[Row]

COLUMNS = ["offset", "leader_epoch", "value", "timestamp"]
SQL = 'SELECT base_offset + offset_delta AS "offset", leader_epoch, value, timestamp FROM {}'
_NEEDED = ("polars", "duckdb", "duckdb_extension_delta", "daft", "datafusion")
LACKING = [name for name in _NEEDED if not importlib.util.find_spec(name)]
"""The packages that are not installed."""


def rows_of(table: pa.Table) -> Rows:
    """The rows in order of offset."""
    times = table["timestamp"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    columns = [table[name].to_pylist() for name in COLUMNS[:3]]
    return sorted(zip(*columns, times.to_pylist(), strict=True))


def duckdb_with_delta() -> Any:
    """A connection of DuckDB that has its Delta extension, without a download."""
    import duckdb

    found = importlib.util.find_spec("duckdb_extension_delta")
    assert found is not None
    assert found.origin is not None
    (extension,) = Path(found.origin).parent.glob("extensions/*/delta.duckdb_extension")
    connection = duckdb.connect()
    connection.execute(f"LOAD '{extension}'")
    return connection


def by_polars(table: Path) -> Callable[[], Rows]:
    """`scan_delta`, Polars' own reader, of the version of now."""
    import polars as pl
    from deltalake import DeltaTable

    scanned = pl.scan_delta(DeltaTable(str(table)))

    def read() -> Rows:
        offset = (pl.col("base_offset") + pl.col("offset_delta")).alias("offset")
        return rows_of(scanned.select(offset, *COLUMNS[1:]).collect().to_arrow())

    return read


def by_duckdb(table: Path) -> Callable[[], Rows]:
    """DuckDB's Delta extension, attached at the version of now."""
    connection = duckdb_with_delta()
    connection.execute(f"ATTACH '{table}' AS replica (TYPE delta, PIN_SNAPSHOT)")
    connection.execute("SELECT count(*) FROM replica").fetchall()
    return lambda: rows_of(connection.execute(SQL.format("replica")).to_arrow_table())


def by_daft(table: Path) -> Callable[[], Rows]:
    """Daft's own reader, of the version of now."""
    import daft
    from deltalake import DeltaTable

    version = DeltaTable(str(table)).version()

    def read() -> Rows:
        offset = (daft.col("base_offset") + daft.col("offset_delta")).alias("offset")
        return rows_of(daft.read_deltalake(str(table), version=version).select(offset, *COLUMNS[1:]).to_arrow())

    return read


def by_datafusion(table: Path) -> Callable[[], Rows]:
    """DataFusion over deltalake's table provider, of the version of now."""
    import datafusion
    from deltalake import DeltaTable

    context = datafusion.SessionContext()
    context.register_table("replica", DeltaTable(str(table)))
    return lambda: rows_of(pa.table(context.sql(SQL.format("replica"))))


def by_deltalake(table: Path) -> Callable[[], Rows]:
    """deltalake's own SQL, of the version of now."""
    from deltalake import DeltaTable, QueryBuilder

    opened = DeltaTable(str(table))
    return lambda: rows_of(pa.table(QueryBuilder().register("replica", opened).execute(SQL.format("replica"))))


READERS: Mapping[str, Callable[[Path], Callable[[], Rows]]] = {
    "polars": by_polars,
    "duckdb": by_duckdb,
    "daft": by_daft,
    "datafusion": by_datafusion,
    "deltalake": by_deltalake,
}
"""Each opens a table at its newest version; what it returns reads that version, then or later."""
