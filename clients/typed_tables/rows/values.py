"""Records as rows: values read as columns, and the table grown for them before. I/O: Spark, and the registry.

Of a batch the driver first sees which schemas it names that are new. They are fetched, the table is altered, and the
batch is read again. JSON without a registry is read by Spark itself, into the columns that the settings name.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.errors import SchemaNotFoundError
from stratalog.clients.schemas.schema import SchemaRegistry, referenced
from stratalog.clients.schemas.wire_format import schema_id_header
from stratalog.clients.spark.sql.registry_columns import arrow_function
from stratalog.clients.typed_tables.config import HEADERS, VALUE, TypedTableConfig, ValueFormat, WriteMode
from stratalog.clients.typed_tables.delta_table import TypedDelta, arrow_columns
from stratalog.clients.typed_tables.rows.evolution import (
    RECORD_COLUMNS,
    VALUE_COLUMN,
    SchemaChange,
    quoted,
    schema_change,
    sql_type,
)
from stratalog.clients.typed_tables.rows.json_checks import IS_NULL, READ, TEXT, checked_texts, is_plain_kind
from stratalog.clients.typed_tables.rows.missing_schemas import ASKED_MAX, NOT_ASKED, MissingSchemas
from stratalog.clients.typed_tables.rows.reading import (
    ERROR_COLUMN,
    NO_KEY,
    NO_VALUE,
    READ_COLUMN,
    UNPLANNED_COLUMN,
    ReadPlan,
    WriterKey,
    parse_keys,
    read_rows,
    read_type,
    replanned,
    shown_keys,
)
from stratalog.storage.errors import InvalidConfigError

RECORD = ("partition", "offset", "timestamp", "key", "value", "headers")
"""The columns of records that are read, of the source's names."""
TOMBSTONE_COLUMN = "is_tombstone"
KNOWN, KNOWN_MAX = "stratalog.schemas", 100
"""Table property with the schemas that the table has grown into, and how many of them: a new run, or a replay, plans
with them before it reads."""
_CORRUPT, _FOUND, _BY_SPARK = "corrupt record", "found", "by spark"
_ID_HEADER = schema_id_header(is_key=False)
_SHOWN_MAX = 80


class ReadRows(NamedTuple):
    """A batch that was read.

    frame        `RECORD` (`value` and `headers` only where they are needed), `read` (a struct), `error` (null for a row
                 that fits) and `is_tombstone`; kept by Spark until `release`
    columns      the names of the columns of values, in `read` and in the table
    row_count    all rows
    error_count  those that do not fit
    offsets      the least and the largest offset
    """

    frame: DataFrame
    columns: tuple[str, ...]
    row_count: int
    error_count: int
    offsets: tuple[int, int]

    def release(self) -> None:
        """Forget the rows."""
        self.frame.unpersist()


class _Read(NamedTuple):
    """Records that were read: their frame, with what columns of it are.

    value      the struct of columns
    error      why there is none
    unplanned  the schema that the plan lacks
    is_null    whether the value is a null of its format
    """

    frame: DataFrame
    value: Column
    error: Column
    unplanned: Column
    is_null: Column


