"""Processors (`tests.lab.real.exactly_once.processor`) as processes: to be started, killed, and paused while another
runs under the same name."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.lab.real.processes.broker_processes import ENVIRONMENT, PROJECT

STOP_WAIT_S = 60


@dataclass(frozen=True, slots=True)
class Paused:
    """A paused process; it is resumed `at` (monotonic, in s)."""

    at: float
    process: subprocess.Popen[bytes]


class ProcessorProcess:
    """A transactional id and the processes under it: the current one, and paused ones that were replaced."""

    def __init__(self, metadata_root: str, folder: Path, name: str) -> None:
        self.name = name
        self.lives = 0
        self._root = metadata_root
        self._notes_file = folder / f"{name}.jsonl"
        self._output_file = folder / f"{name}.out"
        self._process: subprocess.Popen[bytes] | None = None
        self._lived: list[subprocess.Popen[bytes]] = []
        self._paused: list[Paused] = []

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start another process under the same name."""
        self.lives += 1
        arguments = [self._root, str(self._notes_file), self.name, str(self.lives)]
        with self._output_file.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.lab.real.exactly_once.processor", *arguments],
                stdout=output, stderr=output, cwd=PROJECT, env=ENVIRONMENT, start_new_session=True,
            )  # fmt: skip
        self._lived.append(self._process)

    def kill(self) -> float:
        """Kill the current process; when that was, in seconds of wall time."""
        assert self._process is not None
        self._process.kill()
        killed_at = time.time()
        self._process.wait(STOP_WAIT_S)
        return killed_at

    def pause(self, for_s: float, *, is_replaced: bool) -> None:
        """Pause the current process; with `is_replaced` another one under its name starts at once."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self._paused.append(Paused(time.monotonic() + for_s, self._process))
        if is_replaced:
            self.start()

    def restore(self) -> None:
        """Start a process again that ended; resume those whose pause is over."""
        if not self.is_running:
            self.start()
        now = time.monotonic()
        for paused in [each for each in self._paused if each.at <= now]:
            self._paused.remove(paused)
            paused.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill all its processes."""
        for process in self._lived:
            process.kill()
            process.wait(STOP_WAIT_S)

    def notes(self) -> list[dict]:
        """The events that its processes recorded, in order."""
        if not self._notes_file.exists():
            return []
        return [json.loads(line) for line in self._notes_file.read_text(encoding="utf-8").splitlines()]

    def output(self) -> str:
        """The text that its processes printed: none unless something is wrong."""
        return self._output_file.read_text(encoding="utf-8") if self._output_file.exists() else ""
