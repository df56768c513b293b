"""The Rust programs. I/O: the cargo command, and a process for each run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.lab.foreign.compiled import Programs

SOURCES = Path(__file__).parent
TARGET = Path(sys.prefix) / "foreign-rust"
RUST = Programs(
    "Rust",
    SOURCES,
    asks=("cargo", "--version"),
    shows=r"cargo 1\.",
    minor_min=85,
    builds=("cargo", "build", "--quiet", "--locked", "--target-dir", str(TARGET)),
    build_s_max=1_800,
    built=TARGET / "debug" / "clients",
)


def version(crate: str) -> str:
    """The version of a crate in Cargo.lock."""
    found = re.search(rf'^name = "{crate}"\nversion = "(.+)"$', (SOURCES / "Cargo.lock").read_text(), re.MULTILINE)
    assert found is not None, crate
    return found[1]
