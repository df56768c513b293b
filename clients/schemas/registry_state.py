"""What a schema topic says: subjects, versions, ids, levels; and the records that a change adds. Pure.

The records are those of Confluent's `_schemas` topic, JSON in key and value:

    {"keytype":"SCHEMA","subject":"s","version":1,"magic":1}   {"subject":"s","version":1,"id":1,"schema":…,"deleted":…}
    {"keytype":"CONFIG","subject":"s","magic":0}               {"subject":"s","compatibilityLevel":"FULL"}
    {"keytype":"DELETE_SUBJECT","subject":"s","magic":0}       {"subject":"s","version":3}
    {"keytype":"NOOP","magic":0}

Ids count from 1 over all subjects, versions from 1 in a subject; neither is used twice, also after a deletion.
Source: `io.confluent.kafka.schemaregistry.storage.{SchemaKey,SchemaValue,ConfigKey,DeleteSubjectKey}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from stratalog.clients.schemas.compatibility.levels import (
    CompatibilityLevel,
    ResolvedSchema,
    check_schema,
    incompatibilities,
    unreadable,
)
from stratalog.clients.schemas.errors import (
    CompatibilityNotConfiguredError,
    IncompatibleSchemaError,
    InvalidSchemaError,
    InvalidSchemaVersionError,
    ReferenceExistsError,
    SchemaNotFoundError,
    SchemaVersionNotFoundError,
    SubjectNotFoundError,
)
from stratalog.clients.schemas.schema import RegisteredSchema, Schema, SchemaReference, compact, guid_of, identity

T = TypeVar("T")
DEFAULT_LEVEL = CompatibilityLevel.BACKWARD


class SchemaRecord(NamedTuple):
    """A record of the schema topic; a None value deletes."""

    key: bytes
    value: bytes | None


class Change(NamedTuple, Generic[T]):
    """The records that a change adds, none if nothing changes, and its answer once they are stored."""

    records: tuple[SchemaRecord, ...]
    answer: T


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version of a subject; a deleted one is still found by its id, which data may name."""

    subject: str
    version: int
    id: int
    schema: Schema
    is_deleted: bool = False

    def record(self) -> SchemaRecord:
        key = {"keytype": "SCHEMA", "subject": self.subject, "version": self.version, "magic": 1}
        body = {name: value for name, value in self.schema.as_json().items() if value and value != "AVRO"}
        told = {"subject": self.subject, "version": self.version, "id": self.id, **body, "deleted": self.is_deleted}
        return _record(key, told)

    def as_registered(self) -> RegisteredSchema:
        return RegisteredSchema(self.schema, self.id, guid_of(self.schema), self.subject, self.version)


