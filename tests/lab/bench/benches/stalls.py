"""What the machine and the cluster did while requests of an open loop waited.

I/O: /proc/stat, a thread that samples it ten times a second, and the times of checkpoints on disk. A stall is a run of
slow requests; the line about it lists what happened meanwhile. The figures of a bench include its stalls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lab.bench.lab import Moment

SLOW_MS = 50.0
TOGETHER_S = 0.15
"""Slow requests that were due within this time of each other are one stall."""
NEAR_S = 0.3
SAMPLE_S = 0.1
DESCRIBED_MAX = 10


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of the machine, `at_s` seconds from the window's start.

    late_ms        how late it came because the process or its interpreter was busy
    busy, stolen   shares of all processors' time since the sample before: at work, and used by the host for others
    """

    at_s: float
    late_ms: float
    busy: float
    stolen: float


@dataclass(frozen=True, slots=True)
class Stall:
    """Slow requests one after the other. `[began_s, ended_s]` from when the first was due to the last answer."""

    began_s: float
    ended_s: float
    count: int
    worst_ms: float


def stalls_of(moments: Sequence[Moment], slow_ms: float = SLOW_MS) -> list[Stall]:
    """The stalls of a window, the worst first; `moments` in the order in which they were due.

    >>> [each.count for each in stalls_of([Moment(1.0, 90.0), Moment(1.05, 60.0), Moment(1.1, 3.0), Moment(2.0, 70.0)])]
    [2, 1]
    """
    groups: list[list[Moment]] = []
    for moment in moments:
        if moment.latency_ms < slow_ms:
            continue
        if not groups or moment.due_s - groups[-1][-1].due_s > TOGETHER_S:
            groups.append([])
        groups[-1].append(moment)
    found = [
        Stall(
            group[0].due_s,
            max(each.due_s + each.latency_ms / 1000 for each in group),
            len(group),
            max(each.latency_ms for each in group),
        )
        for group in groups
    ]
    return sorted(found, key=lambda stall: -stall.worst_ms)


def described(
    stall: Stall,
    hand_overs_s: Mapping[int, Sequence[float]],
    checkpoints_s: Mapping[int, Sequence[float]],
    samples: Sequence[Sample],
) -> str:
    """A line about a stall: the hand-overs and checkpoints during it or shortly before, and the machine.

    >>> described(Stall(1.0, 1.2, 9, 120.0), {2: [0.9], 3: [5.0]}, {2: [1.1, 1.15]}, [Sample(1.1, 4.0, 0.97, 0.0)])
    'stall at 1.0 s: 9 requests, worst 120 ms; hand-overs of 2; checkpoints of 2, 2; busy 97 %, stolen 0 %, late 4 ms'
    """
    first_s = stall.began_s - NEAR_S

    def within(times: Mapping[int, Sequence[float]]) -> str:
        ids = [broker for broker, each in sorted(times.items()) for at in each if first_s <= at <= stall.ended_s]
        return ", ".join(map(str, ids)) or "none"

    meanwhile = [each for each in samples if stall.began_s <= each.at_s <= stall.ended_s + SAMPLE_S]
    busy, stolen, late_ms = (
        max((getattr(each, name) for each in meanwhile), default=0.0) for name in ("busy", "stolen", "late_ms")
    )
    return (
        f"stall at {stall.began_s:.1f} s: {stall.count} requests, worst {stall.worst_ms:.0f} ms; "
        f"hand-overs of {within(hand_overs_s)}; checkpoints of {within(checkpoints_s)}; "
        f"busy {busy:.0%}, stolen {stolen:.0%}, late {late_ms:.0f} ms"
    ).replace("%,", " %,")


def checkpoints_s(roots: Mapping[int, str], began_ms: int) -> dict[int, tuple[float, ...]]:
    """When the replicas of each broker wrote checkpoints, seconds from the window's start (wall clock, ms).

    roots   by broker, local folders
    """
    found: dict[int, tuple[float, ...]] = {}
    for broker_id, root in roots.items():
        written = [path.stat().st_mtime for path in Path(root).glob("*/_delta_log/*.checkpoint.parquet")]
        found[broker_id] = tuple(sorted(at - began_ms / 1000 for at in written))
    return found


@contextmanager
def sampling() -> Iterator[list[Sample]]:
    """Sample the machine until the block ends; the samples' times are of `time.time()`."""
    samples: list[Sample] = []
    is_over = threading.Event()
    thread = threading.Thread(target=_sample, args=(samples, is_over), name="stalls", daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        is_over.set()
        thread.join()


def _sample(samples: list[Sample], is_over: threading.Event) -> None:
    before, began_s = _jiffies(), time.perf_counter()
    while not is_over.wait(SAMPLE_S):
        now, now_s = _jiffies(), time.perf_counter()
        spent = [after - earlier for after, earlier in zip(now, before, strict=True)]
        whole = max(1, sum(spent))
        late_ms = max(0.0, 1000 * (now_s - began_s - SAMPLE_S))
        samples.append(Sample(time.time(), late_ms, 1 - (spent[3] + spent[4]) / whole, spent[7] / whole))
        before, began_s = now, now_s


def _jiffies() -> list[int]:
    """user, nice, system, idle, iowait, irq, softirq, steal of all processors."""
    return [int(each) for each in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
