"""What a listing tells of an object. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class ObjectMeta(NamedTuple):
    """`path` is relative to the store's root; `last_modified_ms` is the store's own time."""

    path: str
    size_bytes: int
    last_modified_ms: int


class ObjectStore(Protocol):
    """One storage domain. Every call may raise StoreUnavailableError (a write may have been applied)."""

    @property
    def url(self) -> str:
        """Of the root, without a slash at its end: `file:///x/y`, `s3://bucket/prefix`."""
        ...

    @property
    def durable_on_answer(self) -> bool:
        """Whether what `put` and `create` answered survives a power loss without `sync`."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write an object, atomically replacing one that exists."""
        ...

    def put_new(self, path: str, data: bytes | memoryview) -> None:
        """Write an object under a name of its own, which nobody reads before this call has answered: a reader
        may see a part of it, and a crash may leave one. Cheaper than `put` on a local disk."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Write an object if there is none, atomically; False when there is one."""
        ...

    def get(self, path: str) -> bytes:
        """An object's bytes. ObjectNotFoundError when absent."""
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """`length` bytes (at least one) of an object from `start` on, fewer at its end. ObjectNotFoundError."""
        ...

    def get_optional(self, path: str) -> bytes | None:
        """An object's bytes, None when absent: the cheap probe of polling loops."""
        ...

    def put_register(self, path: str, data: bytes) -> None:
        """Write a small object that one writer replaces often, as cheaply as the store can. A reader finds one
        whole value at any time. Only `get_register` reads it; to `list`, `exists` and `delete` it is an object,
        whose size means nothing."""
        ...

    def get_register(self, path: str) -> bytes | None:
        """The value of a register, None when absent. An object that `put` wrote is its own value."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int | None:
        """An object's size in bytes, None when absent."""
        ...

    def list(self, prefix: str) -> list[ObjectMeta]:
        """All objects whose path starts with `prefix`, at any depth, ordered by path."""
        ...

    def directories(self) -> Sequence[str]:
        """The names directly below the root that have objects below them, in order."""
        ...

    def delete(self, path: str) -> None:
        """Delete an object; absent is fine."""
        ...

    def delete_tree(self, path: str, tombstone_id: str, /) -> None:
        """Delete everything below a directory. A local disk renames it `<path>.<tombstone_id>-delete` first."""
        ...

    def sync(self, paths: Sequence[str]) -> None:
        """Make objects (or directories) durable, with the directories that lead to them; absent ones are fine.

        Raises KafkaStorageError when the disk lost something; the same from then on.
        """
        ...

    def sync_all(self) -> None:
        """Make everything below the root durable, whoever wrote it. Raises as `sync`."""
        ...
