"""The topic configs: names, defaults, ranges and what each does here. Pure.

Names, defaults, ranges and error wording are Kafka's (TopicConfig). `segment.files.max` is ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stratalog.storage.errors import InvalidConfigError

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
COMPACT = "compact"
DELETE = "delete"
INDEX_ENTRY_BYTES = 8
"""An entry of Kafka's offset index takes 8 bytes, so `segment.index.bytes` is a number of entries."""
MERGED_BYTES_PER_INTERVAL_BYTE = 8_192
"""Kafka's default `index.interval.bytes` of 4096 lets merged files grow to 32 MiB: merging such a file takes about
100 MiB of memory, and who reads one record of it decodes all."""


class ConfigKey(NamedTuple):
    """One topic config. `default` is typed; `unit` is "ms", "bytes", … or "" for a pure number or word."""

    name: str
    kind: str
    default: Any
    unit: str
    doc: str
    parse: Callable[[str], Any]

    @property
    def field_name(self) -> str:
        return self.name.replace(".", "_")


def _number(kind: str, low: float, high: float) -> Callable[[str], Any]:
    convert: Callable[[str], Any] = float if kind == "DOUBLE" else int

    def parse(text: str) -> Any:
        try:
            value = convert(text)
        except ValueError as reason:
            raise ValueError(f"Not a number of type {kind}") from reason
        if not low <= value:
            raise ValueError(f"Value must be at least {low}")
        if value > high:
            raise ValueError(f"Value must be no more than {high}")
        return value

    return parse


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return text.lower() == "true"


