"""A member's dialogue with its coordinator, request by request: joining, rebalances, heartbeats, errors, leaving."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from stratalog.clients.consumer.assignors.registry import ASSIGNORS
from stratalog.clients.consumer.classic_membership import ClassicMembership, ClassicMembershipState
from stratalog.clients.consumer.membership import (
    FindCoordinator,
    ListenerCall,
    ListenerCallKind,
    MembershipConfig,
    Send,
)
from stratalog.clients.records import NO_COORDINATOR, Generation
from stratalog.replication.requests.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from stratalog.storage.errors import (
    CommitFailedError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    NotCoordinatorError,
    RebalanceInProgressError,
    RequestTimedOutError,
    StratalogError,
    UnknownMemberIdError,
)
from stratalog.storage.records import TopicPartition
from stratalog.wire.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tests.clients.member_dialogue import MemberDialogue

HEARTBEAT_MS, SESSION_MS, POLL_MS, BACKOFF_MS = 3_000, 45_000, 300_000, 100


def parts(*numbers: int, topic: str = "t") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


class Dialogue(MemberDialogue[ClassicMembership]):
    """One member of group `g` at a time that the test sets; topics `t` of four partitions and `u` of two."""

    def __init__(self, *assignors: str, instance_id: str | None = None) -> None:
        self.counts = {"t": 4, "u": 2}
        config = MembershipConfig("g", instance_id, "client", SESSION_MS, HEARTBEAT_MS, POLL_MS, BACKOFF_MS)
        chosen = [ASSIGNORS[name] for name in assignors or ("range",)]
        super().__init__(ClassicMembership(config, chosen, lambda topic: self.counts.get(topic, 0)))

    def one(self, kind: type, *, is_polling: bool = True) -> Send:
        (send,) = self.step(is_polling=is_polling)
        assert type(send.request) is kind
        return send

    def find(self, broker_id: int = 2) -> None:
        self.answer(self.one(FindCoordinator), broker_id)

    def join(self, generation_id: int, member_id: str = "m", *, protocol: str = "range", leader: str = "other") -> Send:
        """Answer the JoinGroup that is due; the SyncGroup that follows."""
        members: tuple[JoinGroupResponseMember, ...] = ()
        if leader == member_id:
            members = (JoinGroupResponseMember(member_id, None, encode_subscription(Subscription(("t",)))),)
        joined = JoinGroupResponse(generation_id, "consumer", protocol, leader, False, member_id, members)
        self.answer(self.one(JoinGroupRequest), joined)
        return self.one(SyncGroupRequest)

    def sync(self, send: Send, partitions: frozenset[TopicPartition], protocol: str = "range") -> None:
        assignment = encode_assignment(Assignment(tuple(sorted(partitions))))
        self.answer(send, SyncGroupResponse("consumer", protocol, assignment))

    def stable(
        self, partitions: frozenset[TopicPartition], generation_id: int = 1, *, protocol: str = "range"
    ) -> Dialogue:
        """In the group, with these partitions."""
        if self.member.coordinator < 0:
            self.find()
        self.sync(self.join(generation_id, protocol=protocol), partitions, protocol)
        assert self.step() == []
        return self

    def call_texts(self) -> list[str]:
        """The calls since the last look: `revoked 0,1`."""
        texts = [f"{c.kind.value} {','.join(str(tp.partition) for tp in sorted(c.partitions))}" for c in self.calls]
        self.calls = []
        return texts


def test_a_new_member_finds_its_coordinator_gets_an_id_joins_and_syncs() -> None:
    """KIP-394: the first JoinGroup brings only a member id."""
    talk = Dialogue()
    found = talk.one(FindCoordinator)
    assert (found.broker_id, found.request) == (-1, FindCoordinator("g"))
    assert talk.step() == []
    talk.answer(found, 2)
    first = talk.one(JoinGroupRequest)
    assert first.broker_id == 2
    assert isinstance(first.request, JoinGroupRequest)
    assert (first.request.member_id, first.request.session_timeout_ms, first.request.rebalance_timeout_ms) == (
        "", SESSION_MS, POLL_MS,
    )  # fmt: skip
    talk.answer(first, JoinGroupResponse(member_id="m-1", error=MemberIdRequiredError("")))
    second = talk.one(JoinGroupRequest)
    assert isinstance(second.request, JoinGroupRequest)
    assert (second.request.member_id, second.request.reason) == (
        "m-1", "need to re-join with the given member-id: m-1",
    )  # fmt: skip
    assert [protocol.name for protocol in second.request.protocols] == ["range"]
    assert decode_subscription(second.request.protocols[0].metadata).topics == ("t",)
    talk.answer(second, JoinGroupResponse(5, "consumer", "range", "other", False, "m-1"))
    sync = talk.one(SyncGroupRequest)
    assert sync.request == SyncGroupRequest("g", 5, "m-1", None, "consumer", "range", ())
    talk.sync(sync, parts(1, 2))
    assert talk.step() == []
    assert (talk.member.state, talk.member.generation) == (ClassicMembershipState.STABLE, Generation(5, "m-1", "range"))
    assert (talk.member.owned, talk.call_texts()) == (parts(1, 2), ["assigned 1,2"])


def test_the_leader_assigns_what_all_members_want() -> None:
    talk = Dialogue()
    talk.find()
    members = tuple(
        JoinGroupResponseMember(name, None, encode_subscription(Subscription(topics)))
        for name, topics in (("m", ("t",)), ("n", ("t", "u", "unknown")))
    )
    joined = JoinGroupResponse(1, "consumer", "range", "m", False, "m", members)
    talk.answer(talk.one(JoinGroupRequest), joined)
    sync = talk.one(SyncGroupRequest)
    assert isinstance(sync.request, SyncGroupRequest)
    plan = {each.member_id: decode_assignment(each.assignment).partitions for each in sync.request.assignments}
    assert {member: frozenset(partitions) for member, partitions in plan.items()} == {
        "m": parts(0, 1),
        "n": parts(2, 3) | parts(0, 1, topic="u"),
    }


@pytest.mark.parametrize(("topic", "count", "rejoins"), [("t", 5, True), ("u", 3, False), ("t", 4, False)])
def test_a_leader_joins_again_when_a_topic_of_the_group_has_other_partitions(
    topic: str, count: int, rejoins: bool
) -> None:
    """One of the triggers of a rebalance. Members that do not lead leave it to the leader."""
    leader, other = Dialogue(), Dialogue()
    leader.find()
    leader.sync(leader.join(1, leader="m"), parts(0))
    leader.step()
    other.stable(parts(1))
    for talk in (leader, other):
        talk.counts[topic] = count
    assert [type(send.request) for send in leader.step()] == ([JoinGroupRequest] if rejoins else [])
    assert other.step() == []


def test_a_static_leader_that_came_back_leaves_the_plan_as_it_is() -> None:
    """KIP-814: skip_assignment. It still watches the topics' partitions."""
    talk = Dialogue(instance_id="i")
    talk.find()
    member = JoinGroupResponseMember("m", "i", encode_subscription(Subscription(("t",))))
    joined = JoinGroupResponse(3, "consumer", "range", "m", True, "m", (member,))
    talk.answer(talk.one(JoinGroupRequest), joined)
    sync = talk.one(SyncGroupRequest)
    assert isinstance(sync.request, SyncGroupRequest)
    assert (sync.request.assignments, sync.request.group_instance_id) == ((), "i")
    talk.sync(sync, parts(0))
    talk.step()
    talk.counts["t"] = 6
    assert [type(send.request) for send in talk.step()] == [JoinGroupRequest]


