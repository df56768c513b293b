"""Assignors share as Kafka's own classes do: the worked example, a thousand recorded groups, what must always hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.clients.config import ConsumerConfig
from stratalog.clients.consumer.assignors.assignor import (
    AssignorMember,
    MemberAssignments,
    PartitionRacks,
    balance_score,
)
from stratalog.clients.consumer.assignors.range import RangeAssignor
from stratalog.clients.consumer.assignors.registry import ASSIGNORS
from stratalog.storage.records import TopicPartition
from stratalog.wire.consumer_protocol import Subscription
from tests.examples import examples
from tests.replication.oracle.answers import recorded_lines
from tests.replication.oracle.questions import SHAPES, group_shapes

STICKY = ("sticky", "cooperative-sticky")


class Round(NamedTuple):
    """One rebalance of a recorded group: what went in, and what Kafka made of it."""

    counts: dict[str, int]
    members: dict[str, AssignorMember]
    racks: PartitionRacks
    before: MemberAssignments
    kafka: MemberAssignments


def rounds_of(assignor_name: str) -> Iterator[Round]:
    for shape, answer in zip(group_shapes(), recorded_lines("assignors"), strict=True):
        before: MemberAssignments = {}
        for group, owners in zip(shape["rounds"], answer[assignor_name], strict=True):
            members = {at["id"]: member_of(assignor_name, at, before) for at in group["members"]}
            racks = {
                TopicPartition(t, n): set(on) for t, all_on in group["topics"].items() for n, on in enumerate(all_on)
            }
            counts = {topic: len(partitions) for topic, partitions in group["topics"].items()}
            kafka = by_member(list(members), owners)
            yield Round(counts, members, racks, before, kafka)
            before = kafka


def member_of(assignor_name: str, asked: Mapping[str, Any], before: MemberAssignments) -> AssignorMember:
    """As the member's own client makes it: what it had before, and what it claims beside."""
    owned = (*before.get(asked["id"], ()), *(TopicPartition(*claim) for claim in asked["claims"]))
    generation = asked["generation"]
    told = ASSIGNORS[assignor_name].user_data(owned, generation) if generation >= 0 else None
    return AssignorMember(
        Subscription(tuple(asked["topics"]), told, owned, generation, asked["rack"]), asked["instance"]
    )


def by_member(member_ids: list[str], owners: Mapping[str, list[int]]) -> MemberAssignments:
    shares: MemberAssignments = {member_id: [] for member_id in member_ids}
    for topic, positions in owners.items():
        for number, position in enumerate(positions):
            if position >= 0:
                shares[member_ids[position]].append(TopicPartition(topic, number))
    return shares


def as_sets(shares: MemberAssignments) -> dict[str, set[TopicPartition]]:
    return {member_id: set(partitions) for member_id, partitions in shares.items()}


def subscribed(shares: MemberAssignments, members: Mapping[str, AssignorMember]) -> bool:
    return all(tp.topic in members[name].subscription.topics for name, share in shares.items() for tp in share)


def group_of(*names: str, topics: tuple[str, ...], **owned: list[TopicPartition]) -> dict[str, AssignorMember]:
    return {name: AssignorMember(Subscription(topics, None, tuple(owned.get(name, ())), 1)) for name in names}


def numbers(shares: MemberAssignments, topic: str) -> dict[str, list[int]]:
    return {name: [tp.partition for tp in share if tp.topic == topic] for name, share in shares.items()}


def test_range_shares_three_topics_of_three_among_two_as_kafka_does_topic_by_topic() -> None:
    """Kafka's formula (D = N/M, R = N%M), with N of each topic by itself."""
    shares = RangeAssignor().assign(
        dict.fromkeys(("T1", "T2", "T3"), 3), group_of("C0", "C1", topics=("T1", "T2", "T3"))
    )
    for topic in ("T1", "T2", "T3"):
        assert numbers(shares, topic) == {"C0": [0, 1], "C1": [2]}


