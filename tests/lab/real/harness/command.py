"""What the commands of real runs share: options, a folder, the report of a result, the exit code.

I/O: a folder, the standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from tests.lab.real.harness.faults import show
from tests.lab.real.harness.history import SHOWN_FINDINGS, Finding

if TYPE_CHECKING:
    from dataclasses import Field


class Result(Protocol):
    """A dataclass of what a run found."""

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]

    @property
    def is_clean(self) -> bool: ...


def options(doc: str | None, *, seed: int | None = None, report: str = "") -> argparse.ArgumentParser:
    """A parser with `--folder`, `--seed` if there is one, and `--report` if it has files of this name."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="keep the files of the run here (a temporary folder, deleted)")
    if seed is not None:
        parser.add_argument("--seed", type=int, default=seed)
    if report:
        parser.add_argument("--report", type=Path, help=f"folder for {report}")
    return parser


@contextmanager
def work_folder(given: Path | None, name: str) -> Iterator[Path]:
    """`given`, which is made; else a temporary folder, which is deleted unless an error ends the block."""
    folder = given or Path(tempfile.mkdtemp(prefix=f"stratalog-{name}-"))
    folder.mkdir(parents=True, exist_ok=True)
    yield folder
    if given is None:
        shutil.rmtree(folder, ignore_errors=True)


def concluded(result: Result, **more: object) -> int:
    """Print findings and the result as JSON; the exit code, 0 when nothing was found."""
    values = {each.name: getattr(result, each.name) for each in fields(result)} | more
    findings: list[Finding] = getattr(result, "findings", [])
    show_findings(findings)
    if findings:
        values["findings"] = len(findings)
    show(json.dumps({**values, "is_clean": result.is_clean}, indent=1, default=asdict))
    return 0 if result.is_clean else 1


def show_findings(findings: list[Finding]) -> None:
    """The first ones, a line each."""
    for finding in findings[:SHOWN_FINDINGS]:
        show(f"{finding.rule}: {finding.text}")


def write_report(folder: Path, name: str, text: str, values: object) -> None:
    """`<NAME>.md` with a text and `<name>.json` with values."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    (folder / f"{name.upper()}.md").write_text(text, encoding="utf-8")


def machine_of(folder: Path) -> str:
    """Its processors, the file system below `folder`, and how busy it was over the last 15 minutes."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    below = [(len(place), kind) for place, kind in mounts if folder.resolve().is_relative_to(place)]
    return f"{os.cpu_count()} processors, roots on {max(below)[1]}, load average {os.getloadavg()[2]:.0f}"
