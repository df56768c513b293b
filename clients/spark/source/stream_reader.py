"""Streams of the Spark source: where each micro-batch ends.

I/O: through `offsets` where Spark plans, through `batch_reader` in tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from stratalog.clients.spark.conditions import WITHOUT_FAIL_ON_DATA_LOSS, TopicRecreatedError
from stratalog.clients.spark.offsets import OffsetFetcher
from stratalog.clients.spark.options import EARLIEST, GROUP, LATEST, MEMBER, OffsetLimit, SourceOptions
from stratalog.clients.spark.source.batch_reader import read_partition, read_tasks
from stratalog.clients.spark.source.plan import (
    LONG_MAX,
    Offsets,
    backlog,
    bytes_limited,
    check_available_now,
    must_wait,
    offsets_from_json,
    offsets_to_json,
    rate_limited,
    recreated,
    start_within,
    stream_ranges,
    topic_ids_within,
    with_start,
    with_topic_ids,
    without_topics,
)
from stratalog.clients.spark.worker import loading, sentence_first, view_of
from stratalog.server.view.read_committed import is_read_committed
from stratalog.storage.clock import RandomIds
from stratalog.storage.errors import InvalidConfigError, StratalogError
from stratalog.storage.log_lines import line_logger

if TYPE_CHECKING:  # a query without a group loads none of it
    from stratalog.clients.spark.group.commits import GroupCommits
    from stratalog.clients.spark.group.options import GroupOptions
    from stratalog.clients.spark.group.planner_end import PlannerEnd
    from stratalog.clients.spark.transaction.positions import GroupPositions

LONG_POLL_MS = 100
LONG_POLL_SHARE = 0.02
"""Part of the time without records that a batch may take longer because it waits for its first record."""
PAUSE_MS_MIN, PAUSE_MS_MAX = 2, 20
REMOTE_SHARE, REMOTE_PAUSE_MS_MIN, REMOTE_PAUSE_MS_MAX = 0.1, 20, 5_000
"""The same share, and bounds of the pause, where a poll makes requests to object stores, which are paid by number."""
REQUEST_MS = 250
"""Least time for each request of an idle stream to object stores, unless `REMOTE_PAUSE_MS_MAX` is reached."""
REPOLL_MS = 50
"""Time after a poll of object stores within which Spark's next call does not begin with another."""
GATHER_PAUSE_MS, GATHER_MS_MAX = 4, 20
"""Pause between polls after a first record that was waited for, until nothing new comes, and their total. What is sent
together arrives leader by leader; otherwise its first part would be a batch of its own, and the rest would wait."""
METADATA_MAX_AGE_MS = 50
STOP_TIMEOUT_MS = 1_000

_LOG = line_logger("stratalog.source")


class StratalogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. One instance plans for the query's whole life; others, made per plan, only read on executors.

    Spark logs only where batches end, so a query that dies in its first batch would ask again where to start and could
    skip records. The first batch's end therefore carries its start: see `plan.with_start`.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._fetcher: OffsetFetcher | None = None
        self._commits: GroupCommits | None = None
        self._end: PlannerEnd | None = None
        self._initial: dict[str, Any] | None = None
        self._is_fresh = True
        self._is_available_now = False
        self._frozen: Offsets | None = None
        self._latest: Offsets = {}
        self._recreated: dict[str, str] = {}
        self._last_trigger_ms = 0
        self._idle_since_ms: int | None = None
        self._planner_id = RandomIds().new_id()
        self._polled_ms = 0

    @property
    def fetcher(self) -> OffsetFetcher:
        """Made at the first use: instances that only read do not need one."""
        if self._fetcher is None:
            options = self._options
            self._fetcher = OffsetFetcher(view_of(options.root, options.storage, options.isolation_level), options)
        return self._fetcher

    def commits_of(self, group: GroupOptions) -> GroupCommits:
        """Made at the first use, as `fetcher`. BrokerNotAvailableError where the coordinator is out of reach."""
        if self._commits is None:
            with loading():
                from stratalog.clients.spark.group.commits import GroupCommits
                from stratalog.clients.spark.group.coordinators import reach
                from stratalog.clients.spark.group.planner_end import PlannerEnd
            view = self.fetcher.view
            self._commits = GroupCommits(group, reach(view, group).calls, view.clock)
            self._end = PlannerEnd(self._finish_commits)
        return self._commits

    @sentence_first()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._initial is None:
            ids = dict(self.fetcher.view.image.topic_ids)
            self._initial = with_topic_ids(offsets_to_json(self._start()), ids)
        return self._initial

    def _start(self) -> Offsets:
        group = self._options.group
        if group is None or self._options.starting != OffsetLimit(GROUP):
            return self.fetcher.limits(self._options.starting, starting=True)
        from stratalog.clients.spark.group.offsets import OffsetBounds

        bounds = OffsetBounds(
            self.fetcher.limits(OffsetLimit(EARLIEST), starting=True),
            self.fetcher.limits(OffsetLimit(LATEST), starting=True),
            group.consumer.auto_offset_reset,
            is_read_committed(self._options.isolation_level),
        )
        return self.commits_of(group).starts(bounds)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Never ReadAllAvailable, so that receiving that one means Trigger.Once. `_limited` applies the limits."""
        return ReadMaxRows(self._options.max_offsets_per_trigger or LONG_MAX)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._is_available_now = True

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return offsets_to_json(self._latest) if self._latest else None

    @sentence_first()
    def latestOffset(self, start: Mapping[str, Mapping[str, int]], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        if MEMBER in start:
            raise InvalidConfigError(
                "The checkpoint is of a query with stratalog.group.mode=share, which read a part of the partitions. "
                "Set this option again, or begin with a new checkpoint and startingOffsets=group."
            )
        ids = dict(
            self.fetcher.view.image.topic_ids
        )  # those of a topic that is made again meanwhile are found next time
        start_offsets = self._known(start, topic_ids_within(start))
        is_first_batch = self._is_fresh and start == self._initial
        group = self._options.group
        if group is not None and not is_first_batch:
            # Spark passes an end as a start once its commit log has it. `commit` comes with the next batch only.
            self.commits_of(group).commit(start_offsets)
        self._latest = self._available(start_offsets)
        self._is_fresh = False
        end = self._latest if isinstance(limit, ReadAllAvailable) else self._limited(start_offsets)
        if group is not None and self._is_available_now and end == start_offsets:
            self.commits_of(group).wait(group.consumer.default_api_timeout_ms)  # Spark ends this process next
        if is_first_batch:
            return with_topic_ids(with_start(end, start), ids)
        # Spark compares texts: where nothing is new, it gets back what it passed, with all that it carries
        return dict(start) if end == start_offsets else with_topic_ids(offsets_to_json(end), ids)

    def _known(self, offsets: Mapping[str, Any], ids: Mapping[str, str]) -> Offsets:
        """`offsets` but for topics whose id is not that of `ids` any more, which is reported once."""
        now = self.fetcher.view.image.topic_ids
        again = recreated(ids, now)
        for topic in again:
            if self._recreated.get(topic) != now[topic]:
                self._report(TopicRecreatedError(topic, ids[topic], now[topic]))
                self._recreated[topic] = now[topic]
                self._latest = without_topics(self._latest, again)
        return without_topics(offsets_from_json(offsets), again)

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
        known = {**start, **self._latest}
        latest = start if self._was_just_polled(start) else self._published(known, 0)
        if latest == start:
            latest = self._waited(start, known)
        if latest != start:
            self._idle_since_ms = None
        return latest

    def _waited(self, start: Offsets, known: Offsets) -> Offsets:
        clock = self.fetcher.view.clock
        now_ms = clock.monotonic_ms()
        if self._idle_since_ms is None:
            self._idle_since_ms = now_ms
        view = self.fetcher.view
        if view.changes.distance.is_far:
            clock.sleep_ms(remote_pause_ms(view.changes.requests_per_poll, now_ms - self._idle_since_ms))
            latest = self._published(known, 0)
            return latest if latest == start else self._gathered(known, latest, clock.monotonic_ms())
        end_ms = now_ms + min(LONG_POLL_MS, max(PAUSE_MS_MIN, LONG_POLL_SHARE * (now_ms - self._idle_since_ms)))
        latest, pause_ms = start, float(PAUSE_MS_MIN)
        while latest == start and now_ms < end_ms:
            clock.sleep_ms(pause_ms)
            pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)
            now_ms = clock.monotonic_ms()
            # "nothing new" is returned after a refresh of the metadata: `processAllAvailable` relies on it
            latest = self._published(known, METADATA_MAX_AGE_MS if now_ms < end_ms else 0)
        return latest if latest == start else self._gathered(known, latest, now_ms)

    def _was_just_polled(self, start: Offsets) -> bool:
        """Whether the last call found nothing after `start`, on object stores, and Spark asks again at once."""
        view = self.fetcher.view
        if self._idle_since_ms is None or self._latest != start or not view.changes.distance.is_far:
            return False
        return view.clock.monotonic_ms() - self._polled_ms < REPOLL_MS

    def _gathered(self, known: Offsets, latest: Offsets, now_ms: int) -> Offsets:
        """Also what comes right after the first record that was waited for."""
        clock = self.fetcher.view.clock
        end_ms, is_more = now_ms + GATHER_MS_MAX, True
        while is_more and clock.monotonic_ms() < end_ms:
            clock.sleep_ms(GATHER_PAUSE_MS)
            before, latest = latest, self._published(known, METADATA_MAX_AGE_MS)
            is_more = latest != before
        return latest

    def _published(self, known: Offsets, max_age_ms: int) -> Offsets:
        def poll() -> Offsets:
            self.fetcher.view.refresh(max_age_ms)
            self.fetcher.view.changes.poll()
            return self.fetcher.latest_published(known)

        latest = self.fetcher.retried(poll)
        self._polled_ms = self.fetcher.view.clock.monotonic_ms()
        return latest

    def _caught_up(self, start: Offsets, latest: Offsets) -> Offsets:
        """Ask again while an offset is older than what was read already, as the connector does."""
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
        if options.max_offsets_per_trigger is None and options.max_bytes_per_trigger is None:
            return self._latest
        earliest_of_new = self.fetcher.earliest(set(self._latest) - set(start))
        end = dict(self._latest)
        if options.max_offsets_per_trigger is not None:
            end = rate_limited(options.max_offsets_per_trigger, start, end, earliest_of_new)
        if options.max_bytes_per_trigger is not None:
            begin = {**earliest_of_new, **start}
            behind = {tp: begin[tp] for tp in end if tp in begin and begin[tp] < end[tp]}
            spans = {tp: self.fetcher.file_spans(tp, first, end[tp]) for tp, first in behind.items()}
            end = bytes_limited(options.max_bytes_per_trigger, end, spans)
        return end

    @sentence_first()
    def partitions(
        self, start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
    ) -> Sequence[InputPartition]:
        begun = start_within(end)
        if begun is not None and start != end:
            start = begun  # of a first batch; after a crash Spark asks again for a start, and would plan from there
        self.fetcher.view.refresh(METADATA_MAX_AGE_MS)
        of_end = topic_ids_within(end)
        first, last = self._known(start, {**of_end, **topic_ids_within(start)}), self._known(end, of_end)
        if first == last:
            return []
        if self._frozen is not None:
            check_available_now(self._frozen, last, self.fetcher.latest())
        earliest_of_new = self.fetcher.earliest(set(last) - set(first))
        ranges = stream_ranges(first, last, earliest_of_new, self._report)
        return read_tasks(ranges, self._options, self.fetcher, self._positions_at(first, last))

    def _positions_at(self, first: Offsets, last: Offsets) -> GroupPositions | None:
        """What the query's sink commits for the group, if it writes in transactions."""
        group = self._options.group
        if group is None:
            return None
        from stratalog.clients.records import ConsumerGroupMetadata
        from stratalog.clients.spark.transaction.positions import GroupPositions

        moved = {tp: offset for tp, offset in last.items() if first.get(tp) != offset}
        return GroupPositions(self._planner_id, ConsumerGroupMetadata(group.group_id), moved)

    def _report(self, loss: StratalogError) -> None:
        if self._options.fail_on_data_loss:
            raise loss
        _LOG.warning("%s %s", loss, WITHOUT_FAIL_ON_DATA_LOSS)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(self._options, partition)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing: the checkpoint keeps a query's offsets, and `latestOffset` commits those of a group."""

    def stop(self) -> None:
        """End the query's part in its group: once, even if Spark ends this process at the same time."""
        if self._end is not None:
            self._end()

    def _finish_commits(self) -> None:
        """Commit what is due; wait only shortly, since the checkpoint has it."""
        if self._commits is not None:
            with suppress(StratalogError):
                self._commits.wait(STOP_TIMEOUT_MS)


def remote_pause_ms(requests: int, idle_ms: int) -> float:
    """How long a stream without new records waits between polls of `requests` requests each.

    >>> [remote_pause_ms(4, idle_ms) for idle_ms in (0, 5_000, 60_000)], remote_pause_ms(101, 600_000)
    ([20, 500.0, 1000], 5000)
    """
    longest_ms = min(requests * REQUEST_MS, REMOTE_PAUSE_MS_MAX)
    return min(longest_ms, max(REMOTE_PAUSE_MS_MIN, REMOTE_SHARE * idle_ms))
