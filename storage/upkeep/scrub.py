"""Scrubbing: a log's data files are read now and then, so that decayed bits are found while a clean copy lives.

I/O: through the log's table. Only where bits are the owner's own business, as on a local disk: an object store checks
what it holds by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from stratalog.storage.delta.table import DataFile, LogTable
from stratalog.storage.errors import DamagedFileError, ObjectNotFoundError
from stratalog.storage.upkeep.chore import Chore, UpkeepDone, UpkeepLimits, UpkeepView, Work

SLOTS = 1_440
"""A pass over a log is cut into so many parts, one for each minute of a day."""
SLOT_MS_MIN = 1_000


class Scrub(Chore):
    """Every file is there and whole: all are looked for when upkeep begins, and each is read once in a pass.

    Which files have their turn is told by the time alone, so it is the same for whoever takes the upkeep over. Each
    turn also folds what is new, so that a foreign commit to an idle log is noticed.
    """

    def __init__(self, limits: UpkeepLimits) -> None:
        self._pass_ms = limits.scrub_ms
        self._slot_ms = max(SLOT_MS_MIN, limits.scrub_ms // SLOTS)
        self._slot: int | None = None

    def begin(self, view: UpkeepView) -> Work[Any] | None:
        """Raises DamagedFileError naming the file once its work is done, and what `refresh` of the log raises."""
        if not view.log.table.decays:
            return None
        slot, is_first = view.now_ms // self._slot_ms, self._slot is None
        if slot == self._slot or (view.is_busy and not is_first):
            return None
        self._slot = slot
        view.log.refresh()
        files = [entry.file for entry in view.log.files]
        due = files if is_first else files_of_slot(files, slot, max(1, self._pass_ms // self._slot_ms))
        if not due:
            return None
        return Work(partial(_found, view.log.table.reopened(), due, bits=not is_first), partial(_judge, view))

    def rest_ms(self, view: UpkeepView) -> int | None:
        if not view.log.table.decays:
            return None
        return self._slot_ms - view.now_ms % self._slot_ms


def files_of_slot(files: Sequence[DataFile], slot: int, slots: int) -> Sequence[DataFile]:
    """The part of a log that has its turn in time slot `slot`, when a pass has `slots` of them.

    With 3 files and 6 slots: one file in slots 1, 3 and 5, none in the others.
    """
    part = slot % slots
    return files[len(files) * part // slots : len(files) * (part + 1) // slots]


def _found(table: LogTable, files: Sequence[DataFile], *, bits: bool) -> DamagedFileError | None:
    try:
        table.check_files(files, bits=bits)
    except DamagedFileError as damaged:
        return damaged
    except ObjectNotFoundError:
        return None  # it was merged away while it was being read
    return None


def _judge(view: UpkeepView, damaged: DamagedFileError | None) -> UpkeepDone | None:
    """A file that left the log meanwhile need not be there any more."""
    if damaged is not None and any(entry.path == damaged.path for entry in view.log.files):
        raise damaged
    return None
