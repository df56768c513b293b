"""`make quick` leaves out tests by name: each of them exists."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.conftest import NOT_QUICK, NOT_QUICK_FOLDERS

ROOT = Path(__file__).parents[1]


def names_in(file: Path) -> set[str]:
    """Functions and classes of a file; methods that a class inherits are not among them."""
    return {
        node.name
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if hasattr(node, "name") and node.name
    }


def test_each_test_that_is_left_out_exists() -> None:
    absent = []
    for line in NOT_QUICK.read_text(encoding="utf-8").split():
        path, *names = line.split("::")
        file = ROOT / path
        if not names and file.exists():
            continue
        own = names_in(file) if file.exists() else set()
        is_state_machine = len(names) == 2 and names[1] == "runTest"
        if not (file.exists() and (names[-1] in own or is_state_machine)):
            absent.append(line)
    assert absent == []


def test_the_folders_that_are_left_out_exist() -> None:
    assert [name for name in NOT_QUICK_FOLDERS if not (ROOT / "tests" / name).is_dir()] == []
