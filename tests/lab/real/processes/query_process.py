"""A process with a Spark session and a streaming query, which a test starts, kills and starts again."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.lab.real.harness.broker_processes import ENVIRONMENT, PROJECT
from tests.lab.real.harness.children import module as run_module
from tests.lab.real.processes.python_workers import descendants

STARTED = "started"
"""What the process prints when its query runs."""


class QueryProcess:
    """A process of a module of `tests.lab.real.processes`, which ends with its standard input; `folder` is its own."""

    def __init__(self, module: str, folder: Path, *arguments: str) -> None:
        self.module = module
        self.folder = folder
        self._command = run_module(f"tests.lab.real.processes.{module}", *arguments)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=output, stderr=output, cwd=PROJECT, env=ENVIRONMENT
            )

    def started_count(self) -> int:
        """How often a query was started here, over all processes."""
        assert self._process is not None
        output = (self.folder / "output").read_text()
        assert self._process.poll() is None, output
        return output.count(STARTED)

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def tell(self, line: str) -> None:
        """Send a line to its standard input."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def kill(self) -> None:
        """End all at once: its driver, Spark, the planner and the workers."""
        assert self._process is not None
        every = [self._process.pid, *descendants(self._process.pid)]
        for number in (signal.SIGSTOP, signal.SIGKILL):  # none of them sees another one end
            for pid in every:
                with suppress(ProcessLookupError):  # it ended by itself meanwhile
                    os.kill(pid, number)
        self._process.wait()

    def stop(self) -> None:
        if self.is_alive:
            assert self._process is not None
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(60)
