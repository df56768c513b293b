"""Configs as they are in force, with all that has a say in each: Kafka's describeConfigs with synonyms. Pure.

The first synonym is the one in force: a topic's own override, then what was altered for all brokers, then what the
cluster was started with, then the default.
"""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.replication.config import settings
from stratalog.replication.metadata.configs import SHARED_SETTINGS, spelled
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import CLUSTER_WIDE, DYNAMIC_DEFAULT
from stratalog.storage.topic_config import LogConfig

DYNAMIC_TOPIC_CONFIG = "DYNAMIC_TOPIC_CONFIG"
DYNAMIC_DEFAULT_BROKER_CONFIG = "DYNAMIC_DEFAULT_BROKER_CONFIG"
STATIC_BROKER_CONFIG = "STATIC_BROKER_CONFIG"
DEFAULT_CONFIG = "DEFAULT_CONFIG"
DYNAMIC = frozenset({DYNAMIC_TOPIC_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG})


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One that has a say: `source` is Kafka's name of where it stands."""

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
    found = []
    for known in LogConfig.describe():
        own = (
            [ConfigSynonym(DYNAMIC_TOPIC_CONFIG, known.name, overrides[known.name])] if known.name in overrides else []
        )
        shared = _shared(image, known.name) if known.name in SHARED_SETTINGS else []
        default = ConfigSynonym(DEFAULT_CONFIG, known.name, known.default)
        found.append(ConfigInForce(known.name, (*own, *shared, default)))
    return found


def cluster_configs(image: ClusterImage) -> list[ConfigInForce]:
    """Every setting that all brokers share and that the metadata log knows, by name."""
    return [
        ConfigInForce(
            known.name,
            (*_shared(image, known.name), ConfigSynonym(DEFAULT_CONFIG, known.name, spelled(known.default))),
        )
        for known in settings()
        if known.name in SHARED_SETTINGS
    ]


def _shared(image: ClusterImage, name: str) -> list[ConfigSynonym]:
    sources = ((DYNAMIC_DEFAULT_BROKER_CONFIG, DYNAMIC_DEFAULT), (STATIC_BROKER_CONFIG, CLUSTER_WIDE))
    values = [(source, image.configs.get(entity, {}).get(name)) for source, entity in sources]
    return [ConfigSynonym(source, name, value) for source, value in values if value is not None]
