"""What the documentation points to is there: files in code spans, links, headings, the glossary's column *where*."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.docs.pages import ROOT, Page, pages, read_page

FOLDERS = (
    "storage", "wire", "replication", "server", "clients", "jobs", "tests", "docs", "conf", "notebooks", "stratalog",
)  # fmt: skip
A_PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./{{}},*-]*")
A_BRACE = re.compile(r"\{([^{}]*)\}")
OURS_MAX = 30
"""Words that Kafka and Delta do not have: fewer would be better."""

PAGES = list(pages())
GLOSSARY = read_page("GLOSSARY.md")
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in GLOSSARY.text.splitlines()
    if line.startswith("|") and not line.startswith(("| word ", "| --- "))
]


def expanded(path: str) -> list[str]:
    """A path with braces as the paths that it means.

    >>> expanded("storage/objects/{local,remote}.py")
    ['storage/objects/local.py', 'storage/objects/remote.py']
    """
    brace = A_BRACE.search(path)
    if brace is None:
        return [path]
    ends = [path[: brace.start()] + word.strip() + path[brace.end() :] for word in brace[1].split(",")]
    return [each for end in ends for each in expanded(end)]


def is_there(path: str) -> bool:
    return any(ROOT.glob(path)) if "*" in path else (ROOT / path).exists()


def paths_named(page: Page) -> list[str]:
    """The files and folders of the project that its code spans name."""
    spans = [span.removeprefix("./") for span in page.spans]
    return [path for span in spans if A_PATH.fullmatch(span) for path in expanded(span)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.path))
def test_the_files_that_a_page_names_are_there(page: Page) -> None:
    assert [path for path in paths_named(page) if not is_there(path)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.path))
def test_the_links_of_a_page_lead_somewhere(page: Page) -> None:
    broken = []
    for link in page.links:
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (ROOT / page.path.parent / target).resolve() if target else ROOT / page.path
        has_anchors = bool(anchor) and path.suffix == ".md"
        if not path.exists() or (has_anchors and anchor not in read_page(path.relative_to(ROOT)).anchors):
            broken.append(link)
    assert broken == []


def test_each_row_of_the_glossary_says_where() -> None:
    lacking = [row for row in ROWS if len(row) != 3 or not (row[2] == "everywhere" or "/" in row[2])]
    assert lacking == []


def test_a_word_has_one_meaning() -> None:
    words = [word.strip() for row in ROWS for word in re.sub(r"\([^)]*\)", "", row[0]).split(",")]
    words = [word for word in words if not word.startswith(("`", "end)"))]
    assert [word for word, count in Counter(words).items() if count > 1] == []


def test_few_words_are_ours() -> None:
    assert sum("(ours)" in row[0] for row in ROWS) <= OURS_MAX
