"""The `_delta_log` directory of one table: `commit_race.CommitLog` on an object store, and its checkpoints.

I/O: through the `ObjectStore` port.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stratalog.storage.delta.checkpoint import (
    LAST_CHECKPOINT,
    Metadata,
    action_count_of,
    checkpoint_file,
    checkpoint_versions,
    commit_file,
    commit_metadata,
    commit_version,
    decode_checkpoint,
    decode_metadata,
    encode_checkpoint,
    encode_pointer,
    pointed_version,
    stray_versions,
)
from stratalog.storage.delta.commit_json import decode_commit, encode_commit
from stratalog.storage.delta.commit_race import StoredCommit
from stratalog.storage.delta.table import TableSnapshot
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.objects.port import ObjectMeta, ObjectStore

_quoted = json.encoder.encode_basestring_ascii

AHEAD_MAX = 32
"""Versions that are asked for at a time, at most."""


class DeltaCommitLog:
    """Commits `<20 digits>.json` and checkpoints of the table at `directory` of a store."""

    def __init__(self, store: ObjectStore, directory: str) -> None:
        self._store = store
        self._log = f"{directory}/_delta_log"
        self.name = f"{store.url}/{directory}"
        self._pointer = -1, b""
        self._ahead: dict[int, bytes | None] | None = None
        self._next_ahead, self._ahead_count = -1, 1

    def path_of(self, version: int) -> str:
        """A commit's path in the store."""
        return f"{self._log}/{commit_file(version)}"

    def create_version(self, version: int, stored: StoredCommit) -> bool:
        return self._store.create(self.path_of(version), encode_commit(stored))

    @contextmanager
    def reading_ahead(self, expected: int = 1) -> Iterator[None]:
        """Within it, versions that are read one after the other are asked for several at a time, where requests take
        long: `expected` ones, and more from one time to the next. What was read ahead is forgotten at its end."""
        if not self._store.distance.is_far or self._ahead is not None:
            yield
            return
        self._ahead, self._next_ahead, self._ahead_count = {}, -1, min(expected, AHEAD_MAX)
        try:
            yield
        finally:
            self._ahead = None

    def _data_of(self, version: int) -> bytes | None:
        ahead = self._ahead
        if ahead is None:
            return self._store.get_optional(self.path_of(version))
        if version not in ahead:
            if version == self._next_ahead:
                self._ahead_count = min(2 * self._ahead_count, AHEAD_MAX)
            versions = range(version, version + self._ahead_count)
            found = self._store.each(self._store.get_optional, [self.path_of(each) for each in versions])
            ahead.clear()
            ahead.update(zip(versions, found, strict=True))
            self._next_ahead = versions.stop
        return ahead.pop(version)

    def read_version(self, version: int) -> StoredCommit | None:
        data = self._data_of(version)
        return None if data is None else decode_commit(data, f"{self.name} version {version}")

    def has_version(self, version: int, commit_id: str | None) -> bool:
        if commit_id is None:
            return self._store.exists(self.path_of(version))
        data = self._store.get_optional(self.path_of(version))
        return data is not None and f'"stratalogCommitId":{_quoted(commit_id)}'.encode() in data

    def delete_version(self, version: int, commit_id: str) -> None:
        with self._store.deletions(self._log) as delete:
            if self.has_version(version, commit_id):
                delete(commit_file(version))

    @contextmanager
    def deletions(self) -> Iterator[Callable[[int], None]]:
        """Deletes versions, with their checkpoints, of the table that is there now (`ObjectStore.deletions`)."""
        with self._store.deletions(self._log) as delete:

            def delete_both(version: int) -> None:
                delete(commit_file(version))
                delete(checkpoint_file(version))

            yield delete_both

    def replace_version(self, version: int, old: StoredCommit, new: StoredCommit) -> None:
        path = self.path_of(version)
        data = self._store.get_optional(path)
        if data is not None and decode_commit(data, path).commit.commit_id == old.commit.commit_id:
            self._store.replace(path, data, encode_commit(new))

    def raw_version(self, version: int) -> bytes | None:
        """What stands at a version, readable or not."""
        return self._store.get_optional(self.path_of(version))

    def put_in_place(self, version: int, found: object | None, new: StoredCommit) -> None:
        """Put a commit in the place of `found`, None for nothing; whatever else stands there by now is left."""
        path, data = self.path_of(version), encode_commit(new)
        if found is None:
            self._store.create(path, data)
        elif isinstance(found, bytes) and found != data:
            self._store.replace(path, found, data)

    def checkpoint_hint(self) -> int:
        return pointed_version(self._store.get_optional(f"{self._log}/{LAST_CHECKPOINT}"))

    def newest_checkpoint(self) -> int:
        return next(iter(self.checkpoints()), -1)

    def list_log(self) -> list[ObjectMeta]:
        """Everything in the log, ordered by path."""
        return self._store.list(f"{self._log}/")

    def own_version(self, version: int) -> StoredCommit | None:
        """The commit of a version; None when it is absent, foreign or unreadable."""
        try:
            stored = self.read_version(version)
        except CorruptMessageError:
            return None
        return None if stored is None or stored.commit.is_foreign else stored

    def has_checkpoint(self, version: int) -> bool:
        return self._store.exists(f"{self._log}/{checkpoint_file(version)}")

    def read_checkpoint(self, version: int) -> TableSnapshot | None:
        """A checkpoint; None when it is absent or unreadable (an older one or the commits then serve)."""
        if version < 0:
            return None
        data = self._store.get_optional(f"{self._log}/{checkpoint_file(version)}")
        if data is None:
            return None
        try:
            return decode_checkpoint(data, version, f"{self.name} checkpoint {version}")
        except CorruptMessageError:
            return None

    def metadata(self) -> tuple[Metadata, set[str]]:
        """The table's metadata, which every checkpoint repeats, and the files that the newest checkpoint names."""
        for version in self._newest_first():
            data = self._store.get_optional(f"{self._log}/{checkpoint_file(version)}")
            try:
                if data is not None:
                    return decode_metadata(data, f"{self.name} checkpoint {version}")
            except CorruptMessageError:
                continue
        return commit_metadata(self._store.get(self.path_of(0)), self.name), set()

    def _newest_first(self) -> Iterator[int]:
        """The versions of checkpoints: the one pointed at, then those found by listing."""
        if (pointed := self.checkpoint_hint()) >= 0:
            yield pointed
        elif self._store.exists(self.path_of(0)):
            return
        yield from self.checkpoints()

    def write_checkpoint(self, snapshot: TableSnapshot, metadata: Metadata) -> None:
        """Write and sync the checkpoint; `put_pointer` is next. What is pointed at outlives a power loss."""
        data, action_count = encode_checkpoint(snapshot, metadata)
        self._put_synced(checkpoint_file(snapshot.version), data)
        self._pointer = snapshot.version, encode_pointer(snapshot.version, action_count, len(data))

    def put_pointer(self, version: int) -> None:
        """Name this checkpoint as the newest one. ObjectNotFoundError when it is another handle's and gone."""
        known, content = self._pointer
        if known != version:
            data = self._store.get(f"{self._log}/{checkpoint_file(version)}")
            content = encode_pointer(version, action_count_of(data, f"{self.name} checkpoint {version}"), len(data))
        self._put_synced(LAST_CHECKPOINT, content)

    def _put_synced(self, name: str, content: bytes) -> None:
        self._store.put(f"{self._log}/{name}", content)
        self._store.sync([f"{self._log}/{name}"])

    def expired_versions(self, limit: int, keep_from_ms: int, crowded_below: int = 0) -> tuple[int, int]:
        """`[first, end)`: the versions below `limit` that were committed before `keep_from_ms`, or are below
        `crowded_below`.

        Clean-up is ascending, so the versions that still exist, and a time among them, are found by bisection instead
        of a long listing.
        """
        versions = range(max(limit, 0))
        first = bisect_left(versions, True, key=lambda version: self._store.exists(self.path_of(version)))
        young = max(first, crowded_below)
        return first, bisect_left(versions, True, lo=young, key=lambda version: self._is_kept(version, keep_from_ms))

    def settled_end(self, first: int, end: int, checkpoint: int, kept_ms: int) -> int:
        """Of the versions `[first, end)` the end of those that the store dates at least `kept_ms` before a checkpoint
        above them: both dates are of one clock, whoever wrote the objects."""
        written_ms = self._store.written_ms(f"{self._log}/{checkpoint_file(checkpoint)}")
        if written_ms is None:
            return first

        def is_young(version: int) -> bool:
            created_ms = self._store.written_ms(self.path_of(version))
            return created_ms is not None and created_ms > written_ms - kept_ms

        if first >= end or not is_young(end - 1):
            return end
        return bisect_left(range(end), True, lo=first, key=is_young)

    def strays(self, before_ms: int) -> list[int]:
        """The versions that `LogTable.delete_strays` deletes, by listing."""
        listed = self.list_log()
        newest = next(iter(checkpoint_versions(meta.path for meta in listed)), -1)
        dates = {v: meta.last_modified_ms for meta in listed if (v := commit_version(meta.path)) is not None}
        return [version for version in stray_versions(dates, newest) if dates[version] < before_ms]

    def _is_kept(self, version: int, keep_from_ms: int) -> bool:
        """Whether a version is too young to be deleted; one that is gone or unreadable is not."""
        try:
            stored = self.read_version(version)
        except CorruptMessageError:
            return False
        return stored is not None and stored.commit.timestamp_ms >= keep_from_ms

    def drop_checkpoints_except(self, kept: int) -> None:
        """Delete unreadable checkpoints: those newer than the one kept, and a pointer that names another."""
        if self.checkpoint_hint() not in (-1, kept):
            self._store.delete(f"{self._log}/{LAST_CHECKPOINT}")
        for version in self.checkpoints():
            if version > kept:
                self._store.delete(f"{self._log}/{checkpoint_file(version)}")

    def checkpoints(self) -> list[int]:
        """The versions of all checkpoints by listing, newest first."""
        return checkpoint_versions(meta.path for meta in self.list_log())
