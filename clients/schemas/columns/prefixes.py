"""The schema ids of a binary column in Confluent's wire format, and its rows grouped by them. Pure.

Ids before the payload are read for all rows at once; GUIDs, ids in headers and message indexes row by row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stratalog.clients.schemas.wire_format import (
    FIRST_MESSAGE,
    MAGIC_BYTE_V0,
    SchemaId,
    decode_prefix,
    schema_id_header,
)
from stratalog.storage.errors import SerializationError

_ID_PREFIX_BYTES = 5

Rows = npt.NDArray[np.int64]


class PayloadGroup(NamedTuple):
    """Rows that one schema wrote: their positions in the column, and their payloads in the same order."""

    schema_id: SchemaId
    rows: Rows
    payloads: pa.Array


class Prefixed(NamedTuple):
    """A column split by schema. `errors` has the rows without a valid prefix; null rows are in neither."""

    groups: list[PayloadGroup]
    errors: dict[int, str]


class _Prefix(NamedTuple):
    schema_id: SchemaId
    size: int
    """Bytes of the value before its payload."""


def split(
    data: pa.Array, headers: pa.Array | None = None, *, is_key: bool = False, has_message_indexes: bool = False
) -> Prefixed:
    """The rows of `data` by the schema that wrote them.

    data     n rows: binary or large_binary.
    headers  n rows: list of struct `key` string, `value` binary. A schema id there counts before one in `data`.
    """
    in_header = _header_values(headers, schema_id_header(is_key)) if headers is not None else {}
    found: dict[_Prefix, list[Rows]] = {}
    errors: dict[int, str] = {}
    ids, is_plain = _plain_ids(data, has_message_indexes=has_message_indexes)
    if in_header:
        is_plain[np.fromiter(in_header, np.int64, len(in_header))] = False
    size = _ID_PREFIX_BYTES + has_message_indexes
    indexes = FIRST_MESSAGE if has_message_indexes else None
    for number in np.unique(ids[is_plain]):
        prefix = _Prefix(SchemaId(id=int(number), message_indexes=indexes), size)
        found[prefix] = [np.flatnonzero(is_plain & (ids == number))]
    others = np.flatnonzero(~is_plain & data.is_valid().to_numpy(zero_copy_only=False))
    for row, value in zip(others.tolist(), data.take(pa.array(others)).to_pylist(), strict=True):
        try:
            named = _prefix_of(value, in_header.get(row), has_message_indexes)
        except SerializationError as reason:
            errors[row] = str(reason)
        else:
            found.setdefault(named, []).append(np.array([row], np.int64))
    return Prefixed([_group(data, prefix, np.concatenate(rows)) for prefix, rows in found.items()], errors)


def _prefix_of(value: bytes, header: bytes | None, has_message_indexes: bool) -> _Prefix:
    named, payload = decode_prefix(value if header is None else header, has_message_indexes=has_message_indexes)
    return _Prefix(named, len(value) - len(payload) if header is None else 0)


def _group(data: pa.Array, prefix: _Prefix, rows: Rows) -> PayloadGroup:
    taken = data if len(rows) == len(data) else data.take(pa.array(rows))
    return PayloadGroup(prefix.schema_id, rows, _without_first(taken, prefix.size) if prefix.size else taken)


def _without_first(data: pa.Array, size: int) -> pa.Array:
    """The values of a column, none null, without their first bytes.

    `pyarrow.compute.binary_slice` of pyarrow 26 does it too, but fails for some columns ("Negative buffer resize").
    """
    offsets, bytes_ = _layout(data)
    inside = bytes_[offsets[0] : offsets[-1]]
    starts = offsets - offsets[0]
    is_kept = np.ones(len(inside), np.bool_)
    is_kept[(starts[:-1, np.newaxis] + np.arange(size)).ravel()] = False
    kind = np.int64 if pa.types.is_large_binary(data.type) else np.int32
    kept = (starts - size * np.arange(len(starts))).astype(kind)
    return pa.Array.from_buffers(data.type, len(data), [None, pa.py_buffer(kept), pa.py_buffer(inside[is_kept])])


def _layout(data: pa.Array) -> tuple[Rows, npt.NDArray[np.uint8]]:
    """Where each value begins in the bytes, and the end of the last one; and the bytes."""
    kind = np.int64 if pa.types.is_large_binary(data.type) else np.int32
    _, offset_buffer, value_buffer = data.buffers()
    offsets = np.frombuffer(offset_buffer, kind, len(data) + 1 + data.offset)[data.offset :].astype(np.int64)
    return offsets, np.frombuffer(value_buffer, np.uint8) if value_buffer is not None else np.zeros(0, np.uint8)


def _plain_ids(data: pa.Array, *, has_message_indexes: bool) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """The id of each row, and which rows are a plain prefix: magic byte 0, an id, and the first message's indexes."""
    offsets, bytes_ = _layout(data)
    starts, sizes = offsets[:-1], np.diff(offsets)
    needed = _ID_PREFIX_BYTES + has_message_indexes
    is_plain = data.is_valid().to_numpy(zero_copy_only=False) & (sizes >= needed)
    is_plain[is_plain] = bytes_[starts[is_plain]] == MAGIC_BYTE_V0
    if has_message_indexes:
        is_plain[is_plain] = bytes_[starts[is_plain] + _ID_PREFIX_BYTES] == 0
    ids = np.full(len(data), -1, np.int64)
    read = np.zeros(int(is_plain.sum()), np.int64)
    for position in range(1, _ID_PREFIX_BYTES):
        read = read << 8 | bytes_[starts[is_plain] + position]
    ids[is_plain] = read
    return ids, is_plain


def _header_values(headers: pa.Array, name: str) -> Mapping[int, bytes]:
    """Row -> value of its first header of the name; rows without one are absent."""
    entries = headers.flatten()
    chosen = pc.fill_null(pc.and_(pc.equal(entries.field("key"), name), pc.is_valid(entries.field("value"))), False)
    rows = pc.list_parent_indices(headers).filter(chosen).to_pylist()
    values = entries.field("value").filter(chosen).to_pylist()
    return dict(zip(reversed(rows), reversed(values), strict=True))