def test_an_eager_member_gives_everything_up_before_it_joins_again() -> None:
    talk = Dialogue("range", "cooperative-sticky").stable(parts(0, 1))
    talk.call_texts()
    talk.member.request_rejoin("test")
    joining = talk.one(JoinGroupRequest)
    assert (talk.call_texts(), talk.member.owned) == (["revoked 0,1"], parts())
    assert isinstance(joining.request, JoinGroupRequest)
    said = [decode_subscription(protocol.metadata) for protocol in joining.request.protocols]
    assert [subscription.owned_partitions for subscription in said] == [(), ()]
    assert talk.step() == []


def test_a_cooperative_member_gives_up_only_what_it_loses_and_then_joins_once_more() -> None:
    """KIP-429: two rebalances; what stays is read on all the time."""
    name = "cooperative-sticky"
    talk = Dialogue(name).stable(parts(0, 1, 2), protocol=name)
    talk.call_texts()
    talk.member.request_rejoin("test")
    sync = talk.join(2, protocol=name)
    assert (talk.call_texts(), talk.member.owned) == ([], parts(0, 1, 2))
    talk.sync(sync, parts(1, 2), name)
    again = talk.one(JoinGroupRequest)
    assert (talk.call_texts(), talk.member.owned) == (["revoked 0", "assigned "], parts(1, 2))
    assert isinstance(again.request, JoinGroupRequest)
    said = decode_subscription(again.request.protocols[0].metadata)
    assert (frozenset(said.owned_partitions), said.generation_id) == (parts(1, 2), 2)
    assert again.request.reason == "need to revoke partitions and re-join"


