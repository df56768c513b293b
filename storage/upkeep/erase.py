"""What is to be erased of one partition, which rows of a file that is, and what a replica's table says of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.storage.delta.table import ERASE_PREFIX, ERASED, FileEntry
from stratalog.storage.log.state import LogState
from stratalog.storage.records import CONTROL_ATTRIBUTE
from stratalog.storage.upkeep.erase_predicate import ErasePredicate


@dataclass(frozen=True, slots=True)
class Erase:
    """A request: records of one partition below `end_offset` that match go. Ids count up from 1, one by one."""

    erase_id: int
    end_offset: int
    predicate: ErasePredicate


@dataclass(frozen=True, slots=True)
class Erased:
    """What a replica says it did for one request, counting also what it did once more after a truncation."""

    record_count: int
    file_count: int
    is_complete: bool
    swapped_ms: int = 0
    """When it last took files out: what left the log later holds nothing that was to be erased."""


def erased_by(state: LogState, erase_id: int) -> Erased:
    """As the table's txns state it."""
    return Erased(
        state.stated(count_name(erase_id)),
        state.stated(files_name(erase_id)),
        state.stated(ERASED) >= erase_id,
        state.stated(swapped_name(erase_id)),
    )


def matching(rows: pa.Table, entry: FileEntry, erase: Erase) -> pa.BooleanArray:
    """Which rows of a data file a request is for: below its offset, matching, and no control records.

    With base offset 100 and end offset 102 only rows of offset_delta 0 and 1.
    """
    below = pc.less(rows["offset_delta"].combine_chunks(), erase.end_offset - entry.base_offset)
    is_control = pc.not_equal(pc.bit_wise_and(rows["attributes"].combine_chunks(), CONTROL_ATTRIBUTE), 0)
    return pc.and_(pc.and_(below, pc.invert(is_control)), erase.predicate.matches(rows))


def count_name(erase_id: int) -> str:
    """The txn that counts the records a replica erased for a request."""
    return f"{ERASE_PREFIX}{erase_id}"


def files_name(erase_id: int) -> str:
    """The txn that counts the files it rewrote or dropped."""
    return f"{ERASE_PREFIX}{erase_id}.files"


def swapped_name(erase_id: int) -> str:
    """The txn that says when it last did (ms)."""
    return f"{ERASE_PREFIX}{erase_id}.ms"
