"""What one partition gives to a Fetch.

I/O: reads the leader's log through the view, unless the batches are in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from clients.batch_headers import EncodedBatch
from clients.cluster_view import Watermarks
from clients.kafka_broker import NO_EPOCH, ServedBroker
from clients.kafka_entities import Values
from clients.kafka_fetch_sessions import WantedPartition
from clients.kafka_offsets import end_of_epoch
from clients.record_batches import encode_rows
from storage.epochs import UNDEFINED, EpochEndOffset
from storage.errors import OffsetOutOfRangeError, StratalogError
from storage.log_reader import LogReader
from storage.records import TopicPartition

UNKNOWN = -1
READS_MAX = 16
"""Looks at the log for one partition of one response: a file of one record takes more bytes there than in a batch."""


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """Record batches of a partition, or why there are none.

    topic_partition  None: the topic is not known
    aborted          the aborted transactions in the batches; None where nobody asked for committed records only
    diverging        where the log of the epoch that the client knows ended here: it has to go back there (KIP-595)
    """

    topic_partition: TopicPartition | None
    batches: Sequence[EncodedBatch] = ()
    high_watermark: int = UNKNOWN
    last_stable_offset: int = UNKNOWN
    log_start_offset: int = UNKNOWN
    aborted: Sequence[Values] | None = None
    diverging: EpochEndOffset | None = None
    error: StratalogError | None = None

    @property
    def size_bytes(self) -> int:
        return sum(len(batch.data) for batch in self.batches)

    @property
    def is_urgent(self) -> bool:
        """Whether the client is to hear of it without waiting."""
        return self.error is not None or self.diverging is not None


class FetchReader:
    """Reads for one broker. Any thread may use it."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker

    def read(
        self,
        named: TopicPartition,
        wanted: WantedPartition,
        max_bytes: int,
        *,
        must_give_one: bool,
        is_committed: bool,
        takes_zstd: bool,
    ) -> PartitionRead:
        """Batches from the one that holds the offset asked for on, of at most `max_bytes` together.

        must_give_one  the first batch is given however large it is
        is_committed   only what lies below the last stable offset
        Raises OffsetOutOfRangeError, LeaderNotAvailableError.
        """
        view, offset = self._broker.view, wanted.fetch_offset
        marks = view.published(named, look=False) or view.watermarks(named, 0, needs_end=False)
        if wanted.last_fetched_epoch != NO_EPOCH:
            end = end_of_epoch(self._broker, named, wanted.last_fetched_epoch)
            if end == UNDEFINED:
                raise OffsetOutOfRangeError(
                    f"{named}: the end of epoch {wanted.last_fetched_epoch}, fetched last, is not known"
                )
            if end.epoch < wanted.last_fetched_epoch or end.end_offset < offset:
                bounds = (marks.high_watermark, UNKNOWN, marks.log_start_offset)
                return PartitionRead(named, (), *bounds, diverging=end)
        stable, aborted = marks.high_watermark, None
        if is_committed:
            stable = view.look_at_log(named, lambda log: log.last_stable_offset(marks.high_watermark), 0)
        self._check_offset(named, offset, marks)
        batches: list[EncodedBatch] = []
        if offset < stable and (max_bytes > 0 or must_give_one):
            batches = self._batches(named, offset, stable, max_bytes, must_give_one, takes_zstd)
        if is_committed:
            end_offset = batches[-1].last_offset + 1 if batches else offset
            aborted = self._aborted(named, offset, end_offset)
        return PartitionRead(named, batches, marks.high_watermark, stable, marks.log_start_offset, aborted)

    def _check_offset(self, named: TopicPartition, offset: int, marks: Watermarks) -> None:
        """From the log's start up to its end; above the high watermark there is nothing yet, but it is no error."""
        if marks.log_start_offset <= offset <= marks.high_watermark:
            return
        end = marks.high_watermark
        if offset > end:
            end = self._broker.view.look_at_log(named, lambda log: log.log_end_offset, 0)
        if not marks.log_start_offset <= offset <= end:
            raise OffsetOutOfRangeError(
                f"{named}: offset {offset} is outside [{marks.log_start_offset}, {end}], the log"
            )

    def _batches(
        self, named: TopicPartition, offset: int, end: int, max_bytes: int, must_give_one: bool, takes_zstd: bool
    ) -> list[EncodedBatch]:
        """From memory where the batches are there, else from the log, in turn: a marker may stand between batches."""
        given: list[EncodedBatch] = []
        left_bytes = max_bytes
        for _ in range(READS_MAX):
            if offset >= end or (given and left_bytes <= 0):
                break
            wanted_bytes = max(1, left_bytes)
            batches = self._broker.tail.read(named, offset, end, wanted_bytes, takes_zstd=takes_zstd)
            next_offset = batches[-1].last_offset + 1 if batches else offset
            if not batches:
                fetched = self._broker.view.fetch(named, offset, wanted_bytes, end, timeout_ms=0)
                next_offset = fetched.next_offset
                if fetched.rows.num_rows:
                    batches = encode_rows(part_of(fetched.rows, left_bytes))
                    next_offset = batches[-1].last_offset + 1
            fitting = _fitting(batches, left_bytes, must_give_one and not given)
            given += fitting
            left_bytes -= sum(len(batch.data) for batch in fitting)
            if len(fitting) < len(batches) or next_offset <= offset:
                break
            offset = next_offset
        return given

    def _aborted(self, named: TopicPartition, start: int, end: int) -> list[Values]:
        def look(log: LogReader) -> list[Values]:
            found = log.aborted_transactions(start, end)
            return [{"producer_id": each.producer_id, "first_offset": each.first_offset} for each in found]

        return self._broker.view.look_at_log(named, look, 0) if start < end else []


def _fitting(batches: Sequence[EncodedBatch], max_bytes: int, must_give_one: bool) -> list[EncodedBatch]:
    """The first batches that together are no larger than `max_bytes`; or the first one alone, if it must be."""
    fitting: list[EncodedBatch] = []
    size_bytes = 0
    for batch in batches:
        size_bytes += len(batch.data)
        if size_bytes > max_bytes and (fitting or not must_give_one):
            break
        fitting.append(batch)
    return fitting


def part_of(rows: pa.Table, max_bytes: int) -> pa.Table:
    """The first rows of `READ_SCHEMA`, of about `max_bytes` and to the end of a batch: a read gives whole files.

    1,000 rows of 100,000 bytes in batches of 100, of which 25,000 bytes are wanted: the first 300 rows.
    """
    size_bytes = rows.nbytes
    if size_bytes <= 2 * max_bytes:
        return rows
    last = min(rows.num_rows - 1, max(0, rows.num_rows * max_bytes // size_bytes))
    bases = rows["batch_base_offset"].to_numpy()
    return rows.slice(0, int(np.searchsorted(bases, bases[last], side="right")))
