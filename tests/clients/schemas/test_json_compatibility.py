"""Rules for versions of JSON schemas: a table of pairs, each with the differences that Confluent's servers name."""

# ruff: noqa: E501 - a pair is a line
from __future__ import annotations

from typing import Any

import pytest

from stratalog.clients.schemas.compatibility.json_nodes import SchemaNodes
from stratalog.clients.schemas.compatibility.json_schema import differences
from stratalog.clients.schemas.compatibility.levels import CompatibilityLevel, ResolvedSchema, incompatibilities
from stratalog.clients.schemas.errors import IncompatibleSchemaError, InvalidSchemaError
from stratalog.clients.schemas.schema import Schema, SchemaReference, SchemaType
from tests.clients.schemas.memory_registry import MemoryRegistry

INTEGER, NUMBER, STRING, NULL = ({"type": name} for name in ("integer", "number", "string", "null"))
MODERN = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def thing(properties: dict[str, Any] | None = None, **keywords: Any) -> dict[str, Any]:
    """An object that permits nothing else."""
    return {"type": "object", "properties": properties or {}, "additionalProperties": False, **keywords}


def open_thing(properties: dict[str, Any] | None = None, **keywords: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties or {}, **keywords}


def tuple_of(*items: Any, **keywords: Any) -> dict[str, Any]:
    return {"type": "array", "items": list(items), **keywords}


Row = tuple[Any, Any, str, str]
"""Original, update, the differences from one to the other, and back. A `!` marks an incompatible one."""