@dataclass(slots=True)
class RegistryState:
    """The fold of a schema topic."""

    subjects: dict[str, dict[int, StoredVersion]] = field(default_factory=dict)
    levels: dict[str | None, CompatibilityLevel] = field(default_factory=dict)
    _by_id: dict[int, StoredVersion] = field(default_factory=dict)
    _id_of: dict[object, int] = field(default_factory=dict)
    _by_guid: dict[UUID, StoredVersion] = field(default_factory=dict)
    _id_max: int = 0

    # -- the fold ------------------------------------------------------------------------------------------

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record in. One that is not understood is passed over, as servers do."""
        try:
            named = json.loads(key or b"null")
            body = json.loads(value) if value else None
        except ValueError:
            return
        if not isinstance(named, dict):
            return
        try:
            self._apply(named, body)
        except (KeyError, TypeError, InvalidSchemaError):
            return

    def _apply(self, key: Mapping[str, Any], body: Mapping[str, Any] | None) -> None:
        kind, subject = key.get("keytype"), key.get("subject")
        if kind == "SCHEMA":
            self._schema(key["subject"], key["version"], body)
        elif kind == "CONFIG":
            level = str((body or {}).get("compatibilityLevel"))
            if level in CompatibilityLevel.__members__:
                self.levels[subject] = CompatibilityLevel(level)
            else:
                self.levels.pop(subject, None)
        elif kind == "DELETE_SUBJECT" and body is not None:
            versions = self.subjects.get(body["subject"], {})
            for number, each in versions.items():
                if number <= body["version"]:
                    versions[number] = replace(each, is_deleted=True)

    def _schema(self, subject: str, version: int, body: Mapping[str, Any] | None) -> None:
        versions = self.subjects.setdefault(subject, {})
        if body is None:
            versions.pop(version, None)
            return
        stored = StoredVersion(subject, version, body["id"], Schema.from_json(body), bool(body.get("deleted")))
        versions[version] = stored
        self._by_id.setdefault(stored.id, stored)
        self._id_of.setdefault(identity(stored.schema), stored.id)
        self._by_guid.setdefault(guid_of(stored.schema), stored)
        self._id_max = max(self._id_max, stored.id)

    # -- questions -----------------------------------------------------------------------------------------

    def live(self, subject: str) -> list[StoredVersion]:
        """The versions that are not deleted, in order. SubjectNotFoundError if there is none."""
        found = [each for _, each in sorted(self.subjects.get(subject, {}).items()) if not each.is_deleted]
        if not found:
            raise SubjectNotFoundError(f"Subject '{subject}' not found.")
        return found

    def version(self, subject: str, version: int | None) -> StoredVersion:
        """A version, the latest live one if None. SubjectNotFoundError, SchemaVersionNotFoundError."""
        if version is None:
            return self.live(subject)[-1]
        if version < 1:
            raise InvalidSchemaVersionError(f"The specified version '{version}' is not a valid version id: from 1 on")
        found = self.subjects.get(subject, {}).get(version)
        if found is not None and not found.is_deleted:
            return found
        self.live(subject)
        raise SchemaVersionNotFoundError(f"Version {version} not found.")

    def find(self, subject: str, schema: Schema) -> StoredVersion:
        """The latest live version with this schema. SubjectNotFoundError, SchemaNotFoundError."""
        wanted = identity(schema)
        for each in reversed(self.live(subject)):
            if identity(each.schema) == wanted:
                return each
        raise SchemaNotFoundError("Schema not found")

    def by_id(self, schema_id: int) -> StoredVersion:
        """SchemaNotFoundError."""
        if schema_id not in self._by_id:
            raise SchemaNotFoundError(f"Schema {schema_id} not found")
        return self._by_id[schema_id]

    def by_guid(self, guid: UUID) -> StoredVersion:
        """SchemaNotFoundError."""
        if guid not in self._by_guid:
            raise SchemaNotFoundError(f"Schema {guid} not found")
        return self._by_guid[guid]

    def places(self, schema_id: int) -> list[tuple[str, int]]:
        """(subject, version) of all that have this id, also of deleted ones. SchemaNotFoundError."""
        self.by_id(schema_id)
        return [
            (each.subject, each.version) for found in self.subjects.values() for each in found.values()
            if each.id == schema_id
        ]  # fmt: skip

    def level(self, subject: str | None = None) -> CompatibilityLevel:
        """The level that counts for a subject, or the global one; BACKWARD where nothing was set."""
        return self.levels.get(subject) or self.levels.get(None) or DEFAULT_LEVEL

    def incompatibilities(self, subject: str, schema: Schema, version: int | None = None) -> list[str]:
        """Why the schema could not be registered; with a version, why it does not read that one or the reverse."""
        new, level = self._resolved(compact(schema)), self.level(subject)
        if version is None:
            return incompatibilities(level, new, self._earlier(subject))
        earlier = self._resolved(self.version(subject, version).schema)
        return (
            incompatibilities(level, new, [earlier]) if level != CompatibilityLevel.NONE else unreadable(new, earlier)
        )

    def _earlier(self, subject: str) -> list[ResolvedSchema]:
        versions = sorted(self.subjects.get(subject, {}).items())
        return [self._resolved(each.schema) for _, each in versions if not each.is_deleted]

    def _resolved(self, schema: Schema) -> ResolvedSchema:
        found: dict[str, Schema] = {}

        def add(references: Iterable[SchemaReference]) -> None:
            for each in references:
                if each.name in found:
                    continue
                used = self.subjects.get(each.subject, {}).get(each.version)
                if used is None:
                    raise InvalidSchemaError(
                        f"the reference {each.name} is to version {each.version} of {each.subject}, which is not "
                        "there: register it first"
                    )
                add(used.schema.references)
                found[each.name] = used.schema

        add(schema.references)
        return ResolvedSchema(schema, found)

    # -- changes -------------------------------------------------------------------------------------------

    def register(self, subject: str, schema: Schema) -> Change[RegisteredSchema]:
        """The schema as a version of the subject: the one that has it, else the next. The id is that of the same
        schema in any subject, else the next. IncompatibleSchemaError, InvalidSchemaError."""
        told = compact(schema)
        if any(not each.is_deleted for each in self.subjects.get(subject, {}).values()):
            try:
                return Change((), self.find(subject, told).as_registered())
            except SchemaNotFoundError:
                pass
        new, level = self._resolved(told), self.level(subject)
        check_schema(new)
        reasons = incompatibilities(level, new, self._earlier(subject))
        if reasons:
            raise IncompatibleSchemaError(
                f"Schema being registered is incompatible with an earlier schema for subject '{subject}', "
                f"compatibility {level}: {'; '.join(reasons)}",
                reasons=reasons,
            )
        schema_id = self._id_of.get(identity(told), self._id_max + 1)
        stored = StoredVersion(subject, max(self.subjects.get(subject, {}), default=0) + 1, schema_id, told)
        return Change((stored.record(),), stored.as_registered())

    def set_level(self, level: str, subject: str | None) -> Change[None]:
        """Set a subject's level, or the global one. InvalidCompatibilityLevelError."""
        named = {} if subject is None else {"subject": subject}
        wanted = CompatibilityLevel.of(level)
        if self.levels.get(subject) == wanted:
            return Change((), None)
        key = {"keytype": "CONFIG", **named, "magic": 0}
        return Change((_record(key, {**named, "compatibilityLevel": wanted.value}),), None)

    def delete_level(self, subject: str) -> Change[None]:
        """Let the global level count again. CompatibilityNotConfiguredError."""
        if subject not in self.levels:
            raise CompatibilityNotConfiguredError(
                f"Subject '{subject}' does not have subject-level compatibility configured"
            )
        return Change((_record({"keytype": "CONFIG", "subject": subject, "magic": 0}, None),), None)

    def delete_version(self, subject: str, version: int | None) -> Change[int]:
        """Delete a version; it stays readable by its id. ReferenceExistsError, SchemaVersionNotFoundError."""
        stored = self.version(subject, version)
        self._check_unused([stored])
        return Change((replace(stored, is_deleted=True).record(),), stored.version)

    def delete_subject(self, subject: str) -> Change[list[int]]:
        """Delete all versions of a subject, as `delete_version`; their numbers."""
        found = self.live(subject)
        self._check_unused(found)
        key = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}
        last = found[-1].version
        return Change((_record(key, {"subject": subject, "version": last}),), [each.version for each in found])

    def _check_unused(self, found: Iterable[StoredVersion]) -> None:
        places = {(each.subject, each.version) for each in found}
        for versions in self.subjects.values():
            for user in versions.values():
                used = places & {(each.subject, each.version) for each in user.schema.references}
                if used and not user.is_deleted and (user.subject, user.version) not in places:
                    raise ReferenceExistsError(
                        f"One or more references exist to the schema {used}: delete {user.subject} version "
                        f"{user.version} first"
                    )


def _record(key: Mapping[str, Any], value: Mapping[str, Any] | None) -> SchemaRecord:
    return SchemaRecord(_json(key), None if value is None else _json(value))


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
