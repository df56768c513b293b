"""SASL/SCRAM: the client proves that it has the password, without sending it. Pure.

scramp checks the messages and computes the proofs. It takes no salt below `SALT_BYTES_MIN`, Kafka takes any: of a
shorter one scramp sees a longer one, which it only repeats, and the client is told the real one.
Source: RFC 5802, RFC 7677, Kafka's `ScramSaslServer`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

from stratalog.replication.metadata.records import UserScramCredentialRecord
from stratalog.server.endpoint.security.sasl_server import InvalidCredentialsError, SaslStep

FindCredential = Callable[[str, str], UserScramCredentialRecord | None]
"""The credential of (user, mechanism); None for an unknown user."""
SALT_BYTES_MIN = 12
"""Of scramp's `Salt`."""


class ScramServer:
    """One exchange of two tokens."""

    def __init__(self, mechanism: str, find: FindCredential, nonce: str) -> None:
        """`nonce`: fresh, printable ASCII without a comma."""
        from scramp import ScramMechanism

        self._mechanism = mechanism
        self._find = find
        self.claimed_user = ""
        self._salt = b""
        self._server: Any = ScramMechanism(mechanism).make_server(self._credential, s_nonce=nonce)
        self._has_begun = False

    def _credential(self, user: str) -> tuple[bytes, bytes, bytes, int] | None:
        self.claimed_user = user
        found = self._find(user, self._mechanism)
        if found is None:
            return None
        keys = (found.salt, found.stored_key, found.server_key)
        self._salt, stored_key, server_key = (b64decode(each) for each in keys)
        return self._salt.ljust(SALT_BYTES_MIN, b"\0"), stored_key, server_key, found.iterations

    def evaluate(self, token: bytes, now_ms: int) -> SaslStep:  # noqa: ARG002 - passwords do not expire
        from scramp import ScramException

        try:
            text = token.decode()
            if not self._has_begun:
                self._has_begun = True
                self._server.set_client_first(text)
                self._server.salt = b64encode(self._salt).decode()
                return SaslStep(self._server.get_server_first().encode())
            self._server.set_client_final(text)
            return SaslStep(self._server.get_server_final().encode(), self.claimed_user)
        except (ScramException, UnicodeDecodeError) as reason:
            raise InvalidCredentialsError(f"{self._mechanism}: {reason}") from reason
