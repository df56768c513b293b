"""Three broker processes in a storm: random ones, and the controller, are killed or paused every few seconds.

    python -m tests.lab.real.storm.run --minutes 5                  # make storm: both parts, results into docs/
    python -m tests.lab.real.storm.run --minutes 1 --faults 0       # the storm alone

(a) During the storm producers at acks=all and readers record what they send and read; the history checker must find
nothing. (b) One fault at a time: `tests.lab.real.storm.single_faults`.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from stratalog.clients.admin.admin import Admin
from stratalog.server.admin.admin import NewTopic
from tests.lab.real.processes.broker_processes import BROKERS, BrokerProcesses, ClusterWatch
from tests.lab.real.processes.machine_watch import MachineWatch
from tests.lab.real.storm.history import ACK, FAIL, POLL, SEND, SHOWN_FINDINGS, Finding, History, HistoryEvent, check
from tests.lab.real.storm.parties import HighWatermarkWatch, Reader, Writer, note_replicas, replicas_are_equal
from tests.waiting import wait_until

TOPIC, PARTITIONS = "storm", 6
SETTINGS = {"broker.session.timeout.ms": 3_000, "broker.heartbeat.interval.ms": 500, "replica.lag.time.max.ms": 3_000}
EVERY_S = 5.0
DOWN_S, PAUSED_S = (0.5, 6.0), (0.5, 9.0)
"""The durations of faults. A pause may be much longer than a broker's session, so that a zombie comes back."""
DOWN_MAX = 2
KILL, PAUSE = "SIGKILL", "SIGSTOP"


@dataclass(frozen=True, slots=True)
class StormResult:
    """The results of a storm. `faults` counts kinds, `gap_s_max` is the longest time without any acknowledgement,
    `stalled_s` how long the machine itself stood still."""

    seconds: float
    seed: int
    fetcher: str
    faults: dict[str, int]
    sent: int
    acknowledged: int
    failed: int
    polled: int
    leader_epochs: int
    gap_s_max: float
    stalled_s: float
    in_sync_after_s: float
    findings: list[Finding]


@dataclass(frozen=True, slots=True)
class Repair:
    """The planned end of a fault."""

    at: float
    broker_id: int


class Storm:
    """Injects faults. At most two of three brokers are down or paused at a time."""

    def __init__(self, brokers: BrokerProcesses, watch: ClusterWatch, rng: random.Random) -> None:
        self.faults: Counter[str] = Counter()
        self._brokers = brokers
        self._watch = watch
        self._rng = rng
        self._repairs: list[Repair] = []

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        due = time.monotonic()
        while (now := time.monotonic()) < end:
            self._repair(now)
            if now >= due:
                due += EVERY_S
                self._inject(now)
            time.sleep(0.05)

    def _repair(self, now: float) -> None:
        for repair in [each for each in self._repairs if each.at <= now]:
            self._repairs.remove(repair)
            broker = self._brokers[repair.broker_id]
            if broker.is_paused:
                broker.resume()
            elif not broker.is_running:
                broker.start()

    def _inject(self, now: float) -> None:
        controller = self._watch.controller()
        is_for_controller = self._rng.random() < 0.4
        down = {each.broker_id for each in self._repairs}
        standing = [i for i in BROKERS if i not in down and self._brokers[i].is_running]
        if len(BROKERS) - len(standing) >= DOWN_MAX or not standing:
            return
        victim = controller if is_for_controller and controller in standing else self._rng.choice(standing)
        kind = self._rng.choice((KILL, PAUSE))
        broker = self._brokers[victim]
        lasts_s = self._rng.uniform(*(DOWN_S if kind == KILL else PAUSED_S))
        (broker.kill if kind == KILL else broker.pause)()
        self._repairs.append(Repair(now + lasts_s, victim))
        self.faults[kind] += 1
        self.faults["of the controller"] += victim == controller
        show(f"{kind} broker {victim}{' (controller)' * (victim == controller)} for {lasts_s:.1f} s")


def show(line: str) -> None:
    print(line, flush=True)


