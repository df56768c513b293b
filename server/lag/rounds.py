"""The rounds in which a process measures how far the groups are behind that its brokers coordinate.

I/O: a thread; a view of the cluster, for the ends of partitions that other brokers lead; the table of past lags.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from stratalog.replication.broker.broker import Broker
from stratalog.replication.coordinator.shard.shard import HeldGroup
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.replication.metrics import Metric
from stratalog.server.lag.first_unread import FirstUnread, UnreadAt
from stratalog.server.lag.group_lag import (
    MeasuredGroup,
    MeasuredPartition,
    PartitionEnds,
    group_lag,
    lag_metrics,
    topics_of,
)
from stratalog.server.lag.history import LagHistory
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import Clock, SystemClock
from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import TopicPartition

_LOG = line_logger("stratalog.lag")

READ_MS_MAX = 1_000
"""Time in which one round reads timestamps; the rest follows in the next round."""


class LagMeasurement:
    """Measures the lag of groups. One thread uses it."""

    def __init__(self, view: ClusterView, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._unread = FirstUnread(view)
        self._last_ms: dict[tuple[str, TopicPartition], int] = {}
        """Of each group and partition the timestamp that was found last: while a new one is not read yet, it stands
        for that, which is not older."""
        self._late: set[tuple[str, TopicPartition]] = set()
        """Those that the last round had no time for: they are first in the next one."""

    def measure(self, groups: Iterable[HeldGroup]) -> list[MeasuredGroup]:
        """The lag of each group, as of now. Raises StoreError."""
        found = [group for group in groups if group.committed or group.member_count]
        if not found:
            return []
        self._view.refresh(max_age_ms=1)
        all_of = self._view.image.partitions_by_topic
        topics = [topics_of(group, all_of) for group in found]
        partitions = {topic: sorted(all_of[topic]) for topic in set().union(*topics)}
        ends = self._ends(named for of_topic in partitions.values() for named in of_topic)
        lags = [
            group_lag(group, ends, {topic: partitions[topic] for topic in own})
            for group, own in zip(found, topics, strict=True)
        ]
        return self._dated(lags, ends)

    def _ends(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionEnds]:
        """Of the partitions whose leader has published something; each leader's progress is read once. A leader whose
        root is out of reach has published nothing."""
        view, ends = self._view, dict[TopicPartition, PartitionEnds]()
        by_leader: dict[int, list[TopicPartition]] = {}
        for named in wanted:
            state = view.image.partitions.get(named)
            if state is not None:
                by_leader.setdefault(state.leader, []).append(named)
        for leader, led in by_leader.items():
            try:
                progress = None if leader == NO_LEADER else view.leader_progress(leader)
                if progress is not None:
                    progress.poll()
                for named in led:
                    marks = view.watermarks.published(named, poll=view.partition_state(named).has_one_table)
                    if marks is not None:
                        ends[named] = PartitionEnds(marks.log_start_offset, marks.high_watermark, marks.topic_id)
            except StratalogError as reason:
                _LOG.debug("the ends of what broker %d leads are not known: %s", leader, reason)
        return ends

    def _dated(self, lags: list[MeasuredGroup], ends: Mapping[TopicPartition, PartitionEnds]) -> list[MeasuredGroup]:
        places: dict[tuple[str, TopicPartition], UnreadAt] = {
            (group.group_id, lag.topic_partition): UnreadAt(
                ends[lag.topic_partition].topic_id, lag.topic_partition, lag.unread_offset
            )
            for group in lags
            for lag in group.partitions
            if lag.unread_offset is not None
        }
        known = self._unread.known(places.values())
        until_ms = self._clock.monotonic_ms() + READ_MS_MAX
        empty: set[UnreadAt] = set()
        late = set()
        for key, place in sorted(places.items(), key=lambda each: each[0] not in self._late):
            if place in known or place in empty:
                continue
            if self._clock.monotonic_ms() >= until_ms:
                late.add(key)
                continue
            try:
                time_ms = self._unread.read(place, ends[key[1]].end_offset)
            except StratalogError as reason:
                _LOG.debug("%s: the first unread record cannot be read: %s", key[1], reason)
                continue
            if time_ms is None:
                empty.add(place)
            else:
                known[place] = time_ms
        self._late = late
        newest = {}
        for key, place in places.items():
            time_ms = known.get(place, self._last_ms.get(key))
            if time_ms is not None and place not in empty:
                newest[key] = time_ms
        self._last_ms = newest

        def dated(group: MeasuredGroup, lag: MeasuredPartition) -> MeasuredPartition:
            key = (group.group_id, lag.topic_partition)
            if places.get(key) in empty:
                return replace(lag, unread_offset=None)
            return replace(lag, first_unread_ms=newest.get(key))

        return [replace(group, partitions=tuple(dated(group, lag) for lag in group.partitions)) for group in lags]


class LagRounds:
    """Measures every so often in a thread of its own, from `start` to `close`."""

    def __init__(
        self,
        brokers: Callable[[], Mapping[int, Broker]],
        view: Callable[[], ClusterView],
        interval_ms: int,
        history: LagHistory | None = None,
    ) -> None:
        """`brokers`: those that run, by id; `view` makes a view of their cluster; `history` keeps past lags."""
        self._brokers = brokers
        self._make_view = view
        self._interval_s = interval_ms / 1_000
        self._history = history
        self._clock = SystemClock()
        self._measurement: LagMeasurement | None = None
        self._found: dict[int, list[MeasuredGroup]] = {}
        self._is_over = threading.Event()
        self._logged = ""
        self._thread = threading.Thread(target=self._run, name="group-lag", daemon=True)

    def start(self) -> None:
        """Begin; a second call does nothing."""
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """End after the round under way."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=READ_MS_MAX / 250)

    def metrics(self, broker_id: int) -> list[Metric]:
        """The groups that a broker coordinates, as of the last round; ages are as of now."""
        return lag_metrics(self._found.get(broker_id, ()), self._clock.wall_ms())

    def _run(self) -> None:
        while not self._is_over.wait(self._interval_s):
            try:
                self._round()
                self._logged = ""
            except StratalogError as reason:
                if str(reason) != self._logged:
                    _LOG.warning("the lag of groups is not known: %s", reason)
                self._logged = str(reason)
            except Exception:  # noqa: BLE001 - a thread that ends silently would hide it
                _LOG.exception("the lag of groups is not known")

    def _round(self) -> None:
        held = {broker_id: broker.groups() for broker_id, broker in self._brokers().items()}
        if self._measurement is None:
            if not any(held.values()):
                self._found = {}
                return
            self._measurement = LagMeasurement(self._make_view(), self._clock)
        found = self._measurement.measure([group for groups in held.values() for group in groups])
        by_id = {group.group_id: group for group in found}
        self._found = {
            broker_id: [by_id[group.group_id] for group in groups if group.group_id in by_id]
            for broker_id, groups in held.items()
        }
        if self._history is not None:
            self._history.step(found, self._clock.wall_ms())
