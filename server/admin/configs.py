"""Configs in force, each with its synonyms: Kafka's describeConfigs. Pure.

The first synonym is in force: a topic's override, then a value altered for one broker, then one for all brokers, then
one that the cluster was started with, if it is not the default, then the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stratalog.replication.config import BROKER_CONFIGS
from stratalog.replication.log_configs import DEFAULT_NAMES, DYNAMIC_LOG_CONFIGS, default_synonym
from stratalog.replication.metadata.configs import (
    CLUSTER_WIDE_CONFIGS,
    DYNAMIC_BROKER_CONFIGS,
    GROUP_CONFIGS,
    GROUP_TIMES,
    group_default_ms,
    kept_broker_config_key,
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
DYNAMIC = frozenset({DYNAMIC_TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG, DYNAMIC_GROUP_CONFIG})


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One value of a config; `source` is Kafka's ConfigSource."""

    source: str
    name: str
    value: str | None

    def __str__(self) -> str:
        return f"{self.source}:{self.name}={'null' if self.value is None else self.value}"


@dataclass(frozen=True, slots=True)
class ConfigInForce:
    """A config by name, with its synonyms in order of precedence: at least the default, which may have another unit
    than `value`, as hours for milliseconds; None is Kafka's null, as the rack of a broker without one. `is_sensitive`:
    not shown."""

    name: str
    value: str | None
    synonyms: tuple[ConfigSynonym, ...]
    is_sensitive: bool = False

    @property
    def source(self) -> str:
        return self.synonyms[0].source

    @property
    def text(self) -> str:
        """The value as Kafka's tools print it."""
        return "null" if self.value is None else self.value


def topic_configs(image: ClusterImage, topic: str, broker_id: int | None = None) -> list[ConfigInForce]:
    """Every config of a topic, by name; `broker_id`: as that broker has them."""
    overrides = image.topic_overrides(topic)
    found = []
    for key in TOPIC_CONFIGS:
        own = overrides.get(key.name)
        synonyms = () if own is None else (ConfigSynonym(DYNAMIC_TOPIC_CONFIG, key.name, key.shown(own)),)
        found.append(_in_force(image, key, DEFAULT_NAMES[key.name], broker_id, synonyms))
    return found


def cluster_configs(image: ClusterImage, broker_id: int | None = None) -> list[ConfigInForce]:
    """Every cluster-wide config, by name: also the defaults of topics' configs. `broker_id`: as that broker has it."""
    return list(_of_all_brokers(image, broker_id))


def broker_configs(image: ClusterImage, broker_id: int, own: Mapping[str, object]) -> list[ConfigInForce]:
    """Every config of a broker that was started with the values `own`: its identity, its settings, what is cluster-wide
    or dynamic, and what was altered though it is not known."""
    shared = {each.name: each for each in _of_all_brokers(image, broker_id)}
    fixed = {key.name: _static(key, own[key.name]) for key in BROKER_CONFIGS if key.name not in shared}
    registered = image.brokers.get(broker_id)
    if registered is not None:
        rack, root = registered.registration.rack, registered.registration.root
        number = str(broker_id)
        for name, value in (("broker.id", number), ("node.id", number), ("log.dirs", root), ("broker.rack", rack)):
            source = DEFAULT_CONFIG if value is None else STATIC_BROKER_CONFIG
            fixed[name] = ConfigInForce(name, value, (ConfigSynonym(source, name, value),))
    found = {**fixed, **shared}
    return [found[name] for name in sorted(found)]


def altered_broker_configs(image: ClusterImage) -> list[ConfigInForce]:
    """The configs that were altered for all brokers."""
    altered = image.configs.get(DYNAMIC_DEFAULT, {})
    known = {each.name: each for each in _of_all_brokers(image, None)}
    return [known[name] for name in sorted(altered)]


def _of_all_brokers(image: ClusterImage, broker_id: int | None) -> Iterator[ConfigInForce]:
    keys = [BROKER_CONFIGS.key(name) for name in CLUSTER_WIDE_CONFIGS]
    keys += [*DYNAMIC_LOG_CONFIGS, *DYNAMIC_BROKER_CONFIGS]
    known = {key.name: key for key in keys}
    own = {} if broker_id is None else image.configs.get(of_broker(broker_id), {})
    for name in (*own, *image.configs.get(DYNAMIC_DEFAULT, {})):
        known.setdefault(name, kept_broker_config_key(name))
    for name in sorted(known):
        yield _in_force(image, known[name], name, broker_id)


def group_configs(image: ClusterImage, group_id: str) -> list[ConfigInForce]:
    """Every config of a group, with what the cluster was started with as defaults."""
    altered = image.configs.get(of_group(group_id), {})
    found = []
    for key in GROUP_CONFIGS:
        default = ConfigSynonym(DEFAULT_CONFIG, key.name, str(group_default_ms(image, GROUP_TIMES[key.name].config)))
        value = altered.get(key.name)
        synonyms = (default,) if value is None else (ConfigSynonym(DYNAMIC_GROUP_CONFIG, key.name, value), default)
        found.append(ConfigInForce(key.name, synonyms[0].value, synonyms))
    return found


def _static(key: ConfigKey, value: object) -> ConfigInForce:
    default = ConfigSynonym(DEFAULT_CONFIG, key.name, spelled(key.default))
    own = ConfigSynonym(STATIC_BROKER_CONFIG, key.name, spelled(value))
    synonyms = (default,) if own.value == default.value else (own, default)
    return ConfigInForce(key.name, synonyms[0].value, synonyms, key.type == "PASSWORD")


def _in_force(
    image: ClusterImage,
    key: ConfigKey,
    name: str,
    broker_id: int | None = None,
    overrides: Sequence[ConfigSynonym] = (),
) -> ConfigInForce:
    """A config with its synonyms among the configs of brokers, which have `name`, after those that come before them."""
    default = spelled(key.default)
    sources = {DYNAMIC_DEFAULT_BROKER_CONFIG: DYNAMIC_DEFAULT, STATIC_BROKER_CONFIG: CLUSTER_WIDE}
    if broker_id is not None:
        sources = {DYNAMIC_BROKER_CONFIG: of_broker(broker_id), **sources}
    given = [(source, image.configs.get(of, {}).get(name)) for source, of in sources.items()]
    found = [ConfigSynonym(source, name, key.shown(value)) for source, value in given if value is not None]
    if found and found[-1].source == STATIC_BROKER_CONFIG and found[-1].value == default:
        found.pop()
    synonyms = (*overrides, *found)
    value = synonyms[0].value if synonyms else default
    named = ConfigSynonym(DEFAULT_CONFIG, *default_synonym(name, default))
    return ConfigInForce(key.name, value, (*synonyms, named), key.type == "PASSWORD")
