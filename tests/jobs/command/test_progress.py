"""A progress bar is on a terminal alone, and only when work takes long."""

from __future__ import annotations

import io

import pytest

from stratalog.jobs.command import progress as module
from stratalog.jobs.command.progress import Bar, progress


class Screen(io.StringIO):
    """Standard error as a terminal."""

    def isatty(self) -> bool:
        return True


def test_nothing_is_shown_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("records", 2) as bar:
        bar.advance()
        assert bar.done == 1
    assert capsys.readouterr() == ("", "")


def test_nothing_is_shown_of_what_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    with progress("records", 2) as bar:
        bar.set(2)
    assert screen.getvalue() == ""


def test_a_bar_shows_what_is_done_and_is_gone_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    bar = Bar("records verified", None)
    bar.set(3, 8)
    bar.show()
    bar.advance()
    bar.hide()
    bar.hide()
    assert "records verified" in screen.getvalue()
    assert "4/8" in screen.getvalue()
    assert capsys.readouterr().out == ""


def test_a_bar_appears_while_work_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(module, "SHOWN_AFTER_S", 0.0)
    monkeypatch.setattr(module, "is_shown", lambda: True)
    monkeypatch.setattr(Bar, "show", lambda self: shown.append(self.total))
    monkeypatch.setattr(Bar, "hide", lambda self: shown.append("hidden"))
    with progress("records", 2):
        pass
    assert shown[-1] == "hidden"
