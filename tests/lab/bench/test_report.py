"""The document that a run writes has every row, also those that Kafka wins."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.lab.bench.__main__ import CLOUD, LONG, SHORT, SOAK
from tests.lab.bench.lab import Moment, Outcome, Window
from tests.lab.bench.measures import Row, Spread
from tests.lab.bench.report import SECTIONS, Run, kafka_wins, report, section, section_of, table
from tests.lab.bench.results import document, run_as_json, run_from_json, write_report

DOCS = Path(__file__).resolve().parents[3] / "docs"
FASTER = Row("produce_100B", "", "records/s", False, Spread(1.0, 900_000.0, 1.5, 3), Spread.of([300_000.0]))
SLOWER = Row("latency_acks_all", "p99", "ms", True, Spread.of([20.0]), Spread.of([10.0]))
ALONE = Row("memory", "", "MiB a minute", True, Spread.of([0.5]), None)
FLOOR = Row("delta_append", "", "rows/s", False, Spread.of([1.0]), Spread.of([2.0]), "a plain append")


def run_of(*rows: Row, command: str = "make bench") -> Run:
    return Run(command, "2026-01-02", 754, {"cores": "2"}, list(rows), ["a note"])


def test_every_bench_has_a_section() -> None:
    assert {section_of(name) for name in (*SHORT, *LONG, *SOAK, *CLOUD)} <= set(SECTIONS)


def test_a_table_gives_the_medians_and_the_ratio() -> None:
    assert table([FASTER, ALONE, FLOOR]).splitlines()[2:] == [
        "| `produce_100B` | records/s | 900,000 | 300,000 | 3.00 |",
        "| `memory` | MiB a minute | 0.5 |  |  |",
        "| `delta_append` | rows/s | 1 | 2 (a plain append) | 0.50 |",
    ]


def test_only_what_was_measured_is_explained() -> None:
    text = section("spark", [FLOOR], [])
    assert "`delta_append`: " in text
    assert "`typed_table`" not in text


def test_rows_that_the_peer_wins_are_named() -> None:
    assert "`latency_acks_all` p99." in kafka_wins([FASTER, SLOWER, ALONE])
    assert "no such row" in kafka_wins([FASTER, ALONE])
    text = kafka_wins([FLOOR])
    assert text.endswith("no such row.\n\nBelow 1, but not against Kafka:\n\n- behind a plain append: `delta_append`")


def test_what_is_compared_with_itself_shows_what_became_worse() -> None:
    better = Row("busy_log", "files", "", True, Spread.of([1.0]), Spread.of([2.0]), "the first half")
    worse = Row("busy_log", "memory", "MiB", True, Spread.of([2.0]), Spread.of([1.0]), "the first half")
    text = section("busy", [better, worse], [])
    assert ("`busy_log` memory" in text, "`busy_log` files" in text) == (True, False)


def test_the_report_has_all_rows_the_notes_and_the_machine() -> None:
    text = report(
        [run_of(FASTER, SLOWER), run_of(ALONE, command="make bench-long")], "ratios.svg", {"latency": ["latency.svg"]}
    )
    wanted = (
        "`produce_100B`",
        "`latency_acks_all` p99",
        "`memory`",
        "- a note",
        "- `make bench`, 2026-01-02, 12 min 34 s. cores: 2.",
        "latency.svg",
    )
    assert [word for word in wanted if word not in text] == []
    assert "## Spark" not in text


def test_a_run_comes_back_from_its_json() -> None:
    run = run_of(FASTER, SLOWER)
    assert run_from_json(run_as_json(run)) == run


def test_a_new_run_replaces_the_rows_that_it_measured_and_keeps_the_others(tmp_path: Path) -> None:
    window = Window((Moment(0.0, 2.0), Moment(1.0, 3.0)), (Moment(0.0, 1.0),), {1: (0.5,)})
    write_report(tmp_path, run_of(ALONE, command="make bench-long"), [])
    write_report(tmp_path, run_of(FLOOR), [])
    write_report(tmp_path, run_of(FASTER, SLOWER), [Outcome([FASTER, SLOWER], window=window)])
    text = (tmp_path / "BENCHMARKS.md").read_text(encoding="utf-8")
    assert ("produce_100B" in text, "memory" in text, "delta_append" in text) == (True, True, True)
    for name in ("ratios.svg", "latency.svg"):
        assert f"benchmarks/{name}" in text
        assert ET.parse(tmp_path / "benchmarks" / name).getroot().tag.endswith("svg")


def test_the_document_in_the_docs_is_that_of_the_results_beside_it() -> None:
    stored = json.loads((DOCS / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    runs = [run_from_json(body) for body in stored.values()]
    assert (DOCS / "BENCHMARKS.md").read_text(encoding="utf-8") == document(DOCS, runs)
