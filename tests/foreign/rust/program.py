"""The Rust programs: one executable for all of them. I/O: the cargo command, and a process for each run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent
TARGET = Path(sys.prefix) / "foreign-rust"
BUILD_S_MAX, RUN_S_MAX = 1_800, 170
MINOR_MIN = 85
LEFT_OUT = f"the clients in Rust are left out: the command cargo, 1.{MINOR_MIN} or newer, was not found"


class ProgramError(AssertionError):
    """A program ended with another exit code than 0."""


@cache
def has_cargo() -> bool:
    """Whether there is a cargo command that can build the programs."""
    if shutil.which("cargo") is None:
        return False
    done = subprocess.run(["cargo", "--version"], cwd=SOURCES, capture_output=True, text=True, check=False)
    return done.returncode == 0 and is_new_enough(done.stdout)


def is_new_enough(printed: str) -> bool:
    """Of what `cargo --version` prints."""
    found = re.match(r"cargo 1\.(\d+)", printed)
    return found is not None and int(found[1]) >= MINOR_MIN


@cache
def executable() -> Path:
    """Of the newest sources, with the crates of Cargo.lock; cargo builds again only what has changed."""
    command = ["cargo", "build", "--quiet", "--locked", "--target-dir", str(TARGET)]
    done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, timeout=BUILD_S_MAX, check=False)
    if done.returncode:
        raise ProgramError(f"cargo build: {done.stderr}")
    return TARGET / "debug" / "clients"


def version(crate: str) -> str:
    """The version of a crate in Cargo.lock."""
    found = re.search(rf'^name = "{crate}"\nversion = "(.+)"$', (SOURCES / "Cargo.lock").read_text(), re.MULTILINE)
    assert found is not None, crate
    return found[1]


def run(client: str, program: str, bootstrap: str, **given: str) -> None:
    """Run one. ProgramError with what it printed."""
    command = [str(executable()), client, program, bootstrap, *(f"{name}={value}" for name, value in given.items())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
    if done.returncode:
        error = ProgramError(f"{program}: {done.stderr.strip()}")
        error.add_note(done.stdout)
        raise error
