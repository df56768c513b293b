"""Fetch requests, and what a response says of one partition: records, bounds, aborted transactions. Pure.

Source: Kafka's `FetchRequestManager`, `CompletedFetch` (KIP-98, KIP-516).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.clients.wire.rows import decode_rows
from stratalog.storage.log.rows import no_rows
from stratalog.storage.records import CONTROL_ATTRIBUTE
from stratalog.storage.transactions import AbortedTransaction, marker_of
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.batches.headers import batches_in
from stratalog.wire.messages.frames import Message
from stratalog.wire.messages.schema import Entity

FETCH_VERSION = 13
"""The first version that names topics by id alone."""
FETCH_BYTES_MAX = 50 << 20
"""Limit of one response; Kafka's default of `fetch.max.bytes`."""
NO_SESSION, FINAL_EPOCH = 0, -1
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class FetchedPart:
    """What a response has of a partition, from the offset that was asked for on.

    rows         as `READ_SCHEMA`, control records among them
    next_offset  where the next fetch begins
    aborted      transactions in `rows` whose records do not count
    """

    rows: pa.Table
    next_offset: int
    high_watermark: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...]


def fetch_message(
    offsets: Mapping[tuple[str, int], int], partition_bytes: int, wait_ms: int, isolation: int
) -> Message:
    """A request for records of partitions that one broker leads, by topic id and number, from these offsets on. It is
    answered when there is one byte, or after `wait_ms`."""
    by_topic: dict[str, list[dict[str, int]]] = {}
    for (topic_id, partition), offset in offsets.items():
        asked = {
            "partition": partition,
            "current_leader_epoch": NO_EPOCH,
            "fetch_offset": offset,
            "last_fetched_epoch": NO_EPOCH,
            "log_start_offset": -1,
            "partition_max_bytes": partition_bytes,
        }
        by_topic.setdefault(topic_id, []).append(asked)
    values = {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": FETCH_BYTES_MAX,
        "isolation_level": isolation,
        "session_id": NO_SESSION,
        "session_epoch": FINAL_EPOCH,
        "topics": [{"topic_id": topic_id, "partitions": asked} for topic_id, asked in by_topic.items()],
    }
    return Message(values, ApiKey.FETCH, FETCH_VERSION)


def fetched_part(part: Entity, offset: int) -> FetchedPart:
    """A partition's part of a response without an error. CorruptMessageError and others as `decode_rows`."""
    data = part.records or b""
    rows, next_offset = no_rows(), offset
    if data:
        rows = decode_rows(data)
        next_offset = max([offset, *(header.last_offset + 1 for header, _ in batches_in(data))])
        if rows.num_rows and rows["offset"][0].as_py() < offset:  # a batch is sent whole
            rows = rows.filter(pc.greater_equal(rows["offset"], offset))
    aborted = aborted_transactions(rows, part.aborted_transactions or ())
    return FetchedPart(rows, next_offset, part.high_watermark, part.log_start_offset, aborted)


def aborted_transactions(rows: pa.Table, listed: Iterable[Entity]) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions of a response with their ends: the offset of the producer's next abort marker, or of the
    last row where that is not among the rows."""
    begun = sorted((each.first_offset, each.producer_id) for each in listed)
    if not begun or not rows.num_rows:
        return ()
    markers = _abort_markers(rows)
    last = rows["offset"][-1].as_py()
    return tuple(
        AbortedTransaction(producer, first, next((at for at, by in markers if by == producer and at >= first), last))
        for first, producer in begun
    )


def _abort_markers(rows: pa.Table) -> Sequence[tuple[int, int]]:
    """Offset and producer of each."""
    control = rows.filter(pc.not_equal(pc.bit_wise_and(rows["attributes"], CONTROL_ATTRIBUTE), 0))
    found = []
    for row in control.select(["offset", "producer_id", "key", "value"]).to_pylist():
        marker = marker_of(row["key"], row["value"])
        if marker is not None and not marker.is_commit:
            found.append((row["offset"], row["producer_id"]))
    return found
