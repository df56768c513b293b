"""The record batches of one partition for a Fetch.

I/O: reads the leader's log through the view, unless the batches are in the encoded tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stratalog.server.apis.fetch.sessions import WantedPartition
from stratalog.server.apis.fetch.stored_batches import StoredBatches
from stratalog.server.batches.batch_memory import PublishedLog
from stratalog.server.batches.read_ahead import ReadFrom
from stratalog.server.request.broker import NO_EPOCH, ServedBroker
from stratalog.server.view.marks import Watermarks
from stratalog.storage.errors import OffsetOutOfRangeError, StratalogError
from stratalog.storage.log.cleaner_checkpoint import GONE_ABORTED
from stratalog.storage.log.leader_epochs import UNDEFINED, EpochEndOffset
from stratalog.storage.log.reader import LogReader
from stratalog.storage.log.state import LogState
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.storage.transactions import NO_TRANSACTIONS, Transactions
from stratalog.wire.batches.headers import EncodedBatch
from stratalog.wire.batches.record_batches import empty_batch
from stratalog.wire.messages.values import Values

UNKNOWN = -1
READS_MAX = 16
"""The reads of a log for one partition of one response: a file of one record is larger than a batch of one record."""
MAX_VERSION = 1 << 62
COMMITTED_TRIES = 3
"""The number of reads of a partition whose log compaction changes meanwhile; after that the answer has no records."""


class _Committed(NamedTuple):
    """A log's state for `read_committed`, as of one fold of it. The last stable offset is not below the log's start.

    cleaned_end  below it, the transactions of batches in the encoded tail may be missing in the log
    """

    state: LogState | None = None
    swapped_version: int = UNKNOWN
    last_stable_offset: int = UNKNOWN
    transactions: Transactions = NO_TRANSACTIONS
    cleaned_end: int = 0

    @staticmethod
    def of(log: LogReader, marks: Watermarks) -> _Committed:
        stable = max(log.last_stable_offset(marks.high_watermark), marks.log_start_offset)
        transactions, state = log.producers.transactions, log.state
        return _Committed(state, state.swapped_version, stable, transactions, state.txn_number(GONE_ABORTED))

    def holds_in(self, log: LogReader) -> bool:
        """Whether nothing was removed from the log since, so that the transactions fit the batches read from it."""
        return log.state is self.state and log.state.swapped_version == self.swapped_version


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """Record batches of a partition, or why there are none.

    topic_partition  None: the topic is not known
    aborted          the aborted transactions in the batches; None unless for committed records only
    diverging        the end of the client's epoch in this log, to which the client has to truncate (KIP-595)
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
    def end_offset(self) -> int:
        """Where the records that may be returned end."""
        return self.high_watermark if self.aborted is None else self.last_stable_offset

    @property
    def is_urgent(self) -> bool:
        """Whether the fetch is answered without waiting."""
        return self.error is not None or self.diverging is not None


class _Piece(NamedTuple):
    """Batches that lie together, and the offset behind them. They are those of the table in each version from
    `since_version` to `version`.

    source     where a rest of them may be kept for
    is_stored  they came from storage, now or for the fetch before
    """

    batches: Sequence[EncodedBatch]
    next_offset: int
    since_version: int
    version: int
    source: ReadFrom | None = None
    is_stored: bool = False


