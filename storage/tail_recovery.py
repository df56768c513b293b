"""Which commits survive an unclean stop of a local disk (hazards: torn or missing after power loss). Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage.removed import NO_PRODUCERS
from storage.table import PRODUCERS, Commit, FileEntry


def sound_commits(
    commits: Sequence[Commit], is_whole: Callable[[FileEntry], bool], has_producers: Callable[[int], bool]
) -> int:
    """How many of these consecutive readable commits can be kept: up to the first whose data file is not whole.

    A file that a kept commit removed again may be gone. The producer state that the last of them names must be
    there; `has_producers` is asked for its number. Earlier ones may be deleted.
    """
    count = len(commits)
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


def _all_whole(commit: Commit, removed: set[str], is_whole: Callable[[FileEntry], bool]) -> bool:
    return all(entry.path in removed or is_whole(entry) for entry in commit.adds)
