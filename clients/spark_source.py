"""The Spark source: `spark.read.format("stratalog")` and `spark.readStream.format("stratalog")`.

I/O: through `spark_offsets` where Spark plans and `spark_read` on executors. Schema, options, offsets in the
checkpoint and errors are the Kafka connector's. Planning runs in a process of Spark's, never in the user's
driver: the cluster is reached through storage only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from clients.read_committed import is_read_committed
from clients.spark_conditions import WITHOUT_FAIL_ON_DATA_LOSS
from clients.spark_filters import RangeFilters
from clients.spark_offsets import OffsetFetcher
from clients.spark_options import SourceOptions, batch_options, include_headers, sink_options, stream_options
from clients.spark_plan import (
    LONG_MAX,
    OffsetRange,
    Offsets,
    OffsetsJson,
    backlog,
    batch_ranges,
    check_available_now,
    check_limits,
    must_wait,
    offsets_from_json,
    offsets_to_json,
    rate_limited,
    stream_ranges,
    tasks_of,
)
from clients.spark_read import RangeReaders, RangeToRead, arrow_schema
from clients.spark_sink import StratalogStreamWriter, StratalogWriter
from clients.spark_worker import settle, view_of
from storage.errors import InvalidConfigError, StratalogError

LONG_POLL_MS = 100
LONG_POLL_SHARE = 0.1
"""Of the time for which nothing has come: so much longer may a batch take because it waited for its first record."""
PAUSE_MS_MIN, PAUSE_MS_MAX = 2, 20
METADATA_MAX_AGE_MS = 50

_LOG = logging.getLogger("stratalog.source")


class StratalogDataSource(DataSource):
    """The format `stratalog`."""

    @classmethod
    def name(cls) -> str:
        return "stratalog"

    def schema(self) -> StructType:
        return from_arrow_schema(arrow_schema(include_headers(self.options)))

    def reader(self, schema: StructType) -> StratalogReader:
        settle()
        self._check_schema(schema)
        return StratalogReader(batch_options(self.options))

    def streamReader(self, schema: StructType) -> StratalogStreamReader:  # noqa: N802
        settle()
        self._check_schema(schema)
        return StratalogStreamReader(stream_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> StratalogWriter:
        settle()
        return StratalogWriter(sink_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StratalogStreamWriter:  # noqa: ARG002, N802
        settle()
        return StratalogStreamWriter(sink_options(self.options), schema)

    def _check_schema(self, schema: StructType) -> None:
        if schema.simpleString() != self.schema().simpleString():
            raise InvalidConfigError("Kafka source has a fixed schema and cannot be set with a custom one")


class RangesPartition(InputPartition):
    """One task's ranges."""

    def __init__(self, wanted: tuple[RangeToRead, ...]) -> None:
        super().__init__(wanted)
        self.wanted = wanted


def _tasks(ranges: Sequence[OffsetRange], options: SourceOptions, fetcher: OffsetFetcher) -> list[InputPartition]:
    reads_committed = is_read_committed(options.isolation_level)

    def to_read(part: OffsetRange) -> RangeToRead:
        epoch = fetcher.leader_epoch(part.topic_partition)
        return RangeToRead(part.topic_partition, part.start, part.end, epoch, reads_committed)

    tasks = tasks_of(ranges, options.min_partitions, options.max_records_per_partition)
    return [RangesPartition(tuple(map(to_read, task))) for task in tasks]


@lru_cache(maxsize=8)
def _range_readers(root: str) -> RangeReaders:
    """Kept by the Python worker over its tasks, so that a micro-batch does not fold the tables anew."""
    return RangeReaders(view_of(root))


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, RangesPartition):
        return  # Spark gives a batch read without ranges one empty partition
    settle()
    for wanted in partition.wanted:
        yield from _range_readers(options.root).record_batches(
            wanted,
            include_headers=options.include_headers,
            fail_on_data_loss=options.fail_on_data_loss,
            timeout_ms=options.poll_timeout_ms,
        )


