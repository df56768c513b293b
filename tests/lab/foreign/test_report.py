"""The report of a run."""

from __future__ import annotations

import json
from pathlib import Path

from tests.lab.foreign.checks import Check, Outcome
from tests.lab.foreign.report import CAPABILITIES, kind_of, parsed, report_json, report_page
from tests.lab.foreign.served import Form

DOCS = Path(__file__).resolve().parents[3] / "docs"
PRODUCE = Check("librdkafka", "produce", lambda served: None)
GROUPS = Check("librdkafka", "classic groups | filter", lambda served: None, (Form.BROKERS,))


def test_a_client_has_a_mark_for_each_capability_and_its_failures_are_named() -> None:
    stored = report_json(
        [
            Outcome(PRODUCE, Form.BROKERS, 1.0),
            Outcome(PRODUCE, Form.BROKERS, 1.0, "KafkaError: a | b\nc"),
            Outcome(PRODUCE, Form.BROKERS, 1.0),
            Outcome(PRODUCE, Form.CLUSTER, 1.0),
            Outcome(GROUPS, Form.BROKERS, 1.0),
        ],
        {"librdkafka": "2.16.0"},
    )
    assert json.loads(stored)["checks"] == [
        {"client": "librdkafka", "does": "produce", "brokers": "KafkaError: a | b c", "cluster": "passed"},
        {"client": "librdkafka", "does": "classic groups | filter", "brokers": "passed"},
    ]
    assert json.loads(stored)["versions"] == {"librdkafka": "2.16.0"}
    page = report_page(stored)
    assert "2 of\n3 passed" in page
    [head, row] = [line for line in page.splitlines() if line.startswith(("| client | security", "| librdkafka | ·"))]
    marks = dict(zip(head.split(" | "), row.split(" | "), strict=True))
    assert (marks["classic groups"], marks["produce and read"], marks["transactions"]) == ("✓", "✗ 1 of 2", "·")
    assert "- librdkafka: produce, brokers: KafkaError: a \\| b c" in page


def test_a_run_of_a_part_keeps_the_other_results() -> None:
    whole = report_json(
        [
            Outcome(PRODUCE, Form.BROKERS, 1.0, "KafkaError: a | b"),
            Outcome(PRODUCE, Form.CLUSTER, 1.0),
            Outcome(GROUPS, Form.BROKERS, 1.0),
        ],
        {"librdkafka": "2.16.0", "Kafka's tools": "4.3.1"},
    )
    assert report_json([], {}, whole) == whole
    text = report_json([Outcome(PRODUCE, Form.BROKERS, 1.0)], {"librdkafka": "2.16.1"}, whole)
    results, versions = parsed(text)
    assert results[("librdkafka", "produce")] == {"brokers": "passed", "cluster": "passed"}
    assert results[("librdkafka", "classic groups | filter")] == {"brokers": "passed"}
    assert versions == {"librdkafka": "2.16.1", "Kafka's tools": "4.3.1"}
    assert "3 of\n3 passed" in report_page(text)


def test_the_page_in_the_docs_is_that_of_the_results_beside_it() -> None:
    stored = (DOCS / "clients.json").read_text(encoding="utf-8")
    assert (DOCS / "CLIENTS.md").read_text(encoding="utf-8") == report_page(stored)
    results, _ = parsed(stored)
    assert {kind_of(does) for _, does in results} >= set(CAPABILITIES)
