"""The authenticator of one connection, in front of its broker's face. I/O: io threads, the clock.

What belongs to an authentication runs in an io thread, since credentials are read from the metadata log; a connection
runs one request at a time, so the state needs no lock. What comes later goes to the face at once, with the user's name.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from stratalog.replication.metadata.acls import Principal
from stratalog.server.audit.events import FAILED_LOGIN, LOGIN, AuditEvent
from stratalog.server.endpoint.frames import FrameHandler
from stratalog.server.endpoint.security.authenticator import SaslOutcome, SaslRules, SaslState, decide, reauthenticating
from stratalog.server.request.api import Connection
from stratalog.storage.clock import Clock
from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import Answer as ResponseFrame
from stratalog.wire.messages.frames import Frame, api_key_of

_LOG = line_logger("stratalog.network")
Answer = Callable[[ResponseFrame | None], None]


class RefusingHandler(FrameHandler, Protocol):
    """A face that can answer a request with an error, without doing what it asks for."""

    def refuse(self, frame: Frame, error: StratalogError, connection: Connection, answer: Answer) -> None: ...


class Channel(Protocol):
    """The connection, as its gate sees it. Any thread may call it."""

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call something in the network thread after a while."""

    def authenticated(self) -> None:
        """Frames may have their full size from now on."""

    def refused(self) -> None:
        """Authentication failed: the connection is about to be closed."""


@dataclass(frozen=True, slots=True)
class SaslGateSettings:
    """What the connections of one listener share. `failure_delay_ms`: `connection.failed.authentication.delay.ms`."""

    rules: SaslRules
    failure_delay_ms: int
    clock: Clock
    io: Executor


class SaslGate:
    """`FrameHandler` of a connection to a listener with SASL."""

    def __init__(self, settings: SaslGateSettings, handler: RefusingHandler, channel: Channel) -> None:
        self._settings = settings
        self._handler = handler
        self._channel = channel
        self._state = SaslState()
        self._caller: Connection | None = None
        self._expires_ms: int | None = None

    def handle(self, frame: Frame, connection: Connection, answer: Answer) -> None:
        """As `FrameHandler.handle`."""
        caller = self._caller
        if self._state.is_complete and caller is not None:
            begun = None
            if api_key_of(frame) == ApiKey.SASL_HANDSHAKE:
                begun = reauthenticating(self._state, self._settings.clock.wall_ms())
            if begun is None:
                self._pass(frame, caller, answer)
                return
            self._state = begun
        self._settings.io.submit(self._authenticate, bytes(frame), connection, answer)

    def _pass(self, frame: Frame, caller: Connection, answer: Answer) -> None:
        now_ms = self._settings.clock.monotonic_ms()
        if self._expires_ms is not None and now_ms > self._expires_ms:
            caller.close(f"the session of {caller.principal.name} expired {now_ms - self._expires_ms} ms ago")
            return
        self._handler.handle(frame, caller, answer)

    def _authenticate(self, frame: bytes, connection: Connection, answer: Answer) -> None:
        try:
            outcome = decide(self._state, frame, self._settings.rules, self._settings.clock.wall_ms())
            self._state = outcome.state
            self._follow(outcome, frame, connection, answer)
        except Exception as defect:  # noqa: BLE001 - a defect closes this connection only
            _LOG.exception("authentication")
            connection.close(f"{self._state.what}: {type(defect).__name__}: {defect}")

    def _follow(self, outcome: SaslOutcome, frame: bytes, connection: Connection, answer: Answer) -> None:
        if outcome.failure:
            end = partial(self._end, outcome, frame, connection, answer)
            if outcome.is_delayed and self._settings.failure_delay_ms > 0:
                self._channel.later(self._settings.failure_delay_ms / 1_000, end)
            else:
                end()
        elif outcome.for_broker:
            self._handler.handle(frame, connection, answer)
        else:
            if outcome.state.is_complete:
                self._complete(outcome.state, connection)
            answer(outcome.answer)

    def _complete(self, state: SaslState, connection: Connection) -> None:
        assert state.session is not None
        lifetime_ms = state.session.lifetime_ms
        self._expires_ms = None if lifetime_ms is None else self._settings.clock.monotonic_ms() + lifetime_ms
        principal = Principal(f"User:{state.session.user}", connection.principal.host)
        self._caller = replace(connection, principal=principal)
        self._channel.authenticated()
        self._keep(LOGIN, principal.name, "NONE", state.session.mechanism, connection)

    def _keep(self, kind: str, user: str, outcome: str, detail: str, connection: Connection) -> None:
        if connection.audit is not None:
            host, listener = connection.peer or connection.principal.host, connection.listener
            connection.audit(AuditEvent(kind, user, host, listener, outcome=outcome, detail=detail))

    def _end(self, outcome: SaslOutcome, frame: Frame, connection: Connection, answer: Answer) -> None:
        self._channel.refused()
        claimed = "" if outcome.state.server is None else outcome.state.server.claimed_user
        user = f"User:{claimed}" if claimed else ""
        self._keep(FAILED_LOGIN, user, "SASL_AUTHENTICATION_FAILED", outcome.failure, connection)
        close = partial(connection.close, f"Failed {outcome.state.what}: {outcome.failure}")
        if outcome.refused_by is not None:
            self._handler.refuse(frame, outcome.refused_by, connection, answer)
        elif outcome.answer is not None:
            answer(outcome.answer)
        close()


class NamedCaller:
    """`FrameHandler` of a connection whose user is known by its certificate."""

    def __init__(self, handler: FrameHandler, user: str) -> None:
        self._handler = handler
        self._user = user
        self._caller: Connection | None = None

    def handle(self, frame: Frame, connection: Connection, answer: Answer) -> None:
        """As `FrameHandler.handle`, with the user's name."""
        if self._caller is None:
            self._caller = replace(connection, principal=Principal(self._user, connection.principal.host))
            if connection.audit is not None:
                host = connection.peer or connection.principal.host
                connection.audit(AuditEvent(LOGIN, self._user, host, connection.listener, detail="SSL"))
        self._handler.handle(frame, self._caller, answer)
