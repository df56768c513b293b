"""Fetch: sessions, limits, and waiting for enough records. I/O: reads logs through `partition_read`; a thread waits.

A request is answered at once when it has an error, a diverging epoch, or `min_bytes` of records; else when the high
watermarks of its partitions have moved far enough, or after `max_wait` (`delayed_fetches`). One that finds all in
memory, as at the end of its partitions, stays in the thread of its connection. For consumers only: followers of this
cluster copy from storage.
Source: `KafkaApis.handleFetchRequest`, `ReplicaManager.fetchMessages` (KIP-74, KIP-227, KIP-320, KIP-392, KIP-516).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.server.apis.fetch.delayed_fetches import NEVER, DelayedFetches
from stratalog.server.apis.fetch.memory import EmptyRead, FetchMemory, RepeatedFetch
from stratalog.server.apis.fetch.partition_read import PartitionFetch, PartitionRead, published_log
from stratalog.server.apis.fetch.sessions import (
    FINAL_EPOCH,
    INVALID_SESSION_ID,
    FetchContext,
    FetchKey,
    FetchSessionResult,
    FetchSessions,
    WantedPartition,
)
from stratalog.server.apis.fetch.waiting_fetches import FetchRun, Lead, PartitionChange, deadline_ms
from stratalog.server.request.api import Api, Call, Later, each_partition, error_only
from stratalog.server.request.broker import ApiFamily, ServedBroker
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import body_of, encoded
from stratalog.wire.messages.schema import response_type
from stratalog.wire.messages.values import Values, id_text

TOPIC_IDS_FROM = 13
FOLLOWERS_FROM = 11
SESSIONS_FROM = 7
ZSTD_FROM = 10
NO_EPOCH = -1
INT_MAX = 2**31 - 1
_EXPECTED = (
    errors.FencedLeaderEpochError,
    errors.InconsistentTopicIdError,
    errors.KafkaStorageError,
    errors.NotLeaderOrFollowerError,
    errors.OffsetOutOfRangeError,
    errors.TopicAuthorizationFailedError,
    errors.UnknownLeaderEpochError,
    errors.UnknownTopicOrPartitionError,
)
"""Errors that say nothing of the broker (Kafka's `ReplicaManager.readFromLog` does not count them as failures)."""


class FetchApis(ApiFamily):
    """`close` answers the fetches that wait."""

    def __init__(self, broker: ServedBroker, io: Executor | None = None) -> None:
        """`io` reads from storage for fetches that waited; None: their own thread does."""
        super().__init__(broker)
        self._reader = PartitionFetch(broker)
        slots = broker.config.max_incremental_fetch_session_cache_slots
        self._sessions = FetchSessions(slots, lambda: int(broker.view.ids.new_id()[:8], 16) & INT_MAX)
        name = f"kafka-fetch-{broker.broker_id}"
        self._delayed = DelayedFetches(broker.view, self._read, self._answer, self._change_of, name, io)

    def apis(self) -> Iterable[Api]:
        return [Api(ApiKey.FETCH, self._fetch, _refused, is_quick=True)]

    @property
    def waiting_count(self) -> int:
        """The number of fetches that wait for records (Kafka's `PurgatorySize` of Fetch)."""
        return len(self._delayed)

    def close(self) -> None:
        """Answer the fetches that wait with what they have, and end the thread."""
        self._delayed.close()
        self._reader.close()

    def _fetch(self, call: Call) -> Later | None:
        run = self._begin(call)
        # without the thread that watches leaders the marks at hand may be old: deleted records would be returned
        if run.may_wait and self._delayed.is_watching and self._read_cached(run):
            self._go_on(run)
            return None
        return Later(partial(self._read_first, run))

    def _begin(self, call: Call) -> FetchRun:
        request, now_ms = call.request, self._broker.view.clock.monotonic_ms()
        repeat = _repeat_of(call)
        context = self._context(call, now_ms) if repeat is None else repeat.context
        limit, wait_ms = self._broker.config.fetch_max_bytes, request.max_wait
        return FetchRun(
            call,
            context,
            min(request.min_bytes, limit),
            min(call.given("max_bytes", INT_MAX), limit),
            deadline_ms(now_ms, wait_ms),
            self._broker.view.changes.moved_since(NEVER)[0],
            call.reads_committed,
            wait_ms > 0,
        )

    def _context(self, call: Call, now_ms: int) -> FetchContext:
        return self._sessions.begin(
            call.given("session_id", INVALID_SESSION_ID),
            call.given("session_epoch", FINAL_EPOCH),
            _wanted(call),
            _forgotten(call),
            uses_topic_ids=call.version >= TOPIC_IDS_FROM,
            now_ms=now_ms,
            user=call.connection.principal.name,
        )

    def _read_first(self, run: FetchRun) -> None:
        """The first read of a fetch, where it may wait for storage."""
        if not (run.may_wait and self._delayed.is_watching):  # else it is read anyway, and what it brings ends the wait
            self._broker.view.changes.poll()
        if not self._read_cached(run):
            self._read(run, run.context.wanted)
        self._go_on(run)

    def _go_on(self, run: FetchRun) -> None:
        """Answer a fetch that was read, or let it wait."""
        if run.is_enough or not run.has_time or not run.context.wanted:
            self._answer(run)
        else:
            self._delayed.add(run)

    def _read_cached(self, run: FetchRun) -> bool:
        """As `_read` of all partitions, if they can be read from memory; else nothing is read, and False."""
        memory = _memory_of(run)
        known = [] if memory is None else memory.still_empty(run, self._broker.view.changes.moved_among)
        if memory is not None and memory.is_all(known, run) and self._broker.authorizer is None:
            run.reads, run.leads = memory.reads, {each.wanted.key: each.lead for each in known}
            return True
        again = {each.wanted.key: each for each in known}
        reads: dict[FetchKey, PartitionRead] = {}
        size_bytes = 0
        for each in run.context.wanted:
            left_bytes = max(0, run.max_bytes - size_bytes)
            limits = min(each.max_bytes, left_bytes), size_bytes == 0
            read = self._one_cached(run, each, again.get(each.key), *limits)
            if read is None:
                return False
            reads[each.key] = read
            size_bytes += read.size_bytes
        run.reads = reads
        return True

    def _one_cached(
        self, run: FetchRun, wanted: WantedPartition, known: EmptyRead | None, max_bytes: int, must_return_one: bool
    ) -> PartitionRead | None:
        call, named = run.call, self._broker.cached_name(wanted.key.topic, wanted.key.topic_id, wanted.key.partition)
        if named is None or replica_id(call) >= 0:
            return None
        if self._broker.refusal(call, Operation.READ, ResourceType.TOPIC, named.topic) is not None:
            return None
        if known is not None:
            run.leads[wanted.key] = known.lead
            return known.read
        only_leader = call.version < FOLLOWERS_FROM
        state = self._broker.cached_state(named, wanted.current_leader_epoch, leader_only=only_leader)
        if state is None or run.is_committed:
            return None
        lead = run.leads[wanted.key] = self._lead(state)
        if wanted.key.topic_id not in (None, lead.topic_id):
            return None
        takes_zstd = call.version >= ZSTD_FROM
        read = self._reader.cached(named, wanted, max_bytes, must_return_one=must_return_one, takes_zstd=takes_zstd)
        return read if self._is_still(named, lead.topic_id) else None

    def _read(self, run: FetchRun, wanted: Sequence[WantedPartition]) -> bool:
        """Read these partitions, in turn; True when that is enough for an answer.

        The first one with records returns a batch, however large, so that a reader always makes progress (KIP-74).
        """
        reads = dict(run.reads)  # another thread may look at the one before
        for each in wanted:
            reads.pop(each.key, None)
        size_bytes = sum(read.size_bytes for read in reads.values())
        for each in wanted:
            left_bytes = max(0, run.max_bytes - size_bytes)
            read = self._read_one(run, each, min(each.max_bytes, left_bytes), must_return_one=size_bytes == 0)
            reads[each.key] = read
            size_bytes += read.size_bytes
        run.reads, run.unread_bytes = reads, {}
        return run.is_enough

    def _read_one(
        self, run: FetchRun, wanted: WantedPartition, max_bytes: int, *, must_return_one: bool
    ) -> PartitionRead:
        call, key = run.call, wanted.key
        named: TopicPartition | None = None
        try:
            topic = self._topic_of(run, key)
            named = TopicPartition(topic, key.partition)
            self._broker.check(call, Operation.READ, ResourceType.TOPIC, named.topic)
            topic_id = self._broker.view.image.topic_ids.get(topic)
            self._check_topic_id(named, key.topic_id)
            if replica_id(call) >= 0:
                raise errors.NotLeaderOrFollowerError(
                    f"{named} has no follower {replica_id(call)} that fetches by request"
                )
            state = self._broker.partition(named)
            run.leads[wanted.key] = self._lead(state)
            only_leader = call.version < FOLLOWERS_FROM
            self._broker.checked(state, wanted.current_leader_epoch, leader_only=only_leader)
            read = self._reader.read(
                named,
                wanted,
                max_bytes,
                must_return_one=must_return_one,
                is_committed=run.is_committed,
                takes_zstd=call.version >= ZSTD_FROM,
            )
            if not self._is_still(named, topic_id):
                raise errors.UnknownTopicOrPartitionError(f"{named}: the topic was deleted or created again meanwhile")
            return read
        except StratalogError as error:
            known = _known_error(error.as_value())
            if named is not None and not isinstance(known, _EXPECTED):
                self._broker.metrics.topic(named.topic).failed_fetch_requests += 1
            return PartitionRead(named, error=known)

    def _topic_of(self, run: FetchRun, key: FetchKey) -> str:
        """The name of a partition's topic, also of one that was deleted since the session or this request began.

        UnknownTopicIdError for an id that neither of them has met. Source: `CachedPartition.maybeResolveUnknownName`.
        """
        if key.topic is not None:
            return key.topic
        try:
            return self._broker.topic_name(key.topic_id)
        except errors.UnknownTopicIdError:
            session, before = run.context.session, run.reads.get(key)
            known = session.topics.get(key.topic_id or "") if session else None
            if known is None and before is not None and before.topic_partition is not None:
                known = before.topic_partition.topic
            if known is None:
                raise
            return known

    def _is_still(self, named: TopicPartition, topic_id: str | None) -> bool:
        """Whether the topic is the one that it was before a read. What was read by its name is then of that topic: none
        gets an earlier id again."""
        return self._broker.view.image.topic_ids.get(named.topic) == topic_id

    def _check_topic_id(self, named: TopicPartition, topic_id: str | None) -> None:
        """UnknownTopicOrPartitionError for the id of a deleted topic; InconsistentTopicIdError if another topic of its
        name has a replica here."""
        current = self._broker.view.image.topic_ids.get(named.topic)
        if topic_id in (None, current):
            return
        if self._broker.broker_id in self._broker.partition(named).replicas:
            raise errors.InconsistentTopicIdError(f"{named}: topic id {topic_id}, the topic of this name has {current}")

    def _lead(self, state: PartitionRecord) -> Lead:
        return Lead(self._broker.view.image.topic_ids.get(state.topic, ""), state.leader_epoch)

    def _change_of(self, named: TopicPartition) -> PartitionChange:
        """By what is at hand: storage is not read."""
        broker = self._broker
        state, marks = broker.view.image.partitions.get(named), None
        if state is not None:
            with suppress(StratalogError):
                marks = broker.view.watermarks.published(named, poll=False)
        lead = None if state is None else self._lead(state)
        readable = partial(broker.memory.readable_bytes, published_log(named, marks)) if marks else _nothing
        return PartitionChange(lead, marks, readable)

    # -- the answer ------------------------------------------------------------------------------------------

    def _answer(self, run: FetchRun) -> None:
        memory, session = _memory_of(run), run.context.session
        is_same = memory is not None and run.reads is memory.reads and not run.unread_bytes
        if is_same and session is None and (repeat := _repeat_of(run.call)) is not None:
            run.call.respond_built(repeat.response)
            return
        # of what was sent in the last answer of its session, nothing is sent again
        reads = {} if is_same and session else {each.key: run.reads[each.key] for each in run.context.wanted}
        outcomes = {key: _result(read) for key, read in reads.items()}
        now_ms = self._broker.view.clock.monotonic_ms()
        try:
            session_id, keys = self._sessions.end(run.context, outcomes, now_ms)
        except StratalogError as error:
            run.call.respond({"error_code": error.as_value(), "session_id": session.session_id if session else 0})
            return
        if is_same and session:
            run.call.respond({"error_code": None, "session_id": session_id})
            return
        for read in reads.values():
            if read.size_bytes and read.topic_partition is not None:
                self._broker.metrics.fetched(read.topic_partition.topic, read.size_bytes)
        self._remember(run, partial(self._response, run.call, session_id, keys, reads))

    def _remember(self, run: FetchRun, values: Callable[[], Values]) -> None:
        """Answer a fetch, and keep what the client's next one can use."""
        call, memory = run.call, FetchMemory.of(run)
        if run.context.session is not None:
            run.context.session.memory = memory
        elif isinstance(call.frame, bytes) and call.use is None and memory.is_all(memory.empty.values(), run):
            response = encoded(values(), response_type(ApiKey.FETCH, call.version))
            repeat = RepeatedFetch(body_of(call.frame), call.asked, run.context, response)
            call.connection.memory.fetch = memory if run.context.is_full else replace(memory, repeat=repeat)
            call.respond_built(response)
            return
        else:
            call.connection.memory.fetch = memory
        call.respond_with(values)

    def _response(
        self, call: Call, session_id: int, keys: Sequence[FetchKey], reads: Mapping[FetchKey, PartitionRead]
    ) -> Values:
        nodes: dict[int, Values] = {}
        topics: dict[tuple[str | None, str | None], list[Values]] = {}
        for key in keys:
            topics.setdefault((key.topic, key.topic_id), []).append(self._values(call, key, reads[key], nodes))
        return {
            "error_code": None,
            "session_id": session_id,
            "responses": [
                {**({"topic_id": topic_id} if topic is None else {"topic": topic}), "partitions": partitions}
                for (topic, topic_id), partitions in topics.items()
            ],
            "node_endpoints": list(nodes.values()),
        }

    def _values(self, call: Call, key: FetchKey, read: PartitionRead, nodes: dict[int, Values]) -> Values:
        values: dict[str, Any] = {
            "partition_index": key.partition,
            "error_code": read.error,
            "high_watermark": read.high_watermark,
            "last_stable_offset": read.last_stable_offset,
            "log_start_offset": read.log_start_offset,
            "aborted_transactions": read.aborted,
            "records": tuple(piece for batch in read.batches for piece in batch.pieces),
        }
        if read.diverging is not None:
            values["diverging_epoch"] = {"epoch": read.diverging.epoch, "end_offset": read.diverging.end_offset}
        if read.topic_partition and isinstance(
            read.error, errors.NotLeaderOrFollowerError | errors.FencedLeaderEpochError
        ):
            values["current_leader"] = self._broker.current_leader(call, read.topic_partition, nodes)
        return values


def _nothing(_start_offset: int, _end_offset: int) -> int:
    return 0


def _result(read: PartitionRead) -> FetchSessionResult:
    """What a session is to know of a read."""
    topic = None if read.topic_partition is None else read.topic_partition.topic
    bounds = read.high_watermark, read.log_start_offset
    return FetchSessionResult(*bounds, read.is_urgent, read.size_bytes > 0, topic)


def _memory_of(run: FetchRun) -> FetchMemory | None:
    """What the client's last fetch found nothing in: that of its session, or of its connection without one."""
    session = run.context.session
    found: FetchMemory | None = run.call.connection.memory.fetch if session is None else session.memory
    return found


def _repeat_of(call: Call) -> RepeatedFetch | None:
    """The connection's last fetch, if this one came with the same bytes."""
    memory: FetchMemory | None = call.connection.memory.fetch
    repeat = None if memory is None else memory.repeat
    return repeat if repeat is not None and repeat.request is call.request else None


def replica_id(call: Call) -> int:
    """The id of the follower that asks; -1 for a consumer. KIP-903 moved the field."""
    state = call.given("replica_state")
    return int(call.given("replica_id", -1) if state is None else state.replica_id)


def _known_error(error: StratalogError) -> StratalogError:
    """The error as consumers know it: a leader that has not started yet is not the leader."""
    if isinstance(error, errors.LeaderNotAvailableError):
        return errors.NotLeaderOrFollowerError(str(error))
    return error


def _wanted(call: Call) -> list[WantedPartition]:
    return [
        WantedPartition(
            _key(topic, each.partition),
            each.fetch_offset,
            each.partition_max_bytes,
            getattr(each, "current_leader_epoch", NO_EPOCH),
            getattr(each, "last_fetched_epoch", NO_EPOCH),
        )
        for topic in call.request.topics
        for each in topic.partitions
    ]


def _forgotten(call: Call) -> list[FetchKey]:
    return [_key(t, partition) for t in call.given("forgotten_topics_data", ()) for partition in t.partitions]


def _key(topic: Any, partition: int) -> FetchKey:
    if hasattr(topic, "topic_id"):
        return FetchKey(None, id_text(topic.topic_id), partition)
    return FetchKey(str(topic.topic), None, partition)


def _refused(call: Call, error: StratalogError) -> Values:
    """A session's error has a code for the whole; versions before 7 have neither that code nor sessions."""
    if call.version >= SESSIONS_FROM:
        return error_only(call, error)

    def values(_topic: Any, asked: Any) -> Values:
        return {"partition_index": asked.partition, "error_code": error}

    return {"responses": each_partition(call.request.topics, values)}
