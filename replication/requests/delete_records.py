"""DeleteRecords as plain values. Pure.

Clients in the broker's process call it with these; elsewhere it is Kafka's request, whose topics have their ids beside
their names (`wire.messages.schema`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stratalog.storage.errors import StratalogError
from stratalog.storage.records import IdentifiedPartition

NO_LOW_WATERMARK = -1


@dataclass(frozen=True, slots=True)
class DeleteRecordsRequest:
    """New starts of the logs of partitions that one broker leads.

    offsets     by partition; -1 is the high watermark
    timeout_ms  bounds the wait for the other live replicas
    """

    offsets: Mapping[IdentifiedPartition, int]
    timeout_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """The result for one partition: no live replica's log starts below `low_watermark` any more; or `error`."""

    low_watermark: int = NO_LOW_WATERMARK
    error: StratalogError | None = None


DeleteRecordsResponse = Mapping[IdentifiedPartition, DeletedRecords]
"""The result for each partition of a request."""
