"""Configs as the metadata log has them. Pure.

Cluster-wide configs can be altered while the cluster runs, as Kafka's dynamic default broker configs: the metadata log
has the values that the brokers were started with (`CLUSTER_WIDE`) and the altered ones (`DYNAMIC_DEFAULT`), which come
first, also after a restart, until they are deleted. A topic's configs are its overrides over the cluster's defaults.
Rates of replication may be altered for one broker, times of heartbeats for one group.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from stratalog.replication.config import BROKER_CONFIGS, BrokerConfig, int32
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import CLUSTER_WIDE, DYNAMIC_DEFAULT, ConfigRecord, of_broker, of_group
from stratalog.storage.config_def import ConfigDef, ConfigKey, between, spelled
from stratalog.storage.errors import BrokerIdNotRegisteredError, InvalidConfigError
from stratalog.storage.topic_config import LONG_MAX, LogConfig

CLUSTER_WIDE_CONFIGS = (
    "num.partitions",
    "default.replication.factor",
    "delete.topic.enable",
    "unclean.leader.election.enable",
)
"""Configs that act on the metadata log, so that they are the same for all brokers."""
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def _rate(name: str, doc: str) -> ConfigKey:
    return ConfigKey(name, "LONG", LONG_MAX, "bytes/s", doc, between(0, LONG_MAX))


DYNAMIC_BROKER_CONFIGS = ConfigDef(
    "broker",
    (
        _rate(FOLLOWER_RATE, "what a broker copies for replicas that are listed as throttled"),
        _rate(LEADER_RATE, "what is copied from a broker for replicas that are listed as throttled"),
        _rate(MOVE_RATE, "accepted and without effect: a broker has one log directory"),
    ),
)
"""Configs that exist only while they are altered, for one broker or for all."""
_RATES = frozenset(key.name for key in DYNAMIC_BROKER_CONFIGS)

GROUP_SESSION, GROUP_HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
GROUP_CONFIGS = ConfigDef(
    "group",
    (
        ConfigKey(GROUP_HEARTBEAT, "INT", 5_000, "ms", "pause between two heartbeats of a member", int32(1)),
        ConfigKey(GROUP_SESSION, "INT", 45_000, "ms", "a member silent for this long is removed", int32(1)),
    ),
)
"""Configs of a group of the modern protocol (KIP-848); a group without them has those of its broker."""


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
    return _altered(image, DYNAMIC_DEFAULT, changes, alterable=(*CLUSTER_WIDE_CONFIGS, *_RATES))


def alter_broker_config(
    image: ClusterImage, broker_id: int, changes: Mapping[str, str | None]
) -> Result[dict[str, str]]:
    """Alter configs of one broker, or with None remove them; all altered ones afterwards.

    BrokerIdNotRegisteredError; InvalidConfigError as `alter_cluster_config`, also for a cluster-wide config.
    """
    if broker_id not in image.brokers:
        raise BrokerIdNotRegisteredError(f"No broker with id {broker_id} found.")
    return _altered(image, of_broker(broker_id), changes, alterable=_RATES)


def broker_config_key(name: str) -> ConfigKey:
    """A config of brokers, static or dynamic. InvalidConfigError for an unknown name."""
    return DYNAMIC_BROKER_CONFIGS.key(name) if name in _RATES else BROKER_CONFIGS.key(name)


def alter_group_config(image: ClusterImage, group_id: str, changes: Mapping[str, str | None]) -> Result[dict[str, str]]:
    """Alter configs of one group, which need not exist, or with None remove them; all altered ones afterwards.

    InvalidConfigError for an unknown name or a bad value.
    """
    known = {key.name for key in GROUP_CONFIGS}
    result = _altered(image, of_group(group_id), changes, alterable=known, key_of=GROUP_CONFIGS.key)
    session_ms, heartbeat_ms = (result.response.get(name) for name in (GROUP_SESSION, GROUP_HEARTBEAT))
    if session_ms is not None and heartbeat_ms is not None and int(session_ms) <= int(heartbeat_ms):
        raise InvalidConfigError(f"{GROUP_SESSION} must be greater than {GROUP_HEARTBEAT}")
    return result


def group_config_ms(image: ClusterImage, group_id: str, name: str, default_ms: int) -> int:
    """A config of a group in milliseconds: its own value, else the broker's."""
    return int(image.configs.get(of_group(group_id), {}).get(name, default_ms))


def _altered(
    image: ClusterImage,
    resource: str,
    changes: Mapping[str, str | None],
    *,
    alterable: Container[str],
    key_of: Callable[[str], ConfigKey] = broker_config_key,
) -> Result[dict[str, str]]:
    """Records for the changes of one resource, and all of its altered configs afterwards."""
    keys = {name: key_of(name) for name in sorted(changes)}
    fixed = [name for name in keys if name not in alterable]
    if fixed:
        raise InvalidConfigError(f"Cannot update these configs dynamically: {', '.join(fixed)}")
    before = image.configs.get(resource, {})
    wanted = {
        name: None if (value := changes[name]) is None else spelled(key.parse(value)) for name, key in keys.items()
    }
    after = {name: value for name, value in {**before, **wanted}.items() if value is not None}
    changed = (name for name, value in wanted.items() if before.get(name) != value)
    return Result(tuple(ConfigRecord(resource, name, wanted[name]) for name in changed), after)


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
