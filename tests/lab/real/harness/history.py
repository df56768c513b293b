"""Histories of real runs: written and checked as the product does it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.lab.history.checker import Finding, check
from tests.lab.history.history import ACK, FAIL, HIGH_WATERMARK, POLL, SEND, STORED, UNKNOWN, HistoryEvent
from tests.lab.history.recorder import History, read_events

__all__ = [
    "ACK", "FAIL", "HIGH_WATERMARK", "POLL", "SEND", "STORED", "UNKNOWN", "HistoryEvent", "Finding", "History",
    "assert_clean", "check", "read_events",
]  # fmt: skip
SHOWN_FINDINGS = 20


def assert_clean(events: Sequence[HistoryEvent]) -> None:
    findings = check(events)
    shown = "\n".join(f"{finding.rule}: {finding.text}" for finding in findings[:SHOWN_FINDINGS])
    assert not findings, f"{len(findings)} findings\n{shown}"
