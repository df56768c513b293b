"""Compaction of one log: how dirty it is, which of its records stay, and which segments become one. Pure.

Kafka's `LogCleaner`, `LogCleanerManager` and `Cleaner`. Of each key the record with the largest offset stays. The clean
section of a log, below the cleaner's position, was compacted before. The dirty section follows, up to the active
segment or the high watermark: its latest offset of each key (`OffsetMap`) decides which older records are removed from
both sections. Offsets never change. `storage.upkeep.cleaned_transactions` decides on transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stratalog.storage.log.segments import LogSegment
from stratalog.storage.producers import ProducerStates
from stratalog.storage.records import CONTROL_ATTRIBUTE, TRANSACTIONAL_ATTRIBUTE
from stratalog.storage.topic_config import INT_MAX, LONG_MAX, LogConfig
from stratalog.storage.upkeep.cleaned_transactions import (
    NO_HORIZON,
    AbortedRecords,
    CleanedTransactions,
    TransactionRows,
    with_horizon,
)

MAP_COLUMNS = ("offset_delta", "key", "attributes")
"""The columns of a data file for the offset map; with "value" those that decide which records stay."""
MAP_BYTES_MAX = 48 << 20
"""Arrow bytes of the offset map of one pass: 1.7 million keys of 16 bytes. Look-ups need about twice as much again."""
MAP_PENDING_BYTES = 16 << 20
"""Arrow bytes that are gathered before they are folded into the map."""
ABSENT = -1
NOTHING_ABORTED = AbortedRecords()

Mask = npt.NDArray[np.bool_]
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LogToClean:
    """The sealed segments of a log wholly below its last stable offset, in order: a clean section, then a dirty one.

    first_dirty_offset  start of the dirty section
    clean_bytes         size of the segments below it
    dirty_bytes         size of those that reach above it
    """

    segments: tuple[LogSegment, ...]
    first_dirty_offset: int
    clean_bytes: int
    dirty_bytes: int

    @property
    def dirty_since_ms(self) -> int | None:
        """The smallest of the first timestamps of the dirty segments; None when none has any."""
        dirty = (segment for segment in self.segments if segment.end_offset > self.first_dirty_offset)
        return min((each.first_timestamp_ms for each in dirty if each.first_timestamp_ms is not None), default=None)

    @property
    def end_offset(self) -> int:
        """The end of the dirty section; its start, if it is empty."""
        return self.segments[-1].end_offset if self.dirty_bytes else self.first_dirty_offset

    @property
    def dirty_ratio(self) -> float:
        """The dirty part of the bytes: 0.75 with 1 MiB of clean and 3 MiB of dirty segments."""
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0


def log_to_clean(
    segments: Sequence[LogSegment], first_dirty_offset: int, stable_offset: int, newest_ms: int = LONG_MAX
) -> LogToClean:
    """The part of a log that may be compacted: below a stable offset, without the active segment, the last one.

    segments            all of the log's, in order
    first_dirty_offset  the cleaner's position, or the log start if that is above it
    stable_offset       the last stable offset, as in Kafka's `LogCleanerManager.cleanableOffsets`: below it the
                        outcome of transactions is certain
    newest_ms           dirty segments from the first one on that has a newer record are left for later
                        (`min.compaction.lag.ms`)
    """
    sealed: list[LogSegment] = []
    clean_bytes = dirty_bytes = 0
    for segment in segments[:-1]:
        is_dirty = segment.end_offset > first_dirty_offset
        if segment.end_offset > stable_offset or (is_dirty and (segment.max_timestamp_ms or 0) > newest_ms):
            break
        sealed.append(segment)
        if is_dirty:
            dirty_bytes += segment.size_bytes
        else:
            clean_bytes += segment.size_bytes
    return LogToClean(tuple(sealed), first_dirty_offset, clean_bytes, dirty_bytes)


def is_due(log: LogToClean, config: LogConfig, *, is_busy: bool = False, now_ms: int | None = None) -> bool:
    """Whether a log is dirtier than `min.cleanable.dirty.ratio`, or than halfway from there to 1 while the machine is
    busy; or whether a dirty segment began longer than `max.compaction.lag.ms` before `now_ms`."""
    since_ms = log.dirty_since_ms if config.max_compaction_lag_ms < LONG_MAX else None
    if now_ms is not None and since_ms is not None and since_ms < now_ms - config.max_compaction_lag_ms:
        return True
    ratio = config.min_cleanable_dirty_ratio
    return log.dirty_ratio > ((1 + ratio) / 2 if is_busy else ratio)


def grouped(segments: Iterable[LogSegment], end_offset: int, config: LogConfig) -> list[tuple[LogSegment, ...]]:
    """Groups of neighbouring segments that become one, as large as `segment.bytes` allows by their present size (Kafka:
    `Cleaner.groupSegmentsBySize`).

    A segment that a pass cleans only up to `end_offset`, since its map is full, is a group of its own.
    """
    groups: list[list[LogSegment]] = []
    size_bytes = file_count = 0
    for segment in segments:
        size_bytes, file_count = size_bytes + segment.size_bytes, file_count + segment.file_count
        fits = (
            bool(groups)
            and size_bytes <= config.segment_bytes
            and file_count <= config.segment_file_count_max
            and segment.end_offset - 1 - groups[-1][0].base_offset <= INT_MAX
            and segment.end_offset <= end_offset
        )
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size_bytes, file_count = segment.size_bytes, segment.file_count
    return [tuple(group) for group in groups]


@dataclass(frozen=True, slots=True, eq=False)
class KeyedRows:
    """The data that decide on the rows of a data file, in order.

    is_control    markers of transactions; those without a key are rows that an earlier pass emptied
    is_tombstone  rows without a value, as far as values were read
    transactions  None if no row is part of one
    """

    keys: pa.ChunkedArray
    offsets: Offsets
    has_key: Mask
    is_control: Mask
    is_tombstone: Mask
    transactions: TransactionRows | None = None

    @staticmethod
    def of(rows: pa.Table, base_offset: int, aborted: AbortedRecords = NOTHING_ABORTED) -> KeyedRows:
        """From rows with `MAP_COLUMNS`, perhaps "value", and `transaction_columns` if there are any."""
        offsets = rows["offset_delta"].to_numpy().astype(np.int64) + base_offset
        is_known = "value" in rows.column_names
        return KeyedRows(
            rows["key"],
            offsets,
            rows["key"].is_valid().to_numpy(),
            (rows["attributes"].to_numpy() & CONTROL_ATTRIBUTE) != 0,
            rows["value"].is_null().to_numpy() if is_known else np.zeros(rows.num_rows, np.bool_),
            TransactionRows.of(rows, offsets, aborted) if transaction_columns(rows) else None,
        )

    @property
    def is_update(self) -> Mask:
        """Records with a key that are no markers and not aborted: they replace the older ones of their key."""
        counts = self.has_key & ~self.is_control
        return counts if self.transactions is None else counts & ~self.transactions.is_aborted

    @property
    def size_bytes(self) -> int:
        """The approximate size in memory."""
        of_transactions = 0 if self.transactions is None else self.transactions.producer_ids.nbytes
        return int(self.keys.nbytes + self.offsets.nbytes + of_transactions)


def transaction_columns(rows: pa.Table) -> tuple[str, ...]:
    """The further columns that decide on transactions, for rows with "attributes"; none if no row is part of one.

    Headers hold the delete horizon of a marker.
    """
    attributes = rows["attributes"].to_numpy()
    if not (attributes & TRANSACTIONAL_ATTRIBUTE).any():
        return ()
    return ("producer_id", "headers") if (attributes & CONTROL_ATTRIBUTE).any() else ("producer_id",)


class OffsetMap:
    """The largest offset of each key of a dirty section.

    Kafka's SkimpyOffsetMap keeps hashes of keys; here the keys themselves are kept, in Arrow: the key and 4 + 8 bytes.
    """

    def __init__(self, bytes_max: int = MAP_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._known = _map_table(pa.array([], pa.binary()), np.array([], np.int64))
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the pass has to end here, and the next one continues."""
        return int(self._known.nbytes) >= self._bytes_max

    def put(self, rows: KeyedRows) -> None:
        """Add the keys of a part of the dirty section."""
        is_update = rows.is_update
        self._pending.append(_map_table(rows.keys.filter(pa.array(is_update)), rows.offsets[is_update]))
        self._pending_bytes += self._pending[-1].nbytes
        if self._pending_bytes >= min(MAP_PENDING_BYTES, self._bytes_max):
            self._fold()

    def latest(self, keys: pa.ChunkedArray) -> Offsets:
        """The largest offset of each of these keys, `ABSENT` for keys that the dirty section does not hold.

        Each call builds a hash table of all keys of the map, so it should be for many keys.
        """
        self._fold()
        if self._known.num_rows == 0:
            return np.full(len(keys), ABSENT, np.int64)
        found = pc.index_in(keys, value_set=self._known["key"].chunk(0)).fill_null(ABSENT).to_numpy()
        return np.where(found == ABSENT, ABSENT, self._known["offset"].chunk(0).to_numpy()[found])

    def _fold(self) -> None:
        if not self._pending:
            return
        rows = pa.concat_tables([self._known, *self._pending])
        self._pending, self._pending_bytes = [], 0
        folded = rows.group_by("key", use_threads=False).aggregate([("offset", "max")])
        self._known = _map_table(folded["key"], folded["offset_max"]).combine_chunks()


