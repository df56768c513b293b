"""A local disk in memory whose power can be cut: unsynced files are then lost, kept or torn, or old ones are back.

A file whose content was not synced may be gone, whole, a part of itself, or of the right size and full of zeros. A
file that was replaced or deleted may be as it was before, unless its directory was synced. A new file may be on blocks
of a deleted one, and have that one's content or its end, as on file systems where names are durable before content
(ext4 without a journal or with `data=writeback`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from stratalog.storage.objects.memory import MemoryStore


class PowerFailure(Exception):  # noqa: N818 - not an error of the product: it must not be caught
    """The machine stops."""


class ProcessKilled(Exception):  # noqa: N818
    """A process stops; the machine runs on."""


class PowerCutStore(MemoryStore):
    """`objects` are the files that processes read; `disk` has the content that survives for certain.

    calls_left  the changes or syncs until the power fails, before or after the last of them; None: never
    kill_at     the path at whose sync the process dies, before it is synced; "" = never
    """

    durable_on_answer = False

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.disk: dict[str, bytes] = {}
        self.calls_left: int | None = None
        self.kill_at = ""
        self._rng = rng
        self.named: set[str] = set()
        self._made_anew: set[str] = set()
        self._deleted: list[bytes] = []

    def put(self, path: str, data: bytes) -> None:
        self._made_anew.discard(path)
        self._change(lambda: super(PowerCutStore, self).put(path, data), path)

    def put_new(self, path: str, data: bytes | memoryview) -> None:
        super().put_new(path, data)
        self._made_anew.add(path)

    def create(self, path: str, data: bytes) -> bool:
        created = super().create(path, data)
        if created:
            self._made_anew.add(path)
        return created

    def delete(self, path: str) -> None:
        if path in self.objects:
            self._deleted.append(self.objects[path])
        self._change(lambda: super(PowerCutStore, self).delete(path), path)

    def sync(self, paths: Sequence[str]) -> None:
        if self.kill_at and any(path.endswith(self.kill_at) for path in paths):
            self.kill_at = ""
            raise ProcessKilled
        self._change(lambda: self._sync(paths), "")

    def sync_all(self) -> None:
        self._change(self._settle, "")

    def _settle(self) -> None:
        self.disk, self.named = dict(self.objects), set()

    def _sync(self, paths: Sequence[str]) -> None:
        for path in paths:
            if path in self.objects:
                self.disk[path] = self.objects[path]
        directories = {path.rpartition("/")[0] for path in paths} | set(paths)
        for path in self.objects.keys() | self.disk.keys():
            if path.rpartition("/")[0] in directories:
                if path not in self.objects:
                    del self.disk[path]
                elif self.disk.get(path) != self.objects[path]:
                    self.named.add(path)

    def _change(self, change: Callable[[], None], path: str) -> None:
        """One call, unless the power fails."""
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left <= 0:
                if self.calls_left == 0 and self._rng.random() < 0.5:
                    change()
                raise PowerFailure
        self.named.discard(path)
        change()

    def restart(self) -> None:
        """The power is back: decide which unsynced files the disk holds, and continue with these."""
        before, self.calls_left = self.objects, None
        self.objects = {}
        kept = self._rng.random()  # the part of the unsynced files that is whole all the same
        for path in sorted(before.keys() | self.disk.keys()):
            is_kept = self._rng.random() < kept
            found = before.get(path) if is_kept else self._rng.choice(self._outcomes(path, before.get(path)))
            if found is not None:
                self.objects[path] = found
        self._settle()

    def _outcomes(self, path: str, written: bytes | None) -> list[bytes | None]:
        old = self.disk.get(path)
        if written == old:
            return [old]
        if written is None:
            return [old, None]
        cut = self._rng.randrange(len(written)) if written else 0
        torn: list[bytes | None] = [b"", written[:cut], bytes(len(written))]
        if self._deleted and path in self._made_anew:
            over = self._rng.choice(self._deleted)
            torn += [over, over, written[:cut] + over[cut:]]
        return torn if path in self.named else [*torn, old]
