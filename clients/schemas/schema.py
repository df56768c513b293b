"""A schema's text, type and references; its identity; and what a registry keeps of it. Pure.

Source: `io.confluent.kafka.schemaregistry.client.rest.entities.{Schema,SchemaReference}`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from stratalog.clients.schemas.errors import InvalidSchemaError


class SchemaType(StrEnum):
    """Confluent's `schemaType`; absent in JSON means AVRO."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one uses, by the name it has there: a full name of Avro, a URI, or a .proto file."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema. `text` is JSON for AVRO and JSON; for PROTOBUF a .proto file or a FileDescriptorProto in base64."""

    text: str
    type: SchemaType = SchemaType.AVRO
    references: tuple[SchemaReference, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The body of a request, as confluent-kafka sends it."""
        references = [{"name": each.name, "subject": each.subject, "version": each.version} for each in self.references]
        return {"schema": self.text, "schemaType": self.type.value, "references": references}

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> Schema:
        """The schema of an answer or of a record of `_schemas`. InvalidSchemaError for a type that is not known."""
        kind = answer.get("schemaType") or SchemaType.AVRO.value
        if kind not in SchemaType.__members__:
            raise InvalidSchemaError(f"schema type {kind} is not one of {', '.join(SchemaType)}")
        references = tuple(
            SchemaReference(each["name"], each["subject"], each["version"]) for each in answer.get("references") or ()
        )
        return cls(answer["schema"], SchemaType(kind), references)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema under its id. `subject` and `version` are None where it was found by id alone, `id` by GUID alone;
    `guid` where the server gives none."""

    schema: Schema
    id: int | None
    guid: UUID | None = None
    subject: str | None = None
    version: int | None = None


class SchemaVersions(Protocol):
    """What finds the schemas to which others refer."""

    def version(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """A version of a subject; the latest if None. SubjectNotFoundError, SchemaVersionNotFoundError."""


class SchemaRegistry(Protocol):
    """What serializers need of a registry: `SchemaRegistryClient` and `SchemaFolder` have it."""

    def register(self, subject: str, schema: Schema) -> RegisteredSchema:
        """The schema as a version of the subject, a new one if it is none yet."""

    def lookup(self, subject: str, schema: Schema) -> RegisteredSchema:
        """The version of the subject that has this schema. SubjectNotFoundError, SchemaNotFoundError."""

    def version(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """A version of a subject; the latest if None. SubjectNotFoundError, SchemaVersionNotFoundError."""

    def schema_by_id(self, schema_id: int, subject: str | None = None) -> RegisteredSchema:
        """SchemaNotFoundError."""

    def schema_by_guid(self, guid: UUID) -> RegisteredSchema:
        """SchemaNotFoundError."""


def compact(schema: Schema) -> Schema:
    """The schema with its JSON text without blanks; InvalidSchemaError if the text is not JSON."""
    if schema.type == SchemaType.PROTOBUF:
        return schema
    return Schema(json.dumps(loads(schema), separators=(",", ":"), ensure_ascii=False), schema.type, schema.references)


def loads(schema: Schema) -> Any:
    """The JSON value of an AVRO or JSON schema. An Avro primitive may stand without quotes. InvalidSchemaError."""
    text = schema.text.strip()
    if schema.type == SchemaType.AVRO and text.isalpha():
        return text
    try:
        return json.loads(text)
    except ValueError as reason:
        raise InvalidSchemaError(f"the {schema.type} schema is not JSON: {reason}") from reason


def identity(schema: Schema) -> tuple[str, str, tuple[SchemaReference, ...]]:
    """What two schemas have in common that get one id: type, references and, of JSON texts, the value."""
    if schema.type == SchemaType.PROTOBUF:
        return schema.type, schema.text.strip(), schema.references
    return schema.type, json.dumps(loads(schema), sort_keys=True), schema.references


def guid_of(schema: Schema) -> UUID:
    """The GUID of a schema: the MD5 of text and references (Confluent's `Schema.getGuid`)."""
    digest = hashlib.md5(schema.text.encode(), usedforsecurity=False)
    for each in schema.references:
        digest.update(each.name.encode() + each.subject.encode() + each.version.to_bytes(4, "big"))
    return UUID(bytes=digest.digest())


def referenced(registry: SchemaVersions, schema: Schema) -> dict[str, Schema]:
    """Name -> schema of everything that `schema` refers to, also indirectly; what is referred to comes first."""
    found: dict[str, Schema] = {}

    def add(references: Sequence[SchemaReference]) -> None:
        for each in references:
            if each.name not in found:
                used = registry.version(each.subject, each.version).schema
                add(used.references)
                found[each.name] = used

    add(schema.references)
    return found
