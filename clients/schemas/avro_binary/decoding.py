"""Values of Avro's binary form, which one schema wrote, as another one has them. Pure.

fastavro is not asked: it does not say which branch of a union the bytes name, takes a negative branch or symbol from
the end of the list, cuts numbers of more than 64 bits, and gives defaults as they stand in a schema's JSON. Here bytes
that no writer makes are an error, and a default is a value of its field's type.

A schema is compiled into one function for each pair of types. What cannot be read whatever the bytes are, such as a
type that the reader lacks, is an error of the values that have it.

Source: `org.apache.avro.Resolver`, `org.apache.avro.io.BinaryDecoder`, `GenericData.getDefaultValue` (Avro 1.12). Names
of enums and fixed count without their namespace, as `SchemaCompatibility` has it.
"""

from __future__ import annotations

import copy
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from stratalog.clients.schemas.compatibility.avro import AvroField, AvroType, incompatibilities

Read = Callable[[bytes, int], tuple[Any, int]]
"""(payload, where a value begins) -> the value, and where it ends."""
Convert = Callable[[Any], Any]
_LONG_BITS, _INT_BITS, _CONTINUES = 64, 32, 0x80
_EMPTY_ITEMS_MAX = 10_000
"""The most items of a payload beyond the bytes that they take: an item of an array may take none."""
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_NAMED = ("record", "enum", "fixed")
_PROMOTED = {
    "int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",), "string": ("bytes",),
    "bytes": ("string",),
}  # fmt: skip
_UNITS = ("date", "millis", "micros", "nanos")


class AvroMisfitError(ValueError):
    """Bytes or a value that a schema does not have; the text says why."""


class _EmptyItems(threading.local):
    """Items beyond the bytes that they take, which the payload that this thread reads may still have. Those of arrays
    within arrays multiply: some KiB can state millions."""

    left = _EMPTY_ITEMS_MAX

    def count(self, items: int, bytes_taken: int) -> None:
        """A block of items was read. AvroMisfitError when the payload has too many."""
        if items > bytes_taken:
            self.left -= items - bytes_taken
            if self.left < 0:
                raise AvroMisfitError(f"more than {_EMPTY_ITEMS_MAX:,} items of arrays without a byte")


_EMPTY_ITEMS = _EmptyItems()


@dataclass(slots=True)
class ValueBudget:
    """How many values may still be read, those within others counted: for readers that trust no payload. The reader of
    the next payload sets `left` again."""

    left: int

    def counted(self, read: Read) -> Read:
        """A read that counts its value."""

        def read_counted(data: bytes, at: int) -> tuple[Any, int]:
            self.left -= 1
            if self.left < 0:
                raise AvroMisfitError("it has too many values")
            return read(data, at)

        return read_counted


class Forms(Protocol):
    """What is made of the plain values of types."""

    def value(self, node: AvroType) -> Convert | None:
        """What to do with a number, bytes or a string of the type; None for nothing."""

    def member(self, union: AvroType, place: int) -> tuple[AvroType, Convert | None]:
        """The type as which a value of a branch is read, and what to do with it then."""


