"""A registry whose topic is a list. Pure."""

from __future__ import annotations

from uuid import UUID

from stratalog.clients.schemas.registry_state import RegistryState
from stratalog.clients.schemas.schema import RegisteredSchema, Schema


class MemoryRegistry:
    """`asked`: how often it was asked anything."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.asked = 0

    def register(self, subject: str, schema: Schema) -> RegisteredSchema:
        self.asked += 1
        change = self.state.register(subject, schema)
        for record in change.records:
            self.state.apply(*record)
        return change.answer

    def lookup(self, subject: str, schema: Schema) -> RegisteredSchema:
        self.asked += 1
        return self.state.find(subject, schema).as_registered()

    def version(self, subject: str, version: int | None = None) -> RegisteredSchema:
        self.asked += 1
        return self.state.version(subject, version).as_registered()

    def schema_by_id(self, schema_id: int, subject: str | None = None) -> RegisteredSchema:
        self.asked += 1
        return self.state.by_id(schema_id).as_registered()

    def schema_by_guid(self, guid: UUID) -> RegisteredSchema:
        self.asked += 1
        return self.state.by_guid(guid).as_registered()
