"""A processor that commits a group's offsets in transactions, in a simulated cluster with its real coordinators.

CommittedOnce  after a transaction was ended, the group's stable offset is that of the newest committed transaction:
               never one of an aborted transaction, never an older one. Of an end without an answer either may hold,
               for ever.
"""

from __future__ import annotations

from typing import Any, TypeVar

from replication.coordinator_requests import FindCoordinatorRequest
from replication.coordinator_shard import CoordinatorType
from replication.find_coordinator import coordinator_partition
from replication.group_requests import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from replication.transaction_requests import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from storage.errors import StratalogError
from tests.simulation.clients import Client
from tests.simulation.cluster import SimCluster
from tests.simulation.invariants import Violation
from tests.simulation.scheduler import SimEvent

GROUP, TRANSACTION = CoordinatorType.GROUP, CoordinatorType.TRANSACTION
TRIES = 40
Answer = TypeVar("Answer")


class Processor(Client):
    """One transactional id, one group. `possible`: what the stable offset may be."""

    def __init__(self, sim: SimCluster, name: str) -> None:
        super().__init__(sim)
        self.name = name
        self.possible = {-1}
        self.ended = 0
        self._offset = 0

    def run(self) -> None:
        while self.sim.scheduler.faults.is_on:
            producer = self._ask(TRANSACTION, InitProducerIdRequest(self.name, 2_000), InitProducerIdResponse)
            while producer is not None and self.sim.scheduler.faults.is_on:
                if not self._transact(producer):
                    break
                self._check()
            self.sim.clock.sleep_ms(self.random.randrange(5, 100))

    def _transact(self, producer: InitProducerIdResponse) -> bool:
        """One transaction; False when the producer has to begin anew."""
        own = self.name, producer.producer_id, producer.producer_epoch
        offset, self._offset = self._offset, self._offset + 1
        partition = coordinator_partition(self.metadata.image, GROUP, self.name)
        if partition is None:
            self._fetch()
            return True
        added = self._ask(TRANSACTION, AddOffsetsToTxnRequest(*own, self.name, partition), AddOffsetsToTxnResponse)
        if added is None:
            return False
        topic = OffsetCommitRequestTopic("t", (OffsetCommitRequestPartition(0, offset),))
        request = TxnOffsetCommitRequest(self.name, self.name, own[1], own[2], (topic,))
        committed = self._ask(GROUP, request, TxnOffsetCommitResponse)
        if committed is None:
            return False
        is_commit = self.random.random() < 0.7
        before = self.possible
        if is_commit:
            self.possible = before | {offset}
        ended = self._ask(TRANSACTION, EndTxnRequest(*own, is_commit), EndTxnResponse)
        if ended is None:
            return False
        self.possible = {offset} if is_commit else before
        self.ended += 1
        self.sim.tell(f"{self.name}: ended {offset} {is_commit}, possible {self.possible}")
        return True

    def _check(self) -> None:
        offset = self._fetch()
        if offset is None:
            return
        if offset not in self.possible:
            raise Violation("CommittedOnce", f"{self.name}: {offset} is committed, possible were {self.possible}")
        self.possible = {offset}

    def _fetch(self) -> int | None:
        """The stable offset; None when it cannot be told."""
        topics = (OffsetFetchRequestTopic("t", (0,)),)
        request = OffsetFetchRequest((OffsetFetchRequestGroup(self.name, topics),), require_stable=True)
        answer = self._ask(GROUP, request, OffsetFetchResponse)
        return None if answer is None else answer.groups[0].topics[0].partitions[0].committed_offset

    def _ask(self, kind: CoordinatorType, request: Any, expected: type[Answer]) -> Answer | None:
        """Ask until it succeeds; None when it never did, or was refused for good."""
        for _ in range(TRIES):
            if not self.sim.scheduler.faults.is_on:
                return None
            answer = self._answer(kind, request)
            error = answer if isinstance(answer, StratalogError) else _error_of(answer)
            if error is None and isinstance(answer, expected):
                return answer
            if error is not None and not error.retriable:
                self.sim.tell(f"{self.name}: {type(request).__name__} {error}")
                return None
            self.sim.clock.sleep_ms(self.random.randrange(5, 60))
        return None

    def _answer(self, kind: CoordinatorType, request: object) -> object:
        self.partitions()
        image = self.metadata.image
        brokers = [host.broker for host in self.sim.hosts.values() if host.broker is not None]
        partition = coordinator_partition(image, kind, self.name)
        if partition is None:
            if brokers:
                self.random.choice(brokers).find_coordinator(FindCoordinatorRequest(kind, (self.name,)), lambda _: None)
            return None
        host = self.sim.hosts.get(image.partitions[partition].leader)
        if host is None or host.broker is None:
            return None
        answers: list[object] = []
        event = SimEvent(self.sim.scheduler)

        def take(answer: object) -> None:
            answers.append(answer)
            event.set()

        host.broker.coordinator(kind, self.name, request, take)
        event.wait(3)
        return answers[0] if answers else None


def _error_of(answer: Any) -> StratalogError | None:
    """The first error in an answer, at whatever depth."""
    if isinstance(answer, OffsetFetchResponse):
        group = answer.groups[0]
        return group.error or next((p.error for t in group.topics for p in t.partitions if p.error), None)
    if isinstance(answer, TxnOffsetCommitResponse):
        return next((p.error for topic in answer.topics for p in topic.partitions if p.error), None)
    error: StratalogError | None = getattr(answer, "error", None)
    return error
