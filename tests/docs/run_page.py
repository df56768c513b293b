"""Runs the code blocks of one page unchanged, in order: `python -m tests.docs.run_page README.md`.

I/O: this interpreter runs the Python blocks, one bash the shell blocks, both in the working directory. The package's
script is made there in `.bin`. Exit code 1 when a block fails, after the output of the blocks up to it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

from stratalog.jobs.command.tool import PROGRAM
from tests.docs.pages import RUN, SERVE, Block, read_page

READY = "Ctrl-C"
"""The text that a command which stays up prints when it is up: how to end it."""
READY_S = 60
END_S = 30
_MARK = "--- end of block ---"
_SCRIPT = """#!{python}
import sys

from stratalog.jobs.strata import main

sys.exit(main())
"""


class Shell:
    """One bash for the blocks of a page, which keeps variables. A command that fails ends it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment,
        )  # fmt: skip
        self._send("set -eo pipefail")

    def _send(self, line: str) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{line}\n")
        self._bash.stdin.flush()

    def run(self, text: str) -> None:
        """Run a block and print its output. RuntimeError when a command of it fails."""
        block = Path(".bin/block.sh")
        block.write_text(text, encoding="utf-8")
        self._send(f"source {block} < /dev/null; echo '{_MARK}'")
        assert self._bash.stdout is not None
        for line in self._bash.stdout:
            if line.rstrip("\n").endswith(_MARK):
                return
            print(line, end="", flush=True)
        raise RuntimeError(f"a command of the block failed with exit code {self._bash.wait()}")


class Servers:
    """Commands that stay up, each in a process group of its own."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, text: str) -> None:
        """Start a block; returns when it is up. RuntimeError when it ends before, or does not come up in time."""
        log = Path(f".bin/serve-{len(self._running)}.log")
        with log.open("wb") as output:
            self._running.append(
                subprocess.Popen(
                    ["bash", "--norc", "-ec", text], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                    env=self._environment, start_new_session=True,
                )
            )  # fmt: skip
        deadline = time.monotonic() + READY_S
        while READY not in log.read_text(encoding="utf-8"):
            if self._running[-1].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"did not come up:\n{log.read_text(encoding='utf-8')}")
            time.sleep(0.1)
        print(log.read_text(encoding="utf-8"), flush=True)

    def stop(self) -> None:
        """Stop all of them; those that do not end in time are killed."""
        for server in self._running:
            os.killpg(server.pid, signal.SIGTERM)
        for server in self._running:
            try:
                server.wait(END_S)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)


def run_python(name: str, block: Block, namespace: dict[str, object]) -> None:
    """Run a block; its traceback shows the page's line numbers."""
    exec(compile("\n" * (block.first_line - 1) + block.text, name, "exec"), namespace)


def make_script(folder: Path) -> None:
    """Make the script that an installation makes."""
    folder.mkdir()
    (folder / PROGRAM).write_text(_SCRIPT.format(python=sys.executable), encoding="utf-8")
    (folder / PROGRAM).chmod(0o755)


def run_page(name: str) -> int:
    """Run a page's blocks; the exit code."""
    folder = Path(".bin")
    make_script(folder)
    search = [str(folder.absolute()), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    environment = os.environ | {"PATH": os.pathsep.join(search)}
    shell, servers = Shell(environment), Servers(environment)
    namespace: dict[str, object] = {"__name__": "__main__"}
    began = time.monotonic()
    try:
        for block in read_page(name).blocks:
            if (block.language, block.handling) == ("python", RUN):
                run_python(name, block, namespace)
            elif (block.language, block.handling) == ("sh", RUN):
                shell.run(block.text)
            elif block.handling == SERVE:
                servers.start(block.text)
            else:
                continue
            print(f"=== {time.monotonic() - began:.1f} s: {name}:{block.first_line} ran", flush=True)
    except Exception:  # noqa: BLE001  # whatever a page's code raises
        traceback.print_exc()
        print(f"{name}:{block.first_line}: the block that failed", file=sys.stderr)
        return 1
    finally:
        servers.stop()
    return 0


if __name__ == "__main__":
    code = run_page(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a page may end with a cluster that still runs
