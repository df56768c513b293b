"""The schemas of a topic, read only, by the view of the one who asks. I/O: reads the topic.

`SchemaFolder` has a consumer of its own; this reads by a view, of storage or of a user's own connection, and never for
longer than a question waits.
"""

from __future__ import annotations

from stratalog.clients.client_view import ClientView
from stratalog.clients.schemas.errors import RegistryUnavailableError
from stratalog.clients.schemas.folded_schemas import FoldedSchemas
from stratalog.clients.schemas.registry_state import RegistryState
from stratalog.storage.records import CONTROL_ATTRIBUTE, TopicPartition

FETCH_BYTES = 4 << 20
READ_MS_MAX = 10_000
"""Time for which one question reads the topic; the next one goes on there."""


class SchemaTopic(FoldedSchemas):
    """The look-ups of `SchemaFolder`. Thread-safe.

    view     at read_committed
    wait_ms  how long a leader is waited for
    """

    def __init__(self, view: ClientView, topic: str, wait_ms: int) -> None:
        super().__init__()
        self._view, self._wait_ms = view, wait_ms
        self._partition, self._next_offset = TopicPartition(topic, 0), 0

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
