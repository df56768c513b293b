"""The examples in docstrings are what the code does."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

from tests.test_tidy import LIBRARY, ROOT, python_files

ROOMS = (*LIBRARY, "jobs")
WITH_EXAMPLES = [path for path in python_files(*ROOMS) if ">>> " in (ROOT / path).read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=str)
def test_the_examples_of_a_module_hold(path: Path) -> None:
    module = import_module("stratalog." + ".".join(path.with_suffix("").parts))
    outcome = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert outcome.failed == 0
