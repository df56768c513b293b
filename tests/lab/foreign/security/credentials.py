"""Users, keys, certificates and tokens of a check, and the settings of brokers that accept them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from tests.lab.foreign.served import Served
from tests.server.endpoint.security.certificate_authority import CertificateAuthority

ADMIN, ALICE = "root", "alice"
"""A super user, and one that has only what ACLs allow."""
PASSWORDS = {ADMIN: "roots secret", ALICE: "alices secret", "broker": "brokers secret"}
LOGIN, CERTIFICATE = "LOGIN", "CERTIFICATE"
LISTENERS = {LOGIN: "SASL_SSL", CERTIFICATE: "SSL"}
SESSION_MS, FAILURE_DELAY_MS = 3_000, 400
RENEWAL_WINDOWS = 5
AUDIENCE, ISSUER, KEY_ID = "kafka", "https://issuer.test", "key-1"


class Way(StrEnum):
    """Ways in which a client authenticates."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"
    CERTIFICATE = "a certificate"

    @property
    def listener(self) -> str:
        return CERTIFICATE if self is Way.CERTIFICATE else LOGIN

    @property
    def has_password(self) -> bool:
        return self in (Way.PLAIN, Way.SCRAM_SHA_256, Way.SCRAM_SHA_512)


class Secrets:
    """Keys and certificates of one run, below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = CertificateAuthority(folder / "authority")
        self.trusted = self.authority.authority
        self.broker = self.authority.issue("broker")
        self.certificates = {user: self.authority.issue(user) for user in (ADMIN, ALICE)}
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._foreign_key = ec.generate_private_key(ec.SECP256R1())
        self.key_set = folder / "keys.json"
        public: dict[str, Any] = json.loads(ECAlgorithm.to_jwk(self._key.public_key()))
        self.key_set.write_text(json.dumps({"keys": [{**public, "kid": KEY_ID, "use": "sig", "alg": "ES256"}]}))

    def token(self, user: str, lifetime_s: int = 3_600, *, is_foreign: bool = False) -> str:
        """A signed token; `is_foreign`: by a key that is not in the set."""
        now_s = int(time.time())
        claims = {"sub": user, "aud": AUDIENCE, "iss": ISSUER, "iat": now_s, "exp": now_s + lifetime_s, "scope": "all"}
        key = self._foreign_key if is_foreign else self._key
        return jwt.encode(claims, key, algorithm="ES256", headers={"kid": KEY_ID})


@cache
def secrets() -> Secrets:
    """Those of this process, in a temporary folder."""
    return Secrets(Path(tempfile.mkdtemp(prefix="secrets-")))


def remove_secrets() -> None:
    """Delete the folder; the next call of `secrets` makes another one."""
    shutil.rmtree(secrets().folder)
    secrets.cache_clear()


def broker_settings() -> Mapping[str, object]:
    """Settings of brokers that accept every way, and call each other by PLAIN over TLS."""
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "inter.broker.listener.name": LOGIN,
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": ",".join(way for way in Way if way is not Way.CERTIFICATE),
        "sasl.jaas.config": f'{module} required username="broker" password="{PASSWORDS["broker"]}" {users};',
        "sasl.oauthbearer.jwks.endpoint.url": secrets().key_set.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "ssl.keystore.location": secrets().broker,
        "ssl.truststore.location": secrets().trusted,
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/,DEFAULT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:broker",
        "connections.max.reauth.ms": SESSION_MS,
        "connection.failed.authentication.delay.ms": FAILURE_DELAY_MS,
    }


_with_users: set[str] = set()


def make_users(served: Served) -> None:
    """SCRAM credentials of both mechanisms, made as the first ones of a cluster are; once."""
    if served.metadata_root in _with_users:
        return
    mechanisms = [way for way in Way if way.startswith("SCRAM")]
    for user in (ADMIN, ALICE):
        added = ",".join(f"{way}=[iterations=4096,password={PASSWORDS[user]}]" for way in mechanisms)
        command = [sys.executable, "-m", "stratalog", "configs", "--root", served.metadata_root, "--alter"]
        subprocess.run([*command, "--entity-type", "users", "--entity-name", user, "--add-config", added], check=True)
    _with_users.add(served.metadata_root)
