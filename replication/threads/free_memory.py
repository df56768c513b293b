"""Memory that is freed, but that allocators keep for later: back to the system. I/O: the memory of this process.

A thread that has freed a gigabyte keeps it from all others: the C library gives it back only from the end of its pools,
and Arrow's allocator when a thread calls it again.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

import pyarrow as pa

BLOCK_BYTES = 4 << 20
"""Of large requests and of files that are read; an append's buffers are smaller, and are used again and again."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""glibc's numbers of two options."""


def release_arrow_memory() -> None:
    """Return what Arrow's allocator holds of freed memory until its thread calls it again."""
    pa.default_memory_pool().release_unused()


def release_free_memory() -> None:
    """The same, and what the C library holds, where it can (glibc): other threads wait for pieces of a millisecond."""
    release_arrow_memory()
    if _trim is not None:
        _trim(0)


def keep_little_free_memory() -> None:
    """For a process that hosts brokers: blocks from `BLOCK_BYTES` on come from the system, and go back at once.

    By itself the C library (glibc) raises that bound to the largest block that was freed so far, up to 32 MiB, and lets
    the pool of each thread keep twice as much at its end, which `release_free_memory` does not reach. The user's own
    settings count: `GLIBC_TUNABLES`, or the older `MALLOC_…_THRESHOLD_`. Source: mallopt(3).
    """
    is_set = "MALLOC_TRIM_THRESHOLD_" in os.environ or "MALLOC_MMAP_THRESHOLD_" in os.environ
    if _option is not None and not is_set and "glibc.malloc" not in os.environ.get("GLIBC_TUNABLES", ""):
        _option(_TRIM_THRESHOLD, BLOCK_BYTES)
        _option(_MMAP_THRESHOLD, BLOCK_BYTES)


def _option_of_this_process() -> Callable[[int, int], int] | None:
    """`mallopt`; None for another C library than glibc, whose numbers these are."""
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 - it raises where there is none
        option: Callable[[int, int], int] = library.mallopt
    except (AttributeError, OSError, TypeError):
        return None
    return option


def _trim_of_this_process() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return None
    return trim


_trim = _trim_of_this_process()
_option = _option_of_this_process()
