"""Compaction of transactions: which aborted records and which markers a pass removes. Pure.

Kafka's `CleanedTransactionMetadata`, and KIP-534 for the removal of markers. A pass reads a log in order of offset, and
only below the last stable offset, so every transaction that it meets has ended.

An aborted record is removed at once, also when it is the newest of its key. A marker stays while a record of its
transaction does. Then it is given a delete horizon, `delete.retention.ms` later, in a header of its own. A later pass
after the horizon removes it, unless it is the last marker of a known producer, whose epoch it carries. Kafka keeps the
horizon in the marker's batch, and sets it one pass later, when it meets the marker without a record before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stratalog.storage.producers import ProducerStates
from stratalog.storage.records import CONTROL_ATTRIBUTE, HEADERS_TYPE, TRANSACTIONAL_ATTRIBUTE
from stratalog.storage.transactions import AbortedTransaction

DELETE_HORIZON = "delete.horizon.ms"
"""The header of a marker with the time, in ms, from which on it may be removed."""
NO_HORIZON = -1
EVERY_OFFSET = (1 << 63) - 1

Mask = npt.NDArray[np.bool_]
Longs = npt.NDArray[np.int64]


class AbortedRecords:
    """The ranges of aborted transactions, to look up many records at once."""

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        ranges: dict[int, list[tuple[int, int]]] = {}
        for producer_id, first_offset, last_offset in aborted:
            ranges.setdefault(producer_id, []).append((last_offset, first_offset))
        self._ranges = {i: np.array(sorted(each), np.int64).T for i, each in ranges.items()}

    def holds(self, producer_ids: Longs, offsets: Longs) -> Mask:
        """Whether each record of a transaction, given by producer and offset, was aborted."""
        found = np.zeros(len(offsets), np.bool_)
        if not self._ranges or len(offsets) == 0:
            return found
        order = np.argsort(producer_ids, kind="stable")
        by_producer = producer_ids[order]
        ids, starts = np.unique(by_producer, return_index=True)
        for producer_id, rows in zip(ids.tolist(), np.split(order, starts[1:]), strict=True):
            ranges = self._ranges.get(producer_id)
            if ranges is not None:
                lasts, firsts = ranges
                at = np.searchsorted(lasts, offsets[rows])
                found[rows] = (at < len(lasts)) & (firsts[np.minimum(at, len(lasts) - 1)] <= offsets[rows])
        return found

    def has_marker(self, producer_id: int, offset: int) -> bool:
        """Whether an aborted transaction of this producer ends there."""
        ranges = self._ranges.get(producer_id)
        return ranges is not None and offset in ranges[0]


@dataclass(frozen=True, slots=True, eq=False)
class TransactionRows:
    """The part in transactions of consecutive rows of a log, row by row.

    is_data    records of transactions; `is_aborted`: the aborted ones of them
    is_marker  markers of transactions
    horizons   the delete horizon of each marker, in order; `NO_HORIZON` if it has none yet
    """

    producer_ids: Longs
    offsets: Longs
    is_data: Mask
    is_aborted: Mask
    is_marker: Mask
    horizons: Longs

    @staticmethod
    def of(rows: pa.Table, offsets: Longs, aborted: AbortedRecords) -> TransactionRows:
        """From rows with `producer_id`, `key`, `attributes` and, if any of them is a marker, `headers`."""
        attributes, producer_ids = rows["attributes"].to_numpy(), rows["producer_id"].to_numpy()
        in_transaction = (attributes & TRANSACTIONAL_ATTRIBUTE) != 0
        is_control = (attributes & CONTROL_ATTRIBUTE) != 0
        is_data, is_aborted = in_transaction & ~is_control, np.zeros(len(offsets), np.bool_)
        is_marker = in_transaction & is_control & rows["key"].is_valid().to_numpy()
        is_aborted[is_data] = aborted.holds(producer_ids[is_data], offsets[is_data])
        horizons = np.full(int(is_marker.sum()), NO_HORIZON, np.int64)
        if is_marker.any():
            headers = rows["headers"].filter(pa.array(is_marker)).to_pylist()
            found = [horizon_of(each) for each in headers]
            horizons = np.array([NO_HORIZON if horizon is None else horizon for horizon in found], np.int64)
        return TransactionRows(producer_ids, offsets, is_data, is_aborted, is_marker, horizons)


class CleanedMarkers(NamedTuple):
    """Masks over all rows: the markers that are removed, and those that are given a delete horizon."""

    gone: Mask
    marked: Mask


@dataclass(slots=True, eq=False)
class CleanedTransactions:
    """A pass's state of transactions, carried from one part of the log to the next.

    aborted         as of the beginning of the pass
    kept_from       by known producer, the offset from which on its markers stay: that of its last one; all markers stay
                    if the last one is above the high watermark, since the one before it is not known
    tombstones_end  markers below this offset whose horizon is before `now_ms` are removed
    horizon_ms      the delete horizon that markers are given now
    is_whole        False when the pass skips what an earlier one has cleaned: whether a marker has records there is not
                    known, so that markers stay as they are
    """

    aborted: AbortedRecords = field(default_factory=AbortedRecords)
    kept_from: dict[int, int] = field(default_factory=dict)
    tombstones_end: int = 0
    now_ms: int = 0
    horizon_ms: int = 0
    is_whole: bool = True
    _open: set[int] = field(default_factory=set)

    @staticmethod
    def of(
        states: ProducerStates, high_watermark: int, tombstones_end: int, now_ms: int, delete_retention_ms: int
    ) -> CleanedTransactions:
        """The state at the beginning of a pass."""
        last_of = states.transactions.of
        markers = {producer_id: last_of(producer_id).marker_offset for producer_id in states.producers}
        return CleanedTransactions(
            AbortedRecords(states.transactions.aborted),
            {i: offset if offset < high_watermark else NO_HORIZON for i, offset in markers.items()},
            tombstones_end,
            now_ms,
            now_ms + delete_retention_ms,
        )

    def markers(self, rows: TransactionRows, stays: Mask) -> CleanedMarkers:
        """The decision on the markers among the next rows of the log; `stays`: the other rows that stay."""
        cleaned = CleanedMarkers(np.zeros(len(stays), np.bool_), np.zeros(len(stays), np.bool_))
        matter = np.flatnonzero((rows.is_data & stays) | rows.is_marker)
        if len(matter) == 0 or not self.is_whole:
            return cleaned
        matter = matter[np.argsort(rows.producer_ids[matter], kind="stable")]
        producer_ids, is_marker = rows.producer_ids[matter], rows.is_marker[matter]
        is_first = np.ones(len(matter), np.bool_)
        is_first[1:] = producer_ids[1:] != producer_ids[:-1]
        has_records = np.zeros(len(matter), np.bool_)
        has_records[1:] = ~is_marker[:-1]
        has_records[is_first] = [each in self._open for each in producer_ids[is_first].tolist()]
        is_last = np.append(is_first[1:], True)
        self._open -= set(producer_ids[is_last & is_marker].tolist())
        self._open |= set(producer_ids[is_last & ~is_marker].tolist())
        empty = matter[is_marker & ~has_records]
        horizons = rows.horizons[np.cumsum(rows.is_marker)[empty] - 1]
        cleaned.marked[empty[horizons == NO_HORIZON]] = True
        due = empty[(horizons != NO_HORIZON) & (horizons <= self.now_ms) & (rows.offsets[empty] < self.tombstones_end)]
        cleaned.gone[due] = [
            offset < self.kept_from.get(producer_id, EVERY_OFFSET) and not self.aborted.has_marker(producer_id, offset)
            for producer_id, offset in zip(rows.producer_ids[due].tolist(), rows.offsets[due].tolist(), strict=True)
        ]
        return cleaned


def with_horizon(headers: pa.ChunkedArray, marked: Mask, horizon_ms: int) -> pa.ChunkedArray:
    """A column of headers in which each marked row has the delete horizon alone."""
    mark = pa.array([[{"key": DELETE_HORIZON, "value": str(horizon_ms).encode()}]], HEADERS_TYPE)
    every = pa.chunked_array([*headers.chunks, mark], HEADERS_TYPE)
    return every.take(pa.array(np.where(marked, len(headers), np.arange(len(headers)))))


def horizon_of(headers: list[dict[str, object]] | None) -> int | None:
    """The delete horizon in the headers of a marker, in ms; None if it has none."""
    values = (each["value"] for each in headers or () if each["key"] == DELETE_HORIZON)
    value = next(values, None)
    return int(value) if isinstance(value, bytes) else None
