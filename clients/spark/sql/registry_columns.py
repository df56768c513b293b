"""`from_registry`, `to_registry`: keys and values of a topic as typed columns, by the schemas of a registry.

I/O: Spark, and the registry: on the driver for the schema that is read or written, in Python workers for the schemas
that records name, once for each. Rows travel as Arrow arrays; `clients/schemas/columns` reads and writes them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

from stratalog.clients.schemas.columns.avro import AvroColumns
from stratalog.clients.schemas.columns.json_schema import JsonColumns
from stratalog.clients.schemas.columns.protobuf import ProtobufColumns
from stratalog.clients.schemas.columns.reader import ColumnFormat, ReadColumn, read_column
from stratalog.clients.schemas.columns.writer import ColumnWriter
from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.rest_client import REGISTRY_CONFIGS, SchemaRegistryClient
from stratalog.clients.schemas.schema import RegisteredSchema, Schema, SchemaRegistry, SchemaType, referenced
from stratalog.clients.schemas.schema_folder import SCHEMAS_TOPIC, SchemaFolder
from stratalog.clients.schemas.wire_format import SchemaId, schema_id_header
from stratalog.server.bootstrap import root_of
from stratalog.storage.errors import InvalidConfigError, SerializationError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

RegistryGiven = SchemaRegistryClient | SchemaFolder | Mapping[str, object] | str
"""A registry, the configs of a `SchemaRegistryClient`, or the metadata root of the cluster with a `SchemaFolder`."""


class ReadMode(StrEnum):
    """What a row does that cannot be read, as of Spark's `from_avro`."""

    PERMISSIVE = "PERMISSIVE"
    """Its value is null, its error says why."""
    FAILFAST = "FAILFAST"
    """The query fails."""

    @classmethod
    def of(cls, name: str) -> ReadMode:
        """The mode of a name in any case. InvalidConfigError."""
        if name.upper() not in cls.__members__:
            raise InvalidConfigError(f"mode {name} is not one of {', '.join(cls)}")
        return cls(name.upper())


class IdPlace(StrEnum):
    """Where the id of a value's schema is, as of Confluent's `schema.id.serializer`."""

    PREFIX = "prefix"
    HEADER = "header"

    @classmethod
    def of(cls, name: str) -> IdPlace:
        """The place of a name. InvalidConfigError."""
        if name not in [each.value for each in cls]:
            raise InvalidConfigError(f"id_in {name} is not one of {', '.join(cls)}")
        return cls(name)


@dataclass(frozen=True, slots=True)
class RegistryPlace:
    """Where a Python worker of Spark's finds the registry: a server's configs, or a topic of a cluster."""

    configs: tuple[tuple[str, Any], ...] = ()
    root: str = ""
    topic: str = SCHEMAS_TOPIC

    @classmethod
    def of(cls, registry: RegistryGiven) -> Self:
        """The place of a registry. InvalidConfigError for bad configs."""
        if isinstance(registry, str):
            return cls(root=registry)
        if isinstance(registry, SchemaFolder):
            return cls(root=root_of(registry.cluster), topic=registry.topic)
        client = registry if isinstance(registry, SchemaRegistryClient) else SchemaRegistryClient(registry)
        named = ((key.name, getattr(client.config, key.field_name)) for key in REGISTRY_CONFIGS)
        return cls(configs=tuple((name, value) for name, value in named if value not in ("", ())))

    def opened(self) -> SchemaRegistry:
        """The registry, kept in the process."""
        return _registry(self)


@dataclass(frozen=True, slots=True)
class ColumnSchema:
    """The schema of a column with its references, as workers get it. `message` is a Protobuf message's full name."""

    schema: Schema
    references: tuple[tuple[str, Schema], ...] = ()
    message: str | None = None

    @property
    def resolved(self) -> ResolvedSchema:
        return ResolvedSchema(self.schema, dict(self.references))


def from_registry(
    column: Column | str,
    registry: RegistryGiven,
    schema: Schema | str,
    *,
    mode: str = "PERMISSIVE",
    message: str | None = None,
    headers: Column | str | None = None,
    is_key: bool = False,
    position: Sequence[Column | str] = (),
) -> Column:
    """A struct column of binary records: `value` in the schema's type, `schema_id` int, `error` string.

    schema    the reader's schema, or the subject whose latest version it is. The column's type is fixed by it; what
              other versions wrote is resolved into it (Avro), or read by names (JSON) or numbers (Protobuf).
    mode      PERMISSIVE: a row that cannot be read has a null value, and an error. FAILFAST: the query fails.
    message   the full name of the Protobuf message; the file's first if None.
    headers   the source's column `headers` (`includeHeaders`), where producers write schema ids into headers.
    is_key    for keys: which header counts.
    position  topic, partition and offset columns, which an error of FAILFAST then names.

    Raises what the registry raises for the subject, InvalidSchemaError for a schema without a column type,
    InvalidConfigError for a wrong mode.
    """
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType

    place, failing = RegistryPlace.of(registry), ReadMode.of(mode) == ReadMode.FAILFAST
    named = _column_schema(_opened(registry, place), schema, message)
    has_headers = headers is not None

    def read(data: pa.Array, *others: pa.Array) -> pa.Array:
        given = others[0] if has_headers else None
        found = read_column(data, _format(named), lambda each: _writer(place, each), given, is_key=is_key)
        if failing and found.errors.null_count < len(found.errors):
            raise SerializationError(_first_error(found, others[has_headers:]))
        return _struct(found)

    kind = StructType(
        [
            StructField("value", _spark_type(_format(named).arrow_type)),
            StructField("schema_id", IntegerType()),
            StructField("error", StringType()),
        ]
    )
    found: Column = arrow_function(read, kind)(column, *([headers] if headers is not None else []), *position)
    return found


