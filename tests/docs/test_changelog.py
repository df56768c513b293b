"""The changelog names the version that would be released, and is short."""

from __future__ import annotations

import re

from stratalog import __version__
from tests.docs.pages import ROOT

BYTES_MAX = 3 << 10


def test_the_changelog_names_the_version_and_what_is_new_in_it() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = text.split("\n## ")[1]
    released = re.match(r"\[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$", newest.splitlines()[0])
    coming = re.search(r"^This will be (\d+\.\d+\.\d+)\b", newest, re.MULTILINE)
    named = released or coming
    assert named is not None
    assert named[1] == __version__
    assert re.search(r"^- \S", newest, re.MULTILINE), "nothing is said to be new"
    assert len(text.encode()) <= BYTES_MAX
