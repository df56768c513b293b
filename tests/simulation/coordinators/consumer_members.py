"""Members of a KIP-848 group in a simulated cluster with its real coordinators: they join, reconcile, hang, leave, die.

Each drives the membership of the real consumer (`clients.consumer.modern_membership`). Some are slow to release
partitions, some hang for longer than their session and then continue. With assignors, every second life of a member is
one of the classic protocol (`clients.consumer.classic_membership`), and the group changes to and fro. After all faults
the group becomes stable.

OneOwner         no partition is assigned to two members, neither in the log nor in the answers to members
EpochsGrow       a member's epoch never goes back, nor does the group's, in the log and in answers
FencedEpoch      a member with a partition that was assigned to another one since is refused, in heartbeats and commits
CommittedOffset  a fetched offset is no older than those acknowledged before the fetch
Liveness         after all faults every partition has one member, and every member its target assignment
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar
from unittest.mock import patch

from stratalog.clients.consumer.assignors.registry import ASSIGNORS
from stratalog.clients.consumer.classic_membership import ClassicMembership, ClassicMembershipState
from stratalog.clients.consumer.membership import FindCoordinator, MembershipConfig, Send
from stratalog.clients.consumer.modern_membership import ModernMembership, ModernMembershipState
from stratalog.replication.coordinator.groups.modern.records import (
    KEY_VERSIONS,
    KeyVersion,
    decode_current,
    decode_group_epoch,
    decode_key,
)
from stratalog.replication.coordinator.groups.table import DecisionBuilder, GroupTable
from stratalog.replication.coordinator.server_assignors import TopicIdPartition
from stratalog.replication.internal_topics import GROUP_METADATA_TOPIC
from stratalog.replication.requests.consumer_groups import (
    JOIN_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from stratalog.replication.requests.groups import SyncGroupRequest, SyncGroupResponse
from stratalog.storage.errors import CommitFailedError, RebalanceInProgressError, RequestTimedOutError
from stratalog.storage.records import TopicPartition
from stratalog.wire.consumer_protocol import decode_assignment
from stratalog.wire.kafka_types import version_of
from tests.simulation.cluster import TOPIC, SimCluster
from tests.simulation.coordinators.coordinator_clients import GROUP, error_of
from tests.simulation.coordinators.groups import SESSION_MS, GroupClient, Groups

GROUP_ID = "n"
REBALANCE_MS = 500
Owners = Mapping[int, tuple[int, str]]
"""The newest member epoch in which a partition was assigned in an answer, and the member, by partition."""


class ConsumerGroups(Groups):
    """The answers to the members of the group. `is_over`: the group is stable and members may end."""

    running: ClassVar[ConsumerGroups]
    """Those of the run that goes on."""

    def __init__(self, sim: SimCluster) -> None:
        super().__init__(sim)
        self.owners: dict[int, tuple[int, str]] = {}
        self.members: list[ConsumerMember] = []
        self.is_over = False
        self.assignors: tuple[str, ...] = ()
        """Of lives of the classic protocol; empty: there are none."""
        self.renewals = 0
        """How often epochs began again."""
        ConsumerGroups.running = self

    def forget(self) -> None:
        """Compare nothing with earlier epochs, nor with the offsets that were committed in them."""
        self.owners.clear()
        self.of(GROUP_ID).acked.clear()

    def beat(self, member: str, before: int, epoch: int, partitions: Iterable[int]) -> None:
        """A member of epoch `before` received its epoch and, in total, these partitions."""
        if epoch < before:
            self.fail("EpochsGrow", f"{member} received {before}, then {epoch}")
        for partition in partitions:
            known, owner = self.owners.get(partition, (-1, ""))
            if known == epoch and owner != member:
                self.fail("OneOwner", f"{partition} in epoch {epoch}: {owner}, {member}")
            if known <= epoch:
                self.owners[partition] = epoch, member

    def accepted(self, member: str, epoch: int, partitions: Iterable[int], owners_before: Owners) -> None:
        """The coordinator accepted a request of this epoch with these partitions, sent after `owners_before`."""
        for partition in partitions:
            known, owner = owners_before.get(partition, (-1, ""))
            if owner != member and known >= epoch:
                self.fail("FencedEpoch", f"{partition}: {member} in epoch {epoch}, {owner} has it since {known}")

    def note_end(self) -> None:
        """After all faults: check that every partition has one member that knows of it."""
        partitions = [tp for tp in self.sim.invariants.partitions if tp.topic == TOPIC]
        owned = [partition for each in self.members for partition in each.membership.owned]
        are_stable = all(each.is_stable for each in self.members)
        self.is_over = are_stable and sorted(owned) == sorted(partitions)

    def check_end(self) -> None:
        """The log, record by record."""
        for history in self.sim.invariants.histories.values():
            if history.topic_partition.topic == GROUP_METADATA_TOPIC and not history.lossy:
                self._check_log((each.key or b"", each.value) for _, each in sorted(history.committed.items()))

    def _check_log(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        group_epoch = -1
        epochs: dict[str, int] = {}
        owned: dict[str, set[TopicIdPartition]] = {}
        for stored, value in records:
            if not stored or version_of(stored) not in KEY_VERSIONS:
                continue
            key = decode_key(stored)
            if key.version == KeyVersion.GROUP:
                before, group_epoch = group_epoch, -1 if value is None else decode_group_epoch(value).epoch
                if value is not None and group_epoch < before:
                    self.fail("EpochsGrow", f"group epoch {before}, then {group_epoch}")
            if key.version != KeyVersion.CURRENT:
                continue
            member, before = key.name, epochs.pop(key.name, -1)
            owned.pop(member, None)
            if value is None:
                continue
            current = decode_current(value)
            owned[member], epochs[member] = {*current.assigned, *current.pending_revocation}, current.member_epoch
            if 0 <= current.member_epoch < before:
                self.fail("EpochsGrow", f"{member} in the log: {before}, then {current.member_epoch}")
            for other, others in owned.items():
                if other != member and not owned[member].isdisjoint(others):
                    self.fail("OneOwner", f"{owned[member] & others} in the log: {other}, {member}")


@contextmanager
def epochs_begin_anew() -> Iterator[None]:
    """An empty group is replaced by one of the other protocol, whose epochs begin again: what earlier members were told
    is compared no more."""
    replaces = GroupTable.remove_if_empty_of_other_type

    def replacing(table: GroupTable, group_id: str, group_type: str, decision: DecisionBuilder) -> None:
        before = table.groups.get(group_id)
        replaces(table, group_id, group_type, decision)
        if before is not None and group_id not in table.groups:
            running = ConsumerGroups.running
            running.renewals += 1
            running.forget()

    with patch.object(GroupTable, "remove_if_empty_of_other_type", replacing):
        yield


class ConsumerMember(GroupClient):
    """A consumer; the first one is a static member."""

    def __init__(self, sim: SimCluster, groups: ConsumerGroups, number: int) -> None:
        super().__init__(sim, groups, f"n{number}", GROUP_ID)
        self._consumers = groups
        self._instance_id = f"i{number}" if number == 0 else None
        self._assigned: list[int] = []
        self._lives = 0
        self._live_anew()
        groups.members.append(self)

    def _live_anew(self) -> None:
        self._lives += 1
        config = MembershipConfig(
            GROUP_ID,
            self._instance_id,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=SESSION_MS // 5,
            max_poll_interval_ms=REBALANCE_MS,
            retry_backoff_ms=20,
            client_id=self.name,
        )
        assignors = [ASSIGNORS[name] for name in self._consumers.assignors]
        self.membership: ModernMembership | ClassicMembership
        if assignors and self.random.random() < 0.5:
            self.membership = ClassicMembership(config, assignors, self._partition_count)
        else:
            self.membership = ModernMembership(config, f"{self.name}.{self._lives}", self._topic_name)
        self.membership.subscribe(frozenset({TOPIC}))

    @property
    def is_stable(self) -> bool:
        is_reconciled = self.membership.state in (ModernMembershipState.STABLE, ClassicMembershipState.STABLE)
        return is_reconciled and self.membership.is_settled

    def _partition_count(self, topic: str) -> int:
        return len(self.metadata.image.partitions_by_topic.get(topic, ()))

    def _has_failed(self) -> bool:
        return self.membership.state is ModernMembershipState.FATAL or self.membership.take_failure() is not None

    def _topic_name(self, topic_id: str) -> str | None:
        return next((name for name, known in self.metadata.image.topic_ids.items() if known == topic_id), None)

    def run(self) -> None:
        while not self._consumers.is_over:
            is_polling = not self.goes_on or self.random.random() < 0.8
            step = self.membership.step(self.sim.scheduler.now_ms, is_polling=is_polling)
            for send in step.sends:
                self._send(send)
            if step.call is not None:
                is_slow = self.goes_on and self.random.random() < 0.1
                self.rest(1, 2 * REBALANCE_MS if is_slow else 40)
                self.membership.performed(step.call)
            if self.goes_on:
                self._live()
            elif not self._consumers.is_over:
                self._end()
            self.rest(10, 100)

    def _end(self) -> None:
        if self._has_failed():
            self._live_anew()
        self._consumers.note_end()

    def _live(self) -> None:
        draw = self.random.random()
        if draw < 0.03:
            for send in self.membership.leave(""):
                self._send(send)
        if draw < 0.06 or self._has_failed():
            self._live_anew()
        elif draw < 0.10:
            self.rest(100, 2_500)
        if draw < 0.5:
            self._commit()

    def _send(self, send: Send) -> None:
        request, membership = send.request, self.membership
        if isinstance(request, FindCoordinator):
            membership.answered(send.token, 0, self.sim.scheduler.now_ms)
            return
        owners_before, owned = dict(self._consumers.owners), _numbers(membership.owned)
        renewals = self._consumers.renewals
        answer = self._answer(GROUP, GROUP_ID, request)
        if (
            isinstance(answer, ConsumerGroupHeartbeatResponse)
            and answer.error is None
            and answer.assignment is not None
        ):
            self._assigned = [number for topic in answer.assignment.topic_partitions for number in topic.partitions]
        if answer is not None and error_of(answer) is None and renewals == self._consumers.renewals:
            if isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch >= JOIN_EPOCH:
                assert isinstance(answer, ConsumerGroupHeartbeatResponse)
                self._accepted(request, answer, owned, owners_before)
            elif isinstance(request, SyncGroupRequest):
                assert isinstance(answer, SyncGroupResponse)
                assigned = _numbers(decode_assignment(answer.assignment).partitions)
                self._consumers.beat(self._member_name, request.generation_id, request.generation_id, assigned)
        known = answer if answer is not None else RequestTimedOutError("no answer came")
        membership.answered(send.token, known, self.sim.scheduler.now_ms)

    def _accepted(
        self,
        request: ConsumerGroupHeartbeatRequest,
        answer: ConsumerGroupHeartbeatResponse,
        owned: list[int],
        owners_before: Owners,
    ) -> None:
        self._consumers.accepted(self._member_name, request.member_epoch, owned, owners_before)
        self._consumers.beat(self._member_name, request.member_epoch, answer.member_epoch, self._assigned)

    @property
    def _member_name(self) -> str:
        return self._instance_id or self.membership.generation.member_id

    def _commit(self) -> None:
        try:
            generation = self.membership.identity_for_commit()
        except (CommitFailedError, RebalanceInProgressError):
            return
        owned, epoch = self.membership.owned, generation.generation_id
        if not owned or epoch <= 0:
            return
        partition = self.random.choice(_numbers(owned))
        owners_before = dict(self._consumers.owners)
        renewals = self._consumers.renewals
        answer, error = self.commit(partition, epoch, generation.member_id)
        if renewals != self._consumers.renewals:
            self._consumers.forget()
        elif answer is None:
            self._live_anew()  # it may still arrive
        elif error is None:
            self._consumers.accepted(self._member_name, epoch, [partition], owners_before)
            self.fetch(partition)


def _numbers(partitions: Iterable[TopicPartition]) -> list[int]:
    return sorted(each.partition for each in partitions)
