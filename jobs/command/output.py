"""What tables are as JSON: one object a line, with Kafka's names in camel case. I/O: standard output."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from stratalog.jobs.command.flags import Flag

TEXT, JSON = "text", "json"
OUTPUT = Flag(
    "output", "FORMAT", "text, the default: as Kafka's tool prints it; json: one object a line.", default=TEXT,
    choices=(TEXT, JSON),
)  # fmt: skip


def json_text(row: Mapping[str, object]) -> str:
    """One line.

    >>> json_text({"topic": "t", "isr": (1, 2), "leader": None})
    '{"topic":"t","isr":[1,2],"leader":null}'
    """
    return json.dumps(row, separators=(",", ":"), default=str, ensure_ascii=False)


def print_rows(rows: Iterable[Mapping[str, object]]) -> None:
    """Print each row."""
    for row in rows:
        print(json_text(row))
