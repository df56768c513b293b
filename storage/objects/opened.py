"""The store at a URL or path: a local directory, or an object store. I/O: makes a directory, probes a store."""

from __future__ import annotations

from stratalog.storage import cadence
from stratalog.storage.extras import explained
from stratalog.storage.objects.local import LocalStore
from stratalog.storage.objects.memory import SCHEME, memory_store
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.objects.store_settings import FROM_ENVIRONMENT, StoreSettings
from stratalog.storage.objects.together import NO_HEDGING, Hedging


def open_store(
    url_or_path: str,
    sub: str = "",
    *,
    create: bool = False,
    request_ms: int = cadence.REQUEST.ms,
    retries_ms: int | None = None,
    settings: StoreSettings = FROM_ENVIRONMENT,
    hedging: Hedging = NO_HEDGING,
) -> ObjectStore:
    """The store at a URL (`s3://bucket/prefix`, `file:///x`, `memory://name/x`) or plain path, or at the directory
    `sub` below it.

    `create` makes a local directory, and probes the store, into which logs will be written. Raises LogDirNotFoundError
    naming the place when it is not there or unknown; with `create` KafkaStorageError when the store does not refuse to
    create an object that exists, StoreUnavailableError. ImportError where obstore is not installed. `request_ms`:
    the deadline of a small request to an object store, and, unless `retries_ms` says so, the time within which a failed
    one is repeated; `settings` take precedence over the environment's; `hedging`: of its uploads.
    """
    place = f"{url_or_path.rstrip('/')}/{sub}" if sub else url_or_path
    if place.startswith(SCHEME):
        return memory_store(place, create=create)
    if not is_remote(place):
        return LocalStore(place, create=create)
    try:
        from stratalog.storage.objects.remote import open_remote  # with the first object store: an extra brings obstore
    except ModuleNotFoundError as reason:
        raise explained(place, reason) from reason
    return open_remote(place, request_ms, retries_ms, settings, create=create, hedging=hedging)


def is_remote(place: str) -> bool:
    """Whether a place is in an object store.

    >>> is_remote("s3://bucket/logs"), is_remote("file:///data"), is_remote("/data"), is_remote("memory://name")
    (True, False, False, False)
    """
    return "://" in place and not place.startswith(("file://", SCHEME))
