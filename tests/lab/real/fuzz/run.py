"""Broken frames over eight connections against a cluster's process, beside a neighbour that must not notice.

    python -m tests.lab.real.fuzz.run --frames 100000       # make fuzz

The neighbour produces 100 times a second with acks=all and asks for ApiVersions, from a process of its own. At the end:
no error and no answer later than a second for it, no defect in the cluster's log, one line for each connection that the
cluster closed, and the process has the memory that it had before, within ten percent.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from stratalog.clients.admin.admin import Admin
from stratalog.replication.internal_topics import is_internal
from stratalog.server.admin.admin import NewTopic
from stratalog.storage.errors import StratalogError
from tests.lab.real.fuzz.bad_frames import SETTINGS, TOPICS, BadFrames
from tests.lab.real.fuzz.clients import NEIGHBOUR, BadClient, served_by
from tests.lab.real.fuzz.lines import closed_ports, defects
from tests.lab.real.harness.children import Child, module
from tests.lab.real.harness.cluster_process import Address, ClusterProcess
from tests.lab.real.harness.command import concluded, options, work_folder
from tests.lab.real.harness.faults import show
from tests.lab.real.harness.machine_watch import MachineWatch
from tests.lab.real.harness.parties import Party

CONNECTIONS = 8
WAIT_S = 0.5
"""Limit of the wait for one answer."""
LATE_MS = 1_000
GROWTH_MAX = 1.10
WARM_UP_FRAMES = 100_000
"""Frames that are sent, beside the neighbour, before the memory is measured: layouts of messages are compiled when they
are used, the neighbour's records fill bounded memories (the encoded tail, files to be deleted later), and small objects
take a while to fill the gaps that large ones left. What grows with frames grows on behind them."""
SETTLE_S = 20.0
SHOWN = 20
KEEP_S = 2.0


@dataclass(slots=True)
class FuzzResult:
    """What a run found. `unnamed`: connections that were closed without a line; `named_twice`: with several."""

    frames: int
    seconds: float
    connections: int
    answered: int
    left: int
    closed: int
    unnamed: int
    named_twice: int
    defects: dict[str, int]
    calm: dict[str, Any]
    memory_before_kib: int
    memory_after_kib: int
    memory_kib: list[int]
    stalled_s: float

    @property
    def is_clean(self) -> bool:
        longest_ms = max(self.calm[kind]["longest_ms"] for kind in ("produce", "api_versions"))
        is_calm = not self.calm["error_count"] and longest_ms <= LATE_MS
        is_told = not (self.unnamed or self.named_twice or self.defects)
        return is_calm and is_told and self.memory_after_kib <= GROWTH_MAX * self.memory_before_kib


def steady_neighbour(address: Address, group: str = "") -> Child:
    """A neighbour in a process of its own; with a group also a member of it."""
    return Child(module("tests.lab.real.fuzz.steady_neighbour", *address, NEIGHBOUR, group))


class Keeper(Party):
    """Makes the topics again that requests deleted, deletes those that they made, and measures the memory."""

    def __init__(self, cluster: ClusterProcess, wanted: Sequence[NewTopic]) -> None:
        super().__init__("keeper")
        self._cluster = cluster
        self._admin = Admin(cluster.root)
        self._wanted = {each.name: each for each in wanted}
        self.memory_kib: list[int] = []

    def turn(self) -> None:
        present = set(self._admin.list_topics())
        surplus = {each for each in present - self._wanted.keys() if not is_internal(each)}
        try:
            if surplus:
                self._admin.delete_topics(sorted(surplus))
            absent = self._wanted.keys() - present
            if absent:
                self._admin.create_topics([self._wanted[each] for each in absent])
        except StratalogError:
            pass  # a request did so at the same time
        self.memory_kib.append(self._cluster.memory_kib)
        time.sleep(KEEP_S)


def send_all(address: Address, seed: int, count: int) -> list[BadClient]:
    """Send so many frames over eight connections; returns when all are sent."""
    served = served_by(address)
    clients = [
        BadClient(address, islice(BadFrames(seed + number, served), count // CONNECTIONS), WAIT_S)
        for number in range(CONNECTIONS)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
        if client.failure is not None:
            raise client.failure
    return clients


def run_fuzz(folder: Path, frames: int, seed: int) -> FuzzResult:
    """A whole run below `folder`."""
    with ClusterProcess(folder, 3, SETTINGS) as cluster, MachineWatch() as machine:
        admin = Admin(cluster.root)
        wanted = [NewTopic(NEIGHBOUR, 1, 3), *(NewTopic(topic, 2, 3) for topic in TOPICS)]
        admin.create_topics(wanted)
        leader = cluster.leader_of(NEIGHBOUR)
        address = cluster.addresses()[leader]
        with Keeper(cluster, wanted), steady_neighbour(address):
            warm = send_all(address, seed, WARM_UP_FRAMES)
        memory_before = settled_memory(cluster)
        begun_s = time.monotonic()
        with Keeper(cluster, wanted) as keeper, steady_neighbour(address) as neighbour:
            sent = send_all(address, seed + CONNECTIONS, frames)
            seconds, calm = time.monotonic() - begun_s, neighbour.finish()
        memory_after = settled_memory(cluster)
        lines = cluster.log_lines()
        clients = warm + sent
        closed = sum((each.closed for each in clients), Counter[int]())
        opened = sum((each.opened for each in clients), Counter[int]())
        named = closed_ports(lines)
        return FuzzResult(
            frames=frames,
            seconds=round(seconds, 1),
            connections=opened.total(),
            answered=sum(each.answered for each in clients),
            left=sum(each.left for each in clients),
            closed=closed.total(),
            unnamed=(closed - named).total(),
            named_twice=(named - opened).total(),
            defects=dict(defects(lines)),
            calm=calm,
            memory_before_kib=memory_before,
            memory_after_kib=memory_after,
            memory_kib=keeper.memory_kib,
            stalled_s=machine.stalled_s(begun_s * 1_000),
        )


def settled_memory(cluster: ClusterProcess) -> int:
    """The least memory of the process within some seconds: requests that waited come to their end."""
    gc.collect()
    end_s, least = time.monotonic() + SETTLE_S, cluster.memory_kib
    while time.monotonic() < end_s:
        time.sleep(0.5)
        least = min(least, cluster.memory_kib)
    return least


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when nothing was found."""
    parser = options(__doc__, seed=30)
    parser.add_argument("--frames", type=int, default=100_000)
    given = parser.parse_args(arguments)
    with work_folder(given.folder, "fuzz") as folder:
        result = run_fuzz(folder, given.frames, given.seed)
    for text, count in sorted(result.defects.items(), key=lambda each: -each[1])[:SHOWN]:
        show(f"{count} times {text}")
    return concluded(result)


if __name__ == "__main__":
    sys.exit(main())
