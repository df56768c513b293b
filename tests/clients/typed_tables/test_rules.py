"""Settings of typed tables, how tables grow, what erasures mean there: tables of cases, without Spark."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from stratalog.clients.typed_tables.checkpoint import QueryProgress, parse_offsets
from stratalog.clients.typed_tables.config import (
    OFF,
    TypedTableConfig,
    WriteMode,
    check_registry,
    dead_letter_table,
    is_due,
    write_mode,
)
from stratalog.clients.typed_tables.erasure import (
    DEAD_LETTERS,
    columns_of_table,
    done_up_to,
    open_requests,
    vacuum_is_due,
)
from stratalog.clients.typed_tables.predicates import erased_rows
from stratalog.clients.typed_tables.rows.evolution import (
    RECORD_COLUMNS,
    alterations,
    as_here,
    conformed,
    fitting,
    schema_change,
    sql_type,
    wider_type,
)
from stratalog.replication.metadata.records import EraseRecord
from stratalog.storage.errors import InvalidConfigError

I8, I16, I32, I64 = pa.int8(), pa.int16(), pa.int32(), pa.int64()
F32, F64, TEXT = pa.float32(), pa.float64(), pa.string()
DATE, NTZ, UTC = pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")


def decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale)


# -- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "policy", "mode"),
    [
        ("auto", ("delete",), WriteMode.APPEND),
        ("auto", ("compact",), WriteMode.UPSERT),
        ("auto", ("compact", "delete"), WriteMode.UPSERT),
        ("append", ("compact",), WriteMode.APPEND),
        ("upsert", ("delete",), WriteMode.UPSERT),
    ],
)
def test_the_mode_is_that_of_the_topic_unless_it_is_set(given: str, policy: tuple[str, ...], mode: WriteMode) -> None:
    assert write_mode(TypedTableConfig(value_format="avro", write_mode=given), policy) is mode


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "value.format is required: one of avro, json, protobuf"),
        ({"value.format": "csv"}, "String must be one of"),
        ({"value.format": "avro", "value.schema": "id INT"}, "leave it out"),
        ({"value.format": "json", "protobuf.message": "m"}, "leave it out"),
        ({"value.format": "json", "on.eror": "skip"}, "did you mean on.error"),
        ({"value.format": "json", "max.offsets.per.trigger": 0}, "Value must be at least 1"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_to_do(config: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        TypedTableConfig.from_settings(config)


@pytest.mark.parametrize(
    ("config", "has_registry", "reason"),
    [
        ({"value.format": "avro"}, False, "needs a registry"),
        ({"value.format": "protobuf"}, False, "needs a registry"),
        ({"value.format": "json", "value.schema": "id INT"}, True, "give one of them"),
        ({"value.format": "json"}, False, None),
        ({"value.format": "json"}, True, None),
    ],
)
def test_formats_need_a_registry_or_columns(config: dict[str, object], has_registry: bool, reason: str | None) -> None:
    parsed = TypedTableConfig.from_settings(config)
    if reason is None:
        check_registry(parsed, has_registry=has_registry)
    else:
        with pytest.raises(InvalidConfigError, match=reason):
            check_registry(parsed, has_registry=has_registry)


def test_upsert_keeps_the_key_whatever_the_settings_keep() -> None:
    config = TypedTableConfig.from_settings({"value.format": "json", "keep.columns": "headers"})
    assert config.kept(WriteMode.APPEND) == {"headers"}
    assert config.kept(WriteMode.UPSERT) == {"headers", "key"}
    nothing = TypedTableConfig.from_settings({"value.format": "json", "keep.columns": ""})
    assert nothing.kept(WriteMode.APPEND) == frozenset()


def test_dead_letters_have_the_name_of_the_table() -> None:
    config = TypedTableConfig(value_format="json")
    assert dead_letter_table("main.sales.orders", config) == "main.sales.orders__dlq"
    assert dead_letter_table("t", TypedTableConfig(value_format="json", dlq_table="d")) == "d"


def test_work_in_intervals_is_due_after_each() -> None:
    assert [is_due(now, 100, 50) for now in (100, 149, 150)] == [False, False, True]
    assert is_due(99, 100, 50), "the clock was set back"
    assert not is_due(10_000, 100, OFF)


# -- evolution ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "wider"),
    [
        (I32, I32, I32), (I8, I64, I64), (I16, I32, I32), (F32, F64, F64),
        (I32, F64, F64), (I32, F32, F64), (I64, F64, None), (I64, F32, None),
        (I32, decimal(10, 0), decimal(10, 0)), (I8, decimal(4, 0), decimal(10, 0)),
        (I64, decimal(4, 2), decimal(22, 2)),
        (decimal(5, 2), decimal(6, 4), decimal(7, 4)), (decimal(38, 0), decimal(3, 2), None),
        (DATE, NTZ, NTZ), (DATE, UTC, None), (TEXT, I32, None), (pa.bool_(), I32, None), (TEXT, pa.binary(), None),
        (decimal(5, 2), F64, None),
    ],
)  # fmt: skip
def test_types_grow_as_delta_widens_them(one: pa.DataType, other: pa.DataType, wider: pa.DataType | None) -> None:
    assert wider_type(one, other) == wider
    assert wider_type(other, one) == wider


def columns(**kinds: pa.DataType) -> pa.DataType:
    return pa.struct(list(kinds.items()))


ITEM = columns(name=TEXT, price=I32)
CHANGES = [
    ("the same", columns(id=I32), columns(id=I32), []),
    ("narrower than the table", columns(id=I64), columns(id=I32), []),
    ("without a column of the table", columns(id=I32, item=TEXT), columns(item=TEXT), []),
    ("in another case", columns(ID=I32), columns(id=I32), []),
    ("in another case to Spark", pa.struct([("μs", I32), ("Kelvin", I32)]),
     pa.struct([("µS", I32), ("\u212aelvin", I32)]), []),
    ("only null", columns(id=I32), columns(id=pa.null(), other=pa.null()), []),
    ("what no file holds, for a column of another type", columns(id=I32, s=TEXT, l=pa.list_(I32)),
     columns(id=pa.struct([]), s=pa.list_(pa.null()), l=pa.map_(TEXT, columns(nothing=pa.null()))), []),
    ("an empty record", columns(id=I32), columns(id=I32, nothing=pa.struct([])), []),
    ("a new column", columns(id=I32), columns(id=I32, item=ITEM), [
        "ALTER TABLE t ADD COLUMNS (`item` STRUCT<`name`: STRING, `price`: INT>)",
    ]),
    ("new within lists and maps", columns(l=pa.list_(columns(a=I32)), m=pa.map_(TEXT, columns(a=I32))),
     columns(l=pa.list_(columns(b=I32)), m=pa.map_(TEXT, columns(b=TEXT))), [
        "ALTER TABLE t ADD COLUMNS (`l`.`element`.`b` INT, `m`.`value`.`b` STRING)",
    ]),
    ("wider, and new", columns(id=I32, item=ITEM), columns(id=I64, item=columns(price=decimal(12, 2)), at=UTC), [
        "ALTER TABLE t ADD COLUMNS (`at` TIMESTAMP)",
        "ALTER TABLE t SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        "ALTER TABLE t ALTER COLUMN `id` TYPE BIGINT",
        "ALTER TABLE t ALTER COLUMN `item`.`price` TYPE DECIMAL(12, 2)",
    ]),
    ("a value that is no record", columns(), TEXT, ["ALTER TABLE t ADD COLUMNS (`value` STRING)"]),
]  # fmt: skip


@pytest.mark.parametrize(("table", "record", "statements"), [each[1:] for each in CHANGES], ids=[c[0] for c in CHANGES])
def test_a_table_grows_into_a_record(table: pa.DataType, record: pa.DataType, statements: list[str]) -> None:
    change = schema_change(table, record, RECORD_COLUMNS)
    assert change.misfits == ()
    assert alterations("t", change) == statements
    assert schema_change(change.type, record, RECORD_COLUMNS).is_empty
    assert schema_change(change.type, table).is_empty


@pytest.mark.parametrize(
    ("table", "record"),
    [
        (columns(), columns(at=NTZ)),
        (columns(at=DATE), columns(at=NTZ)),
        (columns(), columns(a=pa.list_(columns(b=NTZ)))),
    ],
)
def test_times_without_a_zone_need_a_feature_of_the_table(table: pa.DataType, record: pa.DataType) -> None:
    first, *_ = alterations("t", schema_change(table, record))
    assert first == "ALTER TABLE t SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')"


@pytest.mark.parametrize(
    ("table", "record", "misfit"),
    [
        (columns(id=I32), columns(id=TEXT), "id is INT in the table and STRING in the record"),
        (columns(a=columns(b=TEXT)), columns(a=columns(b=I32)), "a.b is STRING in the table and INT in the record"),
        (columns(a=TEXT), columns(a=columns(b=I32)), "a is STRING in the table and STRUCT<`b`: INT> in the record"),
        (
            columns(a=TEXT),
            columns(a=pa.map_(TEXT, columns(n=pa.null(), b=I32))),
            "and MAP<STRING, STRUCT<`b`: INT>> in",
        ),
        (columns(), columns(a=I32, A=I32), "A is there twice"),
        (columns(), columns(s=pa.list_(columns(a=I32, A=I32))), "s: A is there twice"),
        (columns(), columns(m=pa.map_(TEXT, columns(b=columns(i=I32, ı=I32)))), "m: ı is there twice"),
        (columns(), pa.struct([("µs", I32), ("μs", I32)]), "μs is there twice"),
        (columns(), pa.struct([("_partıtion", I32)]), "_partıtion is the name of a column of the record's place"),
        (columns(), pa.struct([("a b", I32)]), "a b has a sign that Delta refuses"),
        (columns(), columns(x=pa.struct([("a,b", I32)])), "x: a,b has a sign that Delta refuses"),
        (columns(), columns(_offset=I32), "_offset is the name of a column of the record's place"),
    ],
)
def test_what_fits_neither_says_why_and_changes_nothing(table: pa.DataType, record: pa.DataType, misfit: str) -> None:
    change = schema_change(table, record, RECORD_COLUMNS)
    assert change.is_empty
    assert change.type == table
    assert misfit in "; ".join(change.misfits)


def test_what_no_file_holds_is_null_in_a_column_that_others_have_made() -> None:
    """A schema with a record without fields comes first, and adds no column; the next one has a list of its name."""
    rows = [{"a": {}, "b": [None], "c": None, "d": {}}, None]
    before = columns(a=pa.struct([]), b=pa.list_(pa.struct([])), c=pa.null(), d=pa.struct([]))
    after = columns(a=pa.list_(I32), b=TEXT, c=pa.map_(TEXT, I32), d=columns(x=I32))
    grown = conformed(pa.array(rows, before), after)
    assert grown.type == after
    assert grown.to_pylist() == [{"a": None, "b": None, "c": None, "d": {"x": None}}, None]
    assert conformed(pa.array([{}, None], pa.struct([])), after).is_null().to_pylist() == [False, True]


def test_values_become_those_of_the_grown_type() -> None:
    before = columns(id=I32, l=pa.list_(columns(a=I32)), m=pa.map_(TEXT, I32), at=DATE)
    after = columns(new=TEXT, ID=I64, l=pa.list_(columns(a=F64, b=TEXT)), m=pa.map_(TEXT, F64), at=NTZ)
    rows = [
        {"id": 1, "l": [{"a": 1}, None], "m": [("k", 2)], "at": None},
        None,
        {"id": 2, "l": None, "m": None, "at": None},
        {"id": None, "l": [], "m": [], "at": None},
    ]
    grown = [
        {"new": None, "ID": 1, "l": [{"a": 1.0, "b": None}, None], "m": [("k", 2.0)], "at": None},
        None,
        {"new": None, "ID": 2, "l": None, "m": None, "at": None},
        {"new": None, "ID": None, "l": [], "m": [], "at": None},
    ]
    values = pa.array(rows, before)
    assert conformed(values, after).to_pylist() == grown
    for start in range(len(rows)):
        assert conformed(values.slice(start), after).to_pylist() == grown[start:], "slices have offsets of their own"
    assert conformed(values, after).type == after


def test_types_of_spark_are_compared_without_their_names_of_elements() -> None:
    spark = pa.struct([("l", pa.list_(pa.field("element", pa.timestamp("us", "Europe/Berlin"), nullable=False)))])
    assert as_here(spark) == columns(l=pa.list_(UTC))
    assert sql_type(columns(l=pa.list_(UTC), n=NTZ)) == "STRUCT<`l`: ARRAY<TIMESTAMP>, `n`: TIMESTAMP_NTZ>"


# -- erasure -----------------------------------------------------------------------------------------------

TABLE = columns_of_table(["_partition", "_offset", "_timestamp", "_key", "id"])


@pytest.mark.parametrize(
    ("predicate", "sql"),
    [
        ({"key": {"equals": "a'b"}}, "coalesce(`_key` = X'612762', false)"),
        ({"key": {"in": ["a", {"base64": "AAE="}]}}, "coalesce(`_key` IN (X'61', X'0001'), false)"),
        ({"key": {"in": []}}, "false"),
        ({"key": {"begins_with": "a"}}, "coalesce(startswith(`_key`, X'61'), false)"),
        ({"key": {"is_null": False}}, "`_key` IS NOT NULL"),
        ({"timestamp_ms": {"from": 1, "below": 9}},
         "coalesce(unix_millis(`_timestamp`) >= 1, false) AND coalesce(unix_millis(`_timestamp`) < 9, false)"),
        ({"not": {"key": {"is_null": True}}}, "NOT (`_key` IS NULL)"),
        ({"any": [{"key": {"is_null": True}}, {"key": {"contains": "b"}}]},
         "(`_key` IS NULL) OR (coalesce(contains(`_key`, X'62'), false))"),
    ],
)  # fmt: skip
def test_an_erasure_is_a_condition_on_the_table(predicate: dict[str, object], sql: str) -> None:
    ranges = "((`_partition` = 0 AND `_offset` < 3) OR (`_partition` = 2 AND `_offset` < 1))"
    assert erased_rows(json.dumps(predicate), [3, 0, 1], TABLE).sql == f"{ranges} AND ({sql})"


def test_what_the_table_does_not_keep_is_named() -> None:
    by_value = json.dumps({"all": [{"key": {"equals": "a"}}, {"value": {"contains": "b"}}]})
    by_header = json.dumps({"header": {"name": "user", "equals": "bob"}})
    assert erased_rows(by_value, [1], TABLE).lacking == "value"
    assert erased_rows(by_header, [1], TABLE).lacking == "headers"
    assert erased_rows(by_value, [1], DEAD_LETTERS).lacking is None
    assert "encode(h.key, 'UTF-8') = X'75736572'" in erased_rows(by_header, [1], DEAD_LETTERS).sql
    assert erased_rows(by_header, [0, 0], TABLE).sql == "false"


def request(erase_id: int, *ends: int) -> EraseRecord:
    return EraseRecord("orders", erase_id, '{"key":{"equals":"a"}}', ends, "")


@pytest.mark.parametrize(
    ("positions", "done"),
    [({}, 0), ({0: 5}, 1), ({0: 5, 1: 2}, 2), ({0: 4, 1: 9}, 0), ({0: 9, 1: 9}, 3)],
)
def test_an_erasure_is_done_once_the_query_has_read_what_it_is_about(positions: dict[int, int], done: int) -> None:
    requests = [request(1, 5, 0), request(2, 5, 2), request(3, 6, 2)]
    assert done_up_to(requests, positions, 0, lambda each: each.end_offsets) == done


@pytest.mark.parametrize(
    ("left", "done"), [({2: (5, 2)}, 3), ({2: (5, 2), 3: (4, 2)}, 3), ({2: (4, 3)}, 1), ({1: (0, 0)}, 1)]
)
def test_an_erasure_does_not_wait_for_records_that_are_lost(left: dict[int, tuple[int, ...]], done: int) -> None:
    requests = [request(1, 5, 0), request(2, 9, 2), request(3, 5, 2)]
    assert done_up_to(requests, {0: 5, 1: 2}, 0, lambda each: left.get(each.erase_id, each.end_offsets)) == done


def test_done_erasures_are_not_asked_for_again() -> None:
    requests = {2: request(2), 1: request(1), 3: request(3)}
    assert [each.erase_id for each in open_requests(requests, 1)] == [2, 3]


@pytest.mark.parametrize(
    ("now_ms", "last_ms", "erased_at_ms", "retention_ms", "interval_ms", "is_due_"),
    [
        (1_000, 0, 0, 60, 500, True),  # the interval is over
        (400, 0, 0, 60, 500, False),
        (400, 0, 300, 60, 500, True),  # the delay of an erasure is over
        (400, 370, 300, 60, 500, False),  # and was vacuumed since
        (400, 0, 350, 60, 500, False),
        (1_000, 0, 300, -1, 500, False),  # never
        (10_000, 0, 0, 60, -1, False),  # no interval
        (400, 1_000, 0, 60, 500, True),  # the clock was set back
    ],
)
def test_files_are_deleted_in_intervals_and_after_an_erasure(
    now_ms: int, last_ms: int, erased_at_ms: int, retention_ms: int, interval_ms: int, is_due_: bool
) -> None:
    assert vacuum_is_due(now_ms, last_ms, erased_at_ms, retention_ms, interval_ms) is is_due_


# -- checkpoints -------------------------------------------------------------------------------------------


def test_a_batch_is_done_by_the_checkpoint_or_belongs_to_another_query() -> None:
    progress = QueryProgress("q", planned_batch=4, done_batch=3)
    assert [progress.is_done(*each) for each in (("q", 3), ("q", 4), ("p", 9))] == [True, False, True]
    assert parse_offsets('v1\n{}\n{"t":{"1":5,"0":7}}\n', "t") == {0: 7, 1: 5}
    assert parse_offsets('v1\n{}\n{"t":{"0":7}}', "u") == {}


LATE = 106_751_992
"""Days from 1970 to a date that no time in microseconds holds."""


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us")])
@pytest.mark.parametrize("shape", ["column", "list", "map", "struct"])
def test_a_date_beyond_all_times_fits_no_column_and_its_neighbours_do(shape: str, kind: pa.DataType) -> None:
    """Whether the column is one of dates still, or has grown into one of times."""

    def of(day: Any, inner: pa.DataType) -> tuple[Any, pa.DataType]:
        shapes = {
            "column": (day, inner),
            "list": ([None, day], pa.list_(inner)),
            "map": ([("k", day)], pa.map_(pa.string(), inner)),
            "struct": ({"on": day}, pa.struct([("on", inner)])),
        }
        return shapes[shape]

    days = [0, None, LATE, LATE - 1, -LATE, 1 - LATE]
    columns = pa.array([of(day, pa.int32())[0] for day in days], of(None, pa.int32())[1]).cast(of(None, pa.date32())[1])
    values = pa.StructArray.from_arrays([columns, pa.array(range(len(days)))], ["d", "n"])
    wanted = pa.struct([("d", of(None, kind)[1]), ("n", pa.int64())])
    for start in (0, 2):
        read = fitting(values.slice(start), wanted)
        assert sorted(read.errors) == [place - start for place in (2, 4)]
        assert read.values.type == wanted
        assert read.values.is_valid().to_pylist() == [place not in read.errors for place in range(len(days) - start)]
        left = read.values.filter(read.values.is_valid())
        assert left.field("n").to_pylist() == [place for place in range(start, len(days)) if place not in (2, 4)]
