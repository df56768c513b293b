"""DeleteRecords: a partition's leader moves its log start up, and answers when every live replica has followed.

I/O: the leader's log; requests `inbox/<id>.delete-records` and answers `inbox/<id>.answer.json` in the broker's own
root. The rule is `storage.upkeep.retention.offset_to_delete_before`; the next retention deletes the segments below the
log start.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from stratalog.replication.internal_topics import is_internal
from stratalog.replication.leader.replica import LeaderReplica
from stratalog.replication.progress.progress import UNKNOWN
from stratalog.replication.requests.hand_over import INBOX_PREFIX, answer_path
from stratalog.storage.clock import Clock
from stratalog.storage.delta.table import Conflict
from stratalog.storage.errors import (
    CorruptMessageError,
    FencedLeaderEpochError,
    InvalidTopicError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    StoreError,
    StratalogError,
    UnknownTopicIdError,
    error_for_code,
)
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.storage.upkeep.retention import offset_to_delete_before

_LOG = line_logger("stratalog.broker")

DELETE_RECORDS_SUFFIX = ".delete-records"


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """The result for one partition: no live replica's log starts below `low_watermark` any more; or `error`."""

    low_watermark: int = UNKNOWN
    error: StratalogError | None = None


def delete_records_path(request_id: str) -> str:
    """Path of a request in the leader's root."""
    return f"{INBOX_PREFIX}{request_id}{DELETE_RECORDS_SUFFIX}"


def delete_records_id_of(path: str) -> str | None:
    """The id of a request's path; None for anything else in the inbox."""
    if not path.startswith(INBOX_PREFIX) or not path.endswith(DELETE_RECORDS_SUFFIX):
        return None
    return path.removeprefix(INBOX_PREFIX).removesuffix(DELETE_RECORDS_SUFFIX)


def encode_delete_records(offsets: Mapping[IdentifiedPartition, int], broker_epoch: int, timeout_ms: int) -> bytes:
    """`offsets`: new log starts, -1 is the high watermark. `broker_epoch`: the registration that is to handle it."""
    rows = [[*each.topic_partition, offset] for each, offset in offsets.items()]
    topic_ids = [each.topic_id for each in offsets]
    body = {"broker_epoch": broker_epoch, "timeout_ms": timeout_ms, "offsets": rows, "topic_ids": topic_ids}
    return json.dumps(body).encode()


def decode_delete_records(data: bytes) -> tuple[dict[IdentifiedPartition, int], int, int]:
    """`(offsets, broker epoch, timeout in ms)`. Raises CorruptMessageError. Clients of earlier releases name no topic
    ids, which are empty then."""
    try:
        body = json.loads(data)
        topic_ids = body.get("topic_ids") or [""] * len(body["offsets"])
        offsets = {
            IdentifiedPartition(str(topic_id), TopicPartition(str(topic), int(number))): int(offset)
            for topic_id, (topic, number, offset) in zip(topic_ids, body["offsets"], strict=True)
        }
        return offsets, int(body["broker_epoch"]), int(body["timeout_ms"])
    except Exception as reason:
        raise CorruptMessageError(f"not a request to delete records: {data[:200]!r} ({reason})") from reason


def encode_deleted(answers: Mapping[TopicPartition, DeletedRecords]) -> bytes:
    """A JSON list of rows: topic, partition, low watermark, error code (0: none), message."""
    rows: list[list[object]] = []
    for (topic, partition), answer in answers.items():
        error = answer.error
        rows.append([topic, partition, answer.low_watermark, error.code if error else 0, str(error) if error else ""])
    return json.dumps(rows).encode()


def decode_deleted(data: bytes) -> dict[TopicPartition, DeletedRecords]:
    """The results of `encode_deleted`. Raises CorruptMessageError."""
    try:
        return {
            TopicPartition(topic, partition): DeletedRecords(low, error_for_code(code, text) if code else None)
            for topic, partition, low, code, text in json.loads(data)
        }
    except Exception as reason:
        raise CorruptMessageError(f"not an answer about deleted records: {data[:200]!r} ({reason})") from reason


@dataclass(slots=True)
class _Request:
    """A request under way: an offset is `wanted` until the leader's log starts there, `awaited` until all logs do."""

    request_id: str
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

    @property
    def open(self) -> Sequence[IdentifiedPartition]:
        return [*self.wanted, *self.awaited]


