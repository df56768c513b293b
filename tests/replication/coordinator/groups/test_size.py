"""Groups as large as they get: a rebalance and the fold of many offsets, in processor time."""

from __future__ import annotations

import time

import pytest

from stratalog.clients.consumer.assignors.assignor import AssignorMember
from stratalog.clients.consumer.assignors.registry import ASSIGNORS
from stratalog.replication.coordinator.groups.classic.group import GroupState
from stratalog.replication.requests.groups import JoinGroupRequestProtocol, JoinGroupResponse
from stratalog.storage.records import TopicPartition
from stratalog.wire.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tests.replication.group_coordinator import Coordinator, commit_request, join_request, sync_request

MEMBERS, TOPICS, PARTITIONS = 100, 10, 100


def subscription(owned: tuple[TopicPartition, ...], generation_id: int) -> bytes:
    topics = tuple(f"topic-{number}" for number in range(TOPICS))
    return encode_subscription(Subscription(topics, owned_partitions=owned, generation_id=generation_id))


def plan(joined: JoinGroupResponse, assignor: str) -> dict[str, bytes]:
    """What the leader makes of its JoinGroup answer."""
    members = {
        each.member_id: AssignorMember(decode_subscription(each.metadata), each.group_instance_id)
        for each in joined.members
    }
    counts = {f"topic-{number}": PARTITIONS for number in range(TOPICS)}
    shares = ASSIGNORS[assignor].assign(counts, members)
    return {member_id: encode_assignment(Assignment(tuple(share))) for member_id, share in shares.items()}


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_hundred_members_share_a_thousand_partitions(assignor: str) -> None:
    """Twice, as a group begins and as everybody joins again: at most 2 s each; measured 0.03 s to 0.1 s."""
    coordinator = Coordinator()
    owned: dict[str, tuple[TopicPartition, ...]] = {}
    member_ids = [""] * MEMBERS
    for generation_id in (1, 2):
        began_s = time.process_time()
        tokens = []
        for number, member_id in enumerate(member_ids):
            protocols = (JoinGroupRequestProtocol(assignor, subscription(owned.get(member_id, ()), generation_id - 1)),)
            if member_id:
                tokens.append(coordinator.ask(join_request(str(number), member_id=member_id, protocols=protocols)))
            else:
                tokens.append(coordinator.join(str(number), protocols=protocols))
        coordinator.advance(0)
        joined = [coordinator.answered[token] for token in tokens]
        leader = next(each for each in joined if each.members)
        syncs = [coordinator.ask(sync_request(each)) for each in joined if each is not leader]
        first = coordinator.answer(sync_request(leader, plan(leader, assignor)))
        took_s = time.process_time() - began_s
        answers = {leader.member_id: first} | {
            each.member_id: coordinator.answered[token]
            for each, token in zip([each for each in joined if each is not leader], syncs, strict=True)
        }
        owned = {member_id: decode_assignment(each.assignment).partitions for member_id, each in answers.items()}
        member_ids = [each.member_id for each in joined]
        assert (coordinator.group().state, coordinator.group().generation_id) == (GroupState.STABLE, generation_id)
        assert len({partition for share in owned.values() for partition in share}) == TOPICS * PARTITIONS
        assert {len(share) for share in owned.values()} == {TOPICS * PARTITIONS // MEMBERS}
        assert took_s <= 2


def test_twenty_thousand_offsets_are_folded_in_a_second() -> None:
    """At most 2 s of processor time; measured 0.2 s."""
    coordinator = Coordinator()
    offsets = {("topic", partition): 5 for partition in range(1_000)}
    for group in range(20):
        coordinator.ask(commit_request(offsets, group_id=f"group-{group}"))
    began_s = time.process_time()
    folded = coordinator.folded()
    took_s = time.process_time() - began_s
    assert (len(folded.table.groups), folded.offsets.order) == (20, 20_000)
    assert took_s <= 2
