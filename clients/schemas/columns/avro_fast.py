"""Avro payloads of one schema as columns, each field read for all rows at once; the twin of `avro`'s reading. Pure.

numpy keeps where each row stands. What is rare is left to `avro_binary`: rows whose bytes or values do not fit, or that
have much more items than others; of schemas, those with maps, decimals, or nulls alone.

Source: the section on binary encoding of Avro's specification 1.12.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stratalog.clients.schemas.compatibility.avro import AvroType

ROWS_MIN = 32
"""The least number of rows for which numpy is faster."""
_BYTES_MAX = 2**31 - 1
_PADDING = bytes(16)
"""Bytes behind the last row: a number, and each fixed width but `fixed`, is read before it is checked."""
_BITS_OF_BYTE, _VARINT_SHIFT_MAX = 7, 63
_GATHERED_BYTES_MAX = 64
"""Average size of strings up to which they are gathered byte by byte; longer ones are joined."""
_NUMBERS: dict[str, type[np.int32 | np.int64]] = {"int": np.int32, "long": np.int64}
_FLOATS: dict[str, np.dtype[Any]] = {"float": np.dtype("<f4"), "double": np.dtype("<f8")}

_MICROS, _IN_MICRO = {"millis": 1_000}, {"nanos": 1_000}
"""Microseconds of a unit of timestamps, and units of a microsecond."""

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class FastValues(NamedTuple):
    """n values of the column type, and the places of those that have to be read another way."""

    values: pa.Array
    left: Numbers


class _Rows:
    """Rows that are read together: where each stands, where it ends, and whether it is left to `avro_binary`."""

    def __init__(self, data: npt.NDArray[np.uint8], at: Numbers, limit: Numbers) -> None:
        self.data, self.at, self.limit = data, at, limit
        self.is_left: Mask = np.zeros(len(at), np.bool_)

    def __len__(self) -> int:
        return len(self.at)

    def some(self, places: Numbers) -> _Rows:
        """Some of the rows, which go on by themselves until `join`."""
        return _Rows(self.data, self.at[places], self.limit[places])

    def join(self, places: Numbers, some: _Rows) -> None:
        """Where `some` stand now."""
        self.at[places] = some.at
        self.is_left[places] |= some.is_left

    def leave(self, chosen: Mask) -> None:
        """Leave rows to fastavro."""
        self.is_left |= chosen

    def check(self) -> None:
        """Leave the rows that were read beyond their end, and set them back to it."""
        is_beyond = self.at > self.limit
        if is_beyond.any():
            self.leave(is_beyond)
            np.minimum(self.at, self.limit, out=self.at)

    def longs(self) -> Numbers:
        """The next number of each row: zigzag, seven bits a byte."""
        byte = self.data[self.at]
        number = (byte & 0x7F).astype(np.uint64)
        self.at += 1
        going, shift = np.flatnonzero(byte & 0x80), _BITS_OF_BYTE
        while going.size:
            byte = self.data[self.at[going]]
            number[going] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            self.at[going] += 1
            if shift == _VARINT_SHIFT_MAX:
                self.is_left[going[byte > 1]] = True  # more than 64 bits
                break
            going, shift = going[byte & 0x80 != 0], shift + _BITS_OF_BYTE
        self.check()
        return ((number >> np.uint64(1)) ^ (np.uint64(0) - (number & np.uint64(1)))).view(np.int64)

    def sizes(self) -> Numbers:
        """The next number of each row as the size of what follows it; 0 for rows that do not have so many bytes."""
        sizes = self.longs()
        is_wrong = (sizes < 0) | (sizes > self.limit - self.at)
        if is_wrong.any():
            self.leave(is_wrong)
            sizes[is_wrong] = 0
        return sizes

    def slices(self, sizes: Numbers) -> pa.Array:
        """The next bytes of each row, so many; binary."""
        ends = np.cumsum(sizes)
        total = int(ends[-1])
        if total <= _GATHERED_BYTES_MAX * len(self):
            gathered = self.data[np.repeat(self.at - ends + sizes, sizes) + np.arange(total)]
        else:
            whole = memoryview(self.data)  # type: ignore[arg-type]
            spans = zip(self.at.tolist(), (self.at + sizes).tolist(), strict=True)
            gathered = np.frombuffer(b"".join([whole[first:end] for first, end in spans]), np.uint8)
        self.at += sizes
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        return pa.Array.from_buffers(pa.binary(), len(self), [None, pa.py_buffer(offsets), pa.py_buffer(gathered)])


class _Node(Protocol):
    """Reads one type."""

    def read(self, rows: _Rows) -> pa.Array:
        """A value for each row; any one where the row is left."""


class FastSchema:
    """A schema that can be read so; None of `of` for others."""

    def __init__(self, node: _Node) -> None:
        self._node = node

    @classmethod
    def of(cls, schema: AvroType, kind: pa.DataType) -> FastSchema | None:
        """kind: the column type of the schema's values."""
        node = _node(schema, kind)
        return None if node is None else cls(node)

    def read(self, payloads: pa.Array) -> FastValues:
        """The values of n payloads, none null."""
        data, offsets = _bytes_of(payloads)
        rows = _Rows(data, offsets[:-1].copy(), offsets[1:])
        values = self._node.read(rows)
        return FastValues(values, np.flatnonzero(rows.is_left))


