"""The way of a record: its file, commit, producer, transaction, leader, and each replica's copy by checksum.

I/O: every replica's table, and `__transaction_state`. The copies are read from storage, not from what this process
remembers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.clients.admin.replica_comparison import record_checksum
from stratalog.clients.console.asker import Asker
from stratalog.clients.console.question import Parameter, Question
from stratalog.clients.console.stored.commits import (
    CommitReader,
    TableCommit,
    commit_of_file,
    commit_of_offset,
    oldest_version,
)
from stratalog.clients.console.stored.storage import ReplicaLog, replica_logs, stored_view, uncached_stores
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.server.admin.who_led import who_led
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import OffsetOutOfRangeError, StratalogError
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.reader import LogReader
from stratalog.storage.log.segments import files_between
from stratalog.storage.records import (
    LOG_APPEND_TIME,
    NO_PRODUCER_ID,
    TopicPartition,
)
from stratalog.storage.transactions import NO_OFFSET, Transactions, is_control, is_transactional, marker_of

MARKER_BYTES_MAX = 32 << 20
"""Bytes on storage that are read for the marker of a transaction."""
SAME, DIFFERS, ABSENT, BEHIND, DELETED, UNREADABLE = "same", "differs", "absent", "behind", "deleted", "unreadable"
"""States of a copy: `absent` is removed by compaction or an erasure, `behind` not copied yet, `deleted` below the log
start."""
COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"


@dataclass(frozen=True, slots=True)
class RecordFile:
    """The data file that a record is in. `path` is below the replica's table; its name has the CRC32C of the footer."""

    path: str
    size_bytes: int
    record_count: int
    segment: int
    start_offset: int
    end_offset: int

    @classmethod
    def of(cls, entry: FileEntry) -> RecordFile:
        file = entry.file
        place = entry.segment, entry.start_offset, entry.end_offset
        return cls(file.path, file.size_bytes, file.record_count, *place)


@dataclass(frozen=True, slots=True)
class RecordCopy:
    """One replica's copy.

    state     `same` as the first readable copy, `differs`, `absent`, `behind`, `deleted`, `unreadable`
    reason    in words, unless it is the same
    checksum  CRC32C of the record with its offset, epoch, time, key, value, headers and producer; null without a copy
    arrived   the commit by which the replica got the offset; null when it was cleaned up
    written   the commit that wrote the file: a later one after a merge or compaction
    """

    broker_id: int
    is_leader: bool
    is_in_sync: bool
    state: str
    reason: str
    checksum: int | None
    file: RecordFile | None
    arrived: TableCommit | None
    written: TableCommit | None
    log_start_offset: int | None
    log_end_offset: int | None


@dataclass(frozen=True, slots=True)
class RecordTransaction:
    """The transaction of a record. `transactional_id` is null when it is not known, or not to be seen."""

    outcome: str
    first_offset: int | None
    marker_offset: int | None
    transactional_id: str | None


@dataclass(frozen=True, slots=True)
class RecordOrigin:
    """A record's timestamp and sizes, its producer, and its batch. Producer id, epoch and sequence are null when the
    producer was not idempotent.

    timestamp_type  `CreateTime`: the producer set the timestamp; `LogAppendTime`: the broker did, at the append
    """

    timestamp_ms: int | None
    timestamp_type: str
    key_bytes: int | None
    value_bytes: int | None
    header_count: int
    is_control: bool
    producer_id: int | None
    producer_epoch: int | None
    sequence: int | None
    batch_base_offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class RecordLeader:
    """The leader under which a record was written. See `who_led`."""

    broker_id: int
    leader_epoch: int
    since_ms: int
    isr: tuple[int, ...]
    acknowledged_by_epoch: int | None


@dataclass(frozen=True, slots=True)
class RecordWay:
    """Everything that storage tells about one record.

    is_committed  whether the high watermark is above it; null: not known
    agrees        whether all copies that are there are the same
    origin        null when no replica has the record any more
    """

    topic: str
    partition: int
    offset: int
    topic_id: str
    is_committed: bool | None
    agrees: bool
    origin: RecordOrigin | None
    transaction: RecordTransaction | None
    leader: RecordLeader | None
    copies: tuple[RecordCopy, ...]


