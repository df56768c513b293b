"""The files of a range as a batch read's planner found them, so that its tasks need not fold the log. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stratalog.clients.spark.source.plan import FileSpan, span
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.segments import files_between
from stratalog.storage.transactions import AbortedTransaction

FILES_PLANNED_MAX = 1_000
"""The number of a partition's files above which its tasks fold its log: Spark sends a task's files along with it."""


@dataclass(frozen=True, slots=True)
class PlannedFiles:
    """Files of a partition in the leader's root, in order of their offsets.

    explained_end  the offset below which a gap is explained (`gaps.explained_end`)
    aborted        transactions whose records are left out
    """

    root: str
    entries: tuple[FileEntry, ...]
    explained_end: int
    aborted: tuple[AbortedTransaction, ...] = ()

    def between(self, start: int, end: int) -> PlannedFiles:
        """Those of a part of the range."""
        return replace(self, entries=tuple(files_between(self.entries, start, end)))

    @property
    def spans(self) -> Sequence[FileSpan]:
        """The whole files, with their sizes in bytes on storage."""
        return [span(entry, entry.start_offset, entry.end_offset) for entry in self.entries]
