"""`pytest tests/scenarios --rewrite` writes what the scenarios show now into their files, to be read in the diff."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the scenarios' output into their files")
