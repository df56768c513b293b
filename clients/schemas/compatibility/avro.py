"""Whether a reader's Avro schema can decode what a writer's schema encoded. Pure.

A rule for rule rewrite of `org.apache.avro.SchemaCompatibility` (Avro 1.12), which Confluent's servers ask. It is not
the specification: string and bytes are each other's, a record's or fixed's name counts without its namespace, an alias
with it, and the promotion of numbers is the specification's. Verdicts of the Java class are recorded in
`tests/clients/schemas/oracle/avro_verdicts.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stratalog.clients.schemas.errors import InvalidSchemaError

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_PROMOTED = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}
"""A reader's type -> the writers' types that it reads besides its own."""
_LOGICAL_OF = {
    "date": ("int",), "time-millis": ("int",), "time-micros": ("long",), "uuid": ("string", "fixed"),
    "duration": ("fixed",), "big-decimal": ("bytes",),
    **{f"{local}timestamp-{unit}": ("long",) for local in ("", "local-") for unit in ("millis", "micros", "nanos")},
}  # fmt: skip
"""The types of which a logical type may be."""


@dataclass(slots=True, eq=False)
class AvroType:
    """A node of an Avro schema with its names resolved; recursive schemas are circles of nodes.

    branches   the types of a union; of an array or a map the only one of its items
    logical    a logical type that is valid for the type; precision and scale are those of a decimal
    """

    type: str
    name: str = ""
    aliases: frozenset[str] = frozenset()
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    branches: tuple[AvroType, ...] = ()
    fields: list[AvroField] = field(default_factory=list)
    logical: str = ""
    precision: int = 0
    scale: int = 0

    @property
    def simple_name(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record."""

    name: str
    aliases: tuple[str, ...]
    type: AvroType
    has_default: bool
    default: Any = None
    """As the schema's JSON has it."""


def parsed(schema: Any, named: Mapping[str, Any] | None = None) -> AvroType:
    """The nodes of a schema as JSON gives it. `named`: schemas that it refers to, those without references first.

    InvalidSchemaError for a name that is not defined, or a form that Avro does not have.
    """
    names: dict[str, AvroType] = {}
    for each in (named or {}).values():
        _node(each, "", names)
    return _node(schema, "", names)


def incompatibilities(reader: AvroType, writer: AvroType) -> list[str]:
    """Where the reader fails, as `/fields/0/type: reader type long not compatible with writer type string`; else none.

    The kinds are Avro's `SchemaIncompatibilityType`.
    """
    return _Check().compare(reader, writer, "")


def _node(schema: Any, namespace: str, names: dict[str, AvroType]) -> AvroType:
    if isinstance(schema, str):
        return _named(schema, namespace, names)
    if isinstance(schema, list):
        return AvroType("union", branches=tuple(_node(each, namespace, names) for each in schema))
    if not isinstance(schema, dict) or "type" not in schema:
        raise InvalidSchemaError(f"not an Avro schema: {str(schema)[:100]}; needed a name, a union or a type")
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _node(kind, namespace, names)
    try:
        if kind == "array":
            return AvroType("array", branches=(_node(schema["items"], namespace, names),))
        if kind == "map":
            return AvroType("map", branches=(_node(schema["values"], namespace, names),))
        if kind in ("record", "error", "enum", "fixed"):
            return _definition(schema, kind, namespace, names)
    except KeyError as lacking:
        raise InvalidSchemaError(f"the Avro {kind} {schema.get('name', '')} lacks {lacking}") from None
    found = _named(kind, namespace, names)
    if found.type in PRIMITIVES and not found.name:
        _make_logical(found, schema)
    return found


def _make_logical(node: AvroType, schema: Mapping[str, Any]) -> None:
    """Give a node its logical type; one that is not valid counts as none, as in Java.

    Source: `org.apache.avro.LogicalTypes.fromSchemaIgnoreInvalid`.
    """
    logical = schema.get("logicalType")
    if logical != "decimal":
        node.logical = logical if isinstance(logical, str) and node.type in _LOGICAL_OF.get(logical, ()) else ""
        return
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if node.type not in ("bytes", "fixed") or not isinstance(precision, int) or not isinstance(scale, int):
        return
    digits_max = len(str((1 << (8 * node.size - 1)) - 1)) - 1 if node.type == "fixed" and node.size else None
    if precision > 0 and 0 <= scale <= precision and (digits_max is None or precision <= digits_max):
        node.logical, node.precision, node.scale = "decimal", precision, scale


def _named(name: str, namespace: str, names: Mapping[str, AvroType]) -> AvroType:
    if name in PRIMITIVES:
        return AvroType(name)
    full = _full_name(name, namespace)
    found = names.get(full) or names.get(name)
    if found is None:
        raise InvalidSchemaError(f"the Avro type {full} is not defined before it is used, nor by a reference")
    return found


