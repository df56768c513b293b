"""What fastavro gets of typed columns, so that no value of a column is lost or becomes another one. Pure.

fastavro leaves out what a record's schema does not name, takes a time without a zone for one of the machine's own, and
has no form for years that Python's `datetime` lacks. So a column is compared with its schema first, and times travel as
numbers. What a type holds is left to `avro_binary.checks`.

Source: `org.apache.spark.sql.avro.AvroSerializer`, which refuses the same by type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from stratalog.clients.schemas.columns.avro import one_number, real_branches
from stratalog.clients.schemas.compatibility.avro import AvroType
from stratalog.storage.errors import SerializationError

Fit = Callable[[Any], Any]
_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_NANOS_OF_LOGICAL = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}


class Fitted(NamedTuple):
    """How values of a column reach their writer: as a type of Arrow's, then by a function, if any is needed."""

    kind: pa.DataType
    fit: Fit | None = None


def avro_fitted(kind: pa.DataType, node: AvroType, path: str = "#") -> Fitted:
    """How a column of a type is written by a schema. SerializationError for one that would be altered or left out.

    >>> avro_fitted(pa.timestamp("us", "UTC"), AvroType("long", logical="timestamp-millis")).kind
    DataType(int64)
    """
    if node.type == "union":
        return _union(kind, node, path)
    if node.type == "record" and pa.types.is_struct(kind):
        names = [each.name for each in node.fields]
        known(kind, names, f"{path}: the Avro schema {node.name}")
        types = {each.name: each.type for each in node.fields}
        return struct(
            kind, {each.name: avro_fitted(each.type, types[each.name], f"{path}/{each.name}") for each in kind}
        )
    if node.type == "array" and is_list(kind):
        return items(kind, avro_fitted(kind.value_type, node.branches[0], f"{path}/items"))
    if node.type == "map" and pa.types.is_map(kind):
        inner = avro_fitted(kind.item_type, node.branches[0], f"{path}/values")
        return entries(kind, Fitted(kind.key_type), inner)
    if pa.types.is_timestamp(kind) and "timestamp-" in node.logical:
        return _time(kind, node.logical, path)
    return Fitted(pa.int32()) if kind == pa.date32() and node.logical == "date" else _as_it_is(kind)


def _as_it_is(kind: pa.DataType) -> Fitted:
    """A type without another form. Nulls are booleans: Arrow's cast of nulls to nulls within structs and maps loses
    some, or ends the process (26.0)."""
    return Fitted(pa.bool_() if pa.types.is_null(kind) else kind)


def _time(kind: pa.DataType, logical: str, path: str) -> Fitted:
    if bool(kind.tz) == logical.startswith("local-"):
        has, other = ("a zone", "TIMESTAMP_NTZ") if kind.tz else ("no zone", "TIMESTAMP")
        raise SerializationError(f"{path}: a column of times with {has} is no {logical}: cast it to {other}")
    before, after = _NANOS[kind.unit], _NANOS_OF_LOGICAL[logical.rpartition("-")[2]]
    return Fitted(pa.int64(), None if before == after else lambda time: time * before // after)


def _union(kind: pa.DataType, union: AvroType, path: str) -> Fitted:
    real = real_branches(union)
    if len(real) == 1:
        return avro_fitted(kind, real[0], path)
    if not real or one_number(real) is not None:
        return _as_it_is(kind)
    names = [f"member{place}" for place in range(len(real))]
    if not pa.types.is_struct(kind):
        raise SerializationError(f"{path}: a union of {len(real)} types is a struct of {', '.join(names)}, not {kind}")
    known(kind, names, f"{path}: the union")
    branches = dict(zip(names, real, strict=True))
    parts = {each.name: avro_fitted(each.type, branches[each.name], f"{path}/{each.name}") for each in kind}
    whole = struct(kind, parts)
    named = {name: branch.name or branch.type for name, branch in branches.items()}

    def fit(value: Mapping[str, Any]) -> Any:
        given = value if whole.fit is None else whole.fit(value)
        found = [(named[name], each) for name, each in given.items() if each is not None]
        if len(found) > 1:
            raise SerializationError(f"{path}: {len(found)} members of a union have a value, and one can be written")
        return found[0] if found else None

    return Fitted(whole.kind, fit)


# -- types with parts --------------------------------------------------------------------------------------


def known(kind: pa.DataType, names: list[str], owner: str) -> None:
    """SerializationError for a struct with a field that is none of the names: its values would be left out."""
    lost = [each.name for each in kind if each.name not in names]
    if lost:
        raise SerializationError(f"{owner} has no field {', '.join(lost)}; it has {', '.join(names)}")


def is_list(kind: pa.DataType) -> bool:
    """Whether values of a type are lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def struct(kind: pa.DataType, parts: Mapping[str, Fitted]) -> Fitted:
    """A struct of parts."""
    made = pa.struct([(each.name, parts[each.name].kind) for each in kind])
    fits = {name: each.fit for name, each in parts.items() if each.fit is not None}
    if not fits:
        return Fitted(made)
    return Fitted(
        made, lambda value: value | {name: fit(value[name]) for name, fit in fits.items() if value[name] is not None}
    )


def items(kind: pa.DataType, item: Fitted) -> Fitted:
    """A list of items."""
    made = pa.large_list(item.kind) if pa.types.is_large_list(kind) else pa.list_(item.kind)
    fit = item.fit
    if fit is None:
        return Fitted(made)
    return Fitted(made, lambda value: [None if each is None else fit(each) for each in value])


def entries(kind: pa.DataType, key: Fitted, value: Fitted) -> Fitted:
    """A map."""
    del kind
    made = pa.map_(key.kind, value.kind)
    fit_key, fit = key.fit, value.fit
    if fit is None and fit_key is None:
        return Fitted(made)

    def fit_entries(given: Mapping[Any, Any]) -> dict[Any, Any]:
        return {
            name if fit_key is None else fit_key(name): each if fit is None or each is None else fit(each)
            for name, each in given.items()
        }

    return Fitted(made, fit_entries)
