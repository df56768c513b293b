"""A cluster as its brokers show it, for producers, consumers and administrators: `clients.client_view.ClientView`.

I/O: requests to brokers. Metadata that a reader allows to be old is asked for again every `METADATA_AGE_MS`, or as soon
as a leader answers that it is none. A consumer that has read everything waits in its leaders' answers (long polls).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from stratalog.clients.wire.fetched import FetchedPart, fetch_message, fetched_part
from stratalog.clients.wire.offsets import READ_COMMITTED, READ_UNCOMMITTED, ListedOffsets
from stratalog.clients.wire.wire_cluster import RETRY_MS, WireCluster
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.replication.stores import Stores, client_stores
from stratalog.server.offset_spec import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    UNKNOWN_OFFSET,
    ListedOffset,
    OffsetAndTimestamp,
    OffsetSpec,
)
from stratalog.server.remote.connections.open_requests import Lost
from stratalog.server.view.change_wait import Moves
from stratalog.server.view.image_topology import ImageTopology
from stratalog.server.view.leader_progress import Watermarks
from stratalog.server.view.read_committed import is_read_committed, without_aborted
from stratalog.server.view.records import Fetched
from stratalog.storage import errors
from stratalog.storage.clock import Clock, Ids, RandomIds, SystemClock
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import Message
from stratalog.wire.messages.layouts import error_of
from stratalog.wire.messages.schema import Entity
from stratalog.wire.messages.values import id_text

METADATA_AGE_MS = 5_000
LONG_POLL_MS = 500
PARTITION_BYTES = 1 << 20
"""Limit of what a long poll returns of a partition; Kafka's default of `max.partition.fetch.bytes`."""
DEFAULT_TIMEOUT_MS = 30_000
INIT_PRODUCER_ID_VERSION = 4

Item = TypeVar("Item")


