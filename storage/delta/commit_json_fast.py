"""A commit as nearly all are, written and read at one go. Pure.

An append or a copy of one small batch adds one file and removes none. Where many partitions get a record here and
there, each such commit is read by every follower, several times, and decoding its JSON twice over (`stats` is a text
within it) costs more than all else that is done with it. One pattern takes it in a third of the time, one template
writes it in a quarter. Both know only what `delta_log.encode_commit` writes of such a commit, to the byte; what is
otherwise is left to that and to `delta_log.decode_commit`.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import crc32c

from stratalog.storage.delta.commit_race import StoredCommit
from stratalog.storage.delta.table import Commit
from stratalog.storage.files.data_file import DataFile, FileEntry
from stratalog.storage.producers import BatchMetadata, ProducerChanges

ENGINE_INFO = "stratalog/1"
ISO_MIN_MS, ISO_MAX_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999; for others Delta has no text."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS, _S = timedelta(milliseconds=1), timedelta(seconds=1)
_ISO_BYTES = len(b"2026-01-31T12:00:00.000Z")
_ZEROS = b"00000000"
_WRITTEN = (
    r'{"commitInfo":{"timestamp":<\d+>,"operation":"<[A-Z ]+>","engineInfo":"stratalog/1",'
    r'"stratalogCommitId":"<\w+>","stratalogPreviousCommitId":"<\w+>","stratalogDataChange":true,'
    r'"stratalogCrc32c":"<[0-9a-f]{8}>"(?:,"stratalogProducers":<\[[-0-9,[\]]+\]>)?}}\n'
    r'<(?:{"txn":{"appId":"[-.a-z0-9]+","version":-?\d+}}\n)+>'
    r'{"add":{"path":"<[-=./\w]+>","partitionValues":{"segment":"<\d+>","leader_epoch":"<\d+>","base_offset":"<\d+>"},'
    r'"size":<\d+>,"modificationTime":\d+,"dataChange":true,"stats":"{\"numRecords\":<\d+>,'
    r"\"minValues\":{\"offset_delta\":<\d+>,\"timestamp\":\"<[-:.TZ0-9]+>\"},"
    r"\"maxValues\":{\"offset_delta\":<\d+>,\"timestamp\":\"<[-:.TZ0-9]+>\"},"
    r'\"nullCount\":{\"offset_delta\":0}}"}}'
)
"""With `<` and `>` for the parentheses of groups; a backslash before a quotation mark stands for itself."""


def _pattern(written: str) -> re.Pattern[bytes]:
    text = written.replace('\\"', '\\\\"').replace("{", r"\{").replace("}", r"\}").replace(r"\{8\}", "{8}")
    return re.compile(text.replace("<", "(").replace(">", ")").encode(), re.ASCII)


_quoted = json.encoder.encode_basestring_ascii
_COMMIT = _pattern(_WRITTEN)
_TXN = re.compile(rb'"appId":"([^"]+)","version":(-?\d+)')
_ONE_BATCH = re.compile(rb"\[\[\[(-?\d+(?:,-?\d+){6})\]\],\[\]\]")
"""What `_changes` writes of one batch: producer id and epoch, and the numbers of a `BatchMetadata`."""


def encode_usual(stored: StoredCommit) -> bytes | None:
    """The log file of a commit, None when it is not of the usual form."""
    commit, previous_id = stored.commit, stored.previous_id
    is_usual = len(commit.adds) == 1 and not commit.removes and commit.data_change and stored.properties is None
    if not is_usual or previous_id is None:
        return None
    (entry,) = commit.adds
    file, at_ms = entry.file, commit.timestamp_ms
    least_ms, greatest_ms = file.min_timestamp_ms, file.max_timestamp_ms
    if least_ms is None or greatest_ms is None or least_ms < ISO_MIN_MS or greatest_ms > ISO_MAX_MS:
        return None
    least = iso_text(least_ms)
    greatest = least if greatest_ms == least_ms else iso_text(greatest_ms)
    producers = "" if commit.producers is None else f',"stratalogProducers":{_changes(commit.producers)}'
    before = (
        f'{{"commitInfo":{{"timestamp":{at_ms},"operation":{_quoted(commit.operation)},"engineInfo":"{ENGINE_INFO}",'
        f'"stratalogCommitId":{_quoted(commit.commit_id)},"stratalogPreviousCommitId":{_quoted(previous_id)},'
        '"stratalogDataChange":true,"stratalogCrc32c":"'
    ).encode()
    txns = "".join(
        [f'{{"txn":{{"appId":{_quoted(name)},"version":{number}}}}}\n' for name, number in commit.txns.items()]
    )
    after = (
        f'"{producers}}}}}\n{txns}'
        f'{{"add":{{"path":{_quoted(file.path)},"partitionValues":{{"segment":"{entry.segment:020}",'
        f'"leader_epoch":"{entry.leader_epoch}","base_offset":"{entry.base_offset}"}},"size":{file.size_bytes},'
        f'"modificationTime":{at_ms},"dataChange":true,"stats":"{{\\"numRecords\\":{file.record_count},'
        f'\\"minValues\\":{{\\"offset_delta\\":{file.first_delta},\\"timestamp\\":\\"{least}\\"}},'
        f'\\"maxValues\\":{{\\"offset_delta\\":{file.last_delta},\\"timestamp\\":\\"{greatest}\\"}},'
        '\\"nullCount\\":{\\"offset_delta\\":0}}"}}'
    ).encode()
    crc = crc32c.crc32c(after, crc32c.crc32c(_ZEROS, crc32c.crc32c(before)))
    return b"".join((before, f"{crc:08x}".encode(), after))


def _changes(changes: ProducerChanges) -> str:
    if len(changes.batches) != 1 or changes.sink_batches or changes.transactions:
        return json.dumps(changes.to_value(), separators=(",", ":"))
    ((producer_id, epoch, batch),) = changes.batches
    return f"[[[{','.join(map(str, (producer_id, epoch, *batch)))}]],[]]"


def iso_text(timestamp_ms: int) -> str:
    """A time between `ISO_MIN_MS` and `ISO_MAX_MS` as Delta's statistics have it."""
    return f"{_iso_seconds(timestamp_ms // 1000)}.{timestamp_ms % 1000:03}Z"


