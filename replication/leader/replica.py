"""A replica that leads: its log, its appends in group commits, and the answers that wait for it.

I/O: through its `PartitionLog`. The broker's loop owns it; requests come from other threads through the `AppendQueue`.
Requests that arrive during a commit form the next group: the commit is the linger.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace

from stratalog.replication import cadence
from stratalog.replication.leader.log_offsets import LogOffsetSnapshot
from stratalog.replication.leader.partition import Partition
from stratalog.replication.leader.purgatory import DelayedProduce, ProducePurgatory
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.metrics import BrokerMetrics
from stratalog.replication.progress.progress import UNKNOWN, ReplicaProgress
from stratalog.replication.requests.produce import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    NO_TIME,
    HandOverRequest,
    ProduceRequest,
    ProduceResponse,
    SentBatch,
)
from stratalog.replication.stores import FileWriters
from stratalog.storage import errors
from stratalog.storage.clock import Clock
from stratalog.storage.delta.table import Conflict
from stratalog.storage.errors import StratalogError
from stratalog.storage.log.append import Appended, BatchAppended, HandedFiles
from stratalog.storage.log.partition_log import FileAhead, PartitionLog, SentAppend
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import NewRecordBatch, TopicPartition
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.transactions import LastStableOffset

_LOG = line_logger("stratalog.broker")

GROUP_BYTES_MAX = 8 << 20
"""Of the batches of one commit, but for one batch."""
GROUP_REQUESTS_MAX = 10_000
FILES_CHECKED = 64
"""Newest files whose presence a replica checks before it leads."""


@dataclass(slots=True)
class WaitingAppend:
    """A request in the queue, and the callback for its response; `arrived_ms` is on the broker's clock, `arrived_in`
    the leader epoch of its partition then, None if that was not led here."""

    request: ProduceRequest | HandOverRequest
    complete: Callable[[ProduceResponse], None]
    arrived_ms: int = 0
    arrived_in: int | None = None

    def answer(self, error: StratalogError, log_start_offset: int = -1) -> None:
        """Refuse it; `log_start_offset` of the leader's log, by which a producer tells whether its last records were
        deleted or lost."""
        self.complete(
            ProduceResponse(self.request.partition, error=error.as_value(), log_start_offset=log_start_offset)
        )


@dataclass(frozen=True, slots=True)
class AppendGroup:
    """Requests of one kind that go into one commit; kept until the outcome of that commit is known.

    append_time_ms  the time that its records got, where the topic has LogAppendTime; files keep the times they have
    """

    members: tuple[WaitingAppend, ...]
    batches: tuple[NewRecordBatch, ...] = ()
    handed: tuple[HandedFiles, ...] = ()
    append_time_ms: int = NO_TIME

    @property
    def size_bytes(self) -> int:
        """Of the batches as Arrow data, of handed files on storage."""
        files = (file.size_bytes for handed in self.handed for file in handed.files)
        return sum(batch.size_bytes for batch in self.batches) + sum(files)


@dataclass(frozen=True, slots=True)
class StoredAppend:
    """What became of a group: `start_offset` was the log's end before, the times are on the broker's clock."""

    outcome: SentAppend | StratalogError
    start_offset: int
    begun_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class LeaderPorts:
    """What the replicas that one broker leads reach their broker through.

    on_offline       called with the reason when a replica cannot be served, with None when it can again
    append_pause_ms  how long upkeep lets a replica's next append wait after one that added so many files
    file_writers     writes the data files of large appends beside the loop
    wake             ends the loop's wait: a file was written
    had_records      whether this broker had records of the partition, of this topic id, as far as it has published
    check_place      raises where the storage domain of a partition without a table is not there
    producers_from   the first producer id that nobody has yet
    """

    broker_id: int
    clock: Clock
    purgatory: ProducePurgatory
    metrics: BrokerMetrics = field(default_factory=BrokerMetrics)
    on_offline: Callable[[TopicPartition, StratalogError | None], None] = lambda _topic_partition, _reason: None
    append_pause_ms: Callable[[TopicPartition, int], int] = lambda _topic_partition, _file_count: 0
    had_records: Callable[[PartitionRecord, str], bool] = lambda _state, _topic_id: False
    check_place: Callable[[PartitionRecord], None] = lambda _state: None
    producers_from: Callable[[], int] = lambda: 0
    file_writers: FileWriters | None = None
    wake: Callable[[], None] = lambda: None


class LeaderReplica:
    """One led partition for one leader epoch. Not started until its table shows the epoch (promise 6)."""

    def __init__(
        self,
        state: PartitionRecord,
        topic_id: str,
        log: PartitionLog,
        ports: LeaderPorts,
        known_committed: int = UNKNOWN,
    ) -> None:
        """`known_committed`: up to where the log was committed in earlier epochs, as far as this broker knows."""
        self.state = state
        self.topic_id = topic_id
        self.log = log
        log.knows_by_time = True
        self.waiting: deque[WaitingAppend] = deque()
        self.partition: Partition | None = None
        self.failure: StratalogError | None = None
        self._known_committed = known_committed
        self._ports = ports
        self._traffic = ports.metrics.topic(state.topic)
        self._in_flight: AppendGroup | None = None
        self._ahead: Future[FileAhead] | None = None
        """The data file of the group in flight, while a thread writes it or has written it."""
        self._is_new = False
        """Whether the group in flight was not tried yet."""
        self.is_storing = False
        """Whether another thread stores the group in flight. Invariant: meanwhile nobody changes `log`."""
        self._next: AppendGroup | None = None
        """The group behind it. Invariant: there is one only while a group is stored beside the loop, or after that."""
        self._next_ahead: Future[FileAhead] | None = None
        self._yields_until_ms = 0
        """Until when no group is stored beside the loop, which wants to commit to the log itself."""
        self._retry_at_ms = 0
        self._appended_ms, self._appended_files = 0, 0
        self.offsets: LogOffsetSnapshot | None = None
        """For other threads. Invariant: None unless it leads; else that of the last commit of this loop."""
        self._last_stable_offset = LastStableOffset()
        self._kept_damage: StratalogError | None = None
        """Damage under which it leads, since nobody else has what it has."""
        self.waits_for_store = False
        """True once its store was reported as full, or as out of reach, until something is stored."""
        self._tried_ms: int | None = None
        """When the oldest try to store something began that the store has not answered since; None: it has."""
        self.answered_ms: int | None = None
        """When the store last answered such a try."""

    @property
    def has_waiting(self) -> bool:
        """True while requests wait for their append or for its outcome."""
        return self._in_flight is not None or self._next is not None or bool(self.waiting)

    def unanswered_ms(self, now_ms: int) -> int | None:
        """For how long the store has answered no try to write to the table; None while nothing is tried."""
        return None if self._tried_ms is None else now_ms - self._tried_ms

    def _tries(self, now_ms: int) -> None:
        if self._tried_ms is None:
            self._tried_ms = now_ms

    def _is_answered(self, now_ms: int) -> None:
        self._tried_ms, self.answered_ms = None, now_ms

    @property
    def next_sender(self) -> str:
        """The sender of the first request that waits; only where one does."""
        group = self._in_flight or self._next
        return (group.members if group is not None else self.waiting)[0].request.sender

    @property
    def is_starting(self) -> bool:
        """True until its epoch began, or could not begin."""
        return self.partition is None and self.failure is None

    @property
    def domain(self) -> str:
        """The storage domain with its table; "": it is in the broker's root."""
        return self.state.domain_of(self._ports.broker_id)

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def config(self) -> LogConfig:
        return self.log.config

    def start(self, now_ms: int) -> bool:
        """Commit the epoch start; True once the replica leads. After a lost race or with a store that is away: retry.

        Raises InconsistentTopicIdError when the table belongs to another topic of this name.
        """
        if not self.may_start(now_ms):
            return self.partition is not None
        return self.started(self.begin_epoch(), now_ms)

    def may_start(self, now_ms: int) -> bool:
        """Whether its epoch is to begin now."""
        return self.is_starting and now_ms >= self._retry_at_ms

    def begin_epoch(self) -> bool | StratalogError:
        """Commit the epoch start, in any thread, while the loop waits: for `started`. False after a lost race."""
        try:
            if self.state.domain_of(self.state.leader):
                self.log.table.withdraw_tail()  # of another machine, which may have lost power
            self.log.exists_or_create(self.topic_id, self._check_not_lost, self._ports.producers_from())
            self.log.refresh()
            if self.log.leader_epoch < 0:
                self._check_not_lost()
            self._check_table()
            return not isinstance(self.log.start_epoch(self.leader_epoch, as_leader=True), Conflict)
        except StratalogError as reason:
            return reason

    def started(self, outcome: bool | StratalogError, now_ms: int) -> bool:
        """Lead, if the epoch has begun. Returns and raises as `start`."""
        if isinstance(outcome, errors.StoreUnavailableError):
            self._tries(now_ms)
        else:
            self._is_answered(now_ms)
        match outcome:
            case errors.StoreUnavailableError() | errors.FencedLeaderEpochError():
                self._retry_later(now_ms, outcome)  # when fenced, until the metadata log shows the newer leader
                return False
            case errors.InconsistentTopicIdError():
                raise outcome  # a stray of a deleted topic: the broker checks the metadata
            case StratalogError():
                self.go_offline(outcome)
                return False
            case False:
                return False
        self._stores_again()
        self.partition = Partition(
            self.state,
            self._ports.broker_id,
            self._epoch_start_offset(),
            self.log.log_start_offset,
            now_ms,
            self.config.min_insync_replicas,
        )
        self.partition.appended(self.log.log_end_offset, now_ms)
        self._know_offsets()
        return True

    def _check_not_lost(self) -> None:
        """The table is absent, or was just made: it leads only if the partition has no past. LogLostError.

        A member of the ISR has none where nothing was committed since it is one, as soon after the topic's creation.
        While another member remains that one may lead: it has a table, or is as good. When it has left the ISR, what
        this broker has published since the last unclean election decides; in a storage domain, what all have.
        """
        self._ports.check_place(self.state)
        if self.leader_epoch == 0:
            return
        may_have_more = self.may_be_replaced or bool(self.state.elr)
        had_records = self._known_committed > 0 or self._ports.had_records(self.state, self.topic_id)
        if may_have_more or had_records:
            raise errors.LogLostError(
                f"{self.log.name}: there is no log here, but leader epoch {self.leader_epoch} is to begin, ISR "
                f"{list(self.state.isr)}. If its disk is lost, too, an unclean election lets another replica lead."
            )

    def _check_table(self) -> None:
        """A replica that is known to be damaged does not lead while another one of the ISR may: DamagedFileError.

        Only the newest files are checked, so that a failover stays short; scrubbing checks the others.
        """
        damage = self.log.table.damage()
        if damage is not None:
            reason = errors.DamagedFileError(f"{self.log.name}: not repaired yet: {damage.reason}", damage.path)
            if self.may_be_replaced:
                raise reason
            self.keep_damaged(reason)
        if not self.may_be_replaced:
            return
        self.log.table.check_files([entry.file for entry in self.log.files[-FILES_CHECKED:]], bits=False)

    def keep_damaged(self, reason: StratalogError) -> None:
        """Lead with this damage as long as nobody else may: what can still be read is all there is."""
        self._kept_damage = reason

    @property
    def may_be_replaced(self) -> bool:
        """Whether another table holds all that this one does: that of a member of the ISR."""
        return any(r not in self.state.sharing(self._ports.broker_id) for r in self.state.isr)

    def _epoch_start_offset(self) -> int:
        """From the leader epoch cache when the table showed this epoch before: the start was retried."""
        entries = self.log.epochs.entries
        if entries and entries[-1].epoch == self.leader_epoch:
            return entries[-1].start_offset
        return self.log.log_end_offset

    def update_state(self, state: PartitionRecord, now_ms: int) -> None:
        """A newer partition state under the same leader epoch: an ISR change was committed. What was judged under the
        ISR before is judged again: a damaged leader gives way once somebody else has what it has."""
        self.state = state
        if self.partition is None:
            return
        if self._kept_damage is not None and self.may_be_replaced:
            self.go_offline(self._kept_damage)
        else:
            self.partition.update_state(state, now_ms)

    def reconfigure(self, config: LogConfig) -> None:
        """The topic's configs changed while it is led."""
        self.log.config = config
        if self.partition is not None:
            self.partition.min_insync_replicas = config.min_insync_replicas

    @property
    def known_committed(self) -> int:
        """Up to where the log is known to be committed, in this epoch or before; UNKNOWN when it is not."""
        if self.partition is None:
            return self._known_committed
        return max(self.partition.high_watermark, self._known_committed)

    def held_ms(self, now_ms: int) -> int:
        """How much longer the waiting requests are held back for upkeep, or 0. All of them then make one commit."""
        if now_ms < self._yields_until_ms:
            return self._yields_until_ms - now_ms
        if self._in_flight is not None or not self._appended_files:
            return 0
        pause_ms = self._ports.append_pause_ms(self.state.topic_partition, self._appended_files)
        return max(0, self._appended_ms + pause_ms - now_ms) if pause_ms else 0

    def append_waiting(self, now_ms: int) -> bool:
        """Commit one group of the waiting requests; True when something moved: call again at once."""
        group = self.next_group(now_ms)
        return group is not None and self.stored(group, self.store(group), now_ms)

    def next_group(self, now_ms: int) -> AppendGroup | None:
        """The waiting requests that are to be stored now."""
        if self.partition is None or now_ms < self._retry_at_ms or self.held_ms(now_ms):
            return None
        if self._in_flight is None and self._next is not None:
            self._in_flight, self._ahead, self._is_new = self._next, self._next_ahead, self._next_ahead is None
            self._next = self._next_ahead = None
        elif self._in_flight is None:
            self._in_flight, self._is_new = self._next_group(), True
        if self._in_flight is not None:
            self._tries(now_ms)
        return self._in_flight if self._in_flight is not None and self._may_be_stored(self._in_flight) else None

    def _may_be_stored(self, group: AppendGroup) -> bool:
        """Whether the group is to be stored now. The file of a large one is written in another thread first: the
        appends of other partitions do not wait for it. Where that fails, the loop writes it, and meets the error."""
        if self._is_new:
            self._is_new, self._ahead = False, self._file_ahead(group)
        if self._ahead is None:
            return True
        if not self._ahead.done():
            return False
        written, self._ahead = self._ahead, None  # for one try: after it a commit may name the file
        if written.exception() is None:
            self.log.use_ahead(written.result())
        return True

    def _file_ahead(self, group: AppendGroup) -> Future[FileAhead] | None:
        """The file of a large group, which a thread writes; None where the loop does, and where all of an append is
        stored beside it."""
        ahead = self._ports.file_writers
        if ahead is None or self.log.table.kept_ms or group.size_bytes < ahead.bytes_min or not group.batches:
            return None
        try:
            write = self.log.file_ahead(group.batches, self.leader_epoch, self._ports.clock.wall_ms())
            written = None if write is None else ahead.executor.submit(write)
        except (StratalogError, RuntimeError):  # RuntimeError: its threads have ended
            return None
        if written is not None:
            written.add_done_callback(lambda _written: self._ports.wake())
        return written

    def may_change(self, now_ms: int) -> bool:
        """Whether the loop may commit to the log. While an append is under way beside it, it may not; no other is begun
        then for a while, so that it soon may."""
        self._yields_until_ms = now_ms + cadence.APPENDS_YIELD.ms if self.is_storing else 0
        return not self.is_storing

    def begin_beside(self) -> None:
        """The group in flight is stored in another thread from now on."""
        self.is_storing, self.log.ahead = True, None

    def write_ahead(self, executor: Executor) -> None:
        """Let another thread write the file of the group behind the one whose commit is under way. Where that fails,
        the file is written in its turn, and meets the error."""
        behind = self.log.ahead
        if behind is None or self._next is not None or not self.waiting or self.partition is None:
            return
        group = self._next = self._next_group()
        if group is None or not group.batches:
            return
        try:
            wall_ms = self._ports.clock.wall_ms()
            write = self.log.file_ahead(group.batches, self.leader_epoch, wall_ms, behind)
            written = None if write is None else executor.submit(write)
        except (StratalogError, RuntimeError):  # RuntimeError: its threads have ended
            return
        if written is not None:
            self._next_ahead = written
            written.add_done_callback(lambda _written: self._ports.wake())

    def store(self, group: AppendGroup) -> StoredAppend:
        """Commit a group, in any thread: for `stored`. Meanwhile the loop waits, or `is_storing` is set."""
        clock, end_offset = self._ports.clock, self.log.log_end_offset
        begun_ms = clock.monotonic_ms()
        outcome: SentAppend | StratalogError
        try:
            outcome = self._append(group)
        except StratalogError as reason:
            outcome = reason
        return StoredAppend(outcome, end_offset, begun_ms, clock.monotonic_ms())

    def stored(self, group: AppendGroup, stored: StoredAppend, now_ms: int) -> bool:
        """What became of a group; True when something moved."""
        if self.partition is None:
            return False  # it stopped leading while the store was waited for, and the requests were answered
        outcome = self._settled(stored.outcome)
        if not isinstance(outcome, errors.StoreUnavailableError):
            self._is_answered(now_ms)
        match outcome:
            case Conflict():
                return True
            case errors.StoreUnavailableError():
                self._retry_later(now_ms, outcome)  # the same group again: the log recognizes it
                return False
            case errors.FencedLeaderEpochError():
                self.resign(errors.NotLeaderOrFollowerError(f"{self.state.topic_partition}: {outcome}"))
                return True
            case StratalogError():
                self.go_offline(outcome)
                return True
        self._in_flight = self._ahead = None
        self._know_offsets()
        self._stores_again()
        self.partition.appended(self.log.log_end_offset, now_ms)
        self._traffic.appended(self.log.log_end_offset - stored.start_offset, group.size_bytes, len(group.members))
        self._appended_ms, self._appended_files = stored.ended_ms, len(outcome.files)
        self._ports.metrics.local_time.observe(stored.ended_ms - stored.begun_ms, len(group.members))
        for member, result in zip(group.members, outcome.results, strict=True):
            if isinstance(result, BatchAppended):
                self._answer_stored(member, result, group.append_time_ms, now_ms)
            else:
                member.answer(result, self.log.log_start_offset)
        return True

    def _settled(self, sent: SentAppend | StratalogError) -> Appended | Conflict | StratalogError:
        """Fold what was committed, or what others have."""
        if isinstance(sent, StratalogError):
            return sent
        try:
            outcome = self.log.settle(sent)
            if isinstance(outcome, Conflict):
                self.log.refresh()  # it may find a foreign commit
        except StratalogError as reason:
            return reason
        return outcome

    def _know_offsets(self) -> None:
        """Where the log has to read producer state first, no transaction has changed since the last append; after a
        start none is known until the next one."""
        before, known = self.offsets, self.log.cached_producers
        transactions = None if before is None else before.transactions
        if known is not None:
            transactions = known.transactions
        self.offsets = LogOffsetSnapshot(
            self.leader_epoch, self.log.log_end_offset, self.log.epochs, transactions, self._last_stable_offset
        )

    def _next_group(self) -> AppendGroup | None:
        members: list[WaitingAppend] = []
        size_bytes = 0
        while self.waiting and len(members) < GROUP_REQUESTS_MAX and size_bytes < GROUP_BYTES_MAX:
            candidate = self.waiting[0]
            if members and type(candidate.request) is not type(members[0].request):
                break
            self.waiting.popleft()
            refusal = self._refusal(candidate.request)
            if refusal is not None:
                candidate.answer(refusal, self.log.log_start_offset)
                continue
            members.append(candidate)
            if isinstance(candidate.request, ProduceRequest):
                size_bytes += candidate.request.batch.size_bytes
        group = _group_of(members, self.log.log_start_offset)
        if group is None or not self.config.has_append_time or not group.batches:
            return group
        now_ms = self._ports.clock.wall_ms()
        return replace(
            group, batches=tuple([batch.appended_at(now_ms) for batch in group.batches]), append_time_ms=now_ms
        )

    def _refusal(self, request: ProduceRequest | HandOverRequest) -> StratalogError | None:
        if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            return errors.InvalidRequiredAcksError(f"acks is {request.acks}, must be 0, 1 or -1 (all)")
        wrong = self.wrong_epoch(request.expected_leader_epoch if isinstance(request, ProduceRequest) else None)
        if wrong is not None:
            return wrong
        assert self.partition is not None
        needed = self.config.min_insync_replicas
        if request.acks == ACKS_ALL and not self.partition.has_enough_replicas(needed):
            return errors.NotEnoughReplicasError(
                f"{self.state.topic_partition}: the ISR {list(self.partition.isr)} is smaller than "
                f"min.insync.replicas {needed}"
            )
        return None

    def wrong_epoch(self, expected: int | None) -> StratalogError | None:
        """The refusal of a request for another leader epoch; None: any."""
        if expected is None or expected == self.leader_epoch:
            return None
        error = errors.FencedLeaderEpochError if expected < self.leader_epoch else errors.UnknownLeaderEpochError
        return error(f"{self.state.topic_partition}: expected leader epoch {expected}, it is {self.leader_epoch}")

    def _append(self, group: AppendGroup) -> SentAppend:
        wall_ms = self._ports.clock.wall_ms()
        if group.handed:
            return self.log.send_files(group.handed, self.leader_epoch, wall_ms)
        commit_begins = self._ports.wake if self.is_storing else None
        return self.log.send(group.batches, self.leader_epoch, wall_ms, commit_begins)

    def _answer_stored(self, member: WaitingAppend, result: BatchAppended, append_time_ms: int, now_ms: int) -> None:
        request = member.request
        response = ProduceResponse(
            request.partition,
            result.base_offset,
            result.last_offset,
            self.leader_epoch,
            result.duplicate,
            append_time_ms=append_time_ms,
            log_start_offset=self.log.log_start_offset,
        )
        is_confirmed = request.acks != ACKS_ALL
        if is_confirmed and (self.partition is None or not self.partition.commits_alone):
            self._ports.metrics.total_time.observe(self._ports.clock.monotonic_ms() - member.arrived_ms)
            member.complete(response)
            return
        # of a leader that commits alone the client can read them: Kafka's append raises the high watermark
        # later than this turn: what needs no other replica is in time with any timeout, as in Kafka
        end_offset, deadline_ms = result.last_offset + 1, now_ms + max(1, request.timeout_ms)
        self._ports.purgatory.add(
            DelayedProduce(
                response, end_offset, deadline_ms, member.complete, is_confirmed, arrived_ms=member.arrived_ms
            )
        )

    def complete_waiting(self) -> None:
        """The high watermark was published: answer the requests that it has passed. While the ISR is too small, refuse
        those with acks=all that all of it has."""
        if self.partition is None:
            return
        enough = self.partition.has_enough_replicas(self.config.min_insync_replicas)
        reached = self.partition.high_watermark if enough else self.partition.held_by_isr
        if reached == UNKNOWN:
            return
        now_ms, total_time = self._ports.clock.monotonic_ms(), self._ports.metrics.total_time
        self._ports.purgatory.high_watermark_moved(
            self.state.topic_partition, reached, enough, lambda delayed: total_time.observe(now_ms - delayed.arrived_ms)
        )

    def resign(self, error: StratalogError) -> None:
        """Stop leading: all waiting requests are answered with `error`. What was stored stays where it is."""
        self._known_committed = self.known_committed
        self.partition = self.offsets = None
        self.failure = error
        groups = [group for group in (self._in_flight, self._next) if group is not None]
        members = [*(member for group in groups for member in group.members), *self.waiting]
        # before the answers: each is given once, whatever a callback does
        self._in_flight = self._ahead = self._next = self._next_ahead = self._tried_ms = None
        self.waiting.clear()
        for member in members:
            member.answer(error)
        self._ports.purgatory.fail(self.state.topic_partition, error)

    def go_offline(self, reason: StratalogError) -> None:
        """Stop leading for good: the table cannot be trusted. Waiting and later requests are answered with `reason`."""
        _LOG.error("%s goes offline on broker %d: %s", self.state.topic_partition, self._ports.broker_id, reason)
        self.resign(reason)
        self._ports.on_offline(self.state.topic_partition, reason)

    def _retry_later(self, now_ms: int, reason: StratalogError) -> None:
        _LOG.warning("%s on broker %d, trying again: %s", self.state.topic_partition, self._ports.broker_id, reason)
        self._retry_at_ms = now_ms + cadence.APPEND_RETRY.ms
        if isinstance(reason, errors.StoreFullError):
            # The table is sound, but another replica should lead; the only member of an ISR waits for space.
            self._ports.on_offline(self.state.topic_partition, reason)

    def _stores_again(self) -> None:
        if self.waits_for_store:
            self._ports.on_offline(self.state.topic_partition, None)

    def progress(self) -> ReplicaProgress | None:
        """What the leader publishes of this partition; None before it has started."""
        if self.partition is None:
            return None
        return ReplicaProgress(
            self.state.topic_partition,
            self.leader_epoch,
            self.log.log_end_offset,
            self.log.version,
            self.partition.high_watermark,
            self.log.log_start_offset,
            self.partition.epoch_start_offset,
            self.topic_id,
            self._known_committed if self.partition.high_watermark == UNKNOWN else UNKNOWN,
            *self.log.state.removed_records,
            self.state.unclean,
        )


def _group_of(members: list[WaitingAppend], log_start_offset: int) -> AppendGroup | None:
    """The group of these requests; those whose bytes are no records are refused. None if none is left."""
    sent = [r.batch for m in members if isinstance(r := m.request, ProduceRequest) and isinstance(r.batch, SentBatch)]
    read = iter(sent[0].read(sent) if sent else ())
    kept: list[WaitingAppend] = []
    batches: list[NewRecordBatch] = []
    handed: list[HandedFiles] = []
    for member in members:
        request = member.request
        if isinstance(request, HandOverRequest):
            handed.append(request.handed)
        else:
            batch = next(read) if isinstance(request.batch, SentBatch) else request.batch
            if isinstance(batch, StratalogError):
                member.answer(batch, log_start_offset)
                continue
            batches.append(batch)
        kept.append(member)
    return AppendGroup(tuple(kept), tuple(batches), tuple(handed)) if kept else None
