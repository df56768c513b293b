"""Progress objects: in each one writer publishes its replicas, so that idle partitions cost nothing.

I/O: through an `ObjectStore`. One writer per object (promise 21). The object has the most recent changes, one a
partition. A second object has the full state, for readers that missed changes; it is written when a change would be in
neither, that is at most once per `RECENT_CHANGES` changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Protocol

from stratalog.replication.progress.progress import (
    ProgressHeader,
    ReplicaProgress,
    encode_progress,
    encode_row,
    full_state_path,
    progress_header,
    progress_rows,
)
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import TopicPartition

_LOG = line_logger("stratalog.progress")

RECENT_CHANGES = 64
"""The number of changes that a progress object holds at most."""

Concerns = Callable[[ReplicaProgress | None, ReplicaProgress], bool]


class Registers(Protocol):
    """The one method of an `ObjectStore` that a writer of progress calls."""

    def put_register(self, path: str, data: bytes) -> None: ...


class ReadableRegisters(Protocol):
    """The part of an `ObjectStore` that a reader of progress uses."""

    @property
    def url(self) -> str: ...

    def get_register(self, path: str) -> bytes | None: ...


class ProgressWriter:
    """The only writer of one progress object. `state`: `active`, `ended`, …"""

    def __init__(
        self, store: Registers, path: str, *, concerns: Concerns | None = None, recent_changes: int = RECENT_CHANGES
    ) -> None:
        """`concerns`: whether a change, from the published entry to the new one, matters to readers; None: always."""
        self._store = store
        self._path = path
        self._concerns = concerns
        self._recent_changes = recent_changes
        self._entries: dict[TopicPartition, ReplicaProgress] = {}
        self._rows: dict[TopicPartition, tuple[int, bytes]] = {}
        self._sequence = 0
        self._full_state_sequence = 0
        self._published_sequence = 0
        self.state = "active"

    @property
    def is_unpublished(self) -> bool:
        """True when there are changes that are not in the object yet."""
        return self._sequence != self._published_sequence

    def update(self, entries: Iterable[ReplicaProgress]) -> None:
        """Add entries, to be written by `publish`."""
        for entry in entries:
            topic_partition = entry.topic_partition
            known = self._entries.get(topic_partition)
            if known == entry or (self._concerns is not None and not self._concerns(known, entry)):
                continue
            self._entries[topic_partition] = entry
            self._sequence += 1
            self._rows.pop(topic_partition, None)  # the last change is the last row
            self._rows[topic_partition] = (self._sequence, encode_row(self._sequence, entry))

    def forget(self, topic_partition: TopicPartition) -> None:
        """The writer no longer moves this replica."""
        self._entries.pop(topic_partition, None)
        self._rows.pop(topic_partition, None)

    def publish(self, beat: int = 0) -> None:
        """Write the object; first the full state when readers could otherwise miss a change.

        What changes while the store is written to stays unpublished.
        """
        count, sequence = self._recent_changes, self._sequence
        newest = list(islice(reversed(self._rows.values()), count + 1))
        complete_above = newest[count][0] if len(newest) > count else 0
        header = ProgressHeader(sequence, complete_above, beat, self.state)
        if complete_above > self._full_state_sequence:
            all_rows = (row for _, row in reversed(self._rows.values()))
            self._store.put_register(full_state_path(self._path), encode_progress(header, all_rows))
            self._full_state_sequence = sequence
        self._store.put_register(self._path, encode_progress(header, [row for _, row in newest[:count]]))
        self._published_sequence = sequence


class ProgressReader:
    """Reads one progress object. `entries` only move forward."""

    def __init__(self, store: ReadableRegisters, path: str) -> None:
        self._store = store
        self._path = path
        self._content: bytes | None = None
        self._sequence = 0
        self.state = ""
        self.entries: dict[TopicPartition, ReplicaProgress] = {}

    def poll(self) -> list[ReplicaProgress]:
        """Entries that moved since the last poll, oldest change first; an absent object is an empty one, and so is one
        that a power cut spoilt: the next registration has another."""
        content = self._store.get_register(self._path)
        if content is None or content == self._content:
            return []
        try:
            header = progress_header(content)
            after = self._sequence if header.sequence >= self._sequence else 0  # a new writer
            rows = list(progress_rows(content, after))
        except CorruptMessageError as reason:
            self._content = content
            _LOG.warning("%s/%s: %s", self._store.url, self._path, reason)
            return []
        if header.complete_above > after:
            # Rows are newest first: a recent change comes before the full state's row of the same partition.
            rows += self._full_state(after)
        self._content, self._sequence, self.state = content, header.sequence, header.state
        return self._merge(reversed(rows)) if rows else []

    def _full_state(self, after: int) -> list[ReplicaProgress]:
        path = full_state_path(self._path)
        try:
            return list(progress_rows(self._store.get_register(path) or b"", after))
        except CorruptMessageError as reason:
            _LOG.warning("%s/%s: %s", self._store.url, path, reason)
            return []

    def _merge(self, rows: Iterable[ReplicaProgress]) -> list[ReplicaProgress]:
        changed = []
        for entry in rows:
            if entry.supersedes(self.entries.get(entry.topic_partition)):
                self.entries[entry.topic_partition] = entry
                changed.append(entry)
        return changed