# fmt: off
PAIRS: dict[str, Row] = {
    "nothing": (thing({"a": INTEGER}), thing({"a": INTEGER}), "", ""),
    "labels": ({"title": "a", **STRING}, {"default": "b", **STRING}, "TITLE_CHANGED / DEFAULT_CHANGED /", "TITLE_CHANGED / DEFAULT_CHANGED /"),
    "another type": (STRING, INTEGER, "!TYPE_CHANGED /", "!TYPE_CHANGED /"),
    "integer and number": (INTEGER, NUMBER, "TYPE_EXTENDED /", "!TYPE_NARROWED /"),
    "empty": (STRING, {}, "", "!TYPE_CHANGED /"),
    "true": (STRING, True, "", "!TYPE_CHANGED /"),
    "false": (False, STRING, "", "!TYPE_CHANGED /"),
    "decimals of Connect": ({"connect.type": "bytes", **NUMBER}, {"connect.type": "bytes", **STRING}, "", ""),
    "length": ({"maxLength": 3, **STRING}, {"maxLength": 5, **STRING}, "MAX_LENGTH_INCREASED /maxLength", "!MAX_LENGTH_DECREASED /maxLength"),
    "least length": ({"minLength": 3, **STRING}, STRING, "MIN_LENGTH_REMOVED /minLength", "!MIN_LENGTH_ADDED /minLength"),
    "bounds without a type": ({"maxLength": 3}, {"maxLength": 5}, "MAX_LENGTH_INCREASED /maxLength", "!MAX_LENGTH_DECREASED /maxLength"),
    "pattern": ({"pattern": "a", **STRING}, STRING, "PATTERN_REMOVED /pattern", "!PATTERN_ADDED /pattern"),
    "another pattern": ({"pattern": "a", **STRING}, {"pattern": "b", **STRING}, "!PATTERN_CHANGED /pattern", "!PATTERN_CHANGED /pattern"),
    "maximum": ({"maximum": 1, **NUMBER}, {"maximum": 1.5, **NUMBER}, "MAXIMUM_INCREASED /maximum", "!MAXIMUM_DECREASED /maximum"),
    "minimum": ({"minimum": 1, **NUMBER}, NUMBER, "MINIMUM_REMOVED /minimum", "!MINIMUM_ADDED /minimum"),
    "exclusive": ({"exclusiveMaximum": 1, **NUMBER}, {"exclusiveMaximum": 2, **NUMBER}, "EXCLUSIVE_MAXIMUM_INCREASED /exclusiveMaximum", "!EXCLUSIVE_MAXIMUM_DECREASED /exclusiveMaximum"),
    "exclusive in draft 4": ({"exclusiveMaximum": True, "maximum": 1, **NUMBER}, {"maximum": 1, **NUMBER}, "", ""),
    "equal bounds": ({"multipleOf": 0.5, "maximum": 1, **NUMBER}, {"multipleOf": 0.50, "maximum": 1.0, **NUMBER}, "", ""),
    "multiples": ({"multipleOf": 6, **INTEGER}, {"multipleOf": 2, **INTEGER}, "MULTIPLE_OF_REDUCED /multipleOf", "!MULTIPLE_OF_EXPANDED /multipleOf"),
    "other multiples": ({"multipleOf": 2, **INTEGER}, {"multipleOf": 3, **INTEGER}, "!MULTIPLE_OF_CHANGED /multipleOf", "!MULTIPLE_OF_CHANGED /multipleOf"),
    "enum": ({"enum": ["a"]}, {"enum": ["a", "b"]}, "ENUM_ARRAY_EXTENDED /enum", "!ENUM_ARRAY_NARROWED /enum"),
    "another enum": ({"enum": ["a"]}, {"enum": ["b"]}, "!ENUM_ARRAY_CHANGED /enum", "!ENUM_ARRAY_CHANGED /enum"),
    "enum and type": ({"enum": ["a"], **STRING}, STRING, "PRODUCT_TYPE_NARROWED /", "!TYPE_CHANGED /"),
    "const": ({"const": 1}, {"const": 2}, "!ENUM_ARRAY_CHANGED /const", "!ENUM_ARRAY_CHANGED /const"),
    "a property of an open object": (open_thing(), open_thing({"a": STRING}), "!OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL /properties/a", "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL /properties/a"),
    "a required one": (open_thing(), open_thing({"a": STRING}, required=["a"]), "!REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL /properties/a", "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL /properties/a"),
    "one of any form": (open_thing(), open_thing({"a": {}}), "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL /properties/a", "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL /properties/a"),
    "a property of a closed object": (thing(), thing({"a": STRING}), "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL /properties/a", "!PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL /properties/a"),
    "a required one with a default": (thing(), thing({"a": {"default": "x", **STRING}}, required=["a"]), "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL /properties/a", "!PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL /properties/a"),
    "a required one without": (thing(), thing({"a": STRING}, required=["a"]), "!REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL /properties/a", "!PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL /properties/a"),
    "a forbidden property": (thing({"a": False}), thing(), "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL /properties/a", "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL /properties/a"),
    "covered by the schema of others": (thing(additionalProperties=INTEGER), thing({"a": NUMBER}, additionalProperties=INTEGER), "TYPE_EXTENDED /properties/a PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /properties/a OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL /properties/a", "!TYPE_NARROWED /properties/a !PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /properties/a"),
    "covered by a pattern": (thing(patternProperties={"^a": STRING}), thing({"ab": STRING}, patternProperties={"^a": STRING}), "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /properties/ab OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL /properties/ab", "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /properties/ab"),
    "required": (thing({"a": STRING}), thing({"a": STRING}, required=["a"]), "!REQUIRED_ATTRIBUTE_ADDED /required/a", "REQUIRED_ATTRIBUTE_REMOVED /required/a"),
    "required with a default": (thing({"a": {"default": "", **STRING}}), thing({"a": {"default": "", **STRING}}, required=["a"]), "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED /required/a", "REQUIRED_ATTRIBUTE_REMOVED /required/a"),
    "closing": (open_thing(), thing(), "!ADDITIONAL_PROPERTIES_REMOVED /additionalProperties", "ADDITIONAL_PROPERTIES_ADDED /additionalProperties"),
    "the schema of others": (open_thing(), thing(additionalProperties=STRING), "!ADDITIONAL_PROPERTIES_NARROWED /additionalProperties", "ADDITIONAL_PROPERTIES_EXTENDED /additionalProperties"),
    "how many properties": (thing(maxProperties=2), thing(maxProperties=3), "MAX_PROPERTIES_INCREASED /maxProperties", "!MAX_PROPERTIES_DECREASED /maxProperties"),
    "dependencies": (thing(dependencies={"a": ["b", "c"]}), thing(dependencies={"a": ["b"]}), "DEPENDENCY_ARRAY_NARROWED /dependencies/a", "!DEPENDENCY_ARRAY_EXTENDED /dependencies/a"),
    "schemas of dependencies": (thing(dependencies={"a": open_thing()}), thing(), "DEPENDENCY_SCHEMA_REMOVED /dependencies/a", "!DEPENDENCY_SCHEMA_ADDED /dependencies/a"),
    "a property within": (thing({"a": thing({"b": INTEGER})}), thing({"a": thing({"b": NUMBER})}), "TYPE_EXTENDED /properties/a/properties/b", "!TYPE_NARROWED /properties/a/properties/b"),
    "items": ({"type": "array", "items": INTEGER}, {"type": "array", "items": NUMBER}, "TYPE_EXTENDED /items", "!TYPE_NARROWED /items"),
    "items of any form": ({"type": "array", "items": INTEGER}, {"type": "array"}, "SCHEMA_REMOVED /items", "!SCHEMA_ADDED /items"),
    "how many items": ({"type": "array", "minItems": 2}, {"type": "array", "minItems": 1}, "MIN_ITEMS_DECREASED /minItems", "!MIN_ITEMS_INCREASED /minItems"),
    "unique items": ({"type": "array", "uniqueItems": True}, {"type": "array"}, "UNIQUE_ITEMS_REMOVED /uniqueItems", "!UNIQUE_ITEMS_ADDED /uniqueItems"),
    "a longer tuple": (tuple_of(STRING), tuple_of(STRING, INTEGER), "!ITEM_ADDED_TO_OPEN_CONTENT_MODEL /items/1", "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL /items/1"),
    "a longer closed tuple": (tuple_of(STRING, additionalItems=False), tuple_of(STRING, INTEGER, additionalItems=False), "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL /items/1", "!ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL /items/1"),
    "a tuple with others": (tuple_of(additionalItems=INTEGER), tuple_of(NUMBER, additionalItems=INTEGER), "TYPE_EXTENDED /items/0 ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /items/0", "!TYPE_NARROWED /items/0 !ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /items/0"),
    "a tuple of draft 2020-12": ({**MODERN, "type": "array", "prefixItems": [STRING], "items": False}, {**MODERN, "type": "array", "prefixItems": [STRING], "items": INTEGER}, "ADDITIONAL_ITEMS_ADDED /additionalItems", "!ADDITIONAL_ITEMS_REMOVED /additionalItems"),
    "what is not evaluated": ({**MODERN, "type": "object", "unevaluatedProperties": False}, {**MODERN, "type": "object"}, "UNEVALUATED_PROPERTIES_ADDED /unevaluatedProperties", "!UNEVALUATED_PROPERTIES_REMOVED /unevaluatedProperties"),
    "what draft 7 does not know": ({"type": "object", "unevaluatedProperties": False}, {"type": "object"}, "", ""),
    "how many contain": ({**MODERN, "type": "array", "contains": {}, "maxContains": 1}, {**MODERN, "type": "array", "contains": {}, "maxContains": 2}, "MAX_CONTAINS_INCREASED /maxContains", "!MAX_CONTAINS_DECREASED /maxContains"),
    "one of more": ({"oneOf": [STRING]}, {"oneOf": [NULL, STRING]}, "SUM_TYPE_EXTENDED /", "!SUM_TYPE_NARROWED /"),
    "one of others": ({"oneOf": [STRING, NULL]}, {"oneOf": [INTEGER, NULL]}, "!COMBINED_TYPE_SUBSCHEMAS_CHANGED /", "!COMBINED_TYPE_SUBSCHEMAS_CHANGED /"),
    "one of wider": ({"oneOf": [NULL, INTEGER]}, {"oneOf": [NUMBER, NULL]}, "TYPE_EXTENDED /oneOf/1", "!COMBINED_TYPE_SUBSCHEMAS_CHANGED /"),
    "any instead of one": ({"oneOf": [STRING, NULL]}, {"anyOf": [STRING, NULL]}, "COMBINED_TYPE_EXTENDED /", "!COMBINED_TYPE_CHANGED /"),
    "all of more": ({"allOf": [{"enum": ["a"]}, STRING]}, {"allOf": [STRING]}, "PRODUCT_TYPE_NARROWED /", "!PRODUCT_TYPE_EXTENDED /"),
    "a type to several": (STRING, {"type": ["string", "null"]}, "SUM_TYPE_EXTENDED /", "!TYPE_CHANGED /"),
    "several in another order": ({"type": ["null", "string"]}, {"type": ["string", "null"]}, "", ""),
    "not": ({"not": INTEGER}, {"not": {"maximum": 1, **INTEGER}}, "NOT_TYPE_NARROWED /not", "!NOT_TYPE_EXTENDED /not"),
    "references": ({"$ref": "#/definitions/a", "definitions": {"a": INTEGER}}, {"$ref": "#/definitions/b", "definitions": {"b": {"$ref": "#/definitions/c"}, "c": NUMBER}}, "TYPE_EXTENDED /", "!TYPE_NARROWED /"),
}
# fmt: on


