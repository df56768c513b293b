"""The rows of tables that an erasure of a topic means, as conditions of Spark's SQL. Pure.

The language is that of `storage.upkeep.erase`, whose parser has accepted the predicate before. Conditions are never
null, as a record without the field does not match there.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stratalog.clients.typed_tables.rows.evolution import quoted


@dataclass(frozen=True, slots=True)
class RecordParts:
    """Where a table has the parts of records; None for what it does not keep."""

    partition: str
    offset: str
    timestamp: str
    key: str | None = None
    value: str | None = None
    headers: str | None = None


class _LackingError(Exception):
    """The table does not keep the part of a record that a predicate asks about."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Rows to delete; `lacking` names the part of records that a table would need to keep to decide it."""

    sql: str = "false"
    lacking: str | None = None


def erased_rows(predicate: str, end_offsets: Sequence[int], columns: RecordParts) -> Condition:
    """The rows of records below `end_offsets[partition]` that match the predicate.

    >>> place = RecordParts("_partition", "_offset", "_timestamp", key="_key")
    >>> erased_rows('{"key": {"equals": "bob"}}', [7], place).sql
    "((`_partition` = 0 AND `_offset` < 7)) AND (coalesce(`_key` = X'626F62', false))"
    >>> erased_rows('{"value": {"contains": "bob"}}', [7], place).lacking
    'value'
    """
    ranges = [
        f"({quoted(columns.partition)} = {partition} AND {quoted(columns.offset)} < {end})"
        for partition, end in enumerate(end_offsets)
        if end > 0
    ]
    if not ranges:
        return Condition()
    try:
        matching = _sql(json.loads(predicate), columns)
    except _LackingError as part:
        return Condition(lacking=str(part))
    return Condition(f"({' OR '.join(ranges)}) AND ({matching})")


def _sql(body: Any, columns: RecordParts) -> str:
    ((name, operand),) = body.items()
    if name in ("all", "any"):
        return (" AND " if name == "all" else " OR ").join(f"({_sql(part, columns)})" for part in operand)
    if name == "not":
        return f"NOT ({_sql(operand, columns)})"
    if name == "timestamp_ms":
        return _of_timestamp(operand, quoted(columns.timestamp))
    if name == "header":
        return _of_header(operand, _kept("headers", columns.headers))
    return _of_bytes(operand, _kept(name, {"key": columns.key, "value": columns.value}[name]))


def _kept(part: str, column: str | None) -> str:
    if column is None:
        raise _LackingError(part)
    return quoted(column)


def _of_bytes(operand: Mapping[str, Any], column: str) -> str:
    ((operation, wanted),) = operand.items()
    if operation == "is_null":
        return f"{column} IS {'' if wanted else 'NOT '}NULL"
    if operation == "in":
        return f"coalesce({column} IN ({', '.join(map(_literal, wanted))}), false)" if wanted else "false"
    if operation == "equals":
        return f"coalesce({column} = {_literal(wanted)}, false)"
    function = {"begins_with": "startswith", "contains": "contains"}[operation]
    return f"coalesce({function}({column}, {_literal(wanted)}), false)"


def _of_timestamp(bounds: Mapping[str, int], column: str) -> str:
    sign = {"from": ">=", "below": "<"}
    return " AND ".join(
        f"coalesce(unix_millis({column}) {sign[name]} {bound}, false)" for name, bound in bounds.items()
    )


def _of_header(operand: Mapping[str, Any], column: str) -> str:
    same = f"encode(h.key, 'UTF-8') = {_literal(operand['name'])}"
    if "equals" in operand:
        same += f" AND coalesce(h.value = {_literal(operand['equals'])}, false)"
    return f"coalesce(exists({column}, h -> {same}), false)"


def _literal(wanted: Any) -> str:
    data = wanted.encode() if isinstance(wanted, str) else base64.b64decode(wanted["base64"])
    return f"X'{data.hex().upper()}'"
