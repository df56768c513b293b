"""Kafka's client configs: names, defaults, ranges, and those of one client as one value. Pure.

Dotted Kafka names (`linger.ms`) and Python names (`linger_ms`) are both accepted; an unknown one is refused,
since a misspelled config would otherwise silently keep its default.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Self

from stratalog.clients.serialization import Deserializer, Serializer
from stratalog.replication.requests.produce import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from stratalog.server.remote.connections.config import (
    CONNECTION_CONFIGS,
    REQUEST_TIMEOUT_MS,
    boolean,
    integer,
    parsed,
    python_names,
    text,
)
from stratalog.storage.config_def import ConfigDef, config_field, one_of
from stratalog.storage.errors import InvalidConfigError

_ACKS = {"all": ACKS_ALL, "-1": ACKS_ALL, "0": ACKS_NONE, "1": ACKS_LEADER}
_ASSIGNOR_CLASSES = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_NOT_OF_PROTOCOL = {
    "CLASSIC": ("group.remote.assignor",),
    "CONSUMER": ("partition.assignment.strategy", "heartbeat.interval.ms", "session.timeout.ms"),
}
"""Configs that are refused by `group.protocol`: they are the broker's in one protocol, or the client's in the other."""


def _acks(text: str) -> int:
    return _ACKS[one_of(*_ACKS)(text)]


def _protocol(text: str) -> str:
    if text.upper() not in _NOT_OF_PROTOCOL:
        raise ValueError(f"String must be one of (case insensitive): {', '.join(_NOT_OF_PROTOCOL)}")
    return text


def _assignors(listed: tuple[str, ...]) -> tuple[str, ...]:
    """Assignors' names; of a class of Kafka's, its name in the protocol."""
    names = tuple(_ASSIGNOR_CLASSES.get(simple, simple) for each in listed if (simple := each.rpartition(".")[2]))
    if not names:
        raise ValueError("must name an assignor")
    if not set(names) <= set(_ASSIGNOR_CLASSES.values()):
        raise ValueError(f"Class could not be found; known: {', '.join(_ASSIGNOR_CLASSES.values())}")
    return names


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """Kafka's producer configs; times in ms, sizes in bytes of Arrow data.

    `compression.type` is how the leader compresses data files of topics whose own is `producer`; `client.id` is
    accepted and not used. Serializers are objects, not names of classes.
    """

    acks: int = config_field("STRING", ACKS_ALL, validator=_acks)
    enable_idempotence: bool = boolean(True)
    batch_size: int = integer(16_384)
    linger_ms: int = integer(0)
    delivery_timeout_ms: int = integer(120_000)
    request_timeout_ms: int = integer(REQUEST_TIMEOUT_MS)
    retries: int = integer(2**31 - 1)
    retry_backoff_ms: int = integer(100)
    retry_backoff_max_ms: int = integer(1_000)
    max_in_flight_requests_per_connection: int = integer(5, low=1)
    buffer_memory: int = integer(33_554_432)
    max_block_ms: int = integer(60_000)
    max_request_size: int = integer(1_048_576)
    metadata_max_age_ms: int = integer(300_000)
    client_id: str = text()
    compression_type: str = text("none", one_of("none", "gzip", "snappy", "lz4", "zstd"))
    transactional_id: str = text()
    transaction_timeout_ms: int = integer(60_000)
    key_serializer: Serializer | None = config_field("CLASS", None)  # noqa: RUF009 - a value as of every field
    value_serializer: Serializer | None = config_field("CLASS", None)  # noqa: RUF009 - a value as of every field

    @classmethod
    def from_settings(cls, config: Mapping[str, object] | None, settings: Mapping[str, object]) -> Self:
        """Kafka's dotted names and keyword settings as one config.

        Raises InvalidConfigError in Kafka's words for an unknown name, a bad value, or values at odds.
        """
        given = parsed(PRODUCER_CONFIGS, config, settings)
        return cls(**given)._reconciled(given)

    def _reconciled(self, given: Collection[str]) -> Self:
        obstacle = self._obstacle_to_idempotence()
        if self.transactional_id and (obstacle or not self.enable_idempotence):
            raise InvalidConfigError("Cannot set a transactional.id without also enabling idempotence.")
        if obstacle and self.enable_idempotence and "enable_idempotence" in given:
            raise InvalidConfigError(f"{obstacle} to use the idempotent producer.")
        request_timeout_ms = self.request_timeout_ms
        if self.linger_ms + request_timeout_ms > self.delivery_timeout_ms:
            if "request_timeout_ms" in given:
                raise InvalidConfigError(
                    "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms"
                )
            request_timeout_ms = max(0, self.delivery_timeout_ms - self.linger_ms)
        is_idempotent = self.enable_idempotence and not obstacle
        return replace(self, enable_idempotence=is_idempotent, request_timeout_ms=request_timeout_ms)

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

    `enable.auto.commit` counts only with a `group.id`. `partition.assignment.strategy` accepts names and Kafka's
    classes, in order of preference.
    """

    group_id: str = text()
    group_instance_id: str = text()
    group_protocol: str = text("classic", _protocol)
    group_remote_assignor: str = text()
    enable_auto_commit: bool = boolean(True)
    auto_commit_interval_ms: int = integer(5_000)
    session_timeout_ms: int = integer(45_000)
    heartbeat_interval_ms: int = integer(3_000)
    max_poll_interval_ms: int = integer(300_000, low=1)
    partition_assignment_strategy: tuple[str, ...] = config_field(
        "LIST", ("range", "cooperative-sticky"), validator=_assignors
    )
    exclude_internal_topics: bool = boolean(True)
    retry_backoff_ms: int = integer(100)
    auto_offset_reset: str = text("latest", one_of("latest", "earliest", "none"))
    isolation_level: str = text("read_uncommitted", one_of("read_committed", "read_uncommitted"))
    fetch_max_bytes: int = integer(52_428_800)
    max_partition_fetch_bytes: int = integer(1_048_576)
    max_poll_records: int = integer(500, low=1)
    default_api_timeout_ms: int = integer(60_000)
    request_timeout_ms: int = integer(REQUEST_TIMEOUT_MS)
    client_id: str = text()
    client_rack: str = text()
    key_deserializer: Deserializer | None = config_field("CLASS", None)  # noqa: RUF009 - a value as of every field
    value_deserializer: Deserializer | None = config_field("CLASS", None)  # noqa: RUF009 - a value as of every field

    @classmethod
    def from_settings(cls, config: Mapping[str, object] | None, settings: Mapping[str, object]) -> Self:
        """As `ProducerConfig.from_settings`."""
        given = parsed(CONSUMER_CONFIGS, config, settings)
        return cls(**given)._checked(given)

    @property
    def is_modern(self) -> bool:
        """KIP-848's group protocol, where the coordinator assigns partitions."""
        return self.group_protocol.upper() == "CONSUMER"

    def _checked(self, given: Collection[str]) -> Self:
        protocol = self.group_protocol.upper()
        for name in _NOT_OF_PROTOCOL[protocol]:
            if CONSUMER_CONFIGS.key(name).field_name in given:
                raise InvalidConfigError(f"{name} cannot be set when group.protocol={protocol}")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise InvalidConfigError(
                "Heartbeat must be set lower than the session timeout: "
                f"heartbeat.interval.ms {self.heartbeat_interval_ms} >= session.timeout.ms {self.session_timeout_ms}"
            )
        if self.enable_auto_commit and "enable_auto_commit" in given and not self.group_id:
            raise InvalidConfigError("enable.auto.commit cannot be set to true when default group id (null) is used.")
        return self


