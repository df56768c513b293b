"""Progress objects: what one writer says of the replicas it moves, so that idle partitions cost nothing.

Pure encoding and merging; `ProgressReader` and `ProgressWriter` do I/O through an `ObjectStore`. One
writer per object (hazards 12). The object holds the newest changes (a ring, newest state per partition);
beside it an image holds everything, rewritten every half ring, for readers that missed some. Entries merge
by (leader epoch, table version), never downwards (DESIGN §6).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from storage.records import TopicPartition
from storage.store import ObjectStore

RING = 64
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """One replica as its writer last saw it. A follower leaves `high_watermark` and `start_offset` UNKNOWN."""

    topic_partition: TopicPartition
    leader_epoch: int
    log_end_offset: int
    version: int
    high_watermark: int = UNKNOWN
    log_start_offset: int = 0
    start_offset: int = UNKNOWN
    topic_id: str = ""

    def supersedes(self, other: ReplicaProgress | None) -> bool:
        """True when this is newer: a later leader epoch, table version, or high watermark of the same version.

        A topic created anew under an old name counts from zero: the later statement of one writer wins.
        """
        return other is None or other.topic_id != self.topic_id or self._order() > other._order()

    def _order(self) -> tuple[int, int, int, int]:
        return (self.leader_epoch, self.version, self.high_watermark, self.log_start_offset)


def _to_row(sequence: int, p: ReplicaProgress) -> list[Any]:
    return [
        sequence, *p.topic_partition, p.leader_epoch, p.log_end_offset, p.version,
        p.high_watermark, p.log_start_offset, p.start_offset, p.topic_id,
    ]  # fmt: skip


def _from_row(row: list[Any]) -> tuple[int, ReplicaProgress]:
    return row[0], ReplicaProgress(TopicPartition(row[1], row[2]), *row[3:])


def progress_prefix(broker_epoch: int) -> str:
    return f"progress/{broker_epoch}/"


def leader_progress_path(broker_epoch: int) -> str:
    """What the broker's leader loop publishes, in the broker's own root."""
    return progress_prefix(broker_epoch) + "leader"


def fetch_progress_path(broker_epoch: int, session: str) -> str:
    """What one fetch session of the broker publishes, in the broker's own root."""
    return f"{progress_prefix(broker_epoch)}fetch-{session}"


def image_path(path: str) -> str:
    return path.replace("/fetch-", "/image-fetch-") if "/fetch-" in path else path + "-image"


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
            rows = [_to_row(0, entry) for entry in self._entries.values()]
            self._store.put(image_path(self._path), json.dumps({"sequence": self._sequence, "rows": rows}).encode())
            self._image_sequence = self._sequence
        body = {
            "sequence": self._sequence,
            "state": self.state,
            "beat": beat,
            "image": self._image_sequence,
            "rows": [_to_row(seq, self._entries[tp]) for tp, seq in self._ring.items()],
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
        rows = [_from_row(row) for row in body["rows"]]
        # The ring holds the newest change of its partitions; with fewer entries than changes since our
        # last poll something fell out of it, and the image has that.
        if body["image"] > max(self._sequence, 0) or (self._sequence < 0 and body["image"] > 0):
            rows = self._image_rows() + rows
        self._content, self._sequence, self.state = content, body["sequence"], body["state"]
        return self._merge(rows)

    def _image_rows(self) -> list[tuple[int, ReplicaProgress]]:
        content = self._store.get_optional(image_path(self._path))
        return [_from_row(row) for row in json.loads(content)["rows"]] if content else []

    def _merge(self, rows: list[tuple[int, ReplicaProgress]]) -> list[ReplicaProgress]:
        changed = []
        for _, entry in rows:
            if entry.supersedes(self.entries.get(entry.topic_partition)):
                self.entries[entry.topic_partition] = entry
                changed.append(entry)
        return changed
