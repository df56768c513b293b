"""Configs as the metadata log has them. Pure.

Cluster-wide configs can be altered while the cluster runs, as Kafka's dynamic default broker configs: the metadata log
has the values that the brokers were started with (`CLUSTER_WIDE`) and the altered ones (`DYNAMIC_DEFAULT`), which come
first, also after a restart, until they are deleted. The defaults of topics' configs are among them (`log_configs`), as
far as they are not Kafka's: clients and the controller act by them, too. A topic's configs are its overrides over these
(`ClusterImage.topic_config`). Rates of replication and most defaults may be altered for one broker, times of heartbeats
for one group. Bounds of the latter that are not Kafka's defaults are in the metadata log, too, so that they are checked
without a broker. Names that are not known here are kept for brokers, as Kafka keeps them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple, Self

from stratalog.replication.config import BROKER_CONFIGS, BrokerConfig, int32
from stratalog.replication.log_configs import (
    CLUSTERS_OWN,
    DEFAULT_NAMES,
    DYNAMIC_LOG_CONFIGS,
    LOG_CONFIGS,
    TOPIC_CONFIG_OF,
    UNCLEAN_ELECTION,
)
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import CLUSTER_WIDE, DYNAMIC_DEFAULT, ConfigRecord, of_broker, of_group
from stratalog.storage.config_def import ConfigDef, ConfigKey, ConfigType, between, spelled
from stratalog.storage.errors import BrokerIdNotRegisteredError, InvalidConfigError
from stratalog.storage.topic_config import INT_MAX, LONG_MAX, TOPIC_CONFIGS, LogConfig

CLUSTER_WIDE_CONFIGS = (
    "num.partitions",
    "default.replication.factor",
    "delete.topic.enable",
    "unclean.leader.election.enable",
)
"""Configs that act on the metadata log, so that they are the same for all brokers, and can be altered."""
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
INFINITE = float("inf")
MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def _rate(name: str, doc: str) -> ConfigKey:
    return ConfigKey(name, "LONG", LONG_MAX, "bytes/s", doc, between(0, LONG_MAX))


def _cleaners(name: str, kind: ConfigType, default: float, unit: str) -> ConfigKey:
    doc = "accepted and without effect: upkeep compacts logs, by stratalog.upkeep.interval.ms and its like"
    return ConfigKey(
        f"log.cleaner.{name}", kind, default, unit, doc, between(0, INT_MAX if kind == "INT" else INFINITE)
    )


DYNAMIC_BROKER_CONFIGS = ConfigDef(
    "broker",
    (
        _rate(FOLLOWER_RATE, "what a broker copies for replicas that are listed as throttled"),
        _rate(LEADER_RATE, "what is copied from a broker for replicas that are listed as throttled"),
        _rate(MOVE_RATE, "accepted and without effect: a broker has one log directory"),
        _cleaners("backoff.ms", "LONG", 15_000, "ms"),
        _cleaners("dedupe.buffer.size", "LONG", 134_217_728, "bytes"),
        _cleaners("io.buffer.load.factor", "DOUBLE", 0.9, ""),
        _cleaners("io.buffer.size", "INT", 524_288, "bytes"),
        _cleaners("io.max.bytes.per.second", "DOUBLE", 1.7976931348623157e308, "bytes/s"),
        _cleaners("threads", "INT", 1, "threads"),
    ),
)
"""Configs that have an effect only while they are altered, for one broker or for all."""
_DYNAMIC = frozenset(key.name for known in (DYNAMIC_BROKER_CONFIGS, DYNAMIC_LOG_CONFIGS) for key in known)
_FIXED = (
    LOG_CONFIGS.union(key.name for key in BROKER_CONFIGS)
    | {"broker.id", "broker.rack", "log.dirs", "node.id", "stratalog.metadata.root"}
) - _DYNAMIC
"""Names of configs that brokers are started with."""
_OF_SECURITY, _OF_KERBEROS = ("listener.name.", "principal.builder.", "sasl.", "ssl."), "sasl.kerberos."
MAX_CONFIG_NAME_LENGTH = 249
_CONFIG_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_CONFIG_NAME_LENGTH}}}")

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


class Replaced(NamedTuple):
    """A cluster-wide config for which a broker was started with another value than those that run."""

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name}={self.after} (was {self.before})"


def record_cluster_wide_configs(
    image: ClusterImage, config: BrokerConfig, topic_defaults: Mapping[str, object] | None = None
) -> Result[list[Replaced]]:
    """Put the cluster-wide configs that brokers are started with into the metadata log; altered ones stay. The answer
    is what was there and is replaced. Those about groups and topics are put there if they are not Kafka's.

    topic_defaults  topic configs by Kafka's names, for topics that do not set them; None: those of `config`
    """
    before = image.configs.get(CLUSTER_WIDE, {})
    wanted = _defaults_given(dict(config.topic_defaults) if topic_defaults is None else topic_defaults)
    for name, value in config.properties().items():
        if name in CLUSTER_WIDE_CONFIGS:
            wanted[name] = spelled(value)
        elif name in _OF_GROUPS:
            wanted[name] = None if value == BROKER_CONFIGS.key(name).default else spelled(value)
    changed = {name: value for name, value in wanted.items() if before.get(name) != value}
    replaced = [
        Replaced(name, before.get(name) or _default(name), value or _default(name)) for name, value in changed.items()
    ]
    records = tuple(ConfigRecord(CLUSTER_WIDE, name, value) for name, value in changed.items())
    return Result(records, replaced if before else [])


def _defaults_given(topic_defaults: Mapping[str, object]) -> dict[str, str | None]:
    """The defaults of topics' configs by the names of brokers' configs; None for one that is Kafka's."""
    if UNCLEAN_ELECTION in topic_defaults:
        raise InvalidConfigError(f"{UNCLEAN_ELECTION} for all topics is a config of brokers: it stands in cluster.toml")
    typed = LogConfig.validated(topic_defaults)
    given: dict[str, str | None] = {}
    for key in TOPIC_CONFIGS:
        value = getattr(typed, key.field_name)
        given[DEFAULT_NAMES[key.name]] = None if value == key.default else spelled(value)
    del given[UNCLEAN_ELECTION]
    return given


