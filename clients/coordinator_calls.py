"""How a client reaches coordinators of groups and transactions: by calls to the brokers of its cluster.

I/O: none of its own; the brokers answer from their threads. Each call is answered once: by the coordinator, or with
CoordinatorNotAvailableError when its broker is gone or has been silent for too long (Kafka: `request.timeout.ms`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, Self

from stratalog.clients.records import NO_COORDINATOR, OffsetAndMetadata
from stratalog.replication.requests.coordinators import CoordinatorType, FindCoordinatorRequest, FindCoordinatorResponse
from stratalog.replication.requests.groups import (
    NO_LEADER_EPOCH,
    JoinGroupRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from stratalog.server.bootstrap import FIND_TIMEOUT_MS, JOIN_GRACE_MS, BrokerFace, Cluster, RunningCluster
from stratalog.server.remote.connections.config import REQUEST_TIMEOUT_MS
from stratalog.storage import errors
from stratalog.storage.clock import Clock
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition

Answer = Callable[[object], None]
"""Called once with a response, the coordinator's broker id, or a StratalogError. From any thread; it does not block."""

RETRY_MS = 20
CALLED_FROM_ELSEWHERE = "A RemoteCluster calls the brokers of other processes."


class CoordinatorCalls(Protocol):
    """Requests to the coordinators of groups, or of transactional ids; nothing blocks."""

    def find(self, key: str, answer: Answer, /) -> None:
        """Answered with the broker id of the coordinator of a group or transactional id."""

    def send(self, broker_id: int, key: str, request: object, answer: Answer, /) -> None:
        """A request about one group or transactional id, to the broker that coordinates it."""

    def poll(self) -> None:
        """Answer for brokers that are gone."""


@dataclass(frozen=True, slots=True)
class _Open:
    """One call under way. The thread that removes it from the dictionary answers it."""

    face: BrokerFace
    broker_id: int
    deadline_ms: int
    answer: Answer