def test_a_cooperative_member_gives_up_topics_that_it_does_not_want_any_more_before_it_joins() -> None:
    name = "cooperative-sticky"
    talk = Dialogue(name)
    talk.member.subscribe(frozenset({"t", "u"}))
    talk.stable(parts(0) | parts(1, topic="u"), protocol=name)
    talk.call_texts()
    talk.member.subscribe(frozenset({"t"}))
    joining = talk.one(JoinGroupRequest)
    assert (talk.call_texts(), talk.member.owned) == (["revoked 1"], parts(0))
    assert isinstance(joining.request, JoinGroupRequest)
    assert joining.request.reason == "subscription has changed"


def test_an_assignment_that_does_not_match_the_subscription_is_not_taken() -> None:
    talk = Dialogue()
    talk.find()
    talk.sync(talk.join(1), parts(0, topic="u"))
    joining = talk.one(JoinGroupRequest)
    assert talk.calls == []
    assert isinstance(joining.request, JoinGroupRequest)
    assert joining.request.reason == "received assignment does not match the current subscription"


# -- heartbeats ----------------------------------------------------------------------------------------------


def test_heartbeats_go_every_interval_without_the_application() -> None:
    talk = Dialogue().stable(parts(0))
    assert talk.member.next_due_ms(is_polling=False) == talk.now_ms + HEARTBEAT_MS
    for _ in range(3):
        talk.now_ms += HEARTBEAT_MS - 1
        assert talk.step(is_polling=False) == []
        talk.now_ms += 1
        beat = talk.one(HeartbeatRequest, is_polling=False)
        assert beat.request == HeartbeatRequest("g", 1, "m", None)
        talk.answer(beat, HeartbeatResponse())
    assert talk.member.state == ClassicMembershipState.STABLE


def test_a_member_whose_join_is_on_its_way_sends_no_heartbeats() -> None:
    talk = Dialogue()
    talk.find()
    talk.one(JoinGroupRequest)
    talk.now_ms += SESSION_MS * 2
    assert talk.step() == []


def test_without_an_answer_for_the_session_timeout_the_coordinator_is_looked_up_anew() -> None:
    talk = Dialogue().stable(parts(0))
    for _ in range(14):
        talk.now_ms += HEARTBEAT_MS
        talk.one(HeartbeatRequest, is_polling=False)
    talk.now_ms += HEARTBEAT_MS
    assert talk.step(is_polling=False) == []
    assert talk.member.coordinator == -1
    talk.answer(talk.one(FindCoordinator, is_polling=False), 3)
    heartbeat = talk.one(HeartbeatRequest, is_polling=False)
    assert (heartbeat.broker_id, talk.member.state) == (3, ClassicMembershipState.STABLE)


def test_an_application_that_does_not_poll_leaves_the_group_and_loses_its_partitions() -> None:
    """max.poll.interval.ms (KIP-62)."""
    talk = Dialogue().stable(parts(0))
    talk.call_texts()
    end_ms = talk.now_ms + POLL_MS
    while talk.now_ms < end_ms - HEARTBEAT_MS:
        talk.now_ms += HEARTBEAT_MS
        talk.answer(talk.one(HeartbeatRequest, is_polling=False), HeartbeatResponse())
    talk.now_ms = end_ms
    left = talk.one(LeaveGroupRequest, is_polling=False)
    assert isinstance(left.request, LeaveGroupRequest)
    assert (left.request.members[0].member_id, left.request.members[0].reason) == (
        "m", "consumer poll timeout has expired.",
    )  # fmt: skip
    assert (talk.member.owned, talk.step(is_polling=False)) == (parts(0), [])
    joining = talk.one(JoinGroupRequest)
    assert (talk.call_texts(), talk.member.owned) == (["lost 0"], parts())
    assert isinstance(joining.request, JoinGroupRequest)
    assert joining.request.member_id == ""


@pytest.mark.parametrize(
    ("error", "calls", "member_id", "failure"),
    [
        (RebalanceInProgressError(""), ["revoked 0"], "m", None),
        (IllegalGenerationError(""), ["lost 0"], "m", None),
        (UnknownMemberIdError(""), ["lost 0"], "", None),
        (FencedInstanceIdError(""), ["lost 0"], "", FencedInstanceIdError),
    ],
)
def test_what_a_heartbeat_answers_makes_the_member_join_again(
    error: StratalogError, calls: list[str], member_id: str, failure: type | None
) -> None:
    talk = Dialogue(instance_id="i" if failure else None).stable(parts(0))
    talk.call_texts()
    talk.now_ms += HEARTBEAT_MS
    talk.answer(talk.one(HeartbeatRequest, is_polling=False), HeartbeatResponse(error))
    assert talk.step(is_polling=False) == []
    if failure:
        assert isinstance(talk.member.take_failure(), failure)
        assert talk.member.take_failure() is None
        talk.now_ms += BACKOFF_MS
    joining = talk.one(JoinGroupRequest)
    assert talk.call_texts() == calls
    assert isinstance(joining.request, JoinGroupRequest)
    assert joining.request.member_id == member_id


