"""Progress objects: one writer publishes its replicas in each, so that idle partitions cost nothing.

I/O: through an `ObjectStore`. One writer per object (hazards 12). The object holds the newest changes (a ring,
newest state per partition); beside it an image holds everything, rewritten every half ring, for readers that
missed some.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from replication.progress import ReplicaProgress, from_row, image_path, to_row
from storage.records import TopicPartition
from storage.store import ObjectStore

RING = 64


class ProgressWriter:
    """The only writer of one progress object. `state` is a word of the writer's (`active`, `ended`, …)."""

    def __init__(self, store: ObjectStore, path: str, *, ring: int = RING) -> None:
        self._store = store
        self._path = path
        self._ring_size = ring
        self._entries: dict[TopicPartition, ReplicaProgress] = {}
        self._ring: dict[TopicPartition, int] = {}
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
            if self._entries.get(entry.topic_partition) == entry:
                continue
            self._entries[entry.topic_partition] = entry
            self._sequence += 1
            self._ring.pop(entry.topic_partition, None)
            self._ring[entry.topic_partition] = self._sequence

    def forget(self, topic_partition: TopicPartition) -> None:
        """The writer no longer moves this replica."""
        self._entries.pop(topic_partition, None)
        self._ring.pop(topic_partition, None)

    def publish(self, beat: int = 0) -> None:
        """Write the object; first the image when readers could otherwise miss a change."""
        while len(self._ring) > self._ring_size:
            del self._ring[next(iter(self._ring))]
        if len(self._entries) > len(self._ring) and self._sequence - self._image_sequence >= self._ring_size // 2:
            rows = [to_row(0, entry) for entry in self._entries.values()]
            self._store.put(image_path(self._path), json.dumps({"sequence": self._sequence, "rows": rows}).encode())
            self._image_sequence = self._sequence
        body = {
            "sequence": self._sequence,
            "state": self.state,
            "beat": beat,
            "image": self._image_sequence,
            "rows": [to_row(seq, self._entries[tp]) for tp, seq in self._ring.items()],
        }
        self._store.put(self._path, json.dumps(body, separators=(",", ":")).encode())
        self._published_sequence = self._sequence


class ProgressReader:
    """Follows one progress object. `entries` only ever moves forward."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store = store
        self._path = path
        self._content: bytes | None = None
        self._sequence = -1
        self.state = ""
        self.entries: dict[TopicPartition, ReplicaProgress] = {}

    def poll(self) -> list[ReplicaProgress]:
        """Entries that moved since the last poll; an absent object is an empty one."""
        content = self._store.get_optional(self._path)
        if content is None or content == self._content:
            return []
        body = json.loads(content)
        rows = [from_row(row) for row in body["rows"]]
        # The ring holds the newest change of its partitions; with fewer entries than changes since our
        # last poll something fell out of it, and the image has that.
        if body["image"] > max(self._sequence, 0) or (self._sequence < 0 and body["image"] > 0):
            rows = self._image_rows() + rows
        self._content, self._sequence, self.state = content, body["sequence"], body["state"]
        return self._merge(rows)

    def _image_rows(self) -> list[tuple[int, ReplicaProgress]]:
        content = self._store.get_optional(image_path(self._path))
        return [from_row(row) for row in json.loads(content)["rows"]] if content else []

    def _merge(self, rows: list[tuple[int, ReplicaProgress]]) -> list[ReplicaProgress]:
        changed = []
        for _, entry in rows:
            if entry.supersedes(self.entries.get(entry.topic_partition)):
                self.entries[entry.topic_partition] = entry
                changed.append(entry)
        return changed
