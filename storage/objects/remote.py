"""Object stores of S3, Azure and GCS. I/O: through obstore, which an extra brings: see `storage.objects.opened`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import ObjectStore as RemoteStore
from obstore.store import from_url

from stratalog.storage import cadence
from stratalog.storage.clock import RandomIds, measured_ns
from stratalog.storage.errors import LogDirNotFoundError, ObjectNotFoundError, StoreUnavailableError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.metering.calls import LIST, READ, WRITE, calls_of
from stratalog.storage.objects.distance import FAR
from stratalog.storage.objects.place_settings import PlacedSettings
from stratalog.storage.objects.port import ObjectMeta, ObjectStore, always
from stratalog.storage.objects.probe import probe_create_if_absent
from stratalog.storage.objects.store_settings import FROM_ENVIRONMENT, StoreSettings
from stratalog.storage.objects.together import NO_HEDGING, Hedges, Hedging, hedged, run_together

if TYPE_CHECKING:
    from obstore import Attributes, PutMode, UpdateVersion
    from obstore.store import ClientConfig, RetryConfig, S3Config

_LOG = line_logger("stratalog.storage")

Answer = TypeVar("Answer")
Item = TypeVar("Item")

BULK_BYTES = 1 << 20
CLASSED_BYTES = 128 << 10
"""The size from which an object gets the storage class of the settings: classes of rarely read objects bill as much for
a smaller one."""

SIDE_BY_SIDE_MAX = 32
"""Requests that all calls of `each` make at a time, at most."""
COPY_FAILURES_MAX = 3
"""Copies inside a store that fail one after the other, after which no other is asked for."""
AZURE_SCHEMES = {"az", "azure", "abfs", "abfss", "adl"}
BUCKET_SCHEMES = {"s3", "s3a", "gs", *AZURE_SCHEMES}
"""Of URLs whose host is the bucket or container."""
ONE_REQUEST_BYTES = 16 << 20
"""The size up to which an object is put by one request: in parts it takes three of them in turn, and all are paid. The
file of an append is seldom larger."""
PART_BYTES = 5 << 20
"""The size of each part of a larger one (obstore's `chunk_size`)."""
LIST_PAGE, AZURE_LIST_PAGE = 1_000, 5_000
"""The most objects in an answer to a listing."""

RETRY: RetryConfig = {
    "max_retries": 12,
    "retry_timeout": timedelta(milliseconds=cadence.REQUEST.ms),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=1), "base": 2},
}
"""Retries of throttled (429, 503 SlowDown), failed (5xx) and broken requests, each pause drawn from 50 ms up to twice
the one before, at most 1 s. None begins after another deadline, so that a call ends within two deadlines, which are a
third of `broker.session.timeout.ms` at most; the caller retries later. A repeated create may find the object of its
first request: `commit_race` reads back."""


@dataclass(frozen=True, slots=True)
class Clients:
    """What calls one store.

    small      for what moves little
    uploads, downloads  with longer deadlines, for large objects
    """

    small: RemoteStore
    uploads: RemoteStore
    downloads: RemoteStore