def read_fast(schema: FastSchema | None, payloads: pa.Array) -> FastValues | None:
    """The values of payloads; None where `avro_binary` is the faster way, or the only one."""
    if schema is None or len(payloads) < ROWS_MIN or payloads.null_count or payloads.nbytes > _BYTES_MAX:
        return None
    return schema.read(payloads)


def _bytes_of(payloads: pa.Array) -> tuple[npt.NDArray[np.uint8], Numbers]:
    """The bytes of a column, padded, and where each value begins in them, with the end of the last one."""
    kind = np.int64 if pa.types.is_large_binary(payloads.type) else np.int32
    _, offset_buffer, value_buffer = payloads.buffers()
    offsets = np.frombuffer(offset_buffer, kind, len(payloads) + 1 + payloads.offset)[payloads.offset :]
    inside = memoryview(value_buffer)[offsets[0] : offsets[-1]] if value_buffer is not None else b""
    data = np.frombuffer(b"".join([inside, _PADDING]), np.uint8)
    return data, offsets.astype(np.int64) - int(offsets[0])


# -- types -------------------------------------------------------------------------------------------------


class _Boolean:
    def read(self, rows: _Rows) -> pa.Array:
        byte = rows.data[rows.at]
        rows.at += 1
        rows.leave(byte > 1)
        rows.check()
        return pa.array(byte == 1)


class _Number:
    """An int or a long; of a time the microseconds, of which `micros` are in a unit and `units` in a microsecond."""

    def __init__(self, width: type[np.int32 | np.int64], kind: pa.DataType, micros: int = 1, units: int = 1) -> None:
        self._width, self._kind, self._micros, self._units = width, kind, micros, units

    def read(self, rows: _Rows) -> pa.Array:
        numbers = rows.longs()
        if self._width is np.int32:
            narrow = numbers.astype(np.int32)
            rows.leave(narrow != numbers)
            return pa.array(narrow).cast(self._kind)
        if self._micros > 1:
            limit = np.iinfo(np.int64).max // self._micros
            rows.leave((numbers < -limit) | (numbers > limit))
            numbers = numbers * self._micros
        elif self._units > 1:
            numbers = numbers // self._units
        return pa.array(numbers).cast(self._kind)


class _Float:
    def __init__(self, width: np.dtype[Any]) -> None:
        self._width = width

    def read(self, rows: _Rows) -> pa.Array:
        size = self._width.itemsize
        gathered = rows.data[rows.at[:, np.newaxis] + np.arange(size)]
        rows.at += size
        rows.check()
        return pa.array(gathered.view(self._width).ravel())


