"""Kafka's client configuration names with their defaults and ranges, and the two config values. Pure.

Dotted Kafka names (`linger.ms`) and Python names (`linger_ms`) are both taken; an unknown one is refused,
since a misspelled setting would otherwise silently keep its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from stratalog.replication.requests.produce import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from stratalog.storage.errors import InvalidConfigError

_INT_MAX = 2**31 - 1
_ACKS = {"all": ACKS_ALL, "-1": ACKS_ALL, "0": ACKS_NONE, "1": ACKS_LEADER}
_RESETS = ("latest", "earliest", "none")
_ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_ASSIGNOR_CLASSES = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_PROTOCOLS = "String must be one of (case insensitive): CLASSIC, CONSUMER"
_NOT_OF_PROTOCOL = {
    "CLASSIC": ("group_remote_assignor",),
    "CONSUMER": ("partition_assignment_strategy", "heartbeat_interval_ms", "session_timeout_ms"),
}
"""What is the broker's business in one protocol, or the client's in the other."""
_ALIASES = {"max.in.flight": "max.in.flight.requests.per.connection"}


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """Kafka's producer configs; times in ms, sizes in bytes of Arrow data.

    `compression.type` is how the leader compresses data files of topics whose own is `producer`; `client.id` is
    taken for Kafka's sake.
    """

    acks: int = ACKS_ALL
    enable_idempotence: bool = True
    batch_size: int = 16_384
    linger_ms: int = 0
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    retries: int = _INT_MAX
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    max_in_flight_requests_per_connection: int = 5
    buffer_memory: int = 33_554_432
    max_block_ms: int = 60_000
    max_request_size: int = 1_048_576
    metadata_max_age_ms: int = 300_000
    client_id: str = ""
    compression_type: str = "none"
    transactional_id: str = ""
    transaction_timeout_ms: int = 60_000

    @classmethod
    def from_settings(cls, config: Mapping[str, object] | None, settings: Mapping[str, object]) -> Self:
        """Kafka's dotted names and keyword settings as one config.

        Raises InvalidConfigError in Kafka's words for an unknown name, a bad value, or values at odds.
        """
        given = _given("producer", cls, config, settings)
        acks = str(given.get("acks", "all"))
        if acks not in _ACKS:
            _refuse(acks, "acks", "String must be one of: all, -1, 0, 1")
        given["acks"] = _ACKS[acks]
        compression = given.get("compression_type", "none")
        if compression not in _COMPRESSIONS:
            _refuse(compression, "compression.type", f"String must be one of: {', '.join(_COMPRESSIONS)}")
        parsed = cls(**_parsed(cls, given, least={"batch_size": 0, "max_in_flight_requests_per_connection": 1}))
        return parsed._reconciled(given)

    def _reconciled(self, given: Mapping[str, object]) -> Self:
        obstacle = self._obstacle_to_idempotence()
        if self.transactional_id and (obstacle or not self.enable_idempotence):
            raise InvalidConfigError("Cannot set a transactional.id without also enabling idempotence.")
        if obstacle and self.enable_idempotence and "enable_idempotence" in given:
            raise InvalidConfigError(f"{obstacle} to use the idempotent producer.")
        changes: dict[str, Any] = {"enable_idempotence": self.enable_idempotence and not obstacle}
        if self.linger_ms + self.request_timeout_ms > self.delivery_timeout_ms:
            if "request_timeout_ms" in given:
                raise InvalidConfigError(
                    "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms"
                )
            changes["request_timeout_ms"] = max(0, self.delivery_timeout_ms - self.linger_ms)
        return type(self)(**{f.name: getattr(self, f.name) for f in fields(self)} | changes)

    def _obstacle_to_idempotence(self) -> str | None:
        if self.acks != ACKS_ALL:
            return "Must set acks to all in order"
        if self.retries == 0:
            return "Must set retries to non-zero"
        if self.max_in_flight_requests_per_connection > 5:
            return "Must set max.in.flight.requests.per.connection to at most 5"
        return None


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Kafka's consumer configs; times in ms, sizes in bytes of Arrow data.

    `enable.auto.commit` counts only with a `group.id`. `partition.assignment.strategy` takes names, or Kafka's classes.
    """

    group_id: str = ""
    group_instance_id: str = ""
    group_protocol: str = "classic"
    group_remote_assignor: str = ""
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    partition_assignment_strategy: str = "range,cooperative-sticky"
    exclude_internal_topics: bool = True
    retry_backoff_ms: int = 100
    auto_offset_reset: str = "latest"
    isolation_level: str = "read_uncommitted"
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 1_048_576
    max_poll_records: int = 500
    default_api_timeout_ms: int = 60_000
    request_timeout_ms: int = 30_000
    client_id: str = ""
    client_rack: str = ""

    @classmethod
    def from_settings(cls, config: Mapping[str, object] | None, settings: Mapping[str, object]) -> Self:
        """As `ProducerConfig.from_settings`."""
        given = _given("consumer", cls, config, settings)
        reset = given.get("auto_offset_reset", "latest")
        if reset not in _RESETS:
            _refuse(reset, "auto.offset.reset", f"String must be one of: {', '.join(_RESETS)}")
        level = given.get("isolation_level", "read_uncommitted")
        if level not in _ISOLATION_LEVELS:
            _refuse(level, "isolation.level", f"String must be one of: {', '.join(_ISOLATION_LEVELS)}")
        strategy = given.get("partition_assignment_strategy")
        if isinstance(strategy, list | tuple):
            given["partition_assignment_strategy"] = ",".join(map(str, strategy))
        parsed = cls(**_parsed(cls, given, least={"max_poll_records": 1, "max_poll_interval_ms": 1}))
        return parsed._checked(given)

    @property
    def is_consumer_protocol(self) -> bool:
        """KIP-848, where the coordinator assigns partitions."""
        return self.group_protocol.upper() == "CONSUMER"

    @property
    def assignors(self) -> tuple[str, ...]:
        """The assignors' names in order of preference."""
        return tuple(_assignor(name) for name in self.partition_assignment_strategy.split(",") if name.strip())

    def _checked(self, given: Mapping[str, object]) -> Self:
        if not self.assignors:
            _refuse("", "partition.assignment.strategy", "must name an assignor")
        protocol = self.group_protocol.upper()
        if protocol not in _NOT_OF_PROTOCOL:
            _refuse(
                self.group_protocol, "group.protocol", "String must be one of (case insensitive): CLASSIC, CONSUMER"
            )
        for name in _NOT_OF_PROTOCOL[protocol]:
            if name in given:
                raise InvalidConfigError(f"{dotted(name)} cannot be set when group.protocol={protocol}")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise InvalidConfigError(
                "Heartbeat must be set lower than the session timeout: "
                f"heartbeat.interval.ms {self.heartbeat_interval_ms} >= session.timeout.ms {self.session_timeout_ms}"
            )
        if self.enable_auto_commit and "enable_auto_commit" in given and not self.group_id:
            raise InvalidConfigError("enable.auto.commit cannot be set to true when default group id (null) is used.")
        return self


