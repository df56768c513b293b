"""`client.rack` on its way to the group's leader, who places partitions by it."""

from __future__ import annotations

from stratalog.clients.consumer.assignors.registry import ASSIGNORS
from stratalog.clients.consumer.classic_membership import ClassicMembership
from stratalog.clients.consumer.membership import MembershipConfig
from stratalog.replication.requests.groups import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
)
from stratalog.storage.records import TopicPartition
from stratalog.wire.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_subscription,
)
from tests.clients.consumer.test_classic_membership import BACKOFF_MS, HEARTBEAT_MS, POLL_MS, SESSION_MS, Dialogue


def test_the_leader_places_by_rack_where_members_tell_theirs() -> None:
    """KIP-881: `client.rack` goes with the subscription, and the leader knows the racks of the replicas."""
    config = MembershipConfig("g", None, "client", SESSION_MS, HEARTBEAT_MS, POLL_MS, BACKOFF_MS, client_rack="far")
    racks = {TopicPartition("t", number): frozenset({"near" if number < 2 else "far"}) for number in range(4)}
    talk = Dialogue()
    talk.member = ClassicMembership(config, [ASSIGNORS["range"]], lambda _: 4, lambda _: racks)
    talk.member.subscribe(frozenset({"t"}))
    talk.find()
    send = talk.one(JoinGroupRequest)
    assert isinstance(send.request, JoinGroupRequest)
    mine = send.request.protocols[0].metadata
    assert decode_subscription(mine).rack_id == "far"
    other = encode_subscription(Subscription(("t",), rack_id="near"))
    members = (JoinGroupResponseMember("a", None, mine), JoinGroupResponseMember("b", None, other))
    talk.answer(send, JoinGroupResponse(1, "consumer", "range", "a", False, "a", members))
    synced = talk.one(SyncGroupRequest).request
    assert isinstance(synced, SyncGroupRequest)
    shares = {each.member_id: decode_assignment(each.assignment).partitions for each in synced.assignments}
    assert {name: {tp.partition for tp in share} for name, share in shares.items()} == {"a": {2, 3}, "b": {0, 1}}