class _Binary:
    def read(self, rows: _Rows) -> pa.Array:
        return rows.slices(rows.sizes())


class _String:
    def read(self, rows: _Rows) -> pa.Array:
        read = rows.slices(rows.sizes())
        try:
            return read.cast(pa.string())
        except pa.ArrowInvalid:  # not UTF-8
            is_bad = np.array([not _is_text(value) for value in read.to_pylist()])
            rows.leave(is_bad)
            return pa.array([None if bad else value for value, bad in zip(read.to_pylist(), is_bad, strict=True)],
                            pa.binary()).cast(pa.string())  # fmt: skip


class _Fixed:
    def __init__(self, size: int) -> None:
        self._size = size

    def read(self, rows: _Rows) -> pa.Array:
        is_short = rows.limit - rows.at < self._size
        rows.leave(is_short)
        return rows.slices(np.where(is_short, 0, self._size))


class _Enum:
    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = pa.array(symbols, pa.string())

    def read(self, rows: _Rows) -> pa.Array:
        numbers = rows.longs()
        is_wrong = (numbers < 0) | (numbers >= len(self._symbols))
        rows.leave(is_wrong)
        return self._symbols.take(pa.array(np.where(is_wrong, 0, numbers)))


class _Nullable:
    """A union of null and one type."""

    def __init__(self, null_branch: int, node: _Node, kind: pa.DataType) -> None:
        self._null_branch, self._node, self._kind = null_branch, node, kind

    def read(self, rows: _Rows) -> pa.Array:
        branches = rows.longs()
        rows.leave((branches < 0) | (branches > 1))
        places = np.flatnonzero((branches != self._null_branch) & ~rows.is_left)
        if len(places) == len(rows):
            return self._node.read(rows)
        if not len(places):
            return pa.nulls(len(rows), self._kind)
        some = rows.some(places)
        values = self._node.read(some)
        rows.join(places, some)
        order = np.full(len(rows), -1, np.int64)
        order[places] = np.arange(len(places))
        return values.take(pa.array(order, mask=order < 0))


class _Members:
    """A union of several types: a struct with a field for each but null. `nodes` has None for null."""

    def __init__(self, nodes: Sequence[_Node | None], kind: pa.DataType) -> None:
        self._nodes, self._kind = nodes, kind

    def read(self, rows: _Rows) -> pa.Array:
        branches = rows.longs()
        rows.leave((branches < 0) | (branches >= len(self._nodes)))
        columns: list[pa.Array] = []
        is_null = rows.is_left.copy()
        for place, node in enumerate(self._nodes):
            places = np.flatnonzero((branches == place) & ~rows.is_left)
            if node is None:
                is_null[places] = True
                continue
            kind = self._kind.field(len(columns)).type
            if not len(places):
                columns.append(pa.nulls(len(rows), kind))
                continue
            some = rows.some(places)
            values = node.read(some)
            rows.join(places, some)
            order = np.full(len(rows), -1, np.int64)
            order[places] = np.arange(len(places))
            columns.append(values.take(pa.array(order, mask=order < 0)))
        return pa.StructArray.from_arrays(columns, fields=list(self._kind), mask=pa.array(is_null))


class _Record:
    def __init__(self, nodes: Sequence[_Node], kind: pa.DataType) -> None:
        self._nodes, self._kind = nodes, kind

    def read(self, rows: _Rows) -> pa.Array:
        return pa.StructArray.from_arrays([node.read(rows) for node in self._nodes], fields=list(self._kind))


