"""A coordinator of KIP-848 groups alone, and members that behave as Kafka's consumer does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.modern.group import ModernGroup
from stratalog.replication.coordinator.groups.modern.heartbeat import owned_partitions
from stratalog.replication.coordinator.groups.modern.requests import ModernGroups
from stratalog.replication.coordinator.groups.modern.topics import Matches, matching_topics
from stratalog.replication.coordinator.groups.table import DecisionBuilder, GroupTable
from stratalog.replication.coordinator.server_assignors import TopicIdPartition
from stratalog.replication.coordinator.shard.shard import CoordinatorRecord
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord, TopicRecord
from stratalog.replication.requests.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
    TopicPartitions,
)
from stratalog.replication.requests.coordinators import VisibleNames
from stratalog.storage.errors import FencedMemberEpochError, StratalogError, UnknownMemberIdError
from tests.storage.logs import CountingIds

GROUP = "orders"


class Coordinator:
    """`ModernGroups` with a log: each decision's records are folded at once and kept."""

    def __init__(self, *, interval_ms: int = 0, max_size: int = 1000, **topics: int) -> None:
        self.image = ClusterImage()
        self.now_ms = 1_000_000
        self.matches: Matches = matching_topics
        self.log: list[CoordinatorRecord] = []
        self._config = BrokerConfig(group_consumer_assignment_interval_ms=interval_ms, group_consumer_max_size=max_size)
        self._ids = CountingIds()
        for name, partitions in topics.items():
            self.create_topic(name, partitions)
        self._start()

    def _start(self) -> None:
        self.table = GroupTable(self._config, self._ids)
        self.kind = ModernGroups(self.table, lambda: self.image, lambda regex, names: self.matches(regex, names))

    def create_topic(self, name: str, partitions: int) -> None:
        self.image = self.image.fold(TopicRecord(name, self._ids.new_id()))
        self.add_partitions(name, partitions)

    def add_partitions(self, name: str, more: int) -> None:
        first = len(self.image.partitions_by_topic.get(name, ()))
        for number in range(first, first + more):
            self.image = self.image.fold(PartitionRecord(name, number, (1,), 1, 0, (1,), 0, 0))

    def partition(self, topic: str, number: int) -> TopicIdPartition:
        return TopicIdPartition(self.image.topic_ids[topic], number)

    def partitions(self, *topics: str) -> frozenset[TopicIdPartition]:
        counts = {topic: len(self.image.partitions_by_topic.get(topic, ())) for topic in topics}
        return frozenset(self.partition(topic, number) for topic, count_ in counts.items() for number in range(count_))

    @property
    def group(self) -> ModernGroup:
        found = self.table.groups[GROUP]
        assert isinstance(found, ModernGroup)
        return found

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        decision = DecisionBuilder(self.now_ms)
        self.kind.requests[ConsumerGroupHeartbeatRequest](request, 7, decision)
        (answer,) = decision.answers
        assert answer.token == 7
        assert isinstance(answer.response, ConsumerGroupHeartbeatResponse)
        self._commit(decision)
        return answer.response

    def describe(self, group_id: str = GROUP) -> DescribedConsumerGroup:
        decision = DecisionBuilder(self.now_ms)
        self.kind.requests[ConsumerGroupDescribeRequest](ConsumerGroupDescribeRequest((group_id,)), 8, decision)
        response = decision.answers[0].response
        assert isinstance(response, ConsumerGroupDescribeResponse)
        return response.groups[0]

    def pass_time(self, duration_ms: int) -> None:
        """Advance the clock; everything that is due is one decision, as in `GroupShard.expire`."""
        self.now_ms += duration_ms
        decision = DecisionBuilder(self.now_ms)
        for key in self.table.timers.pop_due(self.now_ms):
            self.kind.expire(key, decision)
        self._commit(decision)

    def fail_over(self, log: Iterable[CoordinatorRecord] | None = None) -> None:
        """Another coordinator folds the log, or the given records of it."""
        self._start()
        for record in list(self.log if log is None else log):
            self.kind.replay(record, self.now_ms)
        self.kind.loaded(DecisionBuilder(self.now_ms))

    def compacted(self) -> list[CoordinatorRecord]:
        """The newest record of each key, without tombstones."""
        newest = {record.key: at for at, record in enumerate(self.log)}
        return [self.log[at] for at in sorted(newest.values()) if self.log[at].value is not None]

    def _commit(self, decision: DecisionBuilder) -> None:
        for record in decision.records:
            self.kind.replay(record, self.now_ms)
        self.log += decision.records


