"""The report of a run, and the one in the docs beside its counts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.lab.real.power.report import SHOWN, counts_of, report_text
from tests.lab.real.power.run import ONE, ROOM, TWO, PowerResult
from tests.lab.real.power.volatile_disk import Rules

DOCS = Path(__file__).resolve().parents[4] / "docs"
RESULT = PowerResult(
    7, Rules(), 120.0, Counter({ONE: 3, TWO: 1, ROOM: 2}), Counter(cuts=9, changes=1_000), acknowledged=4_321,
    in_sync_s=[0.5, 2.0],
)  # fmt: skip


def test_the_page_has_the_first_counts() -> None:
    page, counts = report_text(RESULT, "a command"), counts_of(RESULT)
    assert (counts["cuts"], counts["pending changes of directories"]) == (6, 1_000)
    assert "| records acknowledged | 4,321 |" in page
    assert "pending changes" not in page


def test_the_page_in_the_docs_has_the_counts_beside_it() -> None:
    counts = json.loads((DOCS / "power_cuts.json").read_text(encoding="utf-8"))["counts"]
    page = (DOCS / "POWER_CUTS.md").read_text(encoding="utf-8")
    assert list(counts) == list(counts_of(RESULT))
    assert [f"| {name} | {value:,} |" in page for name, value in list(counts.items())[:SHOWN]] == [True] * SHOWN