@lru_cache(maxsize=256)
def _iso_seconds(timestamp_s: int) -> str:
    moment = _EPOCH + timedelta(seconds=timestamp_s)
    return f"{moment:%Y}".zfill(4) + f"{moment:-%m-%dT%H:%M:%S}"


def decode_usual(data: bytes) -> StoredCommit | None:
    """The commit in a log file, None when it is not of the usual form or its checksum is another one."""
    found = _COMMIT.fullmatch(data)
    if found is None:
        return None
    start, end = found.span(5)
    crc = crc32c.crc32c(data[end:], crc32c.crc32c(_ZEROS, crc32c.crc32c(data[:start])))
    (
        written, operation, commit_id, previous_id, stated_crc, producers, txns, path, segment, epoch, base, size,
        count, first, least, last, greatest,
    ) = found.groups()  # fmt: skip
    if crc != int(stated_crc, 16):
        return None
    least_ms = _milliseconds(least)
    greatest_ms = least_ms if greatest == least else _milliseconds(greatest)
    file = DataFile(path.decode(), int(size), int(count), int(first), int(last), least_ms, greatest_ms)
    commit = Commit(
        commit_id.decode(),
        operation.decode(),
        int(written),
        (FileEntry(file, int(segment), int(epoch), int(base)),),
        txns={name.decode(): int(version) for name, version in _TXN.findall(txns)},
        producers=None if producers is None else _changes_in(producers),
    )
    return StoredCommit(commit, previous_id.decode())


def _changes_in(text: bytes) -> ProducerChanges:
    one = _ONE_BATCH.fullmatch(text)
    if one is None:
        return ProducerChanges.from_value(json.loads(text))
    producer_id, epoch, *batch = map(int, one[1].split(b","))
    return ProducerChanges(((producer_id, epoch, BatchMetadata(*batch)),))


def _milliseconds(text: bytes) -> int:
    """What `iso_text` gave; the time of another writer may be longer or shorter."""
    if len(text) != _ISO_BYTES:
        return (datetime.fromisoformat(text.decode()) - _EPOCH) // _MS
    return _seconds_of(text[:-5]) * 1000 + int(text[-4:-1])


@lru_cache(maxsize=256)
def _seconds_of(text: bytes) -> int:
    return (datetime.fromisoformat(text.decode() + "+00:00") - _EPOCH) // _S
