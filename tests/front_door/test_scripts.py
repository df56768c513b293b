"""The one console script leads to a tool for each subcommand, and imports none before it is named."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from stratalog.jobs.command.tool import Command
from stratalog.jobs.strata import modules

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
HEAVY = {"pyarrow", "numpy", "obstore", "kio", "fastavro", "cramjam"}

SHOWN = """
import io, json, sys
from contextlib import redirect_stdout
from stratalog.jobs.strata import main
with redirect_stdout(io.StringIO()) as shown:
    code = main(json.loads(sys.argv[1]))
print(json.dumps([code, shown.getvalue(), sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def test_there_is_one_console_script() -> None:
    assert SCRIPTS == {"strata": "stratalog.jobs.strata:main"}


@pytest.mark.parametrize("name", modules())
def test_a_subcommand_leads_to_the_tool_of_its_name(name: str) -> None:
    command = import_module(modules()[name]).main
    assert isinstance(command, Command)
    assert command.tool == name


def test_every_tool_is_a_subcommand() -> None:
    folders = [ROOT / "jobs" / package for package in ("topics", "records", "replicas")]
    files = [file for folder in folders for file in folder.glob("[a-z]*.py")]
    found = {f"stratalog.jobs.{file.parent.name}.{file.stem}" for file in files}
    assert found <= set(modules().values())


@pytest.mark.parametrize("arguments", ["[]", '["--help"]', '["--version"]'])
def test_the_overview_imports_no_heavy_package(arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOWN, arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    code, shown, loaded = json.loads(done.stdout)
    assert code == 0
    assert "stratalog 0." in shown if "version" in arguments else all(f"  {name} " in shown for name in modules())
    assert HEAVY & set(loaded) == set()
