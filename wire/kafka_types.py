"""Kafka's types as bytes, driven by tables: frames, records of coordinators and the consumer protocol. Pure.

A message is a `Struct`: its fields in the order in which they are written, each with its kind and the versions that
have it, as in Kafka's message JSON. `layout` compiles a struct for one version into a reader and a writer:

    numbers           big-endian; neighbours are read and written in one step
    string            int16 length, UTF-8         flexible versions: unsigned varint of length + 1, 0 is null
    bytes, arrays     int32 length                flexible versions: the same
    records           as bytes; may be written from several buffers, which `Layout.pieces` does not copy
    nullable struct   a byte: -1 null, 1 present (KIP-893); in a tagged field 0 null
    tagged fields     at the end of a struct of a flexible version, in the order of their tags (KIP-482)

Each length is compared with the data, and with the reader's `Bounds`, before anything is allocated for it. Tagged
fields that the table does not have are skipped: a newer peer may send them. Bytes that the table does not fit are
CorruptMessageError.
Source: Kafka's message JSON, `MessageDataGenerator`, `ByteBufferAccessor`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

from stratalog.storage.errors import CorruptMessageError

VERSION_MAX: Final = 2**15 - 1
VARINT_BYTES_MAX: Final = 5
STRING_BYTES_MAX: Final = 0x7FFF
"""The longest string in Kafka, in flexible versions, too (`MessageDataGenerator`)."""
ELEMENTS_MAX: Final = 1 << 31
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_NULL_STRUCT, _NULL_TAGGED_STRUCT, _PRESENT_STRUCT = b"\xff", b"\x00", b"\x01"
_NO_TAGS: Final = b"\x00"
_ABSENT: Final = object()
_SMALL_VARINTS: Final = [bytes([number]) for number in range(0x80)]


class Number(NamedTuple):
    """A kind of fixed size: its format for `struct`, and what makes a Python value of the number, and the reverse."""

    form: str
    decode: Callable[[Any], Any] | None = None
    encode: Callable[[Any], Any] | None = None


NUMBERS: Final[Mapping[str, Number]] = {
    "bool": Number("?"),
    "int8": Number("b"),
    "uint8": Number("B"),
    "int16": Number("h"),
    "uint16": Number("H"),
    "int32": Number("i"),
    "uint32": Number("I"),
    "int64": Number("q"),
    "uint64": Number("Q"),
    "float64": Number("d"),
    "uuid": Number("16s", bytes.hex, bytes.fromhex),
}
"""Kinds by Kafka's names. A UUID is 32 hexadecimal digits in Python."""