class ValueReader:
    """Reads the values of one table's records.

    registry  needed unless values are JSON with `value.schema`, or one VARIANT.
    """

    def __init__(
        self, spark: SparkSession, config: TypedTableConfig, mode: WriteMode, registry: SchemaRegistry | None
    ) -> None:
        self._spark, self._config, self._mode, self._registry = spark, config, mode, registry
        self._plan = ReadPlan(ValueFormat(config.value_format), pa.struct([]), message=config.protobuf_message)
        self._missing = MissingSchemas()
        """Schemas that the registry did not have when it was asked last."""
        self._known: set[WriterKey] | None = None
        """What the table's property has; None before it was read."""

    @property
    def is_variant(self) -> bool:
        """Whether the value is one column of type VARIANT."""
        return self._registry is None and not self._config.value_schema

    @property
    def _columns(self) -> tuple[str, ...]:
        return (VALUE_COLUMN,) if self.is_variant else tuple(each.name for each in self._plan.type)

    def first_columns(self) -> list[str]:
        """The columns of values that a new table has, as CREATE TABLE names them: those that the settings name.

        InvalidConfigError for settings whose columns no table can have.
        """
        if self._registry is not None:
            return []
        if self.is_variant:
            return [f"{VALUE_COLUMN} VARIANT"]
        return [f"{quoted(each.name)} {sql_type(each.type)}" for each in self._settled(pa.struct([])).type]

    def grow(self, table: TypedDelta) -> None:
        """Give the table the columns that the settings name. InvalidConfigError if they contradict its own."""
        if self._registry is not None:
            return
        if self.is_variant:
            if VALUE_COLUMN not in table.column_names():
                self._spark.sql(f"ALTER TABLE {table.sql} ADD COLUMNS ({VALUE_COLUMN} VARIANT)")
            return
        change = self._settled(table.columns())
        if not change.is_empty:
            table.alter(change)
        self._plan = replace(self._plan, type=change.type)

    @cached_property
    def _wanted(self) -> pa.DataType:
        """The columns that the settings name."""
        return arrow_columns(self._spark.createDataFrame([], self._config.value_schema).schema)

    def _settled(self, columns: pa.DataType) -> SchemaChange:
        """What the columns `columns` need for those that the settings name."""
        change = schema_change(columns, self._wanted, RECORD_COLUMNS)
        if change.misfits:
            raise InvalidConfigError(f"value.schema does not fit the table: {'; '.join(change.misfits)}")
        return change

    def read(self, records: DataFrame, table: TypedDelta) -> ReadRows:
        """The rows of records. The table is altered where their schemas ask for it."""
        if self._registry is not None:
            self._recall(table)
            columns = table.columns()
            if columns != self._plan.type:  # somebody else altered it: what did not fit may fit now
                self._replan(table, replace(self._plan, refused={}), columns, self._missing.texts())
            self._plan = replace(self._plan, others="")
        asked = 0 if self._registry is None else self._ask_again(table)
        while True:
            frame = self._rows(records).persist()
            rows, errors, first, last, unplanned = self._counted(frame)
            named = {key for text in unplanned for key in parse_keys(text)}
            if not named:
                return ReadRows(frame, self._columns, rows, errors, (first, last))
            frame.unpersist()
            chosen = sorted(named, key=str)[: max(0, ASKED_MAX - asked)]
            asked += len(chosen)
            found = {key: self._fetch(key) for key in chosen}
            self._missing.asked(found)
            plan = self._plan if len(chosen) == len(named) else replace(self._plan, others=NOT_ASKED)
            self._replan(table, plan, table.columns(), {**self._plan.refused, **found})
            self._remember(table)

    def _recall(self, table: TypedDelta) -> None:
        """Plan with the schemas that the table has grown into, once: a batch that names one is read twice otherwise."""
        if self._known is None:
            self._known = parse_keys(table.properties().get(KNOWN, "[]"))
            found = {key: self._fetch(key) for key in self._known}
            there = {key: each for key, each in found.items() if not isinstance(each, str)}
            if there:
                self._replan(table, self._plan, table.columns(), dict(there))

    def _remember(self, table: TypedDelta) -> None:
        newest = set(list(self._plan.writers)[-KNOWN_MAX:])
        if newest != self._known:
            table.set_properties({KNOWN: shown_keys(newest)})
            self._known = newest

    def _counted(self, frame: DataFrame) -> tuple[int, int, int, int, list[str]]:
        parts = [sf.count(sf.lit(1)), sf.count(ERROR_COLUMN), sf.min("offset"), sf.max("offset")]
        named = [] if self._registry is None else [sf.collect_set(UNPLANNED_COLUMN)]
        counted = frame.agg(*parts, *named).first()
        assert counted is not None
        rows, errors, first, last, *unplanned = counted
        return rows, errors, first or 0, last or 0, unplanned[0] if unplanned else []

    def _replan(
        self, table: TypedDelta, plan: ReadPlan, columns: pa.DataType, found: dict[WriterKey, ResolvedSchema | str]
    ) -> None:
        planned = replanned(plan, columns, found)
        if not planned.change.is_empty:
            table.alter(planned.change)
        self._plan = planned.plan

    def _fetch(self, key: WriterKey) -> ResolvedSchema | str:
        """The schema, or why the registry has none. RegistryUnavailableError and the like end the batch."""
        assert self._registry is not None
        try:
            by_id = isinstance(key, int)
            found = self._registry.schema_by_id(key) if by_id else self._registry.schema_by_guid(key)  # type: ignore[arg-type]
            return ResolvedSchema(found.schema, referenced(self._registry, found.schema))
        except SchemaNotFoundError as reason:
            return str(reason)

    def _ask_again(self, table: TypedDelta) -> int:
        """A schema that the registry did not have may be there now: it is asked for again before a batch is read, after
        growing numbers of batches. The number of schemas that were asked for."""
        due = self._missing.due(ASKED_MAX)
        found = {key: self._fetch(key) for key in due}
        forgotten = self._missing.asked(found)
        there = {key: each for key, each in found.items() if not isinstance(each, str)}
        if there or forgotten:
            gone = there.keys() | forgotten
            refused = {key: text for key, text in self._plan.refused.items() if key not in gone}
            self._replan(table, replace(self._plan, refused=refused), table.columns(), {**refused, **there})
        return len(due)

    # -- frames --------------------------------------------------------------------------------------------

    def _rows(self, records: DataFrame) -> DataFrame:
        read = self._by_spark(records) if self._registry is None else self._by_plan(records)
        is_tombstone = self._is_tombstone(read)
        if self._mode == WriteMode.UPSERT:
            error = sf.when(sf.col("key").isNull(), NO_KEY).when(~is_tombstone, read.error)
        else:
            error = sf.when(is_tombstone, NO_VALUE).otherwise(read.error)
        made = {READ_COLUMN: read.value, ERROR_COLUMN: error, UNPLANNED_COLUMN: read.unplanned,
                TOMBSTONE_COLUMN: is_tombstone}  # fmt: skip
        judged = read.frame.select(*RECORD, *(column.alias(name) for name, column in made.items()))
        needed = {name: sf.when(sf.col(ERROR_COLUMN).isNotNull(), sf.col(name)) for name in self._dropped}
        return judged.withColumns(needed) if needed else judged

    def _is_tombstone(self, read: _Read) -> Column:
        """Whether a record deletes its key: it has no value, or in upsert mode one that is a null of its format.

        Kafka Connect's JsonConverter writes a null that has a schema, such as a deletion of Debezium's
        ExtractNewRecordState, as the text `null`, or with `schemas.enable` as an envelope of schema and null.
        Source: `JsonConverter.fromConnectData`.
        """
        no_value = sf.col("value").isNull()
        if self._mode != WriteMode.UPSERT:
            return no_value
        return no_value | sf.coalesce(read.is_null, sf.lit(False))

    @property
    def _dropped(self) -> frozenset[str]:
        """What of records is needed only where they do not fit."""
        return frozenset({VALUE, HEADERS}) - self._config.kept(self._mode)

    def _by_plan(self, records: DataFrame) -> _Read:
        """Python gets the value and the header with its schema's id, and gives columns; the rest stays in the JVM."""
        kinds = pa.schema([(READ_COLUMN, read_type(self._plan.type)), (ERROR_COLUMN, pa.string())])
        read = from_arrow_schema(kinds, prefer_timestamp_ntz=True).fields
        kind = StructType(list(read)).add(UNPLANNED_COLUMN, "string")
        named = sf.filter("headers", lambda each: (each["key"] == _ID_HEADER) & each["value"].isNotNull())
        plan = self._plan

        def read_by_plan(values: pa.Array, ids: pa.Array) -> pa.Array:
            return read_rows(plan, values, ids)

        found = arrow_function(read_by_plan, kind)(sf.col("value"), sf.get(named["value"], sf.lit(0)))
        value, error, unplanned = (sf.col(_FOUND)[name] for name in (READ_COLUMN, ERROR_COLUMN, UNPLANNED_COLUMN))
        is_null = value.isNull() & error.isNull()
        return _Read(records.select(*RECORD, found.alias(_FOUND)), value, error, unplanned, is_null)

    def _by_spark(self, records: DataFrame) -> _Read:
        """Spark reads what it does not alter; Python has looked at the texts before, and refuses the others."""
        kind = None if self.is_variant else self._plan.type
        is_plain = kind is not None and is_plain_kind(kind)

        def check(values: pa.Array) -> pa.Array:
            return checked_texts(values, kind)

        given = StructType().add(TEXT, "string").add(ERROR_COLUMN, "string").add(IS_NULL, "boolean")
        if kind is not None and is_plain:
            given = given.add(READ, from_arrow_schema(pa.schema([(READ, kind)])).fields[0].dataType)
        checked = records.select(*RECORD, arrow_function(check, given)(sf.col("value")).alias(_FOUND))
        refused, changed = sf.col(_FOUND)[ERROR_COLUMN], sf.col(_FOUND)[TEXT]
        is_open = refused.isNull() & sf.col(_FOUND)[READ].isNull() if is_plain else refused.isNull()
        text = sf.when(is_open, sf.coalesce(changed, sf.col("value").cast("string")))
        error = sf.when(refused.isNotNull(), refused)
        if self.is_variant:
            value = sf.struct(sf.col(_BY_SPARK).alias(VALUE_COLUMN))
            parsed = sf.try_parse_json(text)
            error = error.when(sf.col(_BY_SPARK).isNull(), _shown("the bytes are no JSON: ", text))
        else:
            columns = [f"{quoted(each.name)} {sql_type(each.type)}" for each in self._plan.type]
            options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
            parsed = sf.from_json(text, ", ".join([*columns, f"{quoted(_CORRUPT)} STRING"]), options)
            misfit = sf.col(_BY_SPARK).isNull() | sf.col(_BY_SPARK)[_CORRUPT].isNotNull()
            value = sf.struct(*(sf.col(_BY_SPARK)[each.name].alias(each.name) for each in self._plan.type))
            if is_plain:
                is_read = sf.col(_FOUND)[READ].isNotNull()
                misfit, value = ~is_read & misfit, sf.when(is_read, sf.col(_FOUND)[READ]).otherwise(value)
            error = error.when(misfit, _shown("the value does not fit the columns: ", text))
        frame = checked.select("*", parsed.alias(_BY_SPARK))
        return _Read(frame, value, error, sf.lit(None).cast("string"), sf.col(_FOUND)[IS_NULL])


def _shown(reason: str, text: Column) -> Column:
    return sf.concat(sf.lit(reason), sf.substring(text, 1, _SHOWN_MAX))
