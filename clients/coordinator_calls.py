"""How a client reaches group coordinators: by calls to the brokers of its own process.

I/O: none of its own; the brokers answer from their threads. Each call is answered once: by the coordinator, or with
CoordinatorNotAvailableError when its broker is gone or has been silent for too long (Kafka: `request.timeout.ms`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from stratalog.clients.bootstrap import BrokerFace, Cluster, RunningCluster
from stratalog.replication.requests.coordinators import CoordinatorType, FindCoordinatorRequest, FindCoordinatorResponse
from stratalog.replication.requests.groups import JoinGroupRequest
from stratalog.storage.clock import Clock
from stratalog.storage.errors import (
    BrokerNotAvailableError,
    CoordinatorNotAvailableError,
    RequestTimedOutError,
    StratalogError,
)

Answer = Callable[[object], None]
"""Told once: a response value, the coordinator's broker id, or a StratalogError. From any thread; it does not block."""

RETRY_MS = 20
REQUEST_TIMEOUT_MS = 30_000
FIND_TIMEOUT_MS = 1_000
"""Whoever does not say who coordinates is soon passed over: any other broker knows it as well."""
JOIN_GRACE_MS = 5_000
"""A JoinGroup waits for all members, and a little longer (Kafka's JOIN_GROUP_TIMEOUT_LAPSE)."""


class CoordinatorCalls(Protocol):
    """Requests to the coordinators of groups; nothing blocks."""

    def find(self, group_id: str, answer: Answer) -> None:
        """Answered with the broker id of the group's coordinator."""
        ...

    def send(self, broker_id: int, group_id: str, request: object, answer: Answer) -> None:
        """A request about one group, to the broker that coordinates it."""
        ...

    def poll(self) -> None:
        """Answer for brokers that are gone."""
        ...


@dataclass(frozen=True, slots=True)
class _Open:
    """One call under way. Whoever takes it out of the dictionary answers it."""

    face: BrokerFace
    broker_id: int
    deadline_ms: int
    answer: Answer


class InProcessCalls:
    """Calls broker objects; `request_timeout_ms` is how long one may take to answer.

    Raises BrokerNotAvailableError for a cluster that is only known by its metadata root: no broker can be called then.
    """

    def __init__(self, cluster: Cluster, clock: Clock, request_timeout_ms: int = REQUEST_TIMEOUT_MS) -> None:
        if isinstance(cluster, str):
            raise BrokerNotAvailableError(
                f"groups are coordinated by brokers, and no broker of {cluster} can be called from this process: give "
                "the running Cluster itself. Groups across processes need the Kafka endpoint, which does not exist yet."
            )
        self._cluster: RunningCluster = cluster
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms
        self._silent = -1
        self._lock = threading.Lock()
        self._open: dict[int, _Open] = {}
        self._number = 0

    def find(self, group_id: str, answer: Answer) -> None:
        brokers = self._cluster.brokers()
        if not brokers:
            answer(CoordinatorNotAvailableError("no broker is running in this process"))
            return
        broker_id = min(brokers, key=lambda each: (each == self._silent, each))
        request = FindCoordinatorRequest(CoordinatorType.GROUP, (group_id,))
        limit_ms = min(FIND_TIMEOUT_MS, self._request_timeout_ms)
        told = self._begin(broker_id, brokers[broker_id], limit_ms, lambda found: answer(_found(found)))
        brokers[broker_id].find_coordinator(request, told)

    def send(self, broker_id: int, group_id: str, request: object, answer: Answer) -> None:
        face = self._cluster.brokers().get(broker_id)
        if face is None and not self._cluster.hosts(broker_id):
            answer(
                BrokerNotAvailableError(
                    f"group {group_id}: its coordinator, broker {broker_id}, runs in another process. Groups across "
                    "processes need the Kafka endpoint, which does not exist yet."
                )
            )
        elif face is None:
            answer(CoordinatorNotAvailableError(f"group {group_id}: broker {broker_id} is not running"))
        else:
            limit_ms = self._request_timeout_ms
            if isinstance(request, JoinGroupRequest):
                limit_ms = max(limit_ms, request.rebalance_timeout_ms + JOIN_GRACE_MS)
            face.coordinator(CoordinatorType.GROUP, group_id, request, self._begin(broker_id, face, limit_ms, answer))

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
            each.answer(CoordinatorNotAvailableError(why))

    def _begin(self, broker_id: int, face: BrokerFace, limit_ms: int, answer: Answer) -> Answer:
        with self._lock:
            self._number += 1
            number = self._number
            self._open[number] = _Open(face, broker_id, self._clock.monotonic_ms() + limit_ms, answer)

        def told(response: object) -> None:
            with self._lock:
                taken = self._open.pop(number, None)
            if taken is not None:
                taken.answer(response)

        return told


def _found(answer: object) -> object:
    if isinstance(answer, FindCoordinatorResponse):
        (coordinator,) = answer.coordinators
        return coordinator.node_id if coordinator.error is None else coordinator.error
    return answer


def ask(calls: CoordinatorCalls, group_id: str, request: object, clock: Clock, timeout_ms: int) -> object:
    """The coordinator's response, looked up and asked again while it is moving or loading.

    Raises any other error that it answers with, RequestTimedOutError after `timeout_ms`.
    """
    deadline_ms = clock.monotonic_ms() + timeout_ms
    while True:
        answer = _Asked(calls, group_id, request).result(clock, deadline_ms)
        if not isinstance(answer, StratalogError):
            return answer
        if not answer.retriable:
            raise answer
        left_ms = deadline_ms - clock.monotonic_ms()
        if left_ms <= 0:
            raise RequestTimedOutError(f"group {group_id}: not answered within {timeout_ms} ms: {answer}") from answer
        clock.sleep_ms(min(RETRY_MS, left_ms))


class _Asked:
    """One look-up and one request behind it."""

    def __init__(self, calls: CoordinatorCalls, group_id: str, request: object) -> None:
        self._calls = calls
        self._group_id = group_id
        self._request = request
        self._answer: object = None
        self._is_done = threading.Event()
        calls.find(group_id, self._found)

    def _found(self, answer: object) -> None:
        if isinstance(answer, int):
            self._calls.send(answer, self._group_id, self._request, self._told)
        else:
            self._told(answer)

    def _told(self, answer: object) -> None:
        self._answer = answer
        self._is_done.set()

    def result(self, clock: Clock, deadline_ms: int) -> object:
        """The response or error; RequestTimedOutError when neither has come by then."""
        while not self._is_done.wait(RETRY_MS / 1000):
            self._calls.poll()
            if clock.monotonic_ms() >= deadline_ms and not self._is_done.is_set():
                return RequestTimedOutError(f"no answer from the coordinator of group {self._group_id}")
        return self._answer
