"""A typed table under kills, small; `python -m tests.real.typed_tables.run` is a million records and twenty kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.typed_tables.run import run


@pytest.mark.long
@pytest.mark.timeout(900)
def test_each_record_is_in_the_table_or_a_dead_letter_once_though_processes_die(tmp_path: Path) -> None:
    outcome = run(tmp_path / "run", 20_000, kills=3, seed=2)
    assert sum(outcome.kills.values()) == 3, outcome
    assert outcome.replayed == 200
