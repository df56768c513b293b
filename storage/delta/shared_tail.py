"""The torn tail of a table that several brokers share, as in a storage domain on a file system. Pure, over a `TailLog`.

`recover_tail` cuts the tail of a table that one broker has for itself. Here a broker that slept could delete a version
that another one has made anew, and acknowledged, meanwhile. So each version of the torn tail gets a commit without
content instead (`withdrawn_at`). It depends on the version alone: two brokers that recover put the same bytes there,
however late, and nothing that was whole is ever replaced.

What is above a torn version was not acknowledged, since an append is answered once all before it was synced. But a log
with two whole appends above one is not torn, it is damaged: the second was begun when the first had been synced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from stratalog.storage.delta.commit_race import StoredCommit
from stratalog.storage.delta.newest import CheckpointLog, newest_readable
from stratalog.storage.delta.snapshot import NO_COMMIT, sound_commits
from stratalog.storage.delta.table import Commit
from stratalog.storage.delta.tail_recovery import TailCut, cut_above, settled_cut
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.files.data_file import FileEntry

L = TypeVar("L")

UNSYNCED_APPENDS = 1
"""Appends that may not be synced at a time, where each is synced before its answer."""


class TailLog(CheckpointLog, Protocol):
    """A log whose torn versions are replaced."""

    def raw_version(self, version: int) -> object | None:
        """What stands at a version, readable or not; None for nothing."""

    def put_in_place(self, version: int, found: object | None, new: StoredCommit) -> None:
        """Put a commit where `found` stands, None for nothing; whatever else stands there by now is left."""


def withdrawn_at(version: int) -> StoredCommit:
    """The commit without content that takes the place of a torn one. It names neither its table nor the commit before
    it, so that it follows whatever stands there."""
    return StoredCommit(Commit(f"torn.{version}", "WITHDRAW", 0, data_change=False), None)


def withdraw_tail(
    log: TailLog,
    list_log: Callable[[], tuple[Sequence[int], L]],
    is_whole: Callable[[FileEntry, bool], bool],
    has_producers: Callable[[int], bool],
) -> TailCut:
    """Replace each version from the first that is unreadable, absent below another one, does not follow the one before
    it, or whose data file is not whole.

    list_log  the versions, and all that is in the log
    is_whole  whether a file is sound; with True its bits, too, where the last appends may have left less

    From the newest one down: as long as the first is torn nobody folds what is above. Raises CorruptMessageError where
    acknowledged records would be lost, StoreUnavailableError while another writer is at work.
    """
    examined: dict[int, object | None] = {}

    def examine(listed: tuple[Sequence[int], L]) -> TailCut:
        versions = listed[0]
        cut = _examined(log, versions, is_whole, has_producers)
        newest = max(versions, default=-1)
        examined.clear()
        if 0 <= cut.kept < newest:
            examined.update((version, log.raw_version(version)) for version in range(cut.kept + 1, newest + 1))
            _check_torn(log, cut.kept, newest, lambda entry: is_whole(entry, True))
        return cut

    cut = settled_cut(log.name, list_log, examine)
    for version, found in reversed(examined.items()):
        log.put_in_place(version, found, withdrawn_at(version))
    return cut


def _examined(
    log: TailLog,
    versions: Sequence[int],
    is_whole: Callable[[FileEntry, bool], bool],
    has_producers: Callable[[int], bool],
) -> TailCut:
    base = newest_readable(log)
    first = base.version + 1 if base else 0
    readable: list[StoredCommit] = []
    while (stored := _readable(log, first + len(readable))) is not None:
        readable.append(stored)
    own = log.own_version(base.version) if base else None
    last_id = NO_COMMIT if base is None else own.commit.commit_id if own is not None else None
    appends = [each.commit.adds for each in readable if each.commit.adds][-UNSYNCED_APPENDS - 1 :]
    last = {entry.path for adds in appends for entry in adds}
    sound = sound_commits(readable, last_id, lambda entry: is_whole(entry, entry.path in last), has_producers)
    return cut_above(first + sound - 1, versions)


def _readable(log: TailLog, version: int) -> StoredCommit | None:
    try:
        return log.read_version(version)
    except CorruptMessageError:
        return None


def _check_torn(log: TailLog, kept: int, newest: int, is_whole: Callable[[FileEntry], bool]) -> None:
    above = (_readable(log, version) for version in range(kept + 2, newest + 1))
    appends = [each.commit for each in above if each is not None and each.commit.adds and not each.commit.removes]
    whole = [each for each in appends if all(map(is_whole, each.adds))]
    if len(whole) > UNSYNCED_APPENDS:
        raise CorruptMessageError(
            f"{log.name}: version {kept + 1} is damaged, and not torn by a loss of power: {len(whole)} later appends "
            "are whole, each of which was synced before the next one began"
        )