class InProcessCalls:
    """Calls broker objects; `request_timeout_ms` is how long one may take to answer.

    Raises BrokerNotAvailableError for a cluster that is only known by its metadata root: no broker can be called then.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        kind: CoordinatorType = CoordinatorType.GROUP,
    ) -> None:
        self._kind = kind
        self._what = "groups" if kind is CoordinatorType.GROUP else "transactions"
        if isinstance(cluster, str):
            raise errors.BrokerNotAvailableError(
                f"{self._what} are coordinated by brokers, and no broker of {cluster} can be called from this process: "
                f"give the running Cluster itself, or a RemoteCluster. {CALLED_FROM_ELSEWHERE}"
            )
        self._cluster: RunningCluster = cluster
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms
        self._silent = NO_COORDINATOR
        self._lock = threading.Lock()
        self._open: dict[int, _Open] = {}
        self._number = 0

    def find(self, key: str, answer: Answer) -> None:
        brokers = self._cluster.brokers()
        if not brokers:
            answer(errors.CoordinatorNotAvailableError("no broker can be called"))
            return
        broker_id = min(brokers, key=lambda each: (each == self._silent, each))
        limit_ms = min(FIND_TIMEOUT_MS, self._request_timeout_ms)
        receive = self._begin(broker_id, brokers[broker_id], limit_ms, lambda found: answer(_found(found)))
        brokers[broker_id].find_coordinator(FindCoordinatorRequest(self._kind, (key,)), receive)

    def send(self, broker_id: int, key: str, request: object, answer: Answer) -> None:
        face = self._cluster.brokers().get(broker_id)
        if face is not None:
            limit_ms = self._request_timeout_ms
            if isinstance(request, JoinGroupRequest):
                limit_ms = max(limit_ms, request.rebalance_timeout_ms + JOIN_GRACE_MS)
            face.coordinator(self._kind, key, request, self._begin(broker_id, face, limit_ms, answer))
        elif self._cluster.hosts(broker_id) or self._kind is CoordinatorType.TRANSACTION:
            # A transaction outlives a leadership that moves away and back: its producer retries until its time is over.
            answer(errors.CoordinatorNotAvailableError(f"{key}: broker {broker_id} is not running"))
        else:
            reason = f"{key}: its coordinator, broker {broker_id}, runs in another process. {CALLED_FROM_ELSEWHERE}"
            answer(errors.BrokerNotAvailableError(reason))

    def poll(self) -> None:
        with self._lock:
            if not self._open:
                return
        running, now_ms = self._cluster.brokers(), self._clock.monotonic_ms()
        with self._lock:
            lost = [
                (number, each, f"broker {each.broker_id} {'is gone' if is_gone else 'did not answer in time'}")
                for number, each in self._open.items()
                if (is_gone := running.get(each.broker_id) is not each.face) or now_ms >= each.deadline_ms
            ]
            for number, each, _ in lost:
                del self._open[number]
                self._silent = each.broker_id
        for _, each, why in lost:
            each.answer(errors.CoordinatorNotAvailableError(why))

    def _begin(self, broker_id: int, face: BrokerFace, limit_ms: int, answer: Answer) -> Answer:
        with self._lock:
            self._number += 1
            number = self._number
            self._open[number] = _Open(face, broker_id, self._clock.monotonic_ms() + limit_ms, answer)

        def receive(response: object) -> None:
            with self._lock:
                open_call = self._open.pop(number, None)
            if open_call is not None:
                open_call.answer(response)

        return receive


def _found(answer: object) -> object:
    if isinstance(answer, FindCoordinatorResponse):
        (coordinator,) = answer.coordinators
        return coordinator.node_id if coordinator.error is None else coordinator.error
    return answer


class PendingAnswer:
    """The answer to one request, once it has come; `wake` is called then, from any thread."""

    def __init__(self, wake: Callable[[], None] | None = None) -> None:
        self.answer: object = None
        self._wake = wake
        self._is_there = threading.Event()

    def is_there(self) -> bool:
        return self._is_there.is_set()

    def receive(self, answer: object) -> None:
        self.answer = answer
        self._is_there.set()
        if self._wake is not None:
            self._wake()

    def ask(self, calls: CoordinatorCalls, key: str, request: object, broker_id: int = NO_COORDINATOR) -> Self:
        """Send a request to the coordinator of `key`, which is looked up unless it is known: `broker_id`."""

        def found(answer: object) -> None:
            if isinstance(answer, int):
                calls.send(answer, key, request, self.receive)
            else:
                self.receive(answer)

        if broker_id == NO_COORDINATOR:
            calls.find(key, found)
        else:
            found(broker_id)
        return self

    def result(self, calls: CoordinatorCalls, clock: Clock, deadline_ms: int) -> object:
        """The response or error, waited for; RequestTimedOutError when neither has come by then."""
        while not self._is_there.wait(RETRY_MS / 1000):
            calls.poll()
            if clock.monotonic_ms() >= deadline_ms and not self.is_there():
                return errors.RequestTimedOutError("no answer from the coordinator")
        return self.answer


def ask(calls: CoordinatorCalls, group_id: str, request: object, clock: Clock, timeout_ms: int) -> object:
    """The response of a group's coordinator, looked up and asked again while it is moving or loading.

    Raises any other error that it answers with, RequestTimedOutError after `timeout_ms`.
    """
    deadline_ms = clock.monotonic_ms() + timeout_ms
    while True:
        answer = PendingAnswer().ask(calls, group_id, request).result(calls, clock, deadline_ms)
        if not isinstance(answer, StratalogError):
            return answer
        if not answer.retriable:
            raise answer
        left_ms = deadline_ms - clock.monotonic_ms()
        if left_ms <= 0:
            raise errors.RequestTimedOutError(
                f"group {group_id}: not answered within {timeout_ms} ms: {answer}"
            ) from answer
        clock.sleep_ms(min(RETRY_MS, left_ms))


def offset_rows(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> tuple[OffsetCommitRequestTopic, ...]:
    """Offsets as a commit request lists them; InvalidRequestError for a negative one."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for topic_partition, committed in offsets.items():
        if committed.offset < 0:
            raise errors.InvalidRequestError(f"{topic_partition}: Invalid offset: {committed.offset}")
        epoch = NO_LEADER_EPOCH if committed.leader_epoch is None else committed.leader_epoch
        row = OffsetCommitRequestPartition(topic_partition.partition, committed.offset, epoch, committed.metadata)
        by_topic.setdefault(topic_partition.topic, []).append(row)
    return tuple(OffsetCommitRequestTopic(topic, tuple(rows)) for topic, rows in by_topic.items())
