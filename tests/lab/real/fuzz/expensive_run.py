"""Strangers who send the most expensive valid requests, beside a neighbour that must hardly notice.

    python -m tests.lab.real.fuzz.expensive_run --minutes 10       # part of make fuzz

The neighbour produces 100 times a second with acks=all, beats as a member of a group and asks for ApiVersions, from a
process of its own: alone at first, then beside strangers over several connections, then alone again. Clean is: its
answers take at most 100 ms longer at the 99th percentile than alone, it has no error, its member and the brokers keep
their sessions, and the process has the memory that it had before, within ten percent.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stratalog.clients.admin.admin import Admin
from stratalog.server.admin.admin import NewTopic
from tests.lab.real.fuzz.bad_frames import SETTINGS as BROKER_SETTINGS
from tests.lab.real.fuzz.bad_frames import TOPICS
from tests.lab.real.fuzz.clients import NEIGHBOUR
from tests.lab.real.fuzz.lines import defects
from tests.lab.real.fuzz.run import GROWTH_MAX, settled_memory, steady_neighbour
from tests.lab.real.harness.children import Child, module
from tests.lab.real.harness.cluster_process import Address, ClusterProcess
from tests.lab.real.harness.command import concluded, options, work_folder

LATER_MS_MAX = 100.0
"""How much later an answer may come beside strangers, at the 99th percentile."""
CONNECTIONS = 8
FRAMES = 120
SETTINGS: dict[str, object] = {
    **BROKER_SETTINGS,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}
FENCED = "was fenced"


@dataclass(slots=True)
class ExpensiveResult:
    """What a run found. `alone`, `beside` and `after`: what the neighbour saw in each phase."""

    seconds: float
    strangers: dict[str, Any]
    alone: dict[str, Any]
    beside: dict[str, Any]
    after: dict[str, Any]
    fenced: int
    defects: dict[str, int]
    memory_before_kib: int
    memory_peak_kib: int
    memory_after_kib: int

    @property
    def later_ms(self) -> dict[str, float]:
        """By kind of request: how much longer its answers took beside strangers, at the 99th percentile."""
        kinds = [kind for kind, told in self.alone.items() if isinstance(told, dict)]
        calm = {kind: max(self.alone[kind]["p99_ms"], self.after[kind]["p99_ms"]) for kind in kinds}
        return {kind: round(self.beside[kind]["p99_ms"] - calm[kind], 1) for kind in kinds}

    @property
    def is_clean(self) -> bool:
        is_calm = not self.beside["error_count"] and max(self.later_ms.values()) <= LATER_MS_MAX
        is_sound = not (self.fenced or self.defects or self.strangers["failures"])
        return is_calm and is_sound and self.memory_after_kib <= GROWTH_MAX * self.memory_before_kib


def strangers_at(address: Address, seed: int) -> Child:
    return Child(module("tests.lab.real.fuzz.strangers", *address, seed, CONNECTIONS, FRAMES))


def _warm_up(cluster: ClusterProcess, address: Address, seed: int, seconds: float) -> None:
    """Bounded memories fill, as that of the newest batches; what grows with requests grows on behind them."""
    with steady_neighbour(address, NEIGHBOUR), strangers_at(address, seed) as strangers:
        strangers.await_ready()
        strangers.tell("go")
        _wait(cluster, seconds)
        strangers.ask()


def run_expensive(
    folder: Path, seconds: float, alone_s: float, seed: int, *, brokers: int = 1, warm_up_s: float = 60
) -> ExpensiveResult:
    """A whole run below `folder`."""
    with ClusterProcess(folder, brokers, SETTINGS) as cluster:
        Admin(cluster.root).create_topics(
            [NewTopic(NEIGHBOUR, 1, brokers), *(NewTopic(topic, 100, 1) for topic in TOPICS)]
        )
        address: Address = cluster.addresses()[cluster.leader_of(NEIGHBOUR)]
        _warm_up(cluster, address, seed, warm_up_s)
        with steady_neighbour(address, NEIGHBOUR) as neighbour, strangers_at(address, seed) as strangers:
            strangers.await_ready()  # their frames are made
            neighbour.ask()
            time.sleep(alone_s)
            alone, memory_before = neighbour.ask(), settled_memory(cluster)
            strangers.tell("go")
            peak = _wait(cluster, seconds)
            beside = neighbour.ask()
            found = strangers.ask()
            neighbour.ask()
            time.sleep(alone_s)
            after = neighbour.ask()
        memory_after = settled_memory(cluster)
        lines = cluster.log_lines()
        return ExpensiveResult(
            seconds=seconds,
            strangers=found,
            alone=alone,
            beside=beside,
            after=after,
            fenced=sum(FENCED in line for line in lines),
            defects=dict(defects(lines)),
            memory_before_kib=memory_before,
            memory_peak_kib=peak,
            memory_after_kib=memory_after,
        )


def _wait(cluster: ClusterProcess, seconds: float) -> int:
    """The most memory of the process within so many seconds."""
    end_s, peak = time.monotonic() + seconds, 0
    while time.monotonic() < end_s and cluster.is_running:
        peak = max(peak, cluster.memory_kib)
        time.sleep(0.2)
    return peak


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when nothing was found."""
    parser = options(__doc__, seed=48)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--alone-seconds", type=float, default=30)
    parser.add_argument("--warm-up-seconds", type=float, default=60)
    parser.add_argument("--brokers", type=int, default=1)
    given = parser.parse_args(arguments)
    times = 60 * given.minutes, given.alone_seconds
    with work_folder(given.folder, "expensive") as folder:
        result = run_expensive(folder, *times, given.seed, brokers=given.brokers, warm_up_s=given.warm_up_seconds)
    return concluded(result, later_ms=result.later_ms)


if __name__ == "__main__":
    sys.exit(main())
