"""One hosted shard of a coordinator: folded from its partition's log, then active under one leader epoch.

I/O: reads the log of the replica that this broker leads, and queues appends at the broker. Everything happens in the
broker's loop. A failed append makes the whole shard fail: its owner folds another one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import NamedTuple

import pyarrow as pa

from stratalog.replication import cadence
from stratalog.replication.coordinator.runtime.request_sizes import least_record_bytes
from stratalog.replication.coordinator.runtime.writes import (
    Append,
    CoordinatorWrites,
    Write,
    as_coordinator_error,
    leaves_shard_sound,
    writes_of,
)
from stratalog.replication.coordinator.shard.metrics import Held
from stratalog.replication.coordinator.shard.shard import (
    NO_TOKEN,
    Answered,
    CoordinatorRecord,
    CoordinatorShard,
    Decision,
    HeldGroup,
    RemoteAppend,
)
from stratalog.replication.leader.replica import LeaderReplica, WaitingAppend
from stratalog.replication.requests.consumer_groups import ConsumerGroupDescribeRequest
from stratalog.replication.requests.groups import (
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)
from stratalog.replication.requests.produce import ACKS_ALL, ProduceRequest, ProduceResponse
from stratalog.replication.requests.transactions import DescribeTransactionsRequest, ListTransactionsRequest
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import (
    CONTROL_ATTRIBUTE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTIONAL_ATTRIBUTE,
    IdentifiedPartition,
    NewRecordBatch,
)
from stratalog.storage.transactions import OffsetAndEpoch

_LOG = line_logger("stratalog.coordinator")

FOLD_BYTES = 256 << 10
"""Bytes that are read at a time: about 2,000 records."""
ABORT, COMMIT = 0, 1
"""Types of a transaction marker (Kafka: ControlRecordType)."""
_CONTROL_KEY = struct.Struct(">hh")
_READS = (
    ConsumerGroupDescribeRequest,
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
    OffsetFetchRequest,
)
"""Requests that change nothing in a shard, so that a defect while it answers one leaves it as it was."""

Answer = Callable[[object], None]
"""Receives a response value or a StratalogError, once; it must neither raise nor block."""


class ShardOutlets(NamedTuple):
    """The calls of a shard to its owner.

    append   queue an append at the broker
    perform  perform an effect
    ended    an append ended
    """

    append: Callable[[WaitingAppend], None]
    perform: Callable[[HostedShard, RemoteAppend], None]
    ended: Callable[[HostedShard], None]


class HostedShard:
    """`fold` until it `is_active`, then `request`, `end_transaction`, `expire`; `unload` ends it.

    failure     why it has to be replaced by a newly folded one
    has_defect  it failed by a defect, which may occur again at once
    """

    def __init__(
        self,
        replica: LeaderReplica,
        make: Callable[[], CoordinatorShard],
        outlets: ShardOutlets,
        timeout_ms: int,
        predecessor: HostedShard | None = None,
    ) -> None:
        """`make` returns an empty shard. `timeout_ms` bounds the wait of an answer for its records. `predecessor` is an
        earlier one of the same replica."""
        self.replica = replica
        self.topic_partition = replica.state.topic_partition
        self.is_active = False
        self.failure: StratalogError | None = None
        self.has_defect = False
        self._sent = 0
        self._make = make
        self._outlets = outlets
        self._timeout_ms = timeout_ms
        self._predecessor = predecessor._last_to_send() if predecessor is not None else None
        self._shard: CoordinatorShard | None = None
        self._position = 0
        self._end = 0
        self._writes = CoordinatorWrites(replica.config.max_message_bytes)
        self._answers: dict[int, Answer] = {}
        self._tokens = count()
        self._stored_end = 0
        self._reads: list[Write] = []

    # -- folding -----------------------------------------------------------------------------------------

    def fold(self, now_ms: int) -> bool:
        """Fold the next piece of the log; active once all of it is folded and committed. True if there was progress.

        Raises the errors of reading; then it may be tried again.
        """
        partition = self.replica.partition
        if partition is None or self.outstanding or self.replica.is_storing:
            return False
        log = self.replica.log
        if self._shard is None:
            self._shard = self._make()
            self._position, self._end = log.log_start_offset, log.log_end_offset
        if self._position < self._end:
            self._position = self._fold_piece(log, self._shard)
            return True
        if partition.high_watermark < self._end:
            return False
        self.is_active = True
        self._predecessor = None
        self._apply(self._shard.loaded(now_ms), now_ms)
        return True

    @property
    def outstanding(self) -> int:
        """Number of appends of this epoch without an answer, also of earlier shards: they may still be stored."""
        return self._sent + (self._predecessor.outstanding if self._predecessor is not None else 0)

    def _last_to_send(self) -> HostedShard | None:
        """The newest shard, this one or before, with appends under way; shards without are released."""
        if self._sent or self._predecessor is None:
            return self if self._sent else None
        return self._predecessor._last_to_send()

    def _fold_piece(self, log: PartitionLog, shard: CoordinatorShard) -> int:
        start = max(self._position, log.log_start_offset)
        rows = log.read(start, FOLD_BYTES, self._end)
        if rows.num_rows == 0:
            return self._end
        _replay_rows(rows, shard)
        return int(rows["offset"][-1].as_py()) + 1

    # -- requests and time -------------------------------------------------------------------------------

    def request(self, request: object, answer: Answer | None, now_ms: int) -> None:
        """Let the shard decide. `answer` None: the request has no answer."""
        shard, token = self._active(), NO_TOKEN
        if answer is not None:
            token = next(self._tokens)
            self._answers[token] = answer
        self._run(lambda: self._decide(shard, request, token, now_ms), token, now_ms)

    def _decide(self, shard: CoordinatorShard, request: object, token: int, now_ms: int) -> Decision:
        """Refuses records that the log would refuse before the shard decides, as far as it is known."""
        least_bytes, bytes_max = least_record_bytes(request), self.replica.config.max_message_bytes
        if least_bytes > bytes_max:
            raise as_coordinator_error(
                errors.RecordTooLargeError(f"records of at least {least_bytes} bytes > max.message.bytes {bytes_max}")
            )
        if isinstance(request, TxnOffsetCommitRequest):
            log, producer = self.replica.log, (request.producer_id, request.producer_epoch)
            if self.replica.is_storing and log.cached_producers is None:
                raise errors.CoordinatorLoadInProgressError(f"{log.name}: its producers are being read for an append")
            verified = OffsetAndEpoch(request.verified_offset, request.verified_leader_epoch)
            log.producers.check_transactional(*producer, True, verified, log.state.end)
        try:
            return shard.decide(request, token, now_ms)
        except StratalogError:
            raise
        except Exception as defect:
            if not isinstance(request, _READS):
                raise
            _LOG.exception("%s: %s", self.topic_partition, type(request).__name__)
            raise errors.UnknownServerError(f"{type(defect).__name__}: {defect}") from defect

    def end_transaction(self, marker: NewRecordBatch, answer: Answer, now_ms: int) -> None:
        """Append a transaction marker; the shard replays it when it is stored. The answer is None or an error."""
        token = next(self._tokens)
        self._answers[token] = answer
        self._writes.add(Write((), now_ms, now_ms + self._timeout_ms, (Answered(token, None),), marker=marker))

    def expire(self, now_ms: int) -> None:
        """Run the shard's timers, and answer requests that have waited too long."""
        shard = self._active()
        due_ms = shard.next_due_ms
        if due_ms is not None and due_ms <= now_ms:
            self._run(lambda: shard.expire(now_ms), NO_TOKEN, now_ms)
        for late in self._writes.overdue(now_ms):
            reason = f"{self.topic_partition}: not replicated in {self._timeout_ms} ms; it may be later"
            self._answer(Answered(late.token, errors.CoordinatorNotAvailableError(reason)))
        while self._reads and self._reads[0].deadline_ms <= now_ms:
            reason = f"{self.topic_partition}: not known for {self._timeout_ms} ms whether another broker leads it"
            for token, _ in self._reads.pop(0).answers:
                self._answer(Answered(token, errors.CoordinatorNotAvailableError(reason)))

    @property
    def next_due_ms(self) -> int | None:
        """The time of the next `expire`; None without timers and deadlines."""
        if self._shard is None or not self.is_active or self.failure is not None:
            return None
        read_ms = self._reads[0].deadline_ms if self._reads else None
        dues = (self._shard.next_due_ms, self._writes.next_deadline_ms, read_ms)
        return min((due for due in dues if due is not None), default=None)

    def held(self) -> Mapping[Held, int]:
        """The shard's gauges; none before it is active. Any thread may call it."""
        return self._shard.held() if self._shard is not None and self.is_active else {}

    def groups(self) -> Sequence[HeldGroup]:
        """As `CoordinatorShard.groups`; none before the shard serves."""
        return self._shard.groups() if self._shard is not None and self.is_active else ()

    def _active(self) -> CoordinatorShard:
        assert self._shard is not None
        assert self.is_active
        return self._shard

    def _run(self, decide: Callable[[], Decision], token: int, now_ms: int) -> None:
        """One call of the shard. A StratalogError refuses the request; any other exception is a defect."""
        if self.failure is not None:
            return
        try:
            try:
                decision = decide()
            except StratalogError as refusal:
                if token == NO_TOKEN:
                    raise
                decision = Decision(answers=(Answered(token, refusal.as_value()),))
            self._apply(decision, now_ms)
        except errors.RecordTooLargeError as reason:
            self._fail(reason, token)
        except Exception as defect:  # noqa: BLE001 - whatever it is, the shard may be half changed
            self._fail_by(defect, token)

    def _apply(self, decision: Decision, now_ms: int) -> None:
        for write in writes_of(decision, now_ms, now_ms + self._timeout_ms, self.replica.config.max_message_bytes):
            if not write.is_appended and self._writes.is_empty:
                self._return_answers(write)
                return
            self._writes.add(write)
            if not write.is_of_transaction:
                self._replay(write)

    def _replay(self, write: Write) -> None:
        shard = self._active()
        if write.marker is not None:
            key = write.marker.first.key
            is_commit = is_commit_marker(key)
            shard.replay_end_transaction(write.marker.producer_id, write.marker.producer_epoch, is_commit)
        for record in write.records:
            shard.replay(record, write.timestamp_ms, write.producer_id, write.producer_epoch)

    # -- appends and answers -----------------------------------------------------------------------------

    def flush(self) -> bool:
        """Append the decisions, unless an append is under way; True if something was sent."""
        if self.failure is not None:
            return False
        appends = self._writes.next_append()
        for append in appends:
            self._sent += 1
            request = ProduceRequest(
                IdentifiedPartition(self.replica.topic_id, self.topic_partition),
                append.batch,
                ACKS_ALL,
                cadence.SHARD_APPEND.ms,
                self.replica.leader_epoch,
            )
            self._outlets.append(WaitingAppend(request, partial(self._appended, append)))
        return bool(appends)

    def _appended(self, append: Append, response: ProduceResponse) -> None:
        self._sent -= 1
        if self.failure is None:
            self._record_outcome(append, response)
        if self.failure is None:
            self.advance()
        self._outlets.ended(self)

    def _record_outcome(self, append: Append, response: ProduceResponse) -> None:
        error = response.error
        if error is None:
            return
        if isinstance(error, errors.RequestTimedOutError):  # stored; `advance` checks when it is committed
            self._stored_end = max(self._stored_end, response.last_offset + 1)
        elif leaves_shard_sound(append.writes[0], error):
            for write in append.writes:
                write.refusal = as_coordinator_error(error)
        else:
            self._fail(error)

    def advance(self) -> None:
        """Return answers, once the whole append under way is below the high watermark."""
        partition = self.replica.partition
        if self._sent or (self._stored_end and (partition is None or partition.high_watermark < self._stored_end)):
            return
        self._stored_end = 0
        try:
            for write in self._writes.stored():
                if write.is_of_transaction and write.refusal is None:
                    self._replay(write)
                self._return_answers(write)
        except Exception as defect:  # noqa: BLE001 - whatever it is, the shard may be half changed
            self._fail_by(defect, NO_TOKEN)
            return
        self.flush()

    @property
    def is_stalled(self) -> bool:
        """Appends are stored, but took too long to be committed: `advance` has to be called at times."""
        return self._stored_end > 0 and self.failure is None

    @property
    def has_reads(self) -> bool:
        """Answers wait for `confirm`."""
        return bool(self._reads)

    def confirm(self) -> None:
        """No other broker coordinated before these reads: return their answers."""
        reads, self._reads = self._reads, []
        for read in reads:
            for token, response in read.answers:
                self._answer(Answered(token, response))

    def _return_answers(self, write: Write) -> None:
        if write.is_read and write.refusal is None:
            self._reads.append(write)
            return
        for token, response in write.answers:
            self._answer(Answered(token, response if write.refusal is None else write.refusal))
        if write.refusal is None:
            for effect in write.effects:
                self._outlets.perform(self, effect)

    def _answer(self, answered: Answered) -> None:
        answer = self._answers.pop(answered.token, None)
        if answer is not None:
            answer(answered.response)

    def _fail(self, reason: StratalogError, token: int = NO_TOKEN) -> None:
        """It is no longer certain that the shard equals its log."""
        if self.failure is None:
            _LOG.warning("%s: the shard is folded again: %s", self.topic_partition, reason)
            self.failure = as_coordinator_error(reason)
            self._answer(Answered(token, self.failure))

    def _fail_by(self, defect: Exception, token: int) -> None:
        _LOG.exception("%s", self.topic_partition)
        self.has_defect = True
        self._fail(errors.UnknownServerError(f"{type(defect).__name__}: {defect}"), token)

    def unload(self, error: StratalogError) -> None:
        """Answer all waiting requests, in order: with its failure those whose decisions were not committed, with
        `error` those that waited in the shard."""
        lost = self.failure if self.failure is not None else error
        self.failure = lost
        for write in self._writes.drain():
            for token, _ in write.answers:
                self._answer(Answered(token, lost))
        if self._shard is not None and self.is_active:
            try:
                answers = self._shard.unload(error)
            except Exception:  # noqa: BLE001 - a defect of one shard must not end the broker's turn
                _LOG.exception("%s: all requests are answered all the same", self.topic_partition)
                answers = ()
            for answered in answers:
                self._answer(answered)
        for token in list(self._answers):
            self._answer(Answered(token, error))


def is_commit_marker(key: bytes | None) -> bool:
    """Whether a control record's key is that of a committed transaction, not of an aborted one."""
    return key is not None and len(key) >= _CONTROL_KEY.size and _CONTROL_KEY.unpack_from(key)[1] == COMMIT


def _replay_rows(rows: pa.Table, shard: CoordinatorShard) -> None:
    """Rows of the log in order. Control rows without a key were emptied by compaction."""
    columns = (
        rows["key"].to_pylist(),
        rows["value"].to_pylist(),
        rows["timestamp"].cast(pa.int64()).to_pylist(),
        rows["attributes"].to_pylist(),
        rows["producer_id"].to_pylist(),
        rows["producer_epoch"].to_pylist(),
    )
    for key, value, timestamp_ms, attributes, producer_id, producer_epoch in zip(*columns, strict=True):
        if key is None:
            continue
        if attributes & CONTROL_ATTRIBUTE:
            shard.replay_end_transaction(producer_id, producer_epoch, is_commit_marker(key))
            continue
        is_open = bool(attributes & TRANSACTIONAL_ATTRIBUTE)
        producer = (producer_id, producer_epoch) if is_open else (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        shard.replay(CoordinatorRecord(key, value), timestamp_ms or 0, *producer)
