"""Configs in force, each with its synonyms: Kafka's describeConfigs. Pure.

The first synonym is in force: a topic's override, then a value altered for all brokers, then one that the cluster was
started with, if it is not the default, then the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stratalog.replication.config import BROKER_CONFIGS
from stratalog.replication.metadata.configs import (
    CLUSTER_WIDE_CONFIGS,
    DYNAMIC_BROKER_CONFIGS,
    GROUP_CONFIGS,
    GROUP_TIMES,
    group_default_ms,
)
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import CLUSTER_WIDE, DYNAMIC_DEFAULT, of_broker, of_group
from stratalog.storage.config_def import ConfigKey, spelled
from stratalog.storage.topic_config import TOPIC_CONFIGS

DYNAMIC_TOPIC_CONFIG = "DYNAMIC_TOPIC_CONFIG"
DYNAMIC_BROKER_CONFIG = "DYNAMIC_BROKER_CONFIG"
DYNAMIC_BROKER_LOGGER_CONFIG = "DYNAMIC_BROKER_LOGGER_CONFIG"
DYNAMIC_DEFAULT_BROKER_CONFIG = "DYNAMIC_DEFAULT_BROKER_CONFIG"
DYNAMIC_GROUP_CONFIG = "DYNAMIC_GROUP_CONFIG"
STATIC_BROKER_CONFIG = "STATIC_BROKER_CONFIG"
DEFAULT_CONFIG = "DEFAULT_CONFIG"
DYNAMIC = frozenset({DYNAMIC_TOPIC_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG, DYNAMIC_GROUP_CONFIG})


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


def topic_configs(image: ClusterImage, topic: str, defaults: Iterable[tuple[str, str]] = ()) -> list[ConfigInForce]:
    """Every config of a topic, by name. `defaults`: those of a broker (`BrokerConfig.topic_defaults`)."""
    overrides, static = image.topic_config(topic), dict(defaults)
    return [_in_force(image, key, overrides.get(key.name), static.get(key.name)) for key in TOPIC_CONFIGS]


def cluster_configs(image: ClusterImage) -> list[ConfigInForce]:
    """Every cluster-wide config, by name."""
    return [_in_force(image, key) for key in BROKER_CONFIGS if key.name in CLUSTER_WIDE_CONFIGS]


def broker_configs(image: ClusterImage, broker_id: int, own: Mapping[str, object]) -> list[ConfigInForce]:
    """Every config of a broker that was started with the values `own`, then its dynamic ones, as far as altered."""
    cluster_wide = {each.name: each for each in cluster_configs(image)}
    found = [cluster_wide.get(key.name) or _static(key, own[key.name]) for key in BROKER_CONFIGS]
    dynamic = {
        DYNAMIC_BROKER_CONFIG: image.configs.get(of_broker(broker_id), {}),
        DYNAMIC_DEFAULT_BROKER_CONFIG: image.configs.get(DYNAMIC_DEFAULT, {}),
    }
    for key in DYNAMIC_BROKER_CONFIGS:
        altered = [ConfigSynonym(source, key.name, of[key.name]) for source, of in dynamic.items() if key.name in of]
        if altered:
            found.append(ConfigInForce(key.name, (*altered, ConfigSynonym(DEFAULT_CONFIG, key.name, str(key.default)))))
    return found


def altered_broker_configs(image: ClusterImage) -> list[ConfigInForce]:
    """The configs that were altered for all brokers."""
    altered = image.configs.get(DYNAMIC_DEFAULT, {})
    known = {each.name: each for each in cluster_configs(image)}
    return [
        known.get(name) or ConfigInForce(name, (ConfigSynonym(DYNAMIC_DEFAULT_BROKER_CONFIG, name, altered[name]),))
        for name in sorted(altered)
    ]


def group_configs(image: ClusterImage, group_id: str) -> list[ConfigInForce]:
    """Every config of a group, with what the cluster was started with as defaults."""
    altered = image.configs.get(of_group(group_id), {})
    found = []
    for key in GROUP_CONFIGS:
        default = ConfigSynonym(DEFAULT_CONFIG, key.name, str(group_default_ms(image, GROUP_TIMES[key.name].config)))
        value = altered.get(key.name)
        synonyms = (default,) if value is None else (ConfigSynonym(DYNAMIC_GROUP_CONFIG, key.name, value), default)
        found.append(ConfigInForce(key.name, synonyms))
    return found


def _static(key: ConfigKey, value: object) -> ConfigInForce:
    default = ConfigSynonym(DEFAULT_CONFIG, key.name, spelled(key.default))
    own = ConfigSynonym(STATIC_BROKER_CONFIG, key.name, spelled(value))
    return ConfigInForce(key.name, (default,) if own.value == default.value else (own, default))


def _in_force(
    image: ClusterImage, key: ConfigKey, override: str | None = None, static: str | None = None
) -> ConfigInForce:
    values: dict[str, str | None] = {DYNAMIC_TOPIC_CONFIG: None if override is None else key.shown(override)}
    if key.name in CLUSTER_WIDE_CONFIGS:
        values[DYNAMIC_DEFAULT_BROKER_CONFIG] = image.configs.get(DYNAMIC_DEFAULT, {}).get(key.name)
        static = image.configs.get(CLUSTER_WIDE, {}).get(key.name)
    values[STATIC_BROKER_CONFIG] = static if static != spelled(key.default) else None
    values[DEFAULT_CONFIG] = spelled(key.default)
    found = (ConfigSynonym(source, key.name, value) for source, value in values.items() if value is not None)
    return ConfigInForce(key.name, tuple(found))
