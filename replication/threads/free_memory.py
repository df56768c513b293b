"""Memory that is freed, but that allocators keep for later: back to the system. I/O: the memory of this process.

A thread that has freed a gigabyte keeps it from all others: the C library gives it back only from the end of its pools,
and Arrow's allocator when a thread calls it again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pyarrow as pa


def release_arrow_memory() -> None:
    """Return what Arrow's allocator holds of freed memory until its thread calls it again."""
    pa.default_memory_pool().release_unused()


def release_free_memory() -> None:
    """The same, and what the C library holds, where it can (glibc): other threads wait for pieces of a millisecond."""
    release_arrow_memory()
    if _trim is not None:
        _trim(0)


def _trim_of_this_process() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return None
    return trim


_trim = _trim_of_this_process()
