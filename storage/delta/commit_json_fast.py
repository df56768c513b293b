"""The twin of `commit_json` for most commits: one small batch added, no file removed. Pure.

Where many partitions get a record now and then, every follower reads each such commit several times, and decoding
JSON twice over (`stats` is a text within it) costs more than the rest of its work. Here one pattern reads and one
template writes such a commit, exactly as `commit_json` does. For every other commit both return None.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import crc32c

from stratalog.storage.delta.commit_json import ENGINE_INFO, ISO_MAX_MS, ISO_MIN_MS, iso_text
from stratalog.storage.delta.commit_race import StoredCommit
from stratalog.storage.delta.table import Commit
from stratalog.storage.files.data_file import DataFile, FileEntry
from stratalog.storage.producers import BatchMetadata, ProducerChanges

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
"""The pattern of such a commit, to be translated by `_pattern`: `<` and `>` are the parentheses of groups, braces and a
backslash before a quotation mark are literal."""


def _pattern(written: str) -> re.Pattern[bytes]:
    text = written.replace('\\"', '\\\\"').replace("{", r"\{").replace("}", r"\}").replace(r"\{8\}", "{8}")
    return re.compile(text.replace("<", "(").replace(">", ")").encode(), re.ASCII)


_quoted = json.encoder.encode_basestring_ascii
_COMMIT = _pattern(_WRITTEN)
_TXN = re.compile(rb'"appId":"([^"]+)","version":(-?\d+)')
_ONE_BATCH = re.compile(rb"\[\[\[(-?\d+(?:,-?\d+){6})\]\],\[\]\]")
"""The text that `_changes` writes of one batch: producer id and epoch, and the numbers of a `BatchMetadata`."""


def encode_fast(stored: StoredCommit) -> bytes | None:
    """The log file of a commit; None: use `encode_commit`."""
    commit, previous_id = stored.commit, stored.previous_id
    if len(commit.adds) != 1 or commit.removes or not commit.data_change:
        return None
    if previous_id is None or stored.properties is not None:
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


def decode_fast(data: bytes) -> StoredCommit | None:
    """The commit in a log file; None: use `decode_commit`, as for a file whose checksum does not fit."""
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
    """The time of `iso_text`, or of another writer's text, which may be longer or shorter."""
    if len(text) != _ISO_BYTES:
        return (datetime.fromisoformat(text.decode()) - _EPOCH) // _MS
    return _seconds_of(text[:-5]) * 1000 + int(text[-4:-1])


@lru_cache(maxsize=256)
def _seconds_of(text: bytes) -> int:
    return (datetime.fromisoformat(text.decode() + "+00:00") - _EPOCH) // _S
