"""Which commits survive an unclean stop of a local disk (hazards: torn or missing after power loss). Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage.table import Commit, FileEntry


def sound_commits(commits: Sequence[Commit], is_whole: Callable[[FileEntry], bool]) -> int:
    """How many of these consecutive readable commits can be kept: up to the first whose data file is not whole.

    A file that a kept commit removed again may be gone.
    """
    count = len(commits)
    while True:
        kept = commits[:count]
        removed = {path for commit in kept for path in commit.removes}
        sound = next((i for i, c in enumerate(kept) if not _all_whole(c, removed, is_whole)), count)
        if sound == count:
            return count
        count = sound


def _all_whole(commit: Commit, removed: set[str], is_whole: Callable[[FileEntry], bool]) -> bool:
    return all(entry.path in removed or is_whole(entry) for entry in commit.adds)
