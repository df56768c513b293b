"""Settings that all brokers share, altered while the cluster runs: Kafka's dynamic default broker configs. Pure.

What the brokers were started with is stated in the metadata log (`CLUSTER_WIDE`); an altered value stands beside it
(`DYNAMIC_DEFAULT`) and comes first, also after a restart, until it is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping

from stratalog.replication.config import BrokerConfig, settings
from stratalog.replication.metadata.image import CLUSTER_WIDE, DYNAMIC_DEFAULT, ClusterImage, ConfigRecord, Result
from stratalog.storage.errors import InvalidConfigError

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
