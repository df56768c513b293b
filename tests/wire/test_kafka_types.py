"""Tables of Kafka's types: bytes of each kind, versions, tags, and no harm from bytes that do not fit."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.storage.errors import CorruptMessageError
from stratalog.wire.kafka_types import Field, Number, Struct, Versioned, layout, version_of

PART = Struct("Part", (Field("name", "string"), Field("numbers", "int32", is_array=True)))
EVERYTHING = Struct(
    "Everything",
    (
        Field("flag", "bool"),
        Field("small", "int8"),
        Field("epoch", "int16", first_version=1),
        Field("old", "int16", last_version=0),
        Field("count", "uint32"),
        Field("offset", "int64"),
        Field("ratio", "float64"),
        Field("topic_id", "uuid"),
        Field("name", "string"),
        Field("rack", "string", is_nullable=True),
        Field("data", "bytes", is_nullable=True),
        Field("parts", PART, is_array=True, is_nullable=True),
        Field("cursor", PART, is_nullable=True),
        Field("ids", "uuid", is_array=True),
        Field("names", "string", is_array=True),
        Field("hash", "int64", tag=1, default=0),
        Field("leader", PART, tag=0, is_nullable=True, default=()),
    ),
)
TEXTS, NUMBERS = st.text(max_size=200), st.integers(-(2**31), 2**31 - 1)
IDS = st.binary(min_size=16, max_size=16).map(bytes.hex)
PARTS = st.fixed_dictionaries({"name": TEXTS, "numbers": st.lists(NUMBERS, max_size=5).map(tuple)})
PLAIN = {
    "flag": st.booleans(),
    "small": st.integers(-128, 127),
    "count": st.integers(0, 2**32 - 1),
    "offset": st.integers(-(2**63), 2**63 - 1),
    "ratio": st.floats(allow_nan=False),
    "topic_id": IDS,
    "name": TEXTS,
    "rack": st.none() | TEXTS,
    "data": st.none() | st.binary(max_size=200),
    "parts": st.none() | st.lists(PARTS, max_size=3).map(tuple),
    "cursor": st.none() | PARTS,
    "ids": st.lists(IDS, max_size=3).map(tuple),
    "names": st.lists(TEXTS, max_size=3).map(tuple),
}
OLD = st.fixed_dictionaries({**PLAIN, "old": st.integers(-(2**15), 2**15 - 1)})
NEW = st.fixed_dictionaries(
    {**PLAIN, "epoch": st.integers(-(2**15), 2**15 - 1), "leader": st.none() | PARTS},
    optional={"hash": st.integers(1, 2**63 - 1)},
)


@given(OLD)
def test_what_is_written_in_an_old_version_is_read(value: dict[str, Any]) -> None:
    plain = layout(EVERYTHING, 0)
    data = plain.write(value)
    assert plain.read(b"xx" + data + b"behind", 2) == (value, len(data) + 2)


@given(NEW)
def test_what_is_written_in_a_flexible_version_is_read(value: dict[str, Any]) -> None:
    flexible = layout(EVERYTHING, 1, is_flexible=True)
    data = flexible.write(value)
    assert flexible.read(b"xx" + data + b"behind", 2) == (value, len(data) + 2)


@given(NEW, st.data())
def test_bytes_that_are_cut_off_or_changed_are_read_or_refused(value: dict[str, Any], choice: st.DataObject) -> None:
    flexible = layout(EVERYTHING, 1, is_flexible=True)
    data = bytearray(flexible.write(value))
    with pytest.raises(CorruptMessageError):
        flexible.read(bytes(data[: choice.draw(st.integers(0, len(data) - 1))]))
    data[choice.draw(st.integers(0, len(data) - 1))] = choice.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    try:
        _, end = flexible.read(bytes(data))
    except CorruptMessageError:
        return
    assert end <= len(data)


@pytest.mark.parametrize(
    ("kind", "is_flexible", "value", "written"),
    [
        ("int16", False, -2, "fffe"),
        ("uint16", False, 65534, "fffe"),
        ("bool", False, True, "01"),
        ("uuid", False, "ab" * 16, "ab" * 16),
        ("string", False, "ä", "0002c3a4"),
        ("string", True, "ä", "03c3a400"),
        ("string", True, "x" * 127, "8001" + "78" * 127 + "00"),
        ("string", False, None, "ffff"),
        ("string", True, None, "0000"),
        ("bytes", False, b"\1", "0000000101"),
        ("bytes", True, b"\1", "020100"),
        ("bytes", False, None, "ffffffff"),
    ],
)
def test_bytes_of_a_kind(kind: str, is_flexible: bool, value: Any, written: str) -> None:
    of_kind = layout(Struct("S", (Field("f", kind, is_nullable=True),)), is_flexible=is_flexible)
    assert of_kind.write({"f": value}).hex() == written
    assert of_kind.read(bytes.fromhex(written)) == ({"f": value}, len(written) // 2)


def test_a_null_where_none_may_be_is_refused() -> None:
    for kind in ("string", "bytes", PART):
        fields = layout(Struct("S", (Field("f", kind, is_array=isinstance(kind, Struct)),)), is_flexible=True)
        with pytest.raises(CorruptMessageError, match="null"):
            fields.read(bytes(2))


def test_tagged_fields_are_in_order_left_out_at_their_default_and_skipped_if_not_known() -> None:
    tags = layout(
        Struct("S", (Field("b", "int16", tag=9, default=0), Field("a", "string", tag=1, default="a"))), is_flexible=True
    )
    assert tags.write({"b": 5, "a": "x"}).hex() == "02" + "01020278" + "09020005"
    assert tags.write({"b": 0, "a": "a"}) == tags.write({}) == b"\0"
    assert tags.read(bytes.fromhex("02" + "0403ffffff" + "09020005")) == ({"b": 5}, 10)
    with pytest.raises(CorruptMessageError, match="tagged field 9"):
        tags.read(bytes.fromhex("01" + "0903000500"))


@pytest.mark.parametrize("count", [2**31 - 1, 1_000])
def test_an_array_is_not_longer_than_its_bytes(count: int) -> None:
    for kind in ("int32", "string", PART):
        array = layout(Struct("S", (Field("f", kind, is_array=True),)))
        with pytest.raises(CorruptMessageError, match=f"of {count} at byte 4 of 34"):
            array.read(struct.pack(">i", count) + bytes(30))


@dataclass(frozen=True)
class Point:
    x: int
    label: str


def test_a_struct_may_be_an_object_and_a_number_of_any_meaning() -> None:
    doubled = Number("h", lambda number: number * 2, lambda number: number // 2)
    of_point = Struct(
        "Point",
        (Field("x", doubled), Field("label", "string", tag=0, default="")),
        lambda names: lambda values: Point(**dict(zip(names, values, strict=True))),
    )
    points = layout(Struct("Points", (Field("points", of_point, is_array=True),)), is_flexible=True)
    value = {"points": (Point(4, ""), Point(6, "p"))}
    assert points.write(value).hex() == "03" + "000200" + "0003" + "01" + "00020270" + "00"
    assert points.read(points.write(value))[0] == value


def test_a_version_stands_in_front() -> None:
    table = Versioned(Struct("S", (Field("a", "string"), Field("b", "string", first_version=2))), range(3), 2)
    assert table.encode({"a": "x"}, 0).hex() == "0000000178"
    assert table.encode({"a": "x", "b": "y"}, 2).hex() == "00020278027900"
    assert (version_of(b"\0\2"), table.decode(bytes.fromhex("0000000178"))) == (2, {"a": "x"})
    with pytest.raises(CorruptMessageError, match=r"S: version 3 is none of \[0, 1, 2\]"):
        table.decode(b"\0\3")
    with pytest.raises(CorruptMessageError):
        version_of(b"\0")


def test_a_kind_that_is_not_known_is_a_defect() -> None:
    with pytest.raises(TypeError, match="of no known kind: strnig"):
        layout(Struct("S", (Field("f", "strnig"),)))
