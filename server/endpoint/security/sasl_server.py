"""The server's side of a SASL mechanism: tokens in, challenges out, until it is known who the client is. Pure.

Source: Java's `SaslServer`, as Kafka uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from stratalog.storage.errors import SaslAuthenticationFailedError


class InvalidCredentialsError(SaslAuthenticationFailedError):
    """Why a client was refused, for the log alone: clients receive one text for all reasons (Java's `SaslException`).

    A SaslAuthenticationFailedError that is not of this class has a message that clients receive, too.
    """


@dataclass(frozen=True, slots=True)
class SaslStep:
    """What follows from a client's token.

    answer      the challenge, or what ends the exchange
    user        of the client, once it is known; None: the client sends another token
    expires_ms  the wall time at which the credential ends; None: never
    """

    answer: bytes
    user: str | None = None
    expires_ms: int | None = None


class SaslServer(Protocol):
    """One exchange. `claimed_user`: who the client says it is, proved or not; "" before it has."""

    claimed_user: str

    def evaluate(self, token: bytes, now_ms: int) -> SaslStep:
        """The next step. SaslAuthenticationFailedError when the client is refused."""


NewSaslServer = Callable[[], SaslServer]
"""Begins an exchange of one mechanism."""
