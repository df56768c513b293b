"""The machine: what it is, and what a tree of processes uses of it. I/O: /proc, /sys and a few `--version`s."""

from __future__ import annotations

import mmap
import os
import platform
import time
from collections.abc import Callable, Collection, Iterable
from importlib.metadata import version
from pathlib import Path

from tests.lab.bench import volume
from tests.lab.bench.peer import kafka

PACKAGES = ("pyspark", "delta-spark", "deltalake", "obstore", "pyarrow", "numpy")
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TOUCHED_PAGES = 8_192


def describe(folder: Path, *, with_peer: bool = True) -> dict[str, str]:
    """Cores, memory, kernel, disk below `folder` and versions, without names of hosts or people."""
    memory_gib = os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES / 2**30
    return {
        "cores": f"{len(os.sched_getaffinity(0))} ({_processor()})",
        "memory": f"{memory_gib:.0f} GiB, first use of a page {_first_use_us():.1f} µs{_given_back()}",
        "kernel": f"{platform.system()} {platform.release()}",
        "data on": volume.described(folder),
        **({"Apache Kafka": kafka.version()} if with_peer else {}),
        "Java": kafka.java_version(),
        "Python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _first_use_us() -> float:
    """Microseconds for the first write to a page: many more in a virtual machine whose host reclaims free memory. There
    everything that fills new memory is slow, the page cache of written files first of all, ours and the peer's."""
    with mmap.mmap(-1, TOUCHED_PAGES * PAGE_BYTES) as memory:
        began = time.perf_counter()
        for at in range(0, TOUCHED_PAGES * PAGE_BYTES, PAGE_BYTES):
            memory[at] = 1
        return (time.perf_counter() - began) * 1e6 / TOUCHED_PAGES


def _given_back() -> str:
    """A note where the kernel reclaims pages that were not used lately (DAMON), however much memory is free: there
    files that were just written are read from the disk again, ours and the peer's."""
    schemes = Path("/sys/kernel/mm/damon/admin/kdamonds").glob("*/contexts/*/schemes/*/action")
    is_on = any(_line(path) == "pageout" and _line(path.parents[4] / "state") == "on" for path in schemes)
    return ", pages not used lately are given back (DAMON)" if is_on else ""


def _line(path: Path) -> str:
    """The file's text; empty where only root may read it."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def descendants(roots: Iterable[int], without: Collection[int] = ()) -> list[int]:
    """These processes and their descendants that live, but not those in `without` and their descendants."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            stat = _stat(int(folder.name))
            if stat:
                children.setdefault(int(stat[1]), []).append(int(folder.name))
    found = list(roots)
    for pid in found:  # grows while it is walked
        found.extend(child for child in children.get(pid, []) if child not in without)
    return found


def cpu_s(roots: Iterable[int], without: Collection[int] = ()) -> float:
    """CPU seconds of these processes and their descendants, those that ended included."""
    stats = [_stat(pid) for pid in descendants(roots, without)]
    return sum(int(ticks) for stat in stats if stat for ticks in stat[11:15]) / CLOCK_TICKS


def cpu_s_by_process(roots: Iterable[int], without: Collection[int] = ()) -> dict[int, float]:
    """CPU seconds of each of these processes and of each descendant, without those that ended."""
    stats = {pid: _stat(pid) for pid in descendants(roots, without)}
    return {pid: sum(map(int, stat[11:13])) / CLOCK_TICKS for pid, stat in stats.items() if stat}


def resident_mib(roots: Iterable[int]) -> dict[str, float]:
    """MiB of resident memory by the program's name (`java`, `python`), descendants included. A page that several
    processes share, as forked ones do, is counted once, in equal parts (`Pss`)."""
    return _by_program(roots, proportional_mib)


def resident_mib_of_each(roots: Iterable[int]) -> dict[str, float]:
    """As `resident_mib`, with a shared page counted in each process that has it (`Rss`)."""
    return _by_program(roots, lambda pid: int((_stat(pid) or ["0"] * 22)[21]) * PAGE_BYTES / 2**20)


def _by_program(roots: Iterable[int], mib_of: Callable[[int], float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for pid in descendants(roots):
        name = "java" if name_of(pid) == "java" else "python"
        found[name] = found.get(name, 0.0) + mib_of(pid)
    return found


def proportional_mib(pid: int) -> float:
    """MiB of a process, shared pages in parts (`Pss`); 0 when it has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("Pss:")), 0.0)


def own_cpu_s(pid: int) -> float:
    """CPU seconds of one process alone, 0 when it has ended."""
    return sum(int(ticks) for ticks in _stat(pid)[11:13]) / CLOCK_TICKS


def name_of(pid: int) -> str:
    """The program's name, empty when the process has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the state on; none when the process has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def allocated_bytes(folders: Iterable[Path]) -> int:
    """Bytes of disk blocks that the files below these folders use."""
    files = (Path(top) / name for folder in folders for top, _, names in os.walk(folder) for name in names)
    return sum(_blocks(file) for file in files) * 512


def _blocks(file: Path) -> int:
    try:
        return file.stat().st_blocks
    except FileNotFoundError:  # deleted by clean-up meanwhile
        return 0
