"""Small objects that are about to be read one after the other, asked for several at a time where requests take long.

I/O: through an `ObjectStore`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from stratalog.storage.objects.port import ObjectStore

FIRST_COUNT, COUNT_MAX = 4, 32
"""Objects that are asked for at a time: more from one time to the next."""
AHEAD_BYTES_MAX = 8 << 20
"""Size of the objects that are asked for at a time, besides the first."""


class FilesAhead:
    """`take` them in their order, each once; some may be left out."""

    def __init__(self, store: ObjectStore, files: Iterable[tuple[str, int]]) -> None:
        """`files`: paths in the store and sizes in bytes."""
        self._store = store
        self._left = deque(files)
        self._paths = {path for path, _ in self._left}
        self._found: dict[str, bytes | None] = {}
        self._count = FIRST_COUNT

    def take(self, path: str) -> bytes | None:
        """An object's bytes; None when it is absent, or not among them: ask for it alone."""
        if path not in self._paths:
            return None
        self._paths.discard(path)
        if path not in self._found:
            while self._left and self._left[0][0] != path:
                self._left.popleft()
            paths = self._next_paths()
            self._found = dict(zip(paths, self._store.each(self._store.get_optional, paths), strict=True))
            self._count = min(2 * self._count, COUNT_MAX)
        return self._found.pop(path, None)

    def _next_paths(self) -> list[str]:
        paths: list[str] = []
        size_bytes = 0
        while self._left and len(paths) < self._count:
            size_bytes += self._left[0][1]
            if paths and size_bytes > AHEAD_BYTES_MAX:
                break
            paths.append(self._left.popleft()[0])
        return paths
