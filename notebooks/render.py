"""Runs notebooks and writes what they show: docs/notebooks/<name>.md with texts and outputs, and pictures beside it.

The code stays in the notebook: a page has the comment with which a cell begins, and names the cell's lines.

`python notebooks/render.py` renders all, each in a process of its own; `python notebooks/render.py 03_failover` some.
A cell's last expression is shown as Databricks shows it; frames of Spark by 20 rows, figures of matplotlib as PNG.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PAGES = ROOT / "docs" / "notebooks"
SOURCE, CELL, MAGIC = "# Databricks notebook source", "# COMMAND ----------", "# MAGIC"
LINES_SHOWN_MAX = 20
DPI = 80
TIMEOUT_S = 1_200


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of Python, of Markdown (`%md`), or of another magic, which is shown and not run.

    first_line, last_line  where it is in the notebook, from 1
    """

    kind: str
    text: str
    first_line: int
    last_line: int

    @property
    def comment(self) -> str:
        """The comment with which a cell of Python begins, in one line."""
        lines = []
        for line in self.text.splitlines():
            if not line.startswith("# "):
                break
            lines.append(line.removeprefix("# "))
        return " ".join(lines)


def notebooks() -> list[Path]:
    """All notebooks in order."""
    return sorted(HERE.glob("[0-9][0-9]_*.py"))


def cells_of(source: str) -> list[Cell]:
    """The cells of a notebook in Databricks' source format. ValueError for another text."""
    first, _, rest = source.partition("\n")
    if first != SOURCE:
        raise ValueError(f"a notebook begins with {SOURCE!r}, not {first!r}")
    found, line = [], 2
    for text in rest.split(CELL):
        first_line = line + len(text) - len(text.lstrip("\n"))
        line += text.count("\n")
        found.append(_cell(text.strip("\n"), first_line))
    return found


def _cell(text: str, first_line: int) -> Cell:
    last_line = first_line + text.count("\n")
    if not text.startswith(MAGIC):
        return Cell("python", text, first_line, last_line)
    lines = [line.removeprefix(MAGIC).removeprefix(" ") for line in text.splitlines()]
    name, _, first = lines[0].removeprefix("%").partition(" ")
    shown = "\n".join([first if name == "md" else lines[0], *lines[1:]]).strip()
    return Cell(name, shown, first_line, last_line)


def origin_of(notebook: Path) -> str:
    """The first line of a page: its notebook, and a checksum of that, by which a test sees that the page is old."""
    made_of = f"[notebooks/{notebook.name}](../../notebooks/{notebook.name})"
    return f"Made by `make notebooks` from {made_of}, CRC-32 `{crc32(notebook.read_bytes()):08x}`."


class Page:
    """The page of a notebook while it runs."""

    def __init__(self, notebook: Path) -> None:
        self._name = notebook.stem
        self._parts = [f"{origin_of(notebook)}\n"]
        self._pictures = 0

    def add(self, cell: Cell) -> None:
        """A cell of text as it is, one of Python by its comment and its lines."""
        if cell.kind == "python":
            self._parts.append(f"{cell.comment} *Lines {cell.first_line}-{cell.last_line}*\n".lstrip())
        else:
            self._parts.append(f"{cell.text}\n" if cell.kind == "md" else f"```text\n{cell.text}\n```\n")

    def show(self, printed: str) -> None:
        """Text that a cell printed."""
        lines = printed.replace(tempfile.gettempdir(), "…").rstrip().splitlines()
        if len(lines) > LINES_SHOWN_MAX:
            lines = [*lines[:LINES_SHOWN_MAX], f"… {len(lines) - LINES_SHOWN_MAX} more lines"]
        if lines:
            self._parts.append("```text\n" + "\n".join(line.rstrip() for line in lines) + "\n```\n")

    def picture(self, figure: Any) -> None:
        """A figure of matplotlib."""
        self._pictures += 1
        path = PAGES / f"{self._name}-{self._pictures}.png"
        figure.savefig(path, dpi=DPI, pil_kwargs={"optimize": True})
        self._parts.append(f"![picture {self._pictures} of {self._name}]({path.name})\n")

    def write(self) -> None:
        """The file."""
        (PAGES / f"{self._name}.md").write_text("\n".join(self._parts), encoding="utf-8")


def shown_as_text(value: Any) -> str:
    """What stands for a value: rows of a frame, the text of anything else."""
    if hasattr(value, "_jdf") or hasattr(value, "_plan"):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            value.show(truncate=60)
        return printed.getvalue()
    return str(value.to_string(index=False)) if hasattr(value, "to_string") else str(value)


def run(path: Path) -> None:
    """Run a notebook in this process and write its page. Whatever a cell raises is raised."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    page = Page(path)
    output = io.StringIO()

    def flush() -> None:
        page.show(output.getvalue())
        output.seek(0)
        output.truncate()

    def display(value: Any) -> None:
        if hasattr(value, "savefig"):
            flush()
            page.picture(value)
            plt.close(value)
        elif value is not None:
            print(shown_as_text(value))

    names: dict[str, Any] = {"__name__": "__main__", "display": display}
    for place, cell in enumerate(cells_of(path.read_text(encoding="utf-8")), start=1):
        page.add(cell)
        if cell.kind == "python":
            with contextlib.redirect_stdout(output):
                _run_cell(cell.text, f"{path.name} cell {place}", names, display)
            flush()
    page.write()


def _run_cell(text: str, name: str, names: dict[str, Any], display: Callable[[Any], None]) -> None:
    """Run a cell; its last expression is displayed."""
    tree = ast.parse(text, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    if last is not None:
        display(eval(compile(ast.Expression(last.value), name, "eval"), names))  # type: ignore[attr-defined]


def render(paths: Sequence[Path]) -> Iterator[tuple[Path, float, str]]:
    """Run each notebook in a process of its own; its path, its seconds, and what it wrote to stderr if it failed."""
    PAGES.mkdir(parents=True, exist_ok=True)
    for path in paths:
        for old in PAGES.glob(f"{path.stem}-*.png"):
            old.unlink()
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="stratalog-notebook-") as folder:
            environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": folder, "MPLBACKEND": "Agg"}
            command = [sys.executable, str(Path(__file__).resolve()), "--here", path.stem]
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        yield path, time.monotonic() - began, done.stderr if done.returncode else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 if a notebook failed."""
    parser = argparse.ArgumentParser(prog="render.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", nargs="*", help="a notebook, such as 03_failover; all if none is given")
    parser.add_argument("--here", action="store_true", help="run it in this process")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.name if not re.fullmatch(r"\w+", name) or not (HERE / f"{name}.py").exists()]
    if unknown:
        parser.error(f"no notebook {', '.join(unknown)}; there are {', '.join(path.stem for path in notebooks())}")
    paths = [HERE / f"{name}.py" for name in given.name] or notebooks()
    if given.here:
        for path in paths:
            run(path)
        return 0
    failed = 0
    for path, seconds, errors in render(paths):
        print(f"{path.stem}: {'failed' if errors else 'done'} in {seconds:.0f} s", flush=True)
        failed += bool(errors)
        print(errors[-4000:], end="", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
