"""Commit mode: a query that reads all partitions commits their offsets to its group.

I/O: calls the group's coordinator. The query is no member of its group, which has to be without members, as for a
consumer of Kafka's that assigns partitions to itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.clients.consumer.offsets import OffsetFetch, as_error, commit_error, commit_request
from stratalog.clients.coordinator_calls import CoordinatorCalls, PendingAnswer
from stratalog.clients.records import NO_COORDINATOR, Generation, OffsetAndMetadata
from stratalog.clients.spark.group.coordinators import find_coordinator
from stratalog.clients.spark.group.offsets import CommitProgress, OffsetBounds, Offsets
from stratalog.clients.spark.group.options import GROUP_ID, MODE, GroupOptions
from stratalog.replication.requests.groups import OffsetCommitResponse
from stratalog.storage.clock import Clock
from stratalog.storage.errors import StratalogError, UnknownMemberIdError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import TopicPartition

COMMIT_INTERVAL_MS = 200
"""Least pause between two commits of a busy query. An idle query asks for offsets more often, so its last commit is
not later than this."""
POLL_MS = 5

_LOG = line_logger("stratalog.source")


@dataclass(frozen=True, slots=True)
class _Sent:
    """A commit under way."""

    offsets: dict[TopicPartition, int]
    pending: PendingAnswer


class GroupCommits:
    """The offsets of one query in its group. Not thread-safe: a planner has one thread."""

    def __init__(self, group: GroupOptions, calls: CoordinatorCalls, clock: Clock) -> None:
        """Finds the group's coordinator. BrokerNotAvailableError when no broker answers."""
        self._group = group
        self._calls = calls
        self._clock = clock
        self._progress = CommitProgress()
        self._coordinator = find_coordinator(calls, group, clock)
        self._sent: _Sent | None = None
        self._next_ms = 0
        self._reads = OffsetFetch(group.consumer, calls, clock, lambda: None)

    def starts(self, bounds: OffsetBounds) -> dict[TopicPartition, int]:
        """Where the partitions of `bounds` begin: at the group's committed offsets, or by `auto.offset.reset`.

        OffsetOutOfRangeError (`none`), RequestTimedOutError, GroupAuthorizationFailedError, …
        """
        found = self._reads.committed(bounds.earliest, self._group.consumer.default_api_timeout_ms)
        offsets = {tp: None if committed is None else committed.offset for tp, committed in found.items()}
        return {tp: bounds.start(tp, offsets.get(tp)) for tp in bounds.earliest}

    def commit(self, offsets: Offsets) -> None:
        """Commit these, soon: nothing is waited for, and a failed attempt is repeated by later calls.

        Raises the error of an earlier attempt that no repetition helps against: UnknownMemberIdError where the group
        has members, GroupAuthorizationFailedError, …
        """
        self._progress.want(offsets)
        self._receive()
        self._send()

    def wait(self, timeout_ms: int) -> bool:
        """Whether all that is wanted is stored, waited for up to `timeout_ms`. Raises as `commit`."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            self._receive()
            if self._sent is None and not self._progress.due(self._clock.monotonic_ms()):
                return True
            self._send(is_urgent=self._coordinator != NO_COORDINATOR)
            if self._clock.monotonic_ms() >= deadline_ms:
                return False
            self._clock.sleep_ms(POLL_MS)

    def _send(self, *, is_urgent: bool = False) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._sent is not None or (now_ms < self._next_ms and not is_urgent):
            return
        due = self._progress.due(now_ms)
        if not due:
            return
        self._next_ms = now_ms + COMMIT_INTERVAL_MS
        rows = {tp: OffsetAndMetadata(offset) for tp, offset in due.items()}
        request = commit_request(self._group.group_id, rows, Generation())
        pending = PendingAnswer().ask(self._calls, self._group.group_id, request, self._coordinator)
        self._sent = _Sent(due, pending)

    def _receive(self) -> None:
        self._calls.poll()
        sent = self._sent
        if sent is None or not sent.pending.is_there():
            return
        self._sent = None
        answer = sent.pending.answer
        error = commit_error(answer) if isinstance(answer, OffsetCommitResponse) else as_error(answer)
        if error is None:
            self._progress.stored_now(sent.offsets, self._clock.monotonic_ms())
            return
        if not error.retriable:
            raise self._explained(error)
        self._coordinator = NO_COORDINATOR
        _LOG.warning("Group %s: offsets are not committed yet, trying again: %s", self._group.group_id, error)

    def _explained(self, error: StratalogError) -> StratalogError:
        if isinstance(error, UnknownMemberIdError):
            return UnknownMemberIdError(
                f"{GROUP_ID}={self._group.group_id}: the group has members, and only they may commit its offsets. "
                f"Name a group of this query's own, or share the partitions with the members: {MODE}=share. ({error})"
            )
        return error
