"""SASL/OAUTHBEARER: a signed token (JWT) says who the client is. Pure.

PyJWT checks the signature, audience and issuer; times are compared here, with the time that the caller gives. Only
asymmetric signatures count: a key that verifies could sign with HMAC, too.
Source: RFC 7628, KIP-255, KIP-768, Kafka's `OAuthBearerSaslServer`, `OAuthBearerClientInitialResponse`,
`ValidatorAccessTokenValidator`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from stratalog.server.endpoint.security.sasl_server import InvalidCredentialsError, SaslStep
from stratalog.storage.errors import SaslAuthenticationFailedError

OAUTHBEARER = "OAUTHBEARER"
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
INVALID_TOKEN = b'{"status":"invalid_token"}'
"""Kafka's answer to every token that does not count; the client acknowledges it with `ACKNOWLEDGED`."""
ACKNOWLEDGED = b"\x01"
_SASL_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIRS = r"(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*"
_INITIAL_RESPONSE = re.compile(rf"n,(?:a=(?P<authzid>{_SASL_NAME}))?,\x01(?P<pairs>{_PAIRS})\x01")
_AUTH = re.compile(r"(?P<scheme>\w+)[ ]+(?P<token>[-_~+/.a-zA-Z0-9]+=*)")


class SigningKeys(Protocol):
    """The public keys of who issues tokens."""

    def key(self, key_id: str | None) -> Any:
        """PyJWT's key of this id; without an id, the only key. None: it is not known, and will be asked for."""


@dataclass(frozen=True, slots=True)
class BearerToken:
    """Claims of a valid token: the user, and the wall time at which the token expires."""

    user: str
    expires_ms: int


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Conditions that a token has to meet: `sasl.oauthbearer.*`."""

    audiences: tuple[str, ...] = ()
    issuer: str = ""
    clock_skew_ms: int = 30_000
    user_claim: str = "sub"


def validated(token: str, keys: SigningKeys, rules: TokenRules, now_ms: int) -> BearerToken:
    """The content of a token that counts. InvalidCredentialsError for another one, with the values compared."""
    import jwt

    try:
        key = keys.key(jwt.get_unverified_header(token).get("kid"))
        if key is None:
            raise InvalidCredentialsError("the token is signed by a key that is not known")
        claims = jwt.decode(
            token,
            key=key,
            algorithms=list(ALGORITHMS),
            audience=rules.audiences or None,
            issuer=rules.issuer or None,
            options={
                "require": ["exp", "iat"],
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
                "verify_sub": False,
            },
        )
    except jwt.PyJWTError as reason:
        raise InvalidCredentialsError(f"Could not validate the access token: {reason}") from reason
    return _timely(claims, rules, now_ms)


def _timely(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> BearerToken:
    expires_ms = _milliseconds(claims, "exp")
    if now_ms - rules.clock_skew_ms >= expires_ms:
        raise InvalidCredentialsError(f"the token expired at {expires_ms}, it is {now_ms}")
    if "nbf" in claims and now_ms + rules.clock_skew_ms < _milliseconds(claims, "nbf"):
        raise InvalidCredentialsError(f"the token is not valid before {claims['nbf']} s, it is {now_ms}")
    _milliseconds(claims, "iat")
    user = claims.get(rules.user_claim)
    if not isinstance(user, str) or not user.strip():
        raise InvalidCredentialsError(f"the token's claim '{rules.user_claim}' names no user: {user!r}")
    return BearerToken(user.strip(), expires_ms)


def _milliseconds(claims: Mapping[str, Any], name: str) -> int:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
        raise InvalidCredentialsError(f"the token's claim '{name}' is no time: {value!r}")
    return int(value * 1_000)


class OAuthBearerServer:
    """One exchange: a token that counts, or the answer to one that does not and the client's acknowledgement."""

    def __init__(self, keys: SigningKeys, rules: TokenRules) -> None:
        self.claimed_user = ""
        self._keys = keys
        self._rules = rules
        self._refusal: bytes = b""

    def evaluate(self, token: bytes, now_ms: int) -> SaslStep:
        if token == ACKNOWLEDGED and self._refusal:
            raise SaslAuthenticationFailedError(self._refusal.decode())
        self._refusal = b""
        authorization_id, access_token = initial_response(token)
        try:
            found = validated(access_token, self._keys, self._rules, now_ms)
        except InvalidCredentialsError:
            self._refusal = INVALID_TOKEN
            return SaslStep(INVALID_TOKEN)
        if authorization_id not in ("", found.user):
            raise SaslAuthenticationFailedError(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({found.user})"
            )
        return SaslStep(b"", found.user, found.expires_ms)


def initial_response(token: bytes) -> tuple[str, str]:
    """(authorization id, access token) of a client's first message. InvalidCredentialsError for another form."""
    found = _INITIAL_RESPONSE.fullmatch(token.decode(errors="replace"))
    if found is None:
        raise InvalidCredentialsError("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    if "auth" not in pairs:
        raise InvalidCredentialsError("Invalid OAUTHBEARER client first message: 'auth' not specified")
    auth = _AUTH.fullmatch(pairs["auth"])
    if auth is None:
        raise InvalidCredentialsError("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if auth["scheme"].lower() != "bearer":
        raise InvalidCredentialsError(f"Invalid scheme in OAUTHBEARER client first message: {auth['scheme']}")
    return found["authzid"] or "", auth["token"]
