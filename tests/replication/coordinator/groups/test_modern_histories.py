"""Random histories of a KIP-848 group: no partition has two owners, and once changes stop all have their targets.

Members join, leave, change topics, lose answers, are slow to give partitions up, sleep beyond their session; topics and
partitions come; the coordinator is replaced by one that folds the log, or what compaction left of it.
"""

from __future__ import annotations

from dataclasses import fields

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stratalog.replication.coordinator.groups.modern.group import ModernGroup
from stratalog.replication.coordinator.server_assignors import TopicIdPartition
from stratalog.storage.errors import UnreleasedInstanceIdError
from tests.examples import examples
from tests.replication.consumer_groups import GROUP, Consumer, Coordinator

TOPICS = ("a", "b", "c")
SUBSCRIPTIONS = st.sampled_from([(), ("a",), ("b",), ("a", "b"), ("a", "b", "c")])
ANY = st.randoms(use_true_random=False)


class ConsumerGroupHistories(RuleBasedStateMachine):
    """`consumers` are all that run, whether the coordinator still knows them or not."""

    @initialize(interval_ms=st.sampled_from([0, 1_000]), counts=st.tuples(*[st.integers(0, 4)] * 2))
    def start(self, interval_ms: int, counts: tuple[int, int]) -> None:
        self.coordinator = Coordinator(interval_ms=interval_ms)
        for name, partitions in zip(TOPICS, counts, strict=False):
            self.coordinator.create_topic(name, partitions)
        self.consumers: list[Consumer] = []
        self.away: list[str] = []
        self.started = 0

    def anybody(self, chance: object) -> Consumer:
        return chance.choice(self.consumers)  # type: ignore[attr-defined, no-any-return]

    @property
    def group(self) -> ModernGroup:
        found = self.coordinator.table.groups.get(GROUP)
        return found if isinstance(found, ModernGroup) else ModernGroup(GROUP)

    @precondition(lambda self: len(self.consumers) < 6)
    @rule(topics=SUBSCRIPTIONS, static=st.booleans(), regex=st.sampled_from([None, None, None, "[ab]", "c"]))
    def somebody_starts(self, topics: tuple[str, ...], static: bool, regex: str | None) -> None:
        self.started += 1
        instance_id = (self.away.pop() if self.away else f"i{self.started}") if static else None
        self.consumers.append(Consumer(self.coordinator, f"m{self.started}", topics, instance_id, regex))

    @precondition(lambda self: self.consumers)
    @rule(chance=ANY, answer_lost=st.sampled_from([False, False, False, True]))
    def heartbeat(self, chance: object, answer_lost: bool) -> None:
        self.anybody(chance).heartbeat(answer_lost=answer_lost)

    @precondition(lambda self: self.consumers)
    @rule(chance=ANY)
    def give_up_and_take(self, chance: object) -> None:
        self.anybody(chance).reconcile()

    @precondition(lambda self: self.consumers)
    @rule(chance=ANY, topics=SUBSCRIPTIONS)
    def subscribe_anew(self, chance: object, topics: tuple[str, ...]) -> None:
        """After it took what it was assigned. Else, as in Kafka 4.3.1, a topic that it drops is free at once, since it
        does not own it yet, and it may still take it if the answer that says so is lost."""
        consumer = self.anybody(chance)
        consumer.reconcile()
        consumer.topics, consumer.send_all = topics, True

    @precondition(lambda self: self.consumers)
    @rule(chance=ANY, for_a_while=st.booleans())
    def leave(self, chance: object, for_a_while: bool) -> None:
        consumer = self.anybody(chance)
        if consumer.epoch > 0:
            for_a_while &= consumer.instance_id is not None
            consumer.leave(-2 if for_a_while else -1)
            if consumer.instance_id is not None:
                self.away.append(consumer.instance_id)
        self.consumers.remove(consumer)

    @precondition(lambda self: self.consumers)
    @rule(chance=ANY)
    def die(self, chance: object) -> None:
        self.consumers.remove(self.anybody(chance))

    @rule(duration_ms=st.sampled_from([500, 5_000, 20_000, 46_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.coordinator.pass_time(duration_ms)

    @rule(topic=st.sampled_from(TOPICS), more=st.integers(1, 3))
    def topics_grow(self, topic: str, more: int) -> None:
        if topic not in self.coordinator.image.topic_ids:
            self.coordinator.create_topic(topic, more)
        else:
            self.coordinator.add_partitions(topic, more)

    @rule(compacted=st.booleans())
    def coordinator_fails(self, compacted: bool) -> None:
        before = self.group
        log = self.coordinator.compacted() if compacted else None
        self.coordinator.fail_over(log)
        for field in fields(ModernGroup):
            if field.compare and field.name != "regexes_checked_ms":
                assert getattr(self.group, field.name) == getattr(before, field.name), field.name

    @invariant()
    def a_partition_belongs_to_one_member(self) -> None:
        owners: dict[TopicIdPartition, str] = {}
        for member in self.group.members.values():
            for partition in (*member.assigned, *member.pending_revocation):
                assert owners.setdefault(partition, member.member_id) == member.member_id
        assert owners == self.group.owners

    @invariant()
    def what_a_member_uses_in_its_epoch_is_its_own_at_the_coordinator(self) -> None:
        """So that no two use one partition in epochs that count. Who missed an answer, or was removed, has an epoch in
        which commits are refused; it may then even take what it told before that it does not have, as in Kafka."""
        for consumer in self.consumers:
            member = self.group.members.get(consumer.member_id)
            if member is not None and 0 < consumer.epoch == member.member_epoch:
                assert consumer.owned <= {*member.assigned, *member.pending_revocation}

    @invariant()
    def an_instance_id_is_refused_to_others_only(self) -> None:
        """A member that the coordinator knows is never told that its instance id is another's."""
        for consumer in self.consumers:
            refused = any(isinstance(error, UnreleasedInstanceIdError) for error in consumer.errors)
            assert not (refused and consumer.member_id in self.group.members)

    @invariant()
    def epochs_are_ordered(self) -> None:
        group = self.group
        assert group.target_epoch <= group.group_epoch
        assert all(member.member_epoch <= group.target_epoch for member in group.members.values())

    def teardown(self) -> None:
        if not hasattr(self, "coordinator"):
            return
        for _ in range(12):  # five until the last session of who died is over, the rest to settle
            self.coordinator.pass_time(11_000)
            for consumer in self.consumers:
                consumer.settle()
        if not self.consumers:
            assert self.group.is_empty
            return
        group = self.group
        assert group.state_name == "Stable"
        assert {consumer.epoch for consumer in self.consumers} == {group.group_epoch}
        for consumer in self.consumers:
            assert consumer.owned == group.targets.get(consumer.member_id, frozenset())
        wanted = {topic for member in group.members.values() for topic in group.topics_of(member)}
        owned = [partition for consumer in self.consumers for partition in consumer.owned]
        assert sorted(owned) == sorted(self.coordinator.partitions(*(wanted & self.coordinator.image.topic_ids.keys())))


TestConsumerGroupHistories = ConsumerGroupHistories.TestCase
TestConsumerGroupHistories.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
