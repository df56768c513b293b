"""The port of an object store: what each store can do, and what only some can. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeVar

from stratalog.storage.objects.distance import NEAR, Distance

Answer = TypeVar("Answer")
Item = TypeVar("Item")

WriteListener = Callable[[str, bool], None]
"""Receives the path of an object that was written, and whether there was none before."""


def always() -> bool:
    """The condition of a deletion that asks nothing."""
    return True


class ObjectMeta(NamedTuple):
    """`path` is relative to the store's root; `last_modified_ms` is the store's own time."""

    path: str
    size_bytes: int
    last_modified_ms: int


class ObjectStore(Protocol):
    """One place on storage. Every call may raise StoreUnavailableError (a write may have been applied).

    Stores inherit from it: a method with a body here stands for an ability that they lack, and returns False or None.

    url                of the root, without a slash at its end: `file:///x/y`, `s3://bucket/prefix`
    durable_on_answer  whether an object survives a power loss without `sync` once `put` or `create` has returned
    distance           how far it is: whether each call is a request to a service
    is_of_this_process whether no other process finds its objects
    """

    url: str
    durable_on_answer: bool
    distance: Distance = NEAR
    is_of_this_process: bool = False

    def put(self, path: str, data: bytes) -> None:
        """Write an object, atomically replacing one that exists."""

    def put_new(self, path: str, data: bytes | memoryview) -> None:
        """Write an object under a name of its own, which nobody reads before this call has returned: a reader
        may see a part of it, and a crash may leave one. Cheaper than `put` on a local disk."""

    def create(self, path: str, data: bytes) -> bool:
        """Write an object if there is none, atomically; False when there is one."""

    def get(self, path: str) -> bytes:
        """An object's bytes. ObjectNotFoundError when absent."""

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """`length` bytes (at least one) of an object from `start` on, fewer at its end. ObjectNotFoundError."""

    def get_optional(self, path: str) -> bytes | None:
        """An object's bytes, None when absent: the cheap probe of polling loops."""

    def size(self, path: str) -> int | None:
        """An object's size in bytes, None when absent."""

    def written_ms(self, path: str) -> int | None:
        """When an object was written last, by the store's own clock, to the second at least; None when absent."""
        found = (meta.last_modified_ms for meta in self.list(path) if meta.path == path)
        return next(found, None)

    def exists(self, path: str) -> bool:
        return self.size(path) is not None

    def list(self, prefix: str) -> list[ObjectMeta]:
        """All objects whose path starts with `prefix`, at any depth, ordered by path."""

    def directories(self) -> Sequence[str]:
        """The names directly below the root that have objects below them, in order."""

    def replace(self, path: str, old: bytes, new: bytes) -> bool:
        """Write an object in place of one that holds `old`; False when it holds something else by now, or is absent.

        A store whose requests may arrive after their client has given them up compares itself. On a local disk a call
        has ended when it returns: there the caller compares, and only writers that replace the same bytes may meet.
        """
        if self.get_optional(path) != old:
            return False
        self.put(path, new)
        return True

    def delete(self, path: str) -> None:
        """Delete an object; absent is fine."""

    @contextmanager
    def deletions(self, directory: str) -> Iterator[Callable[[str], None]]:
        """Deletes objects by name from the directory that is there now. Where the store can tell it from one that is
        made in its place meanwhile (a local disk), nothing is deleted from that one."""
        yield lambda name: self.delete(f"{directory}/{name}")

    def delete_all(self, paths: Sequence[str]) -> None:
        """Delete objects, by few requests where the store can; absent ones are fine. After an error some may be
        left."""
        for path in paths:
            self.delete(path)

    def delete_tree(self, path: str, tombstone_id: str, is_still: Callable[[], bool] = always, /) -> bool:
        """Delete everything below a directory, if `is_still` answers so of what stands there: it reads the directory
        once the deletion has begun. True when it was deleted, or there was nothing.

        A local disk renames it `<path>.<tombstone_id>-delete` first, and leaves one that was made in its place during
        the call. Another store deletes what it listed before the question.
        """
        paths = [meta.path for meta in self.list(path + "/")]
        if not is_still():
            return False
        self.delete_all(paths)
        return True

    def leftovers(self) -> Sequence[str]:
        """The directories directly below the root that a `delete_tree` renamed and did not delete to its end."""
        return ()

    def delete_leftover(self, directory: str) -> None:
        """Delete one of these to its end; absent is fine."""
        return

    def put_register(self, path: str, data: bytes) -> None:
        """Write a small object that one writer replaces often, as cheaply as the store can. A reader finds one
        whole value at any time. Only `get_register` reads it; to `list`, `exists` and `delete` it is an object,
        whose size means nothing."""
        self.put(path, data)

    def get_register(self, path: str) -> bytes | None:
        """The value of a register, None when absent. An object that `put` wrote is its own value."""
        return self.get_optional(path)

    def sync(self, paths: Sequence[str]) -> None:
        """Make objects (or directories) durable, with the directories that lead to them; absent ones are fine.

        Raises KafkaStorageError when the disk lost something; the same from then on.
        """
        return

    def sync_all(self) -> None:
        """Make everything below the root durable, whoever wrote it. Raises as `sync`."""
        return

    def lost_writes(self) -> str | None:
        """Why writes below the root may be gone, whichever store or process met that; None when nobody did since
        `forget_lost_writes`."""
        return None

    def forget_lost_writes(self) -> None:
        """What may be gone has been looked for."""
        return

    def waiting_for(self, call: Callable[[], Answer]) -> Answer:
        """Make a call that waits for this store although another object makes it, such as a copy's of a file here."""
        return call()

    def each(self, call: Callable[[Item], Answer], items: Sequence[Item]) -> Sequence[Answer]:
        """What `call`, which makes requests to this store, returns for each item: side by side where it is far.
        Raises what the first that failed raises. `call` itself uses no `each` of this store: it would wait for those
        that wait for it."""
        return [call(item) for item in items]

    # -- abilities of some stores ------------------------------------------------------------------------

    def file_path(self, path: str) -> str | None:
        """The file that holds an object, "" for the root's folder; None where objects are no files of this machine."""
        return None

    def put_filled(self, directory: str, fill: Callable[[int], str]) -> bool:
        """`put_new` of an object that is never in memory as a whole.

        fill     writes the open file of this descriptor, may read it again, and returns the object's path, which is
                 in `directory`
        returns  False where the store cannot: use `put_new`
        """
        return False

    def copy_new(
        self, path: str, source: ObjectStore, source_path: str, tail_bytes: int, check: Callable[[bytes], bool]
    ) -> bool:
        """`put_new` of another store's object without reading it into this process.

        check    receives the object's last `tail_bytes` first; it may raise, or refuse by False
        returns  False when nothing was copied: use `put_new`

        Raises ObjectNotFoundError.
        """
        return False

    def free_share(self) -> float:
        """The share of the storage that is free, of bytes or of files, whichever is less; 1 where it has no bound."""
        return 1.0

    def copy_within(self, path: str, new_path: str) -> None:
        """Give an object a second name, or make a copy of it, as cheaply as the store can. Neither is written to again,
        and each is deleted by itself. An object at `new_path` is of an earlier try. ObjectNotFoundError."""
        self.put_new(new_path, self.get(path))

    def add_listener(self, listener: WriteListener) -> bool:
        """Call `listener` at each write from now on. False where the store does not see every write."""
        return False

    def remove_listener(self, listener: WriteListener) -> None:
        """End that; a listener that was never added is fine."""
        return
