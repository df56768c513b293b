"""Random pairs of Avro schemas, the second made of the first as time changes schemas, and bytes that the first wrote.

One seed is one list. Some bytes are damaged.
"""

from __future__ import annotations

import copy
import random
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

Json = Any
_WIDER = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"], "string": ["bytes"],
          "bytes": ["string"]}  # fmt: skip
LOGICAL: dict[str, list[Json]] = {
    "int": ["date", "time-millis"],
    "long": ["timestamp-millis", "timestamp-micros", "timestamp-nanos", "local-timestamp-millis",
             "local-timestamp-micros", "local-timestamp-nanos", "time-micros"],
    "string": ["uuid"],
    "bytes": ["decimal"],
}  # fmt: skip
_PLAIN = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_LONGS = (0, 1, -1, 63, 64, -65, 2**31 - 1, -(2**31), 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 16777217)
_DOUBLES = (0.0, -0.0, 0.1, 1e300, float("inf"), float("nan"), 2.0**-1074)
_TEXTS = ("", "a", "ä", "€uro", "\U0001f600", "A", "B")
_DIGITS = ((12, 2), (4, 4), (9, 0), (38, 10))
"""Precision and scale of decimals."""
_SYMBOLS = ("A", "B", "C", "D")


class Question(NamedTuple):
    """What Java is asked; `payload` in hex."""

    writer: Json
    reader: Json
    payload: str


def questions(seed: int, count: int) -> Iterator[Question]:
    """`count` random cases, each with its own pair of schemas."""
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        writer = Drawn(rng).schema(3)
        reader = writer if rng.random() < 0.3 else Evolved(rng).of(copy.deepcopy(writer))
        yield Question(writer, reader, payload_of(rng, writer).hex())


def payload_of(rng: random.Random, writer: Json) -> bytes:
    """Bytes that a schema wrote, some of them damaged."""
    payload = bytearray(encoded(rng, writer))
    if payload and rng.random() < 0.15:
        payload[rng.randrange(len(payload))] = rng.randrange(256)
    elif rng.random() < 0.05:
        payload = payload[: rng.randrange(len(payload) + 1)]
    return bytes(payload)


class Drawn:
    """A schema under construction: each named type has a name of its own."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self._count = rng, 0

    def name(self) -> str:
        self._count += 1
        return f"n.T{self._count}"

    def schema(self, depth: int) -> Json:
        rng = self.rng
        inner = ["record", "record", "array", "map", "union", "union"] if depth else []
        kind = rng.choice(["plain", "plain", "enum", "fixed", *inner])
        if kind == "plain":
            return self._plain()
        if kind == "enum":
            symbols = rng.sample(_SYMBOLS, rng.randint(1, 4))
            return {"type": "enum", "name": self.name(), "symbols": symbols}
        if kind == "fixed":
            size = rng.choice([1, 2, 3, 4, 12, 16])
            logical: Json = {12: {"logicalType": "duration"}, 16: {"logicalType": "uuid"}}.get(
                size, {"logicalType": "decimal", "precision": 2 * size - 1, "scale": 1}
            )
            return {"type": "fixed", "name": self.name(), "size": size, **(logical if rng.random() < 0.4 else {})}
        if kind == "array":
            return {"type": "array", "items": self.schema(depth - 1)}
        if kind == "map":
            return {"type": "map", "values": self.schema(depth - 1)}
        if kind == "union":
            return self.union(depth)
        fields = [{"name": f"f{n}", "type": self.schema(depth - 1)} for n in range(rng.randint(0, 4))]
        return {"type": "record", "name": self.name(), "fields": fields}

    def _plain(self) -> Json:
        kind = self.rng.choice(_PLAIN)
        if kind not in LOGICAL or self.rng.random() < 0.6:
            return kind
        logical = self.rng.choice(LOGICAL[kind])
        if logical != "decimal":
            return {"type": kind, "logicalType": logical}
        precision, scale = self.rng.choice(_DIGITS)
        return {"type": kind, "logicalType": logical, "precision": precision, "scale": scale}

    def union(self, depth: int) -> Json:
        found: list[Json] = []
        for _ in range(self.rng.randint(1, 4)):
            branch = self.schema(depth - 1)
            if not isinstance(branch, list) and _kind(branch) not in map(_kind, found):
                found.append(branch)
        if "null" not in found and self.rng.random() < 0.5:
            found.insert(0, "null")
        return found or ["null"]


class Evolved:
    """The same schema some releases later."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self._names = rng, Drawn(rng)
        self._names._count = 100

    def of(self, node: Json) -> Json:
        rng = self.rng
        if isinstance(node, list):
            return self._union(node)
        if isinstance(node, str):
            if node in _WIDER and rng.random() < 0.3:
                node = rng.choice(_WIDER[node])
            return self._wrapped(node)
        kind = node["type"]
        if kind == "array":
            return {**node, "items": self.of(node["items"])}
        if kind == "map":
            return {**node, "values": self.of(node["values"])}
        if kind == "enum":
            symbols = [each for each in node["symbols"] if rng.random() < 0.8] or ["D"]
            more = {"default": symbols[0]} if rng.random() < 0.5 else {}
            return self._wrapped({**node, "symbols": symbols, **more})
        if kind == "record":
            return self._wrapped(self._record(node))
        return self._wrapped(node)

    def _wrapped(self, node: Json) -> Json:
        if self.rng.random() >= 0.1:
            return node
        others = [each for each in ("null", "string", "long", "double") if _kind(each) != _kind(node)]
        union = [node, *self.rng.sample(others, self.rng.randint(1, 2))]
        self.rng.shuffle(union)
        return union

    def _union(self, branches: list[Json]) -> Json:
        rng = self.rng
        if len(branches) > 1 and rng.random() < 0.15:
            return branches[rng.randrange(len(branches))]
        found: list[Json] = []
        for each in branches:
            evolved = self.of(each) if rng.random() < 0.3 else each
            if not isinstance(evolved, list) and _kind(evolved) not in map(_kind, found):
                found.append(evolved)
        if rng.random() < 0.2:
            rng.shuffle(found)
        return found or branches

    def _record(self, node: Json) -> Json:
        rng = self.rng
        fields = []
        for each in node["fields"]:
            if rng.random() < 0.15:
                continue
            evolved = {"name": each["name"], "type": self.of(each["type"])}
            if rng.random() < 0.15:
                evolved = {**evolved, "name": f"{each['name']}_new", "aliases": [each["name"]]}
            fields.append(evolved)
        for number in range(rng.choice([0, 0, 1, 2])):
            kind = self._names.schema(1)
            default = default_of(rng, kind)
            if default is not NO_DEFAULT:
                fields.append({"name": f"g{number}", "type": kind, "default": default})
        if rng.random() < 0.3:
            rng.shuffle(fields)
        return {**node, "fields": fields}


