"""docs/CLIENTS.md, a mark for each client and capability, and docs/clients.json beside it, which has each check."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.lab.foreign.checks import Outcome
from tests.lab.foreign.served import Form

TEXT = """# Clients

Written by `make clients`. Clients that others wrote, unchanged, against stratalog's Kafka listeners: against three
processes of `jobs.broker`, and against one process of `jobs.cluster` with three brokers. Topics have replication factor
3. [clients.json](clients.json) has the versions, and each check with its result against each of the two. **{passed} of
{total} passed.**

{marks}: each check of this kind passed, in both forms; {failed}: some failed, below; {untried}: nothing of this kind
was tried, mostly since the client has none. A check may expect a refusal, as of what samsa compresses by lz4 or zstd.

{matrix}
{failures}
A run of a part, `python -m tests.lab.foreign.run --report docs --only java`, changes its results only.
"""
PASSED, FAILED, UNTRIED = "✓", "✗", "·"
OTHER = "other"
CAPABILITIES: Mapping[str, str] = {
    "security": r"SCRAM-SHA|PLAIN:|OAUTHBEARER|certificate",
    "transactions": r"transactions?:|GroupTransactSession|read_committed|exactly.once|kafka-transactions",
    "KIP-848 groups": r"KIP-848|by type",
    "classic groups": r"classic|members join|a group|groups",
    "administration": r"admin|Controller|kadm|create, describe|delete records|kafka-(?!console|verifiable|producer)",
    "idempotence": r"idempot",
    "produce and read": r"produc|[Pp]roduce|read|null keys|fetch|stream|batch|StreamConsumer|kafka-",
}
"""What a check is about: the first expression that its text has."""


Results = dict[tuple[str, str], dict[str, str]]
"""By client and what it does: the result against each form that was run, `passed` or an error."""
SUCCESS = "passed"


def write_report(
    folder: Path, outcomes: Sequence[Outcome], versions: Mapping[str, str], *, is_whole: bool = True
) -> None:
    """Write both files. After a run of a part, `is_whole` False, what was not run keeps the results that are there."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = folder / "clients.json"
    before = stored.read_text(encoding="utf-8") if stored.exists() and not is_whole else ""
    text = report_json(outcomes, versions, before)
    stored.write_text(text, encoding="utf-8")
    (folder / "CLIENTS.md").write_text(report_page(text), encoding="utf-8")


def report_json(outcomes: Sequence[Outcome], versions: Mapping[str, str], before: str = "") -> str:
    """The results as JSON, a check a line. One that ran several times against a form has passed when each time did.

    before  JSON whose results stay, but for those of `outcomes`
    """
    results, known = parsed(before)
    for each in outcomes:
        results.setdefault(key_of(each), {})[each.form.value] = SUCCESS
    for each in outcomes:
        if each.error:
            results[key_of(each)][each.form.value] = " ".join(each.error.split())
    checks = [{"client": client, "does": does, **forms} for (client, does), forms in results.items()]
    lines = ",\n".join(json.dumps(check, ensure_ascii=False) for check in checks)
    names = json.dumps({**known, **versions}, indent=1, ensure_ascii=False)
    return f'{{\n"versions": {names},\n"checks": [\n{lines}\n]\n}}\n'


def report_page(text: str) -> str:
    """The page of the results that `report_json` wrote."""
    results, _ = parsed(text)
    clients = list(dict.fromkeys(client for client, _ in results))
    kinds = [*CAPABILITIES, OTHER]
    rows = [line("client", *kinds), line(*["---"] * (1 + len(kinds)))]
    rows += [line(client, *(mark(client, kind, results) for kind in kinds)) for client in clients]
    failed = [
        f"- {client}: {does}, {form}: {cell(result)}"
        for (client, does), forms in results.items()
        for form, result in forms.items()
        if result != SUCCESS
    ]
    every = [result for forms in results.values() for result in forms.values()]
    return TEXT.format(
        passed=every.count(SUCCESS),
        total=len(every),
        marks=PASSED,
        failed=FAILED,
        untried=UNTRIED,
        matrix="\n".join(rows),
        failures="\n## Failed\n\n" + "\n".join(failed) + "\n" if failed else "",
    )


def mark(client: str, kind: str, results: Results) -> str:
    found = [forms for (each, does), forms in results.items() if each == client and kind_of(does) == kind]
    every = [result for forms in found for result in forms.values()]
    if not every:
        return UNTRIED
    passed = every.count(SUCCESS)
    return PASSED if passed == len(every) else f"{FAILED} {passed} of {len(every)}"


def kind_of(does: str) -> str:
    """The capability that a check is about.

    >>> kind_of("classic groups: a static member comes back")
    'classic groups'
    """
    return next((kind for kind, expression in CAPABILITIES.items() if re.search(expression, does)), OTHER)


def key_of(outcome: Outcome) -> tuple[str, str]:
    return outcome.check.client, " ".join(outcome.check.does.split())


def parsed(text: str) -> tuple[Results, dict[str, str]]:
    """The results that `report_json` wrote, and the versions."""
    stored = json.loads(text) if text else {"versions": {}, "checks": []}
    forms = [form.value for form in Form]
    results = {
        (check["client"], check["does"]): {form: check[form] for form in forms if form in check}
        for check in stored["checks"]
    }
    return results, dict(stored["versions"])


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def cell(text: str) -> str:
    """Text of any kind in one line, without column separators."""
    return " ".join(text.split()).replace("|", "\\|")


def failures(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if each.error]
