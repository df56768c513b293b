"""What dump-log prints of batches, records, index entries and producers (Kafka's DumpLogSegments), and the names that
it dumps: a log, a segment, one of its indexes, a data file. Pure.

Fields that a batch of ours does not have: `position` is where its data file begins in the segment, `size` the Arrow
bytes of its records, `crc` the CRC32C of its data file's footer. The delete horizon is that of a transaction's marker,
which has it in a header. A batch with tombstones shows none: a table records when they were first compacted, but not
the topic's `delete.retention.ms`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.jobs.text.record_decoders import Decoder, as_text
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.cleaner_checkpoint import CleanerCheckpoint
from stratalog.storage.producers import ProducerStates
from stratalog.storage.records import PAYLOAD_SCHEMA
from stratalog.storage.upkeep.cleaned_transactions import DELETE_HORIZON, horizon_of

TRANSACTIONAL, CONTROL = 0x10, 0x20
"""Kafka's attribute bits of a batch."""
NO_TIMESTAMP = -1
_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}
_END_MARKERS = {0: "ABORT", 1: "COMMIT"}
_COLUMNS = ("offset_delta", "timestamp", "key", "value", "headers", "sequence")


_BATCH = (
    "baseOffset: {first} lastOffset: {last} count: {count} baseSequence: {base_sequence} lastSequence: {last_sequence} "
    "producerId: {producer_id} producerEpoch: {producer_epoch} partitionLeaderEpoch: {epoch} "
    "isTransactional: {transactional} isControl: {control} deleteHorizonMs: {horizon} position: {position} "
    "{time_type}: {time} size: {size} magic: 2 compresscodec: {codec} crc: {crc} isvalid: {valid}"
)
_UNKNOWN = {
    **dict.fromkeys(("base_sequence", "last_sequence", "producer_id", "producer_epoch"), -1),
    "horizon": "OptionalLong.empty", "time_type": _TIMESTAMP_TYPES[0], "codec": "none", "valid": "false",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shown:
    """How much of a log is shown: batches alone, with their records (`records`), with keys and values (`contents`)."""

    records: bool = False
    contents: bool = False
    record_metadata: bool = True
    decode: Decoder = as_text


@dataclass(slots=True)
class OffsetGaps:
    """Gaps between offsets, as (offset before, offset after). Compaction makes some, too."""

    gaps: list[tuple[int, int]] = field(default_factory=list)
    _last: int | None = None

    def add(self, offset: int) -> None:
        if self._last is not None and offset != self._last + 1:
            self.gaps.append((self._last, offset))
        self._last = offset


def log_lines(
    rows: pa.Table, entry: FileEntry, position: int, codec: str, shown: Shown, gaps: OffsetGaps
) -> Iterator[str]:
    """The lines of a data file: each batch, and of its records what `shown` asks for.

    rows      the whole file, `DATA_SCHEMA`
    position  bytes of the segment before the file
    codec     as Kafka names it
    """
    bases = pc.run_end_encode(rows["batch_base"].combine_chunks())
    first = 0
    for end in bases.run_ends.to_pylist():
        batch = rows.slice(first, end - first)
        yield batch_line(batch, entry, position, codec)
        if shown.records:
            yield from _record_lines(batch, entry, shown, gaps)
        first = end


def batch_line(batch: pa.Table, entry: FileEntry, position: int, codec: str) -> str:
    """The line of one batch, of the records that compaction has left."""
    first = {name: batch[name][0].as_py() for name in ("offset_delta", "batch_base", "sequence", "attributes")}
    last_delta, last_sequence = batch["offset_delta"][-1].as_py(), batch["sequence"][-1].as_py()
    base_sequence = first["sequence"]
    if base_sequence >= 0:  # compaction may have removed the first records
        base_sequence = (base_sequence - (first["offset_delta"] - first["batch_base"])) & 0x7FFFFFFF
    latest = pc.max(batch["timestamp"].cast(pa.int64())).as_py()
    return _batch_text(
        entry,
        position,
        first["attributes"],
        first=entry.base_offset + first["batch_base"],
        last=entry.base_offset + last_delta,
        count=batch.num_rows,
        base_sequence=base_sequence,
        last_sequence=last_sequence,
        producer_id=batch["producer_id"][0].as_py(),
        producer_epoch=batch["producer_epoch"][0].as_py(),
        time_type=_TIMESTAMP_TYPES[batch["timestamp_type"][0].as_py()],
        time=NO_TIMESTAMP if latest is None else latest,
        size=batch.select(PAYLOAD_SCHEMA.names).nbytes,
        codec=codec,
        valid=_java(True),
        horizon=_optional(horizon_of(batch["headers"][0].as_py()) if first["attributes"] & CONTROL else None),
    )


def invalid_line(entry: FileEntry, position: int) -> str:
    """The line of a data file that cannot be read, from its commit."""
    file = entry.file
    return _batch_text(
        entry,
        position,
        first=entry.start_offset,
        last=entry.end_offset - 1,
        count=file.record_count,
        time=NO_TIMESTAMP if file.max_timestamp_ms is None else file.max_timestamp_ms,
        size=file.size_bytes,
    )


def _batch_text(entry: FileEntry, position: int, attributes: int = 0, **known: object) -> str:
    """The line of a batch; what is not known is as of a batch without a producer that cannot be read."""
    return _BATCH.format(
        **_UNKNOWN | known,
        position=position,
        epoch=entry.leader_epoch,
        transactional=_java(bool(attributes & TRANSACTIONAL)),
        control=_java(bool(attributes & CONTROL)),
        crc=int(entry.path.rsplit(".", 2)[-2], 16),
    )


def _record_lines(batch: pa.Table, entry: FileEntry, shown: Shown, gaps: OffsetGaps) -> Iterator[str]:
    is_control = bool(batch["attributes"][0].as_py() & CONTROL)
    kind = _TIMESTAMP_TYPES[batch["timestamp_type"][0].as_py()]
    columns = [batch[name].cast(pa.int64()) if name == "timestamp" else batch[name] for name in _COLUMNS]
    for delta, time_ms, key, value, headers, sequence in zip(*(c.to_pylist() for c in columns), strict=True):
        offset = entry.base_offset + delta
        gaps.add(offset)
        parts: list[str] = []
        if shown.record_metadata:
            names = (header["key"] for header in headers or ())
            keys = ",".join(name for name in names if not (is_control and name == DELETE_HORIZON))
            parts.append(
                f"offset: {offset} {kind}: {NO_TIMESTAMP if time_ms is None else time_ms} keySize: {_size(key)} "
                f"valueSize: {_size(value)} sequence: {sequence} headerKeys: [{keys}]"
            )
            parts.extend(_marker(key, value) if is_control else ())
        if shown.contents and not is_control:
            key_text, payload_text = shown.decode(offset, key, value)
            parts.extend(() if key_text is None else (f"key: {key_text}",))
            parts.extend(() if payload_text is None else (f"payload: {payload_text}",))
        yield f"| {' '.join(parts)}" if parts else ""


def _marker(key: bytes | None, value: bytes | None) -> Iterator[str]:
    """The end of a transaction that a control record marks, as Kafka encodes it (EndTransactionMarker)."""
    if key is None or len(key) < 4:
        return
    (kind,) = struct.unpack_from(">h", key, 2)
    if kind in _END_MARKERS and value is not None and len(value) >= 6:
        yield f"endTxnMarker: {_END_MARKERS[kind]} coordinatorEpoch: {struct.unpack_from('>i', value, 2)[0]}"


def index_line(entry: FileEntry, position: int) -> str:
    """A data file as an entry of its segment's offset index: its last offset and where it begins."""
    return f"offset: {entry.end_offset - 1} position: {position}"


def time_index_line(timestamp_ms: int, entry: FileEntry) -> str:
    """A data file as an entry of its segment's time index: the largest timestamp so far, up to its last offset."""
    return f"timestamp: {timestamp_ms} offset: {entry.end_offset - 1}"


def producer_lines(states: ProducerStates) -> Iterator[str]:
    """A line for each producer with its newest batch, as of Kafka's producer snapshots; sinks have none in Kafka."""
    for producer_id, entry in sorted(states.producers.items()):
        transaction = states.transactions.of(producer_id)
        first = _optional(transaction.first_offset if transaction.is_open else None)
        line = (
            f"producerId: {producer_id} producerEpoch: {entry.producer_epoch} "
            f"coordinatorEpoch: {transaction.coordinator_epoch} "
            f"currentTxnFirstOffset: {first} lastTimestamp: {entry.timestamp_ms}"
        )
        if entry.batches:
            last = entry.batches[-1]
            line += (
                f" firstSequence: {last.base_sequence} lastSequence: {last.last_sequence} lastOffset: "
                f"{last.last_offset} offsetDelta: {last.last_offset - last.base_offset} timestamp: {last.timestamp_ms}"
            )
        yield line
    for sink_id, sink in sorted(states.sinks.items()):
        newest = sink[-1]
        numbers = f"batchId: {newest.batch_id} lastOffset: {newest.last_offset} timestamp: {newest.timestamp_ms}"
        yield f"sinkId: {sink_id} {numbers}"


def cleaner_lines(table: str, cleaner: CleanerCheckpoint) -> Iterator[str]:
    """A log's line of Kafka's file `cleaner-offset-checkpoint`, and what stands beside it.

    >>> cleaner = CleanerCheckpoint().after_pass(100, now_ms=5_000, delete_retention_ms=86_400_000)
    >>> list(cleaner_lines("page-views-3", cleaner))
    ['page-views 3 100', 'compacted: 100 at: 5000', 'tombstonesGone: 0 abortedGone: 0']
    """
    topic, _, partition = table.rpartition("-")
    yield f"{topic} {partition} {cleaner.first_dirty_offset}"
    for each in cleaner.passes:
        yield f"compacted: {each.end_offset} at: {each.cleaned_ms}"
    if cleaner.under_way is not None:
        yield f"underWay: {cleaner.under_way.cleaned_end} of: {cleaner.under_way.end_offset}"
    yield f"tombstonesGone: {cleaner.gone_tombstones_end} abortedGone: {cleaner.gone_aborted_end}"


def _java(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _size(data: Any) -> int:
    return -1 if data is None else len(data)


class DumpKind(StrEnum):
    """What is shown of a log."""

    LOG = "log"
    INDEX = "index"
    TIME_INDEX = "timeindex"
    PRODUCERS = "snapshot"
    CLEANER = "checkpoint"


_TABLE = r"(?P<root>.+)/(?P<table>[^/]+-\d+)"
_NAMES = tuple(
    (re.compile(_TABLE + below), kind)
    for below, kind in (
        (r"/(?P<segment>\d{20})\.(?P<suffix>log|index|timeindex)", DumpKind.LOG),
        (r"/(?P<path>segment=(?P<segment>\d{20})/(?:[a-z_]+=\d+/)*[^/=]+\.parquet)", DumpKind.LOG),
        (r"/segment=(?P<segment>\d{20})", DumpKind.LOG),
        (r"/(?:_producers|(?P<path>_producers/[0-9a-f]{16}\.json))", DumpKind.PRODUCERS),
        (r"/cleaner-offset-checkpoint", DumpKind.CLEANER),
        ("", DumpKind.LOG),
    )
)


@dataclass(frozen=True, slots=True)
class DumpName:
    """A name as given, and the part of a log that it means.

    root     the broker's root
    table    the replica's table below it
    segment  one segment's base offset; None: all
    path     one object, below the table; None: all
    """

    name: str
    root: str
    table: str
    kind: DumpKind = DumpKind.LOG
    segment: int | None = None
    path: str | None = None


def dump_name(name: str) -> DumpName | None:
    """What a name means; None when it is none of these.

    `root/t-0` is a log, `root/t-0/segment=<20 digits>` or Kafka's `root/t-0/<20 digits>.log` a segment, with `.index`
    or `.timeindex` its index, `root/t-0/segment=…/….parquet` a data file, `root/t-0/_producers` the producers,
    `root/t-0/cleaner-offset-checkpoint` how far the log is compacted.

    >>> dump_name("/logs/nginx_access_log-1/00000000000003257573.index").segment
    3257573
    """
    text = name.rstrip("/")
    if not text.startswith("/") and "://" not in text:
        text = f"./{text}"
    for pattern, kind in _NAMES:
        if match := pattern.fullmatch(text):
            found = match.groupdict()
            segment, shown = found.get("segment"), DumpKind(found.get("suffix") or kind)
            number = None if segment is None else int(segment)
            return DumpName(name, found["root"], found["table"], shown, number, found.get("path"))
    return None
