"""The order of a connection's SASL requests, and what each is answered. Pure.

`decide` is given every frame of a connection until it is authenticated, and again while it authenticates again
(KIP-368). A failure is answered late, and the connection closed then: see `SaslOutcome`. Phases, texts and what closes
at once are Kafka's. Source: `SaslServerAuthenticator`, `KafkaChannel.maybeBeginServerReauthentication`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from struct import Struct
from typing import Any

from stratalog.server.apis.api_versions import invalid_software_name
from stratalog.server.endpoint.security.sasl_server import InvalidCredentialsError, NewSaslServer, SaslServer, SaslStep
from stratalog.server.request.limits import bounds_before_login
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.wire.api_keys import ApiKey, api_name
from stratalog.wire.messages.frames import RequestFrame, decode_request, encode_response, served_versions
from stratalog.wire.messages.schema import response_type
from stratalog.wire.messages.values import Values

FIRST_WITH_AUTHENTICATE = 1
"""The version of SaslHandshake after which tokens come in SaslAuthenticate; before it, as bare frames."""
REAUTHENTICATION_INTERVAL_MS = 1_000
"""The least time between the beginnings of two re-authentications of a connection."""
_HEADER = Struct(">hhi")


class SaslPhase(StrEnum):
    """Kafka's `SaslState`."""

    INITIAL_REQUEST = "INITIAL_REQUEST"
    HANDSHAKE_OR_VERSIONS_REQUEST = "HANDSHAKE_OR_VERSIONS_REQUEST"
    HANDSHAKE_REQUEST = "HANDSHAKE_REQUEST"
    AUTHENTICATE = "AUTHENTICATE"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    REAUTH_PROCESS_HANDSHAKE = "REAUTH_PROCESS_HANDSHAKE"
    REAUTH_BAD_MECHANISM = "REAUTH_BAD_MECHANISM"


@dataclass(frozen=True, slots=True)
class SaslSession:
    """The result of an authentication: SASL mechanism, user, and how long the session lasts.

    lifetime_ms  milliseconds from the authentication on; None: the session does not end
    """

    mechanism: str
    user: str
    lifetime_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SaslState:
    """A connection between two frames.

    session             what holds now: None until the first authentication is complete
    server              the exchange that runs in phase AUTHENTICATE
    has_requests        tokens come in SaslAuthenticate requests
    reauthenticated_ms  when the last re-authentication began
    """

    phase: SaslPhase = SaslPhase.INITIAL_REQUEST
    session: SaslSession | None = None
    mechanism: str = ""
    server: SaslServer | None = None
    has_requests: bool = False
    reauthenticated_ms: int | None = None
    refusal: str = ""

    @property
    def is_complete(self) -> bool:
        return self.phase is SaslPhase.COMPLETE

    @property
    def what(self) -> str:
        return "authentication" if self.session is None else "re-authentication"


@dataclass(frozen=True, slots=True)
class SaslOutcome:
    """The outcome of one frame.

    answer      the response, without its length
    for_broker  the request is ApiVersions: the broker answers it
    refused_by  the request is another one: the broker answers it with this error
    failure     why the connection ends
    is_delayed  the answer and the end come `connection.failed.authentication.delay.ms` later
    """

    state: SaslState
    answer: bytes | None = None
    for_broker: bool = False
    refused_by: StratalogError | None = None
    failure: str = ""
    is_delayed: bool = False


@dataclass(frozen=True, slots=True)
class SaslRules:
    """What a listener accepts: mechanisms by name, and `connections.max.reauth.ms` (0: sessions do not end)."""

    mechanisms: Mapping[str, NewSaslServer]
    max_reauth_ms: int = 0


_SERVED: Mapping[int, range] = {
    key: served_versions(key) for key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
}


def reauthenticating(state: SaslState, now_ms: int) -> SaslState | None:
    """The state in which a complete connection authenticates again; None: SaslHandshake is a request like others.

    Sessions that do not end are not renewed, and none within a second after the last renewal began.
    """
    if state.session is None or state.session.lifetime_ms is None:
        return None
    last_ms = state.reauthenticated_ms
    if last_ms is not None and 0 <= now_ms - last_ms < REAUTHENTICATION_INTERVAL_MS:
        return None
    return SaslState(SaslPhase.REAUTH_PROCESS_HANDSHAKE, state.session, reauthenticated_ms=now_ms)


