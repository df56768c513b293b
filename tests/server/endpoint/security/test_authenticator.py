"""The order of SASL requests as a table: what a frame is answered in each phase, and what ends the connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from stratalog.server.endpoint.security.authenticator import (
    LIFETIME_MS_MAX,
    SaslOutcome,
    SaslPhase,
    SaslRules,
    SaslState,
    decide,
    reauthenticating,
    session_lifetime_ms,
)
from stratalog.server.endpoint.security.plain import PlainServer
from stratalog.server.endpoint.security.sasl_server import InvalidCredentialsError, SaslStep
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import decode_response, encode_request
from stratalog.wire.messages.schema import request_type, response_type
from tests.kio_messages import build

ALICE, WRONG = b"\0alice\0secret", b"\0alice\0guess"


class Expiring:
    """A mechanism whose credentials end at 5,000 ms; `bad` is refused without a public reason."""

    def evaluate(self, token: bytes, now_ms: int) -> SaslStep:
        if token == b"bad":
            raise InvalidCredentialsError("no user of that name")
        return SaslStep(b"", token.decode(), 5_000)


RULES = SaslRules({"PLAIN": partial(PlainServer, {"alice": "secret", "bob": "bobs"}), "EXPIRING": Expiring})


def request(key: int, version: int, values: Mapping[str, Any] | None = None) -> bytes:
    return encode_request(7, "test", values or {}, request_type(key, version))


def versions(name: str = "test") -> bytes:
    return request(ApiKey.API_VERSIONS, 3, {"client_software_name": name, "client_software_version": "1"})


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return request(ApiKey.SASL_HANDSHAKE, version, {"mechanism": mechanism})


def token(data: bytes, version: int = 2) -> bytes:
    return request(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": data})


UNKNOWN_API = b"\x7f\xff\0\0\0\0\0\1\0\0"
SECOND_VERSION_UNKNOWN = b"\0\x12\0\x63\0\0\0\7"


@dataclass
class Dialogue:
    """Frames given to one connection; what each was answered."""

    rules: SaslRules = RULES
    state: SaslState = field(default_factory=SaslState)
    outcomes: list[SaslOutcome] = field(default_factory=list)

    def give(self, *frames: bytes, now_ms: int = 1_000) -> SaslOutcome:
        for frame in frames:
            self.outcomes.append(decide(self.state, frame, self.rules, now_ms))
            self.state = self.outcomes[-1].state
        return self.outcomes[-1]


def answered(outcome: SaslOutcome, key: int, version: int) -> Any:
    assert outcome.answer is not None
    correlation_id, response = decode_response(outcome.answer, key, version)
    assert correlation_id == 7
    return response


@pytest.mark.parametrize("begin", [[], [versions()]])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_client_is_authenticated(begin: list[bytes], version: int) -> None:
    dialogue = Dialogue()
    outcome = dialogue.give(*begin, handshake(), token(ALICE, version))
    greeting = answered(dialogue.outcomes[-2], ApiKey.SASL_HANDSHAKE, 1)
    assert (int(greeting.error_code), greeting.mechanisms) == (0, ("PLAIN", "EXPIRING"))
    response = answered(outcome, ApiKey.SASL_AUTHENTICATE, version)
    assert (int(response.error_code), response.auth_bytes, response.error_message) == (0, b"", None)
    assert outcome.state.phase is SaslPhase.COMPLETE
    assert outcome.state.session is not None
    assert (outcome.state.session.user, outcome.state.session.lifetime_ms) == ("alice", None)


def test_tokens_without_requests_follow_the_first_version_of_the_handshake() -> None:
    outcome = Dialogue().give(handshake(version=0), ALICE)
    assert (outcome.answer, outcome.state.phase) == (b"", SaslPhase.COMPLETE)
    refused = Dialogue().give(handshake(version=0), WRONG)
    assert (refused.answer, refused.is_delayed, refused.state.phase) == (None, True, SaslPhase.FAILED)
    bad = Dialogue().give(handshake("EXPIRING", 0), b"bad")
    assert (bad.answer, bad.is_delayed, bad.failure) == (None, False, "no user of that name")


# phase reached by | next frame | whether late | how the reason begins
ENDS: list[tuple[list[bytes], bytes, bool, str]] = [
    ([], request(ApiKey.METADATA, 12), True, "Unexpected Kafka request of type METADATA during SASL handshake."),
    ([], request(ApiKey.PRODUCE, 9), True, "Unexpected Kafka request of type PRODUCE during SASL handshake."),
    ([], token(ALICE), True, "Unexpected Kafka request of type SASL_AUTHENTICATE during SASL handshake."),
    ([], b"\x60", True, "Exception handling first SASL packet from client, GSSAPI is not supported by server"),
    ([], UNKNOWN_API, True, "Exception handling first SASL packet from client, GSSAPI is not supported by server"),
    ([versions()], UNKNOWN_API, False, "a frame that is no request, 10 bytes, during authentication"),
    (
        [versions()],
        request(ApiKey.METADATA, 12),
        True,
        "Unexpected Kafka request of type METADATA during SASL handshake.",
    ),
    (
        [versions()],
        versions(),
        False,
        "Unexpected ApiVersions request received during SASL authentication state HANDSHAKE_REQUEST",
    ),
    ([], handshake()[:-3], False, "unreadable request: "),
    ([], handshake("GSSAPI"), True, "Unsupported SASL mechanism GSSAPI"),
    (
        [handshake()],
        request(ApiKey.METADATA, 12),
        True,
        "Unexpected Kafka request of type METADATA during SASL authent",
    ),
    ([handshake()], handshake(), True, "Unexpected Kafka request of type SASL_HANDSHAKE during SASL authentication."),
    ([handshake()], token(ALICE)[:-8], False, "unreadable request: "),
    ([handshake()], b"x", False, "a frame that is no request, 1 bytes"),
    ([handshake()], token(WRONG), True, "Authentication failed: Invalid username or password"),
    ([handshake()], token(b"\0nobody\0secret"), True, "Authentication failed: Invalid username or password"),
]


@pytest.mark.parametrize(("before", "frame", "is_delayed", "reason"), ENDS)
def test_what_ends_a_connection(before: list[bytes], frame: bytes, is_delayed: bool, reason: str) -> None:
    outcome = Dialogue().give(*before, frame)
    assert outcome.failure.startswith(reason)
    assert (outcome.is_delayed, outcome.state.phase) == (is_delayed, SaslPhase.FAILED)
    assert decide(outcome.state, token(ALICE), RULES, 1_000).answer is None, "nothing is answered after that"


def test_an_unknown_mechanism_is_answered_with_those_that_are_known() -> None:
    response = answered(Dialogue().give(handshake("GSSAPI")), ApiKey.SASL_HANDSHAKE, 1)
    assert (int(response.error_code), response.mechanisms) == (33, ("PLAIN", "EXPIRING"))


def test_a_wrong_password_and_an_unknown_user_are_answered_alike() -> None:
    wrong = Dialogue().give(handshake(), token(WRONG)).answer
    unknown = Dialogue().give(handshake(), token(b"\0nobody\0guess")).answer
    assert wrong == unknown
    response = answered(Dialogue().give(handshake(), token(WRONG)), ApiKey.SASL_AUTHENTICATE, 2)
    assert (int(response.error_code), response.error_message) == (
        58,
        "Authentication failed: Invalid username or password",
    )


def test_a_reason_that_is_not_public_stays_in_the_log() -> None:
    outcome = Dialogue().give(handshake("EXPIRING"), token(b"bad"))
    text = "Authentication failed during authentication due to invalid credentials with SASL mechanism EXPIRING"
    assert answered(outcome, ApiKey.SASL_AUTHENTICATE, 2).error_message == text
    assert outcome.failure == f"{text}: no user of that name"


def test_another_request_during_the_exchange_is_refused_by_the_broker() -> None:
    outcome = Dialogue().give(handshake(), request(ApiKey.METADATA, 12))
    assert outcome.refused_by is not None
    assert outcome.refused_by.name == "ILLEGAL_SASL_STATE"


@pytest.mark.parametrize(
    ("frame", "phase"),
    [
        (versions(), SaslPhase.HANDSHAKE_REQUEST),
        (versions("a b"), SaslPhase.HANDSHAKE_OR_VERSIONS_REQUEST),
        (SECOND_VERSION_UNKNOWN, SaslPhase.HANDSHAKE_OR_VERSIONS_REQUEST),
    ],
)
def test_the_broker_answers_api_versions_and_the_client_may_ask_again_after_an_error(
    frame: bytes, phase: SaslPhase
) -> None:
    outcome = Dialogue().give(frame)
    assert (outcome.for_broker, outcome.state.phase, outcome.answer) == (True, phase, None)


# -- KIP-368 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expires_ms", "max_reauth_ms", "lifetime_ms"),
    [(None, 0, None), (None, 500, 500), (5_000, 0, 4_000), (5_000, 500, 500), (5_000, 9_000, 4_000), (900, 0, 0)],
)
def test_a_session_ends_with_the_credential_or_earlier(
    expires_ms: int | None, max_reauth_ms: int, lifetime_ms: int | None
) -> None:
    assert session_lifetime_ms(expires_ms, max_reauth_ms, now_ms=1_000) == lifetime_ms


@pytest.mark.parametrize(("expires_ms", "max_reauth_ms"), [(10**18, 0), (None, 2**63 - 1)])
def test_a_time_that_no_message_can_carry_is_a_session_of_a_hundred_years(
    expires_ms: int | None, max_reauth_ms: int
) -> None:
    lifetime_ms = session_lifetime_ms(expires_ms, max_reauth_ms, now_ms=1_000)
    assert lifetime_ms == LIFETIME_MS_MAX
    answer = build(
        response_type(ApiKey.SASL_AUTHENTICATE, 2),
        {"error_code": None, "auth_bytes": b"", "session_lifetime": lifetime_ms},
    )
    assert answer.session_lifetime == lifetime_ms


def authenticated(rules: SaslRules = RULES) -> Dialogue:
    dialogue = Dialogue(rules)
    outcome = dialogue.give(handshake("EXPIRING"), token(b"alice"))
    response = answered(outcome, ApiKey.SASL_AUTHENTICATE, 2)
    assert response.session_lifetime == 4_000
    return dialogue


def again(dialogue: Dialogue, now_ms: int) -> bool:
    """Whether the connection authenticates again."""
    begun = reauthenticating(dialogue.state, now_ms)
    dialogue.state = begun or dialogue.state
    return begun is not None


def test_a_session_is_renewed_once_a_second_at_most() -> None:
    dialogue = authenticated()
    assert again(dialogue, 2_000)
    outcome = dialogue.give(handshake("EXPIRING"), token(b"alice"), now_ms=2_000)
    assert (outcome.failure, outcome.state.phase) == ("", SaslPhase.COMPLETE)
    assert answered(outcome, ApiKey.SASL_AUTHENTICATE, 2).session_lifetime == 3_000
    assert not again(dialogue, 2_999)
    assert again(dialogue, 3_000)


def test_a_session_that_does_not_end_is_not_renewed() -> None:
    dialogue = Dialogue()
    dialogue.give(handshake(), token(ALICE))
    assert not again(dialogue, 2_000)


def test_a_renewal_keeps_user_and_mechanism() -> None:
    dialogue = authenticated()
    assert again(dialogue, 2_000)
    outcome = dialogue.give(handshake("EXPIRING"), token(b"bob"))
    text = "Cannot change principals during re-authentication from User.alice: User.bob"
    assert answered(outcome, ApiKey.SASL_AUTHENTICATE, 2).error_message == text
    assert outcome.is_delayed

    dialogue = authenticated()
    assert again(dialogue, 2_000)
    assert int(answered(dialogue.give(handshake()), ApiKey.SASL_HANDSHAKE, 1).error_code) == 0
    outcome = dialogue.give(token(ALICE))
    text = "SASL mechanism 'PLAIN' requested by client is not supported for re-authentication of mechanism 'EXPIRING'"
    assert (outcome.failure, outcome.answer, outcome.is_delayed) == (text, None, True)
