"""Our answers beside Kafka's. I/O: reads docs/migrate-from-kafka.md and known.toml; the rest is pure."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab.differential import normal
from tests.lab.differential.answers import Answers
from tests.lab.differential.scripts import RUNS, Step, steps_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "migrate-from-kafka.md"
KNOWN = Path(__file__).resolve().parent / "known.toml"


@dataclass(slots=True)
class Comparison:
    """What differs. `unlisted` are lines to read; `listed` counts the differences of each row of the page."""

    unlisted: list[str] = field(default_factory=list)
    listed: Counter[str] = field(default_factory=Counter)
    not_seen: list[str] = field(default_factory=list)


def rows() -> list[str]:
    """The first column of the page's table."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [re.split(r"(?<!\\)\|", line)[1].strip() for line in lines][2:]


def known_everywhere() -> list[dict[str, Any]]:
    """The tables of known.toml."""
    tables: list[dict[str, Any]] = tomllib.loads(KNOWN.read_text(encoding="utf-8"))["everywhere"]
    return tables


def compare(script: str, theirs: Answers, ours: Answers) -> Comparison:
    """Field by field, over all steps of a script."""
    found = Comparison()
    everywhere = {path: each["row"] for each in known_everywhere() for path in each["paths"]}
    seen: set[tuple[str, str]] = set()
    for title, step in _steps(script):
        known = {**step.known, **everywhere}
        if title not in theirs or title not in ours:
            found.unlisted.append(f"{title}\n    one of the two was not asked")
            continue
        answers = (normal.without(each[title], step.own) for each in (theirs, ours))
        for path, (kafka, stratalog) in normal.differences(*answers).items():
            pattern = next((each for each in known if normal.matches(each, path)), None)
            if pattern is None:
                found.unlisted.append(f"{title}\n    {path}: Kafka {kafka!r}, stratalog {stratalog!r}")
            else:
                seen.add((step.that, pattern))
                found.listed[known[pattern]] += 1
    listed = {(step.that, pattern) for _, step in _steps(script) for pattern in step.known}
    found.not_seen = [f"{script}: {that}: no difference at {pattern}" for that, pattern in sorted(listed - seen)]
    return found


def _steps(script: str) -> Iterator[tuple[str, Step]]:
    for run in RUNS:
        yield from steps_of(script, run)
