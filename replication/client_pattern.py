"""Regular expressions that somebody else sends, or that somebody else's text is matched with: RE2's, and bounded. Pure.

RE2 does not backtrack: it matches in time that grows with the length of the expression times that of the text. So both
are bounded, the expression here. Python's `re` may take for ever, and holds the interpreter meanwhile.

RE2 holds the interpreter, too, while it compiles. It does so for the whole of an expression before it finds that this
needs too much memory; so what surely does is counted first: Unicode's classes, each of hundreds of ranges, and
repetitions that are written out. The newest expressions are remembered: all members of a group send the same one.
Source: RE2/J in Kafka's `TopicRegexResolver` (KIP-848) and `TransactionStateManager` (KIP-1152).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

import re2

from stratalog.storage.errors import InvalidRegularExpressionError

PATTERN_BYTES_MAX: Final = 4_096
"""The longest expression, in UTF-8."""
MEMORY_BYTES_MAX: Final = 256 << 10
"""Memory of one compiled expression. One that needs more, as of nested counts, is refused; so is no list of names."""
UNICODE_CLASSES_MAX: Final = 32
"""The most classes `\\p…` and `\\P…` in an expression. RE2 refuses fewer of the large ones by itself."""
COPIES_MAX: Final = 8_000
"""The sum of all counts of repetitions, such as 5 of `a{2,5}`. RE2 itself multiplies those that are nested, up to a
thousand each."""
REMEMBERED: Final = 64
_SHOWN_CHARACTERS_MAX: Final = 200
_TOO_LARGE: Final = "pattern too large"
_UNICODE_CLASS: Final = re.compile(r"\\[pP]")
_REPETITION: Final = re.compile(r"\{(?:[0-9]{1,4},)?([0-9]{1,4}),?\}")

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
    pattern, reason = _compiled(text)
    if reason is not None:
        raise _invalid(text, what, reason)
    return pattern


@lru_cache(REMEMBERED)
def _compiled(text: str) -> tuple[Any, str | None]:
    """The compiled expression, or why there is none."""
    copies = sum(int(count) for count in _REPETITION.findall(text))
    if copies > COPIES_MAX or len(_UNICODE_CLASS.findall(text)) > UNICODE_CLASSES_MAX:
        return None, _TOO_LARGE
    try:
        return re2.compile(text, _OPTIONS), None
    except UnicodeEncodeError as reason:
        return None, str(reason)
    except re2.error as reason:
        why = reason.args[0]
        return None, why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)


def _invalid(text: str, what: str, reason: str) -> InvalidRegularExpressionError:
    return InvalidRegularExpressionError(f"{what} `{_cut(text)}` is not a valid regular expression: {_cut(reason)}.")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}…"
