"""Random lives of a group: members join, leave, die, come back and commit while time passes, records wait for the high
watermark and coordinators are killed.

After every step: one owner of a partition in a generation, told offsets stay, one answer to each request, and a shard
folded from the log is what the living one is.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.classic.group import ClassicGroup, GroupState
from stratalog.replication.coordinator.groups.committed_offsets import CommittedOffsets, Offsets
from stratalog.replication.coordinator.groups.records import OffsetCommitValue
from stratalog.replication.requests.groups import (
    LeaveGroupRequest,
    MemberIdentity,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    PartitionsDeleted,
    TxnOffsetCommitRequest,
)
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from tests.examples import examples
from tests.replication.group_client import COMMITTING, Client, Ownership, settle
from tests.replication.group_coordinator import Coordinator, error_name

PARTITIONS = 5
NAMES = "abcd"
INSTANCES = {"c": "c", "d": "d"}
"""Clients that are static members."""
PRODUCERS = (7, 8)


class GroupLife(RuleBasedStateMachine):
    """`told` is the offset of partition 0 that a member was told is committed; what a transaction did is not in it."""

    def __init__(self) -> None:
        super().__init__()
        config = BrokerConfig(group_initial_rebalance_delay_ms=100, offsets_retention_check_interval_ms=2**31 - 1)
        self.coordinator = Coordinator(config, commits_at_once=False)
        self.ownership = Ownership(PARTITIONS)
        self.clients: dict[str, Client] = {}
        self.old_selves: list[Client] = []
        self.next_offset = 0
        self.told = -1

    @initialize()
    def begin(self) -> None:
        for name in NAMES[:2]:
            self.appear(name)

    # Members

    @rule(name=st.sampled_from(NAMES))
    def appear(self, name: str) -> None:
        """A client starts; a static one perhaps while its old self lives on."""
        if name in self.clients:
            if name not in INSTANCES:
                return
            self.old_selves = [*self.old_selves[-1:], self.clients[name]]
        self.clients[name] = Client(name, self.coordinator, self.ownership, INSTANCES.get(name))

    @rule(name=st.sampled_from(NAMES), steps=st.integers(1, 4))
    def step(self, name: str, steps: int) -> None:
        for _ in range(steps):
            if name in self.clients:
                self.clients[name].step()

    @rule()
    def step_old_selves(self) -> None:
        for client in self.old_selves:
            client.step()

    @rule(name=st.sampled_from(NAMES))
    def die(self, name: str) -> None:
        self.clients.pop(name, None)

    @rule(name=st.sampled_from(NAMES))
    def leave(self, name: str) -> None:
        client = self.clients.pop(name, None)
        if client is not None:
            self.coordinator.ask(LeaveGroupRequest("g", (MemberIdentity(client.member_id, client.instance_id),)))

    # Offsets

    @rule(name=st.sampled_from(NAMES), partition=st.integers(0, 1))
    def commit_offset(self, name: str, partition: int) -> None:
        client = self.clients.get(name)
        if client is not None and client.is_stable:
            self.next_offset += 1
            client.commit(self.next_offset, partition)

    @rule(name=st.sampled_from(NAMES))
    def late_commit(self, name: str) -> None:
        """The last commit comes once more, late, in another generation: what was told since is not undone by it."""
        client, group = self.clients.get(name), self.coordinator.shard.table.groups.get("g")
        if client is None or client.commit_sent is None or not isinstance(group, ClassicGroup):
            return
        if client.commit_sent.generation_id_or_member_epoch != group.generation_id:
            self.coordinator.ask(client.commit_sent)

    @rule(producer_id=st.sampled_from(PRODUCERS))
    def commit_in_transaction(self, producer_id: int) -> None:
        """Of partition 1, so that what was told of partition 0 holds."""
        self.next_offset += 1
        topics = (OffsetCommitRequestTopic("t", (OffsetCommitRequestPartition(1, self.next_offset),)),)
        self.coordinator.ask(TxnOffsetCommitRequest("x", "g", producer_id, 0, topics))

    @rule(producer_id=st.sampled_from(PRODUCERS), is_commit=st.booleans())
    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        self.coordinator.end_transaction(producer_id, 0, is_commit)

    @rule()
    def delete_the_offset(self) -> None:
        """Of partition 1, as if its topic were gone."""
        self.coordinator.ask(PartitionsDeleted((IdentifiedPartition("", TopicPartition("t", 1)),)))

    @rule()
    def the_log_refuses_producers(self) -> None:
        self.coordinator.refuse_transactions()

    # Time and faults

    @rule()
    def high_watermark(self) -> None:
        self.coordinator.commit()

    @rule(duration_ms=st.sampled_from([1, 50, 100, 3_000, 9_999, 10_000, 60_000, 300_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.coordinator.advance(duration_ms)

    @rule()
    def coordinator_dies(self) -> None:
        self.coordinator.crash()
        assert self.coordinator.asked.keys() == self.coordinator.answered.keys()

    @rule()
    def everything_calms_down(self) -> None:
        """Without further faults all that live own everything, each its share, once the dead ones' sessions ended."""
        self.coordinator.commit()
        self.old_selves = []
        for _ in range(10):
            self.clients = {name: client for name, client in self.clients.items() if not client.is_fenced}
            if not self.clients:
                return
            settle(self.coordinator, list(self.clients.values()))
            owned = sorted(each for client in self.clients.values() for each in client.owned or ())
            if owned == list(range(PARTITIONS)) or any(client.is_fenced for client in self.clients.values()):
                return
            self.coordinator.advance(3_000)
        raise AssertionError(f"only {owned} are owned")

    # What holds

    @invariant()
    def told_offsets_stay(self) -> None:
        for client in [*self.clients.values(), *self.old_selves]:
            answer: Any = self.coordinator.answered.get(client.token)
            if client.waits != COMMITTING or answer is None or isinstance(answer, Exception):
                continue
            told = answer.topics[0].partitions[0]
            if told.partition_index == 0 and error_name(told) == "NONE":
                self.told = max(self.told, client.commits or -1)
        found, _, _ = held_by(self.coordinator.shard.offsets)
        offsets = [value.offset for (_, partition), value in found.items() if partition.partition == 0]
        assert (offsets[0] if offsets else -1) >= self.told

    @invariant()
    def owners_that_are_members_of_the_generation_share_nothing(self) -> None:
        group = self.coordinator.shard.table.groups.get("g")
        if not isinstance(group, ClassicGroup):
            return
        owned = [
            partition
            for client in self.clients.values()
            if client.generation_id == group.generation_id and client.member_id in group.members
            for partition in client.owned or ()
        ]
        assert len(owned) == len(set(owned))

    @invariant()
    def a_fold_of_the_log_is_what_is_stored(self) -> None:
        if self.coordinator.uncommitted:
            return
        live, folded = self.coordinator.shard, self.coordinator.folded()
        assert held_by(folded.offsets) == held_by(live.offsets)
        assert folded.table.groups.keys() <= live.table.groups.keys()
        for group_id, group in live.table.groups.items():
            assert isinstance(group, ClassicGroup)
            if group_id not in folded.table.groups:
                # Made for a transactional commit that the log refused; it goes with the next round of expiry, unless a
                # member joins it meanwhile: that is stored with the first generation that becomes stable.
                assert group.state is not GroupState.STABLE
                assert (group.last_value, live.offsets.count(group_id)) == (None, 0)
                continue
            other = folded.table.groups[group_id]
            assert isinstance(other, ClassicGroup)
            assert other.last_value == group.last_value
            if group.state in (GroupState.STABLE, GroupState.EMPTY):
                assert other.metadata_value() == group.metadata_value()
                assert (other.state, other.subscribed_topics) == (group.state, group.subscribed_topics)

    @invariant()
    def tokens_wait_in_one_place(self) -> None:
        group = self.coordinator.shard.table.groups.get("g")
        if isinstance(group, ClassicGroup):
            assert group.awaiting_join.keys() <= group.members.keys()
            assert group.awaiting_sync.keys() <= group.members.keys()
            assert not group.awaiting_join.keys() & group.awaiting_sync.keys()
            if group.state is not GroupState.PREPARING_REBALANCE:
                assert not group.awaiting_join
            if group.state is not GroupState.COMPLETING_REBALANCE:
                assert not group.awaiting_sync


Values = dict[tuple[str, TopicPartition], OffsetCommitValue]


def held_by(offsets: CommittedOffsets) -> tuple[Values, dict[int, Values], dict[str, set[int]]]:
    """What a shard holds: offsets that are committed, those of open transactions by producer, open transactions."""
    pending = {producer_id: values_of(found) for producer_id, found in offsets._pending.items()}
    return values_of(offsets._offsets), pending, offsets._open


def values_of(offsets: Offsets) -> Values:
    """Without their order, which counts what was refused, too."""
    return {
        (group_id, partition): committed.value
        for group_id, of_group in offsets.items()
        for partition, committed in of_group.items()
    }


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
