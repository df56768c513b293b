"""Erasure: a chore that takes the records of a predicate out of one replica's files, for good. I/O: its log's table.

Offsets stay: what is erased is a gap, as after compaction. Every replica erases by itself, what it holds when it hears
of the request, wherever it got it from: a replica that was down, or that became leader meanwhile, too.
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
from stratalog.storage.log.state import LogState, live_paths
from stratalog.storage.upkeep.chore import RECHECK_MS, Chore, UpkeepDone, UpkeepView, UpkeepWork, Work
from stratalog.storage.upkeep.erase import Erase, count_name, erased_by, files_name, matching, swapped_name

FILES_MAX = 64
"""So many files one piece of work looks through …"""
BYTES_MAX = 32 << 20
"""… or so many bytes."""
LAST_SWAP = f"{ERASE_PREFIX}version"
"""The version that last took out files for an erasure; they may go once a checkpoint stands above it."""


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """A file with matching records, and what is left of it."""

    entry: FileEntry
    rest: FileEntry | None
    erased_count: int


class Erasure(Chore):
    """`erases` tells what is asked for, by id. Requests are done in order, a piece of the log at a time."""

    def __init__(self, erases: Callable[[], Sequence[Erase]]) -> None:
        self._erases = erases
        self._place = (0, -1)
        self._position = 0

    def begin(self, view: UpkeepView) -> Work[Any] | None:
        """Not before the replica has all that the request is about, and the high watermark covers it."""
        log = view.log
        erase = next((each for each in self._erases() if each.erase_id > log.state.txn_number(ERASED)), None)
        if erase is None:
            return self._made_durable(view)
        if min(view.high_watermark, log.log_end_offset) < erase.end_offset:
            return None
        if self._place != (erase.erase_id, view.leader_epoch):  # an epoch may have begun with a truncation
            self._place, self._position = (erase.erase_id, view.leader_epoch), 0
        due = _next_files(log.files, self._position, erase.end_offset)
        codec = codec_of_merge(log.config.compression_type)
        run = partial(_rewrite, log.table.reopened(), due, erase, codec)
        return Work(run, partial(self._swap, view, erase, due))

    def _swap(
        self, view: UpkeepView, erase: Erase, due: Sequence[FileEntry], found: list[_Rewritten] | None
    ) -> UpkeepDone | None:
        log = view.log
        done = [each.rest for each in found or () if each.rest is not None]
        live = live_paths(log.files)
        if found is None or log.leader_epoch != view.leader_epoch or any(e.path not in live for e in due):
            return self._lost(view, done)
        position = due[-1].end_offset if due else erase.end_offset
        is_last = not _next_files(log.files, position, erase.end_offset)
        if found or is_last:
            before = erased_by(log.state, erase.erase_id)
            outcome = log.replace_files(
                [each.entry for each in found],
                done,
                leader_epoch=view.leader_epoch,
                operation=f"ERASE {erase.erase_id}",
                now_ms=view.now_ms,
                data_change=True,
                txns={
                    count_name(erase.erase_id): before.record_count + sum(each.erased_count for each in found),
                    files_name(erase.erase_id): before.file_count + len(found),
                    swapped_name(erase.erase_id): max(before.swapped_ms, view.now_ms),
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
        """Replaced files leave storage once a checkpoint stands above the swap: here it does not wait for its turn."""
        state = view.log.state
        if not _is_owed(state) or self._waits_ms(view) > 0:
            return None
        return Work(view.log.table.checkpointer(state.snapshot()), partial(_checkpointed, view))

    def _waits_ms(self, view: UpkeepView) -> int:
        oldest = next(iter(view.log.state.removed.items()), None)
        since_ms = view.now_ms if oldest is None else oldest[1].removed_ms
        return since_ms + view.log.config.file_delete_delay_ms - view.now_ms

    def rest_ms(self, view: UpkeepView) -> int | None:
        state = view.log.state
        if any(each.erase_id > state.txn_number(ERASED) for each in self._erases()):
            return RECHECK_MS
        return max(1, self._waits_ms(view)) if _is_owed(state) else None


def _is_owed(state: LogState) -> bool:
    """Whether files that an erasure took out wait for a checkpoint."""
    return state.txn_number(LAST_SWAP) > max(0, state.durable_version)


def _checkpointed(view: UpkeepView, version: int) -> UpkeepDone:
    view.log.state.made_durable(version)
    return view.done(UpkeepWork.CHECKPOINT, 1)


def _next_files(files: Sequence[FileEntry], position: int, end_offset: int) -> list[FileEntry]:
    """The next files to look through, from `position` on; one that a merge made of both sides is looked at again."""
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
    """The files that hold matching records, with the others written anew; None when one is gone."""
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
    file = table.write_file(kept, entry.segment, codec)
    return _Rewritten(entry, FileEntry(file, entry.segment, entry.leader_epoch, entry.base_offset), count)