class _List:
    """Items are read one for each row at a time: the first of all rows, the second of those that have one, and on."""

    def __init__(self, node: _Node, kind: pa.DataType) -> None:
        self._node, self._kind = node, kind

    def read(self, rows: _Rows) -> pa.Array:
        items: list[pa.Array] = []
        owners: list[Numbers] = []
        going = np.arange(len(rows))
        while going.size:  # a block of each row
            some = rows.some(going)
            counts = self._counts(some)
            self._block(some, counts, going, items, owners)
            rows.join(going, some)
            going = going[(counts > 0) & ~some.is_left]
        owned = np.concatenate(owners) if owners else np.zeros(0, np.int64)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(owned, minlength=len(rows)))]).astype(np.int32)
        values = pa.concat_arrays(items) if items else pa.nulls(0, self._kind.value_type)
        in_order = values.take(pa.array(np.argsort(owned, kind="stable")))
        return pa.ListArray.from_arrays(pa.array(offsets), in_order, type=self._kind)

    def _counts(self, rows: _Rows) -> Numbers:
        """The number of items in the next block of each row; 0 at the end, and for rows that are left."""
        counts = rows.longs()
        sized = np.flatnonzero(counts < 0)
        if sized.size:
            some = rows.some(sized)
            some.longs()  # the block's size in bytes, for readers that skip it
            rows.join(sized, some)
            counts[sized] = -counts[sized]
        rows.leave((counts < 0) | (counts > rows.limit - rows.at))  # items without bytes, too
        counts[rows.is_left] = 0
        return counts

    def _block(
        self, rows: _Rows, counts: Numbers, names: Numbers, items: list[pa.Array], owners: list[Numbers]
    ) -> None:
        number, places = 0, np.flatnonzero(counts > 0)
        while places.size:
            if number and places.size < ROWS_MIN:
                rows.is_left[places] = True  # a few rows with many items
                return
            some = rows.some(places)
            items.append(self._node.read(some))
            owners.append(names[places])
            rows.join(places, some)
            number += 1
            places = np.flatnonzero((counts > number) & ~rows.is_left)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _node(node: AvroType, kind: pa.DataType) -> _Node | None:
    """What reads a type; None for one that is left to `avro_binary`."""
    if node.type == "union":
        return _union(node, kind)
    if node.type == "record":
        nodes = [_node(each.type, kind.field(place).type) for place, each in enumerate(node.fields)]
        found = [each for each in nodes if each is not None]
        return _Record(found, kind) if found and len(found) == len(nodes) else None
    if node.logical == "decimal":
        return None
    if node.type == "array":
        item = _node(node.branches[0], kind.value_type)
        return None if item is None else _List(item, kind)
    if node.type == "fixed":
        return _Fixed(node.size)
    return _Enum(node.symbols) if node.type == "enum" else _primitive(node, kind)


def _primitive(node: AvroType, kind: pa.DataType) -> _Node | None:
    name = node.type
    if name in _NUMBERS:
        unit = node.logical.rpartition("timestamp-")[2]
        return _Number(_NUMBERS[name], kind, _MICROS.get(unit, 1), _IN_MICRO.get(unit, 1))
    if name in _FLOATS:
        return _Float(_FLOATS[name])
    others: dict[str, _Node] = {"boolean": _Boolean(), "bytes": _Binary(), "string": _String()}
    return others.get(name)


def _union(union: AvroType, kind: pa.DataType) -> _Node | None:
    real = [each for each in union.branches if each.type != "null"]
    if not real or len(union.branches) == 1:
        return None
    if len(real) == 1:
        node = _node(real[0], kind)
        null_branch = next(place for place, each in enumerate(union.branches) if each.type == "null")
        return None if node is None else _Nullable(null_branch, node, kind)
    if not pa.types.is_struct(kind):  # one number for two types
        return None
    nodes: list[_Node | None] = []
    place = 0
    for branch in union.branches:
        is_null = branch.type == "null"
        node = None if is_null else _node(branch, kind.field(place).type)
        if node is None and not is_null:
            return None
        nodes.append(node)
        place += not is_null
    return _Members(nodes, kind)
