"""Programs in Java that run beside each other and are killed: `with Programs() as programs:`.

I/O: a JVM each, and their output in a temporary folder.
"""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.lab.foreign.java.jvm import jvm
from tests.lab.real.harness.broker_processes import ServerProcess

SIGTERM_CODE = 128 + signal.SIGTERM
"""The exit code of a JVM that ended in order by SIGTERM."""
SHOWN = 3_000


_open: list[Programs] = []


def end_programs() -> None:
    """Kill what still runs, of a check that took too long."""
    while _open:
        _open[-1].end()


class Programs:
    """What runs is killed at the end of the block. `folder` is for their files.

    An error that ends the block gets the last lines that each of them printed as notes.
    """

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="programs-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        self._running: list[ServerProcess] = []

    def __enter__(self) -> Self:
        _open.append(self)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if error is not None:
            for each in self._running:
                error.add_note(f"{each.name}: {each.output()[-SHOWN:]}")
        self.end()

    def end(self) -> None:
        """Kill what runs, and delete the folder."""
        if self in _open:
            _open.remove(self)
        for each in self._running:
            if each.is_running:
                each.kill()
        self._temporary.cleanup()

    def start(self, name: str, main: str, *arguments: str) -> ServerProcess:
        """A program with this main class, in a JVM of its own."""
        process = ServerProcess(name, jvm().command(main, *arguments), self.folder / f"{name}.out")
        self._running.append(process)
        process.start()
        return process
