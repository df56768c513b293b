"""Requests to erase records: their predicates, the rows that these match, and a replica's pass over its log. Pure.

A predicate is an object of a small JSON language:

    {"key": {"equals": "bob"}}                              or "in": [...], "begins_with", "contains", "is_null": true
    {"value": {"contains": {"base64": "AAE="}}}             bytes that are not text
    {"timestamp_ms": {"from": 1000, "below": 2000}}         either bound may be absent
    {"header": {"name": "user", "equals": "bob"}}           without "equals": any value
    {"all": [...]}, {"any": [...]}, {"not": {...}}

Text is UTF-8. A record without the field does not match, so its {"not": ...} does. Nothing is evaluated as code.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import takewhile
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.storage.delta.table import ERASE_PASS, ERASE_POSITION, ERASE_PREFIX, ERASED
from stratalog.storage.errors import InvalidRequestError
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.leader_epochs import UNDEFINED_EPOCH, LeaderEpochCache
from stratalog.storage.log.state import LogState
from stratalog.storage.records import CONTROL_ATTRIBUTE

Mask = Callable[[pa.Table], Any]
"""Rows of `DATA_SCHEMA` -> one truth for each."""
DEPTH_MAX = 32
"""The most levels of a predicate."""
LAST_SWAP = f"{ERASE_PREFIX}version"
"""The version that last removed files for an erasure; they are deleted once a checkpoint is above it."""


@dataclass(frozen=True, slots=True)
class ErasePredicate:
    """A parsed predicate. `text` is its canonical JSON, in which form it is stored and sent."""

    text: str
    mask: Mask

    @staticmethod
    def parse(predicate: str | Mapping[str, Any]) -> ErasePredicate:
        """Raises InvalidRequestError naming the part that is not of the language."""
        try:
            body = json.loads(predicate) if isinstance(predicate, str) else predicate
        except ValueError as reason:
            raise InvalidRequestError(f"not JSON: {predicate!r} ({reason})") from reason
        mask = _parsed(body, 0)
        return ErasePredicate(json.dumps(body, sort_keys=True, separators=(",", ":")), mask)

    def matches(self, rows: pa.Table) -> pa.BooleanArray:
        """One truth for each row of `DATA_SCHEMA`; never null."""
        found = self.mask(rows)
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


@dataclass(frozen=True, slots=True)
class Erase:
    """A request to erase the records of one partition below `end_offset` that match. Ids count from 1, without gaps.

    leader_epoch  under which that was the high watermark: records of later epochs are not meant; -1: unknown
    """

    erase_id: int
    end_offset: int
    predicate: ErasePredicate
    leader_epoch: int = UNDEFINED_EPOCH

    def within(self, epochs: LeaderEpochCache) -> Erase:
        """The request as it concerns a log with these epochs: up to where a later epoch began, at most.

        That lies below `end_offset` only if committed records were lost, in an unclean election or a power cut of all
        replicas. They do not come any more, and what is written at their offsets is younger than the request.
        """
        end_offset = self.end_offset if self.leader_epoch == UNDEFINED_EPOCH else epochs.end_after(self.leader_epoch)
        return self if end_offset is None or end_offset >= self.end_offset else replace(self, end_offset=end_offset)


@dataclass(frozen=True, slots=True)
class Erased:
    """A replica's work for one request, with what it repeated after a truncation."""

    record_count: int
    file_count: int
    is_complete: bool
    swapped_ms: int = 0
    """Time of the last commit that removed files: files that left the log later hold no record of the request."""


class EraseTxns(NamedTuple):
    """The names of a request's txns in a replica's table: records erased, files rewritten or dropped, and the time (ms)
    of the last commit that removed files."""

    records: str
    files: str
    swapped_ms: str

    @staticmethod
    def of(erase_id: int) -> EraseTxns:
        name = f"{ERASE_PREFIX}{erase_id}"
        return EraseTxns(name, f"{name}.files", f"{name}.ms")


def erased_by(state: LogState, erase_id: int) -> Erased:
    """A replica's work for a request, from its table's txns."""
    records, files, swapped_ms = map(state.txn_number, EraseTxns.of(erase_id))
    return Erased(records, files, state.txn_number(ERASED) >= erase_id, swapped_ms)


