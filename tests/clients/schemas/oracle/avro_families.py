"""Families of Avro schemas; each schema is compared with each of its family, in both directions and with itself.

For the levels of compatibility each follows each, with one more version before.
"""

from __future__ import annotations

from typing import Any

Json = Any


def record(*fields: Json, name: str = "R", **more: Json) -> Json:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Json = "int", **more: Json) -> Json:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, name: str = "E", **more: Json) -> Json:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Json) -> Json:
    return {"type": "fixed", "name": name, "size": size, **more}


def array(items: Json) -> Json:
    return {"type": "array", "items": items}


def mapping(values: Json) -> Json:
    return {"type": "map", "values": values}


PLAIN: list[Json] = [
    "null", "boolean", "int", "long", "float", "double", "bytes", "string",
    {"type": "int", "logicalType": "date"},
    {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
    array("int"), array("long"), array("string"), mapping("int"), mapping("double"),
]  # fmt: skip

UNIONS: list[Json] = [
    [], ["null"], ["int"], ["null", "int"], ["int", "null"], ["null", "long"], ["null", "string"], ["string", "int"],
    ["null", "int", "string"], "int", "long", "bytes", "null", [array("int"), "null"],
    array(["null", "int"]), array("int"), [enum("A", "B"), fixed(4)], [record(field("a")), "string"],
]  # fmt: skip

NAMED: list[Json] = [
    enum("A", "B"), enum("A", "B", "C"), enum("A", "B", default="A"), enum("B", name="Other"), enum("C", "A"),
    enum("A", "B", name="Other", aliases=["E"]), enum("A", "B", namespace="x"), enum("A", aliases=["x.E"]),
    fixed(4), fixed(8), fixed(4, "G"), fixed(4, "G", aliases=["F"]), fixed(4, namespace="x.y"),
]  # fmt: skip

RECORDS: list[Json] = [
    record(),
    record(field("a")),
    record(field("a", "long")),
    record(field("a"), field("b")),
    record(field("a"), field("b", default=1)),
    record(field("a"), field("b", ["null", "int"], default=None)),
    record(field("a"), field("b", ["null", "int"])),
    record(field("c", aliases=["a"])),
    record(field("a"), field("c", aliases=["b"], default=0)),
    record(field("a"), name="S"),
    record(field("a"), name="S", aliases=["R"]),
    record(field("a"), namespace="x"),
    record(field("a"), name="S", aliases=["x.R"]),
    record(field("a", enum("A", "B"))),
    record(field("a"), field("e", enum("A", "B", default="A"))),
    record(field("a"), field("e", enum("A", "B"))),
    "int",
    ["null", record(field("a"))],
]

NESTED: list[Json] = [
    record(field("in", record(field("a"), name="In"))),
    record(field("in", record(field("a", "string"), name="In"))),
    record(field("in", record(field("a"), field("b"), name="In"))),
    record(field("in", record(field("a"), field("b", default=1), name="In"))),
    record(field("in", array(record(field("a"), name="In")))),
    record(field("in", ["null", record(field("a"), name="In")])),
    record(field("in", ["null", record(field("a", "string"), name="In")])),
    record(field("in", record(field("a"), name="In")), field("again", "In")),
    record(field("in", record(field("a", "string"), name="In")), field("again", "In")),
    record(field("value"), field("next", ["null", "R"])),
    record(field("value", "long"), field("next", ["null", "R"])),
    record(field("value", "string"), field("next", ["null", "R"])),
    record(field("value"), field("next", ["null", "R"]), field("tag", "string")),
    record(field("value"), field("next", array("R"))),
    record(field("value"), field("next", ["null", "N"]), name="N", aliases=["R"]),
]

FAMILIES = {"plain": PLAIN, "unions": UNIONS, "named": NAMED, "records": RECORDS, "nested": NESTED}


def pairs() -> list[tuple[str, Json, Json]]:
    """(name, reader, writer)."""
    return [
        (f"{family} {i} {j}", reader, writer)
        for family, schemas in FAMILIES.items()
        for i, reader in enumerate(schemas)
        for j, writer in enumerate(schemas)
    ]


def chains() -> list[tuple[str, Json, list[Json]]]:
    """(name, a new schema, the versions before it, newest first): two of its family, or twice the same one."""
    return [
        (f"{family} {i} {j}", new, [latest, schemas[(i + 3 * j) % len(schemas)] if (i + j) % 3 else latest])
        for family, schemas in FAMILIES.items()
        for i, new in enumerate(schemas)
        for j, latest in enumerate(schemas)
    ]