def _definition(schema: Mapping[str, Any], kind: str, outer: str, names: dict[str, AvroType]) -> AvroType:
    name = schema["name"]
    full = name if "." in name else _full_name(name, schema.get("namespace", outer))
    namespace = full.rpartition(".")[0]
    aliases = frozenset(_full_name(each, namespace) for each in schema.get("aliases") or ())
    if full in names:
        raise InvalidSchemaError(f"the Avro type {full} is defined twice")
    if kind == "fixed":
        names[full] = AvroType("fixed", full, aliases, size=schema["size"])
        _make_logical(names[full], schema)
        return names[full]
    if kind == "enum":
        names[full] = AvroType("enum", full, aliases, tuple(schema["symbols"]), schema.get("default"))
        return names[full]
    names[full] = record = AvroType("record", full, aliases)
    for each in schema["fields"]:
        node = _node(each["type"], namespace, names)
        record.fields.append(_field(each, node))
    return record


def _field(schema: Mapping[str, Any], node: AvroType) -> AvroField:
    return AvroField(
        schema["name"], tuple(schema.get("aliases") or ()), node, "default" in schema, schema.get("default")
    )


def _full_name(name: str, namespace: str | None) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


class _Check:
    """One comparison. A pair that is being compared counts as compatible, so that recursion ends."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[str]] = {}

    def compare(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        pair = (id(reader), id(writer))
        if pair not in self._known:
            self._known[pair] = []
            self._known[pair] = self._compared(reader, writer, path)
        return self._known[pair]

    def _compared(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        if writer.type == "union":
            return self._from_union(reader, writer, path)
        if reader.type == "union":
            if any(not self.compare(branch, writer, path) for branch in reader.branches):
                return []
            return [f"{path or '/'}: MISSING_UNION_BRANCH: reader union lacking writer type: {_shown(writer)}"]
        if reader.type != writer.type:
            if writer.type in _PROMOTED.get(reader.type, ()):
                return []
            types = f"reader type: {_shown(reader)} not compatible with writer type: {_shown(writer)}"
            return [f"{path or '/'}: TYPE_MISMATCH: {types}"]
        if reader.type in ("array", "map"):
            step = "items" if reader.type == "array" else "values"
            return self.compare(reader.branches[0], writer.branches[0], f"{path}/{step}")
        if reader.type in ("record", "enum", "fixed"):
            return [*_names(reader, writer, path), *self._contents(reader, writer, path)]
        return []

    def _from_union(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        found = []
        for number, branch in enumerate(writer.branches):
            reasons = self.compare(reader, branch, f"{path}/{number}")
            if reasons and reader.type == "union":
                reasons = [f"{path}/{number}: MISSING_UNION_BRANCH: reader union lacking writer type: {_shown(branch)}"]
            found += reasons
        return found

    def _contents(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        if reader.type == "fixed":
            if reader.size == writer.size:
                return []
            return [f"{path}/size: FIXED_SIZE_MISMATCH: expected: {writer.size}, found: {reader.size}"]
        if reader.type == "enum":
            lacking = sorted(set(writer.symbols) - set(reader.symbols))
            if not lacking or reader.default in reader.symbols:
                return []
            return [f"{path}/symbols: MISSING_ENUM_SYMBOLS: [{', '.join(lacking)}]"]
        found = []
        for number, each in enumerate(reader.fields):
            found += self._field(each, writer, f"{path}/fields/{number}")
        return found

    def _field(self, reader: AvroField, writer: AvroType, path: str) -> list[str]:
        written = _written_field(reader, writer.fields)
        if written is not None:
            return self.compare(reader.type, written.type, f"{path}/type")
        if reader.has_default:
            return []
        if reader.type.type == "enum" and reader.type.default is not None:
            return self.compare(reader.type, writer, f"{path}/type")
        return [f"{path}: READER_FIELD_MISSING_DEFAULT_VALUE: {reader.name}; give the field a default"]


def _names(reader: AvroType, writer: AvroType, path: str) -> list[str]:
    if reader.simple_name == writer.simple_name or writer.name in reader.aliases:
        return []
    return [f"{path}/name: NAME_MISMATCH: expected: {writer.name}; keep the name or give the old one as an alias"]


def _written_field(reader: AvroField, written: Sequence[AvroField]) -> AvroField | None:
    """The writer's field of the same name or of an alias. InvalidSchemaError when several fit."""
    wanted = [reader.name, *reader.aliases]
    found = [each for name in wanted for each in written if each.name == name]
    if len(found) > 1:
        raise InvalidSchemaError(
            f"field {reader.name} matches several fields of the writer: {', '.join(each.name for each in found)}; "
            "remove an alias"
        )
    return found[0] if found else None


def _shown(node: AvroType) -> str:
    return node.type.upper()
