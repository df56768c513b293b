"""The Go programs. I/O: the go command, and a process for each run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.lab.foreign.compiled import Programs

SOURCES = Path(__file__).parent
EXECUTABLE = Path(sys.prefix) / "foreign-go" / "clients"
GO = Programs(
    "Go",
    SOURCES,
    asks=("go", "version"),  # from 1.21 on go may fetch a newer one for itself
    shows=r"go version go1\.",
    minor_min=26,
    builds=("go", "build", "-o", str(EXECUTABLE), "."),
    build_s_max=900,
    built=EXECUTABLE,
)


def version(module: str) -> str:
    """The version that go.mod requires of a module."""
    found = re.search(rf"{re.escape(module)} v(\S+)", (SOURCES / "go.mod").read_text())
    assert found is not None, module
    return found[1]