@dataclass(slots=True)
class Bounds:
    """What one message may hold at most; it is changed as the message is read.

    elements_left   elements of arrays and tagged fields, all together; below 0: there were more
    name_bytes_max  of a string that is no text
    is_exceeded     the message holds more: it is no damage for which it is refused
    elements_taken  elements that were read
    """

    elements_left: int = ELEMENTS_MAX
    name_bytes_max: int = STRING_BYTES_MAX
    is_exceeded: bool = False
    elements_taken: int = 0

    def take(self, count: int, at: int) -> None:
        """Count elements that are about to be read. CorruptMessageError when they are too many."""
        self.elements_left -= count
        self.elements_taken += count
        if self.elements_left < 0:
            self.is_exceeded = True
            raise CorruptMessageError(f"{-self.elements_left} elements too many, with {count} before byte {at}")


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """Fields in the order in which they are written; tagged ones anywhere among them.

    In Python it is a dict of fields by name, arrays are tuples. A tagged field that was not in the bytes is not in the
    dict either. With `make` it is an object: `make(names)` is a function that makes one of the values of all fields
    that the version has, tagged ones last, and its attributes are what is written. With `take` other objects are
    written: `take(names)` is a function that gives the values of these fields. One with an attribute `as_bytes` is
    written as these.
    """

    name: str
    fields: tuple[Field, ...]
    make: Callable[[Sequence[str]], Callable[[Sequence[Any]], Any]] | None = None
    take: Callable[[Sequence[str]], Callable[[Any], Sequence[Any]]] | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct.

    kind           a name in `NUMBERS`, `string`, `bytes`, `records`, another `Number`, or a struct
    first_version  to `last_version`: the versions that have it
    tag            of a tagged field, else None
    default        of a tagged field: it is not written when it has this value
    is_compact     False: not even in flexible versions has it a compact length (Kafka: `flexibleVersions: none`)
    is_text        of a string: its length has the bound of all strings only, as of a note, not that of a name
    is_null_empty  of a string or bytes that is not nullable: null, which came with a later version, is written as empty
    """

    name: str
    kind: str | Number | Struct
    first_version: int = 0
    last_version: int = VERSION_MAX
    is_array: bool = False
    is_nullable: bool = False
    tag: int | None = None
    default: Any = None
    is_compact: bool = True
    is_text: bool = False
    is_null_empty: bool = False


Read = Callable[[bytes, int, list[Any], Bounds], int]
"""Appends the value at a position, within the bounds, and returns the position behind it. IndexError or
struct.error: the data is cut off."""
Write = Callable[[Any, list[bytes]], None]
"""Appends the bytes of a value."""


class Codec(NamedTuple):
    """How one value is read and written."""

    read: Read
    write: Write


@dataclass(frozen=True, slots=True)
class Layout:
    """A struct in one version."""

    name: str
    codec: Codec

    def read(self, data: bytes, start: int = 0, bounds: Bounds | None = None) -> tuple[Any, int]:
        """(value, position behind it). CorruptMessageError if it is cut off, or if a length or a value does not fit, or
        if it holds more than `bounds` allow, which are used up."""
        values: list[Any] = []
        try:
            end = self.codec.read(data, start, values, bounds or Bounds())
        except (IndexError, struct.error) as reason:
            raise CorruptMessageError(f"{self.name} is cut off: there are {len(data)} bytes") from reason
        except (ValueError, OverflowError, KeyError) as reason:
            raise CorruptMessageError(f"{self.name}: {reason}") from reason
        return values[0], end

    def write(self, value: Any) -> bytes:
        """The bytes of a value. struct.error for a number out of bounds."""
        return b"".join(self.pieces(value))

    def pieces(self, value: Any) -> list[bytes]:
        """As `write`, not joined: records are the very buffers that the value has."""
        parts: list[bytes] = []
        self.codec.write(value, parts)
        return parts


@cache
def layout(of: Struct, version: int = 0, *, is_flexible: bool = False) -> Layout:
    """The struct in this version, compiled once. `is_flexible`: compact lengths and tagged fields."""
    return Layout(of.name, _struct_codec(of, version, is_flexible))


def sequence(name: str, *layouts: Layout) -> Layout:
    """One struct behind the other, as a frame's header and body: a tuple of their values."""
    codecs = [each.codec for each in layouts]

    def read(data: bytes, at: int, values: list[Any], bounds: Bounds) -> int:
        own: list[Any] = []
        for codec in codecs:
            at = codec.read(data, at, own, bounds)
        values.append(tuple(own))
        return at

    def write(own: Sequence[Any], parts: list[bytes]) -> None:
        for codec, value in zip(codecs, own, strict=True):
            codec.write(value, parts)

    return Layout(name, Codec(read, write))


