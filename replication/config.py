"""A cluster's settings: Kafka's dotted names, defaults, ranges and units, as one frozen value. Pure.

A field's Kafka name is the field's name with dots: `replica_lag_time_max_ms` is `replica.lag.time.max.ms`.
TOML tables flatten to the same names, so `[replica.lag] time.max.ms = 10000` and
`replica.lag.time.max.ms = 10000` say the same. Names that begin with `stratalog.` have no counterpart
in Kafka. Who a broker is (id, rack, root) is an argument, not a setting. Topic defaults are in
`storage.topic_config.LogConfig`, whose keys conf/topics.toml lists.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from stratalog.storage.errors import InvalidConfigError

CONF_DIR = Path(__file__).resolve().parent.parent / "conf"
"""The folder conf/: beside the rooms in a checkout and in an installed wheel alike."""

CLUSTER_TOML = CONF_DIR / "cluster.toml"
TOPICS_TOML = CONF_DIR / "topics.toml"

INT_MAX = 2**31 - 1
"""Kafka's type INT ends here."""

AUTHORIZER_CLASSES = ("org.apache.kafka.metadata.authorizer.StandardAuthorizer", "StandardAuthorizer")
"""What `authorizer.class.name` may be, besides empty: there is nothing to load other classes with."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of one name: its type and range, its default, its unit (empty: none) and one line on it.

    `at_least` of a text: 0 when it may be empty.
    """

    name: str
    type: type[int] | type[bool] | type[str]
    default: int | bool | str
    unit: str
    doc: str
    at_least: int | None = None

    def parse(self, value: object) -> int | bool | str:
        """A TOML value or a command line's text as this setting's type, within its range.

        Raises InvalidConfigError in Kafka's words, naming the value and the setting.
        """
        parsed = self._typed(value)
        if self.at_least is not None and isinstance(parsed, int) and parsed < self.at_least:
            raise self._invalid(value, f"Value must be at least {self.at_least}")
        if parsed == "" and self.at_least is None:
            raise self._invalid(value, "String must be non-empty")
        return parsed

    def _typed(self, value: object) -> int | bool | str:
        text = value.strip() if isinstance(value, str) else value
        if self.type is str and isinstance(text, str):
            return text
        if self.type is bool:
            truth = _TRUTH.get(text.lower()) if isinstance(text, str) else text
            if isinstance(truth, bool):
                return truth
            raise self._invalid(value, "Expected value to be either true or false")
        if self.type is int and not isinstance(text, bool):
            number = int(text) if isinstance(text, str) and _INTEGER.fullmatch(text) else text
            if isinstance(number, int) and abs(number) <= INT_MAX:
                return number
        raise self._invalid(value, "Not a number of type INT" if self.type is int else "Expected value to be a string")

    def _invalid(self, value: object, reason: str) -> InvalidConfigError:
        return InvalidConfigError(f"Invalid value {value} for configuration {self.name}: {reason}")


