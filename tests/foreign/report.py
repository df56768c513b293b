"""docs/CLIENTS.md: one row a check, with its result against each form of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.foreign.checks import Check, Outcome
from tests.foreign.served import Form

TEXT = """# Clients

Written by `make clients`. Clients that others wrote, unchanged, against stratalog's Kafka listeners: what each one
does, and the result against three processes of `jobs.broker`, and against one process of `jobs.cluster` with three
brokers. Topics have replication factor 3. {passed} of {total} passed.

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


def write_report(folder: Path, outcomes: Sequence[Outcome], versions: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "CLIENTS.md").write_text(report_text(outcomes, versions), encoding="utf-8")


def report_text(outcomes: Sequence[Outcome], versions: Mapping[str, str]) -> str:
    """The page. A check that ran several times against a form has passed when each time did."""
    results = {(each.check, each.form): PASSED for each in outcomes}
    results |= {(each.check, each.form): f"**failed**: {cell(each.error)}" for each in outcomes if each.error}
    checks = list(dict.fromkeys(each.check for each in outcomes))
    tables = [
        TABLE.format(client=client, rows="\n".join(row(check, results) for check in checks if check.client == client))
        for client in dict.fromkeys(check.client for check in checks)
    ]
    return TEXT.format(
        passed=sum(result == PASSED for result in results.values()),
        total=len(results),
        versions="\n".join(f"| {client} | {version} |" for client, version in versions.items()),
        tables="\n\n".join(tables),
    )


def row(check: Check, results: Mapping[tuple[Check, Form], str]) -> str:
    return line(cell(check.does), *(results.get((check, form), NOT_RUN) for form in Form))


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def cell(text: str) -> str:
    """Text of any kind in a cell: one line, no column separators."""
    return " ".join(text.split()).replace("|", "\\|")


def failures(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if each.error]
