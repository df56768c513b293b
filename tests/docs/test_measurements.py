"""The rows of docs/measurements.json are whole, and what is cited by an id is there."""

from __future__ import annotations

import json
import re

import pytest

from tests.docs.pages import ROOT, Page, pages, read_page

ROWS: list[dict[str, str]] = json.loads((ROOT / "docs/measurements.json").read_text(encoding="utf-8"))
IDS = [row["id"] for row in ROWS]
FIELDS = {"id", "what", "value", "unit", "conditions", "conclusion", "date", "command"}
SUBJECTS = "|".join(sorted({name.rpartition("-")[0] for name in IDS}))
CITED = re.compile(rf"(?<![\w/-])((?:{SUBJECTS})-\d+)(?![\w-])")


def test_a_row_says_what_was_measured_and_when() -> None:
    assert len(set(IDS)) == len(IDS)
    for row in ROWS:
        assert set(row) <= FIELDS, row["id"]
        assert all(row.get(name) for name in ("id", "what", "value", "date")), row["id"]
        assert re.fullmatch(r"2026-\d\d-\d\d", row["date"]), row["id"]


@pytest.mark.parametrize(
    "page", [page for page in pages() if CITED.search(page.prose)], ids=lambda page: str(page.path)
)
def test_rows_that_a_page_cites_are_there(page: Page) -> None:
    assert [name for name in CITED.findall(page.prose) if name not in IDS] == []


def test_the_page_cites_every_subject() -> None:
    cited = {name.rpartition("-")[0] for name in CITED.findall(read_page("docs/measurements.md").prose)}
    assert cited == set(SUBJECTS.split("|"))
