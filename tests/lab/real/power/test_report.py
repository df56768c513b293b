"""The report of a run, and the one in the docs beside its counts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.lab.real.power.report import SHOWN, counts_of, report_text, write_report
from tests.lab.real.power.run import ONE, ROOM, TWO, PowerResult
from tests.lab.real.power.volatile_disk import Rules

DOCS = Path(__file__).resolve().parents[4] / "docs"
RESULT = PowerResult(
    7, Rules(), 120.0, Counter({ONE: 3, TWO: 1, ROOM: 2}), Counter(cuts=9, changes=1_000), acknowledged=4_321,
    in_sync_s=[0.5, 2.0],
)  # fmt: skip


def test_the_page_has_the_first_counts_and_the_file_has_all(tmp_path: Path) -> None:
    write_report(tmp_path, RESULT, "a command")
    page = (tmp_path / "POWER_CUTS.md").read_text(encoding="utf-8")
    body = json.loads((tmp_path / "power_cuts.json").read_text(encoding="utf-8"))
    assert body == {"command": "a command", "counts": counts_of(RESULT), "findings": []}
    assert (body["counts"]["cuts"], body["counts"]["pending changes of directories"]) == (6, 1_000)
    assert "| records acknowledged | 4,321 |" in page
    assert "pending changes" not in page
    assert page == report_text(RESULT, "a command")


def test_the_page_in_the_docs_has_the_counts_beside_it() -> None:
    counts = json.loads((DOCS / "power_cuts.json").read_text(encoding="utf-8"))["counts"]
    page = (DOCS / "POWER_CUTS.md").read_text(encoding="utf-8")
    assert list(counts) == list(counts_of(RESULT))
    assert [f"| {name} | {value:,} |" in page for name, value in list(counts.items())[:SHOWN]] == [True] * SHOWN
