"""A group with members that changes its protocol, so that its consumers can be restarted one after the other. Pure.

A classic group of consumers becomes a modern one when the first member with `group.protocol=consumer` joins. The others
stay in it by the requests of the classic protocol (`replication.coordinator.groups.modern.classic_members`). When the
last member of the modern protocol leaves them alone, or returns with the classic one, the group becomes classic again.
`group.consumer.migration.policy` says which of the two may happen.

Offsets stay where they are. Generation and group epoch continue each other: a classic group of generation 5 becomes a
modern one of epoch 5, whose members have their last assignment as target.

Source: KIP-848; `convertToConsumerGroup`, `convertToClassicGroup`, `ConsumerGroup.fromClassicGroup` and
`ClassicGroup.fromConsumerGroup` of Kafka 4.3.1. We differ where Kafka's group may lose sight of a partition:

- A group in its first rebalance has no protocol yet. Kafka answers UNKNOWN_SERVER_ERROR; here a member's first one is
  read.
- Kafka takes assignments alone for what members own. A cooperative member whose group rebalances may still use more.
- Kafka keeps the assignments as targets, also where they lack a partition, and the targets as assignments, also of
  members that have not reached them.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from stratalog.replication.config import DOWNGRADES, UPGRADES, BrokerConfig
from stratalog.replication.coordinator.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, ClassicMember
from stratalog.replication.coordinator.groups.modern.group import ModernGroup
from stratalog.replication.coordinator.groups.modern.member import ClassicMemberMetadata, ModernMember
from stratalog.replication.coordinator.groups.modern.records import (
    GroupEpoch,
    TargetEpoch,
    current_record,
    group_epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from stratalog.replication.coordinator.groups.modern.topics import metadata_hash, partition_counts, topic_names
from stratalog.replication.coordinator.server_assignors import TopicIdPartition
from stratalog.replication.coordinator.shard.shard import CoordinatorRecord
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.requests.coordinators import VisibleNames
from stratalog.storage.errors import CorruptMessageError, GroupIdNotFoundError
from stratalog.storage.records import TopicPartition
from stratalog.wire.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from stratalog.wire.kafka_types import version_of

UNKNOWN_HASH = 0
"""Of a group whose assignments lack a partition that somebody reads: the next heartbeat computes a target. A static
member that changes the protocol alone would not change anything else, and nobody else's partitions move then."""


