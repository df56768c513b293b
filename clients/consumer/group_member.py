"""A consumer in its group: drives the membership, keeps it alive in the background, commits and reads offsets.

I/O: calls coordinators and runs a thread for heartbeats. Everything but heartbeats happens on the application's
thread, within `Consumer.poll` and similar calls. Answers come from brokers' threads and are only queued there.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count

from stratalog.clients.client_view import ClientView
from stratalog.clients.config import ConsumerConfig
from stratalog.clients.consumer.assignors.registry import ASSIGNORS
from stratalog.clients.consumer.classic_membership import ClassicMembership
from stratalog.clients.consumer.membership import (
    FindCoordinator,
    ListenerCall,
    ListenerCallKind,
    MembershipConfig,
    Send,
)
from stratalog.clients.consumer.modern_membership import ModernMembership
from stratalog.clients.consumer.offsets import OffsetFetch, Offsets, as_error, commit_error, commit_request
from stratalog.clients.consumer.rebalance_listener import ConsumerRebalanceListener
from stratalog.clients.coordinator_calls import RETRY_MS, CoordinatorCalls, PendingAnswer, ask
from stratalog.clients.records import NO_COORDINATOR, ConsumerGroupMetadata, Generation, OffsetAndMetadata
from stratalog.replication.requests.consumer_groups import (
    JOIN_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from stratalog.replication.requests.groups import HeartbeatResponse, LeaveGroupRequest, OffsetCommitResponse
from stratalog.storage import errors
from stratalog.storage.clock import Clock
from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.wakeup import Wakeup
from stratalog.storage.records import TopicPartition

CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], StratalogError | None], None]
"""Called after an asynchronous commit, on the application's thread, with the offsets and an error or None."""

HEARTBEAT_WAIT_MS_MAX = 1_000

_NUMBERS = count(1)
_log = line_logger(__name__)


@dataclass(frozen=True, slots=True)
class ConsumerHooks:
    """What a group member calls of its consumer.

    own       read exactly these partitions from now on
    consumed  the positions to commit: of each partition whose position is decided
    view      the consumer's metadata
    wake      end the consumer's wait, from any thread: an answer is there
    """

    own: Callable[[frozenset[TopicPartition]], None]
    consumed: Callable[[], dict[TopicPartition, OffsetAndMetadata]]
    view: ClientView
    wake: Callable[[], None]


@dataclass(slots=True)
class _Commit:
    """An asynchronous commit under way; `pending` is the error of one that could not be sent."""

    offsets: Offsets
    sent: Generation
    callback: CommitCallback | None
    pending: PendingAnswer | StratalogError