class AvroReading:
    """Reads payloads of `writer` as values of `reader`."""

    def __init__(self, writer: AvroType, reader: AvroType, forms: Forms, budget: ValueBudget | None = None) -> None:
        """`budget`: counts the values that the reader gets; None: they are as many as the payload has."""
        self._forms, self._budget = forms, budget
        self._records: dict[tuple[int, int], list[Read]] = {}
        self._read = self._of(writer, reader)

    def value(self, payload: bytes) -> Any:
        """The value. AvroMisfitError; bytes behind it do not count, as in Java."""
        _EMPTY_ITEMS.left = _EMPTY_ITEMS_MAX
        try:
            return self._read(payload, 0)[0]
        except (IndexError, struct.error):
            raise AvroMisfitError(f"cut off: {len(payload)} bytes are too few") from None
        except UnicodeDecodeError as reason:
            raise AvroMisfitError(f"a string is no UTF-8: {reason.reason}") from None
        except RecursionError:
            raise AvroMisfitError("nested too deeply") from None
        except AvroMisfitError:
            raise
        except (ValueError, ArithmeticError) as reason:
            raise AvroMisfitError(str(reason)) from reason

    # -- types ---------------------------------------------------------------------------------------------

    def _of(self, writer: AvroType, reader: AvroType) -> Read:
        read = self._uncounted(writer, reader)
        return read if self._budget is None else self._budget.counted(read)

    def _uncounted(self, writer: AvroType, reader: AvroType) -> Read:
        if writer.type == "union":
            return self._from_union(writer, reader)
        if reader.type == "union":
            place = matching_branch(writer, reader)
            if place is None:
                return _refused(f"the reader's union has no type for {writer.type} {writer.name}".rstrip())
            node, wrap = self._forms.member(reader, place)
            return _then(self._of(writer, node), wrap)
        if writer.type != reader.type:
            return self._promoted(writer, reader)
        if writer.type == "record":
            return self._record(writer, reader)
        if writer.type == "array":
            return _array(self._of(writer.branches[0], reader.branches[0]))
        if writer.type == "map":
            return _map(self._of(writer.branches[0], reader.branches[0]))
        return self._alike(writer, reader)

    def _alike(self, writer: AvroType, reader: AvroType) -> Read:
        """Types of one kind without parts."""
        if writer.type in _NAMED and writer.simple_name != reader.simple_name and writer.name not in reader.aliases:
            return _refused(f"{writer.name} was written, {reader.name} is read")
        if writer.type == "enum":
            return _enum(writer, reader)
        if writer.type == "fixed" and writer.size != reader.size:
            return _refused(f"{writer.name} of {writer.size} bytes was written, one of {reader.size} is read")
        misread = _misread(writer, reader)
        if misread is not None:
            return _refused(misread)
        return _then(_plain(writer), self._forms.value(reader))

    def _promoted(self, writer: AvroType, reader: AvroType) -> Read:
        misread = _misread(writer, reader)
        if reader.type not in _PROMOTED.get(writer.type, ()) or misread is not None:
            return _refused(misread or f"{writer.type} was written, {reader.type} is read")
        if reader.type == "bytes":
            return _then(_read_bytes, self._forms.value(reader))
        promote: Convert | None = None
        if reader.type == "double":
            promote = float
        elif reader.type == "float":
            promote = _as_float
        elif reader.type == "string":
            promote = bytes.decode
        return _then(_then(_plain(writer), promote), self._forms.value(reader))

    def _from_union(self, writer: AvroType, reader: AvroType) -> Read:
        if reader.type == "union" and _equivalent(writer, reader, set()):
            reads = []
            for place, branch in enumerate(writer.branches):
                node, wrap = self._forms.member(reader, place)
                reads.append(_then(self._of(branch, node), wrap))
        else:
            reads = [self._of(branch, reader) for branch in writer.branches]

        def read(data: bytes, at: int) -> tuple[Any, int]:
            branch, at = read_long(data, at)
            if not 0 <= branch < len(reads):
                raise AvroMisfitError(f"branch {branch} of a union of {len(reads)} types")
            return reads[branch](data, at)

        return read

    def _record(self, writer: AvroType, reader: AvroType) -> Read:
        pair = (id(writer), id(reader))
        known = self._records.get(pair)
        if known is not None:  # a type within itself
            return known[0] if known else _later(known)
        self._records[pair] = made = []
        made.append(self._record_of(writer, reader))
        return made[0]

    def _record_of(self, writer: AvroType, reader: AvroType) -> Read:
        fields = readers_fields(writer, reader)
        taken = [each.name for each in fields if each is not None]
        if len(set(taken)) < len(taken):
            return _refused(f"several fields of {writer.name} are one of {reader.name}: remove an alias")
        steps: list[tuple[str | None, Read]] = []
        for written, field in zip(writer.fields, fields, strict=True):
            if field is None:
                steps.append((None, _Skipping().of(written.type)))
            else:
                steps.append((field.name, self._of(written.type, field.type)))
        try:
            defaults = [self._made_up(writer, each) for each in reader.fields if each.name not in taken]
        except AvroMisfitError as reason:
            return _refused(str(reason))

        def read(data: bytes, at: int) -> tuple[Any, int]:
            found: dict[str, Any] = {}
            for name, step in steps:
                value, at = step(data, at)
                if name is not None:
                    found[name] = value
            for name, value, is_mutable in defaults:
                found[name] = copy.deepcopy(value) if is_mutable else value
            return found, at

        return read

    # -- defaults ------------------------------------------------------------------------------------------

    def default(self, node: AvroType, given: Any) -> Any:
        """The value of a default as a schema's JSON has it. AvroMisfitError for one that is none of the type."""
        if node.type == "union":
            for place, branch in enumerate(node.branches):
                if _is_default_of(branch, given):
                    inner, wrap = self._forms.member(node, place)
                    value = self.default(inner, given)
                    return value if wrap is None else wrap(value)
            raise AvroMisfitError(f"{given!r} is of no type of the union")
        if not _is_default_of(node, given):
            raise AvroMisfitError(f"{given!r} is no {node.type}")
        if node.type == "record":
            return {each.name: self._default_of(each, given) for each in node.fields}
        if node.type == "array":
            return [self.default(node.branches[0], each) for each in given]
        if node.type == "map":
            return {key: self.default(node.branches[0], each) for key, each in given.items()}
        convert = self._forms.value(node)
        plain = _plain_default(node, given)
        return plain if convert is None else convert(plain)

    def _made_up(self, writer: AvroType, field: AvroField) -> tuple[str, Any, bool]:
        """The name and value of a field that the writer lacks, and whether the value may be changed by its reader."""
        if not field.has_default:
            raise AvroMisfitError(f"{writer.name} has no field {field.name}, for which there is no default")
        try:
            value = self.default(field.type, field.default)
        except (ValueError, ArithmeticError) as reason:
            raise AvroMisfitError(f"the default of {field.name}: {reason}") from reason
        return field.name, value, isinstance(value, dict | list)

    def _default_of(self, field: AvroField, given: dict[str, Any]) -> Any:
        if field.name in given:
            return self.default(field.type, given[field.name])
        if not field.has_default:
            raise AvroMisfitError(f"it lacks the field {field.name}")
        return self.default(field.type, field.default)