def upgrade_records(group: ClassicGroup, config: BrokerConfig, image: ClusterImage) -> list[CoordinatorRecord]:
    """The records that replace a classic group with members by a modern one with the same members.

    Raises GROUP_ID_NOT_FOUND if the policy, the protocol type or the size forbids it, or if subscriptions or
    assignments cannot be read; also for an assignor that adds its own bytes to assignments, since they would be lost.
    """
    reason = _reason_against_upgrade(group, config)
    if reason is not None:
        raise GroupIdNotFoundError(f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.")
    try:
        subscriptions = {member.member_id: _subscription(group, member) for member in group.members.values()}
        shares = _shares(group, subscriptions, image)
    except CorruptMessageError as error:
        raise GroupIdNotFoundError(
            f"Cannot upgrade classic group {group.group_id} to consumer group because the embedded consumer protocol is"
            f" malformed: {error}."
        ) from error
    members = [
        _upgraded(group.generation_id, member, subscriptions[member.member_id], shares[member.member_id])
        for member in group.members.values()
    ]
    group_id, epoch = group.group_id, group.generation_id
    topics = {topic for member in members for topic in _seen(group, member.member_id, member.subscribed_topic_names)}
    counts, owned = partition_counts(image, topics), set().union(*shares.values())
    is_complete = owned >= {TopicIdPartition(topic_id, at) for topic_id in counts for at in range(counts[topic_id])}
    hashed = metadata_hash(image, topics) if is_complete else UNKNOWN_HASH
    return [
        *group.tombstones(),
        *(member_record(group_id, member) for member in members),
        group_epoch_record(group_id, GroupEpoch(epoch, hashed)),
        *(target_record(group_id, member.member_id, member.assigned) for member in members),
        target_epoch_record(group_id, TargetEpoch(epoch)),
        *(current_record(group_id, member) for member in members),
    ]


def may_downgrade(group: ModernGroup, leaving: Set[str], config: BrokerConfig, *, returning: int = 0) -> bool:
    """Whether the group becomes classic without the members `leaving`: there are others, and all of them speak the
    classic protocol. `returning`: the number of those that come back with it."""
    staying = [member for member in group.members.values() if member.member_id not in leaving]
    return (
        config.group_consumer_migration_policy in DOWNGRADES
        and 0 < len(staying) + returning <= config.group_max_size
        and all(member.classic_member_metadata is not None for member in staying)
    )


def downgraded(
    group: ModernGroup, leaving: Set[str], returning: ModernMember | None, image: ClusterImage, now_ms: int
) -> ClassicGroup:
    """The stable classic group of the members that do not leave, each with what it has or still has to revoke.
    `returning`: the static member that comes back in the classic protocol."""
    classic = ClassicGroup(group.group_id, now_ms)
    classic.generation_id = group.group_epoch
    staying = [member for member in group.members.values() if member.member_id not in leaving]
    members = {member.member_id: member for member in [*staying, *([returning] if returning else [])]}
    for member in members.values():
        classic.add(_downgraded(member, group.visible.get(member.member_id)))
    classic.settle()
    names = topic_names(image)
    for joined in classic.members.values():
        member = members[joined.member_id]
        owned = member.assigned.keys() | member.pending_revocation.keys()
        joined.assignment = assignment_bytes(joined.metadata(classic.protocol_name), owned, names)
    return classic


def assignment_bytes(subscription: bytes, partitions: Set[TopicIdPartition], names: dict[str, str]) -> bytes:
    """The assignment of a member in SyncGroup, in the version of its subscription. `names`: of topics by their ids;
    partitions of topics that are gone are left out."""
    known = (each for each in sorted(partitions) if each.topic_id in names)
    found = tuple(TopicPartition(names[each.topic_id], each.partition) for each in known)
    return encode_assignment(Assignment(found), max(version_of(subscription), 0))


def partitions_with_ids(partitions: tuple[TopicPartition, ...], image: ClusterImage) -> frozenset[TopicIdPartition]:
    """Partitions by topic ids, those of topics that exist."""
    ids = image.topic_ids
    return frozenset(TopicIdPartition(ids[each.topic], each.partition) for each in partitions if each.topic in ids)


def _reason_against_upgrade(group: ClassicGroup, config: BrokerConfig) -> str | None:
    if config.group_consumer_migration_policy not in UPGRADES:
        return "online upgrade is disabled"
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return "the group does not use the consumer embedded protocol"
    if len(group.members) > config.group_consumer_max_size:
        return "the group size exceeds the consumer group maximum size"
    return None


def _shares(
    group: ClassicGroup, subscriptions: Mapping[str, Subscription], image: ClusterImage
) -> dict[str, frozenset[TopicIdPartition]]:
    """The partitions that each member may still use: its last assignment, and what it owned when it joined, unless that
    is another's by now. A cooperative member gives up only what a SyncGroup tells it to."""
    shares: dict[str, set[TopicIdPartition]] = {}
    for member in group.members.values():
        assignment = decode_assignment(member.assignment)
        if assignment.user_data:
            raise GroupIdNotFoundError(
                f"Cannot upgrade classic group {group.group_id} to consumer group because an unsupported custom"
                " assignor is in use: its assignments have user data. Switch to a default assignor before the upgrade."
            )
        seen = _seen(group, member.member_id, frozenset(each.topic for each in assignment.partitions))
        assigned = tuple(each for each in assignment.partitions if each.topic in seen)
        shares[member.member_id] = set(partitions_with_ids(assigned, image))
    taken = set().union(*shares.values())
    for member_id, subscription in sorted(subscriptions.items(), key=lambda each: -each[1].generation_id):
        claimed = partitions_with_ids(subscription.owned_partitions, image) - taken
        shares[member_id] |= claimed
        taken |= claimed
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _seen(group: ClassicGroup, member_id: str, topics: frozenset[str]) -> frozenset[str]:
    """The topics without those that the member may not describe."""
    visible = group.members[member_id].visible
    return topics if visible is None else visible(topics)


def _subscription(group: ClassicGroup, member: ClassicMember) -> Subscription:
    names = [protocol.name for protocol in member.protocols]
    return decode_subscription(member.metadata(group.protocol_name if group.protocol_name in names else names[0]))


def _upgraded(
    epoch: int, member: ClassicMember, subscription: Subscription, share: frozenset[TopicIdPartition]
) -> ModernMember:
    return ModernMember(
        member.member_id,
        member.group_instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        frozenset(subscription.topics),
        classic_member_metadata=ClassicMemberMetadata(member.session_timeout_ms, member.protocols),
        member_epoch=epoch,
        previous_member_epoch=epoch,
        assigned=dict.fromkeys(share, epoch),
    )


def _downgraded(member: ModernMember, visible: VisibleNames | None) -> ClassicMember:
    metadata = member.classic_member_metadata
    assert metadata is not None
    return ClassicMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        metadata.session_timeout_ms,
        CONSUMER_PROTOCOL_TYPE,
        metadata.supported_protocols,
        visible=visible,
    )
