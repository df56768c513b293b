"""What of a group of batches may be appended, and at which offsets: the rules before a commit. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from stratalog.storage.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    RecordListTooLargeError,
    RecordTooLargeError,
    StratalogError,
)
from stratalog.storage.files.data_file import DataFile, FileEntry
from stratalog.storage.log.segments import LogSegment, empty_segment, segment_jitter_ms, should_roll
from stratalog.storage.log.state import LogState
from stratalog.storage.producers import BatchMetadata, Duplicate, ProducerStates, SinkBatch, sequence_after
from stratalog.storage.records import (
    CONTROL_ATTRIBUTE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PAYLOAD_SCHEMA,
    TIMESTAMP_MS_LIMIT,
    TRANSACTIONAL_ATTRIBUTE,
    NewRecordBatch,
)
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.transactions import BEGIN, TransactionChange, change_of, is_control, is_transactional


@dataclass(frozen=True, slots=True)
class BatchAppended:
    """A batch is in the log at these offsets, both inclusive. A sink's duplicate knows no base_offset: -1."""

    base_offset: int
    last_offset: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Appended:
    """The answer to a group, one result per batch in order; `files` are what its commit added (or none)."""

    version: int
    results: tuple[BatchAppended | StratalogError, ...]
    files: tuple[FileEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class HandedFiles:
    """Files that a writer in another process left in this table's directory, in order; deltas count from 0.

    sink_id        the Spark query that wrote them, with a growing `batch_id`; None for others
    producer_id …  as in `NewRecordBatch`, for all records of the files as one batch
    """

    files: tuple[DataFile, ...]
    sink_id: str | None = None
    batch_id: int = -1
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE

    @property
    def record_count(self) -> int:
        return sum(file.record_count for file in self.files)


@dataclass(frozen=True, slots=True)
class Admission:
    """What becomes of a group: `accepted` are positions in it, `log_end_offset` and `producers` hold after it."""

    results: tuple[BatchAppended | StratalogError, ...]
    accepted: tuple[int, ...]
    log_end_offset: int
    producers: ProducerStates


class _Group:
    """A group under admission: later batches see what the earlier ones did."""

    def __init__(self, producers: ProducerStates, log_end_offset: int, now_ms: int) -> None:
        self.producers = producers
        self.log_end_offset = log_end_offset
        self.now_ms = now_ms
        self.results: list[BatchAppended | StratalogError] = []
        self.accepted: list[int] = []

    def take(self, record_count: int) -> BatchAppended:
        base_offset = self.log_end_offset
        self.log_end_offset += record_count
        self.accepted.append(len(self.results))
        return BatchAppended(base_offset, self.log_end_offset - 1)

    def note_producer(
        self, batch: NewRecordBatch | HandedFiles, placed: BatchAppended, change: TransactionChange | None = None
    ) -> None:
        if batch.producer_id == NO_PRODUCER_ID:
            return
        base, count = batch.base_sequence, batch.record_count
        last = sequence_after(base, count - 1) if base != NO_SEQUENCE else NO_SEQUENCE
        metadata = BatchMetadata(base, last, placed.base_offset, placed.last_offset, self.now_ms)
        self.producers = self.producers.with_batch(batch.producer_id, batch.producer_epoch, metadata, change)

    def admission(self) -> Admission:
        return Admission(tuple(self.results), tuple(self.accepted), self.log_end_offset, self.producers)


def admit(
    batches: Iterable[NewRecordBatch], producers: ProducerStates, config: LogConfig, log_end_offset: int, now_ms: int
) -> Admission:
    """Check each batch after those before it; a refused one has its error as result and spoils no other."""
    group = _Group(producers, log_end_offset, now_ms)
    for batch in batches:
        group.results.append(_admit_batch(group, batch, config))
    return group.admission()


def admit_files(
    handed: Iterable[HandedFiles], producers: ProducerStates, log_end_offset: int, now_ms: int
) -> Admission:
    """The same for files written elsewhere; their size is not limited."""
    group = _Group(producers, log_end_offset, now_ms)
    for files in handed:
        group.results.append(_admit_files(group, files))
    return group.admission()


def _admit_batch(group: _Group, batch: NewRecordBatch, config: LogConfig) -> BatchAppended | StratalogError:
    try:
        check_records(batch, config)
        known = group.producers.check(batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count)
        if isinstance(known, Duplicate):
            return BatchAppended(known.base_offset, known.last_offset, duplicate=True)
        change = _change_of(group, batch)
    except StratalogError as refusal:
        return refusal
    placed = group.take(batch.record_count)
    group.note_producer(batch, placed, change)
    return placed


def _change_of(group: _Group, batch: NewRecordBatch) -> TransactionChange | None:
    """What a batch does to its producer's transaction; raises what forbids it."""
    producer_id, end_offset = batch.producer_id, group.log_end_offset
    if not batch.attributes and not group.producers.transactions.producers:
        return None
    if producer_id == NO_PRODUCER_ID:
        if batch.attributes & (TRANSACTIONAL_ATTRIBUTE | CONTROL_ATTRIBUTE):
            raise InvalidRecordError("a transactional or control batch has a producer id")
        return None
    if not is_control(batch.attributes):
        is_in_one = is_transactional(batch.attributes)
        epoch = batch.producer_epoch
        group.producers.check_transactional(producer_id, epoch, is_in_one, batch.verified_offset, end_offset)
        return TransactionChange(producer_id, BEGIN, end_offset) if is_in_one else None
    key, value = batch.payload["key"][0].as_py(), batch.payload["value"][0].as_py()
    change = change_of(producer_id, batch.attributes, end_offset, key, value)
    if change is None or batch.record_count != 1:
        raise InvalidRecordError(f"a control batch is one marker of a transaction; it has {batch.record_count} records")
    group.producers.check_marker(producer_id, batch.producer_epoch, change.coordinator_epoch, batch.transaction_version)
    return change


def _admit_files(group: _Group, handed: HandedFiles) -> BatchAppended | StratalogError:
    try:
        _check_handed(handed)
        known = group.producers.check(
            handed.producer_id, handed.producer_epoch, handed.base_sequence, handed.record_count
        )
        if not isinstance(known, Duplicate):
            epoch = handed.producer_epoch
            group.producers.check_transactional(handed.producer_id, epoch, False, -1, group.log_end_offset)
    except StratalogError as refusal:
        return refusal
    if handed.sink_id is not None and not isinstance(known, Duplicate):
        known = group.producers.check_sink(handed.sink_id, handed.batch_id)
    if isinstance(known, Duplicate):
        return BatchAppended(known.base_offset, known.last_offset, duplicate=True)
    placed = group.take(handed.record_count)
    group.note_producer(handed, placed)
    if handed.sink_id is not None:
        batch = SinkBatch(handed.batch_id, placed.last_offset, group.now_ms, placed.base_offset)
        group.producers = group.producers.with_sink(handed.sink_id, batch)
    return placed


def check_records(batch: NewRecordBatch, config: LogConfig) -> None:
    """Raise what is wrong with a batch whatever the log holds.

    InvalidRecordError (schema, no rows, no key in a compacted topic), RecordTooLargeError (`max.message.bytes`),
    RecordListTooLargeError (`segment.bytes`), InvalidTimestampError (Delta keeps microseconds).
    """
    if isinstance(batch.content, pa.Table) and not batch.content.schema.equals(PAYLOAD_SCHEMA):
        raise InvalidRecordError(f"a batch has the columns {PAYLOAD_SCHEMA.names}, found {batch.content.schema}")
    if batch.record_count == 0:
        raise InvalidRecordError("a batch has at least one record")
    if config.is_compacted and batch.lacks_a_key:
        raise InvalidRecordError("a compacted topic takes no record without a key")
    size_bytes = batch.size_bytes
    if batch.message_bytes > config.max_message_bytes:
        raise RecordTooLargeError(
            f"a batch of {batch.message_bytes} bytes > max.message.bytes {config.max_message_bytes}"
        )
    if size_bytes > config.segment_bytes:
        raise RecordListTooLargeError(f"a batch of {size_bytes} bytes > segment.bytes {config.segment_bytes}")
    for bound_ms in batch.timestamp_range:
        if bound_ms is not None and abs(bound_ms) > TIMESTAMP_MS_LIMIT:
            raise InvalidTimestampError(f"timestamp {bound_ms} ms is outside ±{TIMESTAMP_MS_LIMIT} ms")


def _check_handed(handed: HandedFiles) -> None:
    if not handed.files:
        raise InvalidRecordError("a hand-over names at least one file")
    for file in handed.files:
        if file.record_count < 1 or (file.first_delta, file.last_delta) != (0, file.record_count - 1):
            raise InvalidRecordError(
                f"{file.path}: {file.record_count} records with deltas {file.first_delta}…{file.last_delta}, "
                "needed 0, 1, 2 …"
            )


def segment_of_append(state: LogState, batches: Sequence[NewRecordBatch], config: LogConfig) -> int:
    """The segment (its base offset) that a group appended at the log end goes to."""
    newest = [ms for batch in batches if (ms := batch.timestamp_range[1]) is not None]
    return _next_segment(
        state.active_segment,
        sum([batch.size_bytes for batch in batches]),
        sum([batch.record_count for batch in batches]),
        max(newest, default=None),
        state.log_end_offset,
        config,
        state.name,
    ).base_offset


def assign_offsets(
    state: LogState, files: Iterable[DataFile], leader_epoch: int, config: LogConfig
) -> tuple[FileEntry, ...]:
    """Files one after the other from the log end on, each in the segment where it belongs."""
    active, next_offset, placed = state.active_segment, state.log_end_offset, []
    for file in files:
        active = _next_segment(
            active, file.size_bytes, file.record_count, file.max_timestamp_ms, next_offset, config, state.name
        )
        entry = FileEntry(file, active.base_offset, leader_epoch, next_offset)
        active = active.with_file(entry)
        next_offset = entry.end_offset
        placed.append(entry)
    return tuple(placed)


def _next_segment(
    active: LogSegment | None,
    size_bytes: int,
    record_count: int,
    timestamp_ms: int | None,
    next_offset: int,
    config: LogConfig,
    log_name: str,
) -> LogSegment:
    jitter_ms = segment_jitter_ms(config, log_name, active.base_offset) if active else 0
    if active is None or should_roll(active, size_bytes, record_count, timestamp_ms, next_offset, config, jitter_ms):
        return empty_segment(next_offset)
    return active