def run_storm(folder: Path, seconds: float, seed: int, fetcher: str = "thread") -> StormResult:
    """A whole run below `folder`, which is empty or absent."""
    with BrokerProcesses(folder, SETTINGS, fetcher) as brokers:
        root = brokers.metadata_root
        Admin(root).create_topics([NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": 2})])
        watch = ClusterWatch(root, TOPIC)
        watch.await_in_sync()
        history = History(folder / "history.jsonl")
        storm = Storm(brokers, watch, random.Random(seed))
        with ExitStack() as parties:
            machine = parties.enter_context(MachineWatch())
            parties.enter_context(HighWatermarkWatch(root, TOPIC, history))
            for name in ("reader-1", "reader-2"):
                parties.enter_context(Reader(root, TOPIC, history, name))
            for name in ("writer-1", "writer-2"):
                parties.enter_context(Writer(root, TOPIC, history, name, pause_s=0.05))
            wait_until(lambda: history.counts[ACK] > 100, "the first acknowledgements")
            begun_ms = time.monotonic() * 1000
            storm.run(seconds)
            ended_ms = time.monotonic() * 1000
            brokers.restore()
            in_sync_after_s = watch.await_in_sync()
            enough = history.counts[ACK] + 200
            wait_until(lambda: history.counts[ACK] > enough, "acknowledgements after the storm")
        with Reader(root, TOPIC, history, "late-reader"):
            wait_until(lambda: replicas_are_equal(folder, TOPIC, BROKERS, PARTITIONS), "equal replicas", 120)
        note_replicas(history, folder, TOPIC, BROKERS, PARTITIONS)
        history.close()
        events = history.events()
        return StormResult(
            seconds=seconds,
            seed=seed,
            fetcher=fetcher,
            faults=dict(storm.faults),
            sent=history.counts[SEND],
            acknowledged=history.counts[ACK],
            failed=history.counts[FAIL],
            polled=history.counts[POLL],
            leader_epochs=watch.leader_epochs(),
            gap_s_max=longest_gap_s(events, begun_ms, ended_ms),
            stalled_s=machine.stalled_s(begun_ms),
            in_sync_after_s=in_sync_after_s,
            findings=check(events),
        )


def longest_gap_s(events: list[HistoryEvent], begun_ms: float, ended_ms: float) -> float:
    """The longest time between two acknowledgements of any partitions."""
    acks = sorted(e.time_ms for e in events if e.kind == ACK and begun_ms <= e.time_ms <= ended_ms)
    return longest_gap([begun_ms, *acks, ended_ms]) / 1000


def longest_gap(times: list[float]) -> float:
    """The longest time between neighbours of a sorted list."""
    return max(after - before for before, after in pairwise(times))


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 when nothing was found and every fault was survived in time."""
    from tests.lab.real.storm.report import machine_of, write_report
    from tests.lab.real.storm.single_faults import run_single_faults

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="of storm; 0 = none (5)")
    parser.add_argument("--faults", type=int, default=10, help="one at a time; 0 = none (10)")
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--fetcher", choices=("thread", "spark"), default="thread")
    parser.add_argument("--folder", type=Path, help="keep the files of the brokers here (a temporary folder, deleted)")
    parser.add_argument("--report", type=Path, help="folder for STORM.md, storm.json and storm.png")
    given = parser.parse_args(arguments)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="stratalog-storm-"))
    faults = run_single_faults(folder / "faults", given.faults, given.seed, given.fetcher) if given.faults else None
    seconds = given.minutes * 60
    storm = run_storm(folder / "storm", seconds, given.seed, given.fetcher) if seconds else None
    for finding in ((storm.findings if storm else []) + (faults.findings if faults else []))[:SHOWN_FINDINGS]:
        show(f"{finding.rule}: {finding.text}")
    if storm:
        show(str(replace(storm, findings=[])))
    if given.report and faults and storm:
        write_report(given.report, storm, faults, machine_of(folder))
    if given.folder is None:
        shutil.rmtree(folder)
    is_clean = (storm is None or not storm.findings) and (faults is None or faults.is_within_limit)
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
