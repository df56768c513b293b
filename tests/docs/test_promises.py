"""The promises of docs/design/promises.md are numbered, and what refers to one by its number finds it."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT
from tests.test_tidy import project_files

PROMISES = "docs/design/promises.md"
HEADING = re.compile(r"^## Promise (\d+): \S", re.MULTILINE)
REFERENCE = re.compile(r"\b[Pp]romises? (\d+(?:(?:, | and | to |, and )\d+)*)")
OUTSIDE = re.compile(r"DESIGN(?:\.md)? ?§|\(R\d{1,2}\)|\b[Hh]azards? \d|\bROWS R\d")
"""References to documents that are not in the tree."""


def numbers() -> list[int]:
    return [int(number) for number in HEADING.findall((ROOT / PROMISES).read_text(encoding="utf-8"))]


def test_promises_are_numbered_one_by_one() -> None:
    assert numbers() == list(range(1, len(numbers()) + 1))


def test_a_promise_that_is_referred_to_is_there() -> None:
    known, unknown, found = set(numbers()), [], 0
    for path in project_files():
        for reference in REFERENCE.finditer((ROOT / path).read_text(encoding="utf-8")):
            for number in map(int, re.findall(r"\d+", reference[1])):
                found += 1
                unknown += [] if number in known else [f"{path}: {reference[0]}"]
    assert unknown == []
    assert found > 50


def test_no_reference_leads_out_of_the_tree() -> None:
    paths = [path for path in project_files() if path.name != "test_promises.py"]
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in paths}
    assert [f"{path}: {found[0]}" for path, text in texts.items() for found in OUTSIDE.finditer(text)] == []
