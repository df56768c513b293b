"""Batch reads of the Spark source, and what its tasks do in batches and streams.

I/O: through `offsets` where Spark plans and `read` on executors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from stratalog.clients.spark.offsets import OffsetFetcher
from stratalog.clients.spark.options import SourceOptions, SpecificOffsets
from stratalog.clients.spark.source.filters import RangeFilters
from stratalog.clients.spark.source.plan import (
    TASK_BYTES_MAX,
    Offsets,
    PlannedRange,
    batch_ranges,
    check_limits,
    cut_by_bytes,
    tasks_of,
)
from stratalog.clients.spark.source.planned_files import PlannedFiles
from stratalog.clients.spark.source.read import RangeReaders, RangeToRead, ReadManner
from stratalog.clients.spark.worker import freeze_modules, sentence_first, streaming_batch, view_of
from stratalog.server.view.read_committed import is_read_committed
from stratalog.storage.objects.store_settings import StoreSettings
from stratalog.storage.records import TopicPartition

if TYPE_CHECKING:  # a query without a group loads none of it
    from stratalog.clients.spark.transaction.positions import GroupPositions


KEPT_BATCHES = 2
"""The batches of a run whose positions are kept: the one that is read, and the one before."""


class RangesPartition(InputPartition):
    """One task's ranges; `positions`: those of its whole batch, which the first task leaves for the query's sink.

    not_covered  a partition that another member of the query's group has, or had: see `group.stateful`; "": none
    """

    def __init__(
        self, wanted: tuple[RangeToRead, ...], positions: GroupPositions | None = None, not_covered: str = ""
    ) -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.positions = positions
        self.not_covered = not_covered


def read_tasks(
    ranges: Sequence[PlannedRange],
    options: SourceOptions,
    fetcher: OffsetFetcher,
    positions: GroupPositions | None = None,
    planned: Mapping[TopicPartition, PlannedFiles] | None = None,
    ends: Offsets | None = None,
    not_covered: str = "",
) -> list[InputPartition]:
    """`planned`: the files of ranges that the planner knows. `ends`: the readable ends, where a range may be beyond."""
    reads_committed = is_read_committed(options.isolation_level)
    files = planned or {}

    def to_read(part: PlannedRange) -> RangeToRead:
        topic_partition, start, end = part
        epoch, topic_id = fetcher.leader_epoch(topic_partition), fetcher.topic_id(topic_partition.topic)
        seen = (ends or {}).get(topic_partition, end)
        is_whole = topic_partition in files and end <= seen
        its_files = files[topic_partition].between(start, end) if is_whole else None
        end_seen = seen if end > seen else None
        return RangeToRead(topic_partition, start, end, epoch, reads_committed, topic_id, its_files, end_seen)

    tasks = tasks_of(ranges, options.min_partitions, options.max_records_per_partition)
    return [
        RangesPartition(tuple(map(to_read, task)), None if number else positions, not_covered)
        for number, task in enumerate(tasks)
    ]


@lru_cache(maxsize=8)
def _range_readers(root: str, storage: StoreSettings, isolation_level: str) -> RangeReaders:
    """Cached in the Python worker, so that a micro-batch does not fold the tables again."""
    return RangeReaders(view_of(root, storage, isolation_level))


def read_partition(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, RangesPartition):
        return  # a batch read without ranges gets one empty partition from Spark
    freeze_modules()
    with sentence_first():
        if partition.positions is not None:
            leave_for_sink(options, partition.positions)
        manner = ReadManner(options.columns, options.fail_on_data_loss, options.poll_timeout_ms, options.rack)
        readers = _range_readers(options.root, options.storage, options.isolation_level)
        readers.begin(partition.wanted, manner)
        for wanted in partition.wanted:
            yield from readers.record_batches(wanted, manner)


def leave_for_sink(options: SourceOptions, positions: GroupPositions) -> None:
    """Leave the positions of a batch to the sink of the same query, by `transaction.positions`; no-op elsewhere."""
    from stratalog.clients.spark.transaction.positions import encode_positions, positions_path

    batch = streaming_batch()
    if batch is not None:
        objects = view_of(options.root, options.storage).stores.objects(options.root)
        run = batch.query_id, batch.run_id
        path = positions_path(*run, batch.batch_id, positions.planner)
        objects.put_register(path, encode_positions(batch.batch_id, positions))
        if batch.batch_id >= KEPT_BATCHES:
            objects.delete(positions_path(*run, batch.batch_id - KEPT_BATCHES, positions.planner))


class StratalogReader(DataSourceReader):
    """A batch read between two positions."""

    def __init__(self, options: SourceOptions) -> None:
        check_limits(options.starting, options.ending)
        self._options = options
        self._filters = RangeFilters()

    @sentence_first()
    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        view = view_of(options.root, options.storage, options.isolation_level)
        view.refresh()
        fetcher = OffsetFetcher(view, options)
        start = fetcher.limits(options.starting, starting=True)
        end = fetcher.limits(options.ending, starting=False)
        ranges = batch_ranges(start, {tp: offset for tp, offset in end.items() if tp in start})
        wanted = [each for each in self._filters.narrowed(ranges, fetcher.first_at) if each.size > 0]
        ends = fetcher.ends_now(wanted) if isinstance(options.ending, SpecificOffsets) else None
        planned = fetcher.planned_files(wanted, read_committed=is_read_committed(options.isolation_level))
        if options.min_partitions is None and options.max_records_per_partition is None:
            spans = {topic_partition: files.spans for topic_partition, files in planned.items()}
            wanted = cut_by_bytes(wanted, spans, TASK_BYTES_MAX)
        # the planner's files are the leaders'; with a rack tasks look for a replica that is near
        return read_tasks(wanted, options, fetcher, planned=None if options.rack else planned, ends=ends)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(self._options, partition)


class FilteringReader(StratalogReader):
    """A batch read that takes filters. A session that pushes none refuses a reader with this method."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Ranges are narrowed; Spark still evaluates the filters on every row that is read."""
        self._filters = RangeFilters.of(filters)
        return filters