_IN_FLIGHT = dict.fromkeys(("max.in.flight", "max_in_flight"), "max.in.flight.requests.per.connection")
PRODUCER_CONFIGS = ConfigDef.of("producer", ProducerConfig, python_names(ProducerConfig) | _IN_FLIGHT)
CONSUMER_CONFIGS = ConfigDef.of("consumer", ConsumerConfig, python_names(ConsumerConfig))


def split_connection_configs(
    known: ConfigDef, given: Mapping[str, object]
) -> tuple[dict[str, object], dict[str, object]]:
    """The configs of a client that is given a metadata root: its own, and those of its connections to brokers, by their
    dotted names. Those of both kinds (`client.id`, `request.timeout.ms`) are the client's own.

    >>> split_connection_configs(PRODUCER_CONFIGS, {"acks": 1, "sasl.username": "a", "stratalog_transport": "inbox"})
    ({'acks': 1}, {'sasl.username': 'a', 'stratalog.transport': 'inbox'})
    """
    of_client, of_connection = {key.name for key in known}, {key.name for key in CONNECTION_CONFIGS}
    own: dict[str, object] = {}
    connection: dict[str, object] = {}
    for name, value in given.items():
        dotted = name.replace("_", ".")
        if dotted in of_connection - of_client:
            connection[dotted] = value
        else:
            own[name] = value
    return own, connection
