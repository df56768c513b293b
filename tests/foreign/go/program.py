"""The Go programs: one executable for all of them. I/O: the go command, and a process for each run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent
EXECUTABLE = Path(sys.prefix) / "foreign-go" / "clients"
BUILD_S_MAX, RUN_S_MAX = 900, 170
MINOR_MIN = 26
LEFT_OUT = f"the clients in Go are left out: the command go, 1.{MINOR_MIN} or newer, was not found"


class ProgramError(AssertionError):
    """A program ended with another exit code than 0."""


@cache
def has_go() -> bool:
    """Whether there is a go command that can build the programs; from 1.21 on it may fetch a newer one for itself."""
    if shutil.which("go") is None:
        return False
    done = subprocess.run(["go", "version"], cwd=SOURCES, capture_output=True, text=True, check=False)
    return done.returncode == 0 and is_new_enough(done.stdout)


def is_new_enough(printed: str) -> bool:
    """Of what `go version` prints."""
    found = re.match(r"go version go1\.(\d+)", printed)
    return found is not None and int(found[1]) >= MINOR_MIN


@cache
def executable() -> Path:
    """Of the newest sources; the go command builds again only what has changed."""
    command = ["go", "build", "-o", str(EXECUTABLE), "."]
    done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, timeout=BUILD_S_MAX, check=False)
    if done.returncode:
        raise ProgramError(f"go build: {done.stderr}")
    return EXECUTABLE


def version(module: str) -> str:
    """The version that go.mod requires of a module."""
    found = re.search(rf"{re.escape(module)} v(\S+)", (SOURCES / "go.mod").read_text())
    assert found is not None, module
    return found[1]


def run(client: str, program: str, bootstrap: str, **given: str) -> None:
    """Run one. ProgramError with the last line that it printed, and all of it as a note."""
    command = [str(executable()), client, program, bootstrap, *(f"{name}={value}" for name, value in given.items())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
    if done.returncode:
        error = ProgramError(f"{program}: {done.stderr.strip()}")
        error.add_note(done.stdout)
        raise error
