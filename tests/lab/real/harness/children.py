"""Processes that a run talks to by lines: clients, neighbours, strangers. I/O: processes, their pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.lab.real.harness.broker_processes import ENVIRONMENT, PROJECT

END_S = 150
"""Above `delivery.timeout.ms`, for which a producer tries to send what it has."""


def module(name: str, *arguments: object) -> list[str]:
    """The command that runs a module."""
    return [sys.executable, "-m", name, *map(str, arguments)]


class Child:
    """A process that is asked by lines on its standard input, and answers by lines. It is killed after the block."""

    def __init__(self, command: Sequence[str], errors: Path | None = None) -> None:
        """`errors`: the file that gets what it prints about errors; by default the own standard error does."""
        self._errors = None if errors is None else errors.open("wb")
        self.process = subprocess.Popen(
            command, cwd=PROJECT, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            text=True,
        )  # fmt: skip

    def tell(self, line: str) -> None:
        self._pipe(self.process.stdin).write(f"{line}\n")
        self._pipe(self.process.stdin).flush()

    def answer(self) -> str:
        """The next line; "" when it has ended."""
        return self._pipe(self.process.stdout).readline().strip()

    def ask(self, line: str = "next") -> Any:
        """Send a line; the JSON that it is answered with."""
        self.tell(line)
        return json.loads(self.answer())

    def await_ready(self) -> None:
        assert self.answer() == "ready", self.process.args

    def finish(self) -> Any:
        """Have it end; the JSON of its last line. AssertionError when it fails."""
        written, _ = self.process.communicate("end\n", END_S)
        assert not self.process.returncode, f"{self.process.args} ended with {self.process.returncode}"
        return json.loads(written.splitlines()[-1])

    def _pipe(self, pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._errors is not None:
            self._errors.close()
