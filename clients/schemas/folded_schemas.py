"""Look-ups in a schema topic's fold: of whoever reads the topic, however it is read. I/O: that of `_refresh`."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from stratalog.clients.schemas.errors import SchemaNotFoundError
from stratalog.clients.schemas.registry_state import RegistryState
from stratalog.clients.schemas.schema import RegisteredSchema, Schema

T = TypeVar("T")


class FoldedSchemas(ABC):
    """The look-ups of a schema registry. Thread-safe, if `_refresh` reads alone: it is called with the lock."""

    def __init__(self) -> None:
        self._state = RegistryState()
        self._lock = threading.RLock()

    @abstractmethod
    def _refresh(self) -> None:
        """Fold the topic up to its end. RegistryUnavailableError when that takes too long."""

    def version(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """A version of a subject; the latest if None. SubjectNotFoundError, SchemaVersionNotFoundError."""
        return self._ask(lambda state: state.version(subject, version).as_registered())

    def schema_by_id(self, schema_id: int, subject: str | None = None) -> RegisteredSchema:
        """SchemaNotFoundError. Ids count over all subjects, so `subject` is not needed."""
        del subject
        return self._ask_once(lambda state: state.by_id(schema_id).as_registered())

    def schema_by_guid(self, guid: UUID) -> RegisteredSchema:
        """SchemaNotFoundError."""
        return self._ask_once(lambda state: state.by_guid(guid).as_registered())

    def versions(self, subject: str) -> list[int]:
        """The numbers of the versions of a subject. SubjectNotFoundError."""
        return self._ask(lambda state: [each.version for each in state.live(subject)])

    def subjects(self) -> list[str]:
        """All subjects with a version that is not deleted."""
        return self._ask(
            lambda state: [
                name for name, found in state.subjects.items() if any(not each.is_deleted for each in found.values())
            ]
        )

    def subject_versions(self, schema_id: int) -> list[tuple[str, int]]:
        """(subject, version) wherever this schema is registered, now or before a deletion. SchemaNotFoundError."""
        return self._ask_once(lambda state: state.places(schema_id))

    def incompatibilities(self, subject: str, schema: Schema, version: int | None = None) -> list[str]:
        """Why the schema could not be registered, or is incompatible with one version; empty if it could."""
        return self._ask(lambda state: state.incompatibilities(subject, schema, version))

    def compatibility(self, subject: str | None = None) -> str:
        """The level that counts for a subject, or the global one."""
        return self._ask(lambda state: state.level(subject).value)

    def _ask(self, question: Callable[[RegistryState], T]) -> T:
        with self._lock:
            self._refresh()
            return question(self._state)

    def _ask_once(self, question: Callable[[RegistryState], T]) -> T:
        """For what never changes: the topic is read only when the answer is not known."""
        with self._lock:
            try:
                return question(self._state)
            except SchemaNotFoundError:
                return self._ask(question)
