"""A JVM that runs Kafka's tools, and the Java programs of this package, one after the other.

I/O: Maven's jars, javac and java in processes of their own.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.lab.bench.peer.kafka import HERE as PEER
from tests.lab.bench.peer.kafka import LIBS, fetch_jars, version
from tests.lab.foreign.served import Served

SOURCES = Path(__file__).parent
TOOLS = "org.apache.kafka.tools"
TOOL_S_MAX = 150
SMALL = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true")
"""Options of a JVM that starts fast, beside others."""
OPTIONS = ("-Xmx384m", *SMALL, f"-Dlog4j2.configurationFile={PEER / 'log4j2-tools.xml'}")


def java_version() -> str:
    """Kafka's version, of jars that are fetched if they are not there."""
    fetch_jars()
    return version()


class ToolError(AssertionError):
    """A tool ended with another exit code than it should."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A tool that has ended: its exit code, what it printed to standard output and to standard error."""

    code: int
    out: str
    errors: str


class Jvm:
    """`ToolServer` in a process, started with the first tool, and again after one that took too long.

    more     a folder with further Java programs than those of this package
    options  of every JVM
    """

    def __init__(self, more: Path | None = None, options: Sequence[str] = OPTIONS) -> None:
        self._options = options
        self._folder = tempfile.TemporaryDirectory(prefix="foreign-java-")
        self._process: subprocess.Popen[str] | None = None
        folders = [SOURCES] if more is None else [SOURCES, more]
        files = [str(file) for folder in folders for file in sorted(folder.glob("*.java"))]
        command = ["javac", "-proc:none", "-d", self._folder.name, "-cp", f"{LIBS}/*", *files]
        subprocess.run(command, check=True)

    def command(self, main: str, *arguments: str) -> list[str]:
        """What starts a JVM of its own with one of the programs."""
        return ["java", *self._options, "-cp", f"{self._folder.name}:{LIBS}/*", main, *arguments]

    def run_alone(self, main: str, *arguments: str, given: str = "") -> Ended:
        """As `run`, in a JVM of its own, for a tool that does its last work while its JVM ends."""
        done = subprocess.run(
            self.command(main, *arguments), input=given, capture_output=True, text=True, timeout=TOOL_S_MAX, check=False
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def run(self, main: str, *arguments: str, given: str = "") -> Ended:
        """Run a tool. TimeoutError after `TOOL_S_MAX`."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"main": main, "arguments": arguments, "given": given}) + "\n")
        process.stdin.flush()
        timer = threading.Timer(TOOL_S_MAX, process.kill)
        timer.start()
        answer = process.stdout.readline()
        timer.cancel()
        if not answer:
            raise TimeoutError(f"{main.rsplit('.', maxsplit=1)[-1]} {' '.join(arguments)}: no end")
        return Ended(**json.loads(answer))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self._folder.cleanup()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self.command("ToolServer"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        return self._process


@cache
def jvm() -> Jvm:
    """The one of this process."""
    fetch_jars()
    return Jvm()


def close_jvm() -> None:
    jvm().close()
    jvm.cache_clear()


def tool(served: Served, main: str, *arguments: object, given: str = "", code: int = 0, alone: bool = False) -> str:
    """Run a tool of Kafka with the cluster's `--bootstrap-server`; its output, with that of errors when it fails.

    main   its class, below `org.apache.kafka.tools` if it is not of the core's packages
    code   the exit code it must have: ToolError for another one
    alone  in a JVM of its own
    """
    name = main if main.startswith("kafka.") else f"{TOOLS}.{main}"
    run = jvm().run_alone if alone else jvm().run
    ended = run(name, "--bootstrap-server", served.bootstrap, *map(str, arguments), given=given)
    text = ended.out if not ended.code else f"{ended.out}\n{ended.errors}"
    if ended.code != code:
        raise ToolError(f"exit code {ended.code} of {main} {' '.join(map(str, arguments))}: {text}")
    return text
