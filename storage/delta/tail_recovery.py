"""The cut of a log whose tail a power loss may have torn, unless somebody still writes there. Pure.

A commit that cannot be read, or whose file is gone, is torn, or it is of a live writer: one that cleans up the commits
before its checkpoint, or deletes the files that it has merged. So a log is cut only if nothing in it changed from
before it was examined to after that: what a power loss left does not change any more, while a writer that removes
something committed before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from stratalog.storage.errors import StoreUnavailableError

L = TypeVar("L")

TRIES = 10
"""Number of times that a log which changes meanwhile is examined."""


@dataclass(frozen=True, slots=True)
class TailCut:
    """`kept`: the newest version that stays, -1 for none. `dropped`: versions above it, newest first."""

    kept: int
    dropped: tuple[int, ...]


def cut_above(kept: int, versions: Sequence[int]) -> TailCut:
    """The cut that keeps the version and drops those of `versions` above it.

    >>> cut_above(3, [2, 3, 5, 4])
    TailCut(kept=3, dropped=(5, 4))
    """
    return TailCut(kept, tuple(sorted((version for version in versions if version > kept), reverse=True)))


def settled_cut(name: str, list_log: Callable[[], L], examine: Callable[[L], TailCut]) -> TailCut:
    """The cut of a log that nobody writes to: `list_log`, all that is in it, is the same before and after `examine`.

    It is listed before it is read: a commit that another writer makes meanwhile is not of the stop. A cut that drops
    nothing needs no second list. Raises StoreUnavailableError when the log changes each time.
    """
    for _ in range(TRIES):
        before = list_log()
        cut = examine(before)
        if not cut.dropped or list_log() == before:
            return cut
    raise StoreUnavailableError(f"{name}: another writer is at work, so the end of the log is not recovered")
