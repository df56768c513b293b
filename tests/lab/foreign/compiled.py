"""Programs in a compiled language: one executable for all of them. I/O: its compiler, and a process for each run."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RUN_S_MAX = 170


class ProgramError(AssertionError):
    """A program ended with another exit code than 0."""


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of one language.

    sources    the folder that the compiler runs in
    asks       the command that prints the compiler's version
    shows      the pattern of what stands there before its minor number
    minor_min  the oldest version that can build them, as 1.<minor>
    builds     the command that builds `built`, the executable, in `build_s_max`: again only what has changed
    """

    language: str
    sources: Path
    asks: tuple[str, str]
    shows: str
    minor_min: int
    builds: Sequence[str]
    build_s_max: int
    built: Path

    @property
    def left_out(self) -> str:
        """The line for a machine without the compiler."""
        command = self.asks[0]
        return (
            f"the clients in {self.language} are left out: the command {command}, 1.{self.minor_min} or newer, was not "
            "found"
        )

    def is_new_enough(self, printed: str) -> bool:
        """Of what the compiler prints of its version."""
        found = re.match(rf"{self.shows}(\d+)", printed)
        return found is not None and int(found[1]) >= self.minor_min

    def can_be_built(self) -> bool:
        """Whether there is a compiler that can build them. It runs where they are: it may fetch what they ask for."""
        if shutil.which(self.asks[0]) is None:
            return False
        done = subprocess.run(self.asks, cwd=self.sources, capture_output=True, text=True, check=False)
        return done.returncode == 0 and self.is_new_enough(done.stdout)

    def build(self) -> None:
        """The executable of the newest sources. ProgramError with what the compiler complained of."""
        done = subprocess.run(
            self.builds, cwd=self.sources, capture_output=True, text=True, timeout=self.build_s_max, check=False
        )
        if done.returncode:
            raise ProgramError(f"{' '.join(self.builds[:2])}: {done.stderr}")

    def run(self, client: str, program: str, bootstrap: str, **given: str) -> None:
        """Run one that was built. ProgramError with what it complained of, and all that it printed as a note."""
        command = [str(self.built), client, program, bootstrap, *(f"{name}={value}" for name, value in given.items())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
        if done.returncode:
            error = ProgramError(f"{program}: {done.stderr.strip()}")
            error.add_note(done.stdout)
            raise error
