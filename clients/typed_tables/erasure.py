"""Erasures of a topic in its typed table: which are due, which are done, and the proof. Pure.

`Admin.delete_where` commits a request to the metadata log; brokers erase the log by it, and a typed table its rows and
dead letters. A request is done for a table once its rows were deleted at a time when the query had read everything the
request is about: before, a record could still come from the log that the brokers have not erased yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from stratalog.clients.typed_tables.predicates import RecordParts
from stratalog.clients.typed_tables.rows.evolution import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, VALUE
from stratalog.replication.metadata.records import EraseRecord

ERASED_ID, ERASED_MS = "stratalog.erased.id", "stratalog.erased.ms"
"""Table properties: requests up to this one are done, and when the last one was, by the storage's clock if that is
ahead: what the deletion wrote into Delta's log is older."""
Ends = Callable[[EraseRecord], Sequence[int]]
"""A request's end offsets, as far as the records below them are not lost; asked only of one that seems not passed."""
DEAD_LETTERS = RecordParts("partition", "offset", "timestamp", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class TableErasure:
    """A request in one table.

    is_applied     its rows were deleted, and none can come any more
    rows_left      rows that match, counted now; None if the table cannot decide
    lacking        the part of records that the table would need to keep to decide: key, value or headers
    files_waiting  data files that may hold an erased row and are still on storage, until they are vacuumed
    log_files_waiting  files of Delta's log from before the erasure, whose statistics may name an erased value; they go
                   with the data files
    """

    table: str
    is_applied: bool
    rows_left: int | None = 0
    lacking: str | None = None
    files_waiting: int = 0
    log_files_waiting: int = 0

    @property
    def is_gone(self) -> bool:
        """True when no version of the table on storage holds a matching row, nor Delta's log a value of one."""
        return self.is_applied and self.rows_left == 0 and self.files_waiting + self.log_files_waiting == 0


def columns_of_table(names: Iterable[str]) -> RecordParts:
    """Where a typed table has the parts of records."""
    there = frozenset(names)
    key, value, headers = (name if name in there else None for name in (KEY, VALUE, HEADERS))
    return RecordParts(PARTITION, OFFSET, TIMESTAMP, key, value, headers)


def erased_id(properties: Mapping[str, str]) -> int:
    """The newest request that is done, by a table's properties; 0 for none."""
    return int(properties.get(ERASED_ID, "0"))


def erased_ms(properties: Mapping[str, str]) -> int:
    """When the newest request was done; 0 for none."""
    return int(properties.get(ERASED_MS, "0"))


def open_requests(requests: Mapping[int, EraseRecord], done_id: int) -> list[EraseRecord]:
    """The requests that are not done, by id."""
    return [requests[number] for number in sorted(requests) if number > done_id]


def is_passed(end_offsets: Sequence[int], positions: Mapping[int, int]) -> bool:
    """Whether a query at these positions has read all below the end offsets of a request.

    >>> is_passed((5, 0), {0: 5}), is_passed((5, 0), {0: 4, 1: 9})
    (True, False)
    """
    return all(positions.get(partition, 0) >= end for partition, end in enumerate(end_offsets))


def done_up_to(applied: Sequence[EraseRecord], positions: Mapping[int, int], done_id: int, ends: Ends) -> int:
    """The newest request that is done once all of `applied` were; a request is done after those before it."""
    for request in applied:
        if not is_passed(request.end_offsets, positions) and not is_passed(ends(request), positions):
            break
        done_id = request.erase_id
    return done_id


def vacuum_is_due(now_ms: int, last_ms: int, erased_at_ms: int, retention_ms: int, interval_ms: int) -> bool:
    """Whether files may be deleted: in intervals, and once after the delay of the newest erasure.

    >>> vacuum_is_due(now_ms=160, last_ms=100, erased_at_ms=90, retention_ms=60, interval_ms=1000)
    True
    """
    if retention_ms < 0:
        return False
    if erased_at_ms and last_ms <= erased_at_ms + retention_ms < now_ms:
        return True
    return interval_ms >= 0 and not 0 <= now_ms - last_ms < max(interval_ms, 1)
