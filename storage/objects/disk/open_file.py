"""What is done with a new file that is open: all of it is written, and it gets its name.

I/O: write(2), ftruncate(2), linkat(2).
"""

from __future__ import annotations

import os

WRITE_BYTES_MAX = 256 << 10
"""At once. Since Linux 6.16 ext4 takes as large a piece of memory for a write as it can, up to 2 MiB. In a virtual
machine that gave its unused memory back, each such piece is had from the host again, page by page: 3.5 ms a MiB instead
of 0.3 for the same bytes in parts, for which memory that was used lately is found."""


def write_whole(descriptor: int, data: bytes | memoryview) -> None:
    """From where the file stands. Raises OSError."""
    written = os.write(descriptor, data) if len(data) <= WRITE_BYTES_MAX else 0
    if written == len(data):
        return  # nearly always
    view = memoryview(data)[written:]
    while view:
        view = view[os.write(descriptor, view[:WRITE_BYTES_MAX]) :]


def link_unnamed(descriptor: int, target: str) -> None:
    """Give a file without a name (O_TMPFILE) one. Raises FileExistsError, and OSError where the disk cannot."""
    os.link(f"/proc/self/fd/{descriptor}", target, src_dir_fd=descriptor, follow_symlinks=True)
