"""Memory that this process used and does not need any more. I/O: the allocators of Arrow and of the C library."""

from __future__ import annotations

import ctypes

import pyarrow as pa

LARGE_BYTES, KEPT_BYTES = 4 << 20, 8 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""`M_TRIM_THRESHOLD` and `M_MMAP_THRESHOLD` of glibc's malloc.h."""


def give_back_what_is_free() -> None:
    """Arrow's allocator keeps 20 to 40 MiB that a merge used and freed until its thread calls it again, which may be
    minutes later. Giving them back takes 0.3 ms."""
    pa.default_memory_pool().release_unused()


def keep_no_large_pieces() -> bool:
    """For a process of our own: large pieces of the C library's memory go back to the system when they are freed.

    They do so in any process, until one is freed: from then on glibc takes pieces of that size out of a heap of the
    thread's, whose end it keeps. So a worker stayed about 10 MiB larger once it had merged (11 in a script that wrote
    Parquet with zstd at level 9). False where there is no such setting.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LARGE_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES))
