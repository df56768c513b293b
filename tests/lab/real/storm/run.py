"""Three broker processes in a storm: random ones, and the controller, are killed or paused every few seconds.

    python -m tests.lab.real.storm.run --minutes 5                  # make storm: both parts, results into docs/
    python -m tests.lab.real.storm.run --minutes 1 --faults 0       # the storm alone

(a) During the storm producers at acks=all and readers record what they send and read; the history checker must find
nothing. (b) One fault at a time: `tests.lab.real.storm.single_faults`.
"""

from __future__ import annotations

import random
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from stratalog.clients.admin.admin import Admin
from stratalog.server.admin.admin import NewTopic
from tests.lab.real.harness.broker_processes import BROKERS, BrokerProcesses, ClusterWatch
from tests.lab.real.harness.command import concluded, machine_of, options, work_folder
from tests.lab.real.harness.faults import KILL, PAUSE, Faults, after
from tests.lab.real.harness.history import ACK, FAIL, POLL, SEND, Finding, History, HistoryEvent, check
from tests.lab.real.harness.machine_watch import MachineWatch
from tests.lab.real.harness.parties import HighWatermarkWatch, Reader, Writer, events_with_replicas
from tests.waiting import wait_until

TOPIC, PARTITIONS = "storm", 6
SETTINGS = {"broker.session.timeout.ms": 3_000, "broker.heartbeat.interval.ms": 500, "replica.lag.time.max.ms": 3_000}
EVERY_S = 5.0
LASTS_S = {KILL: (0.5, 6.0), PAUSE: (0.5, 9.0)}
"""The durations of faults. A pause may be much longer than a broker's session, so that a zombie comes back."""
DOWN_MAX = 2
"""How many of three brokers are down or paused at a time, at most."""
OF_CONTROLLER = "of the controller"


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

    @property
    def is_clean(self) -> bool:
        return not self.findings


def inject(faults: Faults, brokers: BrokerProcesses, watch: ClusterWatch, rng: random.Random) -> None:
    """Strike a random broker, or the controller, unless two of three are away."""
    controller = watch.controller()
    is_for_controller = rng.random() < 0.4
    standing = [i for i in BROKERS if not faults.has_struck(brokers[i]) and brokers[i].is_running]
    if len(BROKERS) - len(standing) >= DOWN_MAX or not standing:
        return
    victim = controller if is_for_controller and controller in standing else rng.choice(standing)
    kind = rng.choice((KILL, PAUSE))
    faults.strike(brokers[victim], kind, rng.uniform(*LASTS_S[kind]))
    faults.counts[OF_CONTROLLER] += victim == controller


def run_storm(folder: Path, seconds: float, seed: int, fetcher: str = "thread") -> StormResult:
    """A whole run below `folder`, which is empty or absent."""
    with BrokerProcesses(folder, SETTINGS, fetcher) as brokers:
        root = brokers.metadata_root
        Admin(root).create_topics([NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": 2})])
        watch = ClusterWatch(root, TOPIC)
        watch.await_in_sync()
        history = History(folder / "history.jsonl")
        faults, rng = Faults(), random.Random(seed)
        with ExitStack() as parties:
            machine = parties.enter_context(MachineWatch())
            parties.enter_context(HighWatermarkWatch(root, TOPIC, history))
            for name in ("reader-1", "reader-2"):
                parties.enter_context(Reader(root, TOPIC, history, name))
            for name in ("writer-1", "writer-2"):
                parties.enter_context(Writer(root, TOPIC, history, name, pause_s=0.05))
            wait_until(lambda: history.counts[ACK] > 100, "the first acknowledgements")
            begun_ms = time.monotonic() * 1000
            faults.run(EVERY_S, lambda: inject(faults, brokers, watch, rng), after(seconds))
            ended_ms = time.monotonic() * 1000
            faults.repair(at_once=True)
            in_sync_after_s = watch.await_in_sync()
            enough = history.counts[ACK] + 200
            wait_until(lambda: history.counts[ACK] > enough, "acknowledgements after the storm")
        Reader(root, TOPIC, history, "late-reader").start().stop()
        events = events_with_replicas(history, folder, TOPIC, BROKERS, PARTITIONS)
        return StormResult(
            seconds=seconds,
            seed=seed,
            fetcher=fetcher,
            faults=dict(faults.counts),
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
    from tests.lab.real.storm.report import write_storm_report
    from tests.lab.real.storm.single_faults import run_single_faults

    parser = options(__doc__, seed=6, report="STORM.md, storm.json and storm.png")
    parser.add_argument("--minutes", type=float, default=5.0, help="of storm; 0 = none (5)")
    parser.add_argument("--faults", type=int, default=10, help="one at a time; 0 = none (10)")
    parser.add_argument("--fetcher", choices=("thread", "spark"), default="thread")
    given = parser.parse_args(arguments)
    seconds = given.minutes * 60
    with work_folder(given.folder, "storm") as folder:
        faults = run_single_faults(folder / "faults", given.faults, given.seed, given.fetcher) if given.faults else None
        storm = run_storm(folder / "storm", seconds, given.seed, given.fetcher) if seconds else None
        if given.report and faults and storm:
            write_storm_report(given.report, storm, faults, machine_of(folder))
    return max(concluded(storm) if storm else 0, concluded(replace(faults, probes=[])) if faults else 0)


if __name__ == "__main__":
    sys.exit(main())
