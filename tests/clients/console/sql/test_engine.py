"""The engine of SQL: what it refuses, and what it needs of tables. Planned in this process, nothing is run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from stratalog.clients.console.sql import engine
from stratalog.clients.console.sql.tables import TOPIC_SCHEMA
from stratalog.clients.spark.option_names import MORE_COLUMNS, SOURCE_COLUMNS

TABLES = dict.fromkeys(("orders", "my-topic.v1"), TOPIC_SCHEMA)


@pytest.fixture(scope="module")
def context() -> Iterator[Any]:
    folder = engine.__file__.rpartition("/")[0]
    sys.path.append(folder)
    made = engine.new_context(64 << 20)
    for name, schema in TABLES.items():
        engine.register(made, [name], schema, [])
    yield made
    sys.path.remove(folder)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO orders SELECT * FROM orders",
        "INSERT OVERWRITE orders SELECT * FROM orders",
        "UPDATE orders SET key = 'a'",
        "DELETE FROM orders",
        "TRUNCATE TABLE orders",
        "DROP TABLE orders",
        "DROP VIEW orders",
        "CREATE TABLE t AS SELECT 1",
        "CREATE VIEW v AS SELECT * FROM orders",
        "CREATE OR REPLACE TEMPORARY VIEW v AS SELECT * FROM orders",
        "CREATE DATABASE d",
        "CREATE SCHEMA s",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
        "CREATE FUNCTION f(x int) RETURNS int RETURN 1",
        "ALTER TABLE orders ADD COLUMN c int",
        "COPY (SELECT 1) TO 'x.csv'",
        "COPY orders TO 's3://bucket/x.parquet'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'",
        "EXPLAIN INSERT INTO orders SELECT * FROM orders",
        "SET datafusion.execution.batch_size = 1",
        "SET datafusion.catalog.information_schema = true",
        "RESET ALL",
        "SHOW TABLES",
        "SHOW ALL",
        "BEGIN",
        "COMMIT",
        "PREPARE p AS SELECT 1",
        "EXECUTE p",
        "LOAD DATA INPATH '/etc/passwd' INTO TABLE orders",
        "SELECT 1; DROP TABLE orders",
        "SELECT 1; SELECT 2",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM 'file:///etc/passwd'",
        "SELECT * FROM `/etc/passwd`",
        "SELECT * FROM `file:///etc/passwd.csv`",
        "SELECT * FROM csv.`/etc/passwd`",
        "SELECT * FROM parquet.`/x.parquet`",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_parquet('/x')",
        "SELECT * FROM parquet_metadata('/x')",
        "SELECT * FROM read_files('/etc')",
        "SELECT * FROM hidden",
        "SELECT * FROM orders o JOIN hidden h ON o.key = h.key",
        "WITH w AS (SELECT * FROM hidden) SELECT * FROM w",
        "SELECT * FROM orders UNION ALL SELECT * FROM hidden",
        "SELECT (SELECT count(*) FROM hidden)",
        "SELECT * FROM orders WHERE EXISTS (SELECT 1 FROM hidden)",
        "SELECT * FROM orders WHERE key IN (SELECT key FROM hidden)",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM information_schema.columns",
        "SELECT * FROM information_schema.df_settings",
        "SELECT * FROM datafusion.public.hidden",
        "DESCRIBE hidden",
        "SELECT getenv('HOME')",
        "SELECT java_method('java.lang.System', 'exit', 0)",
        "SELECT",
        "not SQL at all",
        "(" * 400 + "SELECT 1" + ")" * 400,
    ],
)
def test_a_statement_that_does_not_only_read_what_there_is_is_refused(context: Any, statement: str) -> None:
    with pytest.raises(Exception) as refused:  # noqa: PT011 -- of DataFusion's own kinds
        engine.planned(context, statement).optimized_logical_plan()
    assert str(refused.value)


def test_what_is_refused_is_called_as_what_is_not_there(context: Any) -> None:
    texts = []
    for name in ("hidden", "missing"):
        with pytest.raises(Exception, match="not found") as refused:
            engine.planned(context, f"SELECT * FROM {name}")
        texts.append(str(refused.value).replace(name, "NAME"))
    assert texts[0] == texts[1]


def scan(context: Any, statement: str) -> dict[str, dict[str, Any]]:
    return engine.scans_of(engine.planned(context, statement).optimized_logical_plan(), TABLES)


T2026 = 1_767_225_600_000_000


@pytest.mark.parametrize(
    ("condition", "start", "end"),
    [
        ("partition = 1", {"partition": 1}, {"partition": 2}),
        ("offset >= 5 AND offset < 9", {"offset": 5}, {"offset": 9}),
        ("offset > 5 AND offset <= 9 AND offset > 6", {"offset": 7}, {"offset": 10}),
        ("5 <= offset", {"offset": 5}, {}),
        ("9 > offset", {}, {"offset": 9}),
        ("timestamp >= '2026-01-01'", {"timestamp": T2026}, {}),
        ("offset BETWEEN 2 AND 3", {"offset": 2}, {"offset": 4}),
        ("offset >= 5 OR partition = 1", {}, {}),
        ("NOT offset >= 5", {}, {"offset": 5}),
        ("offset + 1 >= 5", {}, {}),
        ("offset >= partition", {}, {}),
        ("key = 'a'", {}, {}),
    ],
)
def test_conditions_on_place_and_time_bound_what_is_read(
    context: Any, condition: str, start: dict[str, int], end: dict[str, int]
) -> None:
    found = scan(context, f"SELECT value FROM orders WHERE {condition}")["orders"]
    assert (found["start"], found["end"]) == (start, end)


def test_two_scans_of_a_table_read_what_both_need(context: Any) -> None:
    found = scan(
        context,
        "SELECT key FROM orders WHERE offset >= 5 AND partition = 0 UNION ALL "
        "SELECT value FROM orders WHERE offset >= 3",
    )["orders"]
    assert set(found["columns"]) == {"key", "value", "offset", "partition"}
    assert (found["start"], found["end"], found["limit"]) == ({"offset": 3}, {}, None)


def test_a_limit_bounds_a_scan_without_a_condition(context: Any) -> None:
    assert scan(context, "SELECT key FROM orders LIMIT 7")["orders"]["limit"] == 7
    assert scan(context, "SELECT key FROM orders WHERE key = 'a' LIMIT 7")["orders"]["limit"] is None
    assert scan(context, "SELECT key FROM orders ORDER BY key LIMIT 7")["orders"]["limit"] is None


def test_a_table_in_an_expressions_subquery_is_read_whole(context: Any) -> None:
    found = scan(context, "SELECT key FROM orders WHERE partition = 0 AND offset > (SELECT min(offset) FROM orders)")
    assert (found["orders"]["start"], found["orders"]["columns"]) == ({}, TOPIC_SCHEMA.names)


def test_tables_of_subqueries_are_found(context: Any) -> None:
    statement = "SELECT (SELECT max(offset) FROM `my-topic.v1`) FROM orders o WHERE key NOT IN (SELECT key FROM orders)"
    assert set(scan(context, statement)) == {"orders", "my-topic.v1"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"text", "text"),
        (b"\xff\x00", "0xff00"),
        (b"x" * 20, "xxxxxxxx… (20 bytes)"),
        ("é" * 6 + "z" * 9, "éééééézz… (15 characters)"),
        ("ü".encode() * 9, "üüüü… (18 bytes)"),
        (b"a" + "ü".encode() * 9, "aüüü… (19 bytes)"),
        (float("nan"), "nan"),
        ({"a": b"\x00", "b": [1, None]}, {"a": "\x00", "b": [1, None]}),
        (True, True),
    ],
)
def test_values_are_shown_as_json_has_them(value: Any, expected: Any) -> None:
    assert engine.shown(value, 8) == expected


def test_times_that_python_has_not_are_text() -> None:
    column = pa.array([0, 1 << 61], pa.timestamp("us", tz="UTC"))
    assert engine.plain_column(column)[0].startswith("1970-01-01")


def test_a_topic_has_the_columns_of_sparks_committed_view() -> None:
    assert set(TOPIC_SCHEMA.names) == {*SOURCE_COLUMNS, *MORE_COLUMNS}
