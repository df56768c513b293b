"""Each history in this folder runs through the real brokers and ends as written."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.scenarios.rules import RULES
from tests.scenarios.script import played
from tests.scenarios.verbs import Stage
from tests.simulation.invariants import Violation
from tests.simulation.mutations.mutation import Patches

FOLDER = Path(__file__).parent
SCENARIOS = sorted(FOLDER.glob("*.txt"))


@cache
def play(text: str, seed: int = 1) -> str:
    """The scenario's text with its present output. A violated invariant is output too, and ends it."""
    stage = Stage(seed)
    violation: list[str] = []

    def run(command: str) -> list[str]:
        if violation:
            return []
        try:
            return stage.run(command)
        except Violation as found:
            violation.append(f"violation of {found}")
            return violation

    try:
        return played(text, run)
    finally:
        stage.close()


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text(encoding="utf-8")
    shown = play(text)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(shown, encoding="utf-8")
        return
    assert shown == text


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_another_interleaving_ends_the_same(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert play(text, seed=2) == play(text)


@pytest.mark.parametrize(("name", "patches"), RULES)
def test_without_this_rule_the_scenario_ends_otherwise(name: str, patches: Patches) -> None:
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    with patches():
        assert play.__wrapped__(text) != text


def test_output_is_what_the_block_shows_and_only_that() -> None:
    text = "# A story.\nadd 1\nadd 2\n----\nold\nlines\n\nquiet\n"
    said = {"add 1": ["1"], "add 2": ["3"], "quiet": []}
    assert played(text, lambda command: said[command]) == "# A story.\nadd 1\nadd 2\n----\n1\n3\n\nquiet\n"


def test_every_scenario_begins_with_its_story() -> None:
    assert [path.name for path in SCENARIOS if not path.read_text(encoding="utf-8").startswith("# ")] == []
