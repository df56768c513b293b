"""Security settings that cannot be are refused before a broker starts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.server.endpoint.kafka_endpoint import KafkaEndpoint
from stratalog.storage.errors import InvalidConfigError
from tests.server.endpoint.security.certificate_authority import CertificateAuthority
from tests.server.endpoint.security.secured_broker import JAAS

SASL = {"listeners": "SASL_PLAINTEXT://localhost:0"}
SSL = {"listeners": "SSL://localhost:0"}
OAUTH = {**SASL, "sasl.enabled.mechanisms": "OAUTHBEARER"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (SASL, "No SASL mechanisms are enabled"),
        ({**SASL, "sasl.enabled.mechanisms": "PLAIN"}, "PLAIN: sasl.jaas.config names no users"),
        ({**SASL, "sasl.enabled.mechanisms": "GSSAPI"}, "String must be one of: PLAIN, SCRAM-SHA-256"),
        (OAUTH, "sasl.oauthbearer.jwks.endpoint.url is not specified"),
        ({**OAUTH, "sasl.oauthbearer.jwks.endpoint.url": "ftp://x"}, "Value must be a URL of scheme"),
        ({**OAUTH, "sasl.oauthbearer.jwks.endpoint.url": "file:///absent.json"}, "absent.json could not be read"),
        (SSL, "SSL key store is not specified"),
        ({**SSL, "ssl.keystore.location": "absent.pem"}, "Failed to load PEM SSL keystore absent.pem: No such file"),
        ({**SSL, "ssl.keystore.location": __file__}, f"Failed to load PEM SSL keystore {__file__}: "),
        ({"ssl.keystore.type": "JKS"}, "Invalid value JKS for configuration ssl.keystore.type"),
        ({"ssl.client.auth": "maybe"}, "String must be one of: required, requested, none"),
        ({"ssl.enabled.protocols": "SSLv3"}, "String must be one of: TLSv1.2, TLSv1.3"),
        ({"ssl.principal.mapping.rules": "x"}, "Invalid rule: x"),
        (
            {"connection.failed.authentication.delay.ms": 600_001},
            "Value must be at most connections.max.idle.ms, which is 600000",
        ),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=re.escape(message)):
        KafkaEndpoint(BrokerConfig.from_properties(settings))


def test_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    file = CertificateAuthority(tmp_path).issue("localhost", password=b"open")
    settings = {**SSL, "ssl.keystore.location": str(file)}
    KafkaEndpoint(BrokerConfig.from_properties({**settings, "ssl.key.password": "open"})).stop()
    for password in ("", "wrong"):
        with pytest.raises(InvalidConfigError, match="Failed to load PEM SSL keystore"):
            KafkaEndpoint(BrokerConfig.from_properties({**settings, "ssl.key.password": password}))


def test_a_trust_store_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    file = CertificateAuthority(tmp_path).issue("localhost")
    settings = {**SSL, "ssl.keystore.location": str(file), "ssl.client.auth": "required"}
    with pytest.raises(InvalidConfigError, match=r"Failed to load PEM SSL truststore absent\.pem: No such file"):
        KafkaEndpoint(BrokerConfig.from_properties({**settings, "ssl.truststore.location": "absent.pem"}))


def test_security_of_unused_protocols_is_not_asked_for() -> None:
    settings = {"listeners": "PLAINTEXT://localhost:0", "sasl.jaas.config": JAAS}
    KafkaEndpoint(BrokerConfig.from_properties(settings)).stop()
