"""Regular expressions that somebody else sends, or that somebody else's text is matched with: RE2's, and bounded. Pure.

RE2 does not backtrack: it matches in time that grows with the length of the expression times that of the text. So both
are bounded, the expression here. Python's `re` may take for ever, and holds the interpreter meanwhile.
Source: RE2/J in Kafka's `TopicRegexResolver` (KIP-848) and `TransactionStateManager` (KIP-1152).
"""

from __future__ import annotations

from typing import Any, Final

import re2

from stratalog.storage.errors import InvalidRegularExpressionError

PATTERN_BYTES_MAX: Final = 4_096
"""The longest expression, in UTF-8."""
MEMORY_BYTES_MAX: Final = 256 << 10
"""Memory of one compiled expression. One that needs more, as of nested counts, is refused; so is no list of names."""
_SHOWN_CHARACTERS_MAX: Final = 200

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = MEMORY_BYTES_MAX


def client_pattern(text: str, what: str) -> Any:
    """The compiled expression, with `fullmatch` and `search` as of Python's. `what` names the field in errors.

    Raises INVALID_REGULAR_EXPRESSION, with the expression and the reason:
    ``SubscribedTopicRegex `(a` is not a valid regular expression: missing ): (a.``
    """
    size_bytes = len(text.encode("utf-8", "surrogatepass"))
    if size_bytes > PATTERN_BYTES_MAX:
        raise _invalid(text, what, f"it has {size_bytes} bytes > {PATTERN_BYTES_MAX}")
    try:
        return re2.compile(text, _OPTIONS)
    except UnicodeEncodeError as reason:
        raise _invalid(text, what, str(reason)) from reason
    except re2.error as reason:
        why = reason.args[0]
        raise _invalid(text, what, why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)) from reason


def _invalid(text: str, what: str, reason: str) -> InvalidRegularExpressionError:
    return InvalidRegularExpressionError(f"{what} `{_cut(text)}` is not a valid regular expression: {_cut(reason)}.")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}…"
