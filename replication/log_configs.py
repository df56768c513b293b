"""Kafka's broker configs for the logs of topics that do not set them: `log.retention.hours` and its like. Pure.

Each topic config has one broker config or several, the first of which that is given counts: `log.retention.ms`, then
`log.retention.minutes`, then `log.retention.hours`. What a broker is given comes before conf/topics.toml. The first one
has the topic config's unit: by its name the default is in the metadata log, and can be altered while brokers run.
Source: Kafka's `ServerTopicConfigSynonyms`, `KafkaConfig.logRetentionTimeMillis`, `DynamicLogConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from stratalog.storage.cadence import HOUR_MS, MINUTE_MS
from stratalog.storage.config_def import ConfigDef, ConfigKey, spelled
from stratalog.storage.topic_config import TOPIC_CONFIGS


class LogConfigSynonym(NamedTuple):
    """A broker config, and what its unit is in the topic config's."""

    name: str
    factor: int = 1


def _same(*names: str) -> dict[str, tuple[LogConfigSynonym, ...]]:
    return {name: (LogConfigSynonym(name),) for name in names}


def _one(**names: str) -> dict[str, tuple[LogConfigSynonym, ...]]:
    return {topic.replace("_", "."): (LogConfigSynonym(broker),) for topic, broker in names.items()}


SYNONYMS: dict[str, tuple[LogConfigSynonym, ...]] = {
    **_same(
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "min.insync.replicas",
        "stratalog.storage.copies",
        "stratalog.storage.domain",
    ),
    **_one(
        cleanup_policy="log.cleanup.policy",
        delete_retention_ms="log.cleaner.delete.retention.ms",
        file_delete_delay_ms="log.segment.delete.delay.ms",
        flush_messages="log.flush.interval.messages",
        index_interval_bytes="log.index.interval.bytes",
        max_compaction_lag_ms="log.cleaner.max.compaction.lag.ms",
        max_message_bytes="message.max.bytes",
        message_timestamp_after_max_ms="log.message.timestamp.after.max.ms",
        message_timestamp_before_max_ms="log.message.timestamp.before.max.ms",
        message_timestamp_type="log.message.timestamp.type",
        min_cleanable_dirty_ratio="log.cleaner.min.cleanable.ratio",
        min_compaction_lag_ms="log.cleaner.min.compaction.lag.ms",
        preallocate="log.preallocate",
        retention_bytes="log.retention.bytes",
        segment_bytes="log.segment.bytes",
        segment_index_bytes="log.index.size.max.bytes",
    ),
    "flush.ms": (LogConfigSynonym("log.flush.interval.ms"), LogConfigSynonym("log.flush.scheduler.interval.ms")),
    "retention.ms": (
        LogConfigSynonym("log.retention.ms"),
        LogConfigSynonym("log.retention.minutes", MINUTE_MS),
        LogConfigSynonym("log.retention.hours", HOUR_MS),
    ),
    "segment.jitter.ms": (LogConfigSynonym("log.roll.jitter.ms"), LogConfigSynonym("log.roll.jitter.hours", HOUR_MS)),
    "segment.ms": (LogConfigSynonym("log.roll.ms"), LogConfigSynonym("log.roll.hours", HOUR_MS)),
}
"""By the name of the topic config, in order of precedence."""
LOG_CONFIGS = frozenset(each.name for synonyms in SYNONYMS.values() for each in synonyms)
"""The names of these broker configs."""

UNCLEAN_ELECTION = "unclean.leader.election.enable"
DEFAULT_NAMES: Mapping[str, str] = {
    key.name: SYNONYMS[key.name][0].name if key.name in SYNONYMS else key.name for key in TOPIC_CONFIGS
}
"""By topic config, the name of its default among the configs of brokers."""
TOPIC_CONFIG_OF: Mapping[str, str] = {default: topic for topic, default in DEFAULT_NAMES.items()}
"""By the name of a default, the topic config."""
DYNAMIC_LOG_CONFIGS = ConfigDef(
    "broker",
    [TOPIC_CONFIGS.key(topic)._replace(name=default) for topic, default in DEFAULT_NAMES.items() if topic in SYNONYMS],
)
"""Those of the broker configs that can be altered while brokers run."""
CLUSTERS_OWN = frozenset(
    {"log.cleanup.policy", "min.insync.replicas", "stratalog.storage.copies", "stratalog.storage.domain"}
)
"""Those that one broker cannot have for itself: also clients and the controller act by them."""

TopicDefaults = tuple[tuple[str, str], ...]
"""Topic configs by name, as text."""


def topic_defaults(given: Mapping[str, object]) -> TopicDefaults:
    """The topic configs that broker configs ask for. InvalidConfigError in Kafka's words, with the broker's name.

    >>> topic_defaults({"log.retention.hours": 2, "log.retention.minutes": "30", "num.partitions": 6})
    (('retention.ms', '1800000'),)
    """
    found: dict[str, str] = {}
    for topic_name, synonyms in SYNONYMS.items():
        for synonym in reversed(synonyms):
            if synonym.name in given:
                found[topic_name] = _value(TOPIC_CONFIGS.key(topic_name), synonym, given[synonym.name])
    return tuple(sorted(found.items()))


def defaults_by_topic_config(values: Mapping[str, str]) -> dict[str, str]:
    """The defaults among the configs of brokers, by topic config.

    >>> defaults_by_topic_config({"log.retention.ms": "5", "num.partitions": "6"})
    {'retention.ms': '5'}
    """
    return {TOPIC_CONFIG_OF[name]: value for name, value in values.items() if name in TOPIC_CONFIG_OF}


def default_synonym(name: str, default: str) -> tuple[str, str]:
    """Name and value of a default, as Kafka calls them: of several synonyms the last one has it. `name` is that of the
    default among the configs of brokers.

    >>> default_synonym("log.retention.ms", "604800000")
    ('log.retention.hours', '168')
    """
    synonyms = SYNONYMS.get(TOPIC_CONFIG_OF.get(name, ""), ())
    if not synonyms:
        return name, default
    last = synonyms[-1]
    return last.name, default if last.factor == 1 else str(int(default) // last.factor)


def is_kafkas(topic_config: str, value: str) -> bool:
    """Whether a value is Kafka's default of a topic config."""
    return spelled(TOPIC_CONFIGS.key(topic_config).default) == value


def _value(key: ConfigKey, synonym: LogConfigSynonym, given: object) -> str:
    named = key._replace(name=synonym.name)
    if key.name == "retention.ms" or synonym.factor > 1:
        number = named._replace(validator=None).parse(given) * synonym.factor
        given = -1 if key.name == "retention.ms" and number < 0 else number
    return spelled(named.parse(given))
