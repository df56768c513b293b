"""Whether a store creates an object only if it is absent, which every commit relies on.

I/O: through the store, at most seven calls for one small object below its root, which is deleted at the end. The object
has a name of its own, so brokers that probe a root at once do not meet each other. The two creates come one after the
other: a store that only confuses simultaneous ones is not found.
"""

from __future__ import annotations

import contextlib

from stratalog.storage.errors import KafkaStorageError, StoreUnavailableError, StratalogError
from stratalog.storage.objects.port import ObjectStore

PROBE = ".create-probe"
_FIRST, _SECOND = b"first", b"second"


def probe_create_if_absent(store: ObjectStore, probe_id: str, needs: str, below: str = "") -> None:
    """Create an object twice. A create that meets its own object, since its request was repeated, is no fault.

    probe_id  used once
    needs     the ability of the store by which it creates, for the error
    below     what the object's path begins with: a folder, with a slash
    Raises KafkaStorageError when the second create is not refused, when it replaces the object, or when the store
    answers puts and no creates; StoreUnavailableError when the store is out of reach.
    """
    path = f"{below}{PROBE}-{probe_id}"
    try:
        _create_twice(store, path, needs)
    finally:
        with contextlib.suppress(StratalogError):
            store.delete(path)


def _create_twice(store: ObjectStore, path: str, needs: str) -> None:
    try:
        store.create(path, _FIRST)
    except StoreUnavailableError:
        store.put(path, _FIRST)  # raises, too, where the store is out of reach
        store.delete(path)
        try:
            store.create(path, _FIRST)
        except StoreUnavailableError as reason:
            refusal = f"{store.url} cannot hold logs: it needs {needs}, and refuses them: {reason}"
            raise KafkaStorageError(refusal) from reason
    has_won = store.create(path, _SECOND)
    found = store.get_optional(path)
    if has_won or found != _FIRST:
        raise KafkaStorageError(
            f"{store.url} cannot hold logs: it needs {needs}. The second create of {path} returned {has_won}, expected "
            f"False; the object held {found!r}, expected {_FIRST!r}. Two controllers could lead a cluster there."
        )
