"""How a connection logs in to a broker: SaslHandshake, then the tokens of a mechanism in SaslAuthenticate. Pure.

The first login and each renewal of a session (KIP-368) are the same exchange.
Source: Kafka's `SaslClientAuthenticator`, `ScramSaslClient`; RFC 4616, RFC 5802.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from stratalog.storage.errors import SaslAuthenticationFailedError, StratalogError, UnsupportedSaslMechanismError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import Message
from stratalog.wire.messages.layouts import error_of
from stratalog.wire.messages.schema import Entity

HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2
PLAIN = "PLAIN"
LOGIN_MECHANISMS = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class Credentials:
    """A login: the user, the password, and the SASL mechanism, one of `LOGIN_MECHANISMS`."""

    mechanism: str
    username: str
    password: str = field(repr=False)


class Login:
    """One exchange: `first` is sent, then what each answer gives, until that is None and the connection is logged in.

    lifetime_ms  how long the session lasts from then on; 0: for ever
    """

    def __init__(self, credentials: Credentials, nonce: str) -> None:
        """`nonce`: fresh, printable ASCII without a comma."""
        self.lifetime_ms = 0
        self._credentials = credentials
        is_plain = credentials.mechanism == PLAIN
        self._tokens = _plain(credentials) if is_plain else _scram(credentials, nonce)
        self._has_begun = False

    def first(self) -> Message:
        """The handshake."""
        return Message({"mechanism": self._credentials.mechanism}, ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION)

    def answered(self, answer: Entity) -> Message | None:
        """The next message; None when it is done.

        Raises SaslAuthenticationFailedError with the broker's words, UnsupportedSaslMechanismError, or what else the
        broker answered.
        """
        error = error_of(answer)
        if error is not None:
            raise self._refused(answer, error)
        if not self._has_begun:
            self._has_begun = True
            return _message(next(self._tokens))
        self.lifetime_ms = answer.session_lifetime
        try:
            return _message(self._tokens.send(bytes(answer.auth_bytes)))
        except StopIteration:
            return None

    def _refused(self, answer: Entity, error: StratalogError) -> StratalogError:
        if isinstance(error, UnsupportedSaslMechanismError):
            return UnsupportedSaslMechanismError(
                f"Client SASL mechanism '{self._credentials.mechanism}' not enabled in the server, enabled mechanisms "
                f"are {list(answer.mechanisms)}"
            )
        text = getattr(answer, "error_message", None)
        return type(error)(text) if text else error


def _message(token: bytes) -> Message:
    return Message({"auth_bytes": token}, ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION)


def _plain(credentials: Credentials) -> Generator[bytes, bytes, None]:
    yield f"\0{credentials.username}\0{credentials.password}".encode()


def _scram(credentials: Credentials, nonce: str) -> Generator[bytes, bytes, None]:
    """Also checks that the broker knows the password. SaslAuthenticationFailedError if not."""
    from scramp import ScramClient, ScramException

    names = (credentials.mechanism,)
    client: Any = ScramClient(names, credentials.username, credentials.password, c_nonce=nonce)
    try:
        challenge = yield client.get_client_first().encode()
        client.set_server_first(challenge.decode())
        proof = yield client.get_client_final().encode()
        client.set_server_final(proof.decode())
    except (ScramException, UnicodeDecodeError) as reason:
        raise SaslAuthenticationFailedError(f"{credentials.mechanism}: the broker's answer: {reason}") from reason
