"""Connections to brokers with TLS and a login, over sockets: who is let in, how a refusal shows, sessions that end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.requests.coordinators import (
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from stratalog.server.endpoint.loops import NetworkThread
from stratalog.server.remote.connections.config import ConnectionConfig
from stratalog.server.remote.connections.security import connection_security
from stratalog.server.remote.inter_broker import inter_broker_connections, inter_broker_protocol
from stratalog.server.remote.remote_broker import RemoteBroker
from stratalog.server.remote.routes import ListenerRoute
from stratalog.server.request.endpoint import Endpoint
from stratalog.storage.errors import (
    CoordinatorNotAvailableError,
    InvalidConfigError,
    SaslAuthenticationFailedError,
    StratalogError,
    UnsupportedSaslMechanismError,
)
from tests.server.endpoint.security.certificate_authority import CertificateAuthority
from tests.server.endpoint.security.secured_broker import JAAS, SecuredBroker

ANSWER_S = 60
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
SASL = {"sasl.enabled.mechanisms": MECHANISMS, "sasl.jaas.config": JAAS, "connection.failed.authentication.delay.ms": 0}
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "root", "sasl.password": "r"}


@contextmanager
def called(served: SecuredBroker, settings: Mapping[str, object]) -> Iterator[Callable[[], StratalogError | None]]:
    """A function that asks the broker for a coordinator, and gives the error of the answer."""
    thread = NetworkThread("test")
    thread.start()
    config = ConnectionConfig.from_settings({"request.timeout.ms": 10_000, **settings}, {})
    route = ListenerRoute(thread, config, Endpoint("127.0.0.1", served.port), connection_security(config))
    broker = RemoteBroker(1, route, thread, config)

    def ask() -> StratalogError | None:
        came: list[FindCoordinatorResponse] = []
        has_come = threading.Event()

        def answer(response: FindCoordinatorResponse) -> None:
            came.append(response)
            has_come.set()

        broker.find_coordinator(FindCoordinatorRequest(CoordinatorType.GROUP, ("g",)), answer)
        assert has_come.wait(ANSWER_S)
        (found,) = came[0].coordinators
        error: StratalogError | None = found.error
        return error

    try:
        yield ask
    finally:
        broker.close()
        thread.stop(0)


def is_answer(error: StratalogError | None) -> bool:
    """Whether the broker itself answered: in this cluster it has no coordinators."""
    return isinstance(error, CoordinatorNotAvailableError) and not str(error).startswith("broker 1: ")


@pytest.mark.parametrize("mechanism", MECHANISMS.split(","))
def test_a_login_by_each_mechanism(mechanism: str) -> None:
    with SecuredBroker("SASL_PLAINTEXT", SASL) as served:
        served.add_user("root", "r")
        with called(served, {**LOGIN, "sasl.mechanism": mechanism}) as ask:
            assert is_answer(ask())
            assert is_answer(ask())


@pytest.mark.parametrize("mechanism", MECHANISMS.split(","))
def test_a_refused_login_is_told_at_once_and_shows_no_password(mechanism: str) -> None:
    with SecuredBroker("SASL_PLAINTEXT", SASL) as served:
        served.add_user("root", "r")
        for name, password in (("root", "wr0ng"), ("nobody", "wr0ng")):
            login = {**LOGIN, "sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": password}
            with called(served, login) as ask:
                error = ask()
                assert isinstance(error, SaslAuthenticationFailedError), error
                assert password not in str(error)
                assert isinstance(ask(), SaslAuthenticationFailedError)


def test_a_mechanism_that_the_broker_has_not() -> None:
    with (
        SecuredBroker("SASL_PLAINTEXT", {**SASL, "sasl.enabled.mechanisms": "PLAIN"}) as served,
        called(served, {**LOGIN, "sasl.mechanism": "SCRAM-SHA-256"}) as ask,
    ):
        error = ask()
        assert isinstance(error, UnsupportedSaslMechanismError)
        assert "enabled mechanisms are ['PLAIN']" in str(error)


def test_tls_and_a_login(tmp_path: Path) -> None:
    ours, theirs = CertificateAuthority(tmp_path / "ours"), CertificateAuthority(tmp_path / "theirs")
    keys = {"ssl.keystore.location": str(ours.issue("broker"))}
    with SecuredBroker("SASL_SSL", {**SASL, **keys}) as served:
        login = {**LOGIN, "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
        with called(served, {**login, "ssl.truststore.location": str(ours.authority)}) as ask:
            assert is_answer(ask())
        with called(served, {**login, "ssl.truststore.location": str(theirs.authority)}) as ask:
            error = ask()
            assert error is not None
            assert "certificate verify failed" in str(error)


def test_a_certificate_instead_of_a_login(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    trust = {"ssl.truststore.location": str(authority.authority)}
    keys = {"ssl.keystore.location": str(authority.issue("broker")), "ssl.client.auth": "required"}
    with SecuredBroker("SSL", {**keys, **trust, "super.users": "User:CN=client,O=Acme"}) as served:
        own = authority.issue("client", password=b"key password")
        shown = {"ssl.keystore.location": str(own), "ssl.key.password": "key password"}
        with called(served, {"security.protocol": "SSL", **trust, **shown}) as ask:
            assert is_answer(ask())
        with called(served, {"security.protocol": "SSL", **trust}) as ask:
            assert not is_answer(ask())


def test_a_session_is_renewed_before_it_ends() -> None:
    """A request after the session's time would close the connection otherwise, and is then lost."""
    with (
        SecuredBroker("SASL_PLAINTEXT", {**SASL, "connections.max.reauth.ms": 1_300}) as served,
        called(served, {**LOGIN, "sasl.mechanism": "PLAIN"}) as ask,
    ):
        end_s = time.monotonic() + 4
        while time.monotonic() < end_s:
            assert is_answer(ask())


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"security.protocol": "SASL_SSL"}, "sasl.mechanism"),
    ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "sasl.username": "a"}, "GSSAPI"),
    ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "sasl.username"),
    ({"security.protocol": "SSL", "ssl.truststore.location": "no-file.pem"}, "no-file.pem"),
    ({"security.protocol": "SSL", "ssl.keystore.location": "no-key.pem"}, "no-key.pem"),
    ({"security.protocol": "TLS"}, "security.protocol"),
]


