"""The results of runs, kept beside the document, so that it has those of a long and of a short run.

I/O: `benchmarks/results.json`, the charts and BENCHMARKS.md below the folder of the documentation.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tests.lab.bench.charts import draw_curves, draw_latency, draw_ratios
from tests.lab.bench.lab import Outcome
from tests.lab.bench.measures import Row
from tests.lab.bench.report import Run, report

CHARTS = "benchmarks"
CHARTS_OF = {"latency": ("latency.svg",), "soak": ("soak-commits.png", "soak-disk.png"), "busy": ("busy-log.png",)}
"""The charts by section of the document."""


def write_report(docs: Path, run: Run, outcomes: Sequence[Outcome]) -> None:
    """Replace an earlier run of the same command by this one, and write the document again.

    Rows of benches that this run did not measure (`--only`) stay.
    """
    folder = docs / CHARTS
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "results.json"
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    kept = {command: run_from_json(body) for command, body in before.items()}
    kept[run.command] = with_rows_of(run, kept.get(run.command))
    runs = [kept[command] for command in sorted(kept)]
    text = json.dumps({each.command: run_as_json(each) for each in runs}, indent=1, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8")
    for outcome in outcomes:
        if outcome.window is not None:
            draw_latency(folder / "latency.svg", outcome.window)
        for name, (at, curves) in outcome.curves.items():
            draw_curves(folder / f"{name}.png", at, curves)
    draw_ratios(folder / "ratios.svg", [row for each in runs for row in each.rows])
    (docs / "BENCHMARKS.md").write_text(document(docs, runs), encoding="utf-8")


def document(docs: Path, runs: Sequence[Run]) -> str:
    """BENCHMARKS.md of these runs, with the charts that are there."""
    charts = {
        section: [f"{CHARTS}/{name}" for name in names if (docs / CHARTS / name).exists()]
        for section, names in CHARTS_OF.items()
    }
    return report(runs, f"{CHARTS}/ratios.svg", charts)


def with_rows_of(run: Run, earlier: Run | None) -> Run:
    """A run, and behind it the rows of benches that it did not measure."""
    measured = {row.bench for row in run.rows}
    rest = [row for row in earlier.rows if row.bench not in measured] if earlier else []
    earlier_notes = earlier.notes if earlier and rest else []
    notes = [note for note in earlier_notes if note not in run.notes and _bench_of(note) not in measured]
    return replace(run, rows=[*run.rows, *rest], notes=[*run.notes, *notes])


def _bench_of(note: str) -> str:
    """The bench that a note begins with, as in "`busy_log`: 30 min".

    >>> _bench_of("`busy_log`: 30 min"), _bench_of("all on one disk")
    ('busy_log', '')
    """
    return note.split("`")[1] if note.startswith("`") else ""


def run_as_json(run: Run) -> dict[str, Any]:
    return asdict(run) | {"rows": [row.as_json() for row in run.rows]}


def run_from_json(body: dict[str, Any]) -> Run:
    """The run that `run_as_json` was made from."""
    return Run(**body | {"rows": [Row.from_json(row) for row in body["rows"]]})