@dataclass(frozen=True, slots=True)
class ErasePass:
    """One reading of a log for all requests that are ready. Its position is an offset, and in the log's own table: it
    goes on in another process and under another leader epoch, whatever files were merged into, and what removes the
    log's end takes it back there.

    erases    in order of id, each as it concerns the log now
    position  below it no record matches one of them
    stated    the numbers in the table by which it was begun
    """

    erases: tuple[Erase, ...]
    position: int
    stated: tuple[int, ...]

    @staticmethod
    def due(state: LogState, erases: Sequence[Erase], readable_end: int) -> ErasePass | None:
        """The pass under way, else one of all requests up to the first that is not ready; None when none is.

        A request is ready when `readable_end`, up to which the replica has all committed records, is not below its end.
        One that became ready after a pass began waits for the next.
        """
        done_id, pass_id, position = stated = _stated(state)
        waiting = (each.within(state.epochs) for each in erases if each.erase_id > done_id)
        ready = tuple(takewhile(lambda each: each.end_offset <= readable_end, waiting))
        under_way = tuple(each for each in ready if each.erase_id <= pass_id)
        if under_way:
            return ErasePass(under_way, position, stated)
        return ErasePass(ready, 0, stated) if ready else None

    @property
    def end_offset(self) -> int:
        """The end of what it reads."""
        return max(each.end_offset for each in self.erases)

    def stands(self, state: LogState) -> bool:
        """Whether nobody has moved its position, nor had requests done once more."""
        return _stated(state) == self.stated

    def split(self, rows: pa.Table, entry: FileEntry) -> tuple[pa.Table, dict[int, int]]:
        """The rows of a data file that stay, and how many each request erases, by id. A row counts for the first."""
        counts: dict[int, int] = {}
        for erase in self.erases:
            matches = matching(rows, entry, erase)
            if count := pc.sum(matches).as_py():
                counts[erase.erase_id] = count
                rows = rows.filter(pc.invert(matches))
        return rows, counts

    def txns(
        self, state: LogState, position: int, counts: Sequence[Mapping[int, int]], now_ms: int, *, is_last: bool
    ) -> dict[str, int]:
        """Txns of the commit by which it has come to `position`.

        counts   of each file that the commit removes, as from `split`
        is_last  no file is left to read
        """
        newest_id = self.erases[-1].erase_id
        txns = {ERASE_PASS: newest_id, ERASE_POSITION: position}
        if counts:
            txns[LAST_SWAP] = state.version + 1
        if is_last:
            txns[ERASED] = newest_id
        for erase in self.erases:
            own = [each[erase.erase_id] for each in counts if erase.erase_id in each]
            if own or is_last:  # a file with its last record may have counted for another request
                before, names = erased_by(state, erase.erase_id), EraseTxns.of(erase.erase_id)
                txns[names.records] = before.record_count + sum(own)
                txns[names.files] = before.file_count + len(own)
                txns[names.swapped_ms] = max(before.swapped_ms, now_ms)
        return txns


def _stated(state: LogState) -> tuple[int, ...]:
    return tuple(map(state.txn_number, (ERASED, ERASE_PASS, ERASE_POSITION)))


def matching(rows: pa.Table, entry: FileEntry, erase: Erase) -> pa.BooleanArray:
    """The rows of a data file that a request erases: below its offset, matching, no control records.

    With base offset 100 and end offset 102 at most the rows of offset_delta 0 and 1.
    """
    below = pc.less(rows["offset_delta"].combine_chunks(), erase.end_offset - entry.base_offset)
    is_control = pc.not_equal(pc.bit_wise_and(rows["attributes"].combine_chunks(), CONTROL_ATTRIBUTE), 0)
    return pc.and_(pc.and_(below, pc.invert(is_control)), erase.predicate.matches(rows))


def _parsed(body: Any, depth: int) -> Mask:
    if depth > DEPTH_MAX:
        raise InvalidRequestError(f"a predicate of more than {DEPTH_MAX} levels")
    if not isinstance(body, Mapping) or len(body) != 1:
        raise InvalidRequestError(f"expected an object with one name, not {body!r}")
    ((name, operand),) = body.items()
    if name in ("key", "value"):
        return _of_bytes(name, operand)
    if name == "timestamp_ms":
        return _of_timestamp(operand)
    if name == "header":
        return _of_header(operand)
    if name in ("all", "any"):
        return _joined(name, operand, depth)
    if name == "not":
        inner = _parsed(operand, depth + 1)
        return lambda rows: pc.invert(inner(rows))
    raise InvalidRequestError(f"unknown name {name!r}: expected key, value, timestamp_ms, header, all, any or not")


