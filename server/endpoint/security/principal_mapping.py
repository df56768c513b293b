"""`ssl.principal.mapping.rules`: the user that a certificate's distinguished name stands for. Pure.

A rule is `DEFAULT`, the name itself, or `RULE:pattern/replacement/` with L or U for lower or upper case. The first rule
that matches the whole name counts. Patterns are RE2's: the network thread matches them with what a certificate says.
Source: Kafka's `SslPrincipalMapper`, `DefaultKafkaPrincipalBuilder` (KIP-371).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from stratalog.replication.client_pattern import client_pattern
from stratalog.storage.config_def import invalid_value
from stratalog.storage.errors import InvalidRegularExpressionError, SaslAuthenticationFailedError

MAPPING_RULES = "ssl.principal.mapping.rules"
_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_BACK_REFERENCE = re.compile(r"\$([0-9]+)")


@dataclass(frozen=True, slots=True)
class MappingRule:
    """One rule; `pattern`, of `client_pattern`, None is DEFAULT. `case` is "", "L" or "U"."""

    pattern: Any
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The user; None when the rule does not match."""
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        user = _BACK_REFERENCE.sub(lambda reference: _referenced(found, reference[1]), self.replacement)
        user = re.sub(r"\\(.)", r"\1", user)
        return user.lower() if self.case == "L" else user.upper() if self.case == "U" else user


def _referenced(found: Any, digits: str) -> str:
    """`$12` with three groups is group 1 and a 2; `$4` with three groups is itself, as in Kafka."""
    groups = found.re.groups
    for end in range(len(digits), 0, -1):
        if int(digits[:end]) <= groups:
            return (found[int(digits[:end])] or "") + digits[end:]
    return f"${digits}"


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """The rules in their order. InvalidConfigError for what is no rule.

    >>> parse_rules("RULE:^CN=(.*?),OU=.*$/$1/L, DEFAULT")[0].apply("CN=Alice,OU=Sales,O=Acme")
    'alice'
    """
    rules: list[MappingRule] = []
    at = 0
    text = text.strip()
    while at < len(text):
        found = _SPLITTER.match(text, at)
        if found is None or found.end() == at:
            break
        at = found.end()
        rules += _rule(text, found)
    return tuple(rules)


def _rule(text: str, found: re.Match[str]) -> list[MappingRule]:
    rule, is_default, pattern, replacement, case = found.groups()[:5]
    if is_default:
        return [MappingRule(None)]
    if pattern is None:
        if rule.strip():
            raise invalid_value(MAPPING_RULES, text, f"Invalid rule: {rule}")
        return []
    if rule != f"RULE:{pattern}/{replacement}/{case}":
        raise invalid_value(MAPPING_RULES, text, f"Invalid rule: `{rule}`")
    try:
        return [MappingRule(client_pattern(pattern, "pattern"), replacement, case)]
    except InvalidRegularExpressionError as reason:
        raise invalid_value(MAPPING_RULES, text, f"Invalid rule: `{rule}`: {reason}") from reason


def user_of(rules: tuple[MappingRule, ...], name: str) -> str:
    """The user of a distinguished name. SaslAuthenticationFailedError when no rule matches: its connection closes."""
    for rule in rules:
        user = rule.apply(name)
        if user is not None:
            return user
    raise SaslAuthenticationFailedError(f"Failed to map name for '{name}' based on SSL principal mapping rules.")
