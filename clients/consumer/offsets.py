"""A group's committed offsets as clients write and read them: requests built, answers judged. Pure.

Source: Kafka's ConsumerCoordinator (OffsetCommitResponseHandler, OffsetFetchResponseHandler).

A group's committed offsets as a consumer asks for them: at once for the application, or ahead for new partitions.

I/O: calls coordinators. Answers come from brokers' threads and are only noted there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from stratalog.clients.config import ConsumerConfig
from stratalog.clients.coordinator_calls import CoordinatorCalls, ask
from stratalog.clients.records import Generation, OffsetAndMetadata
from stratalog.replication.requests.groups import (
    NO_LEADER_EPOCH,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from stratalog.storage.clock import Clock
from stratalog.storage.errors import (
    InvalidRequestError,
    RequestTimedOutError,
    StratalogError,
    TopicAuthorizationFailedError,
    UnknownServerError,
)
from stratalog.storage.records import TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def commit_request(
    group_id: str, offsets: Offsets, identity: Generation, group_instance_id: str | None = None
) -> OffsetCommitRequest:
    """A commit of `offsets`; InvalidRequestError for a negative one.

    Without a membership `identity` is `Generation()`: taken while the group has no members.
    """
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for topic_partition, committed in offsets.items():
        if committed.offset < 0:
            raise InvalidRequestError(f"{topic_partition}: Invalid offset: {committed.offset}")
        epoch = NO_LEADER_EPOCH if committed.leader_epoch is None else committed.leader_epoch
        row = OffsetCommitRequestPartition(topic_partition.partition, committed.offset, epoch, committed.metadata)
        by_topic.setdefault(topic_partition.topic, []).append(row)
    topics = tuple(OffsetCommitRequestTopic(topic, tuple(rows)) for topic, rows in by_topic.items())
    return OffsetCommitRequest(group_id, topics, identity.generation_id, identity.member_id, group_instance_id)


def commit_error(response: OffsetCommitResponse) -> StratalogError | None:
    """What went wrong first; topics that are not the client's only if nothing else did. None: all is stored."""
    errors = [
        (TopicPartition(topic.name, row.partition_index), row.error)
        for topic in response.topics
        for row in topic.partitions
    ]
    failed = [(tp, error) for tp, error in errors if error is not None]
    others = [error for _, error in failed if not isinstance(error, TopicAuthorizationFailedError)]
    if others:
        return others[0]
    if failed:
        topics = ", ".join(sorted({tp.topic for tp, _ in failed}))
        return TopicAuthorizationFailedError(f"Not authorized to access topics: [{topics}]")
    return None


def fetch_request(
    group_id: str, topic_partitions: Iterable[TopicPartition] | None, *, require_stable: bool = True
) -> OffsetFetchRequest:
    """Asks for the committed offsets of these partitions; None: of all that the group has."""
    topics: tuple[OffsetFetchRequestTopic, ...] | None = None
    if topic_partitions is not None:
        by_topic: dict[str, list[int]] = {}
        for topic_partition in topic_partitions:
            by_topic.setdefault(topic_partition.topic, []).append(topic_partition.partition)
        topics = tuple(OffsetFetchRequestTopic(topic, tuple(numbers)) for topic, numbers in by_topic.items())
    return OffsetFetchRequest((OffsetFetchRequestGroup(group_id, topics),), require_stable)


def fetched_offsets(response: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """Each partition's committed offset, None without one, of the one group that was asked for.

    Raises its error, or the first of a partition: UNSTABLE_OFFSET_COMMIT (retriable) while a transaction is open.
    """
    if len(response.groups) != 1:
        raise UnknownServerError(f"asked for the offsets of one group, answered were {len(response.groups)}")
    group = response.groups[0]
    if group.error is not None:
        raise group.error
    found: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for topic in group.topics:
        for row in topic.partitions:
            if row.error is not None:
                raise row.error
            epoch = None if row.committed_leader_epoch == NO_LEADER_EPOCH else row.committed_leader_epoch
            committed = OffsetAndMetadata(row.committed_offset, row.metadata or "", epoch)
            found[TopicPartition(topic.name, row.partition_index)] = committed if row.committed_offset >= 0 else None
    return found


RETRY_MS = 20


Committed = dict[TopicPartition, OffsetAndMetadata | None]
"""The committed offset of each partition that was asked for; None without one."""


@dataclass(slots=True)
class _Lookup:
    """An OffsetFetch under way for these partitions; `retry_ms`: it failed, and is to be asked again then."""

    partitions: frozenset[TopicPartition]
    answer: object = None
    is_answered: bool = False
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
                    raise RequestTimedOutError(f"group {self._group_id}: {reason}") from reason
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
        if not lookup.is_answered:
            return None
        try:
            found = _offsets_in(lookup.answer)
        except StratalogError as reason:
            if not reason.retriable:
                self._lookup = None
                raise
            lookup.retry_ms = self._clock.monotonic_ms() + self._retry_backoff_ms
            return None
        self._lookup = None
        return found

    def forget(self) -> None:
        """Partitions came or went: what was asked before may be older than what their last owner committed."""
        self._lookup = None

    def _begin(self, topic_partitions: frozenset[TopicPartition]) -> None:
        lookup = self._lookup = _Lookup(topic_partitions)
        request = fetch_request(self._group_id, sorted(topic_partitions))

        def told(answer: object) -> None:
            lookup.answer, lookup.is_answered = answer, True
            self._wake()

        def found(answer: object) -> None:
            if isinstance(answer, int):
                self._calls.send(answer, self._group_id, request, told)
            else:
                told(answer)

        self._calls.find(self._group_id, found)


def as_error(answer: object) -> StratalogError:
    """The error that was answered; a defect when it is no error."""
    if isinstance(answer, StratalogError):
        return answer
    return UnknownServerError(f"not an answer to this request: {answer!r}")


def _offsets_in(answer: object) -> Committed:
    if not isinstance(answer, OffsetFetchResponse):
        raise as_error(answer)
    return fetched_offsets(answer)