def shown(original: Any, update: Any) -> str:
    found = differences(SchemaNodes(original, {}), SchemaNodes(update, {}))
    return " ".join(f"{'' if each.is_compatible else '!'}{each.kind} /{'/'.join(each.path)}" for each in found)


@pytest.mark.parametrize("name", PAIRS)
def test_differences_are_those_of_confluents_servers(name: str) -> None:
    original, update, forward, back = PAIRS[name]
    assert (shown(original, update), shown(update, original)) == (forward, back)


def tree(leaf: Any) -> dict[str, Any]:
    node = thing({"value": leaf, "left": {"$ref": "#/definitions/node"}, "right": {"$ref": "#/definitions/node"}})
    return {"definitions": {"node": node}, "$ref": "#/definitions/node"}


def test_schemas_that_contain_themselves_are_compared() -> None:
    assert shown(tree(INTEGER), tree(INTEGER)) == ""
    assert shown(tree(INTEGER), tree(NUMBER)) == "TYPE_EXTENDED /properties/value"
    assert "!TYPE_NARROWED /properties/left/properties/value" in shown(tree(NUMBER), tree(INTEGER))


LEVELS = {
    "BACKWARD": (True, False),
    "FORWARD": (False, True),
    "FULL": (False, False),
    "NONE": (True, True),
}
"""Whether number may follow integer, and integer number."""


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_says_in_which_direction_versions_are_compared(level: str) -> None:
    integer, number = (
        ResolvedSchema(Schema(f'{{"type":"{name}"}}', SchemaType.JSON)) for name in ("integer", "number")
    )
    wider = incompatibilities(CompatibilityLevel(level), number, [integer])
    narrower = incompatibilities(CompatibilityLevel(level), integer, [number])
    assert (not wider, not narrower) == LEVELS[level]


