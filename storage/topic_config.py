"""The topic configs: names, defaults, ranges and meaning. Pure.

Names, defaults, ranges and error texts are Kafka's (TopicConfig), but for `segment.files.max` and those that begin with
`stratalog.`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stratalog.storage.config_def import ConfigDef, Validator, between, config_field, each_of, one_of, spelled
from stratalog.storage.errors import InvalidConfigError

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
CREATE_TIME, LOG_APPEND_TIME = "CreateTime", "LogAppendTime"
"""Kafka's `TimestampType`, as `message.timestamp.type` has it."""
COMPACT = "compact"
DELETE = "delete"
INDEX_ENTRY_BYTES = 8
"""Size of an entry in Kafka's offset index: `segment.index.bytes` over this is a number of entries."""
MERGED_BYTES_PER_INTERVAL_BYTE = 8_192
"""Bytes of a merged file per byte of `index.interval.bytes`: Kafka's default of 4096 lets files grow to 32 MiB.

Merging a file of that size takes about 100 MiB of memory, and reading one record of it decodes all.
"""

_REPLICA = re.compile(r"[0-9]+:[0-9]+")
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def _throttled_replicas(parts: tuple[str, ...]) -> str:
    listed = ",".join(parts).replace(" ", "")
    if listed in ("", "*") or all(_REPLICA.fullmatch(part) for part in listed.split(",")):
        return listed
    raise ValueError(
        "must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


def _gzip_level(level: int) -> int:
    if level != -1 and not 1 <= level <= 9:
        raise ValueError("Value must be between 1 and 9 or equal to -1")
    return level


def _level(codec: str, default: int, validator: Validator) -> Any:
    doc = f"The level of {codec} in files that replace others, by a merge or by compaction."
    return config_field("INT", default, "", doc, validator)


def _throttled(doc: str) -> Any:
    return config_field("LIST", "", "", doc, _throttled_replicas)


def _long(default: int, unit: str, low: int, doc: str) -> Any:
    return config_field("LONG", default, unit, doc, between(low, LONG_MAX))


def _int(default: int, unit: str, low: int, doc: str) -> Any:
    return config_field("INT", default, unit, doc, between(low, INT_MAX))


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The configs of one topic, typed; `overrides` holds those that were set, as text."""

    cleanup_policy: tuple[str, ...] = config_field(
        "LIST",
        (DELETE,),
        "",
        "'delete' drops old segments by retention time and size, 'compact' keeps the latest record of each key. "
        "Empty: nothing goes.",
        each_of(COMPACT, DELETE),
    )
    compression_gzip_level: int = _level("gzip", -1, _gzip_level)
    compression_lz4_level: int = _level("lz4", 9, between(1, 17))
    compression_type: str = config_field(
        "STRING",
        "producer",
        "",
        "Codec of data files. 'producer': that of the producer; small files plain, merged ones zstd.",
        one_of(*_CODECS),
    )
    compression_zstd_level: int = _level("zstd", 3, between(-131_072, 22))
    delete_retention_ms: int = _long(86_400_000, "ms", 0, "How long compaction keeps a tombstone.")
    file_delete_delay_ms: int = _long(60_000, "ms", 0, "How long a file stays on storage after it left the log.")
    flush_messages: int = _long(LONG_MAX, "records", 1, "Sync to local disk after so many records; 1 = every append.")
    flush_ms: int = _long(LONG_MAX, "ms", 0, "Sync to local disk when the last sync is so long ago.")
    follower_replication_throttled_replicas: str = _throttled(
        "Replicas whose copying is held back, as partition:broker,..., or * for all."
    )
    index_interval_bytes: int = _int(
        4096,
        "bytes",
        0,
        "Distance between index entries. Each data file is an index entry: merged files grow up to 8,192 times this.",
    )
    leader_replication_throttled_replicas: str = _throttled(
        "Replicas from which copying is held back, as partition:broker,..., or * for all."
    )
    max_compaction_lag_ms: int = _long(
        LONG_MAX, "ms", 1, "Compaction waits no longer than this, however clean a log is."
    )
    max_message_bytes: int = _int(1_048_588, "bytes", 0, "The largest record batch that is accepted.")
    message_timestamp_after_max_ms: int = _long(
        LONG_MAX, "ms", 0, "A record whose own time is further in the future is refused (Kafka: 3600000)."
    )
    message_timestamp_before_max_ms: int = _long(
        LONG_MAX, "ms", 0, "A record whose own time is further in the past is refused."
    )
    message_timestamp_type: str = config_field(
        "STRING",
        CREATE_TIME,
        "",
        "A record's time: 'CreateTime', its producer's, or 'LogAppendTime', that of the append by a broker.",
        one_of(CREATE_TIME, LOG_APPEND_TIME),
    )
    min_cleanable_dirty_ratio: float = config_field(
        "DOUBLE", 0.5, "", "Compaction starts when this share of the log is not compacted yet.", between(0, 1)
    )
    min_compaction_lag_ms: int = _long(0, "ms", 0, "Records younger than this are not compacted.")
    min_insync_replicas: int = _int(1, "replicas", 1, "In-sync replicas needed to accept a batch with acks=all.")
    preallocate: bool = config_field(
        "BOOLEAN", False, "", "Accepted and without effect: a data file is written whole, when its size is known."
    )
    retention_bytes: int = _long(-1, "bytes", -LONG_MAX - 1, "Old segments go when the log is larger; below 0: never.")
    retention_ms: int = _long(604_800_000, "ms", -1, "Segments go when their newest record is older; -1 = never.")
    segment_bytes: int = _int(1_073_741_824, "bytes", 14, "Size at which a new segment begins.")
    segment_files_max: int = _int(10_000, "files", 1, "Data files at which a new segment begins. Ours, not Kafka's.")
    segment_index_bytes: int = _int(
        10_485_760,
        "bytes",
        4,
        "Size of a segment's index, 8 bytes an entry. Each data file is an entry: a full index begins a new segment.",
    )
    segment_jitter_ms: int = _long(0, "ms", 0, "segment.ms is shortened by up to so much, lest all logs roll at once.")
    segment_ms: int = _long(604_800_000, "ms", 1, "Age of a segment's first record at which a new segment begins.")
    stratalog_commit_latency_ms: int = _long(
        500,
        "ms",
        0,
        "The longest time that a commit gathers records so that the brokers keep to stratalog.requests.budget.",
    )
    stratalog_snapshot_retention_ms: int = _long(
        3_600_000,
        "ms",
        0,
        "How long a merged, compacted or expired file stays for readers of an older version of the table, if the disk "
        "has room; at least file.delete.delay.ms, which alone holds for what an erasure removed.",
    )
    stratalog_storage_copies: tuple[str, ...] = config_field(
        "LIST",
        (),
        "",
        "Further storage domains, each with a copy of the topic that brokers of its own follow into and may lead from; "
        "'brokers': in these brokers' roots. Altered, copies are made or end while the topic is in use.",
    )
    stratalog_storage_domain: str = config_field(
        "STRING",
        "",
        "",
        "The storage domain with a topic's tables: there a partition has one for all its brokers. Empty: each replica "
        "has a table in its broker's root. Altered, the topic moves while it is in use.",
    )
    unclean_leader_election_enable: bool = config_field(
        "BOOLEAN", False, "", "Whether a replica that is not in sync may lead when no other is left, losing records."
    )
    overrides: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def from_properties(properties: Mapping[str, object]) -> LogConfig:
        """Configs from Kafka's dotted names; a name that is missing has its default.

        Raises InvalidConfigError: "Unknown topic config name: x", or
        "Invalid value -1 for configuration segment.ms: Value must be at least 1".
        """
        overrides = {name: spelled(value) for name, value in properties.items()}
        return LogConfig(**TOPIC_CONFIGS.parse(overrides), overrides=overrides)

    @staticmethod
    def validated(properties: Mapping[str, object]) -> LogConfig:
        """The same for configs that are to be set: InvalidConfigError also for values that contradict each other.

        Defaults that are altered later may contradict those that a topic has: then both hold.
        """
        config = LogConfig.from_properties(properties)
        least_ms, most_ms = config.min_compaction_lag_ms, config.max_compaction_lag_ms
        if least_ms > most_ms:
            raise InvalidConfigError(
                f"conflict topic setting min.compaction.lag.ms ({least_ms}) > max.compaction.lag.ms ({most_ms})"
            )
        return config

    @property
    def is_compacted(self) -> bool:
        return COMPACT in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """True when retention time and size apply."""
        return DELETE in self.cleanup_policy

    @property
    def is_deleted_by_time(self) -> bool:
        """True when `retention.ms` applies and has an end."""
        return self.is_deleted and self.retention_ms >= 0

    @property
    def has_append_time(self) -> bool:
        """True when the broker's clock gives records their time."""
        return self.message_timestamp_type == LOG_APPEND_TIME

    @property
    def limits_times(self) -> bool:
        """True when records whose own time is too far from the clock are refused."""
        bounds_ms = {self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms}
        return not self.has_append_time and bounds_ms != {LONG_MAX}

    @property
    def segment_ms_max(self) -> int:
        """`segment.ms`; of a compacted topic at most `max.compaction.lag.ms`: only sealed segments are compacted."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @property
    def segment_file_count_max(self) -> int:
        """Data files at which a segment is full: the smaller of its two limits."""
        return min(self.segment_files_max, max(1, self.segment_index_bytes // INDEX_ENTRY_BYTES))

    @property
    def removed_ms_max(self) -> int:
        """How long a file stays that left the log: for its followers, and for readers of an older version."""
        return max(self.file_delete_delay_ms, self.stratalog_snapshot_retention_ms)

    @property
    def merged_bytes_max(self) -> int:
        """The largest file that a merge writes, in bytes; 0 = files are never merged."""
        return self.index_interval_bytes * MERGED_BYTES_PER_INTERVAL_BYTE


TOPIC_CONFIGS = ConfigDef.of("topic", LogConfig)
"""Every topic config, sorted by name."""
