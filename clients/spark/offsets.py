"""Which partitions a source reads and where they start and end, from the cluster's view.

I/O: through `ClusterView`, from storage alone. Retriable errors are retried as by the connector
(`fetchOffset.numRetries`, `fetchOffset.retryIntervalMs`).

Whether the root, topics and partitions that options name are there is found out earlier: of a source at `.load()`,
where Spark asks for its columns, and of a sink when a batch is planned (`check_source`, `check_sink`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from typing import TypeVar

from stratalog.clients.spark.conditions import no_offset_matched
from stratalog.clients.spark.option_names import ROOT
from stratalog.clients.spark.options import (
    EARLIEST,
    LATEST,
    Assign,
    GlobalTimestamp,
    OffsetLimit,
    OffsetRangeLimit,
    SinkOptions,
    SourceOptions,
    SpecificOffsets,
    SpecificTimestamps,
    Subscribe,
    SubscribePattern,
)
from stratalog.clients.spark.source.gaps import explained_end
from stratalog.clients.spark.source.plan import FileSpan, Offsets, PlannedRange, check_specified, resolve, span
from stratalog.clients.spark.source.planned_files import FILES_PLANNED_MAX, PlannedFiles
from stratalog.clients.spark.worker import view_of
from stratalog.replication.internal_topics import is_internal
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import LogDirNotFoundError, StratalogError, UnknownTopicOrPartitionError
from stratalog.storage.log.reader import LogReader
from stratalog.storage.log.segments import files_between
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.store_settings import StoreSettings
from stratalog.storage.records import TopicPartition

LOAD_MAX_AGE_MS = 50
"""How old a cached fold of the metadata may be at `.load()`."""
LOOK_MS = 30_000
"""How long a look at a log waits for a replica."""
PLANNED_ON_DISK_MAX = 50
"""The number of partitions on a local disk above which a planner does not find their files."""

_LOG = line_logger("stratalog.source")

T = TypeVar("T")


class OffsetFetcher:
    """Offsets for one query."""

    def __init__(self, view: ClusterView, options: SourceOptions) -> None:
        self.view = view
        self.shared: Container[TopicPartition] | None = None
        """Partitions that a member of a group has; None: all that the subscription means."""
        self._options = options

    def retried(self, fetch: Callable[[], T]) -> T:
        """Call `fetch`, again after a retriable error, as often as `fetchOffset.numRetries` allows."""
        attempt = 1
        while True:
            try:
                return fetch()
            except StratalogError as reason:
                if not reason.retriable or attempt >= self._options.num_retries:
                    raise
                _LOG.warning("Error in attempt %d getting offsets: %s", attempt, reason)
            attempt += 1
            self.view.clock.sleep_ms(self._options.retry_interval_ms)
            self.view.refresh()

    def assigned(self) -> list[TopicPartition]:
        """The partitions to read now, in order."""
        shared = self.shared
        return self.subscribed() if shared is None else [tp for tp in self.subscribed() if tp in shared]

    def subscribed(self) -> list[TopicPartition]:
        """The partitions that the subscription means now, in order; internal topics are left out."""
        topics: Iterable[str]
        match self._options.subscription:
            case Assign(partitions):
                existing = {tp for topic in {tp.topic for tp in partitions} for tp in self._partitions(topic)}
                return sorted(existing & set(partitions))
            case Subscribe(topics):
                pass
            case SubscribePattern(pattern):
                topics = [topic for topic in self.view.image.topic_ids if re.search(pattern, topic)]
        return sorted({tp for topic in topics for tp in self._partitions(topic)})

    def _partitions(self, topic: str) -> tuple[TopicPartition, ...]:
        return () if is_internal(topic) else self.view.partitions(topic)

    def limits(self, limit: OffsetRangeLimit, *, starting: bool) -> dict[TopicPartition, int]:
        """The offset that a limit means for every assigned partition."""
        return self.retried(lambda: self._limits(limit, starting))

    def _limits(self, limit: OffsetRangeLimit, starting: bool) -> dict[TopicPartition, int]:
        partitions = self.assigned()
        check_specified(limit, partitions, starting=starting)
        named = self._named(limit, partitions, starting)
        earliest = self.view.offsets.beginning_offsets([tp for tp, offset in named.items() if offset == EARLIEST])
        latest = self.view.offsets.end_offsets([tp for tp, offset in named.items() if offset == LATEST])
        return resolve(named, earliest, latest)

    def _named(self, limit: OffsetRangeLimit, partitions: list[TopicPartition], starting: bool) -> Offsets:
        match limit:
            case OffsetLimit(position):
                return dict.fromkeys(partitions, position)
            case SpecificOffsets(offsets):
                return offsets
            case SpecificTimestamps(timestamps, latest_on_no_match):
                times = timestamps
            case GlobalTimestamp(timestamp_ms, latest_on_no_match):
                times = dict.fromkeys(partitions, timestamp_ms)
        may_miss = latest_on_no_match or not starting
        found = self.view.records.at_once(lambda tp: self._at_time(tp, times[tp], may_miss), times)
        return dict(zip(times, found, strict=True))

    def _at_time(self, topic_partition: TopicPartition, timestamp_ms: int, may_miss: bool) -> int:
        found = self.view.offsets.offset_for_timestamp(topic_partition, timestamp_ms)
        if found is not None:
            return found.offset
        if not may_miss:
            raise no_offset_matched(topic_partition, timestamp_ms)
        return LATEST

    def first_at(self, wanted: PlannedRange, timestamp_ms: int) -> int:
        """The offset of the first record with this time or a later one; the range's end when there is none yet."""
        found = self.retried(lambda: self.view.offsets.offset_for_timestamp(wanted.topic_partition, timestamp_ms))
        return wanted.end if found is None else found.offset

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The earliest offset of those partitions that still exist."""
        wanted = set(partitions)
        if not wanted:
            return {}
        return self.retried(lambda: self.view.offsets.beginning_offsets(wanted & set(self.assigned())))

    def latest(self) -> dict[TopicPartition, int]:
        """The end of every assigned partition as the view reads it; waits for leaders."""
        return self.retried(lambda: self.view.offsets.end_offsets(self.assigned()))

    def ends_now(self, wanted: Iterable[PlannedRange]) -> dict[TopicPartition, int]:
        """The ends of the partitions of ranges as the view reads them."""
        partitions = {each.topic_partition for each in wanted}
        return self.retried(lambda: self.view.offsets.end_offsets(partitions)) if partitions else {}

    def latest_published(self, known: Offsets) -> dict[TopicPartition, int]:
        """As `latest` after `poll_progress`, without waiting: where no leader has started, the known offset stays.

        A new partition without a started leader is left out until it has one.
        """
        offsets: dict[TopicPartition, int] = {}
        for topic_partition in self.assigned():
            end = self._published_end(topic_partition)
            if end is not None:
                offsets[topic_partition] = end
            elif topic_partition in known:
                offsets[topic_partition] = known[topic_partition]
        return offsets

    def _published_end(self, topic_partition: TopicPartition) -> int | None:
        try:
            marks = self.view.watermarks.published(topic_partition, poll=False)
            return None if marks is None else self.view.offsets.readable_end(topic_partition, marks)
        except StratalogError as reason:
            if not reason.retriable:
                raise
            return None

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """The leader epoch now: a replica whose table shows it has no other records below the offsets seen."""
        return self.view.partition_state(topic_partition).leader_epoch

    def topic_id(self, topic: str) -> str:
        """The id of the topic as of the last refresh; "" when there is none of this name."""
        return self.view.image.topic_ids.get(topic, "")

    def file_spans(self, topic_partition: TopicPartition, start: int, end: int) -> list[FileSpan]:
        """The files of a range, cut to it; sizes in bytes on storage."""

        def look(log: LogReader) -> list[FileSpan]:
            return [span(entry, start, end) for entry in files_between(log.files, start, end)]

        return self.retried(lambda: self.view.records.read_from_log(topic_partition, look, LOOK_MS))

    def planned_files(
        self, ranges: Iterable[PlannedRange], *, read_committed: bool
    ) -> dict[TopicPartition, PlannedFiles]:
        """The files of ranges, by partition, as the leaders' logs are now; without what cannot be looked at now.

        The view keeps folds between reads. They are refreshed here: what compaction or an erasure has removed from an
        idle log is in none of the files. None of many partitions on a local disk: there a fold is work of the CPU,
        which tasks do in parallel.
        """
        bounds: dict[TopicPartition, tuple[int, int]] = {}
        for each in ranges:
            first, last = bounds.get(each.topic_partition, (each.start, each.end))
            bounds[each.topic_partition] = min(first, each.start), max(last, each.end)
        if len(bounds) > PLANNED_ON_DISK_MAX and not self.view.changes.distance.is_far:
            return {}
        with suppress(StratalogError):  # what cannot be looked at is left out below
            self.view.watermarks.of_all(bounds, 0, needs_end=False)

        def look(topic_partition: TopicPartition) -> PlannedFiles | None:
            start, end = bounds[topic_partition]
            try:
                return self._planned_files(topic_partition, start, end, read_committed)
            except StratalogError as reason:
                _LOG.info("%s: its tasks will find its files: %s", topic_partition, reason)
                return None

        found = zip(bounds, self.view.records.at_once(look, bounds), strict=True)
        return {topic_partition: planned for topic_partition, planned in found if planned is not None}

    def _planned_files(
        self, topic_partition: TopicPartition, start: int, end: int, read_committed: bool
    ) -> PlannedFiles | None:
        image, topic = self.view.image, topic_partition.topic
        root = self.view.leader_root(topic_partition)
        if root is None:
            return None

        def look(log: LogReader) -> PlannedFiles | None:
            log.refresh()
            entries = files_between(log.files, start, end)
            if log.log_end_offset < end or log.log_start_offset > start or len(entries) > FILES_PLANNED_MAX:
                return None
            explained = explained_end(
                topic_partition, image.topic_config(topic), log.state.cleaner, image.erases.get(topic, {})
            )
            aborted = tuple(log.aborted_transactions(start, end)) if read_committed else ()
            return PlannedFiles(root, tuple(entries), explained, aborted)

        return self.view.records.read_from_log(topic_partition, look, 0, poll=False)


def check_source(options: SourceOptions) -> None:
    """LogDirNotFoundError without a cluster, UnknownTopicOrPartitionError; StoreUnavailableError out of reach.

    A pattern may match nothing yet.
    """
    view = _view(options.root, options.storage, options.isolation_level)
    view.refresh(LOAD_MAX_AGE_MS)
    match options.subscription:
        case Subscribe(topics):
            for topic in topics:
                _check_topic(view, topic)
        case Assign(partitions):
            for topic in dict.fromkeys(each.topic for each in partitions):
                known = _check_topic(view, topic)
                absent = sorted(each for each in partitions if each.topic == topic and each.partition >= known)
                if absent:
                    raise UnknownTopicOrPartitionError(
                        f"{absent[0]} does not exist: the topic has {known} partitions. Correct the option assign."
                    )


def check_sink(options: SinkOptions) -> None:
    """As `check_source`, for the topic that the options name; that of a row is found when the row is written.

    Asked for each micro-batch, it reads nothing while the topic is known in this process.
    """
    view = _view(options.root, options.storage)
    if options.topic is not None:
        _check_topic(view, options.topic)


def _view(root: str, storage: StoreSettings, isolation_level: str = "read_uncommitted") -> ClusterView:
    try:
        return view_of(root, storage, isolation_level)
    except LogDirNotFoundError as reason:
        hint = "" if "metadata root" in str(reason) else ": give the cluster's metadata root"
        raise LogDirNotFoundError(f"{ROOT}={root}: {reason}{hint}") from None


def _check_topic(view: ClusterView, topic: str) -> int:
    """The number of its partitions."""
    if topic not in view.image.topic_ids:
        view.refresh()
    if topic not in view.image.topic_ids:
        from difflib import get_close_matches  # a planner loads no more than it needs

        nearest = get_close_matches(topic, view.image.topic_ids, 1)
        hint = f" (did you mean {nearest[0]}?)" if nearest else ""
        raise UnknownTopicOrPartitionError(f"topic '{topic}' does not exist{hint}. Create it, or correct the name.")
    return len(view.image.partitions_of(topic))