def test_transitive_levels_compare_all_versions() -> None:
    versions = [ResolvedSchema(Schema(text, SchemaType.JSON)) for text in ('{"type":"number"}', '{"type":"integer"}')]
    again = ResolvedSchema(Schema('{"type":"integer","title":"x"}', SchemaType.JSON))
    assert incompatibilities(CompatibilityLevel.BACKWARD, again, versions) == []
    assert incompatibilities(CompatibilityLevel.BACKWARD_TRANSITIVE, again, versions) == ["#/: TYPE_NARROWED"]


def test_a_registry_compares_json_schemas() -> None:
    registry = MemoryRegistry()
    registry.register("place", Schema('{"type":"object","properties":{"city":{"type":"string"}}}', SchemaType.JSON))
    used = (SchemaReference("place.json", "place", 1),)
    registry.register("s", Schema('{"properties":{"at":{"$ref":"place.json"}}}', SchemaType.JSON, used))
    update = '{"properties":{"at":{"$ref":"place.json#/properties/city"}}}'
    with pytest.raises(IncompatibleSchemaError, match="#/properties/at: TYPE_CHANGED"):
        registry.register("s", Schema(update, SchemaType.JSON, used))
    wider = '{"type":"object","properties":{"city":{"type":"string"},"zip":{"type":"string"}}}'
    with pytest.raises(IncompatibleSchemaError, match='begin with "additionalProperties": false'):
        registry.register("place", Schema(wider, SchemaType.JSON))


BAD = {
    "unknown type": ({"type": "strin"}, "unknown type strin"),
    "no schema": ({"properties": {"a": 7}}, "an object or a truth value, not 7"),
    "properties in a list": ({"properties": ["a"]}, "has another form"),
    "reference to nowhere": ({"properties": {"a": {"$ref": "#/definitions/a"}}}, "#/definitions/a leads nowhere"),
    "reference to itself": ({"$ref": "#"}, "leads to itself"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_form_that_json_schema_does_not_have_is_refused(name: str) -> None:
    schema, reason = BAD[name]
    with pytest.raises(InvalidSchemaError, match=reason):
        shown(schema, {**schema, "title": "x"})