def to_registry(
    column: Column | str,
    registry: RegistryGiven,
    subject: str,
    schema: Schema | str | None = None,
    *,
    message: str | None = None,
    id_in: str = "prefix",
) -> Column:
    """A binary column: values in Confluent's wire format.

    column   a struct with the fields of the schema; any other type if the schema is of it. Of a union of several types
             a struct `member0`, `member1`, … as `from_registry` makes it: the one that is not null counts.
    schema   registered under the subject now, if it is not yet; an Avro schema may be text. The subject's latest
             version if None.
    message  as of `from_registry`.
    id_in    prefix: the schema's id stands before each value. header: values are payloads alone, and `registry_header`
             makes the header.

    A value that does not fit fails the query with SerializationError. Raises what the registry raises.
    """
    from pyspark.sql.types import BinaryType

    has_prefix = IdPlace.of(id_in) == IdPlace.PREFIX
    registered, named = _registered(registry, subject, schema, message)
    schema_id = registered.id if has_prefix else None

    def write(values: pa.Array) -> pa.Array:
        return _column_writer(schema_id, named).write(values)

    _column_writer(schema_id, named)
    written: Column = arrow_function(write, BinaryType())(column)
    return written


def registry_header(
    registry: RegistryGiven,
    subject: str,
    schema: Schema | str | None = None,
    *,
    message: str | None = None,
    is_key: bool = False,
) -> Column:
    """A schema's GUID as an element of the sink's column `headers`, for `to_registry` with `id_in="header"`.

    subject, schema, message  those of `to_registry`.
    is_key                    of the key's schema.

    SerializationError for a registry that knows no GUIDs. Raises what the registry raises.
    """
    from pyspark.sql import functions as sf

    registered, named = _registered(registry, subject, schema, message)
    indexes = _column_writer(None, named).message_indexes
    value = SchemaId(registered.id, registered.guid, indexes).guid_prefix()
    return sf.struct(sf.lit(schema_id_header(is_key)).alias("key"), sf.lit(value).alias("value"))


def _registered(
    registry: RegistryGiven, subject: str, schema: Schema | str | None, message: str | None
) -> tuple[RegisteredSchema, ColumnSchema]:
    """The schema with which values are written: a subject's latest version, or one that is registered now."""
    found = _opened(registry, RegistryPlace.of(registry))
    if schema is None:
        registered = found.version(subject)
    else:
        registered = found.register(subject, Schema(schema) if isinstance(schema, str) else schema)
    return registered, _column_schema(found, registered.schema, message)


def arrow_function(function: Callable[..., pa.Array], kind: DataType) -> Any:
    """A function of Arrow arrays as one of columns, which returns columns of type `kind`.

    Spark warns of a function type that is given, but the annotations that it prefers name one array each.
    """
    from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return arrow_udf(function, returnType=kind, functionType=ArrowUDFType.SCALAR)


def _column_schema(registry: SchemaRegistry, schema: Schema | str, message: str | None) -> ColumnSchema:
    found = registry.version(schema).schema if isinstance(schema, str) else schema
    return ColumnSchema(found, tuple(referenced(registry, found).items()), message)


def _opened(registry: RegistryGiven, place: RegistryPlace) -> SchemaRegistry:
    return registry if isinstance(registry, SchemaRegistryClient | SchemaFolder) else _registry(place)


def _spark_type(kind: pa.DataType) -> Any:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def _struct(found: ReadColumn) -> pa.Array:
    import pyarrow as pa

    return pa.StructArray.from_arrays(list(found), names=["value", "schema_id", "error"])


def _first_error(found: ReadColumn, position: Sequence[pa.Array]) -> str:
    row = next(place for place, reason in enumerate(found.errors.to_pylist()) if reason is not None)
    where = ""
    if position:
        topic, *rest = (each[row].as_py() for each in position)
        where = "-".join(map(str, [topic, *rest[:1]])) + "".join(f" offset {each}" for each in rest[1:]) + ": "
    return (
        f"{where}{found.errors[row].as_py()}. Register the schema or read on with mode PERMISSIVE, in which such rows "
        "are null and have an error"
    )


# -- what a Python worker keeps from batch to batch --------------------------------------------------------


@lru_cache(maxsize=8)
def _registry(place: RegistryPlace) -> SchemaRegistry:
    return SchemaFolder(place.root, place.topic) if place.root else SchemaRegistryClient(dict(place.configs))


@lru_cache(maxsize=1_000)
def _writer(place: RegistryPlace, named: SchemaId) -> ResolvedSchema:
    """Schemas of ids never change; a Protobuf message's indexes are no part of them."""
    registry = _registry(place)
    if named.guid is not None:
        found = registry.schema_by_guid(named.guid)
    else:
        assert named.id is not None
        found = registry.schema_by_id(named.id)
    return ResolvedSchema(found.schema, referenced(registry, found.schema))


@lru_cache(maxsize=64)
def _format(named: ColumnSchema) -> ColumnFormat:
    if named.schema.type == SchemaType.AVRO:
        return AvroColumns(named.resolved)
    if named.schema.type == SchemaType.JSON:
        return JsonColumns(named.resolved)
    return ProtobufColumns(named.resolved, named.message)


@lru_cache(maxsize=64)
def _column_writer(schema_id: int | None, named: ColumnSchema) -> ColumnWriter:
    return ColumnWriter(schema_id, named.resolved, named.message)
