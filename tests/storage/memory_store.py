"""An object store in memory, for rules and simulation. I/O: none; it is the twin of the stores that do I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stratalog.storage.errors import ObjectNotFoundError
from stratalog.storage.objects.port import ObjectMeta, ObjectStore, WriteListener


class MemoryStore(ObjectStore):
    """A store in a dictionary path -> bytes, which several stores may share. `now_ms` dates what is written.

    reports_writes  whether all writers use this object, so that its listeners miss none
    """

    durable_on_answer = True

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
        self._reports_writes = reports_writes
        self._listeners: dict[WriteListener, None] = {}
        self.now_ms = now_ms

    def put(self, path: str, data: bytes) -> None:
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
        if path in self.objects:
            return False
        self.put(path, data)
        return True

    def get(self, path: str) -> bytes:
        if path not in self.objects:
            raise ObjectNotFoundError(f"{self.url}/{path} does not exist")
        return self.objects[path]

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self.get(path)[start : start + length]

    def get_optional(self, path: str) -> bytes | None:
        return self.objects.get(path)

    def size(self, path: str) -> int | None:
        return len(self.objects[path]) if path in self.objects else None

    def list(self, prefix: str) -> list[ObjectMeta]:
        found = sorted((path, data) for path, data in self.objects.copy().items() if path.startswith(prefix))
        return [ObjectMeta(path, len(data), self.modified_ms.get(path, 0)) for path, data in found]

    def directories(self) -> Sequence[str]:
        return sorted({path.split("/", 1)[0] for path in self.objects.copy() if "/" in path})

    def delete(self, path: str) -> None:
        self.objects.pop(path, None)
        self.modified_ms.pop(path, None)
