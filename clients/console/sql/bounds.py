"""How much one SQL statement may take, and what it reads of a table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SqlBounds:
    """The bounds of a statement.

    seconds       from its start to its answer, reading included
    read_bytes    of the rows that its tables give it, as Arrow data
    memory_bytes  of the engine, beside what it takes empty
    rows          of the answer; more are cut
    answer_bytes  of the answer's values; more are cut
    cell_bytes    of one value; a longer one is cut
    text_bytes    of the statement
    """

    seconds: float = 20.0
    read_bytes: int = 256 << 20
    memory_bytes: int = 512 << 20
    rows: int = 1_000
    answer_bytes: int = 2 << 20
    cell_bytes: int = 16 << 10
    text_bytes: int = 64 << 10


BOUNDS = SqlBounds()
"""What a console allows."""
STATEMENTS_AT_ONCE = 2
"""Statements that one process runs at a time; others wait, within their time."""


@dataclass(frozen=True, slots=True)
class TableScan:
    """What a statement reads of a table. Bounds are half-open, by column: partition, offset, timestamp (microseconds).

    limit  rows that are enough; None: all
    """

    columns: tuple[str, ...]
    start: Mapping[str, int] = field(default_factory=dict)
    end: Mapping[str, int] = field(default_factory=dict)
    limit: int | None = None