def readers_fields(writer: AvroType, reader: AvroType) -> list[AvroField | None]:
    """The reader's field for each of the writer's; None for one that it lacks. Aliases count before names.

    Source: `org.apache.avro.Schema.applyAliases`: a record's aliases of fields count where the records' names agree.
    """
    names = {each.name: each for each in reader.fields}
    aliases: dict[str, AvroField] = {}
    if reader.simple_name == writer.simple_name or writer.name in reader.aliases:
        written = {each.name for each in writer.fields}
        aliases = {alias: each for each in reader.fields for alias in each.aliases if each.name not in written}
    return [aliases.get(each.name) or names.get(each.name) for each in writer.fields]


def matching_branch(writer: AvroType, reader: AvroType) -> int | None:
    """The branch of the reader's union for a type that is none: the same type, a record of the same form, a promotion.

    Source: `org.apache.avro.Resolver.ReaderUnion.firstMatchingBranch`.
    """
    structure: int | None = None
    for place, branch in enumerate(reader.branches):
        if branch.type != writer.type:
            continue
        if writer.type not in _NAMED or branch.name == writer.name or writer.name in branch.aliases:
            return place
        if writer.type == "record" and _has_form(writer, branch):
            if structure is None or branch.simple_name == writer.simple_name:
                structure = place
        elif writer.type != "record" and structure is None and branch.simple_name == writer.simple_name:
            structure = place
    if structure is not None:
        return structure
    promoted = _PROMOTED.get(writer.type, ())
    return next((place for place, each in enumerate(reader.branches) if each.type in promoted), None)


def _has_form(writer: AvroType, reader: AvroType) -> bool:
    """Whether the writer's record can be read as the reader's, whatever their names are."""
    found = {field.name: written for written, field in zip(writer.fields, readers_fields(writer, reader), strict=True)
             if field is not None}  # fmt: skip
    return all(
        not incompatibilities(each.type, found[each.name].type) if each.name in found else each.has_default
        for each in reader.fields
    )


def _equivalent(one: AvroType, other: AvroType, seen: set[tuple[int, int]]) -> bool:
    """Whether branches of two unions are each other's by their places. Source: `Resolver.WriterUnion.unionEquiv`."""
    if one.type != other.type or (one.type in _NAMED and one.simple_name != other.simple_name):
        return False
    if (id(one), id(other)) in seen:
        return True
    seen.add((id(one), id(other)))
    if one.type == "record":
        fields = [*zip(one.fields, other.fields, strict=False)]
        return len(one.fields) == len(other.fields) and all(
            mine.name == yours.name and _equivalent(mine.type, yours.type, seen) for mine, yours in fields
        )
    if one.size != other.size or one.symbols != other.symbols or len(one.branches) != len(other.branches):
        return False
    return all(_equivalent(mine, yours, seen) for mine, yours in zip(one.branches, other.branches, strict=True))


