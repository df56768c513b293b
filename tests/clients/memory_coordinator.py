"""The group coordinator of a cluster in memory: `GroupShard`s, driven by one thread as a broker's loop drives them.

The records of their decisions are appended to `__consumer_offsets` of the cluster before the answer, so that another
shard can fold them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.modern.requests import ModernGroups
from stratalog.replication.coordinator.groups.shard import GroupShard
from stratalog.replication.coordinator.shard.shard import CoordinatorRecord, Decision
from stratalog.replication.internal_topics import GROUP_METADATA_TOPIC, partition_of_key
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.requests.coordinators import (
    Coordinator,
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from stratalog.storage.errors import NotCoordinatorError, StratalogError
from stratalog.storage.records import NewRecordBatch, TopicPartition, payload_table
from tests.clients.memory_cluster import MemoryBroker, MemoryCluster

PARTITIONS = 3
Answer = Callable[[object], None]


class MemoryCoordinator:
    """One broker of the cluster leads all partitions of `__consumer_offsets`; it may change."""

    def __init__(self, cluster: MemoryCluster, leader: int = 1, **config: object) -> None:
        self.cluster = cluster
        self.leader = leader
        settings: dict[str, object] = {"group.initial.rebalance.delay.ms": 0} | config
        self._config = BrokerConfig.from_properties(settings)
        cluster.create_topic(GROUP_METADATA_TOPIC, PARTITIONS)
        self.shards: dict[int, GroupShard] = {}
        self.requests: list[object] = []
        self._queue: deque[tuple[int, object, Answer]] = deque()
        self._waiting: dict[int, Answer] = {}
        self._token = 0
        self._woken = threading.Event()
        self._is_over = False
        for broker_id in (1, 2, 3):
            cluster.running[broker_id] = CoordinatingBroker(cluster, broker_id, self)
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def now_ms(self) -> int:
        return self.cluster.clock.wall_ms()

    def stop(self) -> None:
        self._is_over = True
        self._woken.set()
        self._thread.join()

    def ask(self, partition: int, request: object, answer: Answer) -> None:
        self._queue.append((partition, request, answer))
        self._woken.set()

    def fail_over(self, leader: int) -> None:
        """Make another broker the coordinator: waiting requests are refused, the shards are folded again."""

        def move(_: object) -> None:
            for shard in self.shards.values():
                for token, response in shard.unload(NotCoordinatorError("moved")):
                    self._waiting.pop(token)(response)
            self.shards.clear()
            for partition in range(PARTITIONS):
                self._move(TopicPartition(GROUP_METADATA_TOPIC, partition), leader)
            self.leader = leader

        done = threading.Event()
        self.ask(-1, move, lambda _: done.set())
        done.wait()

    def _loop(self) -> None:
        while not self._is_over:
            self._woken.wait(0.002)
            self._woken.clear()
            while self._queue:
                self._decide(*self._queue.popleft())
            for partition, shard in list(self.shards.items()):
                if shard.next_due_ms is not None and shard.next_due_ms <= self.now_ms():
                    self._perform(partition, shard, shard.expire(self.now_ms()))

    def _decide(self, partition: int, request: object, answer: Answer) -> None:
        if partition < 0 and callable(request):
            answer(request(None))
            return
        self.requests.append(request)
        shard = self._shard(partition)
        self._token += 1
        self._waiting[self._token] = answer
        try:
            decision = shard.decide(request, self._token, self.now_ms())
        except StratalogError as reason:
            self._waiting.pop(self._token)(reason)
            return
        self._perform(partition, shard, decision)

    def _perform(self, partition: int, shard: GroupShard, decision: Decision) -> None:
        now_ms = self.now_ms()
        for record in decision.records:
            shard.replay(record, now_ms)
        if decision.records:
            topic_partition = TopicPartition(GROUP_METADATA_TOPIC, partition)
            rows = [(now_ms, record.key, record.value, None) for record in decision.records]
            self.cluster.append_batch(topic_partition, NewRecordBatch(payload_table(rows)))
            self.cluster.publish(topic_partition)
        for token, response in decision.answers:
            self._waiting.pop(token)(response)

    def _move(self, topic_partition: TopicPartition, leader: int) -> None:
        """The next leader has the records of the last one, and leads."""
        rows = [
            (int(row["timestamp"].timestamp() * 1000), row["key"], row["value"], None)
            for row in self.cluster.log(self.leader, topic_partition).read(0, 1 << 30).to_pylist()
        ]
        self.cluster.elect(topic_partition, leader)
        self.cluster.start_leader(topic_partition)
        if rows:
            self.cluster.append_batch(topic_partition, NewRecordBatch(payload_table(rows)))
            self.cluster.publish(topic_partition)

    def _image(self) -> ClusterImage:
        self.cluster.metadata.refresh()
        return self.cluster.metadata.image

    def _shard(self, partition: int) -> GroupShard:
        if partition not in self.shards:
            kinds = (lambda table: ModernGroups(table, self._image),)
            shard = self.shards[partition] = GroupShard(self._config, self.cluster.ids, kinds)
            log = self.cluster.log(self.leader, TopicPartition(GROUP_METADATA_TOPIC, partition))
            for row in log.read(0, 1 << 30).to_pylist():
                shard.replay(CoordinatorRecord(row["key"], row["value"]), int(row["timestamp"].timestamp() * 1000))
            self._perform(partition, shard, shard.loaded(self.now_ms()))
        return self.shards[partition]


class CoordinatingBroker(MemoryBroker):
    """A broker of the cluster that answers as the coordinator, or that it is not the coordinator."""

    def __init__(self, cluster: MemoryCluster, broker_id: int, coordinator: MemoryCoordinator) -> None:
        super().__init__(cluster, broker_id)
        self._coordinator = coordinator

    def find_coordinator(
        self, request: FindCoordinatorRequest, answer: Callable[[FindCoordinatorResponse], None]
    ) -> None:
        leader = self._coordinator.leader
        answer(FindCoordinatorResponse(tuple(Coordinator(key, leader) for key in request.coordinator_keys)))

    def coordinator(self, kind: CoordinatorType, key: str | int, request: object, answer: Answer) -> None:
        if self._coordinator.leader != self.broker_id:
            answer(NotCoordinatorError(f"broker {self.broker_id} does not coordinate {key}"))
            return
        partition = key if isinstance(key, int) else partition_of_key(key, PARTITIONS)
        self._coordinator.ask(partition, request, answer)

    def every_coordinator(self, kind: CoordinatorType, request: object, answer: Callable[[list[object]], None]) -> None:
        if self._coordinator.leader != self.broker_id:
            answer([])
            return
        answers: list[object] = []

        def answered(response: object) -> None:
            answers.append(response)
            if len(answers) == PARTITIONS:
                answer(answers)

        for partition in range(PARTITIONS):
            self._coordinator.ask(partition, request, answered)