def record_way(asker: Asker, topic: str, partition: int, offset: int) -> RecordWay:
    """The way of one record. OffsetOutOfRangeError for an offset that no replica has or had."""
    asker.check_topic(topic, Operation.READ)
    view = stored_view(asker, "the replicas that a record's way leads to are")
    place = TopicPartition(topic, partition)
    view.refresh()
    replicas = list(replica_logs(view, uncached_stores(view), place))
    _check_offset(place, offset, replicas)
    found: list[tuple[RecordCopy, pa.Table | None]] = []
    for replica in replicas:
        known = next((rows for _, rows in found if rows is not None), None)
        found.append(_copy(replica, offset, known))
    copies = [copy for copy, _ in found]
    row = next((rows for _, rows in found if rows is not None), None)
    holder = next((each.log for each, (_, rows) in zip(replicas, found, strict=True) if rows is not None), None)
    marks = view.watermarks.published_now([place])[place]
    return RecordWay(
        topic,
        partition,
        offset,
        view.image.topic_ids.get(topic, ""),
        None if marks is None else offset < marks.high_watermark,
        not any(copy.state in (DIFFERS, UNREADABLE) for copy in copies),
        None if row is None else _origin(row.to_pylist()[0], _timestamp_ms(row)),
        None if row is None or holder is None else _transaction(asker, holder, row),
        _leader(view, place, offset),
        tuple(copies),
    )


def _check_offset(place: TopicPartition, offset: int, replicas: Sequence[ReplicaLog]) -> None:
    logs = [each.log for each in replicas if each.log is not None]
    if not logs:
        raise next(each.error for each in replicas if each.error is not None)
    end = max(log.log_end_offset for log in logs)
    if not 0 <= offset < end:
        raise OffsetOutOfRangeError(f"{place}: offset {offset} is outside [0, {end}), the offsets that replicas have")


def _copy(replica: ReplicaLog, offset: int, first: pa.Table | None) -> tuple[RecordCopy, pa.Table | None]:
    """A replica's copy and its row; `first`: the row of the copy to compare it with."""
    log = replica.log
    place = replica.broker_id, replica.is_leader, replica.is_in_sync
    if log is None:
        return RecordCopy(*place, UNREADABLE, str(replica.error), None, None, None, None, None, None), None
    ends = log.log_start_offset, log.log_end_offset
    reason = _why_not_there(log, offset)
    if reason is not None:
        return RecordCopy(*place, *reason, None, None, None, None, *ends), None
    try:
        row = log.read(offset, 1, offset + 1)
        entry = next(iter(files_between(log.files, offset, offset + 1)), None)
        arrived, written = _commits(log, entry, offset)
    except StratalogError as error:
        return RecordCopy(*place, UNREADABLE, f"{error.name}: {error}", None, None, None, None, *ends), None
    file = None if entry is None else RecordFile.of(entry)
    if not row.num_rows:
        text = "removed by compaction or an erasure; offsets stay"
        return RecordCopy(*place, ABSENT, text, None, file, arrived, written, *ends), None
    checksum = record_checksum(row)
    state, text = SAME, ""
    if first is not None and not first.equals(row):
        names = [name for name in row.column_names if not first[name].equals(row[name])]
        state, text = DIFFERS, f"another {', '.join(names)} than the first copy's"
    return RecordCopy(*place, state, text, checksum, file, arrived, written, *ends), row


def _why_not_there(log: LogReader, offset: int) -> tuple[str, str] | None:
    if offset < log.log_start_offset:
        return DELETED, f"below the log start {log.log_start_offset}: retention or a deletion removed it"
    if offset >= log.log_end_offset:
        return BEHIND, f"not copied yet: the log ends at {log.log_end_offset}"
    return None


def _commits(log: LogReader, entry: FileEntry | None, offset: int) -> tuple[TableCommit | None, TableCommit | None]:
    read = CommitReader(log.table, log.version)
    epoch = log.epochs.epoch_at(offset)
    arrived = commit_of_offset(read, log.version, offset, epoch)
    if entry is None:
        return arrived, None
    since = oldest_version(read, log.version) if arrived is None else arrived.version
    return arrived, commit_of_file(read, log.version, entry.path, since)


def _timestamp_ms(row: pa.Table) -> int | None:
    """As a number: a timestamp may be outside the range of Python's dates."""
    value = row["timestamp"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())[0].as_py()
    return None if value is None else int(value)