@pytest.mark.parametrize(("settings", "named"), REFUSED)
def test_configs_that_cannot_be_are_refused(settings: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidConfigError, match=named):
        connection_security(ConnectionConfig.from_settings(settings, {}))


def broker_config(**settings: Any) -> BrokerConfig:
    return BrokerConfig.from_properties({name.replace("__", "."): value for name, value in settings.items()})


TWO = {"listeners": "INSIDE://h:1,OUTSIDE://h:2", "listener__security__protocol__map": "INSIDE:SASL_SSL,OUTSIDE:SSL"}
BROKERS_LOGIN = {
    "sasl__enabled__mechanisms": "SCRAM-SHA-512",
    "sasl__mechanism__inter__broker__protocol": "SCRAM-SHA-512",
    "sasl__jaas__config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="broker" password="b";',
}


def test_how_brokers_call_each_other() -> None:
    found = inter_broker_connections(broker_config(**TWO, **BROKERS_LOGIN, ssl__truststore__location="ca.pem"))
    assert (found.security_protocol, found.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (found.sasl_username, found.sasl_password, found.ssl_truststore_location) == ("broker", "b", "ca.pem")
    assert inter_broker_protocol(broker_config(**TWO, inter__broker__listener__name="outside")) == "SSL"
    assert inter_broker_protocol(broker_config(security__inter__broker__protocol="SASL_PLAINTEXT")) == "SASL_PLAINTEXT"
    assert inter_broker_connections(broker_config()).security_protocol == "PLAINTEXT"


REFUSED_BETWEEN: list[tuple[dict[str, str], str]] = [
    (TWO, "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms"),
    ({**TWO, **BROKERS_LOGIN, "sasl__jaas__config": ""}, "names no username and password"),
    ({**TWO, "inter__broker__listener__name": "other"}, "No security protocol defined for listener OTHER"),
    (
        {"security__inter__broker__protocol": "SSL", "inter__broker__listener__name": "SSL"},
        "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set",
    ),
]


@pytest.mark.parametrize(("settings", "text"), REFUSED_BETWEEN)
def test_brokers_that_cannot_call_each_other_are_refused(settings: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidConfigError, match=text):
        inter_broker_connections(broker_config(**settings))
