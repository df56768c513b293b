"""The storm's clients, each a process of its own, with Kafka's Java library or with librdkafka.

I/O: processes, their pipes, a file for what each prints about errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from pathlib import Path

from tests.lab.foreign.java.jvm import SMALL, Jvm, java_version
from tests.lab.foreign.served import Served
from tests.lab.real.harness.children import Child, module

HERE = Path(__file__).parent
OPTIONS = ("-Xmx128m", *SMALL, f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}")

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
    yield lambda *arguments: module("tests.lab.real.client_storm.client", *arguments)


class ClientProcess(Child):
    """A client in a process of its own. In a `with` block; `finish` ends it in order, and has its counters by name."""

    def __init__(self, program: Program, served: Served, role: str, name: str) -> None:
        command = program(role, name, served.bootstrap, str(served.folder / "history.jsonl"))
        super().__init__(command, served.folder / f"{name}.err")
        self.name = name
