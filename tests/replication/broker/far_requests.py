"""Far stores in memory that write down who waits for whom: the requests of a broker, one after the other or together.

I/O: none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, TypeVar

from stratalog.replication.stores import DeltaStores
from stratalog.storage.clock import Ids
from stratalog.storage.files.cache import FileCache
from stratalog.storage.objects.distance import FAR
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.objects.port import ObjectMeta, ObjectStore

T = TypeVar("T")
Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Requests:
    """`waited`: the requests for which a loop has waited, in order. Those that are made together are one step, joined
    by ` | `: of calls that are made together the caller waits for the longest."""

    distance = FAR

    def __init__(self) -> None:
        self.waited: list[str] = []

    def made(self, request: str) -> None:
        """A request is made by the present thread."""
        self.waited.append(request)

    @contextmanager
    def branch(self) -> Iterator[list[str]]:
        """What another thread does: its requests, which nobody waits for yet."""
        before, self.waited = self.waited, []
        try:
            yield self.waited
        finally:
            self.waited = before

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """As `replication.stores.Together.run`."""
        if len(calls) == 1:
            return [calls[0]()]
        made: list[T] = []
        branches: list[list[str]] = []
        for call in calls:
            with self.branch() as branch:
                made.append(call())
            branches.append(branch)
        for number in range(max(map(len, branches), default=0)):
            self.made(" | ".join(sorted(branch[number] for branch in branches if number < len(branch))))
        return made


class AtOnce(Executor):
    """Threads that are never waited for: each piece of work is done when it is submitted."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(work(*args, **kwargs))
        return future


class RequestedStore(MemoryStore):
    """A far store of one root, whose requests are written down as `put broker-1/t-0/…`."""

    distance = FAR

    def __init__(self, root: str, now_ms: Callable[[], int], requests: Requests) -> None:
        super().__init__({}, now_ms, root)
        self._root = root
        self._requests = requests

    def _made(self, kind: str, path: str) -> None:
        self._requests.made(f"{kind} {self._root}/{path}")

    def put(self, path: str, data: bytes) -> None:
        self._made("put", path)
        super().put(path, data)

    def create(self, path: str, data: bytes) -> bool:
        self._made("create", path)
        with self._lock:
            if path in self.objects:
                return False
            super().put(path, data)
        return True

    def get(self, path: str) -> bytes:
        self._made("get", path)
        return super().get(path)

    def get_optional(self, path: str) -> bytes | None:
        self._made("get", path)
        return super().get_optional(path)

    def size(self, path: str) -> int | None:
        self._made("head", path)
        return super().size(path)

    def list(self, prefix: str) -> list[ObjectMeta]:
        self._made("list", prefix)
        return super().list(prefix)

    def delete(self, path: str) -> None:
        self._made("delete", path)
        super().delete(path)

    def each(self, call: Callable[[Item], Answer], items: Sequence[Item]) -> Sequence[Answer]:
        return self._requests.run([lambda item=item: call(item) for item in items])  # type: ignore[misc]


class RequestedStores(DeltaStores):
    """Delta tables on such stores."""

    def __init__(self, ids: Ids, now_ms: Callable[[], int]) -> None:
        super().__init__(ids, FileCache(1 << 20))
        self.requests = Requests()
        self._now_ms = now_ms

    def _open(self, root: str) -> ObjectStore:
        return RequestedStore(root, self._now_ms, self.requests)
