"""The notebooks run as plain scripts, as they do on Databricks, and leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import FIRST_COMPILER_ONLY

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_as_a_script(notebook: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), "MPLBACKEND": "Agg"}
    environment["JDK_JAVA_OPTIONS"] = FIRST_COMPILER_ONLY
    done = subprocess.run(
        [sys.executable, str(notebook)],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert [line for line in done.stderr.splitlines() if "Traceback" in line or "ERROR" in line] == []
    assert list(tmp_path.glob("stratalog-quickstart-*")) == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_in_databricks_source_format(notebook: Path) -> None:
    lines = notebook.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# Databricks notebook source"
    assert lines.count("# COMMAND ----------") > 5
