"""Every console script leads to a program, and every program shows its `--help` by `python -m`."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from stratalog.jobs.command.flags import STAYS_UP, Command, module_of

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
PROGRAMS = (*STAYS_UP, *(file.stem for file in sorted((ROOT / "jobs" / "tools").glob("[a-z]*.py"))))

SHOW_HELP = """
import io, runpy, sys
from contextlib import redirect_stdout
for module in sys.argv[1:]:
    sys.argv = [module, "--help"]
    with redirect_stdout(io.StringIO()) as shown:
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            code = "no exit code"
        except SystemExit as end:
            code = end.code or 0
    print(module, code, shown.getvalue().split()[:4])
"""


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_console_script_leads_to_a_program(script: str) -> None:
    module, _, name = SCRIPTS[script].partition(":")
    command = getattr(importlib.import_module(module), name)
    assert isinstance(command, Command)
    assert module.removesuffix(".__main__") == module_of(command.tool)
    assert script == f"strata-{command.tool.replace('_', '-')}".removesuffix("-backup")


def test_every_program_has_a_console_script() -> None:
    assert {target.removesuffix(":main").removesuffix(".__main__") for target in SCRIPTS.values()} == set(
        map(module_of, PROGRAMS)
    )


def test_every_program_shows_its_help() -> None:
    modules = [module_of(program) for program in PROGRAMS]
    done = subprocess.run(
        [sys.executable, "-c", SHOW_HELP, *modules], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.splitlines() == [f"{module} 0 ['usage:', 'python', '-m', '{module}']" for module in modules], (
        done.stderr
    )
