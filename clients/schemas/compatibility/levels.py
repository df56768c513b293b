"""Compatibility levels: which earlier versions a new schema is compared with, and in which direction. Pure.

    BACKWARD   the new schema reads what the latest version wrote
    FORWARD    the latest version reads what the new schema writes
    FULL       both
    ..._TRANSITIVE  all versions instead of the latest one
    NONE       no comparison

Source: `io.confluent.kafka.schemaregistry.{CompatibilityLevel,CompatibilityChecker}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from stratalog.clients.schemas.compatibility import avro, json_schema, protobuf
from stratalog.clients.schemas.compatibility.json_nodes import SchemaNodes
from stratalog.clients.schemas.errors import InvalidCompatibilityLevelError
from stratalog.clients.schemas.schema import Schema, SchemaType, loads


class CompatibilityLevel(StrEnum):
    """Confluent's levels."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @classmethod
    def of(cls, name: str) -> CompatibilityLevel:
        """The level of a name in any case. InvalidCompatibilityLevelError."""
        if name.upper() not in cls.__members__:
            raise InvalidCompatibilityLevelError(
                f"Invalid compatibility level {name}. Valid values are {', '.join(cls.__members__)}"
            )
        return cls(name.upper())


@dataclass(frozen=True, slots=True)
class ResolvedSchema:
    """A schema with all that it refers to, by name; what is referred to comes first."""

    schema: Schema
    references: Mapping[str, Schema] = field(default_factory=dict)


def check_schema(resolved: ResolvedSchema) -> None:
    """InvalidSchemaError for a text that is no schema of its type."""
    if resolved.schema.type == SchemaType.AVRO:
        _avro(resolved)
    elif resolved.schema.type == SchemaType.JSON:
        _json(resolved)


def incompatibilities(level: CompatibilityLevel, new: ResolvedSchema, earlier: Sequence[ResolvedSchema]) -> list[str]:
    """Why `new` may not follow the `earlier` versions, oldest first; empty if it may."""
    if level == CompatibilityLevel.NONE or not earlier:
        return []
    compared = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
    found = []
    for each in reversed(compared):
        if not level.startswith("FORWARD"):
            found += unreadable(new, each)
        if not level.startswith("BACKWARD"):
            found += unreadable(each, new)
    return list(dict.fromkeys(found))


def unreadable(reader: ResolvedSchema, writer: ResolvedSchema) -> list[str]:
    """Why `reader` does not read what `writer` wrote; empty if it does. InvalidSchemaError."""
    kind = reader.schema.type
    if kind != writer.schema.type:
        return [f"Incompatible because of different schema type: {kind} and {writer.schema.type}"]
    if kind == SchemaType.AVRO:
        return avro.incompatibilities(_avro(reader), _avro(writer))
    if kind == SchemaType.PROTOBUF:
        files = [protobuf.parsed_file(each.schema.text) for each in (writer, reader)]
        return protobuf.incompatibilities(*files)
    return json_schema.incompatibilities(_json(writer), _json(reader))


def _avro(resolved: ResolvedSchema) -> avro.AvroType:
    named = {name: loads(schema) for name, schema in resolved.references.items()}
    return avro.parsed(loads(resolved.schema), named)


def _json(resolved: ResolvedSchema) -> SchemaNodes:
    return SchemaNodes(loads(resolved.schema), {name: loads(each) for name, each in resolved.references.items()})