def _assignor(name: str) -> str:
    """An assignor's name; of a class of Kafka's, what the class is called in the protocol."""
    simple = name.strip().rpartition(".")[2]
    found = _ASSIGNOR_CLASSES.get(simple, simple)
    if found not in _ASSIGNOR_CLASSES.values():
        known = ", ".join(_ASSIGNOR_CLASSES.values())
        _refuse(name.strip(), "partition.assignment.strategy", f"Class could not be found; known: {known}")
    return found


def dotted(field_name: str) -> str:
    """Kafka's name of a config field: `linger_ms` is `linger.ms`."""
    return field_name.replace("_", ".")


def _given(
    what: str, config_type: type[Any], config: Mapping[str, object] | None, settings: Mapping[str, object]
) -> dict[str, Any]:
    known = {dotted(f.name): f.name for f in fields(config_type)}
    given: dict[str, Any] = {}
    for name, value in [*(config or {}).items(), *settings.items()]:
        kafka_name = dotted(name)
        kafka_name = _ALIASES.get(kafka_name, kafka_name)
        if kafka_name not in known:
            raise InvalidConfigError(f"Unknown {what} config name: {name}")
        given[known[kafka_name]] = value
    return given


def _parsed(config_type: type[Any], given: Mapping[str, Any], least: Mapping[str, int]) -> dict[str, Any]:
    defaults = {f.name: f.default for f in fields(config_type)}
    parsed: dict[str, Any] = {}
    for name, value in given.items():
        if name == "acks" or isinstance(defaults[name], str):
            parsed[name] = value if name == "acks" else str(value)
        elif isinstance(defaults[name], bool):
            parsed[name] = _boolean(name, value)
        else:
            parsed[name] = _number(name, value, least.get(name, 0))
    return parsed


def _boolean(name: str, value: object) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        _refuse(value, dotted(name), "Expected value to be either true or false")
    return text == "true"


def _number(name: str, value: object, least: int) -> int:
    try:
        if isinstance(value, bool):
            raise ValueError("a boolean is no number")
        number = int(str(value))
    except ValueError:
        _refuse(value, dotted(name), "Not a number of type INT")
    if number < least:
        _refuse(value, dotted(name), f"Value must be at least {least}")
    return number


def _refuse(value: object, kafka_name: str, reason: str) -> Any:
    raise InvalidConfigError(f"Invalid value {value} for configuration {kafka_name}: {reason}")
