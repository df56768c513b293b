"""The schemas of a topic, read only, by the view of the one who asks. I/O: reads the topic.

`SchemaFolder` has a consumer of its own; this reads by a view, of storage or of a user's own connection, and never for
longer than a question waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from stratalog.clients.client_view import ClientView
from stratalog.clients.schemas.errors import RegistryUnavailableError, SchemaNotFoundError
from stratalog.clients.schemas.registry_state import RegistryState
from stratalog.clients.schemas.schema import RegisteredSchema, Schema
from stratalog.storage.records import CONTROL_ATTRIBUTE, TopicPartition

FETCH_BYTES = 4 << 20
READ_MS_MAX = 10_000
"""Time for which one question reads the topic; the next one goes on there."""
T = TypeVar("T")


class SchemaTopic:
    """The look-ups of `SchemaFolder`. Thread-safe.

    view     at read_committed
    wait_ms  how long a leader is waited for
    """

    def __init__(self, view: ClientView, topic: str, wait_ms: int) -> None:
        self._view, self._wait_ms = view, wait_ms
        self._partition = TopicPartition(topic, 0)
        self._state, self._next_offset = RegistryState(), 0
        self._lock = threading.Lock()

    def schema_by_id(self, schema_id: int, subject: str | None = None) -> RegisteredSchema:
        """SchemaNotFoundError."""
        del subject
        return self._ask_once(lambda state: state.by_id(schema_id).as_registered())

    def schema_by_guid(self, guid: UUID) -> RegisteredSchema:
        """SchemaNotFoundError."""
        return self._ask_once(lambda state: state.by_guid(guid).as_registered())

    def subject_versions(self, schema_id: int) -> list[tuple[str, int]]:
        """(subject, version) wherever this schema is registered, now or before a deletion. SchemaNotFoundError."""
        return self._ask_once(lambda state: state.places(schema_id))

    def version(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """A version of a subject; the latest if None. SubjectNotFoundError, SchemaVersionNotFoundError."""
        return self._ask(lambda state: state.version(subject, version).as_registered())

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

    def compatibility(self, subject: str | None = None) -> str:
        """The level that counts for a subject, or the global one."""
        return self._ask(lambda state: state.level(subject).value)

    def incompatibilities(self, subject: str, schema: Schema, version: int | None = None) -> list[str]:
        """Why the schema could not be registered, or is incompatible with one version; empty if it could."""
        return self._ask(lambda state: state.incompatibilities(subject, schema, version))

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
                self._refresh()
                return question(self._state)

    def _refresh(self) -> None:
        """Fold the topic up to its end; from the start if the log lost its end. RegistryUnavailableError."""
        view, named = self._view, self._partition
        deadline_ms = view.clock.monotonic_ms() + READ_MS_MAX
        end = view.offsets.end_offsets([named])[named]
        if self._next_offset > end:
            self._state, self._next_offset = RegistryState(), 0
        self._next_offset = max(self._next_offset, view.offsets.beginning_offsets([named])[named])
        while self._next_offset < end:
            found = view.records.fetch(named, self._next_offset, FETCH_BYTES, end, self._wait_ms)
            for row in found.rows.select(["key", "value", "attributes"]).to_pylist():
                if not row["attributes"] & CONTROL_ATTRIBUTE:
                    self._state.apply(row["key"], row["value"])
            if found.next_offset <= self._next_offset or view.clock.monotonic_ms() > deadline_ms:
                raise RegistryUnavailableError(f"{named} is read up to offset {self._next_offset} of {end}: ask again")
            self._next_offset = found.next_offset
