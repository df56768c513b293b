"""Large pieces of memory go back to the system when they are freed, however often that happened before."""

from __future__ import annotations

import subprocess
import sys

import pytest

from replication.process_memory import LARGE_BYTES

LARGE_PIECE_FREED_AND_TAKEN_AGAIN = """
import ctypes, sys
from replication.process_memory import LARGE_BYTES, keep_no_large_pieces

class Statistics(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes, libc.mallinfo2.restype = ctypes.c_void_p, [ctypes.c_void_p], Statistics
if sys.argv[1] == "kept":
    assert keep_no_large_pieces()
mapped = []
for _ in range(2):
    before = libc.mallinfo2().hblkhd
    piece = libc.malloc(2 * LARGE_BYTES)
    mapped.append(libc.mallinfo2().hblkhd - before)
    libc.free(piece)
print(*mapped)
"""


@pytest.mark.parametrize(("setting", "is_mapped_again"), [("kept", True), ("default", False)])
def test_a_large_piece_is_taken_from_the_system_each_time(setting: str, is_mapped_again: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LARGE_PIECE_FREED_AND_TAKEN_AGAIN, setting], capture_output=True, text=True, check=True
    )
    first, second = map(int, done.stdout.split())
    assert first > 2 * LARGE_BYTES
    assert (second > 2 * LARGE_BYTES) is is_mapped_again
