"""The Delta table of the metadata's history: append the states of a range of offsets exactly once.

I/O: the metadata root. Each version is created if it is absent, on top of a version that was read: of two controllers
that append the same offsets one loses.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from stratalog.replication.metadata.history import (
    HISTORY_DIRECTORY,
    HistoryFile,
    encode_history_commit,
    end_offset_of,
)
from stratalog.storage.clock import Ids
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.objects.port import ObjectStore

_LOG = logging.getLogger("stratalog.controller")
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
        deleted, and its rows are appended again.
        """
        commits = [meta.path for meta in self._objects.list(_COMMITS) if meta.path.endswith(".json")]
        for path in reversed(commits):
            version = int(path.removeprefix(_COMMITS).removesuffix(".json"))
            try:
                return version, end_offset_of(self._objects.get(path), path)
            except CorruptMessageError as reason:
                _LOG.warning("removed a torn commit: %s", reason)
                self._objects.delete(path)
        return -1, 0

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
        return True

    def _write(self, date: str, rows: pa.Table) -> HistoryFile:
        sink = io.BytesIO()
        pq.write_table(rows, sink, compression="zstd", row_group_size=ROW_GROUP_ROWS)
        data, path = sink.getvalue(), f"date={date}/{self._ids.new_id()}.parquet"
        self._objects.put_new(f"{HISTORY_DIRECTORY}/{path}", data)
        return HistoryFile(path, date, len(data), rows.num_rows)
