"""How many calls of each kind a process has made to a store, and the bytes that they moved. Pure.

All objects of one process for one root share its counts. Each addition is one step of the interpreter.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

KINDS = ("put", "create", "replace", "get", "head", "list", "delete", "copy", "sync")
"""Kinds of calls: `put` and `get` are those of registers, too."""


@dataclass(slots=True)
class StoreCalls:
    """Counts of one root. `failed`: calls that ended with a fault of the store, of all kinds. `hedged`: puts that were
    made a second time, beside the first, which counts, too."""

    made: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    failed: int = 0
    hedged: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    def wrote(self, kind: str, size_bytes: int) -> None:
        """A call of this kind is made with so many bytes."""
        self.made[kind] += 1
        self.written_bytes += size_bytes

    def read(self, data: bytes | None) -> None:
        """A read returned this."""
        self.made["get"] += 1
        if data is not None:
            self.read_bytes += len(data)

    @property
    def total(self) -> int:
        """Calls of all kinds."""
        return sum(self.made.values())

    def add(self, other: StoreCalls) -> None:
        """Add the counts of another root."""
        for kind, count in other.made.items():
            self.made[kind] += count
        self.failed += other.failed
        self.hedged += other.hedged
        self.read_bytes += other.read_bytes
        self.written_bytes += other.written_bytes


_CALLS: dict[str, StoreCalls] = {}


def calls_of(url: str) -> StoreCalls:
    """The counts of the store at a URL, as `ObjectStore.url` gives it, in this process.

    >>> calls_of("s3://logs/broker-1") is calls_of("s3://logs/broker-1")
    True
    """
    return _CALLS.setdefault(url, StoreCalls())


def calls_of_others(urls: Collection[str]) -> StoreCalls:
    """The counts of all stores of this process but those at these URLs."""
    found = StoreCalls()
    for url, counted in list(_CALLS.items()):
        if url not in urls:
            found.add(counted)
    return found