class Retained(NamedTuple):
    """Masks over rows: `stays` as it is, `emptied` of key, value and headers; the others are removed.

    marked  of those that stay, the markers that are given a delete horizon
    """

    stays: Mask
    emptied: Mask
    marked: Mask
    is_changed: bool


@dataclass(frozen=True, slots=True, eq=False)
class Cleaning:
    """The rules of one pass.

    latest          the latest offset of each key of the dirty section
    tombstones_end  tombstones below this offset have lived long enough (`CleanerCheckpoint.due_tombstones_end`)
    last_offsets    `last_batch_ends`: these rows stay, perhaps emptied
    transactions    which are aborted, and which markers are needed; each row is to be passed once, in order
    """

    latest: OffsetMap
    tombstones_end: int
    last_offsets: Offsets
    transactions: CleanedTransactions = field(default_factory=CleanedTransactions)

    def columns_needed(self, start_offset: int) -> tuple[str, ...]:
        """The columns that decide on a file that starts there; values are needed for tombstones only."""
        return (*MAP_COLUMNS, "value") if start_offset < self.tombstones_end else MAP_COLUMNS

    def retained(self, parts: Sequence[KeyedRows]) -> list[Retained]:
        """The decision on each row of some parts of the log, with one look-up for all of them."""
        keys = pa.chunked_array([chunk for part in parts for chunk in part.keys.chunks], pa.binary())
        ends = np.cumsum([len(part.offsets) for part in parts])
        latest = np.split(self.latest.latest(keys), ends[:-1])
        return [self._retained(part, of_part) for part, of_part in zip(parts, latest, strict=True)]

    def _retained(self, rows: KeyedRows, latest: Offsets) -> Retained:
        is_due = rows.is_tombstone & (rows.offsets < self.tombstones_end)
        stays = rows.is_update & (rows.offsets >= latest) & ~is_due
        stays |= rows.has_key & rows.is_control
        marked = np.zeros(len(stays), np.bool_)
        if rows.transactions is not None:
            gone, marked = self.transactions.markers(rows.transactions, stays)
            stays &= ~gone
        near = slice(*np.searchsorted(self.last_offsets, (rows.offsets[0], rows.offsets[-1] + 1)))
        emptied = np.isin(rows.offsets, self.last_offsets[near]) & ~stays
        is_empty = rows.is_control & ~rows.has_key
        is_changed = not bool((stays | emptied).all()) or bool((emptied & ~is_empty).any()) or bool(marked.any())
        return Retained(stays, emptied, marked, is_changed)


