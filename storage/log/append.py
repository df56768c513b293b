"""Admission of a group of batches: which are appended, at which offsets, in which segments. Pure.

Kafka's `LogValidator` and `ProducerStateManager` in the order of `UnifiedLog.append`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.files.data_file import DataFile, FileEntry
from stratalog.storage.log.segments import LogSegment, empty_segment, segment_jitter_ms, should_roll
from stratalog.storage.log.state import LogState
from stratalog.storage.producers import Accept, BatchMetadata, Duplicate, ProducerStates, SinkBatch, sequence_after
from stratalog.storage.records import (
    CONTROL_ATTRIBUTE,
    CREATE_TIME,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PAYLOAD_SCHEMA,
    TIMESTAMP_MS_LIMIT,
    TRANSACTIONAL_ATTRIBUTE,
    NewRecordBatch,
)
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.transactions import (
    BEGIN,
    NO_EPOCH,
    OffsetAndEpoch,
    TransactionChange,
    change_of,
    is_control,
    is_transactional,
)


@dataclass(frozen=True, slots=True)
class BatchAppended:
    """A batch is in the log at these offsets, both inclusive; base_offset is -1 of a sink's duplicate."""

    base_offset: int
    last_offset: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Appended:
    """The outcome of a group: one result per batch, in order; `files` are those that its commit added."""

    version: int
    results: tuple[BatchAppended | StratalogError, ...]
    files: tuple[FileEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class HandedFiles:
    """Files that a Spark sink wrote into this table's directory, in order; the deltas of each count from 0.

    sink_id      the Spark query that wrote them, with a growing `batch_id`: a stored batch that comes again is a
                 duplicate
    producer_id  with epoch, of the transaction that the records are part of, as the files' rows show: with
                 `is_transactional`. `verified_offset` and `verified_leader_epoch` as in `NewRecordBatch`
    """

    files: tuple[DataFile, ...]
    sink_id: str
    batch_id: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    is_transactional: bool = False
    verified_offset: int = -1
    verified_leader_epoch: int = -1

    @property
    def base_sequence(self) -> int:
        """None: a repeated batch is known by its id."""
        return NO_SEQUENCE

    @property
    def record_count(self) -> int:
        return sum(file.record_count for file in self.files)


@dataclass(slots=True)
class Admission:
    """The decision on a group. Each batch is checked after those before it.

    producers  after the accepted batches, as is `log_end_offset`
    results    one per batch, in order
    accepted   positions in the group
    """

    producers: ProducerStates
    log_end_offset: int
    now_ms: int
    leader_epoch: int = NO_EPOCH
    results: list[BatchAppended | StratalogError] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.log_end_offset, self.leader_epoch)

    def accept(self, batch: NewRecordBatch | HandedFiles, change: TransactionChange | None = None) -> BatchAppended:
        """Assign the next offsets to a batch, and add it to producer state."""
        base_offset, count = self.log_end_offset, batch.record_count
        self.log_end_offset += count
        self.accepted.append(len(self.results))
        appended = BatchAppended(base_offset, self.log_end_offset - 1)
        if batch.producer_id != NO_PRODUCER_ID:
            base = batch.base_sequence
            last = sequence_after(base, count - 1) if base != NO_SEQUENCE else NO_SEQUENCE
            metadata = BatchMetadata(base, last, base_offset, appended.last_offset, self.now_ms)
            self.producers = self.producers.with_batch(batch.producer_id, batch.producer_epoch, metadata, change)
        return appended


def admit(
    batches: Iterable[NewRecordBatch], producers: ProducerStates, config: LogConfig, end: OffsetAndEpoch, now_ms: int
) -> Admission:
    """Admit batches at the end of a log; a refused one has its error as result and does not affect the others."""
    group = Admission(producers, end.offset, now_ms, end.leader_epoch)
    for batch in batches:
        group.results.append(_admit_batch(group, batch, config))
    return group


