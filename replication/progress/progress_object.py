"""Progress objects: one writer publishes its replicas in each, so that idle partitions cost nothing.

I/O: through an `ObjectStore`. One writer per object (promise 21). The object holds the newest changes (a ring,
newest state per partition). Beside it an image holds everything, for readers that missed some; it is written
when the ring has lost a change that the image lacks, that is after at least a ring of changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from stratalog.replication.progress.progress import (
    PROGRESS_PREFIX,
    ProgressHeader,
    ReplicaProgress,
    encode_progress,
    encode_row,
    image_path,
    progress_header,
    progress_rows,
)
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.records import TopicPartition

RING = 64

Concerns = Callable[[ReplicaProgress | None, ReplicaProgress], bool]


class ProgressWriter:
    """The only writer of one progress object. `state` is a word of the writer's (`active`, `ended`, …)."""

    def __init__(self, store: ObjectStore, path: str, *, concerns: Concerns | None = None, ring: int = RING) -> None:
        """`concerns` says, of what was published and what is, whether those who read this object are to be told; None:
        of every change."""
        self._store = store
        self._path = path
        self._concerns = concerns
        self._ring_size = ring
        self._entries: dict[TopicPartition, ReplicaProgress] = {}
        self._rows: dict[TopicPartition, tuple[int, bytes]] = {}
        self._sequence = 0
        self._image_sequence = 0
        self._published_sequence = 0
        self.state = "active"

    @property
    def is_unpublished(self) -> bool:
        """True when something was taken in that the object does not show yet."""
        return self._sequence != self._published_sequence

    def update(self, entries: Iterable[ReplicaProgress]) -> None:
        """Take entries in; `publish` shows them."""
        for entry in entries:
            topic_partition = entry.topic_partition
            known = self._entries.get(topic_partition)
            if known == entry or (self._concerns is not None and not self._concerns(known, entry)):
                continue
            self._entries[topic_partition] = entry
            self._sequence += 1
            self._rows.pop(topic_partition, None)  # what changed last stands last
            self._rows[topic_partition] = (self._sequence, encode_row(self._sequence, entry))

    def forget(self, topic_partition: TopicPartition) -> None:
        """The writer no longer moves this replica."""
        self._entries.pop(topic_partition, None)
        self._rows.pop(topic_partition, None)

    def publish(self, beat: int = 0) -> None:
        """Write the object; first the image when readers could otherwise miss a change."""
        newest = list(islice(reversed(self._rows.values()), self._ring_size + 1))
        floor = newest[self._ring_size][0] if len(newest) > self._ring_size else 0
        header = ProgressHeader(self._sequence, floor, beat, self.state)
        if floor > self._image_sequence:
            everything = (row for _, row in reversed(self._rows.values()))
            self._store.put_register(image_path(self._path), encode_progress(header, everything))
            self._image_sequence = self._sequence
        ring = [row for _, row in newest[: self._ring_size]]
        self._store.put_register(self._path, encode_progress(header, ring))
        self._published_sequence = self._sequence


class ProgressReader:
    """Follows one progress object. `entries` only ever moves forward."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store = store
        self._path = path
        self._content: bytes | None = None
        self._sequence = 0
        self.state = ""
        self.entries: dict[TopicPartition, ReplicaProgress] = {}

    def poll(self) -> list[ReplicaProgress]:
        """Entries that moved since the last poll, oldest change first; an absent object is an empty one."""
        content = self._store.get_register(self._path)
        if content is None or content == self._content:
            return []
        header = progress_header(content)
        if header.sequence < self._sequence:
            self._sequence = 0  # the writer began anew
        rows = list(progress_rows(content, self._sequence))
        if header.floor > self._sequence:
            # A row of the ring is newer than the image's of the same partition: it has to come after it.
            rows += progress_rows(self._store.get_register(image_path(self._path)) or b"", self._sequence)
        self._content, self._sequence, self.state = content, header.sequence, header.state
        return self._merge(reversed(rows)) if rows else []

    def _merge(self, rows: Iterable[ReplicaProgress]) -> list[ReplicaProgress]:
        changed = []
        for entry in rows:
            if entry.supersedes(self.entries.get(entry.topic_partition)):
                self.entries[entry.topic_partition] = entry
                changed.append(entry)
        return changed


def remove_old_progress(store: ObjectStore, broker_epoch: int) -> None:
    """Delete what earlier registrations published, but for the last: a reader may still be looking at that."""
    paths = [meta.path for meta in store.list(PROGRESS_PREFIX)]
    epochs = sorted({int(path.split("/")[1]) for path in paths} - {broker_epoch})
    for path in paths:
        if epochs and int(path.split("/")[1]) in epochs[:-1]:
            store.delete(path)
