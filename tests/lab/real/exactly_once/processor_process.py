"""Processors (`tests.lab.real.exactly_once.processor`) as processes: to be started, killed, and paused while another
runs under the same name."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.lab.real.harness.broker_processes import ServerProcess
from tests.lab.real.harness.children import module
from tests.lab.real.harness.faults import PAUSE, Faults


class ProcessorProcess:
    """A transactional id and the processes under it: the current one, and paused ones that were replaced."""

    def __init__(self, metadata_root: str, folder: Path, name: str) -> None:
        self.name = name
        self._root = metadata_root
        self._notes_file = folder / f"{name}.jsonl"
        self._output_file = folder / f"{name}.out"
        self._lived: list[ServerProcess] = []

    @property
    def current(self) -> ServerProcess:
        return self._lived[-1]

    def start(self) -> None:
        """Start another process under the same name."""
        arguments = self._root, self._notes_file, self.name, len(self._lived) + 1
        command = module("tests.lab.real.exactly_once.processor", *arguments)
        self._lived.append(ServerProcess(self.name, command, self._output_file))
        self.current.start()

    def kill(self) -> float:
        """Kill the current process; when that was, in seconds of wall time."""
        killed_at = time.time()
        self.current.kill()
        return killed_at

    def strike(self, faults: Faults, kind: str, lasts_s: float, role: str, *, is_replaced: bool) -> None:
        """Kill the current process, or pause it for so long; with `is_replaced` another one under its name starts
        then at once."""
        faults.strike(self.current, kind, lasts_s if kind == PAUSE else 0.0, role)
        if kind == PAUSE and is_replaced:
            self.start()

    def restore(self, faults: Faults) -> None:
        """Start another process when the current one ended by itself."""
        if not self.current.is_running and not faults.has_struck(self.current):
            self.start()

    def end(self) -> None:
        """Kill all its processes."""
        for process in self._lived:
            if process.is_running:
                process.kill()

    def notes(self) -> list[dict]:
        """The events that its processes recorded, in order."""
        if not self._notes_file.exists():
            return []
        return [json.loads(line) for line in self._notes_file.read_text(encoding="utf-8").splitlines()]
