"""Processors (`tests.real.processor`) as processes: to be started, killed, and paused while another takes the name."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.real.broker_processes import ENVIRONMENT, PROJECT

STOP_WAIT_S = 60


@dataclass(frozen=True, slots=True)
class Zombie:
    """A paused process whose name another one has; it goes on `at` (monotonic, in s)."""

    at: float
    process: subprocess.Popen[bytes]


class ProcessorProcess:
    """A transactional id and the processes under it: one in charge, and zombies."""

    def __init__(self, metadata_root: str, folder: Path, name: str) -> None:
        self.name = name
        self.lives = 0
        self._root = metadata_root
        self._notes_file = folder / f"{name}.jsonl"
        self._output_file = folder / f"{name}.out"
        self._process: subprocess.Popen[bytes] | None = None
        self._zombies: list[Zombie] = []
        self._woken: list[subprocess.Popen[bytes]] = []

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Another life under the same name."""
        self.lives += 1
        arguments = [self._root, str(self._notes_file), self.name, str(self.lives)]
        with self._output_file.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.real.processor", *arguments],
                stdout=output, stderr=output, cwd=PROJECT, env=ENVIRONMENT, start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        """The one in charge."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_WAIT_S)

    def replace_paused(self, for_s: float) -> None:
        """Pause the process in charge that long, and have another one take its place at once."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self._zombies.append(Zombie(time.monotonic() + for_s, self._process))
        self.start()

    def look_after(self) -> None:
        """A new life for a process that ended; zombies go on when their time has come."""
        if not self.is_running:
            self.start()
        self.wake(time.monotonic())

    def wake(self, now: float) -> None:
        """Zombies whose time has come by `now` go on."""
        for zombie in [each for each in self._zombies if each.at <= now]:
            self._zombies.remove(zombie)
            self._woken.append(zombie.process)
            zombie.process.send_signal(signal.SIGCONT)

    @property
    def has_zombies(self) -> bool:
        """One is paused still, or has not noticed yet that it is fenced."""
        return bool(self._zombies) or any(each.poll() is None for each in self._woken)

    def end(self) -> None:
        """Kill all."""
        for process in [self._process, *self._woken, *(each.process for each in self._zombies)]:
            if process is not None:
                with suppress(ProcessLookupError):
                    process.kill()
                process.wait(STOP_WAIT_S)

    def notes(self) -> list[dict]:
        """What its processes told, in order."""
        if not self._notes_file.exists():
            return []
        return [json.loads(line) for line in self._notes_file.read_text(encoding="utf-8").splitlines()]

    def output(self) -> str:
        """What its processes printed: nothing, unless something is wrong."""
        return self._output_file.read_text(encoding="utf-8") if self._output_file.exists() else ""
