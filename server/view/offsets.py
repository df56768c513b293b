"""Offsets that a reader may ask for: the first and the last one of a partition, and those of timestamps.

I/O: as the parts of the view that it asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stratalog.server.offset_spec import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    UNKNOWN_OFFSET,
    ListedOffset,
    OffsetAndTimestamp,
    OffsetSpec,
)
from stratalog.server.view.marks import Watermarks
from stratalog.server.view.records import CommittedRecords
from stratalog.server.view.watermarks import PublishedWatermarks
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import TopicPartition


class ViewOffsets:
    """The offsets of a view whose records end where they are committed. Thread-safe; calls may block on storage."""

    def __init__(self, watermarks: PublishedWatermarks, records: CommittedRecords) -> None:
        self._watermarks = watermarks
        self._records = records

    def readable_end(self, _: TopicPartition, marks: Watermarks) -> int:
        return marks.high_watermark

    def beginning_offsets(
        self, topic_partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition that is still readable."""
        found = self._watermarks.of_all(topic_partitions, timeout_ms, needs_end=False)
        return {tp: marks.log_start_offset for tp, marks in found.items()}

    def end_offsets(
        self, topic_partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The high watermark of each partition: the offset after its last committed record."""
        found = self._watermarks.of_all(topic_partitions, timeout_ms)
        return {tp: marks.high_watermark for tp, marks in found.items()}

    def offset_for_timestamp(
        self, topic_partition: TopicPartition, timestamp_ms: int, timeout_ms: int | None = None
    ) -> OffsetAndTimestamp | None:
        """The first committed record with this timestamp or a later one; None when there is none."""
        marks = self._watermarks.of(topic_partition, timeout_ms)
        found = self._look_up(topic_partition, marks, lambda log, _: log.offset_for_timestamp(timestamp_ms))
        return None if found.offset == UNKNOWN_OFFSET else OffsetAndTimestamp(found.offset, found.timestamp_ms)

    def list_offset(
        self, topic_partition: TopicPartition, spec: OffsetSpec, timeout_ms: int | None = None
    ) -> ListedOffset:
        """The offset that `spec` asks for among the committed records; no table is read for the log's ends."""
        marks = self._watermarks.of(topic_partition, timeout_ms, needs_end=spec.timestamp != EARLIEST_TIMESTAMP)
        if spec.timestamp == EARLIEST_TIMESTAMP:
            return ListedOffset(marks.log_start_offset)
        if spec.timestamp == LATEST_TIMESTAMP:
            return ListedOffset(marks.high_watermark, leader_epoch=marks.leader_epoch)
        if spec.timestamp == MAX_TIMESTAMP:
            return self._look_up(topic_partition, marks, LogReader.offset_of_max_timestamp)
        return self._look_up(topic_partition, marks, lambda log, _: log.offset_for_timestamp(spec.timestamp))

    def _look_up(
        self,
        topic_partition: TopicPartition,
        marks: Watermarks,
        look_up: Callable[[LogReader, int], tuple[int, int] | None],
    ) -> ListedOffset:
        """What `look_up(log, end)` finds, if it is committed: below `end`."""
        with self._records.locked(topic_partition):
            log, end = self._records.readable_log(topic_partition, marks)
            found = look_up(log, end)
            if found is None or found[0] >= end:
                return ListedOffset(UNKNOWN_OFFSET)
            return ListedOffset(*found, log.epochs.epoch_at(found[0]))
