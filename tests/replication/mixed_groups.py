"""A coordinator of groups that change their protocol, and members of both that behave as Kafka's consumers do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stratalog.replication.coordinator.groups.modern.requests import ModernGroups
from stratalog.replication.coordinator.groups.shard import GroupShard
from stratalog.replication.coordinator.server_assignors import TopicIdPartition
from stratalog.replication.coordinator.shard.shard import CoordinatorRecord
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord, TopicRecord
from stratalog.replication.requests.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DescribedConsumerGroup,
)
from stratalog.replication.requests.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from stratalog.storage.errors import (
    FencedInstanceIdError,
    MemberIdRequiredError,
    StratalogError,
    UnknownMemberIdError,
)
from stratalog.storage.records import TopicPartition
from stratalog.wire.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tests.replication.consumer_groups import GROUP
from tests.replication.group_coordinator import Coordinator

REBALANCE_TIMEOUT_MS = 60_000
SESSION_TIMEOUT_MS = 30_000


@dataclass
class MixedCoordinator(Coordinator):
    """A coordinator of groups of both protocols. `topics`: numbers of partitions."""

    topics: Mapping[str, int] = field(default_factory=lambda: {"t": 4})

    def __post_init__(self) -> None:
        self.image = ClusterImage()
        for name, count in self.topics.items():
            self.create_topic(name, count)
        super().__post_init__()

    def create_topic(self, name: str, partitions: int) -> None:
        self.image = self.image.fold(TopicRecord(name, f"{len(self.image.topic_ids) + 1:032x}"))
        self.add_partitions(name, partitions)

    def add_partitions(self, name: str, more: int) -> None:
        first = len(self.image.partitions_by_topic.get(name, ()))
        for number in range(first, first + more):
            self.image = self.image.fold(PartitionRecord(name, number, (1,), 1, 0, (1,), 0, 0))

    def folded(self, records: Iterable[CoordinatorRecord] | None = None) -> GroupShard:
        shard = GroupShard(self.config, self.ids, (lambda table: ModernGroups(table, lambda: self.image),))
        committed = [record for record, *_ in self.log if not isinstance(record, bool)]
        for record in committed if records is None else records:
            shard.replay(record, self.now_ms)
        return shard

    def compacted(self) -> list[CoordinatorRecord]:
        """The newest record of each key, without tombstones."""
        committed = [record for record, *_ in self.log if not isinstance(record, bool)]
        newest = {record.key: at for at, record in enumerate(committed)}
        return [committed[at] for at in sorted(newest.values()) if committed[at].value is not None]

    def fail_over(self, *, compacted: bool = False) -> None:
        """Another broker becomes coordinator, perhaps of a log that was compacted."""
        records = self.compacted() if compacted else None
        self.crash()
        self.shard = self.folded(records)
        self._accept(self.shard.loaded(self.now_ms))

    def leap(self, duration_ms: int) -> None:
        """Advance the clock; everything that is due is one decision."""
        self.now_ms += duration_ms
        self._accept(self.shard.expire(self.now_ms))

    def heartbeat(self, request: Any, **_: Any) -> Any:
        return self.answer(request)

    def partitions(self, *topics: str) -> frozenset[TopicIdPartition]:
        counts = {topic: len(self.image.partitions_by_topic.get(topic, ())) for topic in topics}
        ids = self.image.topic_ids
        return frozenset(TopicIdPartition(ids[topic], at) for topic, count in counts.items() for at in range(count))

    def described(self) -> DescribedConsumerGroup:
        described: DescribedConsumerGroup = self.answer(ConsumerGroupDescribeRequest((GROUP,))).groups[0]
        return described


@dataclass
class ClassicConsumer:
    """A member of the classic protocol. An eager one gives up everything before it joins. A cooperative one goes on
    with what it owns until it is assigned less; then it joins again. Its leader gives to nobody what others own.

    is_unsure  it leads and was told to skip the assignment (KIP-814): it joins again, since topics may have changed
    token      of the JoinGroup or SyncGroup that waits
    refused    the errors that it was answered, except MEMBER_ID_REQUIRED
    """

    coordinator: MixedCoordinator
    name: str
    topics: tuple[str, ...] = ("t",)
    instance_id: str | None = None
    protocols: tuple[str, ...] = ("range",)
    is_eager: bool = True
    user_data: bytes | None = None
    member_id: str = ""
    generation: int = -1
    protocol: str = ""
    owned: frozenset[TopicIdPartition] = frozenset()
    joins: bool = True
    is_unsure: bool = False
    token: int | None = None
    syncs: SyncGroupRequest | None = None
    refused: list[StratalogError] = field(default_factory=list)

    def settle(self) -> None:
        """One turn: a request, or the answer to the one that waits."""
        if self.token is None:
            request = self._next_request()
            self.token = self.coordinator.ask(request)
        response = self.coordinator.answered.get(self.token)
        if response is None:
            return
        self.token = None
        if getattr(response, "error", response) is not None:
            self._accept_error(response)
        elif isinstance(response, JoinGroupResponse):
            self._accept_join(response)
        elif isinstance(response, SyncGroupResponse):
            before, self.syncs = self.owned, None
            self.owned = self._with_ids(decode_assignment(response.assignment).partitions)
            self.joins |= not before <= self.owned or self.is_unsure
            self.is_unsure = False

    def _next_request(self) -> object:
        if self.joins:
            self.joins = False
            return self._join_request()
        if self.syncs is not None:
            return self.syncs
        return HeartbeatRequest(GROUP, self.generation, self.member_id, self.instance_id)

    def _join_request(self) -> JoinGroupRequest:
        if self.is_eager:
            self.owned = frozenset()
        names = {topic_id: name for name, topic_id in self.coordinator.image.topic_ids.items()}
        owned = tuple(TopicPartition(names[each.topic_id], each.partition) for each in self.owned)
        subscription = encode_subscription(Subscription(self.topics, self.user_data, owned, self.generation))
        return JoinGroupRequest(
            GROUP,
            SESSION_TIMEOUT_MS,
            REBALANCE_TIMEOUT_MS,
            self.member_id,
            self.instance_id,
            protocols=tuple(JoinGroupRequestProtocol(name, subscription) for name in self.protocols),
            client_id=self.name,
        )

    def _accept_error(self, response: Any) -> None:
        error = response if isinstance(response, StratalogError) else response.error
        self.joins, self.syncs = True, None
        if isinstance(error, MemberIdRequiredError):
            self.member_id = response.member_id
            return
        self.refused.append(error)
        if isinstance(error, UnknownMemberIdError | FencedInstanceIdError):
            self.abandon()

    def _accept_join(self, response: JoinGroupResponse) -> None:
        self.member_id, self.generation = response.member_id, response.generation_id
        plan: list[SyncGroupRequestAssignment] = []
        self.is_unsure = response.skip_assignment
        if response.leader == response.member_id and not response.skip_assignment:
            plan = self._plan(response)
        self.syncs = SyncGroupRequest(
            GROUP,
            self.generation,
            self.member_id,
            self.instance_id,
            response.protocol_type,
            response.protocol_name,
            tuple(plan),
        )

    def _plan(self, response: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Each topic's partitions in turn among its readers, without those that another one owns."""
        told = {each.member_id: decode_subscription(each.metadata) for each in response.members}
        readers = {member_id: subscription.topics for member_id, subscription in told.items()}
        owners = {
            partition: member_id
            for member_id, subscription in told.items()
            for partition in subscription.owned_partitions
        }
        shares: dict[str, list[TopicPartition]] = {member_id: [] for member_id in readers}
        for topic in {topic for topics in readers.values() for topic in topics}:
            of_topic = sorted(member_id for member_id, topics in readers.items() if topic in topics)
            for number in range(len(self.coordinator.image.partitions_by_topic.get(topic, ()))):
                partition, reader = TopicPartition(topic, number), of_topic[number % len(of_topic)]
                if owners.get(partition, reader) == reader:
                    shares[reader].append(partition)
        return [
            SyncGroupRequestAssignment(member_id, encode_assignment(Assignment(tuple(share), self.user_data)))
            for member_id, share in shares.items()
        ]

    def _with_ids(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicIdPartition]:
        ids = self.coordinator.image.topic_ids
        return frozenset(TopicIdPartition(ids[each.topic], each.partition) for each in partitions)

    def abandon(self) -> None:
        """Own nothing, as a member that never joined."""
        self.member_id, self.generation, self.owned = "", -1, frozenset()
        self.joins, self.token, self.syncs = True, None, None

    def leave(self, _epoch: int = -1) -> Any:
        response = self.coordinator.answer(
            LeaveGroupRequest(GROUP, (MemberIdentity(self.member_id, self.instance_id),))
        )
        self.abandon()
        return response


def joining(member_id: str, *topics: str, **changes: Any) -> ConsumerGroupHeartbeatRequest:
    """The first heartbeat of a member of the modern protocol."""
    asked: dict[str, Any] = {
        "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
        "subscribed_topic_names": topics or ("t",),
        "topic_partitions": (),
    }
    return ConsumerGroupHeartbeatRequest(GROUP, member_id, **(asked | changes))
