"""The documentation's code works as it stands: blocks run, commands, flags and make targets exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import FIRST_COMPILER_ONLY
from tests.docs.commands import commands, faults
from tests.docs.pages import CHECK, ROOT, RUN, Page, pages

SPARK_WORDS = re.compile(r"\bspark\b")
PAGES = list(pages())
USER_PAGES = [page for page in PAGES if page.path == Path("README.md") or page.path.parent == Path("docs")]
RUN_PAGES = [page for page in USER_PAGES if page.is_run]
"""Pages for contributors, at the root and below docs/design, are only checked."""
LONG_PAGES = {Path("docs/pipelines.md"), Path("docs/spark.md"), Path("docs/typed-tables.md")}
"""Pages that start many queries and a second JVM: `make test-long` runs them."""


def uses_spark(page: Page) -> bool:
    """Whether a block that is run needs a Spark session."""
    return any(block.handling == RUN and SPARK_WORDS.search(block.text) for block in page.blocks)


def as_parameter(page: Page) -> object:
    marks = [pytest.mark.spark] if uses_spark(page) else []
    if page.path in LONG_PAGES:
        marks.append(pytest.mark.long)
    return pytest.param(page, id=str(page.path), marks=marks)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [as_parameter(page) for page in RUN_PAGES])
def test_the_blocks_of_a_page_run_in_order(page: Page, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    environment = os.environ | {
        "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "tmp"), "MPLBACKEND": "Agg", "PYTHONUNBUFFERED": "1",
        "JDK_JAVA_OPTIONS": FIRST_COMPILER_ONLY,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.run_page", str(page.path)],
        env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=800,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    assert "Traceback" not in done.stdout, done.stdout[-6000:]


def test_every_user_page_with_code_is_run() -> None:
    """A page whose blocks are all only checked would claim more than it shows."""
    run = {str(page.path) for page in RUN_PAGES}
    assert {"README.md", "docs/spark.md", "docs/produce-and-consume.md", "docs/start.md"} <= run


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.path))
def test_commands_that_are_not_run_would_be_accepted(page: Page) -> None:
    checked = [block for block in page.blocks if block.handling == CHECK and block.language in ("", "sh", "text")]
    found = [
        f"{page.path}:{block.first_line}: {fault}"
        for block in checked
        if block.language == "sh" or looks_like_commands(block.text)
        for command in commands(block.text)
        for fault in faults(command)
    ]
    assert found == []


def looks_like_commands(text: str) -> bool:
    """Of a block without a language: each line begins with a command of ours."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return all(re.match(r"(\$ )?(make |strata |\S*python\S* -m |spark-submit )", line) for line in lines)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.path))
def test_commands_in_running_text_exist(page: Page) -> None:
    ours = [span for span in page.spans if re.match(r"(make|strata [a-z]|python -m|\.venv/bin/python -m)", span)]
    spans = [span for span in ours if "*" not in span and "<" not in span and span != "make"]
    found = [f"{page.path}: {fault}" for span in spans for fault in faults(shlex.split(span), is_whole=False)]
    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.path))
def test_python_that_is_not_run_compiles(page: Page) -> None:
    for block in page.blocks:
        if block.language == "python" and (block.handling == CHECK or page not in RUN_PAGES):
            compile("\n" * (block.first_line - 1) + block.text, str(page.path), "exec")
