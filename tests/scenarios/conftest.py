"""`pytest tests/scenarios --rewrite` writes the present output of the scenarios into their files."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the scenarios' output into their files")
