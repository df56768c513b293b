"""How many calls of each kind a process has made to a store, what was billed for them, and the bytes moved. Pure.

All objects of one process for one root share its counts. Each addition is one step of the interpreter. Requests that a
client of the store repeats by itself, after a fault, are not seen here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import product
from typing import TypeVar

from stratalog.storage.metering.purpose import PURPOSES, purpose_of_call

KINDS = ("put", "create", "replace", "get", "head", "list", "delete", "copy", "sync")
"""Kinds of calls: `put` and `get` are those of registers, too."""
WRITE, READ, LIST, DELETE = "write", "read", "list", "delete"
BILLED = (WRITE, READ, LIST, DELETE)
"""The kinds of requests that price lists tell apart."""
BILLED_AS = {
    "put": WRITE, "create": WRITE, "replace": WRITE, "copy": WRITE, "get": READ, "head": READ, "list": LIST,
    "delete": DELETE,
}  # fmt: skip
"""By kind of call; `sync` makes no request."""


@dataclass(slots=True)
class StoreCalls:
    """Counts of one root.

    made        calls by kind
    requests    those that were billed, by purpose (`purpose.PURPOSES`) and by `BILLED`
    failed      calls that ended with a fault of the store, of all kinds
    hedged      puts that were made a second time, beside the first, which counts, too
    """

    made: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    requests: dict[tuple[str, str], int] = field(default_factory=lambda: dict.fromkeys(product(PURPOSES, BILLED), 0))
    read_of: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PURPOSES, 0))
    """Bytes by purpose."""
    written_of: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PURPOSES, 0))
    failed: int = 0
    hedged: int = 0

    def count(self, kind: str, path: str, written_bytes: int = 0, requests: int = 1) -> None:
        """A call that reads nothing was made, in so many requests."""
        self.made[kind] += 1
        purpose = purpose_of_call(kind, path)
        if kind in BILLED_AS:
            self.requests[purpose, BILLED_AS[kind]] += requests
        self.written_of[purpose] += written_bytes

    def count_read(self, kind: str, path: str, read_bytes: int | None) -> None:
        """A `get` or `head` returned so many bytes; None: there is no such object."""
        self.made[kind] += 1
        purpose = purpose_of_call(kind, path, is_absent=read_bytes is None)
        self.requests[purpose, READ] += 1
        self.read_of[purpose] += read_bytes or 0

    def count_hedged(self) -> None:
        """A put was made a second time."""
        self.hedged += 1

    def bill(self, kind: str, path: str, requests: int) -> None:
        """A call that is counted made further requests of this kind (`BILLED`)."""
        self.requests[purpose_of_call("put", path), kind] += requests

    @property
    def read_bytes(self) -> int:
        """Of all purposes."""
        return sum(self.read_of.values())

    @property
    def written_bytes(self) -> int:
        """Of all purposes."""
        return sum(self.written_of.values())

    @property
    def total(self) -> int:
        """Calls of all kinds."""
        return sum(self.made.values())

    def add(self, other: StoreCalls) -> None:
        """Add the counts of another root."""
        _add(self.made, other.made)
        _add(self.requests, other.requests)
        _add(self.read_of, other.read_of)
        _add(self.written_of, other.written_of)
        self.failed += other.failed
        self.hedged += other.hedged

    def since(self, earlier: StoreCalls) -> StoreCalls:
        """What was counted after `earlier`, a sum of the same counts."""
        return StoreCalls(
            {kind: count - earlier.made[kind] for kind, count in self.made.items()},
            {key: count - earlier.requests[key] for key, count in self.requests.items()},
            {purpose: count - earlier.read_of[purpose] for purpose, count in self.read_of.items()},
            {purpose: count - earlier.written_of[purpose] for purpose, count in self.written_of.items()},
            self.failed - earlier.failed,
            self.hedged - earlier.hedged,
        )


Key = TypeVar("Key")


def _add(counts: dict[Key, int], others: dict[Key, int]) -> None:
    for key, count in others.items():
        counts[key] += count


_CALLS: dict[str, StoreCalls] = {}


def calls_of(url: str) -> StoreCalls:
    """The counts of the store at a URL, as `ObjectStore.url` gives it, in this process.

    >>> calls_of("s3://logs/broker-1") is calls_of("s3://logs/broker-1")
    True
    """
    return _CALLS.setdefault(url, StoreCalls())


def calls_of_others(urls: Collection[str]) -> dict[str, StoreCalls]:
    """The counts of all stores of this process but those at these URLs, by URL."""
    return {url: counted for url, counted in list(_CALLS.items()) if url not in urls}


def sum_of(counts: Iterable[StoreCalls]) -> StoreCalls:
    """All of them together."""
    found = StoreCalls()
    for counted in counts:
        found.add(counted)
    return found
