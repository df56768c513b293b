"""What a thread has freed goes back to the system."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

MIB_KEPT_MAX = 12
is_glibc = "glibc" in (os.confstr("CS_GNU_LIBC_VERSION") or "")
of_glibc = pytest.mark.skipif(not is_glibc, reason="another C library")
PROGRAM = """
import sys, threading
from stratalog.replication.threads.free_memory import keep_little_free_memory, release_free_memory

def mib():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) >> 10

if sys.argv[1] == "set":
    keep_little_free_memory()

def work():
    bytes(24 << 20)  # the C library takes its bounds from the largest block
    small = [bytes([1]) * (200 << 10) for _ in range(250)]
    small.clear()

work()
release_free_memory()
before = mib()
is_done, may_end = threading.Event(), threading.Event()
thread = threading.Thread(target=lambda: (work(), is_done.set(), may_end.wait()))
thread.start()
is_done.wait()
release_free_memory()
print(mib() - before)
may_end.set()
"""


def kept_mib(setting: str, **environment: str) -> int:
    """What a thread that lives on keeps of 48 MiB that it has freed."""
    command, variables = [sys.executable, "-c", PROGRAM, setting], {"PYTHONPATH": str(ROOT), **environment}
    return int(subprocess.check_output(command, env=os.environ | variables, text=True, timeout=60))


@of_glibc
def test_a_thread_keeps_little_of_what_it_freed() -> None:
    assert kept_mib("set") <= MIB_KEPT_MAX < kept_mib("unset")


@of_glibc
def test_the_users_own_setting_counts() -> None:
    own = "glibc.malloc.trim_threshold=67108864:glibc.malloc.mmap_threshold=33554432"
    assert kept_mib("set", GLIBC_TUNABLES=own) > MIB_KEPT_MAX
