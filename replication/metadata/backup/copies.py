"""Copies of the metadata log in the brokers' roots. Each is a whole backup, to restore a lost metadata root.

I/O: reads the metadata root, writes to a broker's own root, `metadata-backup/<when, 20 digits>.jsonl`. Each broker
keeps its two newest copies, so that one that a power cut tore leaves another. Kafka's controllers are a quorum; here
the metadata root is one place, as durable as its store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass

import pyarrow as pa

from stratalog.replication.metadata.backup.backup import Backup, BackupRecord, decode_backup, encode_backup
from stratalog.replication.metadata.log import SharedMetadata, open_metadata
from stratalog.replication.metadata.records import value_of_row
from stratalog.replication.stores import Ports, Stores
from stratalog.storage.clock import Clock, Ids
from stratalog.storage.errors import InconsistentClusterIdError, InvalidRequestError, StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.port import ObjectStore

_LOG = line_logger("stratalog.controller")

COPIES_PREFIX = "metadata-backup/"
COPIES_KEPT = 2
SINKS_PREFIX = "sinks/"
READ_BYTES = 8 << 20


def take_backup(
    stores: Stores, metadata_root: str, clock: Clock, ids: Ids, shared: SharedMetadata | None = None
) -> Backup:
    """A consistent copy, beside running brokers: all commits up to one, and the manifests of sinks.

    shared  as in `MetadataLog`
    LogDirNotFoundError when there is no metadata log.
    """
    metadata = open_metadata(stores, metadata_root, clock, ids, shared=shared)
    metadata.refresh()
    log = metadata.log
    end_offset = log.log_end_offset
    records = [
        BackupRecord(offset, timestamp, value_of_row(key, value).decode())
        for rows in log.read_range(log.log_start_offset, end_offset, READ_BYTES)
        for offset, timestamp, key, value in zip(
            rows["offset"].to_pylist(),
            rows["timestamp"].cast(pa.int64()).to_pylist(),
            rows["key"].to_pylist(),
            rows["value"].to_pylist(),
            strict=True,
        )
    ]
    objects = stores.objects(metadata_root)
    found = {meta.path: objects.get_register(meta.path) for meta in objects.list(SINKS_PREFIX)}
    notes = {path: note.decode() for path, note in found.items() if note is not None}
    return Backup(metadata.image.cluster_id, end_offset, clock.wall_ms(), tuple(records), notes)


class BackupCopies:
    """Writes the copies of one broker to its root. One thread calls `step`, often."""

    def __init__(self, root: str, metadata_root: str, ports: Ports, interval_ms: int) -> None:
        """`interval_ms`: least time between two copies, and before the first one; 0: none are made.

        `ports.executor` has a thread of its own for this: either root may answer nothing.
        """
        self._root = root
        self._metadata_root = metadata_root
        self._ports = ports
        self._interval_ms = interval_ms
        self._due_ms = ports.clock.monotonic_ms() + interval_ms
        self._copied_end = -1
        self._running: Future[int] | None = None

    def step(self, log_end_offset: int) -> None:
        """Copy the metadata log if it has grown since the last copy and that is long enough ago. A failure is logged,
        and tried again after the interval."""
        if self._running is not None:
            if self._running.done():
                running, self._running = self._running, None
                self._finish(running.result)
            return
        now_ms = self._ports.clock.monotonic_ms()
        if not self._interval_ms or now_ms < self._due_ms or log_end_offset <= self._copied_end:
            return
        self._due_ms = now_ms + self._interval_ms
        if self._ports.executor is None:
            self._finish(self._copy)
        else:
            self._running = self._ports.executor.submit(self._copy)

    def _finish(self, result: Callable[[], int]) -> None:
        """Remember the end offset of a copy that was made; `result` returns it, or raises why there is none."""
        try:
            self._copied_end = result()
        except StratalogError as reason:
            _LOG.warning("%s has no new copy of the metadata log, trying again: %s", self._root, reason)

    def _copy(self) -> int:
        """The end offset of the new copy."""
        ports = self._ports
        backup = take_backup(ports.stores, self._metadata_root, ports.clock, ports.ids, ports.metadata)
        objects = ports.stores.objects(self._root)
        path = f"{COPIES_PREFIX}{backup.taken_ms:020}.jsonl"
        objects.put(path, encode_backup(backup).encode())
        objects.sync([path])
        others = [each for each in _copies(objects) if each != path]  # a clock that went back removes no new copy
        objects.delete_all(others[COPIES_KEPT - 1 :])
        return backup.end_offset


def _copies(objects: ObjectStore) -> list[str]:
    """Paths of a root's copies, newest first."""
    return [meta.path for meta in reversed(objects.list(COPIES_PREFIX))]


@dataclass(frozen=True, slots=True)
class FoundCopy:
    """A copy and the root that holds it."""

    backup: Backup
    root: str

    @property
    def age_key(self) -> tuple[int, int]:
        """Controller epoch, then end offset: the newer copy has the larger key. A restore makes the log shorter, but it
        raises the controller epoch."""
        return self.backup.image().controller_epoch, self.backup.end_offset


def newest_copy(stores: Stores, roots: Iterable[str]) -> FoundCopy:
    """The newest of the copies in these brokers' roots and in those that the copies name; torn ones do not count.

    InvalidRequestError when none has one, InconsistentClusterIdError for roots of two clusters. A root that cannot be
    read is passed over: what a restore needs of it, it will ask for.
    """
    to_read, seen = list(roots), dict[str, str]()
    best: FoundCopy | None = None
    while to_read:
        root = to_read.pop(0)
        if root in seen:
            continue
        seen[root] = "no copy"
        try:
            found = next(_sound(stores.objects(root), root), None)
        except StratalogError as reason:
            seen[root] = str(reason)
            continue
        if found is None:
            continue
        if best is not None and found.backup.cluster_id != best.backup.cluster_id:
            raise InconsistentClusterIdError(
                f"{root} belongs to cluster {found.backup.cluster_id}, {best.root} to {best.backup.cluster_id}"
            )
        to_read += [broker.registration.root for broker in found.backup.image().brokers.values()]
        best = found if best is None else max(best, found, key=lambda each: each.age_key)
    if best is None:
        read = "; ".join(f"{root}: {why}" for root, why in seen.items())
        raise InvalidRequestError(
            f"no copy of the metadata log was found ({read}). Brokers write one to {COPIES_PREFIX} in their roots "
            "every stratalog.metadata.backup.interval.ms: name another broker's root, or give a backup"
        )
    return best


def _sound(objects: ObjectStore, root: str) -> Iterator[FoundCopy]:
    """A root's copies that are whole, newest first."""
    for path in _copies(objects):
        try:
            yield FoundCopy(decode_backup(objects.get(path).decode()), root)
        except (StratalogError, UnicodeDecodeError) as reason:
            _LOG.warning("%s/%s does not count: %s", root, path, reason)
