"""Expressions of JSON schemas are RE2's in every keyword that has one: no value takes time without end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stratalog.clients.schemas.json_schema import validator_of
from stratalog.clients.schemas.schema import Schema, SchemaType
from stratalog.storage.errors import SerializationError

EVIL, VICTIM = "^(a+)+$", "a" * 200 + "!"
DRAFTS = ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2019-09/schema",
          "https://json-schema.org/draft/2020-12/schema"]  # fmt: skip


def check(schema: dict[str, Any], value: Any) -> str:
    """The reason for which a value is refused; empty if it is not."""
    try:
        validator_of(Schema(json.dumps(schema), SchemaType.JSON), {})(value)
    except SerializationError as reason:
        return str(reason)
    return ""


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": EVIL}, VICTIM),
        ({"properties": {"a": {"$ref": "#/x"}}, "x": {"pattern": EVIL}}, {"a": VICTIM}),
        ({"patternProperties": {EVIL: False}, "additionalProperties": False}, {VICTIM: 1}),
        ({"propertyNames": {"pattern": EVIL}}, {VICTIM: 1}),
    ],
)
def test_an_expression_that_backtracks_is_answered_at_once(draft: str, schema: dict[str, Any], value: Any) -> None:
    assert "the value breaks the JSON schema" in check({"$schema": draft, **schema}, value)


@pytest.mark.parametrize("draft", DRAFTS[1:])
def test_unevaluated_properties_are_compared_with_expressions_of_other_parts(draft: str) -> None:
    schema = {"$schema": draft, "allOf": [{"patternProperties": {EVIL: True}}], "unevaluatedProperties": False}
    assert check(schema, {"aaa": 1}) == ""
    assert "Unevaluated properties are not allowed" in check(schema, {VICTIM: 1})


def test_a_schema_with_look_around_refuses_values_and_names_the_reason() -> None:
    assert "is not a valid regular expression" in check({"pattern": "^(?!x)"}, "y")


def test_other_users_of_the_package_keep_pythons_expressions() -> None:
    from jsonschema import validate

    validate("y", {"pattern": "^(?!x)"})
