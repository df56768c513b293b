"""A group's committed offsets as a consumer asks for them: at once for the application, or ahead for new partitions.

I/O: calls coordinators. Answers come from brokers' threads and are only noted there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stratalog.clients.config import ConsumerConfig
from stratalog.clients.consumer.group_offsets import fetch_request, fetched_offsets
from stratalog.clients.coordinator_calls import CoordinatorCalls, ask
from stratalog.clients.records import OffsetAndMetadata
from stratalog.replication.requests.groups import OffsetFetchResponse
from stratalog.storage.clock import Clock
from stratalog.storage.errors import RequestTimedOutError, StratalogError, UnknownServerError
from stratalog.storage.records import TopicPartition

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
