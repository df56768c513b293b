"""Configs in force, each with its synonyms: Kafka's describeConfigs. Pure.

The first synonym is in force: a topic's override, then a value altered for all brokers, then one that the cluster was
started with, then the default.
"""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.replication.config import BROKER_CONFIGS
from stratalog.replication.metadata.configs import CLUSTER_WIDE_CONFIGS
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import CLUSTER_WIDE, DYNAMIC_DEFAULT
from stratalog.storage.config_def import ConfigKey, spelled
from stratalog.storage.topic_config import TOPIC_CONFIGS

DYNAMIC_TOPIC_CONFIG = "DYNAMIC_TOPIC_CONFIG"
DYNAMIC_DEFAULT_BROKER_CONFIG = "DYNAMIC_DEFAULT_BROKER_CONFIG"
STATIC_BROKER_CONFIG = "STATIC_BROKER_CONFIG"
DEFAULT_CONFIG = "DEFAULT_CONFIG"
DYNAMIC = frozenset({DYNAMIC_TOPIC_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG})


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One value of a config; `source` is Kafka's ConfigSource."""

    source: str
    name: str
    value: str

    def __str__(self) -> str:
        return f"{self.source}:{self.name}={self.value}"


@dataclass(frozen=True, slots=True)
class ConfigInForce:
    """A config by name, with its synonyms in order of precedence: at least the default."""

    name: str
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def value(self) -> str:
        return self.synonyms[0].value

    @property
    def source(self) -> str:
        return self.synonyms[0].source


def topic_configs(image: ClusterImage, topic: str) -> list[ConfigInForce]:
    """Every config of a topic, by name."""
    overrides = image.topic_config(topic)
    return [_in_force(image, key, overrides.get(key.name)) for key in TOPIC_CONFIGS]


def cluster_configs(image: ClusterImage) -> list[ConfigInForce]:
    """Every cluster-wide config, by name."""
    return [_in_force(image, key) for key in BROKER_CONFIGS if key.name in CLUSTER_WIDE_CONFIGS]


def _in_force(image: ClusterImage, key: ConfigKey, override: str | None = None) -> ConfigInForce:
    values: dict[str, str | None] = {DYNAMIC_TOPIC_CONFIG: override}
    if key.name in CLUSTER_WIDE_CONFIGS:
        values[DYNAMIC_DEFAULT_BROKER_CONFIG] = image.configs.get(DYNAMIC_DEFAULT, {}).get(key.name)
        values[STATIC_BROKER_CONFIG] = image.configs.get(CLUSTER_WIDE, {}).get(key.name)
    values[DEFAULT_CONFIG] = spelled(key.default)
    found = (ConfigSynonym(source, key.name, value) for source, value in values.items() if value is not None)
    return ConfigInForce(key.name, tuple(found))
