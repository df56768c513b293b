"""Scripts of requests, one TOML file for each family of APIs in scripts/. I/O: reads them.

A script is run twice, in the lowest and in the highest version of each API. A step is a table with one request, whose
key is Kafka's name of the API and whose value are the request's fields, and

    that      what is asked, for whoever reads a difference
    to        the number of a broker (default 1); "group g", "transaction t": its coordinator; "not group g": another
    only      "low" or "high": the run it belongs to
    version   instead of the run's
    save      variables by name: the path of a value in the answer
    keep      of the answer's lists only what is named so; other scripts have left more
    until     a path and the value for which the request is repeated: what was changed arrives later
    once      true: an answer to come again after, such as CONCURRENT_TRANSACTIONS, is the answer
    on        the name of a connection; fetch sessions and SASL belong to one
    send      a name: the answer is that of a later step `{ receive = name }`
    own       paths whose values are each cluster's own
    known     differences that docs/migrate-from-kafka.md lists: path in the answer -> first column of the row

In texts stand `$run` for the run, `$name` for what was saved and `$null` for null. Paths are as `normal.flat` writes
them, `*` is any text.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).resolve().parent / "scripts"
RUNS: tuple[Run, ...] = ("low", "high")
Run = Literal["low", "high"]
NAMES = sorted(file.stem for file in FOLDER.glob("*.toml"))


@dataclass(frozen=True, slots=True)
class Step:
    """One request of a script; see above."""

    that: str
    api: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    to: int | str = 1
    only: Run | None = None
    version: int | None = None
    save: Mapping[str, str] = field(default_factory=dict)
    keep: str = ""
    until: tuple[str, Any] | None = None
    once: bool = False
    on: str = ""
    send: str = ""
    receive: str = ""
    body: str = ""
    own: Sequence[str] = ()
    known: Mapping[str, str] = field(default_factory=dict)


def script(name: str) -> list[Step]:
    """The steps of scripts/<name>.toml."""
    tables = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))["step"]
    return [_step(table) for table in tables]


def steps_of(name: str, run: Run) -> Iterator[tuple[str, Step]]:
    """The steps of a run, each with its own name."""
    seen: Counter[str] = Counter()
    for step in script(name):
        if step.only in (None, run):
            seen[step.that] += 1
            repeated = f" ({seen[step.that]})" if seen[step.that] > 1 else ""
            yield f"{name} {run}: {step.that}{repeated}", step


def _step(table: dict[str, Any]) -> Step:
    ours = {name: value for name, value in table.items() if name[0].islower()}
    requests = {name: value for name, value in table.items() if name not in ours}
    if len(requests) != (0 if "receive" in ours else 1):
        raise ValueError(f"a step has one request: {table}")
    for api, fields in requests.items():
        ours.setdefault("that", api)
        ours |= {"api": api, "fields": fields}
    ours.setdefault("that", f"the answer to {ours.get('receive')}")
    return Step(**ours)