def _joined(name: str, operand: Any, depth: int) -> Mask:
    if not isinstance(operand, Sequence) or isinstance(operand, str) or not operand:
        raise InvalidRequestError(f"{name} needs a list of predicates, not {operand!r}")
    parts = [_parsed(part, depth + 1) for part in operand]
    join = pc.and_ if name == "all" else pc.or_

    return lambda rows: reduce(join, [part(rows) for part in parts])


def _of_bytes(column: str, operand: Any) -> Mask:
    test = _test_of_bytes(column, operand)
    return lambda rows: pc.fill_null(test(rows[column]), False)


def _test_of_bytes(column: str, operand: Any) -> Callable[[Any], Any]:
    if not isinstance(operand, Mapping) or len(operand) != 1:
        raise InvalidRequestError(f"{column} needs an object with one operation, not {operand!r}")
    ((operation, wanted),) = operand.items()
    if operation == "is_null":
        if not isinstance(wanted, bool):
            raise InvalidRequestError(f"{column} is_null is {wanted!r}: expected true or false")
        return lambda values: pc.is_null(values) if wanted else pc.is_valid(values)
    if operation == "in":
        if not isinstance(wanted, Sequence) or isinstance(wanted, str):
            raise InvalidRequestError(f"{column} in {wanted!r}: expected a list")
        options = pa.array([_bytes_of(column, each) for each in wanted], pa.binary())
        return lambda values: pc.is_in(values, value_set=options)
    pattern = _bytes_of(column, wanted)
    if operation == "equals":
        return lambda values: pc.equal(values, pa.scalar(pattern, pa.binary()))
    if operation == "begins_with":
        return lambda values: pc.starts_with(values, pattern=pattern)
    if operation == "contains":
        return lambda values: pc.match_substring(values, pattern=pattern)
    raise InvalidRequestError(
        f"unknown operation {operation!r} of {column}: expected equals, in, begins_with, contains or is_null"
    )


def _of_timestamp(operand: Any) -> Mask:
    bounds = _fields("timestamp_ms", operand, {"from", "below"})
    for name, bound in bounds.items():
        if not isinstance(bound, int) or isinstance(bound, bool):
            raise InvalidRequestError(f"timestamp_ms {name} is {bound!r}: expected milliseconds")
    if not bounds:
        raise InvalidRequestError("timestamp_ms needs from or below")

    compares = {"from": pc.greater_equal, "below": pc.less}

    def mask(rows: pa.Table) -> Any:
        times = rows["timestamp"].cast(pa.int64())
        return reduce(pc.and_, [pc.fill_null(compares[name](times, bound), False) for name, bound in bounds.items()])

    return mask


def _of_header(operand: Any) -> Mask:
    fields = _fields("header", operand, {"name", "equals"})
    name = fields.get("name")
    if not isinstance(name, str):
        raise InvalidRequestError(f"header name is {name!r}: expected text")
    wanted = _bytes_of("header", fields["equals"]) if "equals" in fields else None

    def mask(rows: pa.Table) -> Any:
        headers = rows["headers"].combine_chunks()
        flat = headers.flatten()
        found = pc.equal(flat.field("key"), name)
        if wanted is not None:
            found = pc.and_(found, pc.equal(flat.field("value"), pa.scalar(wanted, pa.binary())))
        parents = pc.list_parent_indices(headers).filter(pc.fill_null(found, False))
        positions = pa.array(range(rows.num_rows), pa.int64())
        return pc.is_in(positions, value_set=parents.cast(pa.int64()))

    return mask


def _fields(name: str, operand: Any, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(operand, Mapping) or set(operand) - known:
        raise InvalidRequestError(f"{name} needs an object with {sorted(known)}, not {operand!r}")
    return operand


def _bytes_of(name: str, operand: Any) -> bytes:
    if isinstance(operand, str):
        return operand.encode()
    if isinstance(operand, Mapping) and set(operand) == {"base64"} and isinstance(operand["base64"], str):
        try:
            return base64.b64decode(operand["base64"], validate=True)
        except binascii.Error as reason:
            raise InvalidRequestError(f"{name}: {operand['base64']!r} is not base64 ({reason})") from reason
    raise InvalidRequestError(f'{name} is compared with {operand!r}: expected text or {{"base64": ...}}')