@dataclass
class Consumer:
    """A member that behaves as Kafka's consumer: it revokes partitions that are no longer assigned to it, owns those
    that are, and reports them."""

    coordinator: Coordinator
    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    regex: str | None = None
    rebalance_timeout_ms: int = 60_000
    epoch: int = 0
    owned: frozenset[TopicIdPartition] = frozenset()
    assignment: frozenset[TopicIdPartition] = frozenset()
    reported: frozenset[TopicIdPartition] | None = None
    send_all: bool = True
    errors: list[StratalogError] = field(default_factory=list)
    visible: VisibleNames | None = None

    def request(self) -> ConsumerGroupHeartbeatRequest:
        everything = self.send_all or self.epoch == 0
        owned = None if not everything and self.reported == self.owned else topics_of(self.owned)
        return ConsumerGroupHeartbeatRequest(
            GROUP,
            self.member_id,
            self.epoch,
            self.instance_id,
            rebalance_timeout_ms=self.rebalance_timeout_ms if everything else -1,
            subscribed_topic_names=self.topics if everything else None,
            subscribed_topic_regex=self.regex if everything else None,
            topic_partitions=owned,
            client_id="client",
            client_host="/127.0.0.1",
            visible=self.visible,
        )

    def heartbeat(self, *, answer_lost: bool = False) -> ConsumerGroupHeartbeatResponse:
        request = self.request()
        response = self.coordinator.heartbeat(request)
        if answer_lost:
            self.send_all = True
            return response
        if response.error is not None:
            self.errors.append(response.error)
            if isinstance(response.error, FencedMemberEpochError | UnknownMemberIdError):
                self.abandon()
            return response
        self.epoch = response.member_epoch
        self.send_all = False
        self.reported = owned_partitions(request) if request.topic_partitions is not None else self.reported
        if response.assignment is not None:
            self.assignment = partitions_of(response.assignment.topic_partitions)
        return response

    def reconcile(self) -> None:
        self.owned = self.assignment

    def settle(self) -> None:
        """Send a heartbeat and reconcile with its answer."""
        self.heartbeat()
        self.reconcile()

    def abandon(self) -> None:
        """Own nothing any more, as a member that was fenced or never joined."""
        self.epoch, self.owned, self.assignment, self.reported, self.send_all = 0, frozenset(), frozenset(), None, True

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(GROUP, self.member_id, epoch, self.instance_id)
        response = self.coordinator.heartbeat(request)
        self.abandon()
        return response


def topics_of(partitions: Iterable[TopicIdPartition]) -> tuple[TopicPartitions, ...]:
    by_topic: dict[str, list[int]] = {}
    for topic_id, number in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(number)
    return tuple(TopicPartitions(topic_id, tuple(numbers)) for topic_id, numbers in by_topic.items())


def partitions_of(topics: Iterable[TopicPartitions]) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(topic.topic_id, number) for topic in topics for number in topic.partitions)


def joining(**changes: Any) -> ConsumerGroupHeartbeatRequest:
    """A request to join, with these fields changed."""
    asked: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": "m1",
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ("t",),
        "topic_partitions": (),
    }
    return ConsumerGroupHeartbeatRequest(**(asked | changes))
