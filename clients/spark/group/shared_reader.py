"""Streams that share their topics' partitions with other members of a group (`stratalog.group.mode=share`).

I/O: through `member` and, as any stream, through `clients.spark.offsets`. Each batch has the partitions of the member
when it is planned; what is committed and where a partition begins is decided between two batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from stratalog.clients.consumer.offsets import Committed
from stratalog.clients.records import ConsumerGroupMetadata
from stratalog.clients.spark.group.coordinators import Reach, reach
from stratalog.clients.spark.group.member import QueryMember
from stratalog.clients.spark.group.offsets import OffsetBounds
from stratalog.clients.spark.group.options import GroupOptions
from stratalog.clients.spark.group.planner_end import PlannerEnd
from stratalog.clients.spark.group.shared_offsets import SharedBatch, replayed, resumed, undecided
from stratalog.clients.spark.group.stateful import ADAPTIVE, check_state, is_taken_over, not_covered
from stratalog.clients.spark.options import SourceOptions
from stratalog.clients.spark.source.batch_reader import RangesPartition, read_tasks
from stratalog.clients.spark.source.plan import Offsets, PlannedRange, stream_ranges
from stratalog.clients.spark.source.stream_reader import METADATA_MAX_AGE_MS, STOP_TIMEOUT_MS, StratalogStreamReader
from stratalog.clients.spark.transaction.positions import GroupPositions
from stratalog.clients.spark.worker import sentence_first, task_property
from stratalog.server.view.read_committed import is_read_committed
from stratalog.storage.errors import RequestTimedOutError, StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import TopicPartition

SETTLE_MS = 10_000
"""How long a batch waits for a rebalance; then Spark is told that nothing is new, and asks again."""
TAKE_OVER_MS = 10_000
"""How long a replay waits for the first commit of a new owner, which comes when the owner's batch under way is done.
Without one both may read the partition."""
LOOK_AGAIN_MS = 100

_LOG = line_logger("stratalog.source")


class SharedStreamReader(StratalogStreamReader):
    """A stream whose planner is a member of group `options.group`."""

    reach: Reach = staticmethod(reach)

    def __init__(self, options: SourceOptions, group: GroupOptions) -> None:
        super().__init__(options)
        self._group = group
        self._member: QueryMember | None = None
        self._planned: dict[str, Any] | None = None
        self._ran: Mapping[str, Any] | None = None
        self._done: dict[TopicPartition, PlannedRange] = {}
        self._taken: set[TopicPartition] = set()

    @property
    def member(self) -> QueryMember:
        """Made at the first use, as `fetcher`. BrokerNotAvailableError where the coordinator is out of reach."""
        if self._member is None:
            view = self.fetcher.view
            self._member = QueryMember(self._group, self.reach(view, self._group).calls, view)
            self._end = PlannerEnd(self._leave)
        return self._member

    @sentence_first()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """No partition: they come with the first batches."""
        return {}

    @sentence_first()
    def latestOffset(self, start: Mapping[str, Mapping[str, int]], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        positions = self._positions(start, limit)
        if positions is None:
            return dict(start)
        self.fetcher.shared = positions
        self._latest = {tp: max(offset, positions[tp]) for tp, offset in self._latest.items() if tp in positions}
        self._latest = self._available(positions)
        self._is_fresh = False
        end = self._latest if isinstance(limit, ReadAllAvailable) else self._limited(positions)
        if all(end[tp] == positions.get(tp) for tp in end):
            return dict(start)
        member = self.member.metadata()
        ends = {tp: end.get(tp, position) for tp, position in positions.items()}
        others = not_covered(SharedBatch.from_json(start), positions, self.fetcher.subscribed(), self._taken)
        batch = SharedBatch(positions, ends, member.member_id, member.generation_id, str(others or ""))
        self._planned = batch.to_json()
        return self._planned

    def _positions(self, start: Mapping[str, Mapping[str, int]], limit: ReadLimit) -> Offsets | None:
        """The member's partitions and where they begin; None while the group rebalances."""
        fetcher, batch = self.fetcher, SharedBatch.from_json(start)
        just_ran = {tp: each.end for tp, each in self._done.items()} if start == self._ran else {}
        self._ran = None
        done = self._done
        fetcher.view.refresh(METADATA_MAX_AGE_MS)
        member = self.member
        if self._end is not None:
            self._end.check_session()
        member.subscribe(frozenset(tp.topic for tp in fetcher.subscribed()))

        def begin(committed: Committed) -> Offsets:
            self._taken.update(tp for tp, at in committed.items() if is_taken_over(batch, at))
            bounds = self._bounds(list(committed))
            return {tp: bounds.start(tp, resumed(tp, batch, at, done.get(tp))) for tp, at in committed.items()}

        is_only_batch = self._is_available_now or isinstance(limit, ReadAllAvailable)
        timeout_ms = self._group.consumer.max_poll_interval_ms if is_only_batch else SETTLE_MS
        positions = member.advance(just_ran, begin, timeout_ms)
        if positions is None and is_only_batch:
            raise RequestTimedOutError(
                f"group {self._group.group_id}: it has been rebalancing for {timeout_ms} ms "
                "(kafka.max.poll.interval.ms). Does another member handle a batch for so long? Start the query again."
            )
        return positions

    def _bounds(self, topic_partitions: list[TopicPartition]) -> OffsetBounds:
        view, fetcher = self.fetcher.view, self.fetcher
        return OffsetBounds(
            fetcher.retried(lambda: view.offsets.beginning_offsets(topic_partitions)),
            fetcher.retried(lambda: view.offsets.end_offsets(topic_partitions)),
            self._group.consumer.auto_offset_reset,
            is_read_committed(self._options.isolation_level),
        )

    def _available(self, start: Offsets) -> Offsets:
        if not self._is_available_now:
            return super()._available(start)
        latest = self._caught_up(start, self.fetcher.latest())
        frozen = self._frozen = {**latest, **(self._frozen or {})}  # a partition's end when it came
        return {tp: max(frozen[tp], start[tp]) for tp in latest}

    @sentence_first()
    def partitions(
        self, start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
    ) -> Sequence[InputPartition]:
        batch = SharedBatch.from_json(end)
        if start == end or not batch.ends:
            return []
        planned_by = ConsumerGroupMetadata(
            self._group.group_id, batch.generation_id, batch.member_id, self._group.consumer.group_instance_id or None
        )
        planned, others = list(batch.ranges().values()), batch.not_covered
        if end != self._planned:
            planned, is_member = self._replayed(batch)
            left_out = batch.ends.keys() - {each.topic_partition for each in planned}
            others = others or str(min(left_out, default=""))
            planned_by = planned_by if is_member else ConsumerGroupMetadata(self._group.group_id)
        self._ran, self._done = end, {each.topic_partition: each for each in planned}
        starts = {each.topic_partition: each.start for each in planned}
        ends = {each.topic_partition: each.end for each in planned}
        ranges = stream_ranges(starts, ends, {}, self._report)
        # a sink in transactions commits them under the member that planned the batch, unless the group has none now
        positions = GroupPositions(self._planner_id, planned_by, ends, batch.member_id)
        return read_tasks(ranges, self._options, self.fetcher, positions, not_covered=others)

    @sentence_first()
    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, RangesPartition):
            check_state(partition.not_covered, task_property(ADAPTIVE), self._group.group_id)
        return super().read(partition)

    def _replayed(self, batch: SharedBatch) -> tuple[list[PlannedRange], bool]:
        """Of a batch that another process planned, as before a failure: what is still this query's part, and whether
        the group still has the member that planned it."""
        self.fetcher.view.refresh()
        clock, instance = self.fetcher.view.clock, self._group.consumer.group_instance_id or None
        deadline_ms = clock.monotonic_ms() + TAKE_OVER_MS
        while True:
            owners = self.member.owners()
            committed = self.member.committed(batch.ends)
            waiting = undecided(batch, owners, committed, instance)
            if not waiting or clock.monotonic_ms() >= deadline_ms:
                break
            clock.sleep_ms(LOOK_AGAIN_MS)
        kept = replayed(batch, owners, committed, instance)
        left_out = sorted(batch.ends.keys() - {each.topic_partition for each in kept})
        if left_out:
            _LOG.warning("Group %s: other members have %s of a batch now", self._group.group_id, left_out)
        is_member = any(owner.is_member(batch.member_id, instance) for owner in owners.values())
        return kept, is_member

    def _leave(self) -> None:
        """Others get the partitions at once."""
        with suppress(StratalogError):
            self.member.close(STOP_TIMEOUT_MS)