class PartitionFetch:
    """Reads partitions for one broker. Any thread may use it."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker
        self._stored = StoredBatches(broker.view, broker.config.stratalog_reading_process_bytes)

    def close(self) -> None:
        """End the process that reads old records."""
        self._stored.close()

    def read(
        self,
        named: TopicPartition,
        wanted: WantedPartition,
        max_bytes: int,
        *,
        must_return_one: bool,
        is_committed: bool,
        takes_zstd: bool,
    ) -> PartitionRead:
        """Batches from the one that holds the wanted offset on, of at most `max_bytes` together.

        must_return_one  the first batch is returned however large it is
        is_committed     only records below the last stable offset
        Raises OffsetOutOfRangeError, LeaderNotAvailableError.
        """
        view, offset = self._broker.view, wanted.fetch_offset
        marks = view.watermarks.published(named, poll=False) or view.watermarks.of(named, 0, needs_end=False)
        if not _is_of_epoch(wanted, marks):
            end = self._broker.end_of_epoch(named, wanted.last_fetched_epoch)
            if end == UNDEFINED:
                raise OffsetOutOfRangeError(
                    f"{named}: the end of the last fetched epoch {wanted.last_fetched_epoch} is unknown"
                )
            if end.epoch < wanted.last_fetched_epoch or end.end_offset < offset:
                bounds = (marks.high_watermark, UNKNOWN, marks.log_start_offset)
                return PartitionRead(named, (), *bounds, diverging=end)
        self._check_offset(named, offset, marks)
        is_wanted, limits = max_bytes > 0 or must_return_one, (max_bytes, must_return_one, takes_zstd)
        if not is_committed:
            bounds = self._bounds(named, marks)
            of = published_log(named, marks)
            batches = self._batches(of, offset, bounds[0], *limits) if is_wanted and offset < bounds[0] else []
            return PartitionRead(named, batches, *bounds)
        for _ in range(COMMITTED_TRIES):
            known = view.records.read_from_log(named, lambda log: _Committed.of(log, marks), 0)
            bounds = marks.high_watermark, known.last_stable_offset, marks.log_start_offset
            if not is_wanted or offset >= known.last_stable_offset:
                break
            of = published_log(named, marks)
            batches = self._batches(of, offset, known.last_stable_offset, *limits, known.cleaned_end)
            if view.records.read_from_log(named, known.holds_in, 0):
                end_offset = batches[-1].last_offset + 1 if batches else offset
                found = known.transactions.aborted_between(offset, end_offset) if batches else ()
                aborted = [{"producer_id": each.producer_id, "first_offset": each.first_offset} for each in found]
                return PartitionRead(named, batches, *bounds, aborted)
        return PartitionRead(named, (), *bounds, ())

    def cached(
        self, named: TopicPartition, wanted: WantedPartition, max_bytes: int, *, must_return_one: bool, takes_zstd: bool
    ) -> PartitionRead | None:
        """As `read` of all records, from memory; None when that does not have it all, or for an error."""
        marks, offset = self._broker.view.watermarks.published(named, poll=False), wanted.fetch_offset
        if marks is None or not _is_of_epoch(wanted, marks):
            return None
        if not marks.log_start_offset <= offset <= marks.high_watermark:
            return None
        bounds = self._bounds(named, marks)
        if offset == marks.high_watermark or not (max_bytes > 0 or must_return_one):
            return PartitionRead(named, (), *bounds)
        of, end, wanted_bytes = published_log(named, marks), marks.high_watermark, max(1, max_bytes)
        batches = self._broker.memory.read(of, offset, end, wanted_bytes, takes_zstd=takes_zstd)
        if not batches:
            return None
        return PartitionRead(named, _fitting(batches, max_bytes, must_return_one), *bounds)

    def _bounds(self, named: TopicPartition, marks: Watermarks) -> tuple[int, int, int]:
        """High watermark, last stable offset and log start for a reader of all records, without reading storage."""
        known = self._broker.stable_offset(named, marks.high_watermark)
        stable = marks.high_watermark if known is None else known
        return marks.high_watermark, max(stable, marks.log_start_offset), marks.log_start_offset

    def _check_offset(self, named: TopicPartition, offset: int, marks: Watermarks) -> None:
        """OffsetOutOfRangeError outside the log; an offset between high watermark and log end is no error."""
        end = marks.high_watermark
        if offset > end:
            end = self._broker.log_end(named)
        if not marks.log_start_offset <= offset <= end:
            raise OffsetOutOfRangeError(
                f"{named}: offset {offset} is outside [{marks.log_start_offset}, {end}], the log"
            )

    def _batches(
        self,
        of: PublishedLog,
        offset: int,
        end: int,
        max_bytes: int,
        must_return_one: bool,
        takes_zstd: bool,
        cleaned_end: int = 0,
    ) -> list[EncodedBatch]:
        """From memory or from the log, in turn: a marker may stand between batches. All are of one version of the
        table: an answer ends where others begin."""
        found: list[EncodedBatch] = []
        left_bytes, since_version, until_version = max_bytes, 0, MAX_VERSION
        for _ in range(READS_MAX):
            if offset >= end or (found and left_bytes <= 0):
                break
            is_enough = bool(found) and 2 * left_bytes < max_bytes  # a small read costs as much as a larger one
            piece = self._piece(of, offset, end, max(1, left_bytes), takes_zstd, cleaned_end, from_memory=is_enough)
            since_version, until_version = max(since_version, piece.since_version), min(until_version, piece.version)
            if found and since_version > until_version:
                break
            fitting = _fitting(piece.batches, left_bytes, must_return_one and not found)
            found += fitting
            fitting_bytes = sum(len(batch.data) for batch in fitting)
            left_bytes -= fitting_bytes
            if piece.is_stored and fitting:
                behind, now_ms = fitting[-1].last_offset + 1, self._broker.view.clock.monotonic_ms()
                self._stored.streaks.went_on(of.partition.topic_partition, offset, behind, fitting_bytes, now_ms)
                self._broker.memory.put_ahead(piece.source, behind, piece.batches[len(fitting) :])
            if len(fitting) < len(piece.batches) or piece.next_offset <= offset:
                break
            offset = piece.next_offset
        return found

    def _piece(
        self,
        of: PublishedLog,
        offset: int,
        end: int,
        wanted_bytes: int,
        takes_zstd: bool,
        cleaned_end: int,
        *,
        from_memory: bool,
    ) -> _Piece:
        """The batches from `offset` on that lie in one place; `from_memory`: storage is not read."""
        memory, versions = self._broker.memory, (of.removed.version, of.version)
        if offset >= cleaned_end:
            if batches := memory.read(of, offset, end, wanted_bytes, takes_zstd=takes_zstd):
                return _Piece(batches, batches[-1].last_offset + 1, *versions)
            if batches := memory.take_ahead(of, offset, end):
                now = ReadFrom(of.partition, of.leader_epoch, of.version)
                return _Piece(batches, batches[-1].last_offset + 1, *versions, now, is_stored=True)
        if from_memory:
            return _Piece([], offset, *versions)
        batches, next_offset, source = self._stored.read(of, offset, wanted_bytes, end, memory.room_bytes())
        if not batches and next_offset > offset:
            batches = [self._gap(of.partition.topic_partition, offset, next_offset)]
        if source is not None:
            versions = source.removed_version, source.version
        elif batches:
            versions = MAX_VERSION, 0  # of another replica, whose versions say nothing of the leader's
        return _Piece(batches, next_offset, *versions, source, is_stored=True)

    def _gap(self, named: TopicPartition, offset: int, end_offset: int) -> EncodedBatch:
        """An empty batch for offsets from which compaction removed all records.

        A client continues behind a batch, so without one it would never reach `end_offset`. Kafka's `Cleaner` keeps an
        empty batch at the end of each round; here the log end does not depend on rows, so none is stored.
        """
        return empty_batch(offset, end_offset, self._broker.epoch_at(named, end_offset - 1))


def published_log(named: TopicPartition, marks: Watermarks) -> PublishedLog:
    """The log that these are the marks of."""
    return PublishedLog(IdentifiedPartition(marks.topic_id, named), marks.leader_epoch, marks.version, marks.removed)


def _is_of_epoch(wanted: WantedPartition, marks: Watermarks) -> bool:
    """Whether the client's last record is one of this log for sure: it names none, or one of the leader's own epoch,
    whose records end at the high watermark or behind it."""
    if wanted.last_fetched_epoch == NO_EPOCH:
        return True
    return wanted.last_fetched_epoch == marks.leader_epoch and wanted.fetch_offset <= marks.high_watermark


def _fitting(batches: Sequence[EncodedBatch], max_bytes: int, must_return_one: bool) -> list[EncodedBatch]:
    """The first batches of at most `max_bytes` together; at least one with `must_return_one`."""
    fitting: list[EncodedBatch] = []
    size_bytes = 0
    for batch in batches:
        size_bytes += len(batch.data)
        if size_bytes > max_bytes and (fitting or not must_return_one):
            break
        fitting.append(batch)
    return fitting
