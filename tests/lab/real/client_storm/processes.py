"""The storm's clients, each a process of its own, with Kafka's Java library or with librdkafka.

I/O: processes, their pipes, a file for what each prints about errors.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from pathlib import Path

from tests.lab.foreign.java.jvm import SMALL, Jvm, java_version
from tests.lab.foreign.served import Served
from tests.lab.real.processes.broker_processes import ENVIRONMENT, PROJECT

HERE = Path(__file__).parent
OPTIONS = ("-Xmx128m", *SMALL, f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}")
END_S = 150
"""Above `delivery.timeout.ms`, for which a producer tries to send what it has."""

Program = Callable[..., list[str]]
"""What starts a client: from its role, name, `bootstrap.servers` and history file to a command."""


class Library(StrEnum):
    """What the clients are made of."""

    JAVA = "java"
    LIBRDKAFKA = "librdkafka"

    @property
    def program(self) -> AbstractContextManager[Program]:
        """Compiled for the block, where the library needs it."""
        return _java() if self is Library.JAVA else _librdkafka()


@contextmanager
def _java() -> Iterator[Program]:
    java_version()
    jvm = Jvm(HERE, OPTIONS)
    try:
        yield lambda *arguments: jvm.command("StormClient", *arguments)
    finally:
        jvm.close()


@contextmanager
def _librdkafka() -> Iterator[Program]:
    yield lambda *arguments: [sys.executable, "-m", "tests.lab.real.client_storm.client", *arguments]


class ClientProcess:
    """A client in a process of its own. In a `with` block; `finish` ends it in order."""

    def __init__(self, program: Program, served: Served, role: str, name: str) -> None:
        self.name = name
        self._errors = (served.folder / f"{name}.err").open("wb")
        self._process = subprocess.Popen(
            program(role, name, served.bootstrap, str(served.folder / "history.jsonl")),
            cwd=PROJECT,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def await_ready(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == b"ready", self.name

    def finish(self) -> dict[str, int]:
        """End the process; its counters by name."""
        written, _ = self._process.communicate(b"end\n", END_S)
        assert not self._process.returncode, f"{self.name} ended with {self._process.returncode}"
        return dict(json.loads(written.splitlines()[-1]))

    def __enter__(self) -> ClientProcess:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._errors.close()