def test_range_gives_the_articles_five_and_four_of_nine_partitions_in_one_topic() -> None:
    shares = RangeAssignor().assign({"TP": 9}, group_of("C0", "C1", topics=("TP",)))
    assert numbers(shares, "TP") == {"C0": [0, 1, 2, 3, 4], "C1": [5, 6, 7, 8]}


def test_round_robin_deals_the_articles_nine_partitions_five_and_four() -> None:
    topics = ("T1", "T2", "T3")
    shares = ASSIGNORS["roundrobin"].assign(dict.fromkeys(topics, 3), group_of("C0", "C1", topics=topics))
    assert numbers(shares, "T1") == {"C0": [0, 2], "C1": [1]}
    assert numbers(shares, "T2") == {"C0": [1], "C1": [0, 2]}
    assert numbers(shares, "T3") == {"C0": [0, 2], "C1": [1]}


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_range_and_round_robin_share_a_thousand_recorded_groups_exactly_as_kafka(name: str) -> None:
    different = [
        at
        for at, one in enumerate(rounds_of(name))
        if as_sets(ASSIGNORS[name].assign(one.counts, one.members, one.racks)) != as_sets(one.kafka)
    ]
    assert different == []


@pytest.mark.parametrize("name", STICKY)
def test_sticky_assignors_share_recorded_groups_exactly_as_kafka_where_kafka_keeps_to_subscriptions(name: str) -> None:
    """In 10 of 2,000 rounds Kafka 4.3.1 gives a member partitions of a topic that it has dropped: they go back to an
    owner of an older generation. We do not."""
    unlike_kafka, compared = [], 0
    for at, one in enumerate(rounds_of(name)):
        ours = ASSIGNORS[name].assign(one.counts, one.members, one.racks)
        assert subscribed(ours, one.members)
        if as_sets(ours) != as_sets(one.kafka):
            assert not subscribed(one.kafka, one.members), f"round {at}"
            unlike_kafka.append(at)
        compared += 1
    assert (compared, len(unlike_kafka)) == (2 * SHAPES, 10)


def test_the_recorded_groups_have_everything_that_decides() -> None:
    """Racks, static members, old generations, double claims, unequal subscriptions: none is missing by accident."""
    members = [member for shape in group_shapes() for one in shape["rounds"] for member in one["members"]]
    assert sum(member["rack"] is not None for member in members) > 1000
    assert sum(member["instance"] is not None for member in members) > 500
    assert sum(3 <= member["generation"] < 5 for member in members) > 100
    assert sum(bool(member["claims"]) for member in members) > 100
    unequal = [
        one
        for shape in group_shapes()
        for one in shape["rounds"]
        if len({tuple(sorted(m["topics"])) for m in one["members"]}) > 1
    ]
    assert len(unequal) > 500


SUBSCRIPTIONS = st.dictionaries(
    st.integers(0, 30).map(lambda number: f"member-{number}"),
    st.sets(st.sampled_from(["a", "b", "c", "d", "gone"]), max_size=5),
    min_size=1,
    max_size=8,
)
COUNTS = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(0, 9))


@pytest.mark.parametrize("name", list(ASSIGNORS))
@settings(max_examples=examples(150), deadline=None)
@given(counts=COUNTS, first=SUBSCRIPTIONS, second=SUBSCRIPTIONS)
def test_each_partition_that_somebody_wants_has_one_owner_who_wants_it(
    name: str, counts: dict[str, int], first: dict[str, set[str]], second: dict[str, set[str]]
) -> None:
    """Also of members that subscribe to nothing, and when what is owned is no longer there."""
    assignor = ASSIGNORS[name]
    grown = dict.fromkeys(counts, 9)
    before = assignor.assign(grown, {n: AssignorMember(Subscription(tuple(sorted(t)))) for n, t in first.items()})
    members = {
        n: AssignorMember(
            Subscription(tuple(sorted(t)), assignor.user_data(before.get(n, ()), 1), tuple(before.get(n, ())), 1)
        )
        for n, t in second.items()
    }
    shares = assignor.assign(counts, members)
    given_out = sorted(tp for share in shares.values() for tp in share)
    wanted = {topic for member in members.values() for topic in member.subscription.topics}
    everything = sorted(
        TopicPartition(topic, at) for topic, count in counts.items() if topic in wanted for at in range(count)
    )
    assert set(shares) == set(members)
    assert subscribed(shares, members)
    assert len(given_out) == len(set(given_out))
    if not assignor.cooperative:
        assert given_out == everything
        return
    waiting = set(everything).difference(given_out)
    held = {tp for member in members.values() for tp in member.subscription.owned_partitions}
    assert waiting <= held


