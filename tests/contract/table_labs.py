"""The tables under contract, each in a lab that injects faults between storage calls, tears commits and loses files.

I/O: a directory or object store that the test gives.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import obstore.store

from stratalog.storage.clock import RandomIds
from stratalog.storage.delta.checkpoint import LAST_CHECKPOINT, checkpoint_file, encode_pointer, pointed_version
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.delta.table import Commit, Committed
from stratalog.storage.files.data_file import DataFile
from stratalog.storage.objects.local import LocalStore
from stratalog.storage.objects.remote import ObstoreStore
from tests.storage.memory_table import MemoryDisk, MemoryLogTable

TABLE = "access-log-0"
POINTER = LAST_CHECKPOINT
LATER_MS = 1 << 60
Fault = Callable[[], None]
Table = MemoryLogTable | DeltaLogTable


class Lab(Protocol):
    """One disk with one table. `on` runs a fault once, at a low-level call (`create`, `create:done`) of a version;
    `on_put` before an object of its log is put (`checkpoint_file(5)`, `POINTER`).

    repeat      what sends the request again that created the version as it stands
    misplace    the content of a version, perhaps of another table, stands at another version
    point_back  runs `to`, which writes a checkpoint, and returns what restores that checkpoint and its pointer
    point_at    the pointer names this checkpoint, of a table that stood here before
    """

    def open(self, name: str = TABLE) -> DeltaLogTable | MemoryLogTable: ...
    def on(self, operation: str, version: int, fault: Fault) -> None: ...
    def has_commit(self, version: int) -> bool: ...
    def repeat(self, version: int) -> Fault: ...
    def tear(self, version: int) -> None: ...
    def lose(self, version: int) -> None: ...
    def misplace(self, version: int, to: int, of: str = TABLE) -> None: ...
    def on_put(self, name: str, fault: Fault) -> None: ...
    def point_back(self, to: Callable[[], object]) -> Callable[[], None]: ...
    def point_at(self, version: int) -> None: ...
    def lose_file(self, file: DataFile) -> None: ...


class MemoryLab:
    def __init__(self) -> None:
        self.disk = MemoryDisk()

    def open(self, name: str = TABLE) -> MemoryLogTable:
        return MemoryLogTable(self.disk, name, RandomIds())

    def on(self, operation: str, version: int, fault: Fault) -> None:
        self.disk.access = _once(operation, f"_delta_log/{version}", fault)

    def has_commit(self, version: int) -> bool:
        return version in self.disk.files_of(TABLE).commits

    def lose(self, version: int) -> None:
        self.disk.files_of(TABLE).commits.pop(version, None)

    def repeat(self, version: int) -> Fault:
        stored = self.disk.files_of(TABLE).commits[version]

        def send() -> None:
            self.disk.files_of(TABLE).commits.setdefault(version, stored)

        return send

    def tear(self, version: int) -> None:
        self.disk.files_of(TABLE).commits[version] = None

    def misplace(self, version: int, to: int, of: str = TABLE) -> None:
        self.disk.files_of(TABLE).commits[to] = self.disk.files_of(of).commits[version]

    def on_put(self, name: str, fault: Fault) -> None:
        self.disk.access = _once("put", f"_delta_log/{name}", fault)

    def point_back(self, to: Callable[[], object]) -> Callable[[], None]:
        to()
        files = self.disk.files_of(TABLE)
        checkpoint = files.checkpoints[files.pointer]

        def restore() -> None:
            files.checkpoints[checkpoint.version] = checkpoint
            files.pointer = checkpoint.version

        return restore

    def point_at(self, version: int) -> None:
        self.disk.files_of(TABLE).pointer = version

    def lose_file(self, file: DataFile) -> None:
        del self.disk.files_of(TABLE).data_files[file.path]


class Hooks:
    """A store whose calls pass `access(operation, table, path)` before and after, as a MemoryDisk's do."""

    access: Callable[[str, str, str], None] = staticmethod(lambda operation, table, detail: None)

    def create(self, path: str, data: bytes) -> bool:
        self.access("create", "", path)
        created: bool = super().create(path, data)  # type: ignore[misc] - of the store that this is mixed into
        self.access("create:done", "", path)
        return created

    def put(self, path: str, data: bytes) -> None:
        self.access("put", "", path)
        super().put(path, data)  # type: ignore[misc]

    def replace(self, path: str, old: bytes, new: bytes) -> bool:
        self.access("replace", "", path)
        replaced: bool = super().replace(path, old, new)  # type: ignore[misc]
        return replaced

    def get_optional(self, path: str) -> bytes | None:
        self.access("get", "", path)
        found: bytes | None = super().get_optional(path)  # type: ignore[misc]
        return found


