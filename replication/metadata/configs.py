"""Settings that all brokers share, altered while the cluster runs: Kafka's dynamic default broker configs. Pure.

What the brokers were started with is stated in the metadata log (`CLUSTER_WIDE`); an altered value stands beside it
(`DYNAMIC_DEFAULT`) and comes first, also after a restart, until it is deleted.

The configs of topics as typed values: their overrides over the cluster's defaults, parsed once. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from stratalog.replication.config import BrokerConfig, settings
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import CLUSTER_WIDE, DYNAMIC_DEFAULT, ConfigRecord
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.topic_config import LogConfig

SHARED_SETTINGS = (
    "num.partitions",
    "default.replication.factor",
    "delete.topic.enable",
    "unclean.leader.election.enable",
)
"""What is decided by whoever has the metadata log, so that it is the same for all; only this can be altered."""


def state_settings(image: ClusterImage, config: BrokerConfig) -> Result[None]:
    """The shared settings that a cluster is started with go into the metadata log; what is altered stays."""
    stated = {name: spelled(value) for name, value in config.properties().items() if name in SHARED_SETTINGS}
    before = image.configs.get(CLUSTER_WIDE, {})
    changed = {name: value for name, value in stated.items() if before.get(name) != value}
    return Result(tuple(ConfigRecord(CLUSTER_WIDE, name, value) for name, value in changed.items()), None)


def alter_cluster_config(image: ClusterImage, changes: Mapping[str, str | None]) -> Result[dict[str, str]]:
    """Alter shared settings, or with None give them back to what the cluster was started with; all altered ones
    afterwards.

    InvalidConfigError in Kafka's words for an unknown name, one that takes a restart, or a bad value.
    """
    known = {setting.name: setting for setting in settings()}
    unknown = sorted(name for name in changes if name not in known)
    if unknown:
        raise InvalidConfigError(f"Unknown broker config name: {unknown[0]}")
    fixed = sorted(name for name in changes if name not in SHARED_SETTINGS)
    if fixed:
        raise InvalidConfigError(f"Cannot update these configs dynamically: {', '.join(fixed)}")
    before = image.configs.get(DYNAMIC_DEFAULT, {})
    wanted = {
        name: None if value is None else spelled(known[name].parse(value)) for name, value in sorted(changes.items())
    }
    after = {name: value for name, value in {**before, **wanted}.items() if value is not None}
    changed = (name for name, value in wanted.items() if before.get(name) != value)
    return Result(tuple(ConfigRecord(DYNAMIC_DEFAULT, name, wanted[name]) for name in changed), after)


def spelled(value: object) -> str:
    """A setting's value as Kafka writes it.

    >>> spelled(True), spelled(3)
    ('true', '3')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


class TopicConfigs:
    """One part's own; `defaults` is what conf/topics.toml says, by Kafka's names."""

    def __init__(self, defaults: Mapping[str, object]) -> None:
        self._defaults = dict(defaults)
        self._known: dict[str, tuple[Mapping[str, str], LogConfig]] = {}

    def of(self, topic: str, image: ClusterImage) -> LogConfig:
        """The topic's configs as the image has them: the same object until one changes."""
        overrides = image.topic_config(topic)
        known = self._known.get(topic)
        if known is None or known[0] != overrides:
            config = LogConfig.from_properties({**self._defaults, **overrides})
            known = self._known[topic] = (dict(overrides), config)
        return known[1]

    def forget(self, topic: str) -> None:
        """The topic is of no interest any more."""
        self._known.pop(topic, None)