def decide(state: SaslState, frame: bytes, rules: SaslRules, now_ms: int) -> SaslOutcome:
    """What follows from the next frame of a connection that is not authenticated, or authenticates again."""
    match state.phase:
        case SaslPhase.AUTHENTICATE if state.has_requests:
            return _authenticate(state, frame, rules, now_ms)
        case SaslPhase.AUTHENTICATE:
            return _bare_token(state, frame, rules, now_ms)
        case SaslPhase.REAUTH_BAD_MECHANISM:
            return _failed(state, state.refusal)
        case SaslPhase.COMPLETE | SaslPhase.FAILED:
            return SaslOutcome(state)
    return _handshake_or_versions(state, frame, rules)


# -- before the exchange ------------------------------------------------------------------------------------------


def _handshake_or_versions(state: SaslState, frame: bytes, rules: SaslRules) -> SaslOutcome:
    is_first = state.phase is SaslPhase.INITIAL_REQUEST
    key = _HEADER.unpack_from(frame)[0] if len(frame) >= _HEADER.size else None
    name = api_name(key) if key is not None else None
    if name is None:
        if is_first:
            return _failed(state, "Exception handling first SASL packet from client, GSSAPI is not supported by server")
        return _closed(state, f"a frame that is no request, {len(frame)} bytes, during {state.what}")
    if is_first:
        state = replace(state, phase=SaslPhase.HANDSHAKE_OR_VERSIONS_REQUEST)
    if key not in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE):
        return _failed(state, f"Unexpected Kafka request of type {name} during SASL handshake.")
    try:
        request = decode_request(frame, _SERVED, bounds_before_login())
    except (errors.InvalidRequestError, errors.UnsupportedVersionError) as reason:
        return _closed(state, f"unreadable request: {reason}")
    return _versions(state, request) if key == ApiKey.API_VERSIONS else _handshake(state, request, rules)


def _versions(state: SaslState, request: RequestFrame) -> SaslOutcome:
    if state.phase is not SaslPhase.HANDSHAKE_OR_VERSIONS_REQUEST:
        return _closed(state, f"Unexpected ApiVersions request received during SASL authentication state {state.phase}")
    if request.entity is not None and invalid_software_name(request.entity) is None:
        state = replace(state, phase=SaslPhase.HANDSHAKE_REQUEST)
    return SaslOutcome(state, for_broker=True)


def _handshake(state: SaslState, request: RequestFrame, rules: SaslRules) -> SaslOutcome:
    assert request.entity is not None
    mechanism = str(request.entity.mechanism)
    known = mechanism in rules.mechanisms
    error = None if known else errors.UnsupportedSaslMechanismError()
    answer = _answer(request, {"error_code": error, "mechanisms": list(rules.mechanisms)})
    if not known:
        return _failed(state, f"Unsupported SASL mechanism {mechanism}", answer)
    if state.session is not None and state.session.mechanism != mechanism:
        refusal = (
            f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of mechanism "
            f"'{state.session.mechanism}'"
        )
        return SaslOutcome(replace(state, phase=SaslPhase.REAUTH_BAD_MECHANISM, refusal=refusal), answer)
    begun = replace(
        state,
        phase=SaslPhase.AUTHENTICATE,
        mechanism=mechanism,
        server=rules.mechanisms[mechanism](),
        has_requests=request.version >= FIRST_WITH_AUTHENTICATE,
    )
    return SaslOutcome(begun, answer)


# -- the exchange -------------------------------------------------------------------------------------------------


