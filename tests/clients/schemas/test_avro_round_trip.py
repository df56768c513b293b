"""Random Avro schemas with random values: what is read is what was written; a schema reads itself."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stratalog.clients.schemas.avro import AvroDeserializer, AvroSerializer
from stratalog.clients.schemas.compatibility.avro import incompatibilities, parsed
from stratalog.clients.serialization import VALUE, SerializationContext
from tests.clients.schemas.memory_registry import MemoryRegistry
from tests.examples import examples

Draw = Callable[[Any], Any]
NAMES = st.sampled_from([f"{letter}{number}" for letter in "abc" for number in range(3)])
PRIMITIVES: dict[str, Any] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=20),
}


class Drawn:
    """A schema under construction: each named type has a name of its own."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self._count = 0

    def name(self) -> str:
        self._count += 1
        return f"n.T{self._count}"

    def pair(self, depth: int) -> tuple[Any, Any]:
        """(schema, strategy of its values)."""
        kinds = (
            ["plain", "enum", "fixed"] if depth == 0 else ["plain", "enum", "fixed", "array", "map", "union", "record"]
        )
        kind = self.draw(st.sampled_from(kinds))
        if kind == "plain":
            name = self.draw(st.sampled_from(sorted(PRIMITIVES)))
            return name, PRIMITIVES[name]
        if kind == "enum":
            symbols = self.draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
            return {"type": "enum", "name": self.name(), "symbols": symbols}, st.sampled_from(symbols)
        if kind == "fixed":
            size = self.draw(st.integers(1, 9))
            return {"type": "fixed", "name": self.name(), "size": size}, st.binary(min_size=size, max_size=size)
        if kind == "record":
            return self.record(depth)
        schema, values = self.pair(depth - 1)
        if kind == "array":
            return {"type": "array", "items": schema}, st.lists(values, max_size=4)
        if kind == "map":
            return {"type": "map", "values": schema}, st.dictionaries(st.text(max_size=5), values, max_size=4)
        if schema == "null" or isinstance(schema, list):
            return schema, values
        return ["null", schema], st.one_of(st.none(), values)

    def record(self, depth: int) -> tuple[Any, Any]:
        name = self.name()
        fields = {each: self.pair(depth - 1) for each in self.draw(st.lists(NAMES, max_size=4, unique=True))}
        schema = {
            "type": "record",
            "name": name,
            "fields": [{"name": each, "type": pair[0]} for each, pair in fields.items()],
        }
        return schema, st.fixed_dictionaries({each: pair[1] for each, pair in fields.items()})


@st.composite
def schemas_with_values(draw: Draw) -> tuple[Any, Any]:
    schema, values = Drawn(draw).pair(3)
    value = draw(values)
    return schema, value


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float):
        return math.isclose(one, other) or one == other
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@settings(
    max_examples=examples(1_000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(schemas_with_values())
def test_a_value_of_any_schema_is_read_as_it_was_written(drawn: tuple[Any, Any]) -> None:
    schema, value = drawn
    text = json.dumps(schema)
    registry = MemoryRegistry()
    place = SerializationContext("t", VALUE)
    encoded = AvroSerializer(registry, text)(value, place)
    assert same(AvroDeserializer(registry)(encoded, place), value)
    assert same(AvroDeserializer(registry, text)(encoded, place), value)
    assert incompatibilities(parsed(schema), parsed(schema)) == []
