"""A Delta table of rows by day, to which several processes append. I/O: an object store.

A version is created if it is absent, on top of those that
were read: whoever loses the race reads the winner's and tries again. Appends never conflict; a merge of a day's files
or the end of an old day states what it removes, and is dropped when somebody else has removed some of it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from stratalog.storage.clock import Ids
from stratalog.storage.delta.checkpoint import (
    LAST_CHECKPOINT,
    checkpoint_file,
    checkpoint_versions,
    commit_file,
    commit_version,
    encode_pointer,
)
from stratalog.storage.delta.plain_log import (
    DATE,
    Action,
    add_action,
    date_of,
    decode_lines,
    decode_plain_checkpoint,
    encode_actions,
    encode_plain_checkpoint,
    first_actions,
    remove_action,
)
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.objects.port import ObjectStore

CHECKPOINT_INTERVAL = 20
"""Number of versions from one checkpoint to the next."""
VERSIONS_KEPT = 200
"""Versions behind the newest checkpoint whose commits stay, for readers of older ones."""
REMOVED_KEPT_MS = 3_600_000
"""Time for which a file stays that is not in the table any more: a query may read it."""
TRIES = 50


class DayFile(NamedTuple):
    """A data file that is in the table: its path, day, and `add` action."""

    path: str
    date: str
    add: Action


@dataclass(frozen=True, slots=True)
class TableShape:
    """`directory` is below the store's root; `schema` has no partition column."""

    directory: str
    schema: pa.Schema


class DatedTable:
    """The table as of the versions that were read. One thread uses it; StoreError passes."""

    def __init__(self, objects: ObjectStore, shape: TableShape, ids: Ids) -> None:
        self._objects = objects
        self._shape = shape
        self._ids = ids
        self.version = -1
        self._first_actions: list[Action] = []
        """Protocol and metadata, as the first version states them."""
        self._files: dict[str, DayFile] = {}
        self._removed: dict[str, int] = {}
        """Path -> when it left the table, of files that may be there still."""

    @property
    def files(self) -> Sequence[DayFile]:
        """The data files of the table."""
        return list(self._files.values())

    # -- reading ------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read the versions that came since the last call."""
        if self.version < 0:
            self._load()
        while (data := self._objects.get_optional(self._log(commit_file(self.version + 1)))) is not None:
            self._fold(decode_lines(data))
            self.version += 1

    def _load(self) -> None:
        paths = [meta.path for meta in self._objects.list(self._log(""))]
        for version in checkpoint_versions(paths)[:1]:
            self._fold(decode_plain_checkpoint(self._objects.get(self._log(checkpoint_file(version)))))
            self.version = version

    def _fold(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if add := action.get("add"):
                self._files[add["path"]] = DayFile(add["path"], date_of(add), action)
                self._removed.pop(add["path"], None)
            elif remove := action.get("remove"):
                self._files.pop(remove["path"], None)
                self._removed[remove["path"]] = remove["deletionTimestamp"]
            elif "protocol" in action or "metaData" in action:
                self._first_actions.append(action)

    def _log(self, name: str) -> str:
        return f"{self._shape.directory}/_delta_log/{name}"

    # -- changes ------------------------------------------------------------------------------------------

    def append(self, rows_by_date: Mapping[str, pa.Table], now_ms: int) -> None:
        """Append rows; `now_ms` is wall time."""
        adds = [self._write(date, rows, now_ms, data_change=True) for date, rows in rows_by_date.items()]
        self._commit("WRITE", now_ms, lambda: adds)

    def merge_day(self, date: str, now_ms: int) -> bool:
        """Make one file of a day's files. False when there is one at most, or another process was faster."""
        of_day = [each for each in self.files if each.date == date]
        if len(of_day) < 2:
            return False
        tables = [pq.read_table(pa.BufferReader(self._objects.get(self._path(each.path)))) for each in of_day]
        merged = self._write(date, pa.concat_tables(tables), now_ms, data_change=False)
        if self._replace("OPTIMIZE", of_day, [merged], now_ms, data_change=False):
            return True
        self._objects.delete(self._path(merged["add"]["path"]))
        return False

    def drop_before(self, date: str, now_ms: int) -> bool:
        """Remove the days before this one. False when there are none, or another process was faster."""
        old = [each for each in self.files if each.date < date]
        return bool(old) and self._replace("DELETE", old, [], now_ms, data_change=True)

    def sweep(self, now_ms: int) -> None:
        """Delete files that have left the table long enough ago, and commits that nobody needs."""
        for path, removed_ms in list(self._removed.items()):
            if now_ms - removed_ms >= REMOVED_KEPT_MS:
                self._objects.delete(self._path(path))
                del self._removed[path]
        paths = [meta.path for meta in self._objects.list(self._log(""))]
        newest = next(iter(checkpoint_versions(paths)), -1)
        old = [path for path in paths if _version_of(path) < newest - VERSIONS_KEPT]
        self._objects.delete_all(old)

    def _path(self, path: str) -> str:
        return f"{self._shape.directory}/{path}"

    def _write(self, date: str, rows: pa.Table, now_ms: int, *, data_change: bool) -> Action:
        sink = io.BytesIO()
        pq.write_table(rows, sink, compression="zstd")
        data, path = sink.getvalue(), f"{DATE}={date}/{self._ids.new_id()}.parquet"
        self._objects.put_new(self._path(path), data)
        stats = json.dumps({"numRecords": rows.num_rows})
        return add_action(path, date, len(data), now_ms, stats, data_change=data_change)

    def _replace(
        self, operation: str, old: Sequence[DayFile], adds: Sequence[Action], now_ms: int, *, data_change: bool
    ) -> bool:
        removes = [remove_action(each.path, now_ms, data_change=data_change) for each in old]

        def actions() -> Sequence[Action] | None:
            return [*adds, *removes] if all(each.path in self._files for each in old) else None

        return self._commit(operation, now_ms, actions)

    def _commit(self, operation: str, now_ms: int, actions: Callable[[], Sequence[Action] | None]) -> bool:
        """Create the next version; `actions` returns None when the table is not what they were decided on any more."""
        for _ in range(TRIES):
            self.refresh()
            decided = actions()
            if decided is None:
                return False
            first = first_actions(self._ids.new_id(), now_ms, self._shape.schema, {}) if self.version < 0 else []
            lines = [*first, *decided]
            if self._objects.create(self._log(commit_file(self.version + 1)), encode_actions(operation, now_ms, lines)):
                self._fold(lines)
                self.version += 1
                if self.version and self.version % CHECKPOINT_INTERVAL == 0:
                    self._write_checkpoint()
                return True
        raise StoreUnavailableError(f"{self._shape.directory}: lost the race for a commit {TRIES} times")

    def _write_checkpoint(self) -> None:
        """Spare readers the commits up to this version. Another process would write the same."""
        removes = [remove_action(path, at_ms, data_change=True) for path, at_ms in self._removed.items()]
        actions = [*self._first_actions, *(each.add for each in self.files), *removes]
        data = encode_plain_checkpoint(actions)
        self._objects.put(self._log(checkpoint_file(self.version)), data)
        self._objects.put(self._log(LAST_CHECKPOINT), encode_pointer(self.version, len(actions), len(data)))


def _version_of(path: str) -> int:
    """The version of a commit or a checkpoint; that of other files is beyond all."""
    commit = commit_version(path)
    return commit if commit is not None else next(iter(checkpoint_versions([path])), 1 << 62)
