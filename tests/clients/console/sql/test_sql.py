"""SQL in its child process: answers, access and bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from stratalog.clients.console.catalogue import QUESTIONS
from stratalog.clients.console.sql.bounds import BOUNDS, SqlBounds, TableScan
from stratalog.clients.console.sql.child import answered
from stratalog.clients.console.sql.tables import TOPIC_SCHEMA, ReadableTables
from stratalog.storage import errors
from stratalog.storage.clock import SystemClock
from tests.clients.console.console_world import HIDDEN, World, running_world

SHORT = replace(BOUNDS, seconds=20.0, memory_bytes=64 << 20)
CROSS = ", ".join(f"numbers {letter}" for letter in "abcdefghijkl")
"""10 ** 12 rows."""


class OneTable:
    """A table `numbers` with a column `n`, of as many rows as are asked for."""

    def __init__(self, rows: int = 10) -> None:
        self.rows = rows
        self.scans: list[TableScan] = []

    def named_in(self, sql: str) -> dict[str, pa.Schema]:
        return {"numbers": pa.schema({"n": pa.int64(), "partition": pa.int32()})} if "numbers" in sql else {}

    def qualified(self, name: str) -> tuple[str, str] | None:
        return None

    def batches(self, name: str, scan: TableScan) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        self.scans.append(scan)
        whole = pa.table({"n": range(self.rows), "partition": pa.array([0] * self.rows, pa.int32())})
        rows = whole.select(list(scan.columns))
        return rows.schema, iter(rows.to_batches(max_chunksize=1_000))


def run(statement: str, tables: OneTable | None = None, bounds: SqlBounds = SHORT) -> Mapping[str, Any]:
    return answered(statement, tables or OneTable(), bounds, SystemClock())


def test_rows_are_values_of_json_and_only_what_is_needed_is_read() -> None:
    tables = OneTable()
    found = run("SELECT sum(n) AS total, 0.5 AS half, NULL AS nothing FROM numbers WHERE partition = 0", tables)
    assert (found["columns"], found["rows"], found["is_cut"]) == (
        ["total", "half", "nothing"],
        [[45, 0.5, None]],
        False,
    )
    assert tables.scans[0].start == {"partition": 0}


def test_rows_beyond_the_bound_are_cut() -> None:
    found = run("SELECT n FROM numbers ORDER BY n", bounds=replace(SHORT, rows=3))
    assert (found["rows"], found["is_cut"]) == ([[0], [1], [2]], True)
    found = run("SELECT repeat('x', 1000) FROM numbers", bounds=replace(SHORT, answer_bytes=2_500))
    assert (len(found["rows"]), found["is_cut"]) == (2, True)


@pytest.mark.parametrize(
    ("statement", "error", "text"),
    [
        (f"SELECT count(*) FROM {CROSS} WHERE a.n + l.n > 3", errors.RequestTimedOutError, "1.5 s and was ended"),
        ("SELECT length(repeat('x', 2000000000))", errors.PolicyViolationError, "memory"),
        ("SELECT array_agg(value) FROM generate_series(1, 200000000)", errors.PolicyViolationError, "memory"),
        ("SELECT value FROM generate_series(1, 200000000) ORDER BY value DESC", errors.PolicyViolationError, "memory"),
        ("SELECT " + "+".join(["1"] * 30_000), errors.InvalidRequestError, "refused"),
        ("DROP TABLE numbers", errors.InvalidRequestError, "refused: .*DropTable"),
        ("SELECT * FROM numbers; SELECT 1", errors.InvalidRequestError, "single SQL statement"),
        (" ", errors.InvalidRequestError, "empty"),
        ("SELECT '\x00'", errors.InvalidRequestError, "NUL"),
        ("SELECT '" + "x" * 70_000 + "'", errors.InvalidRequestError, "65536 bytes"),
    ],
)  # fmt: skip
def test_a_statement_beyond_its_bounds_is_ended_with_the_reason(
    statement: str, error: type[errors.StratalogError], text: str
) -> None:
    bounds = replace(SHORT, seconds=1.5) if error is errors.RequestTimedOutError else SHORT
    with pytest.raises(error, match=text):
        run(statement, bounds=bounds)


def test_a_table_that_is_too_large_is_refused_before_all_of_it_is_read() -> None:
    with pytest.raises(errors.PolicyViolationError, match="reads more than 50000 bytes: name fewer columns of numbers"):
        run("SELECT n FROM numbers", OneTable(20_000), replace(SHORT, read_bytes=50_000))


# -- of a cluster ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with running_world() as made:
        yield made


def asked(world: World, statement: str, *, is_alice: bool = False) -> Any:
    return QUESTIONS["sql"].ask(world.asker(is_alice=is_alice), {"sql": statement})


def test_a_topic_has_its_committed_records_with_the_columns_of_spark(world: World) -> None:
    found = asked(world, "SELECT * FROM orders WHERE partition = 0 ORDER BY offset")
    assert list(found.columns) == TOPIC_SCHEMA.names
    assert [row[found.columns.index("offset")] for row in found.rows] == [0, 2, 4, 7, 9, 10, 11]
    sums = asked(
        world,
        "SELECT sum(CAST(get_json_object(CAST(value AS STRING), '$.n') AS INT)) AS n, count(*) FROM orders "
        "WHERE offset < 5 AND timestamp >= '2001-01-01'",
    )
    assert sums.rows == ((6, 3),)


def test_the_clusters_tables_are_joined_with_topics(world: World) -> None:
    found = asked(
        world,
        "SELECT e.leader, count(*) FROM orders o JOIN leader_epochs e ON e.topic = o.topic "
        "AND e.partition = o.partition AND e.leader_epoch = o.leaderEpoch WHERE o.offset >= 9 GROUP BY e.leader",
    )
    assert [row[1] for row in found.rows] == [3]
    assert found.rows[0][0] != world.first_leader


def test_a_topic_that_may_not_be_read_is_as_one_that_is_not_there(world: World) -> None:
    texts = []
    for topic in (f"{HIDDEN}-log", f"{HIDDEN}-not"):
        statement = f"WITH w AS (SELECT * FROM `{topic}`) SELECT key FROM orders UNION ALL SELECT key FROM w"
        with pytest.raises(errors.InvalidRequestError, match="not found") as refused:
            asked(world, statement, is_alice=True)
        texts.append(str(refused.value).replace(topic, "TOPIC"))
    assert texts[0] == texts[1]
    tables = ReadableTables(world.asker(is_alice=True)).named_in(
        f"a {HIDDEN}-log and orders, brokers, __consumer_offsets"
    )
    assert list(tables) == ["orders"], "the engine, which refuses other tables in every form, gets no more"


@pytest.mark.parametrize("table", ["partitions", "partition_history", "leader_epochs", "group_lag"])
def test_the_clusters_tables_have_no_row_of_what_is_hidden(world: World, table: str) -> None:
    texts = []
    for is_alice in (True, False):
        tables = ReadableTables(world.asker(is_alice=is_alice))
        _, batches = tables.batches(table, TableScan(tuple(tables.schema(table).names)))
        texts.append(str([batch.to_pylist() for batch in batches]))
    assert "orders" in texts[0]
    assert [HIDDEN in text for text in texts] == [False, True]


def test_the_list_of_tables_is_of_what_may_be_read(world: World) -> None:
    tables = QUESTIONS["sql_tables"].ask(world.asker(is_alice=True), {})
    assert [each.name for each in tables.tables] == [  # type: ignore[attr-defined]
        "partitions", "partition_history", "leader_epochs", "group_lag", "orders",
    ]  # fmt: skip
    with pytest.raises(errors.InvalidRequestError, match="'brokers' not found"):
        asked(world, "SELECT * FROM brokers", is_alice=True)
