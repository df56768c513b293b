"""The committed records of a replica, judged from its Delta table alone: by deltalake and pyarrow, not the product.

A control record (Kafka's attribute bit 0x20) ends its producer's transaction in that partition; its key is two 16-bit
numbers, version and type, and type 1 is a commit. A transactional record (bit 0x10) counts if the next control record
of its producer is a commit; one without such a record behind it is open still.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

TRANSACTIONAL, CONTROL = 0x10, 0x20
COMMIT = 1
COLUMNS = ["base_offset", "offset_delta", "producer_id", "attributes", "key", "value"]


class Judged(NamedTuple):
    """A replica's records in order of offsets: the committed values, and how many were aborted or are open."""

    committed: pa.Array
    aborted: int
    open: int


def judged(table: Path) -> Judged:
    """Everything in the Delta table of a replica."""
    return judge(DeltaTable(str(table)).to_pyarrow_table(columns=COLUMNS))


def judge(rows: pa.Table) -> Judged:
    """As `judged`, of a table with `COLUMNS`, in any order."""
    offsets = pc.add(rows["base_offset"].cast(pa.int64()), rows["offset_delta"].cast(pa.int64()))
    rows = rows.append_column("offset", offsets).sort_by("offset").combine_chunks()
    attributes = rows["attributes"].to_numpy()
    producers, offset = rows["producer_id"].to_numpy(), rows["offset"].to_numpy()
    is_control, is_transactional = (attributes & CONTROL) != 0, (attributes & TRANSACTIONAL) != 0
    counts = ~is_control & ~is_transactional
    is_open = np.zeros(len(offset), dtype=bool)
    for producer in np.unique(producers[is_transactional & ~is_control]):
        mine = np.flatnonzero((producers == producer) & is_transactional & ~is_control)
        ends = np.flatnonzero((producers == producer) & is_control)
        types = [int.from_bytes(key[2:4], "big") for key in rows["key"].take(pa.array(ends)).to_pylist()]
        following = np.searchsorted(offset[ends], offset[mine])
        outcome = np.array([*types, -1])[following]
        counts[mine] = outcome == COMMIT
        is_open[mine] = outcome == -1
    values = rows["value"].filter(pa.array(counts)).combine_chunks()
    aborted = int((is_transactional & ~is_control & ~counts & ~is_open).sum())
    return Judged(values, aborted, int(is_open.sum()))