def admit_files(
    handed: Iterable[HandedFiles], producers: ProducerStates, end: OffsetAndEpoch, now_ms: int
) -> Admission:
    """The same for files of sinks; their size is not limited, and their times were checked when they were written."""
    group = Admission(producers, end.offset, now_ms, end.leader_epoch)
    for files in handed:
        group.results.append(_admit_files(group, files))
    return group


def _admit_batch(group: Admission, batch: NewRecordBatch, config: LogConfig) -> BatchAppended | StratalogError:
    try:
        check_records(batch, config)
        check_time(batch, config, group.now_ms)
        known = _check_sequence(group, batch)
        if isinstance(known, Duplicate):
            return BatchAppended(known.base_offset, known.last_offset, duplicate=True)
        change = _change_of(group, batch)
    except StratalogError as refusal:
        return refusal.as_value()
    return group.accept(batch, change)


def _check_sequence(group: Admission, batch: NewRecordBatch) -> Accept | Duplicate:
    """Whether it is new or a duplicate. A gap in a transaction that is not verified is none yet: the batch before this
    one waits for the coordinator, too. Source: `UnifiedLog.analyzeAndValidateProducerState`, which has this order."""
    try:
        return group.producers.check(batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count)
    except (errors.OutOfOrderSequenceNumberError, errors.UnknownProducerIdError):
        if is_transactional(batch.attributes):
            _change_of(group, batch)
        raise


def _change_of(group: Admission, batch: NewRecordBatch) -> TransactionChange | None:
    """The effect of a batch on its producer's transaction; raises the error that refuses it."""
    producer_id, end_offset = batch.producer_id, group.log_end_offset
    if not batch.attributes and not group.producers.transactions.producers:
        return None
    if producer_id == NO_PRODUCER_ID:
        if batch.attributes & (TRANSACTIONAL_ATTRIBUTE | CONTROL_ATTRIBUTE):
            raise errors.InvalidRecordError("a transactional or control batch has a producer id")
        return None
    if not is_control(batch.attributes):
        is_in_one, epoch = is_transactional(batch.attributes), batch.producer_epoch
        verified = OffsetAndEpoch(batch.verified_offset, batch.verified_leader_epoch)
        group.producers.check_transactional(producer_id, epoch, is_in_one, verified, group.end)
        return TransactionChange(producer_id, BEGIN, end_offset) if is_in_one else None
    first = batch.first
    change = change_of(producer_id, batch.attributes, end_offset, first.key, first.value)
    if change is None or batch.record_count != 1:
        raise errors.InvalidRecordError(
            f"a control batch is one marker of a transaction; it has {batch.record_count} records"
        )
    group.producers.check_marker(producer_id, batch.producer_epoch, change.coordinator_epoch, batch.transaction_version)
    return change


def _admit_files(group: Admission, handed: HandedFiles) -> BatchAppended | StratalogError:
    producer_id, epoch = handed.producer_id, handed.producer_epoch
    try:
        _check_handed(handed)
        group.producers.check(producer_id, epoch, NO_SEQUENCE, handed.record_count)
        verified = OffsetAndEpoch(handed.verified_offset, handed.verified_leader_epoch)
        group.producers.check_transactional(producer_id, epoch, handed.is_transactional, verified, group.end)
    except StratalogError as refusal:
        return refusal.as_value()
    known = group.producers.check_sink(handed.sink_id, handed.batch_id)
    if isinstance(known, Duplicate):
        return BatchAppended(known.base_offset, known.last_offset, duplicate=True)
    begin = TransactionChange(producer_id, BEGIN, group.log_end_offset) if handed.is_transactional else None
    appended = group.accept(handed, begin)
    batch = SinkBatch(handed.batch_id, appended.last_offset, group.now_ms, appended.base_offset)
    group.producers = group.producers.with_sink(handed.sink_id, batch)
    return appended


