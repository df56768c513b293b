"""Users and passwords of PLAIN, and a broker's own login, as `sasl.jaas.config` names them. Pure.

Source: Kafka's `JaasConfig`, `PlainLoginModule`, `PlainServerCallbackHandler`.
"""

from __future__ import annotations

import re

from stratalog.storage.errors import InvalidConfigError

SASL_JAAS_CONFIG = "sasl.jaas.config"
SCRAM_LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER_PREFIX = "user_"
_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'|([^\s=;"\']+)|([=;]))')


def plain_users(text: str) -> dict[str, str]:
    """Password by user.

    >>> plain_users('org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";')
    {'alice': 'secret'}

    Raises InvalidConfigError for another form or module.
    """
    options = _options(text)
    return {name.removeprefix(USER_PREFIX): value for name, value in options if name.startswith(USER_PREFIX)}


def login_of(text: str) -> tuple[str, str]:
    """`username` and `password`, by which a broker logs in to others; "" for what is not there. InvalidConfigError.

    >>> login_of('org.apache.kafka.common.security.scram.ScramLoginModule required username="b" password="p";')
    ('b', 'p')
    """
    found = dict(_options(text))
    return found.get("username", ""), found.get("password", "")


def _options(text: str) -> list[tuple[str, str]]:
    if not text.strip():
        return []
    module, options = _parse(text)
    if module not in (PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE):
        raise InvalidConfigError(
            f"{SASL_JAAS_CONFIG}: the login module must be {PLAIN_LOGIN_MODULE} or {SCRAM_LOGIN_MODULE}, it is {module}"
        )
    return options


def _parse(text: str) -> tuple[str, list[tuple[str, str]]]:
    tokens = _tokens(text.strip())
    if len(tokens) < 3:
        raise _refused("Invalid JAAS config: expected a login module, a control flag and ';'")
    (module, _), (flag, _), *rest = tokens
    if flag.lower() not in _FLAGS:
        raise _refused("Control flag not specified in JAAS config")
    options: list[tuple[str, str]] = []
    while rest and rest[0] != (";", True):
        if len(rest) < 3 or rest[1] != ("=", True) or rest[2][1]:
            raise _refused(f"Value not specified for key '{rest[0][0]}' in JAAS config")
        options.append((rest[0][0], rest[2][0]))
        rest = rest[3:]
    if not rest:
        raise _refused("JAAS config entry not terminated by semi-colon")
    if len(rest) > 1:
        raise _refused("JAAS config property contains 2 login modules, should be 1 module")
    return module, options


def _tokens(text: str) -> list[tuple[str, bool]]:
    """(text, whether it is = or ;) of each token."""
    found: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _refused("Invalid JAAS config: a quote is not closed")
        double, single, word, mark = match.groups()
        quoted = double if double is not None else single
        plain = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else word or mark
        found.append((plain, mark is not None))
        at = match.end()
    return found


def _refused(reason: str) -> InvalidConfigError:
    return InvalidConfigError(f"{SASL_JAAS_CONFIG}: {reason}")  # without the text, which has passwords
