"""Avro payloads as JSON text, for people: bounded in values, so that no payload costs more than it may. Pure.

An array of nulls takes no byte for an item: a few bytes of Avro may stand for billions of values. Every value counts
here, also those without bytes.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import threading
from decimal import Context, Decimal

from stratalog.clients.schemas.avro_binary.decoding import AvroMisfitError, AvroReading, Convert, ValueBudget
from stratalog.clients.schemas.compatibility.avro import AvroType
from stratalog.storage.errors import SerializationError

VALUES_MAX = 20_000
"""Number of values of one payload, all within it counted."""
DECIMAL_BYTES_MAX = 64
"""Bytes of a decimal up to which it is written as a number."""
_EXACT = Context(prec=DECIMAL_BYTES_MAX * 3)
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - the zone stands in the text
_DAY = dt.date(1970, 1, 1)


class AvroText:
    """Reads payloads of one schema. Thread-safe."""

    def __init__(self, node: AvroType) -> None:
        self._budget = ValueBudget(VALUES_MAX)
        self._reading = AvroReading(node, node, _JsonForms(), self._budget)
        self._is_bytes = node.type == "bytes" and not node.logical
        self._lock = threading.Lock()

    def __call__(self, payload: bytes) -> str:
        """JSON. SerializationError for bytes that do not fit, and for too many values."""
        if self._is_bytes:  # they stand for themselves
            return json.dumps(_bytes_text(payload))
        try:
            with self._lock:
                self._budget.left = VALUES_MAX
                value = self._reading.value(payload)
            return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
        except AvroMisfitError as reason:
            raise SerializationError(f"the bytes do not fit the Avro schema: {reason}") from reason
        except RecursionError:
            raise SerializationError("the value is nested too deeply") from None


class _JsonForms:
    """Plain values as JSON has them: times by ISO 8601, decimals as text, bytes as hexadecimal digits."""

    def value(self, node: AvroType) -> Convert | None:
        if node.logical == "decimal":
            scale = node.scale
            return lambda data: _decimal_text(data, scale)
        if node.type in ("bytes", "fixed"):
            return _bytes_text
        if node.type in ("float", "double"):
            return _number
        if node.logical == "date":
            return _date_text
        kind, _, unit = node.logical.rpartition("-")
        if kind == "time":
            return lambda value: _time_text(value, unit)
        if kind.endswith("timestamp"):
            zone = "" if kind.startswith("local") else "Z"
            return lambda value: _timestamp_text(value, unit, zone)
        return None

    def member(self, union: AvroType, place: int) -> tuple[AvroType, Convert | None]:
        return union.branches[place], None


def _bytes_text(data: bytes) -> str:
    """
    >>> _bytes_text(b"a\\xff")
    '0x61ff'
    """
    return f"0x{data.hex()}"


def _decimal_text(data: bytes, scale: int) -> str:
    """
    >>> _decimal_text(b"\\x04\\xd2", 2)
    '12.34'
    """
    if not 0 < len(data) <= DECIMAL_BYTES_MAX:
        return _bytes_text(data)
    return str(Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT))


def _number(value: float) -> float | str:
    """JSON has neither infinity nor NaN."""
    return value if math.isfinite(value) else str(value)


def _date_text(days: int) -> str | int:
    """Dates beyond the calendar stay numbers."""
    try:
        return (_DAY + dt.timedelta(days)).isoformat()
    except OverflowError:
        return days


def _timestamp_text(value: int, unit: str, zone: str) -> str | int:
    """
    >>> _timestamp_text(1_500, "millis", "Z"), _timestamp_text(10**18 + 7, "nanos", "")
    ('1970-01-01T00:00:01.500Z', '2001-09-09T01:46:40.000000007')
    """
    digits = {"millis": 3, "micros": 6, "nanos": 9}.get(unit)
    if digits is None:
        return value
    seconds, part = divmod(value, 10**digits)
    try:
        return f"{(_EPOCH + dt.timedelta(seconds=seconds)).isoformat()}.{part:0{digits}}{zone}"
    except OverflowError:
        return value


def _time_text(value: int, unit: str) -> str | int:
    """
    >>> _time_text(3_600_001, "millis"), _time_text(-1, "millis")
    ('01:00:00.001', -1)
    """
    text = _timestamp_text(value, unit, "")
    is_of_day = isinstance(text, str) and text.startswith("1970-01-01T")
    return text.partition("T")[2] if is_of_day and isinstance(text, str) else value