def _authenticate(state: SaslState, frame: bytes, rules: SaslRules, now_ms: int) -> SaslOutcome:
    key = _HEADER.unpack_from(frame)[0] if len(frame) >= _HEADER.size else None
    name = api_name(key) if key is not None else None
    if name is None:
        return _closed(state, f"a frame that is no request, {len(frame)} bytes, during {state.what}")
    if key != ApiKey.SASL_AUTHENTICATE:
        error = errors.IllegalSaslStateError(f"Unexpected Kafka request of type {name} during SASL authentication.")
        failed = replace(state, phase=SaslPhase.FAILED)
        return SaslOutcome(failed, refused_by=error, failure=str(error), is_delayed=True)
    try:
        request = decode_request(frame, _SERVED, bounds_before_login())
    except (errors.InvalidRequestError, errors.UnsupportedVersionError) as reason:
        return _closed(state, f"unreadable request: {reason}")
    try:
        step = _step(state, request.entity.auth_bytes, now_ms)  # type: ignore[union-attr]  # not ApiVersions
    except InvalidCredentialsError as reason:
        text = (
            f"Authentication failed during {state.what} due to invalid credentials with SASL mechanism "
            f"{state.mechanism}"
        )
        return _refused(state, request, errors.SaslAuthenticationFailedError(text), f"{text}: {reason}")
    except errors.SaslAuthenticationFailedError as error:
        return _refused(state, request, error, str(error))
    after = _after(state, step, rules, now_ms)
    values: dict[str, Any] = {"error_code": None, "auth_bytes": step.answer, "session_lifetime": 0}
    if after.is_complete and after.session is not None:
        values["session_lifetime"] = after.session.lifetime_ms or 0
    return SaslOutcome(after, _answer(request, values))


def _refused(state: SaslState, request: RequestFrame, error: StratalogError, failure: str) -> SaslOutcome:
    return _failed(state, failure, _answer(request, {"error_code": error, "error_message": str(error)}))


def _bare_token(state: SaslState, token: bytes, rules: SaslRules, now_ms: int) -> SaslOutcome:
    try:
        step = _step(state, token, now_ms)
    except InvalidCredentialsError as reason:
        return _closed(state, str(reason))
    except errors.SaslAuthenticationFailedError as error:
        return _failed(state, str(error))
    return SaslOutcome(_after(state, step, rules, now_ms), step.answer)


def _step(state: SaslState, token: bytes, now_ms: int) -> SaslStep:
    assert state.server is not None
    step = state.server.evaluate(token, now_ms)
    if state.session is not None and step.user not in (None, state.session.user):
        raise errors.SaslAuthenticationFailedError(
            f"Cannot change principals during re-authentication from User.{state.session.user}: User.{step.user}"
        )
    return step


def _after(state: SaslState, step: SaslStep, rules: SaslRules, now_ms: int) -> SaslState:
    if step.user is None:
        return state
    session = SaslSession(state.mechanism, step.user, session_lifetime_ms(step.expires_ms, rules.max_reauth_ms, now_ms))
    return SaslState(SaslPhase.COMPLETE, session, reauthenticated_ms=state.reauthenticated_ms)


LIFETIME_MS_MAX = 100 * 366 * 86_400_000
"""A hundred years: what a token or a setting says beyond that is no time that a message can carry."""


def session_lifetime_ms(expires_ms: int | None, max_reauth_ms: int, now_ms: int) -> int | None:
    """How long a session lasts: until the credential ends, but `connections.max.reauth.ms` at most; None: for ever.

    >>> session_lifetime_ms(5_000, 3_000, now_ms=1_000), session_lifetime_ms(None, 0, now_ms=1_000)
    (3000, None)
    """
    bounds = [] if expires_ms is None else [expires_ms - now_ms]
    if max_reauth_ms > 0:
        bounds.append(max_reauth_ms)
    return max(0, min(*bounds, LIFETIME_MS_MAX)) if bounds else None


# -- answers ------------------------------------------------------------------------------------------------------


def _answer(request: RequestFrame, values: Values) -> bytes:
    return encode_response(request.correlation_id, values, response_type(request.api_key, request.version))


def _failed(state: SaslState, failure: str, answer: bytes | None = None) -> SaslOutcome:
    """As Kafka's AuthenticationException."""
    return SaslOutcome(replace(state, phase=SaslPhase.FAILED), answer, failure=failure, is_delayed=True)


def _closed(state: SaslState, failure: str) -> SaslOutcome:
    """As any other exception there."""
    return SaslOutcome(replace(state, phase=SaslPhase.FAILED), failure=failure)
