"""Calls to coordinators that are silent: each is answered all the same, and another broker is asked who coordinates."""

from __future__ import annotations

from collections.abc import Callable

from stratalog.clients.config import ProducerConfig
from stratalog.clients.coordinator_calls import InProcessCalls
from stratalog.clients.producer.transactions import TransactionSession
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.requests.coordinators import (
    Coordinator,
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from stratalog.replication.requests.groups import HeartbeatRequest, JoinGroupRequest
from stratalog.replication.requests.transactions import InitProducerIdResponse
from stratalog.server.bootstrap import FIND_TIMEOUT_MS, JOIN_GRACE_MS
from stratalog.storage.clock import SystemClock
from stratalog.storage.errors import CoordinatorNotAvailableError
from tests.storage.logs import FakeClock

TIMEOUT_MS = 5_000


class Face:
    """A broker that says that broker 2 coordinates everything, or nothing at all."""

    def __init__(self, *, is_silent: bool = False, answer: object = "done") -> None:
        self.is_silent = is_silent
        self.asked = 0
        self._answer = answer

    def find_coordinator(
        self, request: FindCoordinatorRequest, answer: Callable[[FindCoordinatorResponse], None]
    ) -> None:
        self.asked += 1
        if not self.is_silent:
            answer(FindCoordinatorResponse(tuple(Coordinator(key, 2) for key in request.coordinator_keys)))

    def coordinator(
        self, kind: CoordinatorType, key: str | int, request: object, answer: Callable[[object], None]
    ) -> None:
        if not self.is_silent:
            answer(self._answer)


class Faces:
    """A running cluster of these."""

    root = "memory:///metadata"

    def __init__(self, faces: dict[int, Face]) -> None:
        self.faces = faces

    def brokers(self) -> dict[int, Face]:
        return self.faces

    def hosts(self, broker_id: int) -> bool:
        return broker_id in self.faces


def test_whoever_is_silent_is_passed_over_when_a_coordinator_is_looked_for() -> None:
    clock, answers = FakeClock(), []
    calls = InProcessCalls(Faces({1: Face(is_silent=True), 2: Face()}), clock, TIMEOUT_MS)
    calls.find("g", answers.append)
    calls.poll()
    assert answers == []
    clock.sleep_ms(FIND_TIMEOUT_MS)
    calls.poll()
    calls.find("g", answers.append)
    assert [str(answers[0]), answers[1:]] == ["broker 1 did not answer in time", [2]]


def test_a_request_is_answered_after_the_request_timeout_and_a_join_after_that_of_its_rebalance() -> None:
    clock, answers = FakeClock(), []
    calls = InProcessCalls(Faces({1: Face(is_silent=True)}), clock, TIMEOUT_MS)
    calls.send(1, "g", HeartbeatRequest("g", 1, "m"), lambda answer: answers.append(("heartbeat", type(answer))))
    join = JoinGroupRequest("g", 3_000, 9_000, "m", None, "consumer", ())
    calls.send(1, "g", join, lambda answer: answers.append(("join", type(answer))))
    for waited_ms in (TIMEOUT_MS - 1, 1, 9_000 + JOIN_GRACE_MS - TIMEOUT_MS - 1):
        clock.sleep_ms(waited_ms)
        calls.poll()
    assert answers == [("heartbeat", CoordinatorNotAvailableError)]
    clock.sleep_ms(1)
    calls.poll()
    assert answers[1:] == [("join", CoordinatorNotAvailableError)]


def test_a_call_to_a_broker_that_is_gone_is_answered_at_once() -> None:
    cluster, answers = Faces({1: Face(is_silent=True)}), []
    calls = InProcessCalls(cluster, FakeClock(), TIMEOUT_MS)
    calls.send(1, "g", HeartbeatRequest("g", 1, "m"), answers.append)
    cluster.faces = {1: Face()}
    calls.poll()
    assert [str(answer) for answer in answers] == ["broker 1 is gone"]


def test_a_transactional_producer_passes_over_a_broker_that_is_silent() -> None:
    """Broker 1 stands still; 2 is the coordinator."""
    cluster = Faces({1: Face(is_silent=True), 2: Face(answer=InitProducerIdResponse(7, 0))})
    config = ProducerConfig.from_settings({"transactional.id": "t", "request.timeout.ms": 200}, {})
    session = TransactionSession(cluster, config, SystemClock(), ClusterImage)
    session.init(10_000)
    session.transactions.begin()
    assert (session.transactions.producer_id, cluster.faces[1].asked) == (7, 1)


def test_a_transactional_producer_does_not_wait_for_a_coordinator_that_is_gone() -> None:
    cluster = Faces({1: Face(), 2: Face(is_silent=True)})
    config = ProducerConfig.from_settings({"transactional.id": "t"}, {})
    session = TransactionSession(cluster, config, SystemClock(), ClusterImage)
    heir = Face(answer=InitProducerIdResponse(8, 0))
    calls = iter(range(100))
    brokers = cluster.faces

    def looked() -> dict[int, Face]:
        return brokers if next(calls) < 3 else {**brokers, 2: heir}

    cluster.brokers = looked  # type: ignore[method-assign]
    session.init(10_000)
    assert session.transactions.producer_id == 8


def test_a_transactional_producer_waits_for_a_coordinator_that_another_process_leads_meanwhile() -> None:
    """Broker 2 is none of this process; it leads for a moment, and then a broker of this process has its place."""
    cluster = Faces({1: Face()})
    config = ProducerConfig.from_settings({"transactional.id": "t"}, {})
    session = TransactionSession(cluster, config, SystemClock(), ClusterImage)
    calls = iter(range(100))
    first, both = cluster.faces, {1: cluster.faces[1], 2: Face(answer=InitProducerIdResponse(9, 0))}
    cluster.brokers = lambda: first if next(calls) < 6 else both  # type: ignore[method-assign]
    session.init(10_000)
    assert session.transactions.producer_id == 9