class WireView(ImageTopology):
    """Refreshes itself where needed. Thread-safe; calls block on brokers.

    root  the brokers' addresses
    """

    def __init__(
        self, cluster: WireCluster, *, isolation_level: str = "read_uncommitted", timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> None:
        """`timeout_ms`: how long a leader is waited for. The cluster is the caller's, who closes it."""
        super().__init__()
        self.root = cluster.root
        self.cluster = cluster
        self.clock: Clock = SystemClock()
        self.ids: Ids = RandomIds()
        self.stores: Stores = client_stores(self.ids)
        self.timeout_ms = timeout_ms
        self.isolation = READ_COMMITTED if is_read_committed(isolation_level) else READ_UNCOMMITTED
        self.watermarks = AskedBounds(self)
        self.offsets = AskedOffsets(self)
        self.records = FetchedRecords(self)
        self.changes = self.records
        self._refreshed_ms: int | None = self.clock.monotonic_ms()

    @property
    def image(self) -> ClusterImage:
        return self.cluster.image

    def refresh(self, max_age_ms: int = 0) -> bool:
        """Ask for the metadata, unless it may be old and is younger than `METADATA_AGE_MS`."""
        now_ms, refreshed_ms = self.clock.monotonic_ms(), self._refreshed_ms
        is_young = refreshed_ms is not None and now_ms - refreshed_ms < max(max_age_ms, METADATA_AGE_MS)
        if max_age_ms and is_young:
            return False
        self._refreshed_ms = now_ms
        has_changed = self.cluster.refresh()
        if has_changed:
            self._forget_topology()
            self.records.all_moved()
        return has_changed

    def expect_change(self) -> None:
        """A leader is none any more: the next `refresh` asks, whatever age it allows."""
        self._refreshed_ms = None

    def producer_ids(self) -> Iterator[int]:
        """Each id is asked for when it is needed (InitProducerId)."""
        values = {"transactional_id": None, "transaction_timeout": 0, "producer_id": -1, "producer_epoch": -1}
        while True:
            answer = self.cluster.call(Message(values, ApiKey.INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION))
            error = error_of(answer)
            if error is not None:
                raise error
            yield answer.producer_id

    def led_by(self, topic_partition: TopicPartition) -> int:
        """The leader's id. LeaderNotAvailableError without one, UnknownTopicOrPartitionError."""
        leader = self.partition_state(topic_partition).leader
        if leader == NO_LEADER:
            self.expect_change()
            raise errors.LeaderNotAvailableError(f"{topic_partition} has no leader")
        return leader


class AskedBounds:
    """Log starts and high watermarks of partitions, as their leaders answered (`ReadableBounds`)."""

    def __init__(self, view: WireView) -> None:
        self._view = view
        self._listed = ListedOffsets(view.cluster)
        self._known: dict[TopicPartition, Watermarks] = {}

    def of(
        self, topic_partition: TopicPartition, timeout_ms: int | None = None, *, needs_end: bool = True
    ) -> Watermarks:
        """Asked for now; without `needs_end` the high watermark may be an earlier one."""
        limit_ms = self._view.timeout_ms if timeout_ms is None else timeout_ms
        self._view.partition_state(topic_partition)
        start = self._listed.of({topic_partition: EARLIEST_TIMESTAMP}, limit_ms)[topic_partition].offset
        if not needs_end:
            known = self._known.get(topic_partition)
            if known is None:  # not kept: nobody has said this high watermark
                return self._made(topic_partition, start, start)
            return self._put(topic_partition, start, known.high_watermark)
        end = self._listed.of({topic_partition: LATEST_TIMESTAMP}, limit_ms)[topic_partition].offset
        return self._put(topic_partition, start, end)

    def published(self, topic_partition: TopicPartition, *, poll: bool = True) -> Watermarks | None:
        """What the leader answered last; `poll`: asked for now, if it was never.

        Without `poll` a reader at this high watermark waits for more: None unless a long poll does so there.
        """
        self._view.partition_state(topic_partition)
        known = self._known.get(topic_partition)
        if poll:
            return self.published_now([topic_partition])[topic_partition] if known is None else known
        return (
            known if known is not None and self._view.records.waits_at(topic_partition, known.high_watermark) else None
        )

    def published_now(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks | None]:
        """Asked once; None for partitions whose leader does not answer, and for unknown ones."""
        wanted = list(topic_partitions)
        known = [tp for tp in wanted if tp in self._view.image.partitions]
        first = self._listed.begin(dict.fromkeys(known, EARLIEST_TIMESTAMP), self._view.timeout_ms)
        last = self._listed.begin(dict.fromkeys(known, LATEST_TIMESTAMP), self._view.timeout_ms)
        (starts, _), (ends, _) = first(), last()
        both = {tp: self._put(tp, starts[tp].offset, ends[tp].offset) for tp in known if tp in starts and tp in ends}
        return {tp: both.get(tp) for tp in wanted}

    def begin_ends(self, topic_partitions: Iterable[TopicPartition]) -> Callable[[], dict[TopicPartition, int]]:
        """The high watermarks alone, which is half of the work of `published_now`, without waiting: leaders are asked,
        and what is returned waits for their answers, once. Partitions whose leader does not answer are not in them."""
        known = [tp for tp in topic_partitions if tp in self._view.image.partitions]
        asked = self._listed.begin(dict.fromkeys(known, LATEST_TIMESTAMP), self._view.timeout_ms)
        return lambda: {tp: each.offset for tp, each in asked()[0].items()}

    def answered(self, topic_partition: TopicPartition, part: FetchedPart) -> None:
        """Those of a Fetch response."""
        self._put(topic_partition, part.log_start_offset, part.high_watermark)

    def _put(self, topic_partition: TopicPartition, start: int, end: int) -> Watermarks:
        made = self._known[topic_partition] = self._made(topic_partition, start, end)
        return made

    def _made(self, topic_partition: TopicPartition, start: int, end: int) -> Watermarks:
        image = self._view.image
        epoch = image.partition(topic_partition).leader_epoch
        return Watermarks(start, end, epoch, 0, image.topic_ids.get(topic_partition.topic, ""))


class AskedOffsets:
    """Offsets by place and time, asked of leaders (`OffsetLookUps`)."""

    def __init__(self, view: WireView) -> None:
        self._view = view
        self._listed = ListedOffsets(view.cluster)

    def readable_end(self, topic_partition: TopicPartition, marks: Watermarks) -> int:
        if self._view.isolation == READ_UNCOMMITTED:
            return marks.high_watermark
        return self.end_offsets([topic_partition])[topic_partition]

    def beginning_offsets(
        self, topic_partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first readable offset of each."""
        return self._offsets(dict.fromkeys(topic_partitions, EARLIEST_TIMESTAMP), timeout_ms)

    def end_offsets(
        self, topic_partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The high watermark of each; the last stable offset for a reader of committed transactions."""
        return self._offsets(dict.fromkeys(topic_partitions, LATEST_TIMESTAMP), timeout_ms)

    def _offsets(self, times: Mapping[TopicPartition, int], timeout_ms: int | None) -> dict[TopicPartition, int]:
        return {tp: each.offset for tp, each in self._ask(times, timeout_ms).items()}

    def offset_for_timestamp(
        self, topic_partition: TopicPartition, timestamp_ms: int, timeout_ms: int | None = None
    ) -> OffsetAndTimestamp | None:
        """The first record at or after a time; None when there is none."""
        found = self._ask({topic_partition: timestamp_ms}, timeout_ms)[topic_partition]
        return None if found.offset == UNKNOWN_OFFSET else OffsetAndTimestamp(found.offset, found.timestamp_ms)

    def list_offset(
        self, topic_partition: TopicPartition, spec: OffsetSpec, timeout_ms: int | None = None
    ) -> ListedOffset:
        """The offset that `spec` asks for."""
        return self._ask({topic_partition: spec.timestamp}, timeout_ms)[topic_partition]

    def _ask(self, times: Mapping[TopicPartition, int], timeout_ms: int | None) -> dict[TopicPartition, ListedOffset]:
        for named in times:
            self._view.partition_state(named)
        limit_ms = self._view.timeout_ms if timeout_ms is None else timeout_ms
        return self._listed.of(times, limit_ms, self._view.isolation)


@dataclass(frozen=True, slots=True)
class _Poll:
    """A long poll at one leader: the offsets asked for."""

    offsets: Mapping[TopicPartition, int]


class FetchedRecords:
    """Records by Fetch, and waiting for more (`RecordReads`, `ViewChanges`). One thread reads; any may `wake`."""

    def __init__(self, view: WireView) -> None:
        self._view = view
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._moves = Moves()
        self._at_end: dict[TopicPartition, int] = {}
        """Where long polls wait: the offset behind all that the leader had. Invariant: a reader that believes to have
        read everything is at such an offset."""
        self._ready: dict[TopicPartition, tuple[int, FetchedPart]] = {}
        """What long polls returned: the offset asked for, and what was there."""
        self._polls: dict[int, _Poll] = {}
        """By leader, until each is answered."""

    # -- reading -----------------------------------------------------------------------------------------------

    def any_at_once(self, look: Callable[[Item], bool], items: Iterable[Item]) -> bool:
        """Call `look` with one item after the other until it returns True; whether it did. No threads: a call seldom
        waits, since long polls have fetched the records already."""
        return any(map(look, items))

    def fetch(
        self,
        topic_partition: TopicPartition,
        offset: int,
        max_bytes: int,
        end_offset: int | None = None,
        timeout_ms: int | None = None,
        *,
        decoded_bytes_max: int | None = None,
    ) -> Fetched:
        """Records from `offset` on, about `max_bytes`; those that a long poll has brought are there already.

        timeout_ms         how long a leader is waited for that is moving; None: the view's
        decoded_bytes_max  the leader decides: its `max_bytes` bound what it decodes
        OffsetOutOfRangeError, LeaderNotAvailableError, and what else the leader answers.
        """
        with self._lock:
            asked, part = self._ready.pop(topic_partition, (UNKNOWN_OFFSET, None))
        if part is None or asked != offset:
            wanted_bytes = max_bytes if decoded_bytes_max is None else min(max_bytes, decoded_bytes_max)
            part = self._awaited(topic_partition, offset, wanted_bytes, timeout_ms)
        with self._lock:
            if part.next_offset in (offset, part.high_watermark):
                self._at_end[topic_partition] = part.next_offset
            else:
                self._at_end.pop(topic_partition, None)
        rows = without_aborted(part.rows, part.aborted)
        if end_offset is not None and part.next_offset > end_offset:
            rows = rows.slice(0, sum(each < end_offset for each in rows["offset"].to_pylist()))
            return Fetched(rows, end_offset)
        return Fetched(rows, part.next_offset)

    def waits_at(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Whether long polls wait for a record at this offset, and have not brought it yet."""
        with self._lock:
            return self._at_end.get(topic_partition) == offset and not self._is_ready(topic_partition, offset)

    def _is_ready(self, topic_partition: TopicPartition, offset: int) -> bool:
        return topic_partition in self._ready and self._ready[topic_partition][0] == offset

    def _awaited(
        self, topic_partition: TopicPartition, offset: int, max_bytes: int, timeout_ms: int | None
    ) -> FetchedPart:
        clock = self._view.clock
        deadline_ms = clock.monotonic_ms() + (self._view.timeout_ms if timeout_ms is None else timeout_ms)
        while True:
            try:
                return self._fetched(topic_partition, offset, max_bytes)
            except StratalogError as reason:
                if not reason.retriable or clock.monotonic_ms() >= deadline_ms:
                    raise
            clock.sleep_ms(RETRY_MS)
            self._view.refresh()

    def _fetched(self, topic_partition: TopicPartition, offset: int, max_bytes: int) -> FetchedPart:
        view = self._view
        leader = view.led_by(topic_partition)
        message = self._message({topic_partition: offset}, max_bytes, 0)
        answer = view.cluster.call_each({leader: message}, view.timeout_ms)[leader]
        if isinstance(answer, StratalogError):
            view.expect_change()
            raise answer
        error = error_of(answer)
        if error is not None:
            raise error
        for named, part in self._parts(answer):
            if named == topic_partition:
                return self._checked(named, part, offset)
        view.expect_change()
        raise errors.LeaderNotAvailableError(f"{topic_partition}: broker {leader} did not answer for it")

    def _checked(self, named: TopicPartition, part: Entity, offset: int) -> FetchedPart:
        error = error_of(part)
        if error is not None:
            if not isinstance(error, errors.OffsetOutOfRangeError):
                self._view.expect_change()
            raise type(error)(f"{named}, offset {offset}: {error}")
        found = fetched_part(part, offset)
        self._view.watermarks.answered(named, found)
        return found

    def _message(self, offsets: Mapping[TopicPartition, int], max_bytes: int, wait_ms: int) -> Message:
        ids = self._view.image.topic_ids
        unknown = next((each for each in offsets if each.topic not in ids), None)
        if unknown is not None:
            raise errors.UnknownTopicOrPartitionError(f"topic '{unknown.topic}' does not exist")
        wanted = {(ids[topic], partition): offset for (topic, partition), offset in offsets.items()}
        return fetch_message(wanted, max_bytes, wait_ms, self._view.isolation)

    def _parts(self, answer: Entity) -> Iterator[tuple[TopicPartition, Entity]]:
        names = {known: name for name, known in self._view.image.topic_ids.items()}
        for topic in answer.responses:
            name = names.get(id_text(topic.topic_id) or "")
            for part in topic.partitions if name is not None else ():
                yield TopicPartition(name or "", part.partition_index), part

    # -- waiting -----------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Nothing: answers come by themselves."""

    def moved_since(self, sequence: int) -> tuple[int, list[TopicPartition] | None]:
        """As of `ProgressChanges`."""
        with self._lock:
            return self._moves.since(sequence)

    def all_moved(self) -> None:
        """The metadata changed."""
        with self._lock:
            self._moves.add_all()
        self._news.set()

    def wait(self, timeout_ms: float, poll_ms: float) -> None:
        """Until a leader has more for a partition that was read to its end, or `wake`; at most `timeout_ms`."""
        self._ask_for_more()
        limit_ms = min(timeout_ms, LONG_POLL_MS if self._polls else poll_ms)
        self._news.wait(limit_ms / 1_000)
        self._news.clear()

    def wake(self) -> None:
        self._news.set()

    def _ask_for_more(self) -> None:
        """One long poll at each leader that has none."""
        view = self._view
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        with self._lock:
            # What a poll has brought and nobody has read, as of a partition that is paused, is not asked for again.
            at_end = {named: offset for named, offset in self._at_end.items() if not self._is_ready(named, offset)}
            busy = set(self._polls)
        for named, offset in at_end.items():
            state = view.image.partitions.get(named)
            if state is not None and state.leader != NO_LEADER and state.leader not in busy:
                by_leader.setdefault(state.leader, {})[named] = offset
        for leader, offsets in by_leader.items():
            message = self._message(offsets, PARTITION_BYTES, LONG_POLL_MS)
            poll = _Poll(offsets)
            with self._lock:
                self._polls[leader] = poll
            limit_ms = LONG_POLL_MS + view.cluster.config.request_timeout_ms
            view.cluster.send(leader, message, limit_ms, partial(self._polled, leader, poll))

    def _polled(self, leader: int, poll: _Poll, answer: Entity | Lost) -> None:
        """In a network thread."""
        moved: list[TopicPartition] = []
        if isinstance(answer, Lost) or answer.error_code:
            self._view.expect_change()
        else:
            for named, part in self._parts(answer):
                offset = poll.offsets.get(named)
                if offset is None:
                    continue
                if part.error_code:
                    self._view.expect_change()
                    moved.append(named)
                    with self._lock:  # the reader meets the error; one that is paused would be asked for without a rest
                        self._at_end.pop(named, None)
                elif part.records:
                    moved.append(named)
                    self._keep(named, offset, part)
        with self._lock:
            if self._polls.get(leader) is poll:
                del self._polls[leader]
            self._moves.add(moved)
        self._news.set()

    def _keep(self, named: TopicPartition, offset: int, part: Entity) -> None:
        try:
            found = self._checked(named, part, offset)
        except StratalogError:
            return  # the reader fetches it again, and meets the error itself
        with self._lock:
            self._ready[named] = offset, found
