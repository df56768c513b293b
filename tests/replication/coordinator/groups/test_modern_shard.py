"""KIP-848 groups beside classic ones in a shard: offsets, lists, deletion; a group id is of one kind at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stratalog.replication.coordinator.groups.modern.requests import ModernGroups
from stratalog.replication.coordinator.groups.shard import GroupShard
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord, TopicRecord
from stratalog.replication.requests.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from stratalog.replication.requests.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from stratalog.storage.errors import (
    GroupIdNotFoundError,
    InconsistentGroupProtocolError,
    NonEmptyGroupError,
    StaleMemberEpochError,
)
from tests.replication.group_coordinator import Coordinator

GROUP = "orders"


def image_with_topic() -> ClusterImage:
    image = ClusterImage()
    image = image.fold(TopicRecord("t", "ab" * 16))
    for number in range(2):
        image = image.fold(PartitionRecord("t", number, (1,), 1, 0, (1,), 0, 0))
    return image


@dataclass
class BothKinds(Coordinator):
    """A coordinator of classic groups and of KIP-848's."""

    image: ClusterImage = field(default_factory=image_with_topic)

    def folded(self) -> GroupShard:
        shard = GroupShard(self.config, self.ids, (lambda table: ModernGroups(table, lambda: self.image),))
        for record, timestamp_ms, producer_id, producer_epoch in self.log:
            assert not isinstance(record, bool)
            shard.replay(record, timestamp_ms, producer_id, producer_epoch)
        return shard

    def heartbeat(self, epoch: int = 0) -> ConsumerGroupHeartbeatResponse:
        asked: dict[str, Any] = {
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": ("t",),
            "topic_partitions": (),
        }
        answer = self.answer(ConsumerGroupHeartbeatRequest(GROUP, "m1", epoch, **(asked if epoch == 0 else {})))
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer


def commit_of(epoch: int) -> OffsetCommitRequest:
    topics = (OffsetCommitRequestTopic("t", (OffsetCommitRequestPartition(0, 42),)),)
    return OffsetCommitRequest(GROUP, topics, epoch, "m1")


def classic_join() -> JoinGroupRequest:
    return JoinGroupRequest(
        GROUP,
        10_000,
        10_000,
        "",
        None,
        "consumer",
        (JoinGroupRequestProtocol("range", b"\x00"),),
        requires_known_member_id=False,
    )


def test_a_members_offsets_survive_a_failover_and_old_epochs_are_refused() -> None:
    coordinator = BothKinds()
    joined = coordinator.heartbeat()
    assert (joined.error, joined.member_epoch) == (None, 2)
    assert joined.assignment is not None
    assert joined.assignment.topic_partitions[0].partitions == (0, 1)
    assert coordinator.answer(commit_of(2)).topics[0].partitions[0].error is None
    assert isinstance(coordinator.answer(commit_of(1)).topics[0].partitions[0].error, StaleMemberEpochError)
    coordinator.shard = coordinator.folded()
    coordinator.shard.loaded(coordinator.now_ms)
    assert coordinator.heartbeat(2).error is None
    asked = OffsetFetchRequestGroup(GROUP, (OffsetFetchRequestTopic("t", (0,)),), "m1", 2)
    fetched = coordinator.answer(OffsetFetchRequest((asked,)))
    assert fetched.groups[0].topics[0].partitions[0].committed_offset == 42


def test_groups_are_listed_and_described_by_their_kind() -> None:
    coordinator = BothKinds()
    coordinator.heartbeat()
    (listed,) = coordinator.answer(ListGroupsRequest(types_filter=("Consumer",))).groups
    assert (listed.group_id, listed.group_type, listed.group_state, listed.protocol_type) == (
        GROUP,
        "consumer",
        "Stable",
        "consumer",
    )
    assert coordinator.answer(ListGroupsRequest(types_filter=("classic",))).groups == ()
    (described,) = coordinator.answer(ConsumerGroupDescribeRequest((GROUP,))).groups
    assert [member.member_id for member in described.members] == ["m1"]
    (classic,) = coordinator.answer(DescribeGroupsRequest((GROUP,))).groups
    assert (classic.group_state, type(classic.error)) == ("Dead", GroupIdNotFoundError)


def test_a_group_id_belongs_to_one_kind_while_the_group_has_members() -> None:
    coordinator = BothKinds()
    coordinator.heartbeat()
    assert isinstance(coordinator.answer(classic_join()).error, InconsistentGroupProtocolError)
    assert coordinator.heartbeat(-1).error is None
    token = coordinator.ask(classic_join())
    coordinator.advance(1)
    assert coordinator.answered[token].error is None
    assert coordinator.shard.table.groups[GROUP].group_type == "classic"
    assert isinstance(coordinator.heartbeat().error, GroupIdNotFoundError)
    coordinator.advance(60_000)
    assert coordinator.heartbeat().error is None
    assert coordinator.shard.table.groups[GROUP].group_type == "consumer"
    coordinator.shard = coordinator.folded()
    assert coordinator.shard.table.groups[GROUP].group_type == "consumer"


def test_a_group_is_deleted_only_when_it_is_empty() -> None:
    coordinator = BothKinds()
    coordinator.heartbeat()
    (refused,) = coordinator.answer(DeleteGroupsRequest((GROUP,))).results
    assert isinstance(refused.error, NonEmptyGroupError)
    coordinator.advance(45_000)
    (deleted,) = coordinator.answer(DeleteGroupsRequest((GROUP,))).results
    assert deleted.error is None
    assert coordinator.shard.table.groups == {}
    assert coordinator.folded().table.groups == {}
