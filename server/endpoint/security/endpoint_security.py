"""The security of a process's listeners, by its settings. I/O: key files, the keys of token issuers.

Made once, before a broker starts, so that what cannot be is refused then; `listener` gives what a socket server needs.
Source: Kafka's `ChannelBuilders`, `SaslChannelBuilder`, `SslChannelBuilder`.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

from stratalog.replication.config import BrokerConfig
from stratalog.replication.metadata.acls import ANONYMOUS
from stratalog.replication.metadata.scram import ScramMechanism
from stratalog.server.endpoint.frames import FrameHandler
from stratalog.server.endpoint.listeners import Listener
from stratalog.server.endpoint.security.authenticator import SaslRules
from stratalog.server.endpoint.security.certificates import distinguished_name
from stratalog.server.endpoint.security.gate import Channel, NamedCaller, RefusingHandler, SaslGate, SaslGateSettings
from stratalog.server.endpoint.security.jaas import plain_users
from stratalog.server.endpoint.security.jwks import ENDPOINT_URL, JwksKeys, JwksSource
from stratalog.server.endpoint.security.oauthbearer import OAUTHBEARER, OAuthBearerServer, TokenRules
from stratalog.server.endpoint.security.plain import PLAIN, PlainServer
from stratalog.server.endpoint.security.principal_mapping import parse_rules, user_of
from stratalog.server.endpoint.security.sasl_server import NewSaslServer
from stratalog.server.endpoint.security.scram import FindCredential, ScramServer
from stratalog.server.endpoint.security.tls import server_context
from stratalog.server.endpoint.security.watched_context import WatchedContext
from stratalog.storage.clock import Ids, RandomIds, SystemClock
from stratalog.storage.errors import InvalidConfigError


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """One listener of one broker.

    tls                None: without TLS
    receive_bytes_max  the largest frame of a client that is not authenticated; None: as large as any
    open               what handles the frames of a new connection, by its channel and its certificate (DER)
    """

    tls: WatchedContext | None
    receive_bytes_max: int | None
    open: Callable[[Channel, bytes | None], FrameHandler]

    @property
    def context(self) -> ssl.SSLContext | None:
        """The context of a connection that begins now."""
        return None if self.tls is None else self.tls.current()

    @property
    def has_login(self) -> bool:
        """Whether clients log in by SASL; else their certificates tell who they are."""
        return self.receive_bytes_max is not None


class EndpointSecurity:
    """What the listeners of `config` need. InvalidConfigError in Kafka's words for settings that cannot be."""

    def __init__(self, config: BrokerConfig, listeners: Iterable[Listener]) -> None:
        self._config = config
        protocols = {each.protocol for each in listeners}
        self._clock, self._ids = SystemClock(), RandomIds()
        files = (config.ssl_keystore_location, config.ssl_truststore_location)
        self._contexts = {
            each: WatchedContext(
                partial(server_context, config, asks_for_certificates=not each.has_sasl), files, self._clock
            )
            for each in protocols
            if each.is_encrypted
        }
        self._mapping = parse_rules(config.ssl_principal_mapping_rules)
        if self._contexts and config.ssl_client_auth != "none":
            _need("cryptography", f"ssl.client.auth={config.ssl_client_auth}")
        self._keys: JwksKeys | None = None
        self._passwords = plain_users(config.sasl_jaas_config)
        if any(each.has_sasl for each in protocols):
            self._check_mechanisms()

    def _check_mechanisms(self) -> None:
        config = self._config
        if not config.sasl_enabled_mechanisms:
            raise InvalidConfigError("No SASL mechanisms are enabled: sasl.enabled.mechanisms is empty")
        for mechanism in config.sasl_enabled_mechanisms:
            what = f"sasl.enabled.mechanisms={mechanism}"
            if mechanism == PLAIN and not self._passwords:
                raise InvalidConfigError(f"{what}: sasl.jaas.config names no users, as user_alice='password'")
            if mechanism in tuple(ScramMechanism):
                _need("scramp", what)
            if mechanism == OAUTHBEARER:
                _need("jwt", what)
                _need("cryptography", what)
                if not config.sasl_oauthbearer_jwks_endpoint_url:
                    raise InvalidConfigError(f"{what}: {ENDPOINT_URL} is not specified")
                self._keys = JwksKeys(
                    JwksSource(
                        config.sasl_oauthbearer_jwks_endpoint_url,
                        config.sasl_oauthbearer_jwks_endpoint_refresh_ms,
                        config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
                        config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
                    )
                )

    def listener(
        self, listener: Listener, handler: RefusingHandler, find: FindCredential, io: Executor
    ) -> ListenerSecurity | None:
        """The security of a broker's listener; None for PLAINTEXT."""
        tls = self._contexts.get(listener.protocol)
        if listener.protocol.has_sasl:
            rules = SaslRules(self._mechanisms(find), self._config.connections_max_reauth_ms)
            delay_ms = self._config.connection_failed_authentication_delay_ms
            settings = SaslGateSettings(rules, delay_ms, self._clock, io)
            largest = self._config.sasl_server_max_receive_size
            return ListenerSecurity(tls, largest, lambda channel, _: SaslGate(settings, handler, channel))
        if tls is None:
            return None
        return ListenerSecurity(tls, None, lambda _, certificate: NamedCaller(handler, self._user(certificate)))

    def _user(self, certificate: bytes | None) -> str:
        """SaslAuthenticationFailedError when no mapping rule matches."""
        return ANONYMOUS if not certificate else f"User:{user_of(self._mapping, distinguished_name(certificate))}"

    def _mechanisms(self, find: FindCredential) -> dict[str, NewSaslServer]:
        made: dict[str, NewSaslServer] = {}
        for mechanism in self._config.sasl_enabled_mechanisms:
            if mechanism == PLAIN:
                made[mechanism] = partial(PlainServer, self._passwords)
            elif mechanism == OAUTHBEARER:
                assert self._keys is not None
                made[mechanism] = partial(OAuthBearerServer, self._keys, self._token_rules())
            else:
                made[mechanism] = partial(_scram_server, mechanism, find, self._ids)
        return made

    def _token_rules(self) -> TokenRules:
        return TokenRules(
            self._config.sasl_oauthbearer_expected_audience,
            self._config.sasl_oauthbearer_expected_issuer,
            self._config.sasl_oauthbearer_clock_skew_seconds * 1_000,
            self._config.sasl_oauthbearer_sub_claim_name,
        )

    def close(self) -> None:
        """End the thread that fetches keys."""
        if self._keys is not None:
            self._keys.close()


def _scram_server(mechanism: str, find: FindCredential, ids: Ids) -> ScramServer:
    return ScramServer(mechanism, find, ids.new_id())


def _need(package: str, what: str) -> None:
    if find_spec(package) is None:
        raise InvalidConfigError(f"{what} needs the package {package}: pip install 'stratalog[security]'")