def test_an_error_for_an_older_generation_says_nothing_of_the_new_one() -> None:
    talk = Dialogue().stable(parts(0))
    talk.now_ms += HEARTBEAT_MS
    late = talk.one(HeartbeatRequest, is_polling=False)
    talk.member.request_rejoin("test")
    talk.sync(talk.join(2), parts(0))
    talk.step()
    talk.answer(late, HeartbeatResponse(IllegalGenerationError("")))
    assert (talk.member.state, talk.step()) == (ClassicMembershipState.STABLE, [])


@pytest.mark.parametrize("error", [NotCoordinatorError(""), CoordinatorNotAvailableError(""), RequestTimedOutError("")])
def test_a_coordinator_that_moved_is_looked_up_and_the_member_stays(error: StratalogError) -> None:
    talk = Dialogue().stable(parts(0))
    talk.now_ms += HEARTBEAT_MS
    talk.answer(talk.one(HeartbeatRequest, is_polling=False), HeartbeatResponse(error))
    talk.find(3)
    assert (talk.member.coordinator, talk.member.owned) == (3, parts(0))
    assert talk.member.state == ClassicMembershipState.STABLE


# -- failures of a rebalance ----------------------------------------------------------------------------------


def join_fails(error: StratalogError) -> Callable[[Dialogue], None]:
    return lambda talk: talk.answer(talk.one(JoinGroupRequest), JoinGroupResponse(error=error))


def sync_fails(error: StratalogError) -> Callable[[Dialogue], None]:
    return lambda talk: talk.answer(talk.join(2), SyncGroupResponse(error=error))


@pytest.mark.parametrize(
    ("fail", "pause_ms", "next_kinds", "member_id"),
    [
        (join_fails(UnknownMemberIdError("")), 0, [JoinGroupRequest], ""),
        (join_fails(RebalanceInProgressError("")), 0, [JoinGroupRequest], "m"),
        (join_fails(CoordinatorLoadInProgressError("")), BACKOFF_MS, [JoinGroupRequest], "m"),
        (join_fails(NotCoordinatorError("")), BACKOFF_MS, [FindCoordinator], "m"),
        (join_fails(RequestTimedOutError("")), BACKOFF_MS, [FindCoordinator], "m"),
        (sync_fails(UnknownMemberIdError("")), 0, [JoinGroupRequest], ""),
        (sync_fails(IllegalGenerationError("")), 0, [JoinGroupRequest], "m"),
        (sync_fails(RebalanceInProgressError("")), 0, [JoinGroupRequest], "m"),
        (sync_fails(CoordinatorNotAvailableError("")), BACKOFF_MS, [FindCoordinator], "m"),
    ],
)
def test_a_rebalance_that_failed_is_tried_again(
    fail: Callable[[Dialogue], None], pause_ms: int, next_kinds: Sequence[type], member_id: str
) -> None:
    talk = Dialogue().stable(parts(0))
    talk.member.request_rejoin("test")
    fail(talk)
    if pause_ms:
        assert talk.step() == []
        assert talk.member.next_due_ms(is_polling=True) == talk.now_ms + pause_ms
        talk.now_ms += pause_ms
    assert [type(send.request) for send in talk.step()] == next_kinds
    assert talk.member.generation.member_id == member_id
    assert talk.member.take_failure() is None


@pytest.mark.parametrize(
    "error", [GroupMaxSizeReachedError(""), InconsistentGroupProtocolError(""), FencedInstanceIdError("")]
)
def test_what_no_retry_can_help_is_told_once_for_each_attempt(error: StratalogError) -> None:
    talk = Dialogue()
    talk.find()
    join_fails(error)(talk)
    assert (talk.member.take_failure(), talk.member.take_failure()) == (error, None)
    talk.now_ms += BACKOFF_MS
    talk.one(JoinGroupRequest)


