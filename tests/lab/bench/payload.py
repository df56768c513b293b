"""The same random records for both sides: lines of a file for Kafka's tools, Arrow tables for ours.

I/O: writes the file. Values are random capital letters, as Kafka's producer-perf makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

ROWS_A_TABLE = 10_000
DISTINCT_RECORDS = {100: 130_000, 1024: 50_000}
"""The number of different values by size: so many that no codec's window contains the same one twice. The number of
tables has no divisor in common with that of the partitions, so that each partition receives all of them."""


@dataclass(frozen=True, slots=True)
class Payload:
    """`lines`: a file with one value a line; `tables`: the same values in the same order, 10,000 rows each."""

    size_bytes: int
    lines: Path
    tables: tuple[pa.Table, ...]

    @classmethod
    def make(cls, folder: Path, size_bytes: int, seed: int = 0) -> Self:
        """Write the file into `folder` and build the tables."""
        count = DISTINCT_RECORDS[size_bytes]
        letters = np.random.default_rng(seed).integers(65, 91, (count, size_bytes + 1), dtype=np.uint8)
        letters[:, -1] = ord("\n")
        lines = folder / f"payload-{size_bytes}.txt"
        lines.write_bytes(letters.tobytes())
        values = letters[:, :-1]
        firsts = range(0, count, ROWS_A_TABLE)
        return cls(size_bytes, lines, tuple(table_of(values[first : first + ROWS_A_TABLE]) for first in firsts))

    def table(self, number: int) -> pa.Table:
        """Table `number` of an endless series: after the last the first again."""
        return self.tables[number % len(self.tables)]

    def value(self, number: int) -> bytes:
        """Value `number` of an endless series: those of the first table."""
        return bytes(self.tables[0]["value"][number % ROWS_A_TABLE].as_py())


def table_of(values: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> pa.Table:
    """Rows of equal length as a table with the one column `value`."""
    count, size_bytes = values.shape
    offsets = np.arange(0, (count + 1) * size_bytes, size_bytes, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(values.tobytes())]
    return pa.table({"value": pa.Array.from_buffers(pa.binary(), count, buffers)})
