"""Each rule is needed: switched off, an invariant breaks under a pinned seed. And how such seeds are pinned."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.__main__ import _first_hash_seed, _Totals
from tests.simulation.invariants import Violation
from tests.simulation.run import Outcome, quiet
from tests.simulation.search import BUGS, SEEDS_TRIED, Pin, find, first_seeds, pin, pinned, state_first_seeds

SEARCHED_LONG = {
    *("deletions by name", "erased beside the log", "removed stays in memory", "damaged leaders", "unverified batches"),
    *("reads from memory", "two controllers", "recovery among writers", "lagging sessions"),
}
"""Bugs that `make test-long` looks for: others of their kinds are quick enough."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[pytest.mark.slow, pytest.mark.long] if each in SEARCHED_LONG else []) for each in BUGS],
)
def test_without_this_rule_an_invariant_breaks(name: str) -> None:
    """A change of the product may change the run of a seed, so one of several is enough."""
    found = pinned(name)
    assert found.seed is not None, f"pin another: python -m tests.simulation --pin {name!r} --write"
    assert found.is_sound, f"with all rules seed {found.seed} is to be clean"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", BUGS)
def test_with_all_rules_the_same_faults_break_nothing(name: str) -> None:
    first = first_seeds()[name]
    with quiet():
        outcomes = [BUGS[name].run_sound(seed) for seed in range(first, first + 2 * SEEDS_TRIED)]
    assert {o.seed: str(o.violation) for o in outcomes if o.violation is not None} == {}


def test_each_bug_has_a_first_seed() -> None:
    assert list(first_seeds()) == list(BUGS)


def test_the_first_seed_that_finds_a_bug_is_written_down(tmp_path: Path) -> None:
    path = tmp_path / "first_seeds.json"
    path.write_text('{"log end": 700, "gone": 3}')
    state_first_seeds([pin("log end", 0, 60), Pin("acks one", None, 9)], path)
    assert first_seeds(path) == {"log end": find("log end", range(SEEDS_TRIED)).seed}


def test_a_search_that_has_no_time_finds_nothing() -> None:
    assert str(pin("log end", 0, 0)) == "log end: nothing found in 0 seeds"


def test_a_finding_is_printed_with_the_command_that_repeats_it(capsys: pytest.CaptureFixture[str]) -> None:
    totals = _Totals("PYTHONHASHSEED=7 python -m tests.simulation --seeds 1 --first-seed")
    totals.take(Outcome(12, 300, 5, 1, Violation("Liveness", "nobody leads"), ("an event",)))
    assert capsys.readouterr().err.splitlines() == [
        "an event",
        "seed 12: Liveness: nobody leads",
        "again: PYTHONHASHSEED=7 python -m tests.simulation --seeds 1 --first-seed 12",
    ]


def test_the_hash_seed_is_that_of_the_environment_or_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert _first_hash_seed() == 7
    monkeypatch.setenv("PYTHONHASHSEED", "random")
    assert len({_first_hash_seed() for _ in range(4)}) > 1
