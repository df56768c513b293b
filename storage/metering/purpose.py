"""What a call to a store is for, as far as the path of the object tells. Pure.

Paths are relative to a root: [what lies on storage](../../ARCHITECTURE.md) names them.
"""

from __future__ import annotations

DATA, COMMIT, CHECKPOINT, PRODUCERS = "data", "commit", "checkpoint", "producers"
PROGRESS, SESSION, INBOX, METADATA = "progress", "session", "inbox", "metadata"
SINK, BACKUP, POLL, CLEAN_UP, OTHER = "sink", "backup", "poll", "clean-up", "other"
PURPOSES = (
    DATA,
    COMMIT,
    CHECKPOINT,
    PRODUCERS,
    PROGRESS,
    SESSION,
    INBOX,
    METADATA,
    SINK,
    BACKUP,
    POLL,
    CLEAN_UP,
    OTHER,
)
"""Purposes of calls. `poll`: a commit was asked for that is not there yet; `clean-up`: what deletes, whatever it is."""

METADATA_TABLES = "__cluster_metadata"
"""The beginning of the names of the metadata log and of its history."""
_OF_FOLDER = {
    "progress": PROGRESS,
    "fetch": PROGRESS,
    "sessions": SESSION,
    "inbox": INBOX,
    "inbox-bell": INBOX,
    "answers": INBOX,
    "sinks": SINK,
    "typed-tables": SINK,
    "metadata-backup": BACKUP,
}
"""By the first folder of a path."""


def purpose_of(path: str) -> str:
    """The purpose of an object, or of a listing by the prefix of its paths.

    >>> [purpose_of(path) for path in ("orders-0/_delta_log/7.json", "sessions/1", "meta.properties")]
    ['commit', 'session', 'other']
    """
    first, _, rest = path.partition("/")
    found = _OF_FOLDER.get(first)
    if found is not None:
        return found
    if first.startswith(METADATA_TABLES):
        return METADATA
    while rest:  # a table's folder is below a root, or below the folder of its topic in a storage domain
        folder, _, rest = rest.partition("/")
        if folder == "_delta_log":
            return CHECKPOINT if "checkpoint" in rest else COMMIT
        if folder.startswith("segment=") or folder == "_handed":
            return DATA
        if folder == "_producers":
            return PRODUCERS
    return OTHER


def purpose_of_call(kind: str, path: str, *, is_absent: bool = False) -> str:
    """The purpose of a call of a kind (`calls.KINDS`).

    is_absent  whether it found no object

    >>> purpose_of_call("delete", "sessions/1"), purpose_of_call("get", "a-0/_delta_log/7.json", is_absent=True)
    ('clean-up', 'poll')
    """
    if kind == "delete":
        return CLEAN_UP
    found = purpose_of(path)
    return POLL if is_absent and kind in ("get", "head") and found == COMMIT else found