@settings(max_examples=examples(150), deadline=None)
@given(count=st.integers(1, 40), first=st.integers(1, 8), second=st.integers(1, 8))
def test_a_sticky_group_moves_no_more_than_evenness_asks(count: int, first: int, second: int) -> None:
    """With one subscription for all, members that stay keep as much as their even share allows."""
    sticky = ASSIGNORS["sticky"]
    names = [f"member-{at}" for at in range(max(first, second))]
    before = sticky.assign({"t": count}, group_of(*names[:first], topics=("t",)))
    members = {
        name: AssignorMember(Subscription(("t",), sticky.user_data(before.get(name, ()), 1), (), 1))
        for name in names[:second]
    }
    after = sticky.assign({"t": count}, members)
    kept = sum(len(set(after[name]) & set(before.get(name, ()))) for name in after)
    quota, larger = divmod(count, second)
    owned = sorted((len(before.get(name, ())) for name in after), reverse=True)
    assert sorted(map(len, after.values()), reverse=True) == [quota + (at < larger) for at in range(second)]
    assert kept == sum(min(has, quota + (at < larger)) for at, has in enumerate(owned))


def test_a_cooperative_group_hands_a_partition_on_only_when_its_owner_has_given_it_up() -> None:
    cooperative = ASSIGNORS["cooperative-sticky"]
    both = group_of("a", "b", topics=("t",), a=[TopicPartition("t", 0), TopicPartition("t", 1)])
    first = cooperative.assign({"t": 2}, both)
    assert numbers(first, "t") == {"a": [0], "b": []}
    second = cooperative.assign({"t": 2}, group_of("a", "b", topics=("t",), a=first["a"]))
    assert numbers(second, "t") == {"a": [0], "b": [1]}


def test_of_two_members_that_claim_a_partition_the_newer_generation_has_it() -> None:
    claimed = (TopicPartition("t", 0),)
    members = {
        "old": AssignorMember(Subscription(("t",), None, claimed, 3)),
        "new": AssignorMember(Subscription(("t",), None, claimed, 4)),
    }
    assert ASSIGNORS["cooperative-sticky"].assign({"t": 1}, members) == {"old": [], "new": list(claimed)}


def test_user_data_that_cannot_be_read_counts_as_owning_nothing() -> None:
    members = {
        "a": AssignorMember(Subscription(("t",), b"\x00\x00\x00\x05junk")),
        "b": AssignorMember(Subscription(("t",))),
    }
    assert sorted(len(share) for share in ASSIGNORS["sticky"].assign({"t": 2}, members).values()) == [1, 1]


def test_a_group_of_a_hundred_over_a_thousand_partitions_is_shared_evenly() -> None:
    members = group_of(*(f"m{at:03}" for at in range(100)), topics=("t",))
    for name, assignor in ASSIGNORS.items():
        shares = assignor.assign({"t": 1000}, members)
        assert {len(share) for share in shares.values()} == {10}, name


@pytest.mark.parametrize(
    ("sizes", "score"), [((), 0), ((3,), 0), ((2, 2, 2), 0), ((2, 0, 0), 4), ((5, 4), 1), ((1, 3, 6), 10)]
)
def test_the_balance_score_is_the_sum_of_differences_over_all_pairs(sizes: tuple[int, ...], score: int) -> None:
    shares = {f"m{at}": [TopicPartition("t", n) for n in range(size)] for at, size in enumerate(sizes)}
    assert balance_score(shares) == score


def test_the_defaults_are_kafkas() -> None:
    assert ConsumerConfig().partition_assignment_strategy == ("range", "cooperative-sticky")
    assert [ASSIGNORS[name].cooperative for name in ASSIGNORS] == [False, False, False, True]
