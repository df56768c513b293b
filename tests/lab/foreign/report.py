"""docs/CLIENTS.md: one row a check, with its result against each form of a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.lab.foreign.checks import Outcome
from tests.lab.foreign.served import Form

TEXT = """# Clients

Written by `make clients`. Clients that others wrote, unchanged, against stratalog's Kafka listeners: what each one
does, and the result against three processes of `jobs.broker`, and against one process of `jobs.cluster` with three
brokers. Topics have replication factor 3. A run of a part, `python -m tests.lab.foreign.run --report docs --only java`,
changes its rows only. {passed} of {total} passed.

| client | version |
| --- | --- |
{versions}

{tables}
"""
TABLE = """## {client}

| what it does | three broker processes | one cluster process |
| --- | --- | --- |
{rows}"""
PASSED, NOT_RUN = "passed", "not run"
COLUMNS = re.compile(r"(?<!\\)\|")
HEADS = [[each.strip() for each in text.split("|")[1:-1]] for text in (TEXT + TABLE).splitlines() if text[:1] == "|"]
"""The cells of the tables' heads and of the lines below them."""


Results = dict[tuple[str, str, Form], str]
"""The cell of each client, of what it does, and form."""


def write_report(
    folder: Path, outcomes: Sequence[Outcome], versions: Mapping[str, str], *, is_whole: bool = True
) -> None:
    """Write the page. After a run of a part, `is_whole` False, what was not run keeps the results that are there."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "CLIENTS.md"
    before = page.read_text(encoding="utf-8") if page.exists() and not is_whole else ""
    page.write_text(report_text(outcomes, versions, before), encoding="utf-8")


def report_text(outcomes: Sequence[Outcome], versions: Mapping[str, str], before: str = "") -> str:
    """The page. A check that ran several times against a form has passed when each time did.

    before  a page whose results stay, but for those of `outcomes`
    """
    results, known = parsed(before)
    results |= {key_of(each): PASSED for each in outcomes}
    results |= {key_of(each): f"**failed**: {cell(each.error)}" for each in outcomes if each.error}
    rows = list(dict.fromkeys(key[:2] for key in results))
    tables = [
        TABLE.format(client=client, rows="\n".join(row(each, results) for each in rows if each[0] == client))
        for client in dict.fromkeys(client for client, _ in rows)
    ]
    return TEXT.format(
        passed=sum(result == PASSED for result in results.values()),
        total=len(results),
        versions="\n".join(f"| {client} | {version} |" for client, version in {**known, **versions}.items()),
        tables="\n\n".join(tables),
    )


def key_of(outcome: Outcome) -> tuple[str, str, Form]:
    return outcome.check.client, cell(outcome.check.does), outcome.form


def parsed(page: str) -> tuple[Results, dict[str, str]]:
    """The results of a page, without those that were not run; and the versions."""
    results: Results = {}
    versions: dict[str, str] = {}
    client = ""
    for text in page.splitlines():
        cells = [each.strip() for each in COLUMNS.split(text)[1:-1]]
        if text.startswith("## "):
            client = text.removeprefix("## ")
        elif len(cells) == 2 and cells not in HEADS:
            versions[cells[0]] = cells[1]
        elif len(cells) == 1 + len(Form) and cells not in HEADS:
            results |= {
                (client, cells[0], form): result
                for form, result in zip(Form, cells[1:], strict=True)
                if result != NOT_RUN
            }
    return results, versions


def row(check: tuple[str, str], results: Results) -> str:
    return line(check[1], *(results.get((*check, form), NOT_RUN) for form in Form))


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def cell(text: str) -> str:
    """Text of any kind in a cell: one line, no column separators."""
    return " ".join(text.split()).replace("|", "\\|")


def failures(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if each.error]