def check_records(batch: NewRecordBatch, config: LogConfig) -> None:
    """Raise the error of a batch that no log accepts.

    InvalidRecordError (schema, no rows, no key in a compacted topic), RecordTooLargeError (`max.message.bytes`),
    RecordListTooLargeError (`segment.bytes`), InvalidTimestampError (Delta keeps microseconds).
    """
    if isinstance(batch.content, pa.Table) and not batch.content.schema.equals(PAYLOAD_SCHEMA):
        raise errors.InvalidRecordError(f"a batch has the columns {PAYLOAD_SCHEMA.names}, found {batch.content.schema}")
    if batch.record_count == 0:
        raise errors.InvalidRecordError("a batch has at least one record")
    if config.is_compacted and batch.lacks_a_key:
        raise errors.InvalidRecordError("a compacted topic takes no record without a key")
    limit_bytes = config.max_message_bytes
    if batch.sent_bytes > limit_bytes or (not batch.sent_bytes and batch.is_above(limit_bytes)):
        raise errors.RecordTooLargeError(f"a batch of {batch.message_bytes} bytes > max.message.bytes {limit_bytes}")
    if batch.is_above(config.segment_bytes):
        raise errors.RecordListTooLargeError(
            f"a batch of {batch.record_bytes} bytes > segment.bytes {config.segment_bytes}"
        )
    for bound_ms in batch.timestamp_range:
        if bound_ms is not None and abs(bound_ms) > TIMESTAMP_MS_LIMIT:
            raise errors.InvalidTimestampError(f"timestamp {bound_ms} ms is outside ±{TIMESTAMP_MS_LIMIT} ms")


def check_time(batch: NewRecordBatch, config: LogConfig, now_ms: int) -> None:
    """InvalidTimestampError for a record whose own time is too far from the clock, which is the broker's.

    Source: `LogValidator.validateTimestamp` (KIP-937).
    """
    if batch.timestamp_type != CREATE_TIME or not config.limits_times:
        return
    before_ms, after_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    for bound_ms in batch.timestamp_range:
        if bound_ms is not None and not now_ms - before_ms <= bound_ms <= now_ms + after_ms:
            raise errors.InvalidTimestampError(
                f"Timestamp {bound_ms} of message is out of range. The timestamp should be within "
                f"[{now_ms - before_ms}, {now_ms + after_ms}]"
            )


def _check_handed(handed: HandedFiles) -> None:
    if not handed.files:
        raise errors.InvalidRecordError("a hand-over names at least one file")
    if handed.is_transactional and handed.producer_id == NO_PRODUCER_ID:
        raise errors.InvalidRecordError("a transactional hand-over has a producer id")
    for file in handed.files:
        if file.record_count < 1 or (file.first_delta, file.last_delta) != (0, file.record_count - 1):
            raise errors.InvalidRecordError(
                f"{file.path}: {file.record_count} records with deltas {file.first_delta}…{file.last_delta}, "
                "needed 0, 1, 2 …"
            )


def segment_of_append(
    active: LogSegment | None, batches: Sequence[NewRecordBatch], base_offset: int, config: LogConfig, log_name: str
) -> LogSegment:
    """The segment to which a group at the log end, `base_offset`, is appended: `active`, or a new one."""
    newest = [ms for batch in batches if (ms := batch.timestamp_range[1]) is not None]
    return _next_segment(
        active,
        sum([batch.size_bytes for batch in batches]),
        sum([batch.record_count for batch in batches]),
        max(newest, default=None),
        base_offset,
        config,
        log_name,
    )


def assign_offsets(
    state: LogState, files: Iterable[DataFile], leader_epoch: int, config: LogConfig
) -> tuple[FileEntry, ...]:
    """Files with offsets from the log end on, in order, each with its segment (Kafka: `LogValidator.assignOffsets`)."""
    active, next_offset, entries = state.active_segment, state.log_end_offset, []
    for file in files:
        active = _next_segment(
            active, file.size_bytes, file.record_count, file.max_timestamp_ms, next_offset, config, state.name
        )
        entry = FileEntry(file, active.base_offset, leader_epoch, next_offset)
        active = active.with_file(entry)
        next_offset = entry.end_offset
        entries.append(entry)
    return tuple(entries)


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
