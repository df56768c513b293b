"""Decisions have one form, the index has each of them, and whoever names one by its number finds it."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT, Page, pages, read_page
from tests.test_tidy import project_files

PARTS = ["Context", "Alternatives", "Decision", "Consequences", "Where"]
KEPT = [page for page in pages() if re.match(r"docs/decisions/\d{4}-", str(page.path))]
NUMBERS = [page.path.name[:4] for page in KEPT]
INDEX = read_page("docs/decisions/README.md")
FOLDED = re.findall(r"^\| ([\d, ]+) \| (?:\[[^\]]+\]\()?([\w./-]+)\)? \|$", INDEX.text, re.MULTILINE)
"""Numbers, and the decision or page that has them now."""
REFERENCE = re.compile(r"\b[Dd]ecisions? (\d+)\b")
IN_DESIGN = re.compile(r"(?<!\[)\b(0\d{3})\b(?!\])")
"""A number in the text of a design page, not in a link."""


def folded() -> dict[str, str]:
    return {number: page for numbers, page in FOLDED for number in numbers.split(", ")}


@pytest.mark.parametrize("page", KEPT, ids=lambda page: str(page.path.name))
def test_a_decision_has_the_parts_of_one(page: Page) -> None:
    assert page.text.startswith(f"# {page.path.name[:4]} ")
    assert re.findall(r"^\*\*(\w+)\.\*\* \S", page.text, re.MULTILINE) == PARTS


def test_the_index_lists_each_decision_once_by_its_title() -> None:
    listed = re.findall(r"^- \[(\d{4})\]\(([\w.-]+)\) (.+)$", INDEX.text, re.MULTILINE)
    titles = [(page.path.name[:4], page.path.name, page.text.splitlines()[0][7:]) for page in KEPT]
    assert sorted(listed) == titles


def test_a_folded_decision_is_on_one_page_that_names_it_or_took_it_in() -> None:
    numbers = [number for each, _ in FOLDED for number in each.split(", ")]
    assert len(set(numbers)) == len(numbers)
    assert set(numbers).isdisjoint(NUMBERS)
    for number, page in folded().items():
        if page not in NUMBERS:
            assert number in (ROOT / "docs/decisions" / page).read_text(encoding="utf-8"), number


def test_a_decision_that_is_named_by_its_number_is_there() -> None:
    known = {int(number) for number in [*NUMBERS, *folded()]}
    paths = [path for path in project_files() if path.suffix in (".md", ".py", ".txt", ".json", ".toml")]
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in paths}
    texts |= {page.path: page.text for page in pages()}
    found = [(path, reference[1]) for path, text in texts.items() for reference in REFERENCE.finditer(text)]
    assert [f"{path}: {number}" for path, number in found if int(number) not in known] == []
    design = [page for page in pages() if page.path.parent.name == "design"]
    named = [(page.path, number) for page in design for number in IN_DESIGN.findall(page.prose)]
    assert [f"{path}: {number}" for path, number in named if number not in {*NUMBERS, *folded()}] == []
    assert len(found) + len(named) > 50