def _origin(row: dict[str, Any], timestamp_ms: int | None) -> RecordOrigin:
    has_producer = row["producer_id"] != NO_PRODUCER_ID
    return RecordOrigin(
        timestamp_ms,
        "LogAppendTime" if row["timestamp_type"] == LOG_APPEND_TIME else "CreateTime",
        None if row["key"] is None else len(row["key"]),
        None if row["value"] is None else len(row["value"]),
        len(row["headers"] or ()),
        is_control(row["attributes"]),
        row["producer_id"] if has_producer else None,
        row["producer_epoch"] if has_producer else None,
        row["sequence"] if row["sequence"] >= 0 else None,
        row["batch_base_offset"],
        row["leader_epoch"],
    )


def _transaction(asker: Asker, log: LogReader, row: pa.Table) -> RecordTransaction | None:
    """The transaction of a record by a log that has it; None for a record of none."""
    attributes, producer_id, offset = (row[name][0].as_py() for name in ("attributes", "producer_id", "offset"))
    if not is_transactional(attributes):
        return None
    transactional_id = _transactional_id(asker, producer_id)
    if is_control(attributes):
        marker = marker_of(row["key"][0].as_py(), row["value"][0].as_py())
        outcome = COMMITTED if marker is not None and marker.is_commit else ABORTED
        return RecordTransaction(outcome, None, offset, transactional_id)
    outcome, first, marker_offset = outcome_of(log.producers.transactions, producer_id, offset)
    if marker_offset is None and outcome == COMMITTED:
        marker_offset = _marker_after(log, producer_id, offset)
    return RecordTransaction(outcome, first, marker_offset, transactional_id)


def outcome_of(known: Transactions, producer_id: int, offset: int) -> tuple[str, int | None, int | None]:
    """How the transaction of a producer's record ended: (outcome, its first offset, its marker's offset); None: not
    known from what is kept of transactions.

    With an aborted transaction [10, 14] of producer 7, its record at 12 has ("aborted", 10, 14).
    """
    for aborted in known.aborted_between(offset, offset + 1):
        if aborted.producer_id == producer_id:
            return ABORTED, aborted.first_offset, aborted.last_offset
    last = known.of(producer_id)
    if last.is_open and last.first_offset <= offset:
        return OPEN, last.first_offset, None
    if last.completed_first != NO_OFFSET and last.completed_first <= offset <= last.completed_last:
        return COMMITTED, last.completed_first, last.completed_last
    return COMMITTED, None, None


def _marker_after(log: LogReader, producer_id: int, offset: int) -> int | None:
    """The offset of the producer's next control record; None when it is not among the next `MARKER_BYTES_MAX`."""
    columns = ("offset", "producer_id", "attributes")
    left_bytes = MARKER_BYTES_MAX
    for rows in log.read_range(offset + 1, log.log_end_offset, 4 << 20, columns):
        is_marker = [is_control(each) for each in rows["attributes"].to_pylist()]
        own = rows.filter(pc.and_(pc.equal(rows["producer_id"], producer_id), pa.array(is_marker, pa.bool_())))
        if own.num_rows:
            return int(own["offset"][0].as_py())
        left_bytes -= 4 << 20
        if left_bytes <= 0:
            return None
    return None


def _transactional_id(asker: Asker, producer_id: int) -> str | None:
    """The transactional id that has this producer id, if the asker may describe it."""
    with suppress(StratalogError):
        for _, listing in asker.cluster.transactions().listed():
            if listing.producer_id == producer_id:
                name = listing.transactional_id
                return name if asker.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name) else None
    return None


def _leader(view: ClusterView, place: TopicPartition, offset: int) -> RecordLeader | None:
    with suppress(StratalogError):
        led = who_led(view, place, offset)
        return RecordLeader(led.leader, led.leader_epoch, led.since_ms, led.isr, led.acknowledged_by_epoch)
    return None


QUESTIONS = (
    Question(
        "record_way",
        "A record's file, commit, producer, transaction and leader, and each replica's copy compared by checksum.",
        record_way,
        {
            "topic": Parameter(str, "the topic"),
            "partition": Parameter(int, "the partition"),
            "offset": Parameter(int, "the record's offset"),
        },
    ),
)