def _default(name: str) -> str:
    key = TOPIC_CONFIGS.key(TOPIC_CONFIG_OF[name]) if name in TOPIC_CONFIG_OF else BROKER_CONFIGS.key(name)
    return spelled(key.default)


def alter_cluster_config(
    image: ClusterImage, changes: Mapping[str, str | None], *, keeps_unknown: bool = False
) -> Result[dict[str, str]]:
    """Alter cluster-wide configs, or with None return to what the cluster was started with; all altered ones
    afterwards.

    keeps_unknown  keep a name that is not known, as Kafka does
    InvalidConfigError in Kafka's words for an unknown name, one that needs a restart, or a bad value.
    """
    fixed = _FIXED.difference(CLUSTER_WIDE_CONFIGS)
    return _altered(image, DYNAMIC_DEFAULT, changes, fixed=fixed, key_of=_broker_keys(keeps_unknown))


def alter_broker_config(
    image: ClusterImage, broker_id: int, changes: Mapping[str, str | None], *, keeps_unknown: bool = False
) -> Result[dict[str, str]]:
    """Alter configs of one broker, or with None remove them; all altered ones afterwards.

    BrokerIdNotRegisteredError; InvalidConfigError as `alter_cluster_config`, also for a cluster-wide config.
    """
    if broker_id not in image.brokers:
        raise BrokerIdNotRegisteredError(f"No broker with id {broker_id} found.")
    fixed = _FIXED | CLUSTERS_OWN
    return _altered(image, of_broker(broker_id), changes, fixed=fixed, key_of=_broker_keys(keeps_unknown))


def _broker_keys(keeps_unknown: bool) -> Callable[[str], ConfigKey]:
    return kept_broker_config_key if keeps_unknown else broker_config_key


def is_known_broker_config(name: str) -> bool:
    """Whether this is a config of brokers here: static or dynamic, also one for logs by another unit."""
    return name in _FIXED or name in _DYNAMIC


def broker_config_key(name: str) -> ConfigKey:
    """A config of brokers, static or dynamic. InvalidConfigError for an unknown name."""
    if name in DYNAMIC_LOG_CONFIGS:
        return DYNAMIC_LOG_CONFIGS.key(name)
    if name in _FIXED and name not in BROKER_CONFIGS:
        return ConfigKey(name, "STRING", "")
    return DYNAMIC_BROKER_CONFIGS.key(name) if name in DYNAMIC_BROKER_CONFIGS else BROKER_CONFIGS.key(name)


def kept_broker_config_key(name: str) -> ConfigKey:
    """A config of brokers. One that is not known has no effect and is a text that no answer shows, as in Kafka.

    InvalidConfigError for one that would protect the brokers if it were known: nobody should rely on it.
    """
    is_of_security = name.startswith(_OF_SECURITY) and not name.startswith(_OF_KERBEROS)
    if is_known_broker_config(name) or is_of_security or not _CONFIG_NAME.fullmatch(name):
        return broker_config_key(name)
    return ConfigKey(name, "PASSWORD", "", "", "not known here: it is kept, and has no effect")


def alter_group_config(image: ClusterImage, group_id: str, changes: Mapping[str, str | None]) -> Result[dict[str, str]]:
    """Alter configs of one group, which need not exist, or with None remove them; all altered ones afterwards.

    InvalidConfigError for an unknown name, a value beyond the bounds that the cluster was started with, or a session
    timeout that is not above the heartbeat interval. Source: Kafka's `GroupConfig.validate`.
    """
    result = _altered(image, of_group(group_id), changes, key_of=GROUP_CONFIGS.key)
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
    fixed: Container[str] = (),
    key_of: Callable[[str], ConfigKey] = broker_config_key,
) -> Result[dict[str, str]]:
    """Records for the changes of one resource, and all of its altered configs afterwards. `fixed`: not alterable."""
    before = image.configs.get(resource, {})
    wanted: dict[str, str | None] = {name: None for name, value in changes.items() if value is None and name in before}
    keys = {name: key_of(name) for name in sorted(changes) if name not in wanted}
    refused = [name for name in keys if name in fixed]
    if refused:
        raise InvalidConfigError(f"Cannot update these configs dynamically: {', '.join(refused)}")
    for name, key in keys.items():
        wanted[name] = None if (value := changes[name]) is None else spelled(key.parse(value))
    after = {name: value for name, value in {**before, **wanted}.items() if value is not None}
    changed = (name for name, value in wanted.items() if before.get(name) != value)
    return Result(tuple(ConfigRecord(resource, name, wanted[name]) for name in changed), after)


class TopicConfigs:
    """The typed configs of topics as one broker has them, parsed once a change."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._known: dict[str, tuple[Mapping[str, str], LogConfig]] = {}

    def of(self, topic: str, image: ClusterImage) -> LogConfig:
        """The topic's configs in this image: the same object until one changes."""
        configs = image.topic_config(topic, self._broker_id)
        known = self._known.get(topic)
        if known is None or known[0] != configs:
            known = self._known[topic] = (configs, LogConfig.from_properties(configs))
        return known[1]

    def forget(self, topic: str) -> None:
        """Drop what is kept for a topic."""
        self._known.pop(topic, None)
