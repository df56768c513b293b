"""Configs of a client's connections to brokers, and how the configs of clients are declared and parsed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self

from stratalog.storage.config_def import ConfigDef, Validator, at_least, config_field, one_of, spelled

REQUEST_TIMEOUT_MS = 30_000
"""Kafka's default of `request.timeout.ms`."""


def integer(default: int, low: int = 0) -> Any:
    """A field of a whole number, at least `low`."""
    return config_field("INT", default, validator=at_least(low))


def boolean(default: bool) -> Any:
    """A field that is true or false."""
    return config_field("BOOLEAN", default)


def text(default: str = "", validator: Validator | None = None) -> Any:
    """A field of text."""
    return config_field("STRING", default, validator=validator)


def python_names(config_type: type[Any]) -> dict[str, str]:
    """The Python name of each config of a dataclass -> its dotted name."""
    return {each.name: each.name.replace("_", ".") for each in fields(config_type)}


def parsed(known: ConfigDef, config: Mapping[str, object] | None, settings: Mapping[str, object]) -> dict[str, Any]:
    """Typed values by field name; a keyword counts more than what `config` has. Raises InvalidConfigError."""
    given = {**(config or {}), **settings}
    return known.parse({k: v if isinstance(v, list | tuple) or callable(v) else spelled(v) for k, v in given.items()})


class TransportMode(StrEnum):
    """How a client calls brokers of other processes: at their listeners, through the inboxes in their roots, or AUTO:
    at a listener, and through the inbox where there is none or where it cannot be reached."""

    AUTO = "auto"
    LISTENER = "listener"
    INBOX = "inbox"


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """Kafka's configs of a client's connections to brokers; times in ms.

    `request.timeout.ms` is how long a broker may take to answer; the connection is closed then. Stores of keys and
    certificates are PEM files. `sasl.username` and `sasl.password` are librdkafka's names for what `sasl.jaas.config`
    has, too. `stratalog.transport` is a `TransportMode`.
    """

    client_id: str = text()
    request_timeout_ms: int = integer(REQUEST_TIMEOUT_MS)
    reconnect_backoff_ms: int = integer(50)
    reconnect_backoff_max_ms: int = integer(1_000)
    socket_connection_setup_timeout_ms: int = integer(10_000, low=1)
    connections_max_idle_ms: int = integer(540_000, low=1)
    security_protocol: str = text("PLAINTEXT", one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))
    sasl_mechanism: str = text()
    sasl_jaas_config: str = config_field("PASSWORD", "")
    sasl_username: str = text()
    sasl_password: str = config_field("PASSWORD", "")
    ssl_truststore_location: str = text()
    ssl_truststore_type: str = text("PEM", one_of("PEM"))
    ssl_keystore_location: str = text()
    ssl_keystore_type: str = text("PEM", one_of("PEM"))
    ssl_key_password: str = config_field("PASSWORD", "")
    ssl_endpoint_identification_algorithm: str = text("https")
    stratalog_transport: str = text(TransportMode.AUTO, one_of(*TransportMode))

    @property
    def has_login(self) -> bool:
        """Whether connections say who the client is, or are encrypted: an inbox does neither."""
        return self.security_protocol != "PLAINTEXT"

    @classmethod
    def from_settings(cls, config: Mapping[str, object] | None, settings: Mapping[str, object]) -> Self:
        """Kafka's dotted names and keyword settings as one config. Raises InvalidConfigError."""
        return cls(**parsed(CONNECTION_CONFIGS, config, settings))


CONNECTION_CONFIGS = ConfigDef.of("connection", ConnectionConfig, python_names(ConnectionConfig))
