"""The Delta table of the metadata's history: append the states of a range of offsets exactly once, and read those of a
partition.

I/O: the metadata root. Each version is created if it is absent, on top of a version that was read: of two controllers
that append the same offsets one loses.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stratalog.replication.metadata.history.commits import (
    CHECKPOINT_INTERVAL,
    HISTORY_DIRECTORY,
    HistoryFile,
    decode_actions,
    decode_history_checkpoint,
    encode_history_commit,
    end_offset_of,
    files_of,
    folded,
    stats_of,
)
from stratalog.replication.metadata.history.states import HISTORY_SCHEMA
from stratalog.replication.metadata.log import READ_BYTES
from stratalog.replication.metadata.records import MetadataRecord, record_from_json, value_of_row
from stratalog.storage.clock import Ids
from stratalog.storage.delta.checkpoint import (
    LAST_CHECKPOINT,
    checkpoint_file,
    checkpoint_versions,
    commit_version,
    encode_pointer,
)
from stratalog.storage.delta.plain_log import Action, encode_plain_checkpoint
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.log.reader import LogReader
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.port import ObjectStore

_LOG = line_logger("stratalog.controller")
_COMMITS = f"{HISTORY_DIRECTORY}/_delta_log/"
ROW_GROUP_ROWS = 5_000


class HistoryTable:
    """The table as of its newest version when it was opened: `end_offset` is the end of the offsets that it has."""

    def __init__(self, objects: ObjectStore, ids: Ids) -> None:
        self._objects = objects
        self._ids = ids
        self.version, self.end_offset = self._newest()

    def _newest(self) -> tuple[int, int]:
        """Version and end of the newest commit; (-1, 0) when there is no table.

        A commit that a power cut tore was never synced, so nothing was removed from the metadata log for it: it is
        deleted, and its rows are appended again. A torn checkpoint is deleted, too.
        """
        paths = [meta.path for meta in self._objects.list(_COMMITS)]
        for version in checkpoint_versions(paths)[:1]:
            path = _COMMITS + checkpoint_file(version)
            try:
                decode_history_checkpoint(self._objects.get(path), path)
            except CorruptMessageError as reason:
                self._remove_torn(path, reason)
        for path in sorted(paths, reverse=True):
            version_of_path = commit_version(path)
            if version_of_path is None:
                continue
            try:
                return version_of_path, end_offset_of(decode_actions(self._objects.get(path), path))
            except CorruptMessageError as reason:
                self._remove_torn(path, reason)
        return -1, 0

    def _remove_torn(self, path: str, reason: CorruptMessageError) -> None:
        _LOG.warning("removed a torn file: %s", reason)
        self._objects.delete(path)

    def append(self, days: Mapping[str, pa.Table], end_offset: int, now_ms: int) -> bool:
        """Append these rows by day and commit them with the new `end_offset`, durably; False when another controller
        has appended since the table was opened."""
        files = [self._write(date, rows) for date, rows in days.items()]
        version = self.version + 1
        commit = encode_history_commit(version, files, end_offset, now_ms, self._ids.new_id())
        path = f"{_COMMITS}{version:020}.json"
        self._objects.sync([f"{HISTORY_DIRECTORY}/{file.path}" for file in files])
        if not self._objects.create(path, commit):
            return False
        self._objects.sync([path])
        self.version, self.end_offset = version, end_offset
        if version and version % CHECKPOINT_INTERVAL == 0:
            self._write_checkpoint(version)
        return True

    def _write(self, date: str, rows: pa.Table) -> HistoryFile:
        sink = io.BytesIO()
        pq.write_table(rows, sink, compression="zstd", row_group_size=ROW_GROUP_ROWS)
        data, path = sink.getvalue(), f"date={date}/{self._ids.new_id()}.parquet"
        self._objects.put_new(f"{HISTORY_DIRECTORY}/{path}", data)
        return HistoryFile(path, date, len(data), stats_of(rows))

    def _write_checkpoint(self, version: int) -> None:
        """Spare readers the commits up to this version. Another controller would write the same."""
        actions = folded(_actions(self._objects, version))
        data, path = encode_plain_checkpoint(actions), _COMMITS + checkpoint_file(version)
        self._objects.put(path, data)
        self._objects.sync([path])
        self._objects.put(_COMMITS + LAST_CHECKPOINT, encode_pointer(version, len(actions), len(data)))


def _actions(objects: ObjectStore, version_max: int | None = None) -> list[Action]:
    """The actions up to a version (None: the newest): those of the newest checkpoint, and of the commits above."""
    paths = [meta.path for meta in objects.list(_COMMITS)]
    actions: list[Action] = []
    covered = -1
    for version in checkpoint_versions(paths):
        path = _COMMITS + checkpoint_file(version)
        try:
            actions, covered = decode_history_checkpoint(objects.get(path), path), version
            break
        except CorruptMessageError as reason:
            _LOG.warning("%s", reason)  # the commits are all there
    for path in sorted(paths):
        version_of_path = commit_version(path)
        if version_of_path is None or version_of_path <= covered:
            continue
        if version_max is not None and version_of_path > version_max:
            break
        try:
            actions += decode_actions(objects.get(path), path)
        except CorruptMessageError as reason:
            _LOG.warning("%s", reason)  # its rows are in the metadata log still
            break
    return actions


def history_rows(objects: ObjectStore, topic: str, partition: int) -> Iterator[pa.Table]:
    """The rows of one partition as `HISTORY_SCHEMA`, a table for each data file that has some, newest file first."""
    for file in reversed(list(files_of(_actions(objects)))):
        if file.may_have(topic, partition):
            rows = _rows_of_file(objects, f"{HISTORY_DIRECTORY}/{file.path}", topic, partition)
            if rows.num_rows:
                yield rows


def all_history_rows(objects: ObjectStore) -> Iterator[pa.Table]:
    """All rows as `HISTORY_SCHEMA`, a table for each data file, oldest file first."""
    for file in files_of(_actions(objects)):
        with _opened(objects, f"{HISTORY_DIRECTORY}/{file.path}") as data:
            yield data.read(use_threads=False)


def _rows_of_file(objects: ObjectStore, path: str, topic: str, partition: int) -> pa.Table:
    """The rows are ordered by topic and partition, so most row groups are not read."""
    with _opened(objects, path) as file:
        at_topic, at_partition = map(HISTORY_SCHEMA.names.index, ("topic", "partition"))
        wanted = []
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            topics, partitions = group.column(at_topic).statistics, group.column(at_partition).statistics
            if _may_have(topics, topic) and _may_have(partitions, partition):
                wanted.append(number)
        rows = file.read_row_groups(wanted, use_threads=False)
    return rows.filter(pc.and_(pc.equal(rows["topic"], topic), pc.equal(rows["partition"], partition)))


def _opened(objects: ObjectStore, path: str) -> pq.ParquetFile:
    local = objects.file_path(path)
    return pq.ParquetFile(pa.BufferReader(objects.get(path)) if local is None else local)


def _may_have(statistics: pq.Statistics | None, value: str | int) -> bool:
    return statistics is None or not statistics.has_min_max or bool(statistics.min <= value <= statistics.max)


def metadata_rows(log: LogReader, end_offset: int) -> Iterator[tuple[int, int, MetadataRecord]]:
    """The metadata log's records up to an offset: `(offset, timestamp in ms, record)`."""
    for rows in log.read_range(log.log_start_offset, end_offset, READ_BYTES):
        values = zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
        records = [record_from_json(value_of_row(key, value)) for key, value in values]
        times = rows["timestamp"].cast(pa.int64()).to_pylist()
        yield from zip(rows["offset"].to_pylist(), (time or 0 for time in times), records, strict=True)
