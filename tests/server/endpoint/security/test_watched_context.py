"""A certificate that is renewed on disk counts for the next connection, without a restart."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from stratalog.server.endpoint.security import watched_context
from stratalog.server.endpoint.security.watched_context import CHECK_MS, WatchedContext
from stratalog.server.remote.connections.config import ConnectionConfig
from stratalog.server.remote.connections.security import connection_security
from stratalog.storage.clock import SystemClock
from stratalog.storage.errors import InvalidConfigError
from tests.server.endpoint.security.certificate_authority import CertificateAuthority
from tests.server.endpoint.security.secured_broker import SecuredBroker


class Clock(SystemClock):
    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


def serial_of(pem: Path) -> int:
    return x509.load_pem_x509_certificates(pem.read_bytes())[0].serial_number


def shown_by(broker: SecuredBroker) -> int:
    """The serial number of the certificate that a new connection is shown."""
    return x509.load_pem_x509_certificate(ssl.get_server_certificate(("127.0.0.1", broker.port)).encode()).serial_number


def test_new_connections_are_shown_the_renewed_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watched_context, "CHECK_MS", 0)
    authority = CertificateAuthority(tmp_path)
    pem = authority.issue("broker")
    with SecuredBroker("SSL", {"ssl.keystore.location": str(pem)}) as broker:
        first = serial_of(pem)
        assert shown_by(broker) == first
        authority.issue("broker")
        second = serial_of(pem)
        assert shown_by(broker) == second != first
        pem.write_text("half a fi")
        with caplog.at_level(logging.WARNING, "stratalog.network"):
            assert [shown_by(broker), shown_by(broker)] == [second, second]
        told = [each.message for each in caplog.records if "keep the certificates" in each.message]
        assert len(told) == 1, "once, not at each connection"
        assert str(pem) in told[0]
        authority.issue("broker")
        assert shown_by(broker) == serial_of(pem)


def test_clients_trust_what_their_file_says_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_context, "CHECK_MS", 0)
    first, second = CertificateAuthority(tmp_path / "1"), CertificateAuthority(tmp_path / "2")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(first.authority.read_bytes())
    settings = {"security.protocol": "SSL", "ssl.truststore.location": str(trusted)}
    security = connection_security(ConnectionConfig.from_settings(settings, {}))

    def subjects() -> set[bytes]:
        assert security.tls is not None
        return set(security.tls.get_ca_certs(binary_form=True))

    before = subjects()
    trusted.write_bytes(second.authority.read_bytes())
    assert subjects().isdisjoint(before)


def test_files_are_looked_at_once_in_a_while(tmp_path: Path) -> None:
    file, made, clock = tmp_path / "key.pem", [], Clock()
    file.write_text("1")

    def make() -> ssl.SSLContext:
        made.append(file.read_text())
        return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    watched = WatchedContext(make, [str(file), ""], clock)
    first = watched.current()
    file.write_text("22")
    assert watched.current() is first
    clock.now_ms += CHECK_MS
    assert watched.current() is not first
    clock.now_ms += CHECK_MS
    watched.current()
    assert made == ["1", "22"], "not again while the file stays as it is"


def test_a_file_that_cannot_be_read_at_the_start_is_refused() -> None:
    def make() -> ssl.SSLContext:
        raise InvalidConfigError("no such file")

    with pytest.raises(InvalidConfigError, match="no such file"):
        WatchedContext(make, ["absent.pem"], Clock())