class ObstoreStore(ObjectStore):
    """An object store behind obstore: S3, Azure, GCS and all that `obstore.store.from_url` knows."""

    durable_on_answer = True
    distance = FAR

    def __init__(
        self,
        store: RemoteStore | Clients,
        url: str,
        placed: PlacedSettings | None = None,
        open_clients: Callable[[StoreSettings], Clients] | None = None,
        hedging: Hedging = NO_HEDGING,
    ) -> None:
        """`open_clients` makes those that call the store when the settings of `placed` change. No error shows a secret
        of the settings. `hedging`: of small objects whose names are used once. Its threads live on: a process that has
        such is not to fork."""
        self.url = url.rstrip("/")
        self._calls = calls_of(self.url)
        self._placed = placed or PlacedSettings(url, FROM_ENVIRONMENT)
        self._open_clients = open_clients
        self._call_by(store if isinstance(store, Clients) else Clients(store, store, store))
        self._deletes_in_bulk = True
        self._hedges = Hedges(hedging, self._calls.count_hedged)
        self._hedged = ThreadPoolExecutor(SIDE_BY_SIDE_MAX, thread_name_prefix="hedged")
        self._slots = threading.BoundedSemaphore(SIDE_BY_SIDE_MAX)
        self._copy_failures = 0

    def _call_by(self, clients: Clients) -> None:
        """These make all calls from now on."""
        self._store, self._uploads, self._downloads = clients.small, clients.uploads, clients.downloads
        self._settings = settings = self._placed.current
        self._tags, self._class = settings.tags or None, settings.storage_class
        self._bucket: RemoteStore | None = None

    def _renew(self, *, at_once: bool = False) -> None:
        """Call by the settings that are in the file by now, if there is one. A file that no store can be opened by
        changes nothing."""
        if self._open_clients is None or not self._placed.have_changed(at_once=at_once):
            return
        try:
            self._call_by(self._open_clients(self._placed.current))
            _LOG.info("%s is called by other settings from now on", self.url)
        except (BaseError, ValueError) as reason:
            text = self._placed.current.redacted(str(reason).splitlines()[0])
            _LOG.warning("%s is called by the settings of before: %s", self.url, text)

    def _put(self, path: str, data: bytes | memoryview, mode: PutMode = "overwrite") -> None:
        store = self._store if len(data) < BULK_BYTES else self._uploads
        is_classed = bool(self._class) and len(data) >= CLASSED_BYTES
        in_parts = mode == "overwrite" and len(data) > ONE_REQUEST_BYTES
        if self._tags is None and not is_classed:
            obstore.put(store, path, data, mode=mode, use_multipart=in_parts)
            return
        attributes: Attributes | None = {"Storage-Class": self._class} if is_classed else None
        obstore.put(store, path, data, mode=mode, tags=self._tags, attributes=attributes, use_multipart=in_parts)

    def probe_create_if_absent(self) -> None:
        """Raises KafkaStorageError where a store ignores or refuses conditional puts; StoreUnavailableError."""
        probe_create_if_absent(self, RandomIds().new_id(), "conditional puts (If-None-Match: *, or the service's own)")

    def put(self, path: str, data: bytes | memoryview) -> None:
        requests = requests_of_put(self.url, len(data))
        self._call("put", path, lambda: self._put(path, data), len(data), requests)

    def put_new(self, path: str, data: bytes | memoryview) -> None:
        """As the port says. The second request of a hedged one writes the same bytes; should it arrive after the object
        was deleted, what it makes is named by nobody, and the vacuum finds it."""
        if self._hedges.is_off or len(data) >= BULK_BYTES:
            self.put(path, data)
            return
        hedged(lambda: self.put(path, data), self._hedged, self._hedges, lambda: measured_ns() / 1e6)

    def create(self, path: str, data: bytes) -> bool:
        try:
            self._call("create", path, lambda: self._put(path, data, "create"), len(data))
        except FileExistsError:
            return False
        return True

    def replace(self, path: str, old: bytes, new: bytes) -> bool:
        """As the port says, by the store's own condition (If-Match, or a generation)."""

        def replaced() -> bool:
            self._calls.bill(READ, path, 1)
            found = obstore.get(self._store, path)
            if found.bytes().to_bytes() != old:
                return False
            self._calls.bill(WRITE, path, 1)
            known: UpdateVersion = {}
            if (e_tag := found.meta["e_tag"]) is not None:
                known["e_tag"] = e_tag
            if (version := found.meta["version"]) is not None:
                known["version"] = version
            try:
                self._put(path, new, known)
            except PreconditionError:
                return False
            return True

        try:
            return self._call("replace", path, replaced, len(new), requests=0)
        except FileNotFoundError:
            return False

    def get(self, path: str) -> bytes:
        try:
            return self._call("get", path, lambda: obstore.get(self._downloads, path).bytes().to_bytes())
        except FileNotFoundError as reason:
            raise ObjectNotFoundError(f"{self.url}/{path} does not exist") from reason

    def get_range(self, path: str, start: int, length: int) -> bytes:
        store = self._store if length < BULK_BYTES else self._downloads
        try:
            return self._call(
                "get", path, lambda: obstore.get_range(store, path, start=start, length=length).to_bytes()
            )
        except FileNotFoundError as reason:
            raise ObjectNotFoundError(f"{self.url}/{path} does not exist") from reason
        except StoreUnavailableError:
            size_bytes = self.size(path)
            if size_bytes is None or start < size_bytes:
                raise
            return b""  # obstore takes a range behind the end for a fault of the store

    def get_optional(self, path: str) -> bytes | None:
        try:
            return self._call("get", path, lambda: obstore.get(self._store, path).bytes().to_bytes())
        except FileNotFoundError:
            return None

    def size(self, path: str) -> int | None:
        try:
            return self._call("head", path, lambda: obstore.head(self._store, path))["size"]
        except FileNotFoundError:
            return None

    def written_ms(self, path: str) -> int | None:
        try:
            found = self._call("head", path, lambda: obstore.head(self._store, path))
        except FileNotFoundError:
            return None
        return int(found["last_modified"].timestamp() * 1000)

    def list(self, prefix: str) -> list[ObjectMeta]:
        directory = prefix.rpartition("/")[0]  # obstore's prefixes are whole names
        chunks = self._call("list", prefix, lambda: list(obstore.list(self._store, directory or None)))
        self._calls.bill(LIST, prefix, further_pages(self.url, sum(map(len, chunks))))
        found = [
            ObjectMeta(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))
            for chunk in chunks
            for meta in chunk
            if meta["path"].startswith(prefix)
        ]
        return sorted(found, key=lambda meta: meta.path)

    def directories(self) -> Sequence[str]:
        listed = self._call("list", "", lambda: obstore.list_with_delimiter(self._store))
        return sorted(prefix.rstrip("/") for prefix in listed["common_prefixes"])

    def delete(self, path: str) -> None:
        try:
            self._call("delete", path, lambda: obstore.delete(self._store, path))
        except FileNotFoundError:
            return

    def delete_all(self, paths: Sequence[str]) -> None:
        """As the port says: by one request for up to 1,000 objects on S3 and Azure, where one each would take longer
        than the commits that remove them. A store that refuses such requests is not asked again."""
        if self._deletes_in_bulk and len(paths) > 1:
            try:
                self._call("delete", paths[0], lambda: obstore.delete(self._store, list(paths)))
                return
            except FileNotFoundError:
                pass  # one of them, where absent ones are errors
            except StoreUnavailableError:
                self._delete_each(paths)
                self._deletes_in_bulk = False
                return
        self._delete_each(paths)

    def _delete_each(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_tree(self, path: str, _tombstone_id: str, is_still: Callable[[], bool] = always, /) -> bool:
        while metas := self.list(path + "/"):
            if not is_still():
                return False
            self.delete_all([meta.path for meta in metas])
        return True

    def each(self, call: Callable[[Item], Answer], items: Sequence[Item]) -> Sequence[Answer]:
        """As the port says. Its threads end with it: a process that has such is not to fork, as Spark's workers do."""
        if len(items) < 2:
            return [call(item) for item in items]

        def call_in_time(item: Item) -> Answer:
            with self._slots:
                return call(item)

        with ThreadPoolExecutor(min(len(items), SIDE_BY_SIDE_MAX), thread_name_prefix="store") as pool:
            return run_together(pool, [partial(call_in_time, item) for item in items])

    def copy_new(
        self, path: str, source: ObjectStore, source_path: str, tail_bytes: int, check: Callable[[bytes], bool]
    ) -> bool:
        """As the port says, by the store itself, where both roots are in one bucket. A store that refuses such requests
        is not asked again."""
        bucket, prefix = _bucket_of(self.url)
        source_bucket, source_prefix = _bucket_of(source.url)
        if not bucket or bucket != source_bucket or self._copy_failures >= COPY_FAILURES_MAX:
            return False
        size_bytes = source.size(source_path)
        if size_bytes is None:
            raise ObjectNotFoundError(f"{source.url}/{source_path} does not exist")
        start = max(0, size_bytes - tail_bytes)
        if not check(source.get_range(source_path, start, size_bytes - start)):
            return False
        if self._bucket is None:
            self._bucket = _remote(
                bucket, self._settings, cadence.REQUEST.ms, cadence.BULK_REQUEST.ms, retries_ms=cadence.REQUEST.ms
            )
        copied = partial(obstore.copy, self._bucket, f"{source_prefix}{source_path}", f"{prefix}{path}")
        try:
            source.waiting_for(lambda: self._call("copy", path, copied))
        except FileNotFoundError as reason:
            raise ObjectNotFoundError(f"{source.url}/{source_path} does not exist") from reason
        except StoreUnavailableError as reason:
            self._copy_failures += 1
            if self._copy_failures == COPY_FAILURES_MAX:
                _LOG.warning("%s: copies pass through this process from now on, its own fail: %s", self.url, reason)
            return False
        self._copy_failures = 0
        return True

    def copy_within(self, path: str, new_path: str) -> None:
        """As the port says, by the store itself; one that refuses gets the bytes."""
        try:
            self._call("copy", path, lambda: obstore.copy(self._uploads, path, new_path))
        except FileNotFoundError as reason:
            raise ObjectNotFoundError(f"{self.url}/{path} does not exist") from reason
        except StoreUnavailableError:
            super().copy_within(path, new_path)

    def _call(
        self, operation: str, path: str, call: Callable[[], Answer], written_bytes: int = 0, requests: int = 1
    ) -> Answer:
        """Run an obstore call; FileNotFoundError and FileExistsError pass, other faults are StoreUnavailableError.

        requests  those that are billed for it, of its kind
        """
        is_read, is_absent, read_bytes = operation in ("get", "head"), False, 0
        self._renew()
        try:
            answer = call()
            read_bytes = len(answer) if isinstance(answer, bytes) else 0
        except FileNotFoundError:
            is_absent = True
            raise
        except AlreadyExistsError as reason:  # obstore's own, no FileExistsError
            raise FileExistsError(path) from reason
        except (BaseError, OSError) as reason:
            self._calls.failed += 1
            self._renew(at_once=True)  # for the next try
            text = self._settings.redacted(f"{operation} {self.url}/{path}: {str(reason).splitlines()[0]}")
            raise StoreUnavailableError(text) from self._settings.without_secrets(reason)
        finally:
            if is_read:
                self._calls.count_read(operation, path, None if is_absent else read_bytes)
            else:
                self._calls.count(operation, path, written_bytes, requests)
        return answer


def requests_of_put(url: str, size_bytes: int) -> int:
    """The requests that obstore makes for a put: a large object goes in parts, that are begun and put together.

    >>> [requests_of_put("s3://logs/a", size_bytes) for size_bytes in (100, 16 << 20, 20 << 20)]
    [1, 1, 6]
    """
    if size_bytes <= ONE_REQUEST_BYTES:
        return 1
    begun = 0 if urlsplit(url).scheme in AZURE_SCHEMES else 1
    return begun + -(-size_bytes // PART_BYTES) + 1


def further_pages(url: str, listed: int) -> int:
    """The requests of a listing behind its first.

    >>> [further_pages("s3://logs", listed) for listed in (0, 1_000, 1_001)], further_pages("az://logs", 5_001)
    ([0, 0, 1], 1)
    """
    page = AZURE_LIST_PAGE if urlsplit(url).scheme in AZURE_SCHEMES else LIST_PAGE
    return max(0, listed - 1) // page


def _bucket_of(url: str) -> tuple[str, str]:
    """A bucket's URL and what paths in it begin with; "" where the URL does not tell the bucket.

    >>> _bucket_of("s3://logs/cluster/broker-1"), _bucket_of("s3://logs"), _bucket_of("https://host/logs")
    (('s3://logs', 'cluster/broker-1/'), ('s3://logs', ''), ('', ''))
    """
    parts = urlsplit(url)
    if parts.scheme not in BUCKET_SCHEMES or not parts.netloc:
        return "", ""
    prefix = parts.path.strip("/")
    return f"{parts.scheme}://{parts.netloc}", f"{prefix}/" if prefix else ""


def _remote(
    url: str, settings: StoreSettings, request_ms: int, whole_ms: int, *, retries_ms: int, silent_ms: int | None = None
) -> RemoteStore:
    """A client of which no request takes longer than `whole_ms`, and none is repeated after `retries_ms`; no connection
    is waited for longer than `request_ms`, and no next byte of an answer longer than `silent_ms`."""
    tries = RETRY["max_retries"] * max(1, retries_ms // cadence.REQUEST.ms)
    retry: RetryConfig = {**RETRY, "max_retries": tries, "retry_timeout": timedelta(milliseconds=retries_ms)}
    connect, whole = timedelta(milliseconds=request_ms), timedelta(milliseconds=whole_ms)
    given = cast("ClientConfig", {**_client_options(os.environ), **settings.client_options(url)})
    options: ClientConfig = {**given, "connect_timeout": connect, "timeout": whole}
    if silent_ms is not None:
        options["read_timeout"] = timedelta(milliseconds=silent_ms)
    # obstore's types know the configs of one kind of store at a time
    return from_url(url, config=cast("S3Config", settings.config(url)), retry_config=retry, client_options=options)


def _client_options(environment: Mapping[str, str]) -> dict[str, object]:
    """The options of HTTP clients in the environment (`AWS_ALLOW_HTTP=true`), which obstore reads only while none are
    passed to it."""
    found: dict[str, object] = {}
    for name in ("allow_http", "allow_invalid_certificates", "proxy_url", "proxy_ca_certificate", "proxy_excludes"):
        for provider in ("AWS", "AZURE", "GOOGLE"):
            text = environment.get(f"{provider}_{name.upper()}")
            if text is not None:
                found[name] = text.lower() in ("1", "true", "on", "yes", "y") if name.startswith("allow_") else text
    return found


def open_remote(
    place: str,
    request_ms: int,
    retries_ms: int | None,
    settings: StoreSettings,
    *,
    create: bool,
    hedging: Hedging = NO_HEDGING,
) -> ObjectStore:
    """The store at a URL; as `open_store`. LogDirNotFoundError for a URL that names none."""
    placed = PlacedSettings(place, settings)

    def open_clients(found: StoreSettings) -> Clients:
        opened = partial(_remote, place, found, request_ms, retries_ms=retries_ms or request_ms)
        downloads = opened(cadence.BULK_REQUEST.ms, silent_ms=request_ms)
        return Clients(opened(request_ms), opened(cadence.BULK_REQUEST.ms), downloads)

    try:
        clients = open_clients(placed.current)
        store = ObstoreStore(clients, place, placed, open_clients, hedging)
    except (BaseError, ValueError) as reason:
        text = placed.current.redacted(f"{place}: {str(reason).splitlines()[0]}")
        raise LogDirNotFoundError(text) from placed.current.without_secrets(reason)
    if create:
        store.probe_create_if_absent()
    return store
