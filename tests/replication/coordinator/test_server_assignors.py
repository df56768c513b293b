"""The coordinator's own assignors: as even as they may be, little moved, and as Kafka's classes where those are
deterministic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.replication.coordinator.server_assignors import (
    SERVER_ASSIGNORS,
    MemberSpec,
    Shares,
    TopicIdPartition,
)
from tests.examples import examples
from tests.replication.oracle.answers import recorded_lines
from tests.replication.oracle.server_questions import SHAPES, target_shapes


class Round(NamedTuple):
    """One recorded target assignment."""

    counts: dict[str, int]
    specs: dict[str, MemberSpec]
    kafka: Shares

    @property
    def is_even(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return len({spec.topic_ids for spec in self.specs.values()}) == 1


def rounds_of(assignor_name: str) -> Iterator[Round]:
    for shape, answer in zip(target_shapes(), recorded_lines("targets"), strict=True):
        before: Shares = {}
        for group, owners in zip(shape["rounds"], answer[assignor_name], strict=True):
            specs = {member["id"]: spec_of(member, before) for member in group["members"]}
            kafka = by_member(list(specs), owners)
            yield Round(group["counts"], specs, kafka)
            before = kafka


def spec_of(member: Mapping[str, Any], before: Shares) -> MemberSpec:
    return MemberSpec(frozenset(member["topics"]), before.get(member["id"], frozenset()), member["instance"])


def by_member(member_ids: list[str], owners: Mapping[str, list[int]]) -> Shares:
    shares: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in member_ids}
    for topic_id, positions in owners.items():
        for number, position in enumerate(positions):
            if position >= 0:
                shares[member_ids[position]].add(TopicIdPartition(topic_id, number))
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def kept(specs: Mapping[str, MemberSpec], shares: Shares) -> int:
    return sum(len(spec.target & shares[member_id]) for member_id, spec in specs.items())


def test_range_targets_are_kafkas() -> None:
    different = [
        at
        for at, one in enumerate(rounds_of("range"))
        if SERVER_ASSIGNORS["range"].assign(one.counts, one.specs) != one.kafka
    ]
    assert different == []


def test_uniform_targets_of_unlike_subscriptions_are_kafkas() -> None:
    compared, different = 0, []
    for at, one in enumerate(rounds_of("uniform")):
        if one.is_even:
            continue
        compared += 1
        if SERVER_ASSIGNORS["uniform"].assign(one.counts, one.specs) != one.kafka:
            different.append(at)
    assert different == []
    assert compared > SHAPES // 2


def test_uniform_targets_of_like_subscriptions_are_as_even_and_keep_as_much_as_kafkas() -> None:
    """Which partitions go to whom is the order of a hash map in Kafka."""
    compared = 0
    for one in rounds_of("uniform"):
        if not one.is_even:
            continue
        compared += 1
        ours = SERVER_ASSIGNORS["uniform"].assign(one.counts, one.specs)
        assert sorted(map(len, ours.values())) == sorted(map(len, one.kafka.values()))
        assert kept(one.specs, ours) >= kept(one.specs, one.kafka)
    assert compared > SHAPES // 4


TOPIC_IDS = [f"{number:032x}" for number in range(4)]
MEMBERS = st.dictionaries(
    st.integers(0, 20).map(lambda number: f"m{number}"), st.sets(st.sampled_from(TOPIC_IDS)), min_size=1, max_size=7
)
COUNTS = st.fixed_dictionaries({topic_id: st.integers(0, 9) for topic_id in TOPIC_IDS})


@pytest.mark.parametrize("name", list(SERVER_ASSIGNORS))
@settings(max_examples=examples(150), deadline=None)
@given(counts=COUNTS, first=MEMBERS, second=MEMBERS)
def test_each_partition_that_somebody_wants_has_one_owner_who_wants_it(
    name: str, counts: dict[str, int], first: dict[str, set[str]], second: dict[str, set[str]]
) -> None:
    assignor = SERVER_ASSIGNORS[name]
    before = assignor.assign(dict.fromkeys(counts, 9), {n: MemberSpec(frozenset(t)) for n, t in first.items()})
    specs = {n: MemberSpec(frozenset(t), before.get(n, frozenset())) for n, t in second.items()}
    shares = assignor.assign(counts, specs)
    owned = sorted(partition for share in shares.values() for partition in share)
    wanted = {topic_id for spec in specs.values() for topic_id in spec.topic_ids}
    assert shares.keys() == specs.keys()
    assert owned == sorted(TopicIdPartition(topic_id, at) for topic_id in wanted for at in range(counts[topic_id]))
    assert all(tp.topic_id in specs[member_id].topic_ids for member_id, share in shares.items() for tp in share)
    if name == "uniform" and len({spec.topic_ids for spec in specs.values()}) == 1:
        sizes = sorted(map(len, shares.values()))
        assert sizes[-1] - sizes[0] <= 1


def test_uniform_moves_nothing_when_nothing_changed() -> None:
    uniform = SERVER_ASSIGNORS["uniform"]
    for topics in (frozenset(TOPIC_IDS), None):
        specs = {f"m{at}": MemberSpec(topics or frozenset(TOPIC_IDS[at : at + 2])) for at in range(3)}
        first = uniform.assign(dict.fromkeys(TOPIC_IDS, 7), specs)
        again = {name: MemberSpec(spec.topic_ids, first[name]) for name, spec in specs.items()}
        assert uniform.assign(dict.fromkeys(TOPIC_IDS, 7), again) == first


def test_static_members_come_first_in_a_range() -> None:
    specs = {"a": MemberSpec(frozenset("0")), "b": MemberSpec(frozenset("0"), instance_id="i")}
    shares = SERVER_ASSIGNORS["range"].assign({"0": 3}, specs)
    assert sorted(tp.partition for tp in shares["b"]) == [0, 1]


def test_uniform_is_the_default() -> None:
    assert list(SERVER_ASSIGNORS) == ["uniform", "range"]