def survivors(rows: pa.Table, retained: Retained, horizon_ms: int = NO_HORIZON) -> pa.Table:
    """The rows of a data file (`DATA_SCHEMA`) that stay, with their deltas; the emptied ones as control records, which
    consumers do not receive, the marked ones with `horizon_ms`."""
    kept_mask = retained.stays | retained.emptied
    kept, emptied, marked = rows.filter(pa.array(kept_mask)), retained.emptied[kept_mask], retained.marked[kept_mask]
    columns = {name: kept[name] for name in kept.column_names}
    if emptied.any():
        filled = pa.array(np.arange(kept.num_rows), mask=emptied)
        for name in ("key", "value", "headers"):
            columns[name] = kept[name].take(filled)
        attributes = kept["attributes"].to_numpy()
        columns["attributes"] = pa.array(np.where(emptied, attributes | CONTROL_ATTRIBUTE, attributes), pa.int16())
    if marked.any():
        columns["headers"] = with_horizon(columns["headers"], marked, horizon_ms)
    return pa.Table.from_arrays(list(columns.values()), schema=kept.schema)


def last_batch_ends(producers: ProducerStates, high_watermark: int) -> Offsets | None:
    """The last offset of each known producer's last batch below the high watermark, ascending.

    A truncation, or a copy in parts, looks producers up in the rows of a log, so their last batches must stay (Kafka
    retains the last batch of an active producer, as an empty one). Of a producer whose epoch began above the high
    watermark, after a marker, the marker suffices, and stays. None: a producer has five batches above the high
    watermark, and the one before them is not known; the log is cleaned later.
    """
    ends: list[int] = []
    for producer_id, entry in producers.producers.items():
        below = [batch.last_offset for batch in entry.batches if batch.last_offset < high_watermark]
        if below:
            ends.append(below[-1])
        elif entry.batches and not entry.is_complete:
            marker_offset = producers.transactions.of(producer_id).marker_offset
            is_new_epoch = entry.batches[0].base_sequence == 0 and 0 <= marker_offset < entry.batches[0].base_offset
            if not is_new_epoch:
                return None
    return np.array(sorted(ends), np.int64)


def _map_table(keys: pa.Array | pa.ChunkedArray, offsets: Offsets | pa.ChunkedArray) -> pa.Table:
    return pa.table({"key": keys, "offset": offsets})
