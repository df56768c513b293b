"""A group's committed offsets, as a consumer writes and reads them: at once, or ahead for newly assigned partitions.

I/O: calls coordinators, which answer from brokers' threads.
Source: Kafka's ConsumerCoordinator (OffsetCommitResponseHandler, OffsetFetchResponseHandler).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from stratalog.clients.config import ConsumerConfig
from stratalog.clients.coordinator_calls import RETRY_MS, CoordinatorCalls, PendingAnswer, ask, offset_rows
from stratalog.clients.records import Generation, OffsetAndMetadata
from stratalog.replication.requests.groups import (
    NO_LEADER_EPOCH,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from stratalog.storage import errors
from stratalog.storage.clock import Clock
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

Committed = dict[TopicPartition, OffsetAndMetadata | None]
"""The committed offset of each partition that was asked for; None without one."""


def commit_request(
    group_id: str, offsets: Offsets, identity: Generation, group_instance_id: str | None = None
) -> OffsetCommitRequest:
    """A commit of `offsets`; InvalidRequestError for a negative one.

    Without a membership `identity` is `Generation()`: accepted while the group has no members.
    """
    topics = offset_rows(offsets)
    return OffsetCommitRequest(group_id, topics, identity.generation_id, identity.member_id, group_instance_id)


def commit_error(response: OffsetCommitResponse) -> StratalogError | None:
    """The first error, topics that the client is not authorized for last; None: all is stored."""
    outcomes = [
        (TopicPartition(topic.name, row.partition_index), row.error)
        for topic in response.topics
        for row in topic.partitions
    ]
    failed = [(tp, error) for tp, error in outcomes if error is not None]
    others = [error for _, error in failed if not isinstance(error, errors.TopicAuthorizationFailedError)]
    if others:
        return others[0]
    if failed:
        topics = ", ".join(sorted({tp.topic for tp, _ in failed}))
        return errors.TopicAuthorizationFailedError(f"Not authorized to access topics: [{topics}]")
    return None


def fetch_request(
    group_id: str, topic_partitions: Iterable[TopicPartition] | None, *, require_stable: bool = True
) -> OffsetFetchRequest:
    """A request for the committed offsets of these partitions; None: of all that the group has."""
    topics: tuple[OffsetFetchRequestTopic, ...] | None = None
    if topic_partitions is not None:
        by_topic: dict[str, list[int]] = {}
        for topic_partition in topic_partitions:
            by_topic.setdefault(topic_partition.topic, []).append(topic_partition.partition)
        topics = tuple(OffsetFetchRequestTopic(topic, tuple(numbers)) for topic, numbers in by_topic.items())
    return OffsetFetchRequest((OffsetFetchRequestGroup(group_id, topics),), require_stable)


def fetched_offsets(response: OffsetFetchResponse) -> Committed:
    """Each partition's committed offset, None without one, in the response for one group.

    Raises its error, or the first of a partition: UNSTABLE_OFFSET_COMMIT (retriable) while a transaction is open.
    """
    if len(response.groups) != 1:
        raise errors.UnknownServerError(f"asked for the offsets of one group, answered were {len(response.groups)}")
    group = response.groups[0]
    if group.error is not None:
        raise group.error
    found: Committed = {}
    for topic in group.topics:
        for row in topic.partitions:
            if row.error is not None:
                raise row.error
            epoch = None if row.committed_leader_epoch == NO_LEADER_EPOCH else row.committed_leader_epoch
            committed = OffsetAndMetadata(row.committed_offset, row.metadata or "", epoch)
            found[TopicPartition(topic.name, row.partition_index)] = committed if row.committed_offset >= 0 else None
    return found


@dataclass(slots=True)
class _Lookup:
    """An OffsetFetch under way for these partitions; `retry_ms`: it failed, and is sent again then."""

    partitions: frozenset[TopicPartition]
    pending: PendingAnswer
    retry_ms: int | None = None


class OffsetFetch:
    """Reads offsets of group `config.group_id`; `wake` ends the consumer's wait when an answer is there."""

    def __init__(self, config: ConsumerConfig, calls: CoordinatorCalls, clock: Clock, wake: Callable[[], None]) -> None:
        self._group_id = config.group_id
        self._retry_backoff_ms = config.retry_backoff_ms
        self._calls = calls
        self._clock = clock
        self._wake = wake
        self._lookup: _Lookup | None = None

    def committed(self, topic_partitions: Iterable[TopicPartition], timeout_ms: int) -> Committed:
        """The group's committed offset of each partition, None without one.

        Offsets in an open transaction are waited for (KIP-447). RequestTimedOutError, GroupAuthorizationFailedError, …
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        request = fetch_request(self._group_id, sorted(topic_partitions))
        while True:
            left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
            try:
                return _offsets_in(ask(self._calls, self._group_id, request, self._clock, left_ms))
            except StratalogError as reason:
                if not reason.retriable:
                    raise
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise errors.RequestTimedOutError(f"group {self._group_id}: {reason}") from reason
            self._clock.sleep_ms(RETRY_MS)

    def ahead(self, topic_partitions: frozenset[TopicPartition]) -> Committed | None:
        """As `committed`, without waiting: None until the answer for exactly these partitions is there."""
        lookup = self._lookup
        if lookup is None or lookup.partitions != topic_partitions:
            self._begin(topic_partitions)
            return None
        if lookup.retry_ms is not None:
            if self._clock.monotonic_ms() >= lookup.retry_ms:
                self._begin(topic_partitions)
            return None
        if not lookup.pending.is_there():
            return None
        try:
            found = _offsets_in(lookup.pending.answer)
        except StratalogError as reason:
            if not reason.retriable:
                self._lookup = None
                raise
            lookup.retry_ms = self._clock.monotonic_ms() + self._retry_backoff_ms
            return None
        self._lookup = None
        return found

    def forget(self) -> None:
        """Drop a look-up under way: its answer may be older than what the partitions' last owner committed."""
        self._lookup = None

    def _begin(self, topic_partitions: frozenset[TopicPartition]) -> None:
        pending = PendingAnswer(self._wake)
        self._lookup = _Lookup(topic_partitions, pending)
        pending.ask(self._calls, self._group_id, fetch_request(self._group_id, sorted(topic_partitions)))


def as_error(answer: object) -> StratalogError:
    """The error that was answered, or UnknownServerError when the answer is none."""
    if isinstance(answer, StratalogError):
        return answer
    return errors.UnknownServerError(f"not an answer to this request: {answer!r}")


def _offsets_in(answer: object) -> Committed:
    if not isinstance(answer, OffsetFetchResponse):
        raise as_error(answer)
    return fetched_offsets(answer)
