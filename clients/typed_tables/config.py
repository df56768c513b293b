"""Settings of a typed table, and what follows from them and from the topic. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from stratalog.storage.config_def import ConfigDef, Validator, at_least, config_field, each_of, one_of, spelled
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.topic_config import COMPACT


class ValueFormat(StrEnum):
    """What the bytes of values are."""

    AVRO = "avro"
    JSON = "json"
    PROTOBUF = "protobuf"


class WriteMode(StrEnum):
    """How records become rows: one row for each record, or one for each key."""

    AUTO = "auto"
    APPEND = "append"
    UPSERT = "upsert"


class OnError(StrEnum):
    """What becomes of a record that does not fit."""

    DLQ = "dlq"
    SUSPEND = "suspend"
    SKIP = "skip"


HOUR_MS = 3_600_000
WEEK_MS = 168 * HOUR_MS
OFF = -1
KEY, VALUE, HEADERS = "key", "value", "headers"


def _long(default: int, low: int, unit: str, doc: str) -> Any:
    return config_field("LONG", default, unit, doc, at_least(low))


def _string(default: str, doc: str, validator: Validator | None = None) -> Any:
    return config_field("STRING", default, "", doc, validator)


@dataclass(frozen=True, slots=True)
class TypedTableConfig:
    """The settings of a typed table, by dotted names."""

    value_format: str = _string("", "avro, json or protobuf; required.", one_of(*ValueFormat))
    value_schema: str = _string(
        "",
        "Columns of JSON values as in CREATE TABLE, 'id BIGINT, item STRING'. Without it and without a registry "
        "the whole value is one column of type VARIANT.",
    )
    protobuf_message: str = _string("", "Full name of the message; the first one of the file if empty.")
    write_mode: str = _string(
        WriteMode.AUTO, "append, upsert, or auto: upsert if the topic's cleanup.policy has compact.", one_of(*WriteMode)
    )
    on_error: str = _string(
        OnError.DLQ,
        "dlq: keep what does not fit in the dead letter table; suspend: end the query; skip: drop it.",
        one_of(*OnError),
    )
    dlq_table: str = _string("", "Name or path of the dead letter table; that of the table with __dlq if empty.")
    checkpoint_location: str = _string("", "The query's checkpoint; a folder inside the table if empty.")
    group_id: str = _string("", "Consumer group in which the query commits its offsets; none if empty.")
    auto_offset_reset: str = _string("earliest", "Where a new query begins.", one_of("earliest", "latest"))
    isolation_level: str = _string(
        "read_committed",
        "Whether records of aborted transactions are left out.",
        one_of("read_committed", "read_uncommitted"),
    )
    max_offsets_per_trigger: int = _long(500_000, 1, "records", "The most records of a batch.")
    trigger_interval_ms: int = _long(10_000, 0, "ms", "From batch to batch of a query that goes on.")
    keep_columns: tuple[str, ...] = config_field(
        "LIST",
        (KEY,),
        "",
        "What of a record is kept as it is: key, value, headers as _key, _value, _headers.",
        each_of(KEY, VALUE, HEADERS, ""),
    )
    cluster_by: tuple[str, ...] = config_field(
        "LIST", ("_timestamp",), "", "Columns of liquid clustering; none if empty. A column counts once it exists."
    )
    optimize_interval_ms: int = _long(HOUR_MS, OFF, "ms", "From OPTIMIZE to OPTIMIZE; -1: never.")
    ttl_ms: int = _long(OFF, OFF, "ms", "Rows older than this by _timestamp are deleted; -1: never.")
    vacuum_retention_ms: int = _long(
        WEEK_MS,
        OFF,
        "ms",
        "Files that left the table are deleted after this; -1: never. Readers of older versions fail then.",
    )

    @classmethod
    def from_settings(cls, config: Mapping[str, object] | None) -> Self:
        """InvalidConfigError for an unknown name, a bad value, or values at odds."""
        given = cls(**TYPED_TABLE_CONFIGS.parse({name: spelled(value) for name, value in (config or {}).items()}))
        given._check()
        return given

    def _check(self) -> None:
        if not self.value_format:
            raise InvalidConfigError(f"value.format is required: one of {', '.join(ValueFormat)}")
        if self.value_schema and self.value_format != ValueFormat.JSON:
            raise InvalidConfigError(
                f"value.schema is for JSON; the columns of {self.value_format} come from its registry: leave it out"
            )
        if self.protobuf_message and self.value_format != ValueFormat.PROTOBUF:
            raise InvalidConfigError(f"protobuf.message is given and value.format is {self.value_format}: leave it out")

    def kept(self, mode: WriteMode) -> frozenset[str]:
        """The raw parts of records that become columns. Upsert needs the key."""
        needed = {KEY} if mode == WriteMode.UPSERT else set()
        return frozenset(part for part in self.keep_columns if part) | needed


TYPED_TABLE_CONFIGS = ConfigDef.of("typed table", TypedTableConfig)


SOURCE_PREFIX = "source."


def split_source_options(config: Mapping[str, object]) -> tuple[dict[str, object], dict[str, str]]:
    """The settings of the table, and the options of its source.

    >>> split_source_options({"value.format": "avro", "source.minPartitions": 4})
    ({'value.format': 'avro'}, {'minPartitions': '4'})
    """
    own = {name: value for name, value in config.items() if not name.startswith(SOURCE_PREFIX)}
    source = {name.removeprefix(SOURCE_PREFIX): spelled(config[name]) for name in config.keys() - own.keys()}
    return own, source


def check_registry(config: TypedTableConfig, *, has_registry: bool) -> None:
    """InvalidConfigError when the format needs a registry, or has one and columns besides."""
    if config.value_format != ValueFormat.JSON and not has_registry:
        raise InvalidConfigError(
            f"value.format={config.value_format} needs a registry: pass a SchemaFolder or SchemaRegistryClient"
        )
    if config.value_schema and has_registry:
        raise InvalidConfigError("value.schema and a registry both say what the columns are: give one of them")


def write_mode(config: TypedTableConfig, cleanup_policy: Collection[str]) -> WriteMode:
    """The mode in force. A topic that is compacted and deleted is compacted.

    >>> write_mode(TypedTableConfig(value_format="json"), ("compact", "delete"))
    <WriteMode.UPSERT: 'upsert'>
    """
    if config.write_mode != WriteMode.AUTO:
        return WriteMode(config.write_mode)
    return WriteMode.UPSERT if COMPACT in cleanup_policy else WriteMode.APPEND


def dead_letter_table(table: str, config: TypedTableConfig) -> str:
    """Name or path of the table of what does not fit.

    >>> dead_letter_table("lake/orders/", TypedTableConfig(value_format="json"))
    'lake/orders__dlq'
    """
    return config.dlq_table or f"{table.rstrip('/')}__dlq"


def is_path(table: str) -> bool:
    """Whether the text is the path or URL of a table; without a slash it is a name in the catalog.

    >>> is_path("lake/orders"), is_path("s3://lake/orders"), is_path("main.sales.orders")
    (True, True, False)
    """
    return "/" in table


def is_due(now_ms: int, last_ms: int | None, interval_ms: int) -> bool:
    """Whether work that comes in intervals is due. The first time it is due one interval after the start, `last_ms`. If
    that lies in the future, the clock was set back since, and the work is due."""
    return interval_ms != OFF and last_ms is not None and not 0 <= now_ms - last_ms < interval_ms
