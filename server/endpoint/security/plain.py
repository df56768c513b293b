"""SASL/PLAIN: user and password in clear text, so for listeners with TLS or on loopback. Pure.

Source: RFC 4616, Kafka's `PlainSaslServer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest

from stratalog.server.endpoint.security.sasl_server import SaslStep
from stratalog.storage.errors import SaslAuthenticationFailedError

PLAIN = "PLAIN"


class PlainServer:
    """Checks one token, `[authorization id] NUL user NUL password`, against the users that are known."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self.claimed_user = ""
        self._passwords = passwords

    def evaluate(self, token: bytes, now_ms: int) -> SaslStep:  # noqa: ARG002 - passwords do not expire
        parts = token.decode(errors="replace").split("\0")
        if len(parts) != 3:
            found = min(len(parts), 4)
            raise SaslAuthenticationFailedError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {found}")
        authorization_id, user, password = parts
        self.claimed_user = user
        if not user:
            raise SaslAuthenticationFailedError("Authentication failed: username not specified")
        if not password:
            raise SaslAuthenticationFailedError("Authentication failed: password not specified")
        known = self._passwords.get(user)
        is_right = compare_digest(password.encode(), (known if known is not None else "").encode())
        if known is None or not is_right:
            raise SaslAuthenticationFailedError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise SaslAuthenticationFailedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return SaslStep(b"", user)