def test_pauses_grow_to_a_second() -> None:
    talk = Dialogue()
    pauses = []
    for _ in range(6):
        talk.answer(talk.one(FindCoordinator), CoordinatorNotAvailableError(""))
        due_ms = talk.member.next_due_ms(is_polling=True)
        assert due_ms is not None
        pauses.append(due_ms - talk.now_ms)
        talk.now_ms = due_ms
    assert pauses == [100, 200, 400, 800, 1_000, 1_000]


def test_another_kind_of_group_is_refused() -> None:
    talk = Dialogue()
    talk.find()
    joined = JoinGroupResponse(1, "connect", "range", "x", False, "m")
    talk.answer(talk.one(JoinGroupRequest), joined)
    assert isinstance(talk.member.take_failure(), InconsistentGroupProtocolError)


# -- leaving, commits ----------------------------------------------------------------------------------------


def test_leaving_revokes_what_is_owned_and_tells_the_coordinator() -> None:
    talk = Dialogue().stable(parts(0))
    assert talk.member.leaving() == ListenerCall(ListenerCallKind.REVOKED, parts(0), parts())
    (send,) = talk.member.leave("the consumer is being closed")
    assert isinstance(send.request, LeaveGroupRequest)
    assert talk.member.state == ClassicMembershipState.UNJOINED


def test_a_goodbye_is_there_to_be_said_while_the_coordinator_is_looked_up() -> None:
    talk = Dialogue().stable(parts(0))
    talk.now_ms += HEARTBEAT_MS
    talk.answer(talk.one(HeartbeatRequest), NotCoordinatorError("moved"))
    (send,) = talk.member.leave("the consumer is being closed")
    assert isinstance(send.request, LeaveGroupRequest)
    assert send.broker_id == NO_COORDINATOR


def test_partitions_are_lost_when_a_member_leaves_in_the_middle_of_a_rebalance() -> None:
    name = "cooperative-sticky"
    talk = Dialogue(name).stable(parts(0), protocol=name)
    talk.member.request_rejoin("test")
    talk.one(JoinGroupRequest)
    assert talk.member.leaving() == ListenerCall(ListenerCallKind.LOST, parts(0), parts())


def test_a_static_member_leaves_without_a_word() -> None:
    """KIP-345: within its session it may come back and find its partitions."""
    talk = Dialogue(instance_id="i").stable(parts(0))
    assert talk.member.leave("the consumer is being closed") == ()


def test_answers_that_come_after_leaving_are_passed_over() -> None:
    talk = Dialogue()
    talk.find()
    joining = talk.one(JoinGroupRequest)
    talk.member.leave("test")
    talk.answer(joining, JoinGroupResponse(1, "consumer", "range", "x", False, "m"))
    assert talk.member.state == ClassicMembershipState.UNJOINED


def test_a_commit_carries_the_generation_and_needs_one() -> None:
    talk = Dialogue()
    with pytest.raises(CommitFailedError, match="not part of an active group"):
        talk.member.identity_for_commit()
    talk.stable(parts(0))
    assert talk.member.identity_for_commit() == Generation(1, "m", "range")
    talk.member.request_rejoin("test")
    talk.one(JoinGroupRequest)
    with pytest.raises(RebalanceInProgressError, match="the consumer is undergoing a rebalance"):
        talk.member.identity_for_commit()


@pytest.mark.parametrize(
    ("error", "seen", "state", "coordinator"),
    [
        (NotCoordinatorError(""), NotCoordinatorError, ClassicMembershipState.STABLE, -1),
        (RebalanceInProgressError(""), RebalanceInProgressError, ClassicMembershipState.STABLE, 2),
        (IllegalGenerationError(""), CommitFailedError, ClassicMembershipState.UNJOINED, 2),
        (UnknownMemberIdError(""), CommitFailedError, ClassicMembershipState.UNJOINED, 2),
        (FencedInstanceIdError(""), FencedInstanceIdError, ClassicMembershipState.STABLE, 2),
    ],
)
def test_what_a_commit_answers_concerns_the_membership(
    error: StratalogError, seen: type, state: ClassicMembershipState, coordinator: int
) -> None:
    talk = Dialogue(instance_id="i").stable(parts(0))
    told = talk.member.commit_answered(error, talk.member.generation)
    assert (type(told), talk.member.state, talk.member.coordinator) == (seen, state, coordinator)


def test_a_commit_of_an_older_generation_may_be_repeated_after_the_rebalance() -> None:
    talk = Dialogue().stable(parts(0))
    sent = Generation(0, "m", "range")
    talk.member.request_rejoin("test")
    talk.one(JoinGroupRequest)
    assert type(talk.member.commit_answered(IllegalGenerationError(""), sent)) is RebalanceInProgressError
