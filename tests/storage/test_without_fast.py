"""The product is correct without what only makes it faster: storage's tests pass without the `_fast` twins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
FOLDERS = ("storage/files", "contract")
ALL_FOLDERS = ("storage/delta", "storage/log")
"""Their tests see what the twins write through a whole log; `make test-long` runs them."""
IN_MEMORY = TESTS / "storage/log/test_machine.py"
"""The longest test, which uses no twin."""


@pytest.mark.parametrize(
    "folders", [FOLDERS, pytest.param(ALL_FOLDERS, marks=[pytest.mark.long, pytest.mark.timeout(600)])], ids="-".join
)
def test_storage_is_correct_without_its_fast_twins(folders: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "--ignore-glob=*_fast.py", f"--ignore={IN_MEMORY}"]
    run = subprocess.run(
        [*command, "-p", "no:cacheprovider", *(str(TESTS / folder) for folder in folders)],
        cwd=TESTS.parent,
        env={**os.environ, "STRATALOG_TESTS_WITHOUT_FAST": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-5_000:] + run.stderr[-1_000:]
