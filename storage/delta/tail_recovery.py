"""Which commits survive an unclean stop of a local disk (hazards: torn or missing after power loss). Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stratalog.storage.delta.commit_race import StoredCommit
from stratalog.storage.delta.removed import NO_PRODUCERS
from stratalog.storage.delta.table import PRODUCERS, Commit, FileEntry

NO_COMMIT = ""
"""The id of the commit before version 0."""


def sound_commits(
    stored: Sequence[StoredCommit],
    last_id: str | None,
    is_whole: Callable[[FileEntry], bool],
    has_producers: Callable[[int], bool],
) -> int:
    """How many of these consecutive readable commits can be kept: up to the first that does not follow the one before
    it, whose id is `last_id` for the first of them, or whose data file is not whole.

    A file that a kept commit removed again may be gone. The producer state that the last of them names must be
    there; `has_producers` is asked for its number. Earlier ones may be deleted.
    """
    commits = [each.commit for each in stored]
    count = _following(stored, last_id)
    while True:
        kept = commits[:count]
        removed = {path for commit in kept for path in commit.removes}
        sound = next((i for i, c in enumerate(kept) if not _all_whole(c, removed, is_whole)), count)
        if sound == count:
            named = [(i, c.txns[PRODUCERS]) for i, c in enumerate(kept) if PRODUCERS in c.txns]
            position, number = named[-1] if named else (0, NO_PRODUCERS)
            if number == NO_PRODUCERS or has_producers(number):
                return count
            sound = position
        count = sound


def _following(stored: Sequence[StoredCommit], last_id: str | None) -> int:
    """How many of them form a chain. A file that was written over (`storage.objects.disk.spare_files`) may have kept a
    commit that stood elsewhere. An unknown id (None) fits any."""
    for count, each in enumerate(stored):
        if last_id is not None and each.previous_id is not None and each.previous_id != last_id:
            return count
        last_id = each.commit.commit_id or None
    return len(stored)


def _all_whole(commit: Commit, removed: set[str], is_whole: Callable[[FileEntry], bool]) -> bool:
    return all(entry.path in removed or is_whole(entry) for entry in commit.adds)
