"""Random histories of a group whose members speak either protocol: no partition is used by two, and all are by one.

Members join, leave, return under their instance ids in the other protocol, die, subscribe to other topics; the
coordinator is replaced by one that folds the log, or what compaction left of it. Once changes stop, every partition
that somebody reads has an owner.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stratalog.replication.coordinator.groups.classic.group import ClassicGroup
from stratalog.replication.coordinator.groups.modern.group import ModernGroup
from stratalog.replication.coordinator.server_assignors import TopicIdPartition
from stratalog.storage.errors import GroupIdNotFoundError
from tests.examples import examples
from tests.replication.consumer_groups import GROUP, Consumer
from tests.replication.group_coordinator import NO_DELAY
from tests.replication.mixed_groups import ClassicConsumer, MixedCoordinator

SUBSCRIPTIONS = st.sampled_from([("a",), ("b",), ("a", "b")])
ANY = st.randoms(use_true_random=False)
Member = ClassicConsumer | Consumer


class MixedGroupHistories(RuleBasedStateMachine):
    """`members` are all that run, whether the coordinator still knows them or not."""

    @initialize(
        counts=st.tuples(*[st.integers(1, 4)] * 2),
        policy=st.sampled_from(["bidirectional"] * 3 + ["upgrade"]),
        is_eager=st.booleans(),
    )
    def start(self, counts: tuple[int, int], policy: str, is_eager: bool) -> None:
        """All members of the classic protocol are eager, or none."""
        self.is_eager = is_eager
        config = replace(NO_DELAY, group_consumer_assignment_interval_ms=0, group_consumer_migration_policy=policy)
        self.coordinator = MixedCoordinator(config, topics=dict(zip("ab", counts, strict=True)))
        self.members: list[Member] = []
        self.away: list[str] = []
        self.started = 0

    def anybody(self, chance: object) -> Member:
        return chance.choice(self.members)  # type: ignore[attr-defined, no-any-return]

    @precondition(lambda self: len(self.members) < 5)
    @rule(topics=SUBSCRIPTIONS, static=st.booleans(), is_modern=st.booleans())
    def somebody_starts(self, topics: tuple[str, ...], static: bool, is_modern: bool) -> None:
        self.started += 1
        instance_id = (self.away.pop() if self.away else f"i{self.started}") if static else None
        name = f"m{self.started}"
        if is_modern:
            self.members.append(Consumer(self.coordinator, name, topics, instance_id))  # type: ignore[arg-type]
        else:
            self.members.append(ClassicConsumer(self.coordinator, name, topics, instance_id, is_eager=self.is_eager))

    @precondition(lambda self: self.members)
    @rule(chance=ANY, turns=st.integers(1, 6))
    def turns(self, chance: object, turns: int) -> None:
        for _ in range(turns):
            self.coordinator.advance(0)
            if self.members:
                self.turn(self.anybody(chance))

    def turn(self, member: Member) -> None:
        """A modern member that slept until its group had become classic ends, as Kafka's consumer does then."""
        member.settle()
        if isinstance(member, Consumer) and any(isinstance(error, GroupIdNotFoundError) for error in member.errors):
            self.members.remove(member)

    @precondition(lambda self: self.members)
    @rule(chance=ANY, topics=SUBSCRIPTIONS)
    def subscribe_anew(self, chance: object, topics: tuple[str, ...]) -> None:
        member = self.anybody(chance)
        member.topics = topics
        if isinstance(member, ClassicConsumer):
            member.joins = True
        else:
            member.send_all = True

    @precondition(lambda self: self.members)
    @rule(chance=ANY, for_a_while=st.booleans())
    def leave(self, chance: object, for_a_while: bool) -> None:
        """A static member of the classic protocol that leaves for a while says nothing."""
        member = self.anybody(chance)
        self.members.remove(member)
        for_a_while &= member.instance_id is not None
        if isinstance(member, Consumer) and member.epoch > 0:
            member.leave(-2 if for_a_while else -1)
        elif isinstance(member, ClassicConsumer) and member.member_id and not for_a_while:
            member.leave()
        if member.instance_id is not None:
            self.away.append(member.instance_id)

    @precondition(lambda self: self.members)
    @rule(chance=ANY)
    def die(self, chance: object) -> None:
        self.members.remove(self.anybody(chance))

    @rule(duration_ms=st.sampled_from([500, 5_000, 20_000, 46_000]), at_once=st.booleans())
    def time_passes(self, duration_ms: int, at_once: bool) -> None:
        """`at_once`: the coordinator was busy, and everything that is due is one decision."""
        if at_once:
            self.coordinator.leap(duration_ms)
        else:
            self.coordinator.advance(duration_ms)

    @rule(compacted=st.booleans())
    def coordinator_fails(self, compacted: bool) -> None:
        self.coordinator.fail_over(compacted=compacted)

    @invariant()
    def what_a_member_uses_in_its_epoch_is_its_own_at_the_coordinator(self) -> None:
        """So that no two use one partition in epochs that count."""
        group = self.coordinator.shard.table.groups.get(GROUP)
        if not isinstance(group, ModernGroup):
            return
        for each in self.members:
            member = group.members.get(each.member_id)
            epoch = each.generation if isinstance(each, ClassicConsumer) else each.epoch
            if member is not None and 0 < epoch == member.member_epoch:
                assert each.owned <= {*member.assigned, *member.pending_revocation}

    @invariant()
    def a_partition_belongs_to_one_member(self) -> None:
        group = self.coordinator.shard.table.groups.get(GROUP)
        if isinstance(group, ModernGroup):
            owners: dict[TopicIdPartition, str] = {}
            for member in group.members.values():
                for partition in (*member.assigned, *member.pending_revocation):
                    assert owners.setdefault(partition, member.member_id) == member.member_id
            assert owners == group.owners

    @invariant()
    def the_log_tells_the_same_group(self) -> None:
        here, folded = (shard.table.groups.get(GROUP) for shard in (self.coordinator.shard, self.coordinator.folded()))
        assert type(here) is type(folded)
        if isinstance(here, ModernGroup) and isinstance(folded, ModernGroup):
            assert (here.members, here.targets) == (folded.members, folded.targets)
        if isinstance(here, ClassicGroup) and isinstance(folded, ClassicGroup):
            assert here.last_value == folded.last_value

    def teardown(self) -> None:
        if not hasattr(self, "coordinator"):
            return
        for _ in range(40):  # until the sessions and rebalance timeouts of who died are over, then to settle
            self.coordinator.advance(5_000)
            for member in list(self.members):
                self.turn(member)
        wanted = {topic for member in self.members for topic in member.topics}
        owned = [partition for member in self.members for partition in member.owned]
        assert sorted(owned) == sorted(self.coordinator.partitions(*wanted))


TestMixedGroupHistories = MixedGroupHistories.TestCase
TestMixedGroupHistories.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
