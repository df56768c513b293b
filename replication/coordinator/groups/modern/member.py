"""A member of a modern group (KIP-848), and the steps of its assignment towards its target. Pure.

A member is STABLE when its assignment is its target of `member_epoch`. Before that it may have to revoke partitions
(UNREVOKED_PARTITIONS: it stays in its epoch until it no longer reports them as owned), or to wait until others revoke
them (UNRELEASED_PARTITIONS: it is in the new epoch and receives the rest as it becomes free). So no partition is ever
assigned to two members.

Source: `ModernMember` and `CurrentAssignmentBuilder` of Kafka 4.3.1's group coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from stratalog.replication.coordinator.server_assignors import TopicIdPartition
from stratalog.replication.requests.groups import JoinGroupRequestProtocol
from stratalog.storage.errors import FencedMemberEpochError

Epochs = Mapping[TopicIdPartition, int]
"""Partitions, each with the member epoch in which it was assigned."""


class ModernMemberState(IntEnum):
    """Kafka's member states with their numbers in records. UNKNOWN: one that a newer coordinator wrote."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ClassicMemberMetadata(NamedTuple):
    """What JoinGroup told of a member of the classic protocol; the first protocol is the one in use."""

    session_timeout_ms: int
    supported_protocols: tuple[JoinGroupRequestProtocol, ...]

    @property
    def protocol(self) -> JoinGroupRequestProtocol:
        return self.supported_protocols[0]


@dataclass(frozen=True, slots=True)
class ModernMember:
    """Subscription and assignment of one member; both are records of the log.

    previous_member_epoch    the epoch before; a member whose answer was lost still sends it
    assigned                 partitions that the member may use
    pending_revocation       partitions that it has to revoke and still owns
    classic_member_metadata  None unless the member speaks the classic protocol
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str = ""
    server_assignor: str | None = None
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: ModernMemberState = ModernMemberState.STABLE
    assigned: Epochs = field(default_factory=dict)
    pending_revocation: Epochs = field(default_factory=dict)
    classic_member_metadata: ClassicMemberMetadata | None = None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is ModernMemberState.STABLE and self.member_epoch == target_epoch

    def at_epoch(self, member_epoch: int, state: ModernMemberState, assigned: Epochs, pending: Epochs) -> ModernMember:
        return replace(
            self,
            member_epoch=member_epoch,
            previous_member_epoch=self.member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending,
        )


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The step of a member at one heartbeat.

    target_epoch          the epoch of the target assignment
    target                the member's partitions in it
    subscribed            ids of the topics that it subscribes to now: no others are assigned, whatever the target
    subscription_changed  in this heartbeat: then it loses the topics that it dropped at once
    owned                 the partitions that it reports as owned; None if it reports none
    owner                 the member that has a partition, or has to revoke it; None if it is free
    """

    target_epoch: int
    target: Set[TopicIdPartition]
    subscribed: Set[str]
    subscription_changed: bool
    owned: Set[TopicIdPartition] | None
    owner: Callable[[TopicIdPartition], str | None]

    def apply(self, member: ModernMember) -> ModernMember:
        """The member after this step; the same one if nothing changes. Raises FENCED_MEMBER_EPOCH for a member in a
        state that this version does not know."""
        match member.state:
            case ModernMemberState.STABLE if member.member_epoch == self.target_epoch:
                return self._drop_unsubscribed(member) if self.subscription_changed else member
            case ModernMemberState.UNREVOKED_PARTITIONS if self._still_owns(member.pending_revocation):
                return self._drop_unsubscribed(member) if self.subscription_changed else member
            case ModernMemberState.UNKNOWN if self.owned is None or self.owned:
                raise FencedMemberEpochError(
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin."
                )
            case _:
                return self._next(member)

    def _still_owns(self, partitions: Epochs) -> bool:
        return self.owned is None or not self.owned.isdisjoint(partitions)

    def _next(self, member: ModernMember) -> ModernMember:
        wanted = {partition for partition in self.target if partition.topic_id in self.subscribed}
        kept = {partition: epoch for partition, epoch in member.assigned.items() if partition in wanted}
        revoked = {partition: epoch for partition, epoch in member.assigned.items() if partition not in wanted}
        if revoked and self._still_owns(revoked):
            return member.at_epoch(member.member_epoch, ModernMemberState.UNREVOKED_PARTITIONS, kept, revoked)
        missing = wanted.difference(kept)
        free = {partition for partition in missing if self._is_free(member, partition)}
        assigned = kept | dict.fromkeys(free, self.target_epoch)
        state = ModernMemberState.UNRELEASED_PARTITIONS if free != missing else ModernMemberState.STABLE
        return member.at_epoch(self.target_epoch, state, assigned, {})

    def _is_free(self, member: ModernMember, partition: TopicIdPartition) -> bool:
        return partition in member.pending_revocation or self.owner(partition) is None

    def _drop_unsubscribed(self, member: ModernMember) -> ModernMember:
        dropped = {tp: epoch for tp, epoch in member.assigned.items() if tp.topic_id not in self.subscribed}
        if not dropped:
            return member
        kept = {partition: epoch for partition, epoch in member.assigned.items() if partition not in dropped}
        pending = dict(member.pending_revocation) | dropped
        if self._still_owns(pending):
            return member.at_epoch(member.member_epoch, ModernMemberState.UNREVOKED_PARTITIONS, kept, pending)
        return member.at_epoch(member.member_epoch, member.state, kept, member.pending_revocation)