def _misread(writer: AvroType, reader: AvroType) -> str | None:
    """Why a number of the writer would be another value of the reader, where both have logical types.

    Java does not compare them; the specification does for decimals.
    """
    if not writer.logical or not reader.logical or writer.logical == reader.logical != "decimal":
        return None
    if writer.logical == reader.logical:
        if writer.scale == reader.scale:
            return None
        return f"a decimal of scale {writer.scale} was written, one of scale {reader.scale} is read"
    units = [next((unit for unit in _UNITS if each.logical.endswith(unit)), None) for each in (writer, reader)]
    if None in units or units[0] == units[1]:
        return None
    return f"{writer.logical} was written, {reader.logical} is read: the numbers mean other times"


# -- plain values ------------------------------------------------------------------------------------------


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """A number: zigzag, seven bits a byte. AvroMisfitError for more than 64 bits, IndexError at the payload's end."""
    byte = data[at]
    at += 1
    if byte < _CONTINUES:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < _CONTINUES:
            break
        shift += 7
        if shift >= _LONG_BITS:
            raise AvroMisfitError("a number of more than 64 bits")
    if number >> _LONG_BITS:
        raise AvroMisfitError("a number of more than 64 bits")
    return (number >> 1) ^ -(number & 1), at


def _read_int(data: bytes, at: int) -> tuple[int, int]:
    number, at = read_long(data, at)
    if not -(1 << (_INT_BITS - 1)) <= number < 1 << (_INT_BITS - 1):
        raise AvroMisfitError(f"{number} is no int")
    return number, at


def _read_null(data: bytes, at: int) -> tuple[None, int]:
    del data
    return None, at


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    byte = data[at]
    if byte > 1:
        raise AvroMisfitError(f"{byte} is no boolean")
    return byte == 1, at + 1


def _read_float(data: bytes, at: int) -> tuple[float, int]:
    return _FLOAT.unpack_from(data, at)[0], at + _FLOAT.size


def _read_double(data: bytes, at: int) -> tuple[float, int]:
    return _DOUBLE.unpack_from(data, at)[0], at + _DOUBLE.size


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_long(data, at)
    if not 0 <= size <= len(data) - at:
        raise AvroMisfitError(f"a size of {size}, and {len(data) - at} bytes are left")
    return data[at : at + size], at + size


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    value, at = _read_bytes(data, at)
    return value.decode(), at


_PLAIN: dict[str, Read] = {
    "null": _read_null, "boolean": _read_boolean, "int": _read_int, "long": read_long, "float": _read_float,
    "double": _read_double, "bytes": _read_bytes, "string": _read_string,
}  # fmt: skip


def _plain(node: AvroType) -> Read:
    if node.type != "fixed":
        return _PLAIN[node.type]
    size = node.size

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        if size > len(data) - at:
            raise AvroMisfitError(f"{size} bytes are needed, and {len(data) - at} are left")
        return data[at : at + size], at + size

    return read


def _enum(writer: AvroType, reader: AvroType) -> Read:
    symbols = [each if each in reader.symbols else reader.default for each in writer.symbols]

    def read(data: bytes, at: int) -> tuple[str, int]:
        number, at = read_long(data, at)
        if not 0 <= number < len(symbols):
            raise AvroMisfitError(f"symbol {number} of an enum of {len(symbols)}")
        symbol = symbols[number]
        if symbol is None:
            raise AvroMisfitError(f"the reader's {reader.name} has no symbol {writer.symbols[number]}, and no default")
        return symbol, at

    return read


def _blocks(data: bytes, at: int) -> tuple[int, int]:
    """The number of items in the next block; 0 at the end."""
    count, at = read_long(data, at)
    if count < 0:
        count = -count
        _, at = read_long(data, at)  # the block's size, for readers that skip it
    if count > max(len(data) - at, _EMPTY_ITEMS_MAX):
        raise AvroMisfitError(f"a block of {count} items, and {len(data) - at} bytes are left")
    return count, at


