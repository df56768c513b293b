"""A memory cluster whose brokers coordinate groups: real shards, whose decisions are committed at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.runtime.find_coordinator import coordinator_partition, find_coordinators
from stratalog.replication.coordinator.shard.shard import Answered, CoordinatorShard, Decision, ShardFactory, ShardPlace
from stratalog.replication.requests.coordinators import CoordinatorType, FindCoordinatorRequest, FindCoordinatorResponse
from stratalog.storage.errors import NotCoordinatorError, StratalogError
from stratalog.storage.records import TopicPartition
from tests.clients.memory_cluster import MemoryBroker, MemoryCluster

NO_DELAY = BrokerConfig.from_properties({"group.initial.rebalance.delay.ms": 0})


class CoordinatingCluster(MemoryCluster):
    """`shards` makes the shards of each kind. Timers run only when the test calls `expire`."""

    def __init__(self, shards: Mapping[CoordinatorType, ShardFactory]) -> None:
        super().__init__()
        self.running = {broker: CoordinatingBroker(self, broker) for broker in (1, 2, 3)}
        self._make = {kind.topic: make for kind, make in shards.items()}
        self._shards: dict[TopicPartition, CoordinatorShard] = {}
        self._answers: dict[int, Callable[[object], None]] = {}
        self._tokens = count()
        self._producer_ids = count(1_000_000)

    @property
    def waiting_count(self) -> int:
        """The number of requests that a coordinator has and has not answered."""
        return len(self._answers)

    def ask(self, topic_partition: TopicPartition, request: object, answer: Callable[[object], None]) -> None:
        token, now_ms = next(self._tokens), self.clock.wall_ms()
        self._answers[token] = answer
        shard = self._shard(topic_partition, now_ms)
        try:
            decision = shard.decide(request, token, now_ms)
        except StratalogError as refusal:
            decision = Decision(answers=(Answered(token, refusal),))
        self._accept(shard, decision, now_ms)

    def expire(self) -> None:
        """Perform everything that is due by now."""
        now_ms = self.clock.wall_ms()
        for shard in self._shards.values():
            while shard.next_due_ms is not None and shard.next_due_ms <= now_ms:
                self._accept(shard, shard.expire(now_ms), now_ms)

    def _shard(self, topic_partition: TopicPartition, now_ms: int) -> CoordinatorShard:
        shard = self._shards.get(topic_partition)
        if shard is None:
            ids, producer_ids = self.ids, partial(next, self._producer_ids)
            place = ShardPlace(topic_partition, 0, NO_DELAY, ids, lambda: self.metadata.image, producer_ids)
            shard = self._shards[topic_partition] = self._make[topic_partition.topic](place)
            self._accept(shard, shard.loaded(now_ms), now_ms)
        return shard

    def _accept(self, shard: CoordinatorShard, decision: Decision, now_ms: int) -> None:
        for record in decision.records:
            shard.replay(record, now_ms, decision.producer_id, decision.producer_epoch)
        for token, response in decision.answers:
            self._answers.pop(token)(response)


class CoordinatingBroker(MemoryBroker):
    """Coordinates the partitions of internal topics that it leads."""

    def __init__(self, cluster: CoordinatingCluster, broker_id: int) -> None:
        super().__init__(cluster, broker_id)
        self._shards = cluster

    def find_coordinator(
        self, request: FindCoordinatorRequest, answer: Callable[[FindCoordinatorResponse], None]
    ) -> None:
        self.cluster.metadata.refresh()
        answer(find_coordinators(self.cluster.metadata.image, request))

    def coordinator(
        self, kind: CoordinatorType, key: str | int, request: object, answer: Callable[[object], None]
    ) -> None:
        image = self.cluster.metadata.image
        is_number = isinstance(key, int)
        place = TopicPartition(kind.topic, key) if is_number else coordinator_partition(image, kind, str(key))
        if place is None or self.cluster.state(place).leader != self.broker_id:
            answer(NotCoordinatorError(f"broker {self.broker_id} does not coordinate {key}"))
            return
        self._shards.ask(place, request, answer)

    def every_coordinator(self, kind: CoordinatorType, request: object, answer: Callable[[list[object]], None]) -> None:
        answers: list[object] = []
        for place in self.cluster.metadata.image.partitions_of(kind.topic):
            if self.cluster.state(place).leader == self.broker_id:
                self._shards.ask(place, request, answers.append)
        answer(answers)
