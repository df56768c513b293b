"""The two tables under contract, each in a laboratory: faults between storage calls, torn commits, lost files.

I/O: a directory that the test gives.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from storage.clock import RandomIds
from storage.delta_table import DeltaLogTable
from storage.local_store import LocalStore
from storage.memory_table import MemoryDisk, MemoryLogTable
from storage.table import DataFile

TABLE = "access-log-0"
Fault = Callable[[], None]


class Lab(Protocol):
    """One disk with one table. `on` runs a fault once, at a low-level call (`create`, `create:done` …) on a version."""

    def open(self, name: str = TABLE) -> DeltaLogTable | MemoryLogTable: ...
    def on(self, operation: str, version: int, fault: Fault) -> None: ...
    def has_commit(self, version: int) -> bool: ...
    def tear(self, version: int) -> None: ...
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

    def tear(self, version: int) -> None:
        self.disk.files_of(TABLE).commits[version] = None

    def lose_file(self, file: DataFile) -> None:
        del self.disk.files_of(TABLE).data_files[file.path]


class HookedStore(LocalStore):
    """A local disk whose calls pass `access(operation, table, path)` before and after, as a MemoryDisk's do."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.access: Callable[[str, str, str], None] = lambda operation, table, detail: None

    def create(self, path: str, data: bytes) -> bool:
        self.access("create", "", path)
        created = super().create(path, data)
        self.access("create:done", "", path)
        return created

    def get_optional(self, path: str) -> bytes | None:
        self.access("get", "", path)
        return super().get_optional(path)


class DeltaLab:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = HookedStore(str(root))

    def open(self, name: str = TABLE) -> DeltaLogTable:
        return DeltaLogTable(self.store, name, RandomIds())

    def on(self, operation: str, version: int, fault: Fault) -> None:
        self.store.access = _once(operation, f"{TABLE}/_delta_log/{version:020}.json", fault)

    def commit_path(self, version: int) -> Path:
        return self.root / TABLE / "_delta_log" / f"{version:020}.json"

    def has_commit(self, version: int) -> bool:
        return self.commit_path(version).exists()

    def tear(self, version: int) -> None:
        whole = self.commit_path(version).read_bytes()
        self.commit_path(version).write_bytes(whole[: len(whole) // 2])

    def lose_file(self, file: DataFile) -> None:
        os.truncate(self.root / TABLE / file.path, file.size_bytes - 1)

    def commit_foreign(self, version: int) -> None:
        info = {"commitInfo": {"timestamp": 1, "operation": "DELETE", "engineInfo": "Apache-Spark/4.2.0"}}
        self.commit_path(version).write_text(json.dumps(info))


def _once(operation: str, detail: str, fault: Fault) -> Callable[[str, str, str], None]:
    pending = [fault]

    def access(called: str, table: str, called_detail: str) -> None:
        if pending and called == operation and called_detail == detail:
            pending.pop()()

    return access