class HookedLocalStore(Hooks, LocalStore):
    """A local disk with hooks."""


class HookedRemoteStore(Hooks, ObstoreStore):
    """A store behind obstore with hooks."""


class StoreLab:
    """A Delta table on any store."""

    def __init__(self, store: HookedLocalStore | HookedRemoteStore, kept_ms: int = 0) -> None:
        """`kept_ms`: of the table's commits; 0, so that clean-up passes those that a test has just made."""
        self.store = store
        self.kept_ms = kept_ms

    @staticmethod
    def remote(url: str) -> StoreLab:
        """A lab on an object store that `open_store` finds."""
        return StoreLab(HookedRemoteStore(obstore.store.from_url(url), url))

    def open(self, name: str = TABLE) -> DeltaLogTable:
        return DeltaLogTable(self.store, name, RandomIds(), kept_ms=self.kept_ms)

    def on(self, operation: str, version: int, fault: Fault) -> None:
        self.store.access = _once(operation, _commit(version), fault)

    def has_commit(self, version: int) -> bool:
        return self.store.exists(_commit(version))

    def lose(self, version: int) -> None:
        self.store.delete(_commit(version))

    def repeat(self, version: int) -> Fault:
        content = self.store.get(_commit(version))

        def send() -> None:
            self.store.create(_commit(version), content)

        return send

    def tear(self, version: int) -> None:
        whole = self.store.get(_commit(version))
        self.store.put(_commit(version), whole[: len(whole) // 2])

    def misplace(self, version: int, to: int, of: str = TABLE) -> None:
        self.store.put(_commit(to), self.store.get(_commit(version, of)))

    def on_put(self, name: str, fault: Fault) -> None:
        self.store.access = _once("put", f"{TABLE}/_delta_log/{name}", fault)

    def point_back(self, to: Callable[[], object]) -> Callable[[], None]:
        to()
        pointer = self.store.get(f"{TABLE}/_delta_log/{POINTER}")
        checkpoint = f"{TABLE}/_delta_log/{checkpoint_file(pointed_version(pointer))}"
        content = self.store.get(checkpoint)

        def restore() -> None:
            self.store.put(checkpoint, content)
            self.store.put(f"{TABLE}/_delta_log/{POINTER}", pointer)

        return restore

    def point_at(self, version: int) -> None:
        self.store.put(f"{TABLE}/_delta_log/{POINTER}", encode_pointer(version, 1, 1))

    def lose_file(self, file: DataFile) -> None:
        path = f"{TABLE}/{file.path}"
        self.store.put(path, self.store.get(path)[:-1])

    def commit_foreign(self, version: int) -> None:
        info = {"commitInfo": {"timestamp": 1, "operation": "DELETE", "engineInfo": "Apache-Spark/4.2.0"}}
        self.store.put(_commit(version), json.dumps(info).encode())


class DeltaLab(StoreLab):
    """A Delta table below a directory."""

    def __init__(self, root: Path) -> None:
        super().__init__(HookedLocalStore(str(root)))
        self.root = root


def _commit(version: int, table: str = TABLE) -> str:
    return f"{table}/_delta_log/{version:020}.json"


def _once(operation: str, detail: str, fault: Fault) -> Callable[[str, str, str], None]:
    pending = [fault]

    def access(called: str, table: str, called_detail: str) -> None:
        if pending and called == operation and called_detail == detail:
            pending.pop()()

    return access


def empty(commit_id: str) -> Commit:
    return Commit(commit_id, "START EPOCH", 2_000)


def grow(table: Table, last: int, first: int = 1) -> None:
    for version in range(first, last + 1):
        assert table.commit(version, empty(f"c{version}")) == Committed(version)


def clean_up_to(table: Table, version: int) -> None:
    table.checkpoint()
    list(table.clean_log(version, LATER_MS))


def make_anew(table: Table, last: int) -> None:
    """Drop it, and make another one in its place, with commits `d0` to `d<last>`."""
    table.drop()
    assert table.create({"stratalog.topic-id": "t1"}, 1, "d0")
    for version in range(1, last + 1):
        assert table.commit(version, empty(f"d{version}")) == Committed(version)
