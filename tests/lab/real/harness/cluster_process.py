"""A whole cluster in one process, with its memory. I/O: a process, its metadata, /proc."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from stratalog.server.request.endpoint import Endpoint
from stratalog.server.view.cluster_view import ClusterView
from tests.lab.real.harness.broker_processes import ServerProcess

Address = tuple[str, int]


class ClusterProcess(ServerProcess):
    """`python -m stratalog.jobs.cluster` with a listener at a free port for each broker. In a `with` block."""

    def __init__(self, folder: Path, brokers: int, settings: Mapping[str, object]) -> None:
        self.root = str(folder / "cluster" / "metadata")
        self.log_file = folder / "cluster" / "logs" / "cluster.log"
        given = {"listeners": "PLAINTEXT://127.0.0.1:0", **settings}
        command = [
            *(sys.executable, "-m", "stratalog.jobs.cluster", "--path", str(folder / "cluster")),
            *("--brokers", str(brokers), "--fetcher", "thread"),
            *(f"--override={name}={value}" for name, value in given.items()),
        ]
        super().__init__("cluster", command, folder / "cluster.out", "Running.")

    @property
    def memory_kib(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))

    def _view(self) -> ClusterView:
        view = ClusterView(self.root)
        view.refresh()
        return view

    def addresses(self) -> dict[int, Address]:
        """Where clients reach each broker."""
        brokers = self._view().image.brokers.items()
        found = {each: Endpoint.by_listener(state.registration.endpoint or "")[""] for each, state in brokers}
        return {broker_id: (endpoint.host, endpoint.port) for broker_id, endpoint in found.items()}

    def leader_of(self, topic: str) -> int:
        image = self._view().image
        (leader,) = {image.partition(each).leader for each in image.partitions_of(topic)}
        return leader

    def log_lines(self) -> list[str]:
        return self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
