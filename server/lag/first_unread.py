"""The timestamp of the first record from an offset on, by partition. I/O: reads data files through a view.

A record keeps its timestamp, so each is read once: a group that stands still costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.records import CONTROL_ATTRIBUTE, TopicPartition

COLUMNS = ("offset", "timestamp", "producer_id", "attributes")
KEPT_ROWS = 10_000
"""Offsets and times of one partition that are kept: a group that reads on finds the next ones there."""
NO_TIME_MS = 0
"""Stands for a record without a timestamp: it is as old as time."""


class UnreadAt(NamedTuple):
    """A place where some group reads on: the partition of the topic with this id, and the offset."""

    topic_id: str
    topic_partition: TopicPartition
    offset: int


class _Times(NamedTuple):
    """Offsets of records and their timestamps in ms, ascending, as of a read from `from_offset` up to `end_offset`."""

    topic_id: str
    from_offset: int
    end_offset: int
    offsets: list[int]
    times_ms: list[int]

    def first(self, offset: int) -> int | None:
        """The timestamp of the first record from `offset` on; None when this read does not tell."""
        if not self.from_offset <= offset < self.end_offset:
            return None
        for at, time_ms in zip(self.offsets, self.times_ms, strict=True):
            if at >= offset:
                return time_ms
        return None


class FirstUnread:
    """Remembers for each partition the times around the offsets that were asked for. One thread uses it."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._known: dict[UnreadAt, int] = {}
        self._times: dict[TopicPartition, _Times] = {}

    def known(self, wanted: Iterable[UnreadAt]) -> dict[UnreadAt, int]:
        """Those that need no read; what is not wanted any more is forgotten."""
        found = {}
        for place in wanted:
            time_ms = self._known.get(place)
            if time_ms is None:
                times = self._times.get(place.topic_partition)
                time_ms = times.first(place.offset) if times is not None and times.topic_id == place.topic_id else None
            if time_ms is not None:
                found[place] = time_ms
        self._known = found
        read = {place.topic_partition for place in found}
        self._times = {named: times for named, times in self._times.items() if named in read}
        return dict(found)

    def read(self, place: UnreadAt, end_offset: int) -> int | None:
        """Read the timestamp; None when no record is between it and `end_offset`, but markers and gaps.

        Raises what a read of the view does, at once when the partition cannot be read now.
        """
        offset = place.offset
        while offset < end_offset:
            fetched = self._view.records.fetch(
                place.topic_partition, offset, 1, end_offset, timeout_ms=0, columns=COLUMNS
            )
            times = _times(place.topic_id, place.offset, fetched.next_offset, fetched.rows)
            time_ms = times.first(place.offset)
            if time_ms is not None:
                self._known[place] = time_ms
                self._times[place.topic_partition] = times
                return time_ms
            if fetched.next_offset <= offset:
                return None
            offset = fetched.next_offset
        return None


def _times(topic_id: str, from_offset: int, end_offset: int, rows: pa.Table) -> _Times:
    is_record = pc.equal(pc.bit_wise_and(rows["attributes"].cast(pa.int32()), CONTROL_ATTRIBUTE), 0)
    kept = rows.filter(is_record).slice(0, KEPT_ROWS)
    times = kept["timestamp"].cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    offsets = kept["offset"].to_pylist()
    last = offsets[-1] + 1 if kept.num_rows == KEPT_ROWS else end_offset
    return _Times(topic_id, from_offset, last, offsets, [NO_TIME_MS if t is None else t for t in times.to_pylist()])
