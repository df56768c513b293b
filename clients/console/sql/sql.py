"""SQL over topics, typed tables and the cluster's state: one statement that reads, and the tables that there are.

I/O: as `tables` and `child`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.question import Parameter, Question
from stratalog.clients.console.shown_text import visible
from stratalog.clients.console.sql.bounds import BOUNDS
from stratalog.clients.console.sql.child import answered
from stratalog.clients.console.sql.tables import CLUSTER_SCHEMAS, ReadableTables
from stratalog.storage.clock import SystemClock

EXAMPLES = (
    "SELECT topic, partition, leader, isr FROM partitions WHERE is_under_replicated",
    "SELECT leader, count(*) AS partitions FROM partitions GROUP BY leader ORDER BY leader",
    (
        "SELECT topic, partition, max(leader_epoch) AS epoch, count(*) AS leaders FROM leader_epochs "
        "GROUP BY topic, partition ORDER BY epoch DESC, topic, partition LIMIT 20"
    ),
    "SELECT group_id, topic, sum(lag) AS behind FROM group_lag GROUP BY group_id, topic ORDER BY behind DESC, group_id",
)
"""Statements to begin with, which give the same rows in Spark."""


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """The rows of a statement. Values are JSON's; bytes are text, or hex behind `0x`.

    types   Arrow's names
    is_cut  whether there were more rows than `limit`, or than fit
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    is_cut: bool
    took_ms: int


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """A column of a table."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A table that a statement may read.

    name  as a statement names it, without the backticks of a topic's name
    of    `topic`, `typed table` or `cluster`
    """

    name: str
    of: str
    columns: tuple[SqlColumn, ...]


@dataclass(frozen=True, slots=True)
class SqlTables:
    """The tables, and how much a statement may take."""

    tables: tuple[SqlTable, ...]
    seconds_max: float
    read_bytes_max: int
    memory_bytes_max: int
    rows_max: int


def sql_answer(asker: Asker, sql: str, limit: int) -> SqlAnswer:
    """The rows of one statement. InvalidRequestError with the reason when it is refused, RequestTimedOutError and
    PolicyViolationError beyond its bounds, StorageNotKnownError."""
    clock = SystemClock()
    begun_ms = clock.monotonic_ms()
    bounds = replace(BOUNDS, rows=max(1, min(limit, BOUNDS.rows)))
    found = answered(sql, ReadableTables(asker), bounds, clock)
    rows = tuple(tuple(row) for row in found["rows"])
    took_ms = clock.monotonic_ms() - begun_ms
    return SqlAnswer(tuple(found["columns"]), tuple(found["types"]), rows, found["is_cut"], took_ms)


def sql_tables(asker: Asker) -> SqlTables:
    """The tables that the asker may read."""
    tables = ReadableTables(asker)
    found = []
    for name in tables.names():
        of = "cluster" if name in CLUSTER_SCHEMAS else "topic"
        found.append(SqlTable(name, of, _columns(tables.schema(name))))
    found += [SqlTable(name, "typed table", _columns(schema)) for name, schema in tables.typed().values()]
    return SqlTables(tuple(found), BOUNDS.seconds, BOUNDS.read_bytes, BOUNDS.memory_bytes, BOUNDS.rows)


def _columns(schema: pa.Schema) -> tuple[SqlColumn, ...]:
    return tuple(SqlColumn(visible(field.name), str(field.type)) for field in schema)


QUESTIONS = (
    Question(
        "sql",
        "The rows of one SQL statement that reads topics, typed tables and the cluster's tables. Spark's dialect; "
        "names are case sensitive, and in `backticks` if they have a dot or a dash. sql_tables lists the tables.",
        sql_answer,
        {
            "sql": Parameter(str, "SELECT … or WITH …"),
            "limit": Parameter(int, f"how many rows, at most {BOUNDS.rows}", 200),
        },
    ),
    Question("sql_tables", "The tables and columns that sql can read.", sql_tables),
)
