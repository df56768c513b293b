"""A wait that takes long is reported while it lasts, and a short one is not."""

from __future__ import annotations

import sys
import threading

import pytest

from stratalog.replication.threads.long_wait import interactive_report, long_wait


class Lines:
    """What was reported, and an event for the second line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.are_two = threading.Event()

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        if len(self.lines) == 2:
            self.are_two.set()


def test_a_long_wait_is_reported_again_and_again_with_what_is_true_then() -> None:
    lines, states = Lines(), iter(range(1_000))
    with long_wait(lambda: f"state {next(states)}", lines, first_ms=1, interval_ms=1):
        assert lines.are_two.wait(60)
    assert lines.lines[:2] == ["state 0 (0 s)", "state 1 (0 s)"]
    count = len(lines.lines)
    assert threading.active_count() == len([each for each in threading.enumerate() if each.name != "long-wait"])
    assert len(lines.lines) == count


def test_a_short_wait_is_silent_and_an_error_goes_through() -> None:
    lines = Lines()
    with pytest.raises(ValueError, match="it failed"), long_wait(lambda: "state", lines):
        raise ValueError("it failed")
    assert lines.lines == []


def test_only_an_interactive_interpreter_is_told_by_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(sys, "ps1", raising=False)
    assert interactive_report() is None
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    report = interactive_report()
    assert report is not None
    report("starting brokers")
    assert capsys.readouterr().err == "starting brokers\n"
