"""TLS and the login of connections to brokers, by a client's configs. I/O: key files.

Source: Kafka's `ClientUtils.createChannelBuilder`, `DefaultSslEngineFactory`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

from stratalog.server.endpoint.listeners import SecurityProtocol
from stratalog.server.endpoint.security.jaas import login_of
from stratalog.server.endpoint.security.watched_context import WatchedContext
from stratalog.server.remote.connections.config import ConnectionConfig
from stratalog.server.remote.connections.login import LOGIN_MECHANISMS, PLAIN, Credentials, Login
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.config_def import invalid_value
from stratalog.storage.errors import InvalidConfigError

CHECKED_NAME = "https"
"""The value of `ssl.endpoint.identification.algorithm` that compares a broker's name with its certificate."""


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    """TLS and the SASL login of a client's connections, both before the first request; None: without it."""

    contexts: WatchedContext | None = None
    credentials: Credentials | None = None

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The context of a connection that begins now."""
        return None if self.contexts is None else self.contexts.current()

    def login(self) -> Login | None:
        """A new exchange."""
        return None if self.credentials is None else Login(self.credentials, RandomIds().new_id())


def connection_security(config: ConnectionConfig) -> ConnectionSecurity:
    """InvalidConfigError in Kafka's words for configs or files that cannot be."""
    protocol = SecurityProtocol(config.security_protocol)
    files = (config.ssl_keystore_location, config.ssl_truststore_location)
    contexts = WatchedContext(partial(client_context, config), files, SystemClock()) if protocol.is_encrypted else None
    return ConnectionSecurity(contexts, _credentials(config) if protocol.has_sasl else None)


def _credentials(config: ConnectionConfig) -> Credentials:
    mechanism = config.sasl_mechanism
    if mechanism not in LOGIN_MECHANISMS:
        raise invalid_value("sasl.mechanism", mechanism, f"String must be one of: {', '.join(LOGIN_MECHANISMS)}")
    username, password = login_of(config.sasl_jaas_config)
    username, password = config.sasl_username or username, config.sasl_password or password
    if not username:
        raise InvalidConfigError(f"security.protocol={config.security_protocol} needs sasl.username and sasl.password")
    if mechanism != PLAIN and find_spec("scramp") is None:
        needed = "needs the package scramp: pip install 'stratalog[security]'"
        raise InvalidConfigError(f"sasl.mechanism={mechanism} {needed}")
    return Credentials(mechanism, username, password)


def client_context(config: ConnectionConfig) -> ssl.SSLContext:
    """The TLS context of connections. InvalidConfigError for a file that cannot be read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = config.ssl_endpoint_identification_algorithm.lower() == CHECKED_NAME
    try:
        if config.ssl_truststore_location:
            context.load_verify_locations(config.ssl_truststore_location)
        else:
            context.load_default_certs()
    except (OSError, ValueError) as reason:
        raise _unreadable("truststore", config.ssl_truststore_location, reason) from reason
    try:
        if config.ssl_keystore_location:
            # always with a password: without one an encrypted key would be asked for on the terminal
            context.load_cert_chain(config.ssl_keystore_location, password=config.ssl_key_password)
    except (OSError, ValueError) as reason:
        raise _unreadable("keystore", config.ssl_keystore_location, reason) from reason
    return context


def _unreadable(what: str, path: str, reason: OSError | ValueError) -> InvalidConfigError:
    return InvalidConfigError(f"Failed to load PEM SSL {what} {path}: {getattr(reason, 'strerror', None) or reason}")