def _array(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while True:
            count, at = _blocks(data, at)
            if not count:
                return found, at
            begun_at = at
            for _ in range(count):
                value, at = item(data, at)
                found.append(value)
            _EMPTY_ITEMS.count(count, at - begun_at)

    return read


def _map(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        while True:
            count, at = _blocks(data, at)
            if not count:
                return found, at
            for _ in range(count):
                key, at = _read_string(data, at)
                found[key], at = item(data, at)

    return read


def _then(read: Read, convert: Convert | None) -> Read:
    if convert is None:
        return read

    def read_and_convert(data: bytes, at: int) -> tuple[Any, int]:
        value, at = read(data, at)
        return convert(value), at

    return read_and_convert


def _later(made: list[Read]) -> Read:
    """What will be made, for a type within itself."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return made[0](data, at)

    return read


def _refused(reason: str) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        del data, at
        raise AvroMisfitError(reason)

    return read


def _as_float(number: int) -> float:
    """The nearest float of 32 bits, rounded once."""
    return float(np.float32(np.int64(number)))


class _Skipping:
    """Reads what the reader's schema lacks: its values are looked at as far as needed to find their end."""

    def __init__(self) -> None:
        self._open: dict[int, list[Read]] = {}

    def of(self, node: AvroType) -> Read:
        if node.type == "union":
            reads = [self.of(each) for each in node.branches]

            def read_union(data: bytes, at: int) -> tuple[Any, int]:
                branch, at = read_long(data, at)
                if not 0 <= branch < len(reads):
                    raise AvroMisfitError(f"branch {branch} of a union of {len(reads)} types")
                return reads[branch](data, at)

            return read_union
        if node.type == "record":
            known = self._open.get(id(node))
            if known is not None:
                return _later(known)
            self._open[id(node)] = made = []
            made.append(_in_turn([self.of(each.type) for each in node.fields]))
            return made[0]
        if node.type in ("array", "map"):
            inner = self.of(node.branches[0])
            return _skipped_blocks(inner if node.type == "array" else _in_turn([_read_bytes, inner]))
        return {"string": _read_bytes, "enum": read_long}.get(node.type) or _plain(node)


def _skipped_blocks(item: Read) -> Read:
    """Blocks of items that are not looked at where the block has its size, as in Java."""

    def read(data: bytes, at: int) -> tuple[None, int]:
        while True:
            count, size_at = read_long(data, at)
            if count < 0:
                _, at = _read_bytes(data, size_at)
                continue
            count, at = _blocks(data, at)
            if not count:
                return None, at
            begun_at = at
            for _ in range(count):
                _, at = item(data, at)
            _EMPTY_ITEMS.count(count, at - begun_at)

    return read


def _in_turn(reads: Sequence[Read]) -> Read:
    def read(data: bytes, at: int) -> tuple[None, int]:
        for each in reads:
            _, at = each(data, at)
        return None, at

    return read


# -- defaults ----------------------------------------------------------------------------------------------


def _is_default_of(node: AvroType, given: Any) -> bool:
    """Whether JSON has the form of a type's default. Source: `ResolvingGrammarGenerator.isCompatible`."""
    if isinstance(given, bool) or node.type == "boolean":
        return isinstance(given, bool) and node.type == "boolean"
    if node.type == "null":
        return given is None
    if node.type in ("int", "long"):
        return isinstance(given, int)
    if node.type in ("float", "double"):
        return isinstance(given, int | float)
    if node.type in ("record", "map"):
        return isinstance(given, dict)
    return isinstance(given, list if node.type == "array" else str)


def _plain_default(node: AvroType, given: Any) -> Any:
    if node.type in ("bytes", "fixed"):
        try:
            data: bytes = given.encode("latin-1")
        except UnicodeEncodeError:
            raise AvroMisfitError(f"{given!r} has code points beyond 255, which are no bytes") from None
        if node.type == "fixed" and len(data) != node.size:
            raise AvroMisfitError(f"{len(data)} bytes, and {node.name} has {node.size}")
        return data
    bits = {"int": _INT_BITS, "long": _LONG_BITS}.get(node.type)
    if bits is not None and not -(1 << (bits - 1)) <= given < 1 << (bits - 1):
        raise AvroMisfitError(f"{given} is no {node.type}")
    if node.type == "enum" and given not in node.symbols:
        raise AvroMisfitError(f"{given!r} is no symbol of {node.name}")
    if node.type == "float":
        return float(np.float32(given))
    return float(given) if node.type == "double" else given
