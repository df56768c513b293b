"""What a listing tells of an object. Pure."""

from __future__ import annotations

from typing import NamedTuple


class ObjectMeta(NamedTuple):
    """`path` is relative to the store's root; `last_modified_ms` is the store's own time."""

    path: str
    size_bytes: int
    last_modified_ms: int