class RecordDeletions:
    """The requests to one broker's leaders, handled by its loop (Kafka: `DelayedDeleteRecords`). `leaders` is the
    broker's own map, which changes under way."""

    def __init__(
        self,
        store: ObjectStore,
        leaders: Mapping[TopicPartition, LeaderReplica],
        clock: Clock,
        put_answer: Callable[[str, bytes], None],
    ) -> None:
        """`put_answer` writes an answer to a path of `store`."""
        self._store = store
        self._put_answer = put_answer
        self._leaders = leaders
        self._clock = clock
        self._requests: dict[str, _Request] = {}
        self._answered: deque[_Request] = deque()

    @property
    def is_idle(self) -> bool:
        """True while `step` has nothing to do."""
        return not self._requests

    def accept(self, request_id: str, broker_epoch: int) -> None:
        """Read a request of the inbox, unless it is under way. `broker_epoch`: this broker's."""
        if request_id in self._requests or any(request.request_id == request_id for request in self._answered):
            return
        data = self._store.get_optional(delete_records_path(request_id))
        if data is None:
            return
        try:
            offsets, asked_epoch, timeout_ms = decode_delete_records(data)
        except CorruptMessageError as reason:
            _LOG.error("inbox request %s refused: %s", request_id, reason)
            offsets, asked_epoch, timeout_ms = {}, broker_epoch, 0
        offsets = {each if each.topic_id else self._led(each): offset for each, offset in offsets.items()}
        request = _Request(request_id, self._clock.monotonic_ms() + timeout_ms, offsets)
        for each in request.open:
            if is_internal(each.topic):
                request.refuse(each, InvalidTopicError(f"Cannot delete records of internal topic {each.topic}"))
            elif asked_epoch != broker_epoch:
                refusal = f"asked of broker epoch {asked_epoch}, this is {broker_epoch}"
                request.refuse(each, NotLeaderOrFollowerError(refusal))
        self._requests[request_id] = request

    def _led(self, named: IdentifiedPartition) -> IdentifiedPartition:
        """A partition that a client names without a topic id: of the topic that is led here now."""
        replica = self._leaders.get(named.topic_partition)
        return named if replica is None else IdentifiedPartition(replica.topic_id, named.topic_partition)

    def step(self, live: Collection[int]) -> set[TopicPartition]:
        """Continue all requests; returns the partitions whose log start moved. `live`: brokers whose replicas count."""
        now_ms = self._clock.monotonic_ms()
        moved: set[TopicPartition] = set()
        for request in list(self._requests.values()):
            for partition in request.open:
                if self._continue(request, partition, live, now_ms):
                    moved.add(partition.topic_partition)
            if not request.open:
                self._answered.append(self._requests.pop(request.request_id))
        return moved

    def _continue(self, request: _Request, partition: IdentifiedPartition, live: Collection[int], now_ms: int) -> bool:
        """Continue one partition of a request; True when the log start moved."""
        replica = self._leaders.get(partition.topic_partition)
        if replica is None or replica.failure is not None:
            request.refuse(partition, NotLeaderOrFollowerError(f"{partition} is not led by this broker"))
            return False
        if replica.topic_id != partition.topic_id:
            unknown = f"{partition}: topic id {partition.topic_id} is unknown, it is {replica.topic_id}"
            request.refuse(partition, UnknownTopicIdError(unknown))
            return False
        has_moved = False
        try:
            if partition in request.wanted:
                has_moved = self._move_log_start(request, partition, replica)
        except StoreError as reason:
            _LOG.warning("%s, trying again: %s", partition, reason)
        except FencedLeaderEpochError as reason:
            request.refuse(partition, NotLeaderOrFollowerError(str(reason)))
        except StratalogError as reason:
            request.refuse(partition, reason)
        offset = request.awaited.get(partition)
        if offset is not None and replica.partition is not None:
            low_watermark = replica.partition.low_watermark(replica.log.log_start_offset, live)
            if low_watermark >= offset:
                request.answer(partition, DeletedRecords(low_watermark))
        if partition not in request.answers and now_ms >= request.deadline_ms:
            late = f"{partition}: not every live replica's log starts there in time"
            request.refuse(partition, RequestTimedOutError(late))
        return has_moved

    def _move_log_start(self, request: _Request, partition: IdentifiedPartition, replica: LeaderReplica) -> bool:
        """Commit the new log start. The next step retries it if the leader has not started yet or lost a race."""
        if replica.partition is None or replica.partition.high_watermark == UNKNOWN:
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

    def write_answers(self) -> bool:
        """Answer finished requests, once the new log starts were published; True if there were any.

        A request is deleted after its answer is stored: if the broker dies in between, its next registration refuses
        the request.
        """
        moved = bool(self._answered)
        while self._answered:
            request = self._answered[0]
            self._put_answer(
                answer_path(request.request_id),
                encode_deleted({each.topic_partition: found for each, found in request.answers.items()}),
            )
            self._store.delete(delete_records_path(request.request_id))
            self._answered.popleft()
        return moved