def _word(words: Collection[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"String must be one of: {', '.join(words)}")
        return text

    return parse


def _words(words: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    one = _word(words)

    def parse(text: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one(part.strip()) for part in text.split(",")))

    return parse


def _throttled_replicas(text: str) -> str:
    listed = text.replace(" ", "")
    if listed in ("", "*") or all(_REPLICA.fullmatch(part) for part in listed.split(",")):
        return listed
    raise ValueError(
        "must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


def _throttled(side: str, doc: str) -> ConfigKey:
    return ConfigKey(f"{side}.replication.throttled.replicas", "LIST", "", "", doc, _throttled_replicas)


def _long(name: str, default: int, unit: str, low: int, doc: str) -> ConfigKey:
    return ConfigKey(name, "LONG", default, unit, doc, _number("LONG", low, LONG_MAX))


def _int(name: str, default: int, unit: str, low: int, doc: str) -> ConfigKey:
    return ConfigKey(name, "INT", default, unit, doc, _number("INT", low, INT_MAX))


_REPLICA = re.compile(r"[0-9]+:[0-9]+")
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

CONFIG_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey(
        "cleanup.policy", "LIST", (DELETE,), "",
        "'delete' drops old segments by retention time and size, 'compact' keeps the latest record of each key.",
        _words((COMPACT, DELETE)),
    ),
    ConfigKey(
        "compression.type", "STRING", "producer", "",
        "Codec of data files. 'producer': as the producer says; small files plain, merged ones zstd.", _word(_CODECS),
    ),
    _long("delete.retention.ms", 86_400_000, "ms", 0, "How long compaction keeps a tombstone."),
    _long("file.delete.delay.ms", 60_000, "ms", 0, "How long a file stays on storage after it left the log."),
    _long("flush.messages", LONG_MAX, "records", 1, "Sync to local disk after so many records; 1 = every append."),
    _long("flush.ms", LONG_MAX, "ms", 0, "Sync to local disk when the last sync is so long ago."),
    _throttled("follower", "Replicas whose copying is held back, as partition:broker,..., or * for all."),
    _int(
        "index.interval.bytes", 4096, "bytes", 0,
        "Distance between index entries. Each data file is an index entry: merged files grow up to 8,192 times this.",
    ),
    _throttled("leader", "Replicas from which copying is held back, as partition:broker,..., or * for all."),
    _int("max.message.bytes", 1_048_588, "bytes", 0, "The largest record batch that is taken."),
    ConfigKey(
        "min.cleanable.dirty.ratio", "DOUBLE", 0.5, "",
        "Compaction starts when this share of the log is not compacted yet.", _number("DOUBLE", 0, 1),
    ),
    _int("min.insync.replicas", 1, "replicas", 1, "In-sync replicas needed to take a batch with acks=all."),
    _long("retention.bytes", -1, "bytes", -1, "Old segments go when the log is larger; -1 = no limit."),
    _long("retention.ms", 604_800_000, "ms", -1, "Segments go when their newest record is older; -1 = never."),
    _int("segment.bytes", 1_073_741_824, "bytes", 14, "Size at which a new segment begins."),
    _int("segment.files.max", 10_000, "files", 1, "Data files at which a new segment begins. Ours, not Kafka's."),
    _int(
        "segment.index.bytes", 10_485_760, "bytes", 4,
        "Size of a segment's index, 8 bytes an entry. Each data file is an entry: a full index begins a new segment.",
    ),
    _long("segment.jitter.ms", 0, "ms", 0, "segment.ms is shortened by up to so much, lest all logs roll at once."),
    _long("segment.ms", 604_800_000, "ms", 1, "Age of a segment's first record at which a new segment begins."),
    ConfigKey(
        "unclean.leader.election.enable", "BOOLEAN", False, "",
        "Whether a replica that is not in sync may lead when no other is left, losing records.", _boolean,
    ),
)  # fmt: skip

_KEYS: Mapping[str, ConfigKey] = {key.name: key for key in CONFIG_KEYS}


class ConfigDescription(NamedTuple):
    """A config as listed in the documentation; `default` in Kafka's spelling."""

    name: str
    default: str
    unit: str
    doc: str


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The configs of one topic, typed; `overrides` holds those that were set, as they were spelled."""

    cleanup_policy: tuple[str, ...] = (DELETE,)
    compression_type: str = "producer"
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    follower_replication_throttled_replicas: str = ""
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: str = ""
    max_message_bytes: int = 1_048_588
    min_cleanable_dirty_ratio: float = 0.5
    min_insync_replicas: int = 1
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_files_max: int = 10_000
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False
    overrides: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def from_properties(properties: Mapping[str, object]) -> LogConfig:
        """Configs from Kafka's dotted names; what is not named has its default.

        Raises InvalidConfigError: "Unknown topic config name: x", or
        "Invalid value -1 for configuration segment.ms: Value must be at least 1".
        """
        spelled = {name: _spell(value) for name, value in properties.items()}
        values = {name.replace(".", "_"): parse_config(name, text) for name, text in spelled.items()}
        return LogConfig(**values, overrides=spelled)

    @property
    def is_compacted(self) -> bool:
        return COMPACT in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """True when retention time and size apply."""
        return DELETE in self.cleanup_policy

    @property
    def segment_file_count_max(self) -> int:
        """Data files at which a segment is full: the smaller of the two limits that say so."""
        return min(self.segment_files_max, max(1, self.segment_index_bytes // INDEX_ENTRY_BYTES))

    @property
    def merged_bytes_max(self) -> int:
        """The largest file that a merge writes, in bytes; 0 = files are never merged."""
        return self.index_interval_bytes * MERGED_BYTES_PER_INTERVAL_BYTE

    def value_of(self, name: str) -> str:
        """The value of a dotted name in Kafka's spelling, e.g. "604800000", "false", "compact,delete"."""
        return _spell(getattr(self, config_key(name).field_name))

    @staticmethod
    def describe() -> list[ConfigDescription]:
        """Every config, sorted by name."""
        return [ConfigDescription(k.name, _spell(k.default), k.unit, k.doc) for k in CONFIG_KEYS]


def config_key(name: str) -> ConfigKey:
    """The config of a dotted name. Raises InvalidConfigError for an unknown one."""
    if name not in _KEYS:
        raise InvalidConfigError(f"Unknown topic config name: {name}")
    return _KEYS[name]


def parse_config(name: str, text: str) -> Any:
    """One config's typed value. Raises InvalidConfigError in Kafka's words."""
    key = config_key(name)
    try:
        return key.parse(text.strip())
    except ValueError as reason:
        raise InvalidConfigError(f"Invalid value {text} for configuration {name}: {reason}") from reason


def _spell(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(str(part) for part in value)
    return str(value)
