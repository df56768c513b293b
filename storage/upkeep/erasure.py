"""The chore that erases: it removes the records of a request from one replica's files. I/O: its log's table.

Offsets stay: an erased record is a gap, as after compaction. Each replica erases its own files once it has received the
request, wherever it copied them from; so does a replica that was down, or that became the leader meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow.compute as pc

from stratalog.storage.delta.table import ERASE_PREFIX, ERASED, Conflict, LogTable
from stratalog.storage.errors import ObjectNotFoundError
from stratalog.storage.files.codecs import codec_of_merge
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.state import LogState
from stratalog.storage.upkeep.chore import RECHECK_MS, Chore, UpkeepDone, UpkeepView, UpkeepWork, Work, wait_end_ms
from stratalog.storage.upkeep.erase import Erase, EraseTxns, erased_by, matching

FILES_MAX = 64
"""Files that one piece of work reads at most."""
BYTES_MAX = 32 << 20
"""Bytes after which a piece of work reads no further file."""
LAST_SWAP = f"{ERASE_PREFIX}version"
"""The version that last removed files for an erasure; they are deleted once a checkpoint is above it."""


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """A file with matching records, and the file of its other records, if any."""

    entry: FileEntry
    rest: FileEntry | None
    erased_count: int


class Erasure(Chore):
    """Does the requests that `erases` returns, in order of id, a piece of the log at a time."""

    def __init__(self, erases: Callable[[], Sequence[Erase]]) -> None:
        self._erases = erases
        self._request = (0, -1)
        self._position = 0

    def begin(self, view: UpkeepView) -> Work[Any] | None:
        """A request waits until the replica has all records below its offset, and the high watermark covers them; but
        not for records that are lost."""
        log = view.log
        erase = next((each for each in self._erases() if each.erase_id > log.state.txn_number(ERASED)), None)
        if erase is None:
            return self._made_durable(view)
        erase = erase.within(log.state.epochs)
        if min(view.high_watermark, log.log_end_offset) < erase.end_offset:
            return None
        if self._request != (erase.erase_id, view.leader_epoch):  # an epoch may begin with a truncation
            self._request, self._position = (erase.erase_id, view.leader_epoch), 0
        due = _next_files(log.files, self._position, erase.end_offset)
        codec = codec_of_merge(log.config)
        run = partial(_rewrite, log.table.reopened(), due, erase, codec)
        return Work(run, partial(self._swap, view, erase, due))

    def _swap(
        self, view: UpkeepView, erase: Erase, due: Sequence[FileEntry], found: list[_Rewritten] | None
    ) -> UpkeepDone | None:
        log = view.log
        done = [each.rest for each in found or () if each.rest is not None]
        if found is None:
            view.check_there(due)
        if found is None or not view.still_has(due):
            return self._lost(view, done)
        position = due[-1].end_offset if due else erase.end_offset
        is_last = not _next_files(log.files, position, erase.end_offset)
        if found or is_last:
            before, names = erased_by(log.state, erase.erase_id), EraseTxns.of(erase.erase_id)
            outcome = log.replace_files(
                [each.entry for each in found],
                done,
                leader_epoch=view.leader_epoch,
                operation=f"ERASE {erase.erase_id}",
                now_ms=view.now_ms,
                txns={
                    names.records: before.record_count + sum(each.erased_count for each in found),
                    names.files: before.file_count + len(found),
                    names.swapped_ms: max(before.swapped_ms, view.now_ms),
                    **({LAST_SWAP: log.version + 1} if found else {}),
                    **({ERASED: erase.erase_id} if is_last else {}),
                },
            )
            if isinstance(outcome, Conflict):
                return self._lost(view, done)
        self._position = position
        return view.done(UpkeepWork.ERASE, len(found))

    def _lost(self, view: UpkeepView, files: Sequence[FileEntry]) -> UpkeepDone:
        view.log.table.delete_objects([entry.path for entry in files])
        view.log.refresh()
        return view.done(UpkeepWork.LOST_RACE, 0)

    def _made_durable(self, view: UpkeepView) -> Work[Any] | None:
        """A checkpoint as soon as replaced files may be deleted: they wait for one above their commit."""
        state = view.log.state
        if not _is_owed(state) or self._waits_ms(view) > 0:
            return None
        return view.checkpoint()

    def _waits_ms(self, view: UpkeepView) -> int:
        since_ms = view.log.state.erased_ms or view.now_ms
        return wait_end_ms(since_ms, view.log.config.file_delete_delay_ms, view.now_ms) - view.now_ms

    def rest_ms(self, view: UpkeepView) -> int | None:
        state = view.log.state
        if any(each.erase_id > state.txn_number(ERASED) for each in self._erases()):
            return RECHECK_MS
        return max(1, self._waits_ms(view)) if _is_owed(state) else None


def _is_owed(state: LogState) -> bool:
    """Whether files that an erasure removed wait for a checkpoint."""
    return state.txn_number(LAST_SWAP) > max(0, state.durable_version)


def _next_files(files: Sequence[FileEntry], position: int, end_offset: int) -> list[FileEntry]:
    """The next files to read, from `position` on; one that a merge made across it is read again."""
    due: list[FileEntry] = []
    size_bytes = 0
    for entry in files:
        if entry.end_offset <= position:
            continue
        if entry.start_offset >= end_offset or len(due) == FILES_MAX or size_bytes > BYTES_MAX:
            break
        due.append(entry)
        size_bytes += entry.file.size_bytes
    return due


def _rewrite(table: LogTable, due: Sequence[FileEntry], erase: Erase, codec: str) -> list[_Rewritten] | None:
    """The files with matching records, with their other records written as new files; None when a file is gone."""
    try:
        found = (_rewritten(table, entry, erase, codec) for entry in due)
        return [each for each in found if each is not None]
    except ObjectNotFoundError:
        return None


def _rewritten(table: LogTable, entry: FileEntry, erase: Erase, codec: str) -> _Rewritten | None:
    rows = table.read_file(entry.file)
    matches = matching(rows, entry, erase)
    count = pc.sum(matches).as_py() or 0
    if count == 0:
        return None
    kept = rows.filter(pc.invert(matches))
    if kept.num_rows == 0:
        return _Rewritten(entry, None, count)
    file = table.write_file(kept, entry.partition_values, codec)
    return _Rewritten(entry, FileEntry(file, entry.segment, entry.leader_epoch, entry.base_offset), count)
