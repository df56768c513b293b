"""The report of a run."""

from __future__ import annotations

from tests.lab.foreign.checks import Check, Outcome
from tests.lab.foreign.report import report_text
from tests.lab.foreign.served import Form

PRODUCE = Check("librdkafka", "produce", lambda served: None)
CONSUME = Check("librdkafka", "consume | filter", lambda served: None, (Form.BROKERS,))


def test_a_row_has_the_result_against_each_form() -> None:
    text = report_text(
        [
            Outcome(PRODUCE, Form.BROKERS, 1.0),
            Outcome(PRODUCE, Form.BROKERS, 1.0, "KafkaError: a | b\nc"),
            Outcome(PRODUCE, Form.BROKERS, 1.0),
            Outcome(PRODUCE, Form.CLUSTER, 1.0),
            Outcome(CONSUME, Form.BROKERS, 1.0),
        ],
        {"librdkafka": "2.16.0"},
    )
    assert "2 of 3 passed" in text
    assert "| librdkafka | 2.16.0 |" in text
    assert "| produce | **failed**: KafkaError: a \\| b c | passed |" in text
    assert "| consume \\| filter | passed | not run |" in text


def test_a_run_of_a_part_keeps_the_other_results() -> None:
    whole = report_text(
        [
            Outcome(PRODUCE, Form.BROKERS, 1.0, "KafkaError: a | b"),
            Outcome(PRODUCE, Form.CLUSTER, 1.0),
            Outcome(CONSUME, Form.BROKERS, 1.0),
        ],
        {"librdkafka": "2.16.0", "Kafka's tools": "4.3.1"},
    )
    assert report_text([], {}, whole) == whole
    text = report_text([Outcome(PRODUCE, Form.BROKERS, 1.0)], {"librdkafka": "2.16.1"}, whole)
    assert "3 of 3 passed" in text
    assert "| produce | passed | passed |" in text
    assert "| consume \\| filter | passed | not run |" in text
    assert "| librdkafka | 2.16.1 |\n| Kafka's tools | 4.3.1 |" in text
