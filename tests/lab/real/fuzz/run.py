"""Broken frames over eight connections against a cluster's process, beside a neighbour that must not notice.

    python -m tests.lab.real.fuzz.run --frames 100000       # make fuzz

The neighbour produces 100 times a second with acks=all and asks for ApiVersions, from a process of its own. At the end:
no error and no answer later than a second for it, no defect in the cluster's log, one line for each connection that the
cluster closed, and the process has the memory that it had before, within ten percent.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from stratalog.clients.admin.admin import Admin
from stratalog.replication.internal_topics import is_internal
from stratalog.server.admin.admin import NewTopic
from stratalog.server.request.endpoint import Endpoint
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import StratalogError
from tests.lab.real.fuzz.bad_frames import SETTINGS, TOPICS, BadFrames
from tests.lab.real.fuzz.clients import NEIGHBOUR, Address, BadClient, Calm, served_by
from tests.lab.real.fuzz.lines import closed_ports, defects
from tests.lab.real.processes.broker_processes import ENVIRONMENT, PROJECT
from tests.lab.real.processes.machine_watch import MachineWatch
from tests.lab.real.storm.parties import Party
from tests.waiting import wait_until

CONNECTIONS = 8
WAIT_S = 0.5
"""Limit of the wait for one answer."""
LATE_S = 1.0
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
    calm: Calm
    memory_before_kib: int
    memory_after_kib: int
    memory_kib: list[int]
    stalled_s: float

    @property
    def is_clean(self) -> bool:
        is_calm = not self.calm.errors and max(self.calm.produce_longest_s, self.calm.probe_longest_s) <= LATE_S
        is_told = not (self.unnamed or self.named_twice or self.defects)
        return is_calm and is_told and self.memory_after_kib <= GROWTH_MAX * self.memory_before_kib


class ClusterProcess:
    """`python -m stratalog.jobs.cluster` with a listener at a free port for each broker. In a `with` block."""

    def __init__(self, folder: Path, brokers: int = 3, settings: dict[str, object] | None = None) -> None:
        self.root = str(folder / "cluster" / "metadata")
        self.log_file = folder / "cluster" / "logs" / "cluster.log"
        self._output = folder / "cluster.out"
        given = {**SETTINGS, "listeners": "PLAINTEXT://127.0.0.1:0", **(settings or {})}
        self._command = [
            *(sys.executable, "-m", "stratalog.jobs.cluster", "--path", str(folder / "cluster")),
            *("--brokers", str(brokers), "--fetcher", "thread"),
            *(f"--override={name}={value}" for name, value in given.items()),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def memory_kib(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))

    def addresses(self) -> dict[int, Address]:
        """Where clients reach each broker."""
        view = ClusterView(self.root)
        view.refresh()
        found: dict[int, Address] = {}
        for broker_id, state in view.image.brokers.items():
            endpoint = Endpoint.by_listener(state.registration.endpoint or "")[""]
            found[broker_id] = endpoint.host, endpoint.port
        return found

    def leader_of(self, topic: str) -> int:
        view = ClusterView(self.root)
        view.refresh()
        (leader,) = {view.image.partition(each).leader for each in view.image.partitions_of(topic)}
        return leader

    def __enter__(self) -> ClusterProcess:
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=output, cwd=PROJECT, env=ENVIRONMENT, start_new_session=True
            )
        wait_until(lambda: "Running." in self.output() or not self.is_running, "the cluster", 90)
        assert self.is_running, self.output()
        return self

    def output(self) -> str:
        return self._output.read_text(encoding="utf-8")

    def __exit__(self, *_exception: object) -> None:
        if self.is_running:
            os.killpg(self.pid, signal.SIGKILL)
            assert self._process is not None
            self._process.wait(30)


@contextmanager
def neighbour_process(address: Address, rate: float, calm: Calm) -> Iterator[None]:
    """A neighbour in a process of its own; what it saw is put into `calm` at the end."""
    command = [sys.executable, "-m", "tests.lab.real.fuzz.neighbour", address[0], str(address[1]), str(rate)]
    with subprocess.Popen(command, cwd=PROJECT, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as made:
        try:
            yield
        finally:
            written, _ = made.communicate(b"end\n", timeout=60)
            for name, value in json.loads(written).items():
                setattr(calm, name, value)


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
    calm = Calm()
    with ClusterProcess(folder) as cluster, MachineWatch() as machine:
        admin = Admin(cluster.root)
        wanted = [NewTopic(NEIGHBOUR, 1, 3), *(NewTopic(topic, 2, 3) for topic in TOPICS)]
        admin.create_topics(wanted)
        leader = cluster.leader_of(NEIGHBOUR)
        address = cluster.addresses()[leader]
        with Keeper(cluster, wanted), neighbour_process(address, 100, Calm()):
            warm = send_all(address, seed, WARM_UP_FRAMES)
        memory_before = settled_memory(cluster)
        begun_s = time.monotonic()
        with Keeper(cluster, wanted) as keeper, neighbour_process(address, 100, calm):
            sent = send_all(address, seed + CONNECTIONS, frames)
            seconds = time.monotonic() - begun_s
        memory_after = settled_memory(cluster)
        lines = cluster.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=30)
    parser.add_argument("--folder", type=Path, help="keep the cluster's files here (a temporary folder, deleted)")
    given = parser.parse_args(arguments)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="stratalog-fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    result = run_fuzz(folder, given.frames, given.seed)
    for text, count in sorted(result.defects.items(), key=lambda each: -each[1])[:SHOWN]:
        print(f"{count} times {text}", flush=True)
    print(json.dumps({**asdict(result), "is_clean": result.is_clean}, indent=1))
    if given.folder is None:
        shutil.rmtree(folder)
    return 0 if result.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
