"""The bell of an inbox: where listings are paid, a sender rings after its request, and a broker reads the bell alone.

I/O: one small object below a broker's root. Listings cost a dozen times what reads do, and an idle inbox is empty. A
bell that is lost delays a request until the inbox is listed anyway: nothing else depends on it.
"""

from __future__ import annotations

from stratalog.storage.objects.port import ObjectStore

BELL_PATH = "inbox-bell"
"""Beside the inbox, so that listings of it do not find the bell."""
_NOT_READ = b"\0"
"""No content of a bell."""


def ring(store: ObjectStore, ring_id: str) -> None:
    """Ring the bell of the inbox in this root, after the request is there. Nothing on a near store, where brokers are
    woken by the request itself, or list for nothing.

    ring_id  differs from the one before: the same one again does not ring
    Raises StoreError; the request is there all the same.
    """
    if store.distance.is_far:
        store.put(BELL_PATH, ring_id.encode())


class InboxBell:
    """A broker's own bell. One thread uses it.

    `has_rung` reads it; `was_listed` when the inbox was listed after that read: what had rung before is found then.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._answered: bytes | None = _NOT_READ
        """The content that was read before the newest listing."""
        self._read: bytes | None = _NOT_READ

    @property
    def is_used(self) -> bool:
        """Whether senders ring it."""
        return self._store.distance.is_far

    def has_rung(self) -> bool:
        """Whether it has rung since the newest listing, or that is not known. Raises StoreError: then it is not."""
        before, self._answered, self._read = self._answered, _NOT_READ, _NOT_READ
        self._read = self._store.get_optional(BELL_PATH)
        self._answered = before
        return self._read != before

    def was_listed(self) -> None:
        """The inbox was listed; what rang after the last `has_rung` rings still."""
        self._answered = self._read
