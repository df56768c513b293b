"""Configs as the metadata log has them. Pure.

Cluster-wide configs can be altered while the cluster runs, as Kafka's dynamic default broker configs: the metadata log
has the values that the brokers were started with (`CLUSTER_WIDE`) and the altered ones (`DYNAMIC_DEFAULT`), which come
first, also after a restart, until they are deleted. A topic's configs are its overrides over the cluster's defaults.
Rates of replication may be altered for one broker, times of heartbeats for one group. Bounds of the latter that are not
Kafka's defaults are in the metadata log, too, so that they are checked without a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import NamedTuple, Self

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
"""Configs that act on the metadata log, so that they are the same for all brokers, and can be altered."""
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
GROUP_ASSIGNMENT = "consumer.assignment.interval.ms"
GROUP_CONFIGS = ConfigDef(
    "group",
    (
        ConfigKey(GROUP_ASSIGNMENT, "INT", 1_000, "ms", "least time between two assignments of the group", int32(0)),
        ConfigKey(GROUP_HEARTBEAT, "INT", 5_000, "ms", "pause between two heartbeats of a member", int32(1)),
        ConfigKey(GROUP_SESSION, "INT", 45_000, "ms", "a member silent for this long is removed", int32(1)),
    ),
)
"""Configs of a group of the modern protocol (KIP-848); a group without them has those of its broker."""


class GroupTime(NamedTuple):
    """The broker's configs about one config of groups: what a group without its own has, and the bounds of its own."""

    config: str
    at_least: str
    at_most: str

    @classmethod
    def of(cls, name: str) -> Self:
        """
        >>> GroupTime.of("consumer.session.timeout.ms").at_least
        'group.consumer.min.session.timeout.ms'
        """
        kind, time = name.split(".", maxsplit=1)
        return cls(f"group.{name}", f"group.{kind}.min.{time}", f"group.{kind}.max.{time}")


GROUP_TIMES: Mapping[str, GroupTime] = {key.name: GroupTime.of(key.name) for key in GROUP_CONFIGS}
_OF_GROUPS = frozenset(name for about in GROUP_TIMES.values() for name in about)


def record_cluster_wide_configs(image: ClusterImage, config: BrokerConfig) -> Result[None]:
    """Put the cluster-wide configs that a cluster is started with into the metadata log; altered ones stay. Those about
    groups are put there if they are not Kafka's."""
    before = image.configs.get(CLUSTER_WIDE, {})
    wanted: dict[str, str | None] = {}
    for name, value in config.properties().items():
        if name in CLUSTER_WIDE_CONFIGS:
            wanted[name] = spelled(value)
        elif name in _OF_GROUPS:
            wanted[name] = None if value == BROKER_CONFIGS.key(name).default else spelled(value)
    changed = {name: value for name, value in wanted.items() if before.get(name) != value}
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

    InvalidConfigError for an unknown name, a value beyond the bounds that the cluster was started with, or a session
    timeout that is not above the heartbeat interval. Source: Kafka's `GroupConfig.validate`.
    """
    result = _altered(image, of_group(group_id), changes, alterable=GROUP_TIMES, key_of=GROUP_CONFIGS.key)
    times_ms: dict[str, int] = {}
    for name, about in GROUP_TIMES.items():
        own_ms, least_ms, most_ms = (group_default_ms(image, each) for each in about)
        times_ms[name] = int(result.response.get(name, own_ms))
        if times_ms[name] < least_ms:
            raise InvalidConfigError(
                f"{name} must be greater than or equal to {about.at_least}: {times_ms[name]} < {least_ms}"
            )
        if times_ms[name] > most_ms:
            raise InvalidConfigError(
                f"{name} must be less than or equal to {about.at_most}: {times_ms[name]} > {most_ms}"
            )
    if times_ms[GROUP_SESSION] <= times_ms[GROUP_HEARTBEAT]:
        compared = f"{times_ms[GROUP_SESSION]} <= {times_ms[GROUP_HEARTBEAT]}"
        raise InvalidConfigError(f"{GROUP_SESSION} must be greater than {GROUP_HEARTBEAT}: {compared}")
    return result


def group_default_ms(image: ClusterImage, name: str) -> int:
    """One of the broker configs in `GROUP_TIMES`, as the cluster was started."""
    return int(image.configs.get(CLUSTER_WIDE, {}).get(name, BROKER_CONFIGS.key(name).default))


def group_config_ms(image: ClusterImage, group_id: str, name: str, config: BrokerConfig) -> int:
    """A config of a group in milliseconds: its own value, within the bounds of a broker with `config`, else the
    broker's. The bounds may be narrower than when the group's value was set. Source: Kafka's `GroupConfig.evaluate`.
    """
    altered = image.configs.get(of_group(group_id), {}).get(name)
    own_ms, least_ms, most_ms = (getattr(config, each.replace(".", "_")) for each in GROUP_TIMES[name])
    return int(own_ms if altered is None else min(max(int(altered), least_ms), most_ms))


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
