"""A commit as nearly all are, read at one go. Pure.

An append or a copy of one small batch adds one file and removes none. Where many partitions get a record here and
there, each such commit is read by every follower, several times, and decoding its JSON twice over (`stats` is a text
within it) costs more than all else that is done with it. One pattern takes it in a third of the time. It matches
only what `delta_log.encode_commit` writes; what is written otherwise is left to `delta_log.decode_commit`.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import crc32c

from storage.commit_race import StoredCommit
from storage.producers import ProducerChanges
from storage.table import Commit, DataFile, FileEntry

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
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


_COMMIT = _pattern(_WRITTEN)
_TXN = re.compile(rb'"appId":"([^"]+)","version":(-?\d+)')


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
        producers=None if producers is None else ProducerChanges.from_value(json.loads(producers)),
    )
    return StoredCommit(commit, previous_id.decode())


def _milliseconds(text: bytes) -> int:
    return (datetime.fromisoformat(text.decode()) - _EPOCH) // _MS
