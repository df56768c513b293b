"""One read of storage for all threads that want it at the same time. Pure.

A thread that asks while another one reads is served by the next read only: it wants what was written before it asked.
A hundred threads that ask during one read need one more, not a hundred. A request that names a hundred thousand
partitions needs one, too: see `one_reading`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_HERE = threading.local()


@contextmanager
def one_reading() -> Iterator[None]:
    """A block in which this thread makes each `SharedRead` once at most; after `read_again` once more. Code in the
    block must not wait for something to appear in storage, because a second read is not made."""
    before: set[SharedRead] | None = getattr(_HERE, "made", None)
    _HERE.made = set()
    try:
        yield
    finally:
        _HERE.made = before


def read_again() -> None:
    """This thread has changed something: its block of `one_reading` goes on with new reads."""
    if getattr(_HERE, "made", None) is not None:
        _HERE.made = set()


class SharedRead:
    """`read` is called by one thread at a time. Not reentrant."""

    def __init__(self, read: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        """Held while one reads; whoever holds it keeps others from reading."""
        self._read = read
        self._begun = 0

    @property
    def was_read(self) -> bool:
        """Whether a read has ended without an error, or is under way."""
        return self._begun > 0

    def run(self) -> None:
        """Return after a read that began after this call; in a block of `one_reading`, after the block began. Raises
        what the read raises, if it was made here."""
        made: set[SharedRead] | None = getattr(_HERE, "made", None)
        if made is not None and self in made:
            return
        begun = self._begun
        with self.lock:
            if self._begun <= begun:
                self._read_now()
        if made is not None:
            made.add(self)

    def run_if_free(self) -> bool:
        """Read, unless another thread does: then False, at once."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            self._read_now()
        finally:
            self.lock.release()
        return True

    def _read_now(self) -> None:
        before = self._begun
        self._begun += 1
        try:
            self._read()
        except BaseException:
            self._begun = before  # threads that wait for this read make one of their own
            raise