def _setting(default: int | bool | str, unit: str, doc: str, at_least: int | None = None) -> Any:
    """A dataclass field that carries its `Setting`; `Any` because it stands for a value of the field's own type."""
    return field(default=default, metadata={"unit": unit, "doc": doc, "at_least": at_least})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The settings that all brokers of a cluster share.

    Building one checks every range; InvalidConfigError names the setting that is out of it.
    """

    allow_everyone_if_no_acl_found: bool = _setting(
        False, "", "with an authorizer: who asks for what no ACL names may do it"
    )
    authorizer_class_name: str = _setting(
        "",
        "",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer: ACLs count; empty: everybody may do everything",
        0,
    )
    auto_create_topics_enable: bool = _setting(
        True, "", "a Metadata request that names an unknown topic and allows it makes the topic"
    )
    auto_leader_rebalance_enable: bool = _setting(
        True, "", "give leadership back to preferred replicas when brokers lead too few of theirs"
    )
    broker_heartbeat_interval_ms: int = _setting(
        2_000, "ms", "pause between two writes of a broker's session object", 1
    )
    broker_session_timeout_ms: int = _setting(
        9_000, "ms", "a session object that has not changed for this long means that the broker is dead", 1
    )
    controlled_shutdown_enable: bool = _setting(True, "", "hand leadership over before a broker stops")
    default_replication_factor: int = _setting(1, "replicas", "of a topic created without a replication factor", 1)
    delete_topic_enable: bool = _setting(True, "", "allow topics to be deleted")
    fetch_max_bytes: int = _setting(
        57_671_680, "bytes", "the most that a Fetch response holds, but for one batch", 1_024
    )
    group_consumer_assignment_interval_ms: int = _setting(
        1_000, "ms", "least time between two target assignments of a KIP-848 group", 0
    )
    group_consumer_heartbeat_interval_ms: int = _setting(
        5_000, "ms", "pause between two heartbeats of a KIP-848 group's member", 1
    )
    group_consumer_max_size: int = _setting(INT_MAX, "members", "of one KIP-848 group; further ones are refused", 1)
    group_consumer_session_timeout_ms: int = _setting(
        45_000, "ms", "a KIP-848 group's member without a heartbeat for this long is removed", 1
    )
    group_initial_rebalance_delay_ms: int = _setting(
        3_000, "ms", "how long a group that was empty waits for more members before its first rebalance", 0
    )
    group_max_session_timeout_ms: int = _setting(
        1_800_000, "ms", "longest session timeout that a group's member may ask for", 1
    )
    group_max_size: int = _setting(INT_MAX, "members", "of one group; further ones are refused", 1)
    group_min_session_timeout_ms: int = _setting(
        6_000, "ms", "shortest session timeout that a group's member may ask for", 1
    )
    leader_imbalance_check_interval_seconds: int = _setting(
        300, "s", "pause between two looks at the balance of leaders", 1
    )
    leader_imbalance_per_broker_percentage: int = _setting(
        10, "%", "partitions that a broker is preferred for, led by others: above this share they are given back", 1
    )
    log_dir: str = _setting("logs", "", "folder of text logs, below the cluster's folder or a broker process's root")
    log_retention_check_interval_ms: int = _setting(
        300_000, "ms", "pause between two looks whether segments of a log are to be deleted", 1
    )
    max_incremental_fetch_session_cache_slots: int = _setting(
        1_000, "sessions", "fetch sessions that a broker remembers for clients", 0
    )
    max_request_partition_size_limit: int = _setting(
        2_000, "partitions", "the most that a DescribeTopicPartitions response holds", 1
    )
    num_partitions: int = _setting(1, "partitions", "of a topic created without a number of partitions", 1)
    num_replica_fetchers: int = _setting(1, "tasks", "fetch tasks of a follower, which share its partitions", 1)
    offset_metadata_max_bytes: int = _setting(4_096, "bytes", "longest note that may be committed with an offset", 0)
    offsets_commit_timeout_ms: int = _setting(
        5_000,
        "ms",
        "what a coordinator wrote and is not replicated by then is answered as an error: outcome unknown",
        1,
    )
    offsets_retention_check_interval_ms: int = _setting(
        600_000, "ms", "pause between two looks for committed offsets that have expired", 1
    )
    offsets_retention_minutes: int = _setting(
        10_080, "min", "committed offsets are kept this long after their group became empty or dropped the topic", 1
    )
    offsets_topic_num_partitions: int = _setting(
        50, "partitions", "of __consumer_offsets, made when the first group needs it; should not change afterwards", 1
    )
    offsets_topic_replication_factor: int = _setting(
        3, "replicas", "of __consumer_offsets: without so many live brokers there are no groups", 1
    )
    offsets_topic_segment_bytes: int = _setting(
        104_857_600, "bytes", "size of a segment of __consumer_offsets: small ones are compacted and folded sooner", 14
    )
    replica_fetch_backoff_ms: int = _setting(
        1_000, "ms", "a partition whose fetch failed is left alone for this long", 0
    )
    replica_fetch_max_bytes: int = _setting(1_048_576, "bytes", "a follower's aim for one copy of one partition", 0)
    replica_lag_time_max_ms: int = _setting(
        10_000, "ms", "a follower not caught up for this long leaves the ISR (Kafka: 30000)", 1
    )
    super_users: str = _setting("", "", "principals that ACLs do not bind, as User:alice;User:bob", 0)
    transaction_max_timeout_ms: int = _setting(
        900_000, "ms", "the longest transaction.timeout.ms that a producer may ask for", 1
    )
    transaction_state_log_min_isr: int = _setting(
        2, "replicas", "in-sync replicas that __transaction_state needs to take a record", 1
    )
    transaction_state_log_num_partitions: int = _setting(
        50, "partitions", "of __transaction_state, made when the first transactional producer comes", 1
    )
    transaction_state_log_replication_factor: int = _setting(
        3, "replicas", "of __transaction_state: without so many live brokers there are no transactions", 1
    )
    transaction_state_log_segment_bytes: int = _setting(
        104_857_600, "bytes", "size of a segment of __transaction_state", 14
    )
    transactional_id_expiration_ms: int = _setting(
        604_800_000, "ms", "a transactional id that nothing was done under for this long is forgotten", 1
    )
    unclean_leader_election_enable: bool = _setting(
        False, "", "let a replica outside the ISR lead when no other lives; loses records"
    )

    stratalog_checkpoint_interval_ms: int = _setting(
        600_000, "ms", "a checkpoint is made when files wait so long for one, to be deleted then", 1
    )
    stratalog_encoded_tail_cache_bytes: int = _setting(
        33_554_432, "bytes", "memory for the newest record batches as Kafka's producers sent them", 0
    )
    stratalog_fetch_session_ms: int = _setting(
        300_000, "ms", "length of one fetch session, that is one micro-batch", 100
    )
    stratalog_fetch_sessions: int = _setting(
        2, "queries", "overlapping fetch sessions of a follower; the second hides the gap between two micro-batches", 1
    )
    stratalog_inbox_poll_ms: int = _setting(
        20,
        "ms",
        "where storage cannot be watched, pause between two looks for files that other applications hand over",
        1,
    )
    stratalog_metadata_poll_ms: int = _setting(
        20, "ms", "where storage cannot be watched, pause between two looks for a new commit of the metadata log", 1
    )
    stratalog_metrics_port: int = _setting(
        0, "", "TCP port where metrics are served for Prometheus, at /metrics; 0 = nowhere", 0
    )
    stratalog_progress_poll_max_ms: int = _setting(
        20, "ms", "where storage cannot be watched, longest pause between two looks at a progress object", 1
    )
    stratalog_progress_poll_min_ms: int = _setting(
        1, "ms", "where storage cannot be watched, shortest pause between two looks at a progress object", 0
    )
    stratalog_scrub_interval_ms: int = _setting(
        86_400_000, "ms", "on a local disk every data file is read once in this time, to find decayed bits", 1
    )
    stratalog_tail_cache_bytes: int = _setting(
        67_108_864, "bytes", "memory for the rows of the newest files, which consumers in the same process read", 0
    )
    stratalog_upkeep_interval_ms: int = _setting(
        1_000, "ms", "pause between two rounds of checkpoints, log clean-up and merges", 1
    )
    stratalog_upkeep_slowdown_count: int = _setting(
        5_000, "files", "a log's appends are slowed while upkeep is behind with more files or commits than this", 1_000
    )
    stratalog_upkeep_stop_count: int = _setting(
        10_000, "files", "a log takes one commit a second while upkeep is behind with so many files or commits", 1_000
    )

    def __post_init__(self) -> None:
        for setting in settings():
            setting.parse(getattr(self, _field_name(setting.name)))
        self._at_most("broker.heartbeat.interval.ms", "broker.session.timeout.ms")
        self._at_most("group.min.session.timeout.ms", "group.max.session.timeout.ms")
        self._at_most("stratalog.progress.poll.min.ms", "stratalog.progress.poll.max.ms")
        self._at_most("stratalog.upkeep.slowdown.count", "stratalog.upkeep.stop.count")
        if self.authorizer_class_name and self.authorizer_class_name not in AUTHORIZER_CLASSES:
            reason = f"Class {self.authorizer_class_name} could not be found; known: {AUTHORIZER_CLASSES[0]}"
            raise InvalidConfigError(
                f"Invalid value {self.authorizer_class_name} for configuration authorizer.class.name: {reason}"
            )
        parse_principals(self.super_users)

    def _at_most(self, lower: str, upper: str) -> None:
        value, limit = getattr(self, _field_name(lower)), getattr(self, _field_name(upper))
        if value > limit:
            reason = f"Value must be at most {upper}, which is {limit}"
            raise InvalidConfigError(f"Invalid value {value} for configuration {lower}: {reason}")

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """Settings by Kafka's names, as TOML values or text; what is not named keeps its default.

        Raises InvalidConfigError for an unknown name or a value outside its range.

        >>> BrokerConfig.from_properties({"num.partitions": "6"}).num_partitions
        6
        """
        known = {setting.name: setting for setting in settings()}
        for name in properties:
            if name not in known:
                raise InvalidConfigError(f"Unknown broker config name: {name}")
        values: dict[str, Any] = {_field_name(name): known[name].parse(value) for name, value in properties.items()}
        return cls(**values)

    @classmethod
    def from_toml(cls, text: str, overrides: Mapping[str, object] | None = None) -> Self:
        """The text of a cluster.toml, with single values replaced by `overrides` (Kafka names)."""
        return cls.from_properties(flatten_toml(text) | dict(overrides or {}))

    def properties(self) -> dict[str, int | bool | str]:
        """Every setting by its Kafka name, in alphabetical order."""
        return {setting.name: getattr(self, _field_name(setting.name)) for setting in settings()}


def parse_principals(text: str) -> frozenset[str]:
    """Principals between semicolons, as in `super.users`. InvalidConfigError for one without a type.

    >>> sorted(parse_principals(";  User:bob  ;  User:alice "))
    ['User:alice', 'User:bob']
    """
    principals = [each.strip() for each in text.split(";") if each.strip()]
    for principal in principals:
        kind, colon, name = principal.partition(":")
        if not (kind and colon and name):
            raise InvalidConfigError(f"expected a string in format principalType:principalName but got {principal}")
    return frozenset(principals)


def settings() -> list[Setting]:
    """All that `BrokerConfig` knows, Kafka's names first, then ours: for docs, `--help` and conf/cluster.toml."""
    return [_setting_of(each.name.replace("_", "."), each.default, each.metadata) for each in fields(BrokerConfig)]


def _setting_of(name: str, default: Any, metadata: Mapping[str, Any]) -> Setting:
    return Setting(name, type(default), default, metadata["unit"], metadata["doc"], metadata["at_least"])


def flatten_toml(text: str) -> dict[str, object]:
    """TOML tables as dotted names: `[replica.lag] time.max.ms = 1` gives {"replica.lag.time.max.ms": 1}.

    Raises InvalidConfigError with the parser's line and column when the text is no TOML.
    """
    try:
        return _flatten(tomllib.loads(text), "")
    except tomllib.TOMLDecodeError as reason:
        raise InvalidConfigError(f"not a TOML file: {reason}") from reason


def _flatten(table: Mapping[str, object], prefix: str) -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in table.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _field_name(name: str) -> str:
    return name.replace(".", "_")
