"""What typed tables hold of an erasure of their topic. I/O: the tables' rows and the listings of their files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.typed.delta import DeltaFolder
from stratalog.clients.console.typed.known import typed_tables_of
from stratalog.clients.typed_tables.erasure import DEAD_LETTERS, TableErasure, columns_of_table, erased_id, erased_ms
from stratalog.clients.typed_tables.notes import TypedTableNote
from stratalog.clients.typed_tables.predicates import RecordParts, erased_rows
from stratalog.replication.metadata.records import EraseRecord
from stratalog.server.admin.erasure import ends_left
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import LogDirNotFoundError, StratalogError
from stratalog.storage.upkeep.erase import ErasePredicate

_PARTS = {"key": pa.binary(), "value": pa.binary()}
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True, slots=True)
class ErasedTable:
    """What a typed table, or its dead letters, holds of an erasure; see `typed_tables.erasure.TableErasure`.

    rows_left  -1: not known, the table does not keep the part of records that `lacking` names, or `error` says why
    """

    table: str
    is_applied: bool
    rows_left: int
    files_waiting: int
    log_files_waiting: int
    is_gone: bool
    lacking: str = ""
    error: str = ""


def erased_tables(asker: Asker, view: ClusterView, record: EraseRecord) -> tuple[ErasedTable, ...]:
    """An erasure in all typed tables of its topic that the console knows, read now."""
    topic_id = view.image.topic_ids.get(record.topic, "")
    notes = [each for each in typed_tables_of(asker, record.topic) if each.topic_id in ("", topic_id)]
    if not notes:
        return ()
    ends = ends_left(view, record)
    return tuple(found for each in notes for found in _of_table(each, view, record, ends))


def _of_table(note: TypedTableNote, view: ClusterView, record: EraseRecord, ends: Sequence[int]) -> list[ErasedTable]:
    try:
        target = DeltaFolder.opened(note.location, view.stores)
        properties = target.properties()
        is_applied = erased_id(properties) >= record.erase_id
        done_ms = erased_ms(properties) if is_applied else 0
        parts = columns_of_table(name for name, _ in target.columns())
        found = [_told(target, parts, record, ends, is_applied=is_applied, done_ms=done_ms)]
    except StratalogError as reason:
        return [ErasedTable(note.location, False, -1, 0, 0, False, error=f"{reason.name}: {reason}")]
    if note.dead_letters:
        try:
            letters = DeltaFolder.opened(note.dead_letters, view.stores)
            found.append(_told(letters, DEAD_LETTERS, record, ends, is_applied=is_applied, done_ms=done_ms))
        except LogDirNotFoundError:  # there never was one
            pass
        except StratalogError as reason:
            found.append(ErasedTable(note.dead_letters, False, -1, 0, 0, False, error=f"{reason.name}: {reason}"))
    return found


def _told(
    folder: DeltaFolder, parts: RecordParts, record: EraseRecord, ends: Sequence[int], *, is_applied: bool, done_ms: int
) -> ErasedTable:
    lacking = erased_rows(record.predicate, ends, parts).lacking
    left = None if lacking is not None else _rows_left(folder, parts, record.predicate, ends)
    waiting, in_log = folder.left_files(done_ms)
    state = TableErasure(folder.place, is_applied, left, lacking, waiting, in_log)
    return ErasedTable(
        folder.place, is_applied, -1 if left is None else left, waiting, in_log, state.is_gone, lacking or ""
    )


def _rows_left(folder: DeltaFolder, parts: RecordParts, predicate: str, ends: Sequence[int]) -> int:
    """Rows below the end offsets that match, by the predicate of the log itself."""
    matches = ErasePredicate.parse(predicate)
    ranges = " OR ".join(
        f'("{parts.partition}" = {partition} AND "{parts.offset}" < {end})' for partition, end in enumerate(ends) if end
    )
    if not ranges:
        return 0
    named = {"timestamp": parts.timestamp, "key": parts.key, "value": parts.value, "headers": parts.headers}
    wanted = {name: column for name, column in named.items() if column is not None and name[:6] in predicate}
    listed = ", ".join(f'"{column}" AS "{name}"' for name, column in {"timestamp": parts.timestamp, **wanted}.items())
    count = 0
    for batch in folder.batches(f"SELECT {listed} FROM t WHERE {ranges}"):
        rows = pa.Table.from_batches([batch])
        found = {"timestamp": rows["timestamp"].cast(pa.timestamp("ms", tz="UTC"), safe=False)}
        found |= {name: rows[name].cast(kind) for name, kind in _PARTS.items() if name in wanted}
        if "headers" in wanted:
            found["headers"] = rows["headers"].cast(_HEADERS)
        count += pc.sum(matches.matches(pa.table(found))).as_py() or 0
    return count
