"""What is to be erased of one partition, which rows of a file that is, and what a replica's table says of it. Pure.

Which records to erase: a small language in JSON, as masks over the rows of a data file. Pure.

    {"key": {"equals": "bob"}}                              or "in": [...], "begins_with", "contains", "is_null": true
    {"value": {"contains": {"base64": "AAE="}}}             bytes that are no text
    {"timestamp_ms": {"from": 1000, "below": 2000}}         either bound may be absent
    {"header": {"name": "user", "equals": "bob"}}           without "equals": any value
    {"all": [...]}, {"any": [...]}, {"not": {...}}

Text is UTF-8. A record without the field does not match, so {"not": ...} of it does. Nothing is evaluated as code.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.storage.delta.table import ERASE_PREFIX, ERASED
from stratalog.storage.errors import InvalidRequestError
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.state import LogState
from stratalog.storage.records import CONTROL_ATTRIBUTE


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
        state.txn_number(count_name(erase_id)),
        state.txn_number(files_name(erase_id)),
        state.txn_number(ERASED) >= erase_id,
        state.txn_number(swapped_name(erase_id)),
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


Mask = Callable[[pa.Table], Any]


COLUMNS = ("key", "value", "headers", "timestamp")


DEPTH_MAX = 32


@dataclass(frozen=True, slots=True)
class ErasePredicate:
    """A predicate that was read. `text` is its canonical JSON, by which it is carried."""

    text: str
    mask: Mask

    @staticmethod
    def parse(predicate: str | Mapping[str, Any]) -> ErasePredicate:
        """InvalidRequestError naming the part that is not of the language."""
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

    def mask(rows: pa.Table) -> Any:
        found = parts[0](rows)
        for part in parts[1:]:
            found = join(found, part(rows))
        return found

    return mask


def _of_bytes(column: str, operand: Any) -> Mask:
    test = _test_of_bytes(column, operand)
    return lambda rows: pc.fill_null(test(rows[column]), False)


def _test_of_bytes(column: str, operand: Any) -> Callable[[Any], Any]:
    operation, wanted = _only(column, operand)
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

    def mask(rows: pa.Table) -> Any:
        times = rows["timestamp"].cast(pa.int64())
        found = pc.is_valid(times)
        if "from" in bounds:
            found = pc.and_(found, pc.fill_null(pc.greater_equal(times, bounds["from"]), False))
        if "below" in bounds:
            found = pc.and_(found, pc.fill_null(pc.less(times, bounds["below"]), False))
        return found

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


def _only(name: str, operand: Any) -> tuple[str, Any]:
    if not isinstance(operand, Mapping) or len(operand) != 1:
        raise InvalidRequestError(f"{name} needs an object with one operation, not {operand!r}")
    ((operation, wanted),) = operand.items()
    return operation, wanted


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
