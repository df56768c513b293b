"""Object stores in memory: `memory://<name>/...`, for the tests of applications and for our own.

I/O: none, but what `access` does. A store at a URL is this process's: another process finds none there, and nothing of
it outlives `forget_memory`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from stratalog.storage.clock import SystemClock
from stratalog.storage.errors import LogDirNotFoundError, ObjectNotFoundError
from stratalog.storage.objects.port import ObjectMeta, ObjectStore, WriteListener

SCHEME = "memory://"
_AT_URL: dict[str, MemoryStore] = {}
_LOCK = threading.Lock()


class MemoryStore(ObjectStore):
    """A store in a dictionary path -> bytes, which several stores may share. `now_ms` dates what is written.

    reports_writes  whether all writers use this object, so that its listeners miss none
    access          called before each call: it may sleep, as a slow store, or raise StoreUnavailableError
    """

    durable_on_answer = True
    is_of_this_process = True

    def __init__(
        self,
        objects: dict[str, bytes] | None = None,
        now_ms: Callable[[], int] = lambda: 0,
        name: str = "",
        *,
        reports_writes: bool = False,
    ) -> None:
        self.objects = {} if objects is None else objects
        self.modified_ms: dict[str, int] = {}
        self.url = f"memory:///{name}"
        self.access: Callable[[], None] = _at_once
        self._reports_writes = reports_writes
        self._listeners: dict[WriteListener, None] = {}
        self.now_ms = now_ms
        self._lock = threading.RLock()
        """Held by writes: of two creates one wins."""

    def put(self, path: str, data: bytes) -> None:
        self.access()
        with self._lock:
            is_new = path not in self.objects
            self.objects[path] = data
            self.modified_ms[path] = self.now_ms()
        self.report_write(path, is_new=is_new)

    def report_write(self, path: str, *, is_new: bool) -> None:
        """Call the listeners for a write of this object."""
        for listener in list(self._listeners):
            listener(path, is_new)

    def add_listener(self, listener: WriteListener) -> bool:
        if self._reports_writes:
            self._listeners[listener] = None
        return self._reports_writes

    def remove_listener(self, listener: WriteListener) -> None:
        self._listeners.pop(listener, None)

    def put_new(self, path: str, data: bytes | memoryview) -> None:
        self.put(path, bytes(data))

    def create(self, path: str, data: bytes) -> bool:
        with self._lock:
            if path in self.objects:
                self.access()
                return False
            self.put(path, data)
        return True

    def replace(self, path: str, old: bytes, new: bytes) -> bool:
        with self._lock:
            return super().replace(path, old, new)

    def copy_within(self, path: str, new_path: str) -> None:
        self.put(new_path, self.get(path))

    def get(self, path: str) -> bytes:
        self.access()
        found = self.objects.get(path)
        if found is None:
            raise ObjectNotFoundError(f"{self.url}/{path} does not exist")
        return found

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self.get(path)[start : start + length]

    def get_optional(self, path: str) -> bytes | None:
        self.access()
        return self.objects.get(path)

    def size(self, path: str) -> int | None:
        self.access()
        found = self.objects.get(path)
        return None if found is None else len(found)

    def list(self, prefix: str) -> list[ObjectMeta]:
        self.access()
        found = sorted((path, data) for path, data in self.objects.copy().items() if path.startswith(prefix))
        return [ObjectMeta(path, len(data), self.modified_ms.get(path, 0)) for path, data in found]

    def directories(self) -> Sequence[str]:
        self.access()
        return sorted({path.split("/", 1)[0] for path in self.objects.copy() if "/" in path})

    def delete(self, path: str) -> None:
        self.access()
        with self._lock:
            self.objects.pop(path, None)
            self.modified_ms.pop(path, None)


def _at_once() -> None:
    """The access of a store that is neither slow nor away."""


def memory_store(url: str, *, create: bool = False) -> MemoryStore:
    """The store of this process at `memory://<name>/...`, one object for all that open it.

    LogDirNotFoundError when it has not been made, or has been forgotten.
    """
    place = url.rstrip("/")
    with _LOCK:
        if place not in _AT_URL:
            if not create:
                raise LogDirNotFoundError(
                    f"{place} is not in this process. A store in memory is found by the process that made it alone, "
                    "until it is forgotten."
                )
            made = MemoryStore({}, SystemClock().wall_ms, reports_writes=True)
            made.url = place
            _AT_URL[place] = made
        return _AT_URL[place]


def forget_memory(url: str) -> None:
    """Forget the stores at and below a URL; none is fine."""
    place = url.rstrip("/")
    with _LOCK:
        for each in [each for each in _AT_URL if each == place or each.startswith(f"{place}/")]:
            del _AT_URL[each]
