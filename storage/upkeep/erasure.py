"""The chore that erases: it removes the records of a request from one replica's files. I/O: its log's table.

Offsets stay: an erased record is a gap, as after compaction. Each replica erases its own files once it has received the
request, wherever it copied them from; so does a replica that was down, or that became the leader meanwhile. A long log
takes longer than a process lives, so each commit of a pass states how far it has come (`ErasePass`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from stratalog.storage import cadence
from stratalog.storage.delta.table import ERASED, Conflict, LogTable
from stratalog.storage.errors import ObjectNotFoundError
from stratalog.storage.files.codecs import codec_of_merge
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.segments import files_between
from stratalog.storage.log.state import LogState
from stratalog.storage.upkeep.chore import Chore, UpkeepDone, UpkeepView, UpkeepWork, Work, wait_end_ms
from stratalog.storage.upkeep.erase import LAST_SWAP, Erase, ErasePass

FILES_MAX = 64
"""Files that one piece of work reads at most."""
BYTES_MAX = 32 << 20
"""Bytes after which a piece of work reads no further file."""
PIECES_MAX = 8
"""Pieces of work without a match after which a pass commits how far it has come."""


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """A file with matching records, the file of its other records, if any, and how many each request erased."""

    entry: FileEntry
    rest: FileEntry | None
    counts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _Reading:
    """Pieces of a pass since its last commit: the files that they read, of which only those of the newest match."""

    view: UpkeepView
    erase_pass: ErasePass
    files: Sequence[FileEntry] = ()
    piece_count: int = 0

    @property
    def position(self) -> int:
        return self.files[-1].end_offset if self.files else self.erase_pass.position

    def left(self) -> Sequence[FileEntry] | None:
        """The files that the pass has yet to read; None when it must begin again from its stated position: that, or
        what was read above it, is not as it was."""
        view, erase_pass = self.view, self.erase_pass
        log = view.log
        files = files_between(log.files, erase_pass.position, erase_pass.end_offset)
        count = len(self.files)
        is_same = [entry.path for entry in files[:count]] == [entry.path for entry in self.files]
        stands = log.leader_epoch == view.leader_epoch and erase_pass.stands(log.state)
        return files[count:] if is_same and stands else None


class Erasure(Chore):
    """Does the requests that `erases` returns, in order of id, a piece of the log at a time."""

    def __init__(self, erases: Callable[[], Sequence[Erase]]) -> None:
        self._erases = erases

    def begin(self, view: UpkeepView) -> Work[Any] | None:
        """A request waits until the replica has all records below its offset, and the high watermark covers them; but
        not for records that are lost."""
        log = view.log
        erase_pass = ErasePass.due(log.state, self._erases(), min(view.high_watermark, log.log_end_offset))
        if erase_pass is None:
            return self._made_durable(view)
        return self._read(_Reading(view, erase_pass))

    def _read(self, so_far: _Reading) -> Work[Any]:
        """The next piece."""
        log, erase_pass = so_far.view.log, so_far.erase_pass
        due = _first_files(files_between(log.files, so_far.position, erase_pass.end_offset))
        reading = replace(so_far, files=[*so_far.files, *due], piece_count=so_far.piece_count + 1)
        run = partial(_rewrite, log.table.reopened(), due, erase_pass, codec_of_merge(log.config))
        return Work(run, partial(self._swap, reading))

    def _swap(self, reading: _Reading, found: list[_Rewritten] | None) -> Work[Any] | UpkeepDone:
        view, erase_pass = reading.view, reading.erase_pass
        if found is None:
            view.check_there(reading.files)
        new = [each.rest for each in found or () if each.rest is not None]
        left = reading.left()
        if found is None or left is None:
            return self._lost(view, new)
        if left and not found and reading.piece_count < PIECES_MAX:
            return self._read(reading)
        log, is_last = view.log, not left
        position = max(erase_pass.position, erase_pass.end_offset) if is_last else reading.position
        outcome = log.replace_files(
            [each.entry for each in found],
            new,
            leader_epoch=view.leader_epoch,
            operation=f"ERASE {erase_pass.erases[-1].erase_id}",
            now_ms=view.now_ms,
            txns=erase_pass.txns(log.state, position, [each.counts for each in found], view.now_ms, is_last=is_last),
        )
        if isinstance(outcome, Conflict):
            return self._lost(view, new)
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
            return cadence.RECHECK.ms
        return max(1, self._waits_ms(view)) if _is_owed(state) else None


def _is_owed(state: LogState) -> bool:
    """Whether files that an erasure removed wait for a checkpoint."""
    return state.txn_number(LAST_SWAP) > max(0, state.durable_version)


def _first_files(files: Sequence[FileEntry]) -> list[FileEntry]:
    """The files of one piece of work."""
    first: list[FileEntry] = []
    size_bytes = 0
    for entry in files[:FILES_MAX]:
        if size_bytes > BYTES_MAX:
            break
        first.append(entry)
        size_bytes += entry.file.size_bytes
    return first


def _rewrite(table: LogTable, due: Sequence[FileEntry], erase_pass: ErasePass, codec: str) -> list[_Rewritten] | None:
    """The files with matching records, with their other records written as new files; None when a file is gone."""
    try:
        found = (_rewritten(table, entry, erase_pass, codec) for entry in due)
        return [each for each in found if each is not None]
    except ObjectNotFoundError:
        return None


def _rewritten(table: LogTable, entry: FileEntry, erase_pass: ErasePass, codec: str) -> _Rewritten | None:
    kept, counts = erase_pass.split(table.read_file(entry.file), entry)
    if not counts:
        return None
    if kept.num_rows == 0:
        return _Rewritten(entry, None, counts)
    return _Rewritten(entry, replace(entry, file=table.write_file(kept, entry.partition_values, codec)), counts)
