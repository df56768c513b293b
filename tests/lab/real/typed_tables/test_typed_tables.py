"""A typed table under kills, small; `python -m tests.lab.real.typed_tables.run` has a million records and 20 kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.real.typed_tables.orders import Orders
from tests.lab.real.typed_tables.run import run


@pytest.mark.long
@pytest.mark.timeout(900)
def test_each_record_is_in_the_table_or_a_dead_letter_once_though_processes_die(tmp_path: Path) -> None:
    outcome = run(tmp_path / "run", Orders(20_000), kills=3, seed=2)
    assert sum(outcome.kills.values()) == 3, outcome
    assert (outcome.rows, outcome.letters, outcome.replayed) == ((19_800, 20_000), 200, 200)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_upsert_table_equals_the_compacted_log_though_processes_die(tmp_path: Path) -> None:
    outcome = run(tmp_path / "run", Orders(20_000, is_upsert=True), kills=3, seed=3)
    assert sum(outcome.kills.values()) == 3, outcome
    assert outcome.letters == outcome.replayed > 0
    assert outcome.compacted >= outcome.rows[1] > 0