NO_DEFAULT = object()


def default_of(rng: random.Random, node: Json) -> Json:
    """A default as JSON has it; NO_DEFAULT for the types to which none is given here."""
    if isinstance(node, list):
        return default_of(rng, node[0])
    kind = node if isinstance(node, str) else node["type"]
    if kind == "record":
        found = {each["name"]: default_of(rng, each["type"]) for each in node["fields"]}
        return NO_DEFAULT if NO_DEFAULT in found.values() else found
    plain: dict[str, Json] = {
        "null": None, "boolean": True, "int": -7, "long": 2**40, "float": 1, "double": 0.25, "bytes": "\u00ff\u0000",
        "string": "ä", "array": [], "map": {},
    }  # fmt: skip
    if kind == "fixed":
        return "\u00fe" * node["size"]
    return rng.choice(node["symbols"]) if kind == "enum" else plain[kind]


def encoded(rng: random.Random, node: Json) -> bytes:
    """Bytes of a random value."""
    if isinstance(node, list):
        branch = rng.randrange(len(node))
        return number(branch) + encoded(rng, node[branch])
    kind = node if isinstance(node, str) else node["type"]
    if kind == "record":
        return b"".join(encoded(rng, each["type"]) for each in node["fields"])
    if kind in ("array", "map"):
        return _blocks(rng, node)
    if kind == "enum":
        return number(rng.randrange(len(node["symbols"])))
    if kind == "fixed":
        return rng.randbytes(node["size"])
    return _plain(rng, kind)


def _plain(rng: random.Random, kind: str) -> bytes:
    if kind == "int":
        return number(rng.choice([each for each in _LONGS if -(2**31) <= each < 2**31]))
    if kind == "long":
        return number(rng.choice(_LONGS))
    if kind == "float":
        return struct.pack("<f", rng.choice([0.0, -0.0, 0.1, 1e30, float("inf"), float("nan")]))
    if kind == "double":
        return struct.pack("<d", rng.choice(_DOUBLES))
    if kind in ("string", "bytes"):
        data = rng.choice(_TEXTS).encode()
        return number(len(data)) + data
    return bytes([rng.randrange(2)]) if kind == "boolean" else b""


def _blocks(rng: random.Random, node: Json) -> bytes:
    found = b""
    for _ in range(rng.choice([0, 1, 1, 2])):
        items = []
        for _ in range(rng.randint(1, 3)):
            key = _plain(rng, "string") if node["type"] == "map" else b""
            items.append(key + encoded(rng, node["items"] if node["type"] == "array" else node["values"]))
        block = b"".join(items)
        found += number(-len(items)) + number(len(block)) + block if rng.random() < 0.3 else number(len(items)) + block
    return found + number(0)


def number(value: int) -> bytes:
    """Avro's zigzag varint."""
    left = (value << 1) ^ (value >> 63)
    written = bytearray()
    while left > 0x7F:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*written, left])


def _kind(node: Json) -> str:
    """What a union may have once."""
    if isinstance(node, str):
        return node
    return str(node.get("name", node["type"]))
