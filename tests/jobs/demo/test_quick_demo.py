"""The short demo, as a stranger runs it: without Spark, a broker killed, every claim holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.jobs.demo.__main__ import main


@pytest.mark.long
def test_the_short_demo_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--path", str(tmp_path / "demo")]) == 0
    shown = capsys.readouterr().out
    assert "The verdict holds." in shown
    assert "FAILED" not in shown
    assert f"strata cluster {tmp_path / 'demo'}" in shown
