"""Configs as the metadata log has them. Pure.

Cluster-wide configs can be altered while the cluster runs, as Kafka's dynamic default broker configs: the metadata log
has the values that the brokers were started with (`CLUSTER_WIDE`) and the altered ones (`DYNAMIC_DEFAULT`), which come
first, also after a restart, until they are deleted. A topic's configs are its overrides over the cluster's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping

from stratalog.replication.config import BROKER_CONFIGS, BrokerConfig
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import CLUSTER_WIDE, DYNAMIC_DEFAULT, ConfigRecord
from stratalog.storage.config_def import spelled
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.topic_config import LogConfig

CLUSTER_WIDE_CONFIGS = (
    "num.partitions",
    "default.replication.factor",
    "delete.topic.enable",
    "unclean.leader.election.enable",
)
"""Configs that act on the metadata log, so that they are the same for all brokers; no others can be altered."""


def record_cluster_wide_configs(image: ClusterImage, config: BrokerConfig) -> Result[None]:
    """Put the cluster-wide configs that a cluster is started with into the metadata log; altered ones stay."""
    before = image.configs.get(CLUSTER_WIDE, {})
    values = {name: spelled(value) for name, value in config.properties().items() if name in CLUSTER_WIDE_CONFIGS}
    changed = {name: value for name, value in values.items() if before.get(name) != value}
    return Result(tuple(ConfigRecord(CLUSTER_WIDE, name, value) for name, value in changed.items()), None)


def alter_cluster_config(image: ClusterImage, changes: Mapping[str, str | None]) -> Result[dict[str, str]]:
    """Alter cluster-wide configs, or with None return to what the cluster was started with; all altered ones
    afterwards.

    InvalidConfigError in Kafka's words for an unknown name, one that needs a restart, or a bad value.
    """
    keys = {name: BROKER_CONFIGS.key(name) for name in sorted(changes)}
    fixed = [name for name in keys if name not in CLUSTER_WIDE_CONFIGS]
    if fixed:
        raise InvalidConfigError(f"Cannot update these configs dynamically: {', '.join(fixed)}")
    before = image.configs.get(DYNAMIC_DEFAULT, {})
    wanted = {
        name: None if (value := changes[name]) is None else spelled(key.parse(value)) for name, key in keys.items()
    }
    after = {name: value for name, value in {**before, **wanted}.items() if value is not None}
    changed = (name for name, value in wanted.items() if before.get(name) != value)
    return Result(tuple(ConfigRecord(DYNAMIC_DEFAULT, name, wanted[name]) for name in changed), after)


class TopicConfigs:
    """Typed configs, parsed once a change. `defaults` is what conf/topics.toml has, by Kafka's names."""

    def __init__(self, defaults: Mapping[str, object]) -> None:
        self._defaults = dict(defaults)
        self._known: dict[str, tuple[Mapping[str, str], LogConfig]] = {}

    def of(self, topic: str, image: ClusterImage) -> LogConfig:
        """The topic's configs in this image: the same object until one changes."""
        overrides = image.topic_config(topic)
        known = self._known.get(topic)
        if known is None or known[0] != overrides:
            config = LogConfig.from_properties({**self._defaults, **overrides})
            known = self._known[topic] = (dict(overrides), config)
        return known[1]

    def forget(self, topic: str) -> None:
        """Drop what is kept for a topic."""
        self._known.pop(topic, None)