class GroupMembership:
    """One consumer's part in group `config.group_id`. Not thread-safe, as the consumer itself.

    calls      reaches the coordinators
    member_id  for the modern protocol, where the client makes it
    """

    def __init__(
        self, config: ConsumerConfig, calls: CoordinatorCalls, clock: Clock, hooks: ConsumerHooks, member_id: str = ""
    ) -> None:
        self.group_id = config.group_id
        self._config = config
        self._calls = calls
        self._clock = clock
        self._hooks = hooks
        self._listener = ConsumerRebalanceListener()
        self._lock = threading.RLock()
        self._membership = _membership(config, hooks, member_id)
        self._answers: deque[tuple[int, object]] = deque()
        self._commits: deque[_Commit] = deque()
        self.offsets = OffsetFetch(config, calls, clock, hooks.wake)
        self._auto_commit_ms = clock.monotonic_ms() + config.auto_commit_interval_ms
        self._thread: threading.Thread | None = None
        self._heartbeat = Wakeup(clock)
        self._leaves: dict[int, object] = {}
        self._failed_leaves: deque[object] = deque()
        self._is_closed = False

    # -- membership -----------------------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        return self._membership.is_subscribed

    @property
    def is_settled(self) -> bool:
        """Whether the application has what the group assigned to it; not while it is known to rebalance."""
        with self._lock:
            return self._membership.is_settled

    def subscription(self) -> frozenset[str]:
        return self._membership.topics

    def metadata(self) -> ConsumerGroupMetadata:
        """The member and generation of the partitions that this consumer has, as in Kafka (ConsumerCoordinator).

        With a generation that the background thread joined since then, offsets of earlier records would be accepted.
        """
        with self._lock:
            generation = self._membership.assigned
        instance = self._config.group_instance_id or None
        return ConsumerGroupMetadata(self.group_id, generation.generation_id, generation.member_id, instance)

    def subscribe(
        self, topics: frozenset[str], pattern: re.Pattern[str] | None, listener: ConsumerRebalanceListener | None
    ) -> None:
        """Be in the group for these topics, from the next `poll` on."""
        if listener is not None:
            self._listener = listener
        with self._lock:
            self._membership.subscribe(topics, pattern)
        self._start()

    def subscribe_to_regex(self, regex: str, listener: ConsumerRebalanceListener | None) -> None:
        """Be in the group for topics that its coordinator matches. UnsupportedVersionError in the classic protocol."""
        membership = self._membership
        if not isinstance(membership, ModernMembership):
            raise errors.UnsupportedVersionError(
                "Subscribe to RE2/J regex is not supported when using the CLASSIC protocol "
                "defined in config group.protocol"
            )
        if listener is not None:
            self._listener = listener
        with self._lock:
            membership.subscribe_to_regex(regex)
        self._start()

    def _start(self) -> None:
        if self._thread is None:
            name = f"heartbeat-{self.group_id}"
            self._thread = threading.Thread(target=self._keep_alive, name=name, daemon=True)
            self._thread.start()

    def resubscribe(self, topics: frozenset[str], pattern: re.Pattern[str]) -> None:
        """Subscribe to the topics that the pattern matches now."""
        with self._lock:
            self._membership.subscribe(topics, pattern)

    def rejoin(self, reason: str) -> None:
        """Join again with the next poll."""
        with self._lock:
            self._membership.request_rejoin(reason)

    def poll(self) -> None:
        """Do what is due on the application's thread: listener calls, commits, joining. Does not wait.

        Raises what the listener raises, and errors that no retry helps against: FencedInstanceIdError,
        GroupMaxSizeReachedError, InconsistentGroupProtocolError, GroupAuthorizationFailedError, …
        """
        self._complete_commits()
        self._calls.poll()
        if self.is_subscribed:
            while self._step():
                pass
        self._auto_commit()

    def _step(self) -> bool:
        """One step of the membership; True when there was something to do."""
        with self._lock:
            self._handle_answers()
            step = self._membership.step(self._clock.monotonic_ms(), is_polling=True)
            self._send(step.sends)
            failure = self._membership.take_failure()
        if failure is not None:
            raise failure
        if step.call is not None:
            self._perform(step.call)
        return step.call is not None or bool(step.sends)

    def _perform(self, call: ListenerCall) -> None:
        """Call the listener. The membership continues even if that raises, as in Kafka."""
        if call.kind == ListenerCallKind.ASSIGNED:
            self._performed(call)
            self._auto_commit_ms = self._clock.monotonic_ms() + self._config.auto_commit_interval_ms
            self._listener.on_partitions_assigned(sorted(call.partitions))
            return
        try:
            if call.kind == ListenerCallKind.LOST:
                self._listener.on_partitions_lost(sorted(call.partitions))
            else:
                self._commit_consumed(self._config.default_api_timeout_ms)
                self._listener.on_partitions_revoked(sorted(call.partitions))
        finally:
            self._performed(call)

    def _performed(self, call: ListenerCall) -> None:
        with self._lock:
            self._membership.performed(call)
        self._hooks.own(call.owned)
        self.offsets.forget()

    def next_due_ms(self) -> int | None:
        """When `poll` has something to do by itself, on the monotonic clock."""
        with self._lock:
            due = self._membership.next_due_ms(is_polling=True)
        auto = self._auto_commit_ms if self._config.enable_auto_commit else None
        return min((each for each in (due, auto) if each is not None), default=None)

    def unsubscribe(self, reason: str = "the consumer unsubscribed from all topics") -> None:
        """Revoke everything and leave the group; a static member only stops its heartbeats."""
        with self._lock:
            call = self._membership.leaving()
        try:
            if call is not None:
                self._perform_leaving(call)
        finally:
            with self._lock:
                sends = self._membership.leave(reason)
                self._leaves |= {send.token: send.request for send in sends if _is_leave(send.request)}
                self._send(sends)
                self._membership.subscribe(frozenset())
            self._hooks.own(frozenset())

    def _perform_leaving(self, call: ListenerCall) -> None:
        if call.kind == ListenerCallKind.LOST:
            self._listener.on_partitions_lost(sorted(call.partitions))
        else:
            self._listener.on_partitions_revoked(sorted(call.partitions))
        self._performed(call)

    def close(self, timeout_ms: int) -> None:
        """Commit what was consumed (`enable.auto.commit`) and leave; waits for the answers, `timeout_ms` at most.

        A request to leave that no coordinator received is sent again. Kafka's consumer sends it once, and not at all
        while it does not know its coordinator; its partitions then have no owner until its session expires.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        try:
            self._commit_consumed(timeout_ms)
            self._await_commits(deadline_ms)
            if self.is_subscribed:
                self.unsubscribe("the consumer is being closed")
            self._await_leaves(deadline_ms)
        finally:
            self._is_closed = True
            self._heartbeat.wake()
            if self._thread is not None and self._thread is not threading.current_thread():
                self._thread.join()
            self._heartbeat.close()

    def _await_leaves(self, deadline_ms: int) -> None:
        while self._leaves and self._clock.monotonic_ms() < deadline_ms:
            self._calls.poll()
            self._clock.sleep_ms(1)
        while self._failed_leaves and (left_ms := deadline_ms - self._clock.monotonic_ms()) > 0:
            _asked(self._calls, self.group_id, self._failed_leaves.popleft(), self._clock, left_ms)

    # -- background -----------------------------------------------------------------------------------------

    def _keep_alive(self) -> None:
        while not self._is_closed:
            self._calls.poll()
            with self._lock:
                self._handle_answers()
                now_ms = self._clock.monotonic_ms()
                self._send(self._membership.step(now_ms, is_polling=False).sends)
                due_ms = self._membership.next_due_ms(is_polling=False)
            wait_ms = HEARTBEAT_WAIT_MS_MAX if due_ms is None else due_ms - now_ms
            self._heartbeat.wait_ms(max(0, min(wait_ms, HEARTBEAT_WAIT_MS_MAX)))

    def _send(self, sends: Iterable[Send]) -> None:
        for send in sends:
            answer = partial(self._answered, send.token)
            if isinstance(send.request, FindCoordinator):
                self._calls.find(self.group_id, answer)
            elif send.broker_id == NO_COORDINATOR:
                answer(errors.CoordinatorNotAvailableError(f"group {self.group_id}: its coordinator is not known"))
            else:
                self._calls.send(send.broker_id, self.group_id, send.request, answer)

    def _answered(self, token: int, answer: object) -> None:
        self._answers.append((token, answer))
        leave = self._leaves.get(token)
        if leave is not None and isinstance(answer, StratalogError) and answer.retriable:
            self._failed_leaves.append(leave)  # before it is removed below: `close` waits until none is left there
        self._leaves.pop(token, None)
        if not self._is_closed:
            self._heartbeat.wake()
            if not _changes_nothing(answer):
                self._hooks.wake()

    def _handle_answers(self) -> None:
        while self._answers:
            self._membership.answered(*self._answers.popleft(), self._clock.monotonic_ms())

    # -- commits --------------------------------------------------------------------------------------------

    def commit_sync(self, offsets: Offsets, timeout_ms: int, *, waits_for_topics: bool = True) -> None:
        """Commit, trying again while that can help; without `waits_for_topics` not for a topic to be there.

        Raises CommitFailedError (not in the group any more), RebalanceInProgressError (poll first),
        FencedInstanceIdError, OffsetMetadataTooLargeError, …, RequestTimedOutError after `timeout_ms`.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        self._complete_commits()
        while offsets:
            sent = self._identity()
            request = commit_request(self.group_id, offsets, sent, self._instance_id)
            left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
            error = self._judged(_asked(self._calls, self.group_id, request, self._clock, left_ms), sent)
            if error is None:
                break
            if isinstance(error, errors.UnknownTopicOrPartitionError) and not waits_for_topics:
                raise error
            # after a stale epoch the next heartbeat brings a new one
            if not error.retriable and not isinstance(error, errors.StaleMemberEpochError):
                raise error
            if self._clock.monotonic_ms() >= deadline_ms:
                what = f"Timeout of {timeout_ms}ms expired before successfully committing offsets {_shown(offsets)}"
                raise errors.RequestTimedOutError(f"{what}: {error}") from error
            self._clock.sleep_ms(RETRY_MS)
        self._complete_commits()

    def commit_async(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        """Send a commit; `callback` is called within a later `poll`, commit or `close`, in the order of sending."""
        self._complete_commits()
        try:
            sent = self._identity()
            request = commit_request(self.group_id, offsets, sent, self._instance_id)
        except StratalogError as reason:
            self._commits.append(_Commit(offsets, Generation(), callback, reason))
            return
        pending = PendingAnswer(self._wake)
        self._commits.append(_Commit(offsets, sent, callback, pending))
        if offsets:
            pending.ask(self._calls, self.group_id, request, self._membership.coordinator)
        else:
            pending.receive(OffsetCommitResponse())

    def _wake(self) -> None:
        if not self._is_closed:
            self._hooks.wake()

    def _complete_commits(self) -> None:
        """Call back for commits that were answered, oldest first."""
        while self._commits:
            pending = self._commits[0].pending
            if isinstance(pending, PendingAnswer) and not pending.is_there():
                return
            commit = self._commits.popleft()
            error = self._judged(pending.answer, commit.sent) if isinstance(pending, PendingAnswer) else pending
            if commit.callback is not None:
                commit.callback(commit.offsets, error)
            elif error is not None:
                _log.error("Offset commit with offsets %s failed: %s", _shown(commit.offsets), error)
            if isinstance(error, errors.FencedInstanceIdError):
                raise error

    def _await_commits(self, deadline_ms: int) -> None:
        while self._commits and self._clock.monotonic_ms() < deadline_ms:
            self._complete_commits()
            if self._commits:
                self._calls.poll()
                self._clock.sleep_ms(1)

    def _identity(self) -> Generation:
        with self._lock:
            return self._membership.identity_for_commit() if self.is_subscribed else Generation()

    @property
    def _instance_id(self) -> str | None:
        return (self._config.group_instance_id or None) if self.is_subscribed else None

    def _judged(self, answer: object, sent: Generation) -> StratalogError | None:
        error = commit_error(answer) if isinstance(answer, OffsetCommitResponse) else as_error(answer)
        if error is None or not self.is_subscribed:
            return error
        with self._lock:
            return self._membership.commit_answered(error, sent)

    def _auto_commit(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if not self._config.enable_auto_commit or now_ms < self._auto_commit_ms:
            return
        self._auto_commit_ms = now_ms + self._config.auto_commit_interval_ms
        consumed = self._hooks.consumed()
        if consumed:
            self.commit_async(consumed, self._auto_committed)

    def _auto_committed(self, _: Offsets, error: StratalogError | None) -> None:
        """Retry soon after a retriable error; others show with the next rebalance, as in Kafka."""
        if error is not None and error.retriable:
            self._auto_commit_ms = self._clock.monotonic_ms() + self._config.retry_backoff_ms

    def _commit_consumed(self, timeout_ms: int) -> None:
        """The auto-commit before partitions are revoked. If it fails, the next owner reads some records again.

        A topic that is deleted meanwhile is not waited for: it may never come back, and one that is created again has
        other records at these offsets.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while self._config.enable_auto_commit and (consumed := self._hooks.consumed()):
            try:
                left_ms = deadline_ms - self._clock.monotonic_ms()
                self.commit_sync(consumed, left_ms, waits_for_topics=False)
            except errors.UnknownTopicOrPartitionError:
                self._hooks.view.refresh()
                if self._clock.monotonic_ms() < deadline_ms:
                    self._clock.sleep_ms(RETRY_MS)
                    continue
            except errors.FencedInstanceIdError:
                raise
            except StratalogError:
                pass
            return


def _changes_nothing(answer: object) -> bool:
    """Whether the application's thread need not wake for this answer to a heartbeat."""
    if isinstance(answer, ConsumerGroupHeartbeatResponse):
        return answer.error is None and answer.assignment is None
    return isinstance(answer, HeartbeatResponse) and answer.error is None


def _is_leave(request: object) -> bool:
    if isinstance(request, ConsumerGroupHeartbeatRequest):
        return request.member_epoch < JOIN_EPOCH
    return isinstance(request, LeaveGroupRequest)


def _membership(config: ConsumerConfig, hooks: ConsumerHooks, member_id: str) -> ClassicMembership | ModernMembership:
    """The membership of a consumer. Kafka's default client id: `consumer-<group>-<number or group.instance.id>`."""
    client_id = config.client_id or f"consumer-{config.group_id}-{config.group_instance_id or next(_NUMBERS)}"
    chosen = MembershipConfig(
        config.group_id,
        config.group_instance_id or None,
        client_id,
        config.session_timeout_ms,
        config.heartbeat_interval_ms,
        config.max_poll_interval_ms,
        config.retry_backoff_ms,
        config.client_rack or None,
        config.group_remote_assignor or None,
    )
    if config.is_modern:
        return ModernMembership(chosen, member_id, hooks.view.topic_name)
    assignors = [ASSIGNORS[name] for name in config.partition_assignment_strategy]
    return ClassicMembership(chosen, assignors, hooks.view.partition_count, hooks.view.partition_racks)


def _asked(calls: CoordinatorCalls, group_id: str, request: object, clock: Clock, timeout_ms: int) -> object:
    try:
        return ask(calls, group_id, request, clock, timeout_ms)
    except StratalogError as reason:
        return reason


def _shown(offsets: Offsets) -> str:
    return ", ".join(f"{topic_partition}={committed.offset}" for topic_partition, committed in sorted(offsets.items()))
