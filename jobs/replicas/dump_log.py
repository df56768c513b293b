"""`kafka-dump-log` for stratalog: the batches and records of a replica's log, its indexes and its producers.

I/O: reads the named tables, and nothing else of a cluster; it works beside a running one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from stratalog import StratalogError
from stratalog.jobs.command.flags import Flag, Rule, switch
from stratalog.jobs.command.terminal import DONE, FAILED, UsageError, complain, error_text
from stratalog.jobs.command.tool import Command
from stratalog.jobs.command.words import Words
from stratalog.jobs.text import dump
from stratalog.jobs.text.record_decoders import Decoder, metadata_decoder, offsets_decoder, text_decoder, text_of
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.errors import CorruptMessageError, ObjectNotFoundError
from stratalog.storage.files import batch_file
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.reader import LogReader
from stratalog.storage.log.rows import TIME_COLUMNS
from stratalog.storage.log.segments import LogSegment, files_between
from stratalog.storage.objects.opened import open_store
from stratalog.storage.producers import ProducerStates
from stratalog.storage.records import timestamp_range
from stratalog.storage.topic_config import INT_MAX

PURPOSE = (
    "This tool helps to parse a log file and dump its contents to the console, useful for debugging a seemingly "
    "corrupt log segment."
)
EPILOG = """names for --files, with commas between (ROOT is a broker's root, as strata cluster made it: PATH/broker-1):
  ROOT/events-0                                   all segments of a replica's log
  ROOT/events-0/segment=00000000000000003257      one segment; ROOT/events-0/00000000000000003257.log is the same
  ROOT/events-0/00000000000000003257.index        its data files: last offset and position in the segment
  ROOT/events-0/00000000000000003257.timeindex    its data files: largest timestamp so far and last offset
  ROOT/events-0/segment=…/….parquet               one data file
  ROOT/events-0/_producers                        producer and sink state at the log's end; or one object below it
  ROOT/events-0/cleaner-offset-checkpoint         how far a compacted log is clean, and when it was compacted

A data file stands for what Kafka's index has an entry of. position: where the data file begins in its segment; size:
bytes of a batch's records, uncompressed; crc: the CRC32C of the data file's footer, which its name has in hex.

examples:
  {prog} --files data/cluster/broker-1/events-0 --print-data-log
  {prog} --files data/cluster/metadata/__cluster_metadata-0 --cluster-metadata-decoder --skip-record-metadata

exit code: 0; 1 when something is damaged (isvalid: false, a mismatch; named on standard error) or not there
"""
# fmt: off
FLAGS = {"": (
    Flag("files", "FILE1,FILE2", "REQUIRED: The comma separated list of logs, segments, indexes or data files to be "
         "dumped, see below."),
    switch("print-data-log", "If set, printing the messages content when dumping data logs. Automatically set if any "
           "decoder option is specified."),
    switch("deep-iteration", "If set, uses deep instead of shallow iteration. Automatically set if print-data-log is "
           "enabled."),
    switch("skip-record-metadata", "Skip metadata when printing records. This flag also skips control records."),
    switch("verify-index-only", "If set, just verify the index log without printing its content."),
    switch("index-sanity-check", "If set, just checks the index sanity without printing its content: that its data "
           "files follow each other within the segment and are there in full size."),
    switch("offsets-decoder", "If set, log data will be parsed as offset data from the __consumer_offsets topic."),
    switch("cluster-metadata-decoder", "If set, log data will be parsed as cluster metadata records."),
    Flag("max-bytes", "N", "Limit the amount of total batches read in bytes avoiding reading the whole log: data files "
         "that begin at this position of a segment or later are left out.", int, INT_MAX),
    Flag("max-message-size", "N", "Accepted for Kafka's sake, without effect: no buffer is needed.", int),
    *(Flag(f"{part}-decoder-class", "CLASS", f"How a message's {part} is shown: StringDecoder (the default), "
           "IntegerDecoder or LongDecoder.", bare="StringDecoder") for part in ("key", "value")),
)}
# fmt: on


def shown(given: argparse.Namespace) -> dump.Shown:
    """How much of a log the flags ask for. UsageError for a decoder class that is not known."""
    classes = (given.key_decoder_class, given.value_decoder_class)
    is_decoded = given.offsets_decoder or given.cluster_metadata_decoder
    contents = bool(given.print_data_log or is_decoded or any(classes))
    decode: Decoder
    if given.offsets_decoder:
        decode = offsets_decoder
    elif given.cluster_metadata_decoder:
        decode = metadata_decoder
    else:
        decode = text_decoder(*(text_of(name or "StringDecoder") for name in classes))
    return dump.Shown(given.deep_iteration or contents, contents, not given.skip_record_metadata, decode)


@dataclass(slots=True)
class Findings:
    """What is wrong, by the name that was dumped. It is printed to standard error at the end, as by Kafka's tool."""

    gaps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    offsets: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    timestamps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    is_damaged: bool = False

    def add_damage(self, reason: Exception) -> None:
        """A part of the log that cannot be read; it is reported at once."""
        self.is_damaged = True
        complain(error_text(reason))

    def lines(self) -> Iterator[str]:
        for found, title, line in (
            (self.offsets, "Mismatches in :{}", "  Index offset: {}, log offset: {}"),
            (self.timestamps, "Found timestamp mismatch in :{}", "  Index timestamp: {}, log timestamp: {}"),
            (self.gaps, "Non-consecutive offsets in {}", "  {} is followed by {}"),
        ):
            for name, pairs in found.items():
                yield title.format(name)
                yield from (line.format(*pair) for pair in pairs)


class LogDump:
    """The lines of one replica's log. Nothing is cached, so what is shown is what lies on storage."""

    def __init__(self, name: dump.DumpName, given: argparse.Namespace, findings: Findings) -> None:
        table = DeltaLogTable(open_store(name.root), name.table, RandomIds())
        self._log = LogReader(table, SystemClock())
        self._name = name
        self._given = given
        self._findings = findings

    def lines(self) -> Iterator[str]:
        """The lines for the name. UsageError when the log has no such part; else raises as `LogReader`."""
        if self._name.kind is dump.DumpKind.PRODUCERS:
            yield f"Dumping {self._name.name}"
            yield from dump.producer_lines(self._producers())
            return
        if self._name.kind is dump.DumpKind.CLEANER:
            yield f"Dumping {self._name.name}"
            yield from dump.cleaner_lines(self._name.table, self._log.state.cleaner)
            return
        for segment in self._segments():
            title = self._name.name
            if self._name.segment is None:
                title = f"{title.rstrip('/')}/{segment.base_offset:020}.log"
            yield f"Dumping {title}"
            if self._name.kind is dump.DumpKind.LOG:
                yield from self._segment_lines(segment, title)
            elif self._given.index_sanity_check:
                self._check_sanity(segment)
                yield f"{title} passed sanity check."
            else:
                yield from self._index_lines(segment, title)

    def _producers(self) -> ProducerStates:
        if self._name.path is None:
            return self._log.producers
        data = self._log.table.read_object(self._name.path)
        try:
            return ProducerStates.from_json(data)
        except ValueError as reason:
            raise CorruptMessageError(f"{self._name.name}: {reason}") from reason

    def _segments(self) -> list[LogSegment]:
        wanted = self._name.segment
        segments = [s for s in self._log.segments if wanted is None or s.base_offset == wanted]
        if wanted is not None and not segments:
            known = ", ".join(f"{segment.base_offset:020}" for segment in self._log.segments[-3:])
            raise UsageError(f"{self._name.name}: the log has no such segment; its newest are: {known or 'none'}")
        return segments

    # -- batches and records -------------------------------------------------------------------------------

    def _segment_lines(self, segment: LogSegment, title: str) -> Iterator[str]:
        yield f"Log starting offset: {segment.base_offset}"
        gaps, how, count = dump.OffsetGaps(), shown(self._given), 0
        for entry, position in self._entries(segment):
            if position >= self._given.max_bytes:
                break
            if self._name.path not in (None, entry.path):
                continue
            count += 1
            rows, codec = self._read(entry)
            if rows is None:
                yield dump.invalid_line(entry, position)
            else:
                yield from dump.log_lines(rows, entry, position, codec, how, gaps)
        if self._name.path is not None and not count:
            raise UsageError(f"{self._name.name}: no commit of the log names this file, or not any more")
        if gaps.gaps:
            self._findings.gaps[title] = gaps.gaps

    def _entries(self, segment: LogSegment) -> Iterator[tuple[FileEntry, int]]:
        """The data files of a segment and their positions; after a merge in between, those that replaced them."""
        offset, position = segment.base_offset, 0
        while offset < segment.end_offset:
            version = self._log.version
            for entry in files_between(self._log.files, offset, segment.end_offset):
                if not self._log.table.has_file(entry.file) and self._log.refresh():
                    break
                yield entry, position
                position += entry.file.size_bytes
                offset = entry.end_offset
            if self._log.version == version:
                return

    def _read(self, entry: FileEntry) -> tuple[pa.Table | None, str]:
        """A data file's rows and codec; no rows, and a line on standard error, when it is damaged or deleted."""
        name = f"{self._log.name}/{entry.path}"
        try:
            data = self._log.table.read_object(entry.path)
            rows = batch_file.decode(data, name)
            if rows.num_rows != entry.file.record_count:
                raise CorruptMessageError(f"{name}: {rows.num_rows} records, expected {entry.file.record_count}")
            return rows, batch_file.codec_of(data)
        except (CorruptMessageError, ObjectNotFoundError) as reason:
            self._findings.add_damage(reason)
            return None, ""

    # -- indexes -------------------------------------------------------------------------------------------

    def _index_lines(self, segment: LogSegment, title: str) -> Iterator[str]:
        """The entries of an index, each compared with its data file."""
        is_printed, latest = not self._given.verify_index_only, None
        for entry, position in self._entries(segment):
            rows = self._verified(entry, title)
            if self._name.kind is dump.DumpKind.INDEX:
                if is_printed:
                    yield dump.index_line(entry, position)
                continue
            own = entry.file.max_timestamp_ms
            if rows is not None and timestamp_range(rows["timestamp"])[1] != own:
                found = timestamp_range(rows["timestamp"])[1]
                self._findings.timestamps.setdefault(title, []).append((_time(own), _time(found)))
            if own is not None and (latest is None or own > latest):
                latest = own
                if is_printed:
                    yield dump.time_index_line(own, entry)

    def _verified(self, entry: FileEntry, title: str) -> pa.Table | None:
        """The offsets and timestamps of a data file; another last offset than the commit's is a finding."""
        try:
            rows = self._log.table.read_file(entry.file, TIME_COLUMNS)
        except (CorruptMessageError, ObjectNotFoundError) as reason:
            self._findings.add_damage(reason)
            return None
        last = entry.base_offset + rows["offset_delta"][-1].as_py()
        if last != entry.end_offset - 1:
            self._findings.offsets.setdefault(title, []).append((entry.end_offset - 1, last))
        return rows

    def _check_sanity(self, segment: LogSegment) -> None:
        """CorruptMessageError naming both values when a data file is out of order, out of its segment or not whole."""
        end = segment.base_offset
        for entry, _ in self._entries(segment):
            where = f"{self._log.name}/{entry.path}"
            if entry.start_offset < end:
                raise CorruptMessageError(f"{where}: begins at offset {entry.start_offset}, before {end}")
            if entry.end_offset - 1 - segment.base_offset > INT_MAX:
                raise CorruptMessageError(f"{where}: offset {entry.end_offset - 1} is too far from the segment's base")
            if not self._log.table.has_file(entry.file):
                raise CorruptMessageError(f"{where}: is not there with {entry.file.size_bytes} bytes")
            end = entry.end_offset


def _time(timestamp_ms: int | None) -> int:
    return -1 if timestamp_ms is None else timestamp_ms


def dump_log(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code. Damage inside a log is reported, and the rest is shown."""
    shown(given)
    findings = Findings()
    for name in given.files.split(","):
        target = dump.dump_name(name.strip())
        if target is None:
            complain(f"Ignoring unknown file {name.strip()}")
            continue
        try:
            for line in LogDump(target, given, findings).lines():
                print(line)
        except StratalogError as reason:
            findings.add_damage(reason)
    for line in findings.lines():
        complain(line)
    is_sound = not (findings.is_damaged or findings.offsets or findings.timestamps)
    return DONE if is_sound else FAILED


RULES = (*Rule.required("files"), *Rule.at_most_one(("offsets-decoder", "cluster-metadata-decoder")))
main = Command("dump-log", PURPOSE, EPILOG, FLAGS, dump_log, RULES, Words(values=("files",)))
