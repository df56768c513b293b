"""DeleteRecords: a partition's leader moves its log start up, and answers when every live replica has followed.

I/O: the leader's log. The rule is `storage.upkeep.retention_rules.offset_to_delete_before`; the next retention deletes
the segments below the log start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from stratalog.replication import cadence
from stratalog.replication.internal_topics import is_internal
from stratalog.replication.leader.replica import LeaderReplica
from stratalog.replication.progress.progress import UNKNOWN
from stratalog.replication.requests.delete_records import DeletedRecords, DeleteRecordsRequest, DeleteRecordsResponse
from stratalog.storage import errors
from stratalog.storage.clock import Clock
from stratalog.storage.delta.table import Conflict
from stratalog.storage.errors import StoreError, StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.storage.upkeep.retention_rules import offset_to_delete_before

_LOG = line_logger("stratalog.broker")


@dataclass(slots=True)
class _Request:
    """A request under way: an offset is `wanted` until the leader's log starts there, `awaited` until all logs do."""

    complete: Callable[[DeleteRecordsResponse], None]
    deadline_ms: int
    wanted: dict[IdentifiedPartition, int]
    awaited: dict[IdentifiedPartition, int] = field(default_factory=dict)
    answers: dict[IdentifiedPartition, DeletedRecords] = field(default_factory=dict)

    def answer(self, partition: IdentifiedPartition, answer: DeletedRecords) -> None:
        self.wanted.pop(partition, None)
        self.awaited.pop(partition, None)
        self.answers[partition] = answer

    def refuse(self, partition: IdentifiedPartition, error: StratalogError) -> None:
        self.answer(partition, DeletedRecords(error=error.as_value()))

    def end(self, reason: str) -> None:
        """Answer it; what is not done is refused."""
        for partition in self.open:
            self.refuse(partition, errors.NotLeaderOrFollowerError(reason))
        self.complete(self.answers)

    @property
    def open(self) -> Sequence[IdentifiedPartition]:
        return [*self.wanted, *self.awaited]

    @property
    def is_refused(self) -> bool:
        """Whether no partition has a new log start."""
        return all(answer.error is not None for answer in self.answers.values())


class RecordDeletions:
    """The requests to one broker's leaders, handled by its loop (Kafka: `DelayedDeleteRecords`). `leaders` is the
    broker's own map, which changes under way."""

    def __init__(self, leaders: Mapping[TopicPartition, LeaderReplica], clock: Clock) -> None:
        self._leaders = leaders
        self._clock = clock
        self._inbound: deque[_Request] = deque()
        self._requests: list[_Request] = []
        self._answered: list[_Request] = []

    @property
    def is_idle(self) -> bool:
        """True while `step` has nothing to do."""
        return not self._inbound and not self._requests

    @property
    def next_due_ms(self) -> int | None:
        """When the next request's time is over, or a commit is tried again; None without requests."""
        retry_ms = self._clock.monotonic_ms() + cadence.LOG_START_RETRY.ms
        due_ms = (min(each.deadline_ms, retry_ms) if each.wanted else each.deadline_ms for each in self._requests)
        return min(due_ms, default=None)

    def put(self, request: DeleteRecordsRequest, complete: Callable[[DeleteRecordsResponse], None]) -> None:
        """Queue a request for the next turn. Called from any thread; `complete` is called once."""
        deadline_ms = self._clock.monotonic_ms() + request.timeout_ms
        self._inbound.append(_Request(complete, deadline_ms, dict(request.offsets)))

    def refuse_inbound(self, reason: str) -> None:
        """Refuse what is queued: nothing is led here any more. Called from any thread."""
        for request in self._taken():
            request.end(reason)

    def stop(self, reason: str) -> None:
        """The same for what is under way."""
        under_way, self._requests, self._answered = [*self._requests, *self._answered], [], []
        for request in (*under_way, *self._taken()):
            request.end(reason)

    def step(self, live: Collection[int]) -> set[TopicPartition]:
        """Continue all requests; returns the partitions whose log start moved. `live`: brokers whose replicas count."""
        now_ms = self._clock.monotonic_ms()
        self._requests += map(_accepted, self._taken())
        moved: set[TopicPartition] = set()
        for request in self._requests:
            for partition in request.open:
                if self._continue(request, partition, live, now_ms):
                    moved.add(partition.topic_partition)
        self._answered += [request for request in self._requests if not request.open]
        self._requests = [request for request in self._requests if request.open]
        return moved

    def answer(self, *, is_published: bool) -> None:
        """Answer finished requests. A new log start is answered once it is published: the client can read it then."""
        ready = [request for request in self._answered if is_published or request.is_refused]
        self._answered = [] if is_published else [each for each in self._answered if not each.is_refused]
        for request in ready:
            request.complete(request.answers)

    def _taken(self) -> list[_Request]:
        """What was queued, by any thread; another one may empty the queue, too."""
        taken: list[_Request] = []
        with suppress(IndexError):
            while True:
                taken.append(self._inbound.popleft())
        return taken

    def _continue(self, request: _Request, partition: IdentifiedPartition, live: Collection[int], now_ms: int) -> bool:
        """Continue one partition of a request; True when the log start moved."""
        replica = self._leaders.get(partition.topic_partition)
        if replica is None or replica.failure is not None:
            request.refuse(partition, errors.NotLeaderOrFollowerError(f"{partition} is not led by this broker"))
            return False
        if replica.topic_id != partition.topic_id:
            unknown = f"{partition}: topic id {partition.topic_id} is unknown, it is {replica.topic_id}"
            request.refuse(partition, errors.UnknownTopicIdError(unknown))
            return False
        has_moved = False
        try:
            if partition in request.wanted:
                has_moved = self._move_log_start(request, partition, replica)
        except StoreError as reason:
            _LOG.warning("%s, trying again: %s", partition, reason)
        except errors.FencedLeaderEpochError as reason:
            request.refuse(partition, errors.NotLeaderOrFollowerError(str(reason)))
        except StratalogError as reason:
            request.refuse(partition, reason)
        offset = request.awaited.get(partition)
        if offset is not None and replica.partition is not None:
            low_watermark = replica.partition.low_watermark(replica.log.log_start_offset, live)
            if low_watermark >= offset:
                request.answer(partition, DeletedRecords(low_watermark))
        if partition not in request.answers and now_ms >= request.deadline_ms:
            late = f"{partition}: not every live replica's log starts there in time"
            request.refuse(partition, errors.RequestTimedOutError(late))
        return has_moved

    def _move_log_start(self, request: _Request, partition: IdentifiedPartition, replica: LeaderReplica) -> bool:
        """Commit the new log start. The next step retries it if the leader has not started yet or lost a race."""
        if replica.partition is None or replica.partition.high_watermark == UNKNOWN:
            return False
        if not replica.may_change(self._clock.monotonic_ms()):
            return False
        high_watermark = replica.partition.high_watermark
        offset = offset_to_delete_before(request.wanted[partition], high_watermark, replica.config)
        log = replica.log
        if is_moving := offset > log.log_start_offset:
            outcome = log.replace_files(
                (),
                (),
                leader_epoch=replica.leader_epoch,
                operation="DELETE RECORDS",
                now_ms=self._clock.wall_ms(),
                data_change=True,
                log_start=offset,
            )
            if isinstance(outcome, Conflict):
                log.refresh()
                return False
        del request.wanted[partition]
        request.awaited[partition] = offset
        return is_moving


def _accepted(request: _Request) -> _Request:
    for each in request.open:
        if is_internal(each.topic):
            request.refuse(each, errors.InvalidTopicError(f"Cannot delete records of internal topic {each.topic}"))
    return request