@dataclass(frozen=True, slots=True)
class Versioned:
    """A struct behind the int16 of its version, as keys and values of coordinator records are.

    >>> Versioned(Struct("Key", (Field("group", "string"),)), range(2, 3)).encode({"group": "g"}, 2).hex()
    '0002000167'
    """

    struct: Struct
    versions: range
    flexible_from: int = VERSION_MAX
    _layouts: dict[int, Layout] = field(default_factory=dict, init=False, repr=False, compare=False)

    def encode(self, value: Any, version: int) -> bytes:
        """The bytes of a value in this version."""
        return _INT16.pack(version) + self.layout(version).write(value)

    def decode(self, data: bytes, version: int | None = None, bounds: Bounds | None = None) -> Any:
        """The value, read as the version in front of it or as `version`. CorruptMessageError as `Layout.read`, or for a
        version that the struct does not have."""
        return self.layout(version_of(data) if version is None else version).read(data, _INT16.size, bounds)[0]

    def layout(self, version: int) -> Layout:
        """The struct in this version. CorruptMessageError if there is none."""
        if version not in self._layouts:
            if version not in self.versions:
                raise CorruptMessageError(f"{self.struct.name}: version {version} is none of {list(self.versions)}")
            self._layouts[version] = layout(self.struct, version, is_flexible=version >= self.flexible_from)
        return self._layouts[version]


def version_of(data: bytes) -> int:
    """The int16 in front of a versioned struct. CorruptMessageError if the data is shorter."""
    if len(data) < _INT16.size:
        raise CorruptMessageError(f"a version has {_INT16.size} bytes, there are {len(data)}")
    return int(_INT16.unpack_from(data)[0])


def _struct_codec(of: Struct, version: int, is_flexible: bool) -> Codec:
    present = [field for field in of.fields if field.first_version <= version <= field.last_version]
    plain = [field for field in present if field.tag is None]
    tagged = sorted((field for field in present if field.tag is not None), key=lambda field: field.tag or 0)
    names = [field.name for field in (*plain, *tagged)]
    make = of.make(names) if of.make else _dict_of(names, has_absent=bool(tagged))
    take = of.take or (_attributes if of.make else None)
    values_of = take(names) if take else _items([field.name for field in plain], tagged)
    absent = [field.default if of.make else _ABSENT for field in tagged]
    steps = _steps(plain, version, is_flexible)
    reads, writes = [codec.read for _, codec in steps], [(at, codec.write) for at, codec in steps]
    tags, plain_count, has_tags = _tags_codec(tagged, version), len(plain), is_flexible and bool(tagged)

    def read(data: bytes, at: int, values: list[Any], bounds: Bounds) -> int:
        own: list[Any] = []
        for step in reads:
            at = step(data, at, own, bounds)
        if absent:
            own += absent
        if is_flexible:
            at = at + 1 if not data[at] else tags.read(data, at, own, bounds)
        values.append(make(own))
        return at

    def write(value: Any, parts: list[bytes]) -> None:
        own = values_of(value)
        for at, step in writes:
            step(own[at], parts)
        if has_tags:
            tags.write(own[plain_count:], parts)
        elif is_flexible:
            parts.append(_NO_TAGS)

    return Codec(read, _or_its_bytes(write) if take else write)


def _or_its_bytes(write: Write) -> Write:
    """As `write`, but an object that has its bytes is not encoded again."""

    def write_object(value: Any, parts: list[bytes]) -> None:
        as_bytes = getattr(value, "as_bytes", None)
        if as_bytes is None:
            write(value, parts)
        else:
            parts.append(as_bytes)

    return write_object


def _dict_of(names: Sequence[str], *, has_absent: bool) -> Callable[[Sequence[Any]], dict[str, Any]]:
    if not has_absent:
        return lambda values: dict(zip(names, values, strict=True))
    return lambda values: {name: value for name, value in zip(names, values, strict=True) if value is not _ABSENT}


def _items(names: Sequence[str], tagged: Sequence[Field]) -> Callable[[Any], Sequence[Any]]:
    defaults = [(field.name, field.default) for field in tagged]
    if not tagged and len(names) > 1:
        return itemgetter(*names)
    return lambda value: [value[name] for name in names] + [value.get(*each) for each in defaults]