class StratalogReader(DataSourceReader):
    """A batch read between two positions."""

    def __init__(self, options: SourceOptions) -> None:
        check_limits(options.starting, options.ending)
        self._options = options
        self._filters = RangeFilters()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Ranges are narrowed; Spark still looks at every row that is read."""
        self._filters = RangeFilters.of(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        view = view_of(options.root, options.isolation_level)
        view.refresh()
        fetcher = OffsetFetcher(view, options)
        start = fetcher.limits(options.starting, starting=True)
        end = fetcher.limits(options.ending, starting=False)
        ranges = batch_ranges(start, {tp: offset for tp, offset in end.items() if tp in start})
        return _tasks(self._filters.narrowed(ranges, fetcher.first_at), options, fetcher)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._options, partition)


class StratalogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. One instance plans for the query's whole life; others, made per plan, only read on executors.

    Spark logs only where batches end, so a query that dies in its first batch would ask anew where to start
    and could skip records. The first `latestOffset` therefore answers the start itself: an empty batch 0 that
    puts the start into the checkpoint.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._fetcher: OffsetFetcher | None = None
        self._initial: OffsetsJson | None = None
        self._is_fresh = True
        self._is_available_now = False
        self._frozen: Offsets | None = None
        self._latest: Offsets = {}
        self._last_trigger_ms = 0
        self._idle_since_ms: int | None = None

    @property
    def fetcher(self) -> OffsetFetcher:
        """Made at the first use: instances that only read do not need one."""
        if self._fetcher is None:
            self._fetcher = OffsetFetcher(view_of(self._options.root, self._options.isolation_level), self._options)
        return self._fetcher

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._initial is None:
            self._initial = offsets_to_json(self.fetcher.limits(self._options.starting, starting=True))
        return cast(dict[str, Any], self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Never ReadAllAvailable, so that receiving that one means Trigger.Once. The limits are our own affair."""
        return ReadMaxRows(self._options.max_offsets_per_trigger or LONG_MAX)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._is_available_now = True

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return offsets_to_json(self._latest) if self._latest else None

    def latestOffset(self, start: Mapping[str, Mapping[str, int]], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        start_offsets = offsets_from_json(start)
        self._latest = self._available(start_offsets)
        is_first_batch = self._is_fresh and start == self._initial
        self._is_fresh = False
        if isinstance(limit, ReadAllAvailable):
            return offsets_to_json(self._latest)
        if is_first_batch:
            return offsets_to_json(start_offsets)
        return offsets_to_json(self._limited(start_offsets))

    def _available(self, start: Offsets) -> Offsets:
        if self._is_available_now:
            if self._frozen is None:
                self._frozen = self._caught_up(start, self.fetcher.latest())
            return self._frozen
        if self._is_fresh:
            return self._caught_up(start, self.fetcher.latest())
        return self._caught_up(start, self._long_poll(start))

    def _long_poll(self, start: Offsets) -> Offsets:
        """Wait a little for something new: Spark asks again at once when there is nothing."""
        clock = self.fetcher.view.clock
        now_ms = clock.monotonic_ms()
        known = {**start, **self._latest}
        latest = self._published(known, 0)
        if latest != start:
            self._idle_since_ms = None
            return latest
        if self._idle_since_ms is None:
            self._idle_since_ms = now_ms
        end_ms = now_ms + min(LONG_POLL_MS, max(PAUSE_MS_MIN, LONG_POLL_SHARE * (now_ms - self._idle_since_ms)))
        pause_ms: float = PAUSE_MS_MIN
        while latest == start and now_ms < end_ms:
            clock.sleep_ms(pause_ms)
            pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)
            now_ms = clock.monotonic_ms()
            # "Nothing new" is said after a look at what the metadata says now: `processAllAvailable` relies on it.
            latest = self._published(known, METADATA_MAX_AGE_MS if now_ms < end_ms else 0)
        return latest

    def _published(self, known: Offsets, max_age_ms: int) -> Offsets:
        def look() -> Offsets:
            self.fetcher.view.refresh(max_age_ms)
            self.fetcher.view.poll_progress()
            return self.fetcher.latest_published(known)

        return self.fetcher.retried(look)

    def _caught_up(self, start: Offsets, latest: Offsets) -> Offsets:
        """Ask again while an offset looks older than what was read already, as the connector does."""
        for _ in range(self._options.num_retries - 1):
            behind = {tp: (start[tp], offset) for tp, offset in latest.items() if start.get(tp, 0) > offset}
            if not behind:
                break
            _LOG.warning("Found incorrect offsets (partition -> previous, fetched), asking again: %s", behind)
            self.fetcher.view.clock.sleep_ms(self._options.retry_interval_ms)
            latest = self.fetcher.latest()
        return latest

    def _limited(self, start: Offsets) -> Offsets:
        options = self._options
        if options.min_offsets_per_trigger is not None and not self._is_available_now:
            now_ms = self.fetcher.view.clock.wall_ms()
            waited_ms = now_ms - self._last_trigger_ms
            new_records = backlog(start, self._latest)
            if must_wait(options.min_offsets_per_trigger, new_records, waited_ms, options.max_trigger_delay_ms):
                return start
            self._last_trigger_ms = now_ms
        if options.max_offsets_per_trigger is None:
            return self._latest
        earliest_of_new = self.fetcher.earliest(set(self._latest) - set(start))
        return rate_limited(options.max_offsets_per_trigger, start, self._latest, earliest_of_new)

    def partitions(
        self, start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
    ) -> Sequence[InputPartition]:
        first, last = offsets_from_json(start), offsets_from_json(end)
        is_replay, self._is_fresh = self._is_fresh, False
        if first == last or (is_replay and self._is_empty_first_batch(start, last)):
            return []
        if self._frozen is not None:
            check_available_now(self._frozen, last, self.fetcher.latest())
        earliest_of_new = self.fetcher.earliest(set(last) - set(first))
        ranges = stream_ranges(first, last, earliest_of_new, self._report)
        return _tasks(ranges, self._options, self.fetcher)

    def _is_empty_first_batch(self, start: Mapping[str, Mapping[str, int]], last: Offsets) -> bool:
        """A query that died in its empty first batch runs it again; its start, asked anew, may be past its end."""
        first = offsets_from_json(start)
        return start == self._initial and all(last[tp] <= first.get(tp, -1) for tp in last)

    def _report(self, loss: StratalogError) -> None:
        if self._options.fail_on_data_loss:
            raise loss
        _LOG.warning("%s %s", loss, WITHOUT_FAIL_ON_DATA_LOSS)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._options, partition)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing: the checkpoint is the only place that keeps a query's offsets."""

    def stop(self) -> None:
        """Nothing is held open."""


def register(spark: SparkSession) -> None:
    """Make `format("stratalog")` known to a session whose Python path lacks `pyspark_stratalog`."""
    spark.dataSource.register(StratalogDataSource)
