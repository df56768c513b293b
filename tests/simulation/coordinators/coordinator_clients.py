"""Clients of Kafka's own coordinators in a simulated cluster: a request reaches its coordinator, or an earlier one.

A request may be lost with the process that received it, may arrive a second time much later, and may be sent to an
earlier coordinator: a zombie, or a broker that does not know the new leader yet.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

from stratalog.replication.broker.broker import Broker
from stratalog.replication.coordinator.runtime.find_coordinator import coordinator_partition
from stratalog.replication.metadata.log import open_metadata
from stratalog.replication.requests.coordinators import CoordinatorType, FindCoordinatorRequest
from stratalog.replication.requests.groups import (
    OffsetCommitResponse,
    OffsetFetchResponse,
    TxnOffsetCommitResponse,
)
from stratalog.replication.requests.transactions import AddPartitionsToTxnResponse
from stratalog.storage.errors import StratalogError
from tests.simulation.clients import Client
from tests.simulation.cluster import METADATA_ROOT, SimCluster
from tests.simulation.scheduler import SimEvent

GROUP, TRANSACTION = CoordinatorType.GROUP, CoordinatorType.TRANSACTION
TRIES = 30
ANSWER_SECONDS_MAX = 3
LATE_MS_MAX = 2_500
TO_ONE_OF_BEFORE = 0.15
"""The probability that a request is sent to an earlier coordinator."""


class CoordinatorClient(Client):
    """`late`: the probability that a request arrives a second time, up to 2.5 s later."""

    def __init__(self, sim: SimCluster, name: str, late: float = 0.0) -> None:
        super().__init__(sim)
        self.name = name
        self._late = late
        self._asked: dict[tuple[CoordinatorType, str], list[Broker]] = {}

    @property
    def goes_on(self) -> bool:
        return self.sim.scheduler.faults.is_on

    def rest(self, ms_min: int, ms_max: int) -> None:
        self.sim.clock.sleep_ms(self.random.randrange(ms_min, ms_max))

    def ask(
        self, kind: CoordinatorType, key: str, request: object, *, is_repeated: bool = True
    ) -> tuple[object, StratalogError | None]:
        """Send until an answer is not retriable: (answer, its error). (None, None): the outcome is unknown.
        `is_repeated` False: also if one try has no answer."""
        for _ in range(TRIES):
            answer = self._answer(kind, key, request)
            if answer is None and not is_repeated:
                return None, None
            error = error_of(answer)
            if answer is not None and (error is None or not error.retriable):
                return answer, error
            if not self.goes_on:
                break
            self.rest(5, 60)
        return None, None

    def _answer(self, kind: CoordinatorType, key: str, request: object) -> object:
        """One try; None without an answer."""
        broker = self.coordinator(kind, key)
        if broker is None:
            return None
        answers: list[object] = []
        event = SimEvent(self.sim.scheduler)

        def take(answer: object) -> None:
            answers.append(answer)
            event.set()

        self.hand(broker, kind, key, request, take)
        if self._late and self.goes_on and self.random.random() < self._late:
            self._again_later(kind, key, request)
        event.wait(ANSWER_SECONDS_MAX)
        self.sim.log_event(f"{self.name}: {request} of {broker.broker_id}/{broker.broker_epoch}: {answers}")
        return answers[0] if answers else None

    def _again_later(self, kind: CoordinatorType, key: str, request: object) -> None:
        delay_ms = self.random.randrange(20, LATE_MS_MAX)
        late = copy(self)
        late.metadata = open_metadata(self.sim, METADATA_ROOT, self.sim.clock, self.sim.ids)  # a fold is one actor's
        name = f"late {self.name}"
        self.sim.scheduler.spawn(name, f"client-{self.name}", lambda: late.deliver(kind, key, request), delay_ms)

    def deliver(self, kind: CoordinatorType, key: str, request: object) -> None:
        """A late request, without a client that waits for its answer."""
        broker = self.coordinator(kind, key)
        if broker is not None:
            self.sim.log_event(f"{self.name}: late {request} to {broker.broker_id}/{broker.broker_epoch}")
            self.hand(broker, kind, key, request, lambda _answer: None)

    def hand(
        self, broker: Broker, kind: CoordinatorType, key: str, request: object, answer: Callable[[object], None]
    ) -> None:
        """A broker's handling of a request."""
        broker.calls.coordinator(kind, key, request, answer)

    def coordinator(self, kind: CoordinatorType, key: str) -> Broker | None:
        """The coordinator's process; None if unknown. The first call creates the topic."""
        self.partitions()
        asked = self._asked.setdefault((kind, key), [])
        if self.goes_on and asked and self.random.random() < TO_ONE_OF_BEFORE:
            earlier = self.random.choice(asked)
            if self._is_up(earlier):
                return earlier
        partition = coordinator_partition(self.metadata.image, kind, key)
        if partition is None:
            self._find(kind, key)
            return None
        processes = self.processes(self.metadata.image.partitions[partition].leader)
        if not processes:
            return None
        found = processes[0] if self.random.random() < 0.9 else self.random.choice(processes)
        if found not in asked:
            asked.append(found)
        return found

    def processes(self, broker_id: int) -> list[Broker]:
        """The processes of a host: the newest, and perhaps an earlier one that hangs."""
        host = self.sim.hosts.get(broker_id)
        found = [] if host is None else [each for each in (host.broker, *host.zombies) if each is not None]
        return found if self.goes_on else [each for each in found if each.stopped_by is None]

    def _is_up(self, broker: Broker) -> bool:
        return any(broker in (host.broker, *host.zombies) for host in self.sim.hosts.values())

    def _find(self, kind: CoordinatorType, key: str) -> None:
        brokers = [host.broker for host in self.sim.hosts.values() if host.broker is not None]
        if brokers:
            self.random.choice(brokers).calls.find_coordinator(FindCoordinatorRequest(kind, (key,)), lambda _: None)


def error_of(answer: object) -> StratalogError | None:
    """The first error in an answer, at whatever depth."""
    if answer is None or isinstance(answer, StratalogError):
        return answer
    if isinstance(answer, OffsetFetchResponse):
        group = answer.groups[0]
        return group.error or next((p.error for t in group.topics for p in t.partitions if p.error), None)
    if isinstance(answer, OffsetCommitResponse | TxnOffsetCommitResponse):
        return next((p.error for topic in answer.topics for p in topic.partitions if p.error), None)
    if isinstance(answer, AddPartitionsToTxnResponse):
        return next((error for _, error in answer.results if error), None)
    error: StratalogError | None = getattr(answer, "error", None)
    return error