def _attributes(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    return attrgetter(*names) if len(names) > 1 else lambda value: [getattr(value, name) for name in names]


def _steps(plain: Sequence[Field], version: int, is_flexible: bool) -> list[tuple[int | slice, Codec]]:
    """Which of a struct's values a codec is for, and the codec; neighbours of fixed size have one."""
    steps: list[tuple[int | slice, Codec]] = []
    for is_fixed, run in groupby(enumerate(plain), lambda each: not each[1].is_array and _is_number(each[1].kind)):
        places, fields = zip(*run, strict=True)
        if is_fixed:
            steps.append((slice(places[0], places[-1] + 1), _numbers_codec([_number(field.kind) for field in fields])))
        else:
            steps += [(at, _field_codec(field, version, is_flexible)) for at, field in zip(places, fields, strict=True)]
    return steps


def _is_number(kind: str | Number | Struct) -> bool:
    return isinstance(kind, Number) or kind in NUMBERS


def _number(kind: Any) -> Number:
    return NUMBERS[kind] if isinstance(kind, str) else kind


def _numbers_codec(numbers: Sequence[Number]) -> Codec:
    """For a list of numbers."""
    packed = struct.Struct(">" + "".join(number.form for number in numbers))
    size, unpack, pack = packed.size, packed.unpack_from, packed.pack
    decodes = [(which, number.decode) for which, number in enumerate(numbers) if number.decode is not None]
    encodes = [(which, number.encode) for which, number in enumerate(numbers) if number.encode is not None]

    def read(data: bytes, at: int, values: list[Any], _bounds: Bounds) -> int:
        found: Any = unpack(data, at)
        if decodes:
            found = list(found)
            for which, decode in decodes:
                found[which] = decode(found[which])
        values += found
        return at + size

    def write(values: Sequence[Any], parts: list[bytes]) -> None:
        if encodes:
            values = list(values)
            for which, encode in encodes:
                values[which] = encode(values[which])
        parts.append(pack(*values))

    return Codec(read, write)


def _field_codec(field: Field, version: int, is_flexible: bool) -> Codec:
    """For one value: an array, a string, bytes, a struct, or a tagged number."""
    is_flexible = is_flexible and field.is_compact
    kind, is_nullable = field.kind, field.is_nullable and not field.is_array
    null = 0 if field.is_null_empty and not is_nullable else -1
    lengths = _COMPACT if is_flexible else _legacy(_INT32)
    if _is_number(kind):
        number = _number(kind)
        if field.is_array:
            return _numbers_array_codec(number, lengths, field.is_nullable)
        numbers = _numbers_codec([number])
        return Codec(numbers.read, lambda value, parts: numbers.write([value], parts))
    if isinstance(kind, Struct):
        codec = layout(kind, version, is_flexible=is_flexible).codec
        if is_nullable:
            codec = _nullable_codec(codec, _NULL_STRUCT if field.tag is None else _NULL_TAGGED_STRUCT)
    elif kind == "string":
        codec = _string_codec(lengths if is_flexible else _legacy(_INT16), is_nullable, null, is_text=field.is_text)
    elif kind in ("bytes", "records"):
        codec = _bytes_codec(lengths, is_nullable, null)
        if kind == "records":
            codec = Codec(codec.read, _records_writer(lengths, null))
    else:
        raise TypeError(f"field {field.name} is of no known kind: {kind}")
    return _array_codec(codec, lengths, field.is_nullable) if field.is_array else codec


def _as_it_is(value: Any) -> Any:
    return value


def _numbers_array_codec(number: Number, lengths: _Lengths, is_nullable: bool) -> Codec:
    """For an array of numbers, which is read and written in one step."""
    form, decode, encode = number.form, number.decode or _as_it_is, number.encode or _as_it_is
    packed = struct.Struct(">" + form)
    is_plain, element_bytes = number.decode is None and len(form) == 1, packed.size
    read_length, write_length, _ = lengths

    def read(data: bytes, at: int, values: list[Any], bounds: Bounds) -> int:
        count, at = read_length(data, at)
        end = at + count * element_bytes
        if count < 0 or end > len(data):
            _check_null(count, at, data, is_nullable)
            values.append(None)
            return at
        bounds.take(count, at)
        if is_plain:
            values.append(struct.unpack_from(f">{count}{form}", data, at))
        else:
            values.append(tuple(decode(value) for (value,) in packed.iter_unpack(data[at:end])))
        return end

    def write(value: Any, parts: list[bytes]) -> None:
        if not value:
            parts.append(write_length(-1 if value is None else 0))
        elif is_plain:
            parts += (write_length(len(value)), struct.pack(f">{len(value)}{form}", *value))
        else:
            parts += (write_length(len(value)), b"".join(packed.pack(encode(each)) for each in value))

    return Codec(read, write)


def _string_codec(lengths: _Lengths, is_nullable: bool, null: int, *, is_text: bool) -> Codec:
    """`null`: the length that is written for None, as for bytes."""
    read_length, write_length, is_compact = lengths

    def read(data: bytes, at: int, values: list[Any], bounds: Bounds) -> int:
        if is_compact and (byte := data[at]) < 0x80:
            length, at = byte - 1, at + 1
        else:
            length, at = read_length(data, at)
        end = at + length
        if length < 0 or end > len(data):
            _check_null(length, at, data, is_nullable)
            values.append(None)
            return at
        if length > bounds.name_bytes_max:
            bytes_max = STRING_BYTES_MAX if is_text else bounds.name_bytes_max
            if length > bytes_max:
                bounds.is_exceeded = True
                raise CorruptMessageError(f"a string of {length} bytes at byte {at} > {bytes_max}")
        values.append(str(data[at:end], "utf-8"))
        return end

    def write(value: str | None, parts: list[bytes]) -> None:
        if not value:
            parts.append(write_length(null if value is None else 0))
            return
        encoded = value.encode()
        parts += (write_length(len(encoded)), encoded)

    return Codec(read, write)


def _bytes_codec(lengths: _Lengths, is_nullable: bool, null: int) -> Codec:
    read_length, write_length, _ = lengths

    def read(data: bytes, at: int, values: list[Any], _bounds: Bounds) -> int:
        length, at = read_length(data, at)
        end = at + length
        if length < 0 or end > len(data):
            _check_null(length, at, data, is_nullable)
            values.append(None)
            return at
        values.append(data[at:end])
        return end

    def write(value: Any, parts: list[bytes]) -> None:
        if not value:
            parts.append(write_length(null if value is None else 0))
        else:
            parts += (write_length(len(value)), value)

    return Codec(read, write)


def _records_writer(lengths: _Lengths, null: int) -> Write:
    """Of one buffer, or of a tuple of buffers one behind the other."""
    write_length = lengths[1]

    def write(value: Any, parts: list[bytes]) -> None:
        buffers = value if isinstance(value, tuple) else () if value is None else (value,)
        parts.append(write_length(null if value is None else sum(map(len, buffers))))
        parts += buffers

    return write


def _array_codec(element: Codec, lengths: _Lengths, is_nullable: bool) -> Codec:
    read_length, write_length, is_compact = lengths
    read_element, write_element = element

    def read(data: bytes, at: int, values: list[Any], bounds: Bounds) -> int:
        if is_compact and (byte := data[at]) < 0x80:
            count, at = byte - 1, at + 1
        else:
            count, at = read_length(data, at)
        if count < 0 or count > len(data) - at:  # each element has at least one byte
            _check_null(count, at, data, is_nullable, "an array")
            values.append(None)
            return at
        bounds.take(count, at)
        elements: list[Any] = []
        for _ in range(count):
            at = read_element(data, at, elements, bounds)
        values.append(tuple(elements))
        return at

    def write(elements: Sequence[Any] | None, parts: list[bytes]) -> None:
        parts.append(write_length(-1 if elements is None else len(elements)))
        for element in elements or ():
            write_element(element, parts)

    return Codec(read, write)


def _check_null(length: int, at: int, data: bytes, is_nullable: bool, what: str = "a length") -> None:
    """CorruptMessageError unless a length that is below 0 or beyond the data is that of a null."""
    if length != -1:
        raise CorruptMessageError(f"{what} of {length} at byte {at} of {len(data)}")
    if not is_nullable:
        raise CorruptMessageError(f"{what} of null before byte {at}, where null is not allowed")


def _nullable_codec(of_struct: Codec, null: bytes) -> Codec:
    def read(data: bytes, at: int, values: list[Any], bounds: Bounds) -> int:
        if data[at] == null[0]:
            values.append(None)
            return at + 1
        return of_struct.read(data, at + 1, values, bounds)

    def write(value: Any, parts: list[bytes]) -> None:
        parts.append(null if value is None else _PRESENT_STRUCT)
        if value is not None:
            of_struct.write(value, parts)

    return Codec(read, write)


def _tags_codec(tagged: Sequence[Field], version: int) -> Codec:
    """The end of a struct: reads into the last values of a list; writes values in the order of `tagged`."""
    codecs = [_field_codec(field, version, is_flexible=True) for field in tagged]
    reads = {field.tag: (which - len(tagged), codecs[which].read) for which, field in enumerate(tagged)}
    heads = [(_varint(field.tag or 0), field.default) for field in tagged]

    def read(data: bytes, at: int, values: list[Any], bounds: Bounds) -> int:
        count, at = _read_varint(data, at)
        bounds.take(count, at)
        for _ in range(count):
            tag, at = _read_varint(data, at)
            size, at = _read_varint(data, at)
            end = at + size
            if end > len(data):
                raise CorruptMessageError(f"a tagged field of {size} bytes at byte {at} of {len(data)}")
            if tag in reads:
                which, read_value = reads[tag]
                found: list[Any] = []
                if read_value(data, at, found, bounds) != end:
                    raise CorruptMessageError(f"tagged field {tag} at byte {at} does not end at byte {end}")
                values[which] = found[0]
            at = end
        return at

    def write(values: Sequence[Any], parts: list[bytes]) -> None:
        written: list[bytes] = []
        for value, (tag, default), codec in zip(values, heads, codecs, strict=True):
            if value != default:
                of_value: list[bytes] = []
                codec.write(value, of_value)
                body = b"".join(of_value)
                written.append(tag + _varint(len(body)) + body)
        parts.append(_varint(len(written)))
        parts += written

    return Codec(read, write)


class _Lengths(NamedTuple):
    """How lengths are read, as `(length, position behind it)`, and written; -1 is null."""

    read: Callable[[bytes, int], tuple[int, int]]
    write: Callable[[int], bytes]
    is_compact: bool


def _legacy(number: struct.Struct) -> _Lengths:
    unpack, size = number.unpack_from, number.size
    return _Lengths(lambda data, at: (unpack(data, at)[0], at + size), number.pack, is_compact=False)


def _read_compact(data: bytes, at: int) -> tuple[int, int]:
    length, at = _read_varint(data, at)
    return length - 1, at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = data[at]
    if number < 0x80:
        return number, at + 1
    number &= 0x7F
    for shift in range(7, 7 * VARINT_BYTES_MAX, 7):
        at += 1
        byte = data[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at + 1
    raise CorruptMessageError(f"a varint of more than {VARINT_BYTES_MAX} bytes before byte {at}")


def _write_compact(length: int) -> bytes:
    return _SMALL_VARINTS[length + 1] if length < 0x7F else _varint(length + 1)


def _varint(number: int) -> bytes:
    if number < 0x80:
        return _SMALL_VARINTS[number]
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


_COMPACT = _Lengths(_read_compact, _write_compact, is_compact=True)
