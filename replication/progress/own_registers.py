"""Progress objects that brokers of this process wrote, kept for those who read them here.

I/O: through the stores that it wraps. A registration is the only writer of its objects, whose paths have its broker
epoch: what it wrote last is what storage has, and a reader in its process need not ask for it.
"""

from __future__ import annotations

from stratalog.replication.progress.led_here import LedHere
from stratalog.replication.progress.progress_object import ReadableRegisters, Registers


class OwnRegisters:
    """By the roots of this process's brokers. Any thread may use it.

    led_here  what they lead in storage domains, of which they publish nothing at once
    """

    def __init__(self) -> None:
        self.led_here = LedHere()
        self._kept: dict[str, dict[str, bytes]] = {}

    def begin(self, root: str, store: Registers) -> Registers:
        """What the broker at this root writes with under a new registration: what was written is kept. What it wrote
        under an earlier one is forgotten."""
        kept = self._kept[root] = {}
        return _Keeping(store, kept)

    def readable(self, root: str, store: ReadableRegisters) -> ReadableRegisters:
        """What a reader of this root's objects reads with: those that are kept, and all others from storage."""
        return _KeptOrStored(self, root, store)

    def get(self, root: str, path: str) -> bytes | None:
        """What storage has of the object; None where only storage knows."""
        return self._kept.get(root, {}).get(path)


class _Keeping:
    """Writes objects, and keeps what was written without an error. During a write, and after one that failed, readers
    ask storage: they are woken by the write itself, and it alone knows its outcome."""

    def __init__(self, store: Registers, kept: dict[str, bytes]) -> None:
        self._store = store
        self._kept = kept

    def put_register(self, path: str, data: bytes) -> None:
        self._kept.pop(path, None)
        self._store.put_register(path, data)
        self._kept[path] = data


class _KeptOrStored:
    def __init__(self, own: OwnRegisters, root: str, store: ReadableRegisters) -> None:
        self.url = store.url
        self._own = own
        self._root = root
        self._store = store

    def get_register(self, path: str) -> bytes | None:
        kept = self._own.get(self._root, path)
        return self._store.get_register(path) if kept is None else kept
