from __future__ import annotations

import pytest

from stratalog.storage.config_def import spelled
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.topic_config import LONG_MAX, TOPIC_CONFIGS, LogConfig

SIXTEEN = [
    "unclean.leader.election.enable",
    "delete.retention.ms",
    "segment.jitter.ms",
    "retention.ms",
    "flush.ms",
    "segment.bytes",
    "flush.messages",
    "segment.ms",
    "retention.bytes",
    "cleanup.policy",
    "segment.index.bytes",
    "min.cleanable.dirty.ratio",
    "max.message.bytes",
    "file.delete.delay.ms",
    "min.insync.replicas",
    "index.interval.bytes",
]


def value_of(config: LogConfig, name: str) -> str:
    return spelled(getattr(config, TOPIC_CONFIGS.key(name).field_name))


OTHERS = [
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "max.compaction.lag.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.compaction.lag.ms",
    "preallocate",
]


def test_kafkas_topic_configs_are_known_and_five_of_ours():
    names = ("commit.latency.ms", "snapshot.retention.ms", "storage.copies", "storage.domain")
    ours = {"segment.files.max", *(f"stratalog.{name}" for name in names)}
    assert {key.name for key in TOPIC_CONFIGS} == {*SIXTEEN, *OTHERS, *ours}


def test_a_removed_file_stays_for_the_longer_of_two_times():
    def stays_ms(**given: int) -> int:
        return LogConfig.from_properties({name.replace("_", "."): ms for name, ms in given.items()}).removed_ms_max

    assert stays_ms() == 3_600_000
    assert stays_ms(stratalog_snapshot_retention_ms=0) == 60_000
    assert stays_ms(stratalog_snapshot_retention_ms=0, file_delete_delay_ms=500) == 500
    assert stays_ms(file_delete_delay_ms=7_200_000) == 7_200_000


def test_only_sealed_segments_are_compacted_so_a_largest_lag_seals_them():
    lag = {"max.compaction.lag.ms": 60_000}
    assert LogConfig.from_properties({**lag, "cleanup.policy": "compact"}).segment_ms_max == 60_000
    assert LogConfig.from_properties(lag).segment_ms_max == LogConfig().segment_ms
    with pytest.raises(InvalidConfigError, match=r"min\.compaction\.lag\.ms \(60001\) > max\.compaction\.lag\.ms"):
        LogConfig.validated({**lag, "min.compaction.lag.ms": 60_001})
    assert LogConfig.from_properties({**lag, "min.compaction.lag.ms": 60_001}).min_compaction_lag_ms == 60_001


def test_every_field_has_the_default_of_its_key():
    config = LogConfig()
    assert {k.name: getattr(config, k.field_name) for k in TOPIC_CONFIGS} == {k.name: k.default for k in TOPIC_CONFIGS}


def test_every_default_is_a_valid_value():
    config = LogConfig()
    assert LogConfig.from_properties({n: value_of(config, n) for n in SIXTEEN}).retention_ms == config.retention_ms


@pytest.mark.parametrize(
    ("name", "value", "typed"),
    [
        ("max.message.bytes", "64000", 64_000),
        ("flush.messages", 1, 1),
        ("retention.ms", "-1", -1),
        ("min.cleanable.dirty.ratio", "0.01", 0.01),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("cleanup.policy", ["compact"], ("compact",)),
        ("cleanup.policy", "", ()),
        ("unclean.leader.election.enable", "TRUE", True),
        ("unclean.leader.election.enable", True, True),
        ("flush.ms", str(LONG_MAX), LONG_MAX),
        ("leader.replication.throttled.replicas", "0:1, 1:2", "0:1,1:2"),
        ("follower.replication.throttled.replicas", "*", "*"),
    ],
)
def test_a_property_becomes_a_typed_field(name, value, typed):
    config = LogConfig.from_properties({name: value})
    assert getattr(config, TOPIC_CONFIGS.key(name).field_name) == typed
    assert set(config.overrides) == {name}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.zstd.level", "23", "Value must be no more than 22"),
        ("message.timestamp.type", "createtime", "String must be one of: CreateTime, LogAppendTime"),
        ("max.compaction.lag.ms", "0", "Value must be at least 1"),
        ("x", "1", "Unknown topic config name: x"),
        (
            "leader.replication.throttled.replicas",
            "0:1,2",
            "Invalid value 0:1,2 for configuration leader.replication.throttled.replicas: must be the literal",
        ),
        ("segment.ms", "0", "Invalid value 0 for configuration segment.ms: Value must be at least 1"),
        ("retention.ms", "soon", "Invalid value soon for configuration retention.ms: Not a number of type LONG"),
        ("min.cleanable.dirty.ratio", "2", "Invalid value 2 for configuration min.cleanable.dirty.ratio: "),
        ("segment.bytes", str(1 << 31), "Value must be no more than 2147483647"),
        ("cleanup.policy", "burn", "String must be one of: compact, delete"),
        ("unclean.leader.election.enable", "yes", "Expected value to be either true or false"),
        ("flush.messages", "0", "Value must be at least 1"),
        ("min.cleanable.dirty.ratio", "nan", "Value must be at least 0"),
    ],
)
def test_a_bad_property_is_refused_in_kafkas_words(name, value, message):
    with pytest.raises(InvalidConfigError) as refusal:
        LogConfig.from_properties({name: value})
    assert message in str(refusal.value)


def test_values_are_spelled_as_kafka_spells_them():
    config = LogConfig.from_properties({"cleanup.policy": "compact,delete"})
    assert value_of(config, "cleanup.policy") == "compact,delete"
    assert value_of(config, "unclean.leader.election.enable") == "false"
    assert config.is_compacted
    assert config.is_deleted


def test_describe_lists_every_config_by_name():
    names = [key.name for key in TOPIC_CONFIGS]
    assert names == sorted(names)
    assert all(key.doc.endswith(".") for key in TOPIC_CONFIGS)


def test_the_index_configs_steer_files_per_segment_and_the_size_of_merged_files():
    assert LogConfig().segment_file_count_max == 10_000
    assert LogConfig.from_properties({"segment.index.bytes": 80}).segment_file_count_max == 10
    assert LogConfig().merged_bytes_max == 32 << 20
