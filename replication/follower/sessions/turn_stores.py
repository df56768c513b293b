"""The stores of a fetch session: a call to another broker's root gives up the session's turn until it is answered.

I/O: through the stores that it wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from stratalog.replication.stores import DeltaStores, SessionTurn
from stratalog.replication.threads.turn_lock import TurnLock
from stratalog.storage.clock import Ids
from stratalog.storage.objects.port import ObjectMeta, ObjectStore, WriteListener, always

Item = TypeVar("Item")
T = TypeVar("T")


class TurnStores(DeltaStores):
    """`DeltaStores` whose calls to roots that are not `turn.home` are made without the turn."""

    def __init__(self, ids: Ids, turn: TurnLock, request_ms: int) -> None:
        super().__init__(ids, request_ms=request_ms)
        self._turn = turn

    def _open(self, root: str) -> ObjectStore:
        if root in self._turn.home:
            return super()._open(root)
        return ForeignStore(self._turn.away(super()._open, root), self._turn)


class UnlockedRegisters:
    """Registers of the own root that are written without the turn: `progress_object.Registers`."""

    def __init__(self, store: ObjectStore, turn: SessionTurn) -> None:
        self._store = store
        self._turn = turn

    def put_register(self, path: str, data: bytes) -> None:
        self._turn.away(self._store.put_register, path, data)


class ForeignStore(ObjectStore):
    """Another broker's root: each call is made without the turn."""

    def __init__(self, store: ObjectStore, turn: TurnLock) -> None:
        self.url = store.url
        self.durable_on_answer = store.durable_on_answer
        self.distance = store.distance
        self.is_of_this_process = store.is_of_this_process
        self._store = store
        self._away = turn.away

    def waiting_for(self, call: Callable[[], T]) -> T:
        return self._away(call)

    def put(self, path: str, data: bytes) -> None:
        self._away(self._store.put, path, data)

    def put_new(self, path: str, data: bytes | memoryview) -> None:
        self._away(self._store.put_new, path, data)

    def create(self, path: str, data: bytes) -> bool:
        return self._away(self._store.create, path, data)

    def replace(self, path: str, old: bytes, new: bytes) -> bool:
        return self._away(self._store.replace, path, old, new)

    def get(self, path: str) -> bytes:
        return self._away(self._store.get, path)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self._away(self._store.get_range, path, start, length)

    def get_optional(self, path: str) -> bytes | None:
        return self._away(self._store.get_optional, path)

    def size(self, path: str) -> int | None:
        return self._away(self._store.size, path)

    def exists(self, path: str) -> bool:
        return self._away(self._store.exists, path)

    def list(self, prefix: str) -> list[ObjectMeta]:
        return self._away(self._store.list, prefix)

    def directories(self) -> Sequence[str]:
        return self._away(self._store.directories)

    def delete(self, path: str) -> None:
        self._away(self._store.delete, path)

    def delete_all(self, paths: Sequence[str]) -> None:
        self._away(self._store.delete_all, paths)

    def delete_tree(self, path: str, tombstone_id: str, is_still: Callable[[], bool] = always, /) -> bool:
        return self._away(self._store.delete_tree, path, tombstone_id, is_still)

    def put_register(self, path: str, data: bytes) -> None:
        self._away(self._store.put_register, path, data)

    def get_register(self, path: str) -> bytes | None:
        return self._away(self._store.get_register, path)

    def sync(self, paths: Sequence[str]) -> None:
        self._away(self._store.sync, paths)

    def sync_all(self) -> None:
        self._away(self._store.sync_all)

    def each(self, call: Callable[[Item], T], items: Sequence[Item]) -> Sequence[T]:
        return self._away(self._store.each, call, items)

    def file_path(self, path: str) -> str | None:
        return self._store.file_path(path)

    def put_filled(self, directory: str, fill: Callable[[int], str]) -> bool:
        return self._away(self._store.put_filled, directory, fill)

    def copy_new(
        self, path: str, source: ObjectStore, source_path: str, tail_bytes: int, check: Callable[[bytes], bool]
    ) -> bool:
        return self._away(self._store.copy_new, path, source, source_path, tail_bytes, check)

    def free_share(self) -> float:
        return self._away(self._store.free_share)

    def copy_within(self, path: str, new_path: str) -> None:
        self._away(self._store.copy_within, path, new_path)

    def add_listener(self, listener: WriteListener) -> bool:
        return self._store.add_listener(listener)

    def remove_listener(self, listener: WriteListener) -> None:
        self._store.remove_listener(listener)
