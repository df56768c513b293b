"""JSON texts as values, strictly: one document of RFC 8259, its numbers as they are written. Pure.

Python's reader takes NaN, and makes infinity of 1e400 and another number of 2**53 + 0.5. Here a number stays its text
until a type asks for it, and each type says what it holds: the outcome of a value does not depend on the values around
it, nor on how many are read at once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

DEPTH_MAX = 500
"""The deepest nesting that is read; Jackson, which Spark uses, ends at 1,000."""
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]')
_SHOWN_MAX = 80
_WHOLE = re.compile(r"-?[0-9]{1,19}")


class JsonMisfitError(ValueError):
    """A text that is no JSON, or a value that its type does not hold; the text of the latter begins with its path."""


class JsonNumber(str):
    """A number as it is written."""

    __slots__ = ()


def parsed(payload: bytes) -> Any:
    """The value of a text: None, a bool, a str, a `JsonNumber`, a list or a dict. JsonMisfitError if it is no JSON.

    Of two members of an object with one name the last one counts, as in Spark.

    >>> parsed(b'{"a": [1.10, "x"]}')
    {'a': ['1.10', 'x']}
    """
    try:
        text = payload.decode()
    except UnicodeDecodeError as reason:
        raise JsonMisfitError(f"the bytes are no UTF-8: {reason.reason}") from None
    if text.count("[") + text.count("{") > DEPTH_MAX and _depth(text) > DEPTH_MAX:
        raise JsonMisfitError(f"the bytes are no JSON: nested deeper than {DEPTH_MAX}")
    try:
        return json.loads(text, parse_float=JsonNumber, parse_int=JsonNumber, parse_constant=_refused)
    except RecursionError:
        raise JsonMisfitError("the bytes are no JSON: nested too deeply") from None
    except ValueError as reason:
        raise JsonMisfitError(f"the bytes are no JSON: {reason}") from None


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _depth(text: str) -> int:
    depth = deepest = 0
    for found in _BRACKET.finditer(text):
        if found[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif found[0] in "]}":
            depth -= 1
    return deepest


def as_text(value: Any) -> str:
    """A value of `parsed` as JSON, its numbers as they were written.

    >>> as_text(parsed(b'{"a": [1.10, null, true, "x"]}'))
    '{"a":[1.10,null,true,"x"]}'
    """
    if isinstance(value, JsonNumber):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quoted(name)}:{as_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(as_text, value)) + "]"
    return _quoted(value)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def wrong(value: Any, kind: str) -> JsonMisfitError:
    """The error of a value that is none of a type."""
    text = as_text(value)
    return JsonMisfitError(f": {text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + '…'} is no {kind}")


# -- types -------------------------------------------------------------------------------------------------

Fit = Callable[[Any], Any]
"""A value of `parsed`, not null, as a type has it. JsonMisfitError."""


def text_of(value: Any) -> str:
    """A string."""
    if type(value) is not str:
        raise wrong(value, "string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise JsonMisfitError(": half of a surrogate pair is no text") from None
    return value


def any_text_of(value: Any) -> str:
    """Any value as its JSON."""
    return text_of(as_text(value))


def boolean_of(value: Any) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise wrong(value, "boolean")
    return value


def double_of(value: Any) -> float:
    """The double that is nearest to a number."""
    if not isinstance(value, JsonNumber):
        raise wrong(value, "number")
    found = float(value)
    if math.isinf(found):
        raise wrong(value, "double, which ends at 1.8e308")
    return found


def long_of(value: Any) -> int:
    """A whole number of 64 bits, also as 1.0 or 1e3, which a JSON schema calls integers."""
    if not isinstance(value, JsonNumber):
        raise wrong(value, "integer")
    if _WHOLE.fullmatch(value):
        number = int(value)
    else:
        exact = decimal_of(value)
        if exact.adjusted() > 20 or exact != exact.to_integral_value():
            raise wrong(value, "integer")
        number = int(exact)
    if not -(2**63) <= number < 2**63:
        raise wrong(value, "integer of 64 bits")
    return number


def decimal_of(value: Any) -> Decimal:
    """The number itself."""
    if not isinstance(value, JsonNumber):
        raise wrong(value, "number")
    try:
        return Decimal(str(value))
    except InvalidOperation:
        raise wrong(value, "decimal") from None


def fits_decimal(value: Decimal, precision: int, scale: int) -> bool:
    """Whether a decimal of so many digits, `scale` of them behind the point, is the number.

    >>> fits_decimal(Decimal("1.50"), 2, 1), fits_decimal(Decimal("1.55"), 2, 1), fits_decimal(Decimal("1e400"), 38, 0)
    (True, False, False)
    """
    if not value.is_finite():
        return False
    if not value:
        return True
    sign, digits, exponent = value.as_tuple()
    del sign
    assert isinstance(exponent, int)
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    return value.adjusted() < precision - scale and -(exponent + zeros) <= scale
