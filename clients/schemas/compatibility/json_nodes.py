"""JSON schemas as nodes of one kind each, as Confluent's servers compare them. Pure.

A schema whose keywords are of several kinds (an `enum` beside a `type`, bounds without one) is an `allOf` of them, a
list of types an `anyOf`; a schema without keywords is EMPTY, which every value fits. Titles, ids and defaults belong to
the whole. References are followed when they are compared, so schemas may contain themselves.

Source: the loader of `org.everit.json.schema`, and Confluent's `SchemaTranslator` for drafts 2019-09 and 2020-12.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urljoin

from stratalog.clients.schemas.errors import InvalidSchemaError


class NodeKind(StrEnum):
    """What a schema demands."""

    ARRAY = "array"
    BOOLEAN = "boolean"
    COMBINED = "combined"
    CONDITIONAL = "conditional"
    CONST = "const"
    EMPTY = "empty"
    ENUM = "enum"
    FALSE = "false"
    NOT = "not"
    NULL = "null"
    NUMBER = "number"
    OBJECT = "object"
    REFERENCE = "reference"
    STRING = "string"
    TRUE = "true"


_TYPES = {
    "array": NodeKind.ARRAY,
    "boolean": NodeKind.BOOLEAN,
    "integer": NodeKind.NUMBER,
    "null": NodeKind.NULL,
    "number": NodeKind.NUMBER,
    "object": NodeKind.OBJECT,
    "string": NodeKind.STRING,
}
_KEYWORDS: dict[NodeKind, tuple[str, ...]] = {
    NodeKind.ARRAY: ("items", "additionalItems", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
    NodeKind.OBJECT: (
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "dependencies",
        "patternProperties",
        "additionalProperties",
        "propertyNames",
    ),
    NodeKind.NUMBER: ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    NodeKind.STRING: ("minLength", "maxLength", "pattern", "format"),
}
"""The keywords that make a schema one of a kind, in the order in which they are looked for."""
_MODERN_KEYWORDS: dict[NodeKind, tuple[str, ...]] = {
    NodeKind.ARRAY: ("unevaluatedItems",),
    NodeKind.OBJECT: ("unevaluatedProperties", "dependentRequired", "dependentSchemas"),
}
_MODERN = ("draft/2019-09/", "draft/2020-12/")
CRITERIA = ("allOf", "anyOf", "oneOf")


@dataclass(slots=True, eq=False)
class SchemaNode:
    """A schema of one kind. `own` are its keywords; `whole` those of the schema that it is all of, else empty.

    parts  what its keywords hold, as nodes: by keyword a node, a list of them, or names with nodes.
    """

    kind: NodeKind
    own: Mapping[str, Any] = field(default_factory=dict)
    whole: Mapping[str, Any] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)

    @property
    def accepts_all(self) -> bool:
        return self.kind in (NodeKind.EMPTY, NodeKind.TRUE)

    @property
    def key(self) -> str:
        """Equal for schemas with the same text."""
        return json.dumps([self.kind, self.own.get("type"), self.own], sort_keys=True)


class SchemaNodes:
    """The nodes of a schema and of those that it refers to. InvalidSchemaError where a keyword has no such form."""

    def __init__(self, contents: Any, documents: Mapping[str, Any]) -> None:
        self._contents, self._documents = contents, documents
        self._known: dict[int, SchemaNode] = {}
        self.root = self._node(contents, contents)

    # -- nodes ---------------------------------------------------------------------------------------------

    def _node(self, raw: Any, document: Any) -> SchemaNode:
        if isinstance(raw, bool):
            return SchemaNode(NodeKind.TRUE if raw else NodeKind.FALSE)
        if not isinstance(raw, dict):
            raise InvalidSchemaError(f"a JSON schema is an object or a truth value, not {json.dumps(raw)[:80]}")
        if id(raw) not in self._known:
            self._known[id(raw)] = self._loaded(raw, document)
        return self._known[id(raw)]

    def _loaded(self, raw: Mapping[str, Any], document: Any) -> SchemaNode:
        is_modern = _is_modern(document)
        try:
            found = list(self._kinds(raw, document, is_modern))
        except (AttributeError, TypeError, ValueError) as reason:
            raise InvalidSchemaError(f"a keyword of a JSON schema has another form: {reason}") from reason
        if not found:
            return SchemaNode(NodeKind.EMPTY, raw, raw)
        if len(found) > 1:
            return SchemaNode(NodeKind.COMBINED, raw, raw, {"criterion": "allOf", "subschemas": found})
        [node] = found
        node.whole = raw
        return node

    def _kinds(self, raw: Mapping[str, Any], document: Any, is_modern: bool) -> Iterator[SchemaNode]:
        if "$ref" in raw:
            yield SchemaNode(NodeKind.REFERENCE, {"$ref": raw["$ref"]}, {}, {"document": document, "nodes": self})
            if not is_modern:
                return
        if "enum" in raw:
            yield SchemaNode(NodeKind.ENUM, {"enum": raw["enum"]})
        for criterion in CRITERIA:
            if criterion in raw:
                inside = [self._node(each, document) for each in raw[criterion]]
                parts = {"criterion": criterion, "subschemas": inside}
                yield SchemaNode(NodeKind.COMBINED, {criterion: raw[criterion]}, {}, parts)
        if "not" in raw:
            yield SchemaNode(NodeKind.NOT, {"not": raw["not"]}, {}, {"not": self._node(raw["not"], document)})
        if "const" in raw and not _is_draft_4(document):
            yield SchemaNode(NodeKind.CONST, {"const": raw["const"]})
        yield from self._typed(raw, document, is_modern)
        if any(each in raw for each in ("if", "then", "else")):
            yield SchemaNode(NodeKind.CONDITIONAL, {each: raw.get(each) for each in ("if", "then", "else")})

    def _typed(self, raw: Mapping[str, Any], document: Any, is_modern: bool) -> Iterator[SchemaNode]:
        given = raw.get("type", [])
        names = [given] if isinstance(given, str) else list(given)
        for name in names:
            if name not in _TYPES:
                raise InvalidSchemaError(f"unknown type {name} in a JSON schema: one of {', '.join(_TYPES)}")
        nodes = [self._of_type(name, raw, document, is_modern) for name in names]
        if isinstance(given, str):
            yield from nodes
        elif nodes:
            yield SchemaNode(NodeKind.COMBINED, {"type": given}, {}, {"criterion": "anyOf", "subschemas": nodes})
        for kind, keywords in _KEYWORDS.items():
            wanted = [*keywords, *(_MODERN_KEYWORDS.get(kind, ()) if is_modern else [])]
            if kind not in {each.kind for each in nodes} and any(each in raw for each in wanted):
                yield self._of_type(kind, raw, document, is_modern)

    def _of_type(self, name: str, raw: Mapping[str, Any], document: Any, is_modern: bool) -> SchemaNode:
        kind = _TYPES[name]
        wanted = [*_KEYWORDS.get(kind, ()), *_MODERN_KEYWORDS.get(kind, ()), "minContains", "maxContains"]
        own = {"type": name, **{each: raw[each] for each in wanted if each in raw}}
        if kind == NodeKind.OBJECT:
            return SchemaNode(kind, own, {}, self._object_parts(raw, document, is_modern))
        if kind == NodeKind.ARRAY:
            return SchemaNode(kind, own, {}, self._array_parts(raw, document, is_modern))
        return SchemaNode(kind, own)

    def _object_parts(self, raw: Mapping[str, Any], document: Any, is_modern: bool) -> dict[str, Any]:
        dependencies = dict(raw.get("dependencies", {}))
        if is_modern:
            dependencies |= {**raw.get("dependentRequired", {}), **raw.get("dependentSchemas", {})}
        additional = raw.get("additionalProperties", True)
        is_schema = isinstance(additional, dict)
        return {
            "properties": {name: self._node(each, document) for name, each in raw.get("properties", {}).items()},
            "patterns": {name: self._node(each, document) for name, each in raw.get("patternProperties", {}).items()},
            "required": frozenset(raw.get("required", ())),
            "property_dependencies": {
                name: frozenset(each) for name, each in dependencies.items() if isinstance(each, list)
            },
            "schema_dependencies": {
                name: self._node(each, document) for name, each in dependencies.items() if not isinstance(each, list)
            },
            "permits_additional": is_schema or bool(additional),
            "additional": self._node(additional, document) if is_schema else None,
            "unevaluated": self._unevaluated("unevaluatedProperties", raw, document, is_modern),
        }

    def _array_parts(self, raw: Mapping[str, Any], document: Any, is_modern: bool) -> dict[str, Any]:
        items, prefix, additional = raw.get("items"), raw.get("prefixItems", []), raw.get("additionalItems", True)
        if isinstance(items, list):
            prefix, items = items, None
        elif is_modern and (isinstance(items, bool) or (prefix and items is not None)):
            additional, items = items, None
        is_schema = isinstance(additional, dict)
        return {
            "items": None if items is None else self._node(items, document),
            "prefix": [self._node(each, document) for each in prefix],
            "permits_additional": is_schema or bool(additional),
            "additional": self._node(additional, document) if is_schema else None,
            "unevaluated": self._unevaluated("unevaluatedItems", raw, document, is_modern),
        }

    def _unevaluated(self, keyword: str, raw: Mapping[str, Any], document: Any, is_modern: bool) -> SchemaNode | None:
        return self._node(raw[keyword], document) if is_modern and keyword in raw else None

    # -- references ----------------------------------------------------------------------------------------

    def target(self, reference: str, document: Any) -> SchemaNode:
        """The schema of a `$ref` in a document. InvalidSchemaError if it is not there."""
        name, _, fragment = reference.partition("#")
        found = self._document(name, document)
        if found is not None and fragment.startswith("/"):
            inside: Any = found
            for step in fragment.split("/")[1:]:
                inside = _step(inside, step.replace("~1", "/").replace("~0", "~"))
            if inside is not None:
                return self._node(inside, found)
        elif found is not None:
            named = _with_anchor(found, fragment) if fragment else found
            if named is not None:
                return self._node(named, found)
        raise InvalidSchemaError(
            f"$ref {reference} leads nowhere: register what it means as a schema, and name it in the references"
        )

    def _document(self, name: str, document: Any) -> Any:
        """The document of a name, relative to the `$id` of the one that names it."""
        if not name:
            return document
        base = str(document.get("$id", "")) if isinstance(document, dict) else ""
        for each in (name, name.removeprefix("./"), urljoin(base, name)):
            if each in self._documents:
                return self._documents[each]
            if isinstance(self._contents, dict) and self._contents.get("$id") == each:
                return self._contents
        return _with_id(document, {name, urljoin(base, name)})


def followed(node: SchemaNode) -> SchemaNode:
    """The schema that a reference leads to; any other node itself. InvalidSchemaError if there is none."""
    seen: list[SchemaNode] = []
    while node.kind == NodeKind.REFERENCE:
        if node in seen:
            raise InvalidSchemaError(f"$ref {node.own['$ref']} leads to itself: name a schema")
        seen.append(node)
        node = node.parts["nodes"].target(str(node.own["$ref"]), node.parts["document"])
    return node


def _is_modern(document: Any) -> bool:
    return isinstance(document, dict) and any(each in str(document.get("$schema", "")) for each in _MODERN)


def _is_draft_4(document: Any) -> bool:
    return isinstance(document, dict) and "draft-04" in str(document.get("$schema", ""))


def _step(raw: Any, name: str) -> Any:
    if isinstance(raw, list):
        return raw[int(name)] if name.isdecimal() and int(name) < len(raw) else None
    if not isinstance(raw, dict):
        return None
    return raw.get(name, raw.get({"$defs": "definitions", "definitions": "$defs"}.get(name, name)))


def _with_anchor(raw: Any, name: str) -> Any:
    return next((each for each in _inside(raw) if each.get("$anchor") == name or each.get("$id") == f"#{name}"), None)


def _with_id(raw: Any, names: set[str]) -> Any:
    return next((each for each in _inside(raw) if each.get("$id") in names), None)


def _inside(raw: Any) -> Iterator[dict[str, Any]]:
    """Every object of a JSON value."""
    if isinstance(raw, dict):
        yield raw
        for each in raw.values():
            yield from _inside(each)
    elif isinstance(raw, list):
        for each in raw:
            yield from _inside(each)
