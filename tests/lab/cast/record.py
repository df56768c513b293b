"""`make cast`: types commands into a shell of its own and records what its terminal shows, as asciinema's cast.

I/O: a pseudo-terminal, a folder of its own with a virtual environment, the network (pip). A cast of version 2 is a line
of JSON with the terminal's size, then a line for each piece of output: seconds, "o", text. Waits are cut to a second.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path

WIDTH, HEIGHT = 100, 30
PROMPT = b"$ "
KEY_S = 0.03
WAIT_S = 180
IDLE_S_MAX = 1.0
READ_BYTES = 1 << 16
SQL = "SELECT base_offset + offset_delta AS record, CAST(value AS VARCHAR) AS value FROM self"
COMMANDS = (
    "pip install -q ./{wheel} polars deltalake",
    "strata cluster data --topic events:1 > cluster.log 2>&1 &",
    "seq 3 | strata produce --root data/metadata events",
    "strata consume --root data/metadata events --from-beginning --max-messages 3",
    f"python -c \"import polars; print(polars.scan_delta('data/broker-1/events-0').sql('{SQL}').collect())\"",
)
"""The first thirty seconds: install, cluster, produce, consume, SQL."""


class Terminal:
    """A shell in a pseudo-terminal, and all that it shows with the time since its start."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.shown: list[tuple[float, bytes]] = []
        self._begun_s = time.monotonic()
        self._child, self._terminal = pty.fork()
        if self._child == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment)
        ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        self.wait_for_prompt()

    def run(self, command: str) -> None:
        """Type a command, and wait until the prompt is there again."""
        for key in command:
            os.write(self._terminal, key.encode())
            self._read(KEY_S)
        os.write(self._terminal, b"\n")
        self._read(0.2)
        self.wait_for_prompt()

    def wait_for_prompt(self) -> None:
        """RuntimeError when it does not come."""
        end_s = time.monotonic() + WAIT_S
        while not b"".join(text for _, text in self.shown[-50:]).endswith(PROMPT):
            if time.monotonic() > end_s:
                raise RuntimeError(f"no prompt within {WAIT_S} s; shown: {self.shown[-5:]}")
            self._read(0.1)

    def _read(self, timeout_s: float) -> None:
        end_s = time.monotonic() + timeout_s
        while (left_s := end_s - time.monotonic()) > 0:
            ready, _, _ = select.select([self._terminal], [], [], left_s)
            if ready:
                self.shown.append((time.monotonic() - self._begun_s, os.read(self._terminal, READ_BYTES)))

    def close(self) -> None:
        """End the shell and what it started."""
        os.write(self._terminal, b"kill %1; wait; exit\n")
        end_s = time.monotonic() + 20
        while os.waitpid(self._child, os.WNOHANG) == (0, 0):
            if time.monotonic() > end_s:
                os.kill(self._child, signal.SIGKILL)
            time.sleep(0.05)
        os.close(self._terminal)


def cast_of(shown: list[tuple[float, bytes]], title: str) -> str:
    """The cast: times with waits cut, texts as they came."""
    lines = [json.dumps({"version": 2, "width": WIDTH, "height": HEIGHT, "title": title})]
    at_s, before_s = 0.0, 0.0
    for time_s, text in shown:
        at_s += min(time_s - before_s, IDLE_S_MAX)
        before_s = time_s
        lines.append(json.dumps([round(at_s, 3), "o", text.decode(errors="replace")], ensure_ascii=False))
    return "\n".join(lines) + "\n"


def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition."""
    end_s = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > end_s:
            raise RuntimeError(f"waited {WAIT_S} s")
        time.sleep(0.05)


def record(wheel: Path, folder: Path) -> list[tuple[float, bytes]]:
    """Run the commands in `folder`; what the terminal showed."""
    shutil.copy(wheel, folder)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    path = f"{folder}/venv/bin:{os.environ['PATH']}"
    environment = {**kept, "PATH": path, "PS1": "$ ", "TERM": "xterm-256color", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    terminal = Terminal(folder, environment)
    try:
        for number, command in enumerate(COMMANDS):
            terminal.run(command.format(wheel=wheel.name))
            if number == 1:
                until(lambda: "Running." in (folder / "cluster.log").read_text())
    finally:
        terminal.close()
    return terminal.shown


def main() -> None:
    """Write the cast."""
    parser = argparse.ArgumentParser(description="records docs/start.cast")
    parser.add_argument("cast", type=Path)
    given = parser.parse_args()
    (wheel,) = Path("dist").glob("*.whl")
    with tempfile.TemporaryDirectory() as folder:
        shown = record(wheel.resolve(), Path(folder))
    given.cast.write_text(cast_of(shown, "stratalog: install, cluster, produce, consume, SQL"), encoding="utf-8")


if __name__ == "__main__":
    main()
