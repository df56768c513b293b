"""One read of storage for all threads that want it at the same time. Pure.

A thread that asks while another one reads is served by the next read only: it wants what was written before it asked.
A hundred threads that ask during one read need one more, not a hundred.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


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
        """Return after a read that began after this call. Raises what the read raises, if it was made here."""
        begun = self._begun
        with self.lock:
            if self._begun <= begun:
                self._read_now()

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
