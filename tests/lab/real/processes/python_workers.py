"""Spark's Python workers of this process, found by their parents: the daemon that the JVM started forks them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

PROC = Path("/proc")
DAEMON = b"pyspark.daemon"


def python_workers() -> list[int]:
    """Process ids of the workers that live now, of all daemons below this process."""
    parents = _parents()
    daemons = {pid for pid in parents if _is_daemon(pid) and _is_below(pid, os.getpid(), parents)}
    return sorted(pid for pid, parent in parents.items() if parent in daemons and _is_daemon(parent))


def busiest_worker(during_s: float = 0.5) -> int:
    """The worker that uses most of a processor: an active fetch session. The others are on standby or idle."""
    before = {pid: _ticks(pid) for pid in python_workers()}
    time.sleep(during_s)
    return max(before, key=lambda pid: _ticks(pid) - before[pid])


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """Process ids of its children."""
    return sorted(child for child, parent in _parents().items() if parent == pid)


def descendants(pid: int) -> list[int]:
    """Process ids of its children, of their children, and so on."""
    parents = _parents()
    return sorted(each for each in parents if each != pid and _is_below(each, pid, parents))


def running(module: str, below: int) -> list[int]:
    """Process ids of the descendants of a process that run a module of Spark's workers; their daemon is left out."""
    found = [pid for pid in descendants(below) if module.encode() in _command(pid)]
    parents = _parents()
    daemons = {parents.get(pid) for pid in found}
    return [pid for pid in found if pid not in daemons]


def _parents() -> dict[int, int]:
    found = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit() and (fields := _stat(int(folder.name))):
            found[int(folder.name)] = int(fields[1])
    return found


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat behind the command's name; empty when the process is gone."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _ticks(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12]) if fields else 0


def _is_daemon(pid: int) -> bool:
    """True for a daemon and for its forks, the workers: both show the same command line."""
    return DAEMON in _command(pid)


def _command(pid: int) -> bytes:
    try:
        return (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def _is_below(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != ancestor:
        pid = parents[pid]
    return pid == ancestor
