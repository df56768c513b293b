"""A KIP-848 member's dialogue with its coordinator, heartbeat by heartbeat: joining, reconciling, errors, leaving."""

from __future__ import annotations

import re

import pytest

from stratalog.clients.consumer.membership import FindCoordinator, MembershipConfig, Send
from stratalog.clients.consumer.modern_membership import ModernMembership, ModernMembershipState
from stratalog.clients.records import NO_COORDINATOR, Generation
from stratalog.replication.requests.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    MemberAssignment,
    TopicPartitions,
)
from stratalog.server.remote.connections.config import REQUEST_TIMEOUT_MS
from stratalog.storage.errors import (
    CommitFailedError,
    CoordinatorLoadInProgressError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    NotCoordinatorError,
    StaleMemberEpochError,
    StratalogError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from stratalog.storage.records import TopicPartition
from tests.clients.member_dialogue import MemberDialogue

INTERVAL_MS, POLL_MS, BACKOFF_MS = 5_000, 300_000, 100


def parts(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("t", number) for number in numbers)


class Dialogue(MemberDialogue[ModernMembership]):
    """One member `m` of group `g` at a time that the test sets; topic `t` has the id `T`."""

    def __init__(self, instance_id: str | None = None) -> None:
        self.names = {"T": "t"}
        config = MembershipConfig("g", instance_id, "client", 45_000, 3_000, POLL_MS, BACKOFF_MS, "rack-1", "uniform")
        super().__init__(ModernMembership(config, "m", lambda topic_id: self.names.get(topic_id)))

    def beat(self, *, is_polling: bool = True) -> tuple[Send, ConsumerGroupHeartbeatRequest]:
        """The one heartbeat that is due."""
        (send,) = self.step(is_polling=is_polling)
        assert isinstance(send.request, ConsumerGroupHeartbeatRequest)
        return send, send.request

    def assign(self, send: Send, epoch: int, *numbers: int, topic_id: str = "T") -> None:
        told = (TopicPartitions(topic_id, numbers),) if numbers else ()
        self.answer(send, ConsumerGroupHeartbeatResponse("m", epoch, INTERVAL_MS, MemberAssignment(told)))

    def stay(self, send: Send, epoch: int) -> None:
        self.answer(send, ConsumerGroupHeartbeatResponse("m", epoch, INTERVAL_MS))

    def find(self) -> None:
        (send,) = self.step()
        assert isinstance(send.request, FindCoordinator)
        self.answer(send, 2)

    def stable(self, epoch: int, *numbers: int) -> Dialogue:
        """In the group, with these partitions, told."""
        if self.member.coordinator < 0:
            self.find()
        send, _ = self.beat()
        self.assign(send, epoch, *numbers)
        acknowledged, _ = self.beat()
        self.stay(acknowledged, epoch)
        assert self.step() == []
        self.call_texts()
        return self

    def call_texts(self) -> list[str]:
        """The calls since the last look: `revoked 0,1`."""
        texts = [f"{c.kind.value} {','.join(str(tp.partition) for tp in sorted(c.partitions))}" for c in self.calls]
        self.calls = []
        return texts

    def state(self) -> tuple[ModernMembershipState, Generation]:
        return self.member.state, self.member.generation


def test_a_member_joins_takes_its_assignment_and_tells_it_at_once() -> None:
    talk = Dialogue()
    talk.find()
    send, joining = talk.beat()
    assert joining == ConsumerGroupHeartbeatRequest(
        "g", "m", 0, None, "rack-1", POLL_MS, ("t",), "", "uniform", (), "client", "/127.0.0.1"
    )
    assert send.broker_id == 2
    assert talk.step() == []
    with pytest.raises(CommitFailedError):
        talk.member.identity_for_commit()
    talk.assign(send, 3, 0, 1)
    assert talk.state() == (ModernMembershipState.RECONCILING, Generation(3, "m"))
    assert talk.step(is_polling=False) == []
    send, told = talk.beat()
    assert talk.call_texts() == ["assigned 0,1"]
    assert (told.member_epoch, told.topic_partitions) == (3, (TopicPartitions("T", (0, 1)),))
    assert (told.subscribed_topic_names, told.subscribed_topic_regex, told.server_assignor) == (None, None, None)
    talk.stay(send, 3)
    assert talk.member.state is ModernMembershipState.STABLE
    assert talk.member.identity_for_commit() == Generation(3, "m")
    assert talk.member.next_due_ms(is_polling=True) == talk.now_ms + INTERVAL_MS
    talk.now_ms += INTERVAL_MS
    _, quiet = talk.beat(is_polling=False)
    assert quiet == ConsumerGroupHeartbeatRequest("g", "m", 3, client_id="client", client_host="/127.0.0.1")


def test_an_empty_first_assignment_is_told_to_the_listener_too() -> None:
    talk = Dialogue()
    talk.find()
    send, _ = talk.beat()
    talk.assign(send, 1)
    talk.beat()
    assert talk.call_texts() == ["assigned "]


def test_what_goes_is_given_up_before_it_is_told_and_what_comes_is_taken_after() -> None:
    talk = Dialogue().stable(1, 0, 1)
    talk.now_ms += INTERVAL_MS
    send, _ = talk.beat()
    talk.assign(send, 1, 1)
    send, told = talk.beat()
    assert talk.call_texts() == ["revoked 0", "assigned "]
    assert told.topic_partitions == (TopicPartitions("T", (1,)),)
    talk.assign(send, 2, 1, 3)
    talk.step()
    assert talk.call_texts() == ["assigned 3"]
    assert talk.member.owned == parts(1, 3)


def test_an_assignment_that_comes_during_the_listeners_call_is_taken_after_the_first_is_told() -> None:
    talk = Dialogue().stable(1, 0)
    talk.now_ms += INTERVAL_MS
    send, _ = talk.beat()
    talk.assign(send, 2, 0, 1)
    call = talk.member.step(talk.now_ms, is_polling=True).call
    assert call is not None
    talk.now_ms += INTERVAL_MS
    send, during = talk.beat(is_polling=False)
    assert during.topic_partitions is None
    talk.assign(send, 3, 0, 1, 2)
    talk.member.performed(call)
    send, told = talk.beat()
    assert told.topic_partitions == (TopicPartitions("T", (0, 1)),)
    talk.stay(send, 3)
    _, told = talk.beat()
    assert told.topic_partitions == (TopicPartitions("T", (0, 1, 2)),)


def test_topics_that_metadata_does_not_name_yet_are_taken_when_it_does() -> None:
    talk = Dialogue()
    talk.find()
    send, _ = talk.beat()
    talk.assign(send, 1, 0, topic_id="U")
    send, told = talk.beat()
    assert (told.topic_partitions, talk.call_texts()) == (None, ["assigned "])
    talk.stay(send, 1)
    assert talk.step() == []
    talk.names["U"] = "u"
    _, told = talk.beat()
    assert told.topic_partitions == (TopicPartitions("U", (0,)),)
    assert talk.member.owned == {TopicPartition("u", 0)}


@pytest.mark.parametrize("error", [FencedMemberEpochError(""), UnknownMemberIdError(""), GroupIdNotFoundError("")])
def test_a_fenced_member_loses_its_partitions_and_joins_again_with_its_id(error: StratalogError) -> None:
    talk = Dialogue().stable(4, 0, 1)
    talk.now_ms += INTERVAL_MS
    send, _ = talk.beat()
    talk.answer(send, ConsumerGroupHeartbeatResponse(error=error))
    assert talk.step(is_polling=False) == []
    assert talk.member.next_due_ms(is_polling=True) == 0
    _, joining = talk.beat()
    assert talk.call_texts() == ["lost 0,1"]
    assert (joining.member_id, joining.member_epoch, joining.topic_partitions) == ("m", 0, ())
    assert joining.subscribed_topic_names == ("t",)


@pytest.mark.parametrize(
    "error", [UnreleasedInstanceIdError(""), FencedInstanceIdError(""), UnsupportedAssignorError("")]
)
def test_what_nothing_helps_against_is_raised_once_and_ends_the_membership(error: StratalogError) -> None:
    talk = Dialogue().stable(4, 0)
    talk.now_ms += INTERVAL_MS
    send, _ = talk.beat()
    talk.answer(send, ConsumerGroupHeartbeatResponse(error=error))
    assert talk.member.take_failure() is error
    assert (talk.step(), talk.call_texts()) == ([], ["lost 0"])
    talk.now_ms += 10 * INTERVAL_MS
    assert (talk.step(), talk.member.next_due_ms(is_polling=True)) == ([], None)
    assert talk.member.take_failure() is None
    talk.member.subscribe(frozenset({"t"}))
    assert talk.beat()[1].member_epoch == 0


def test_a_topic_that_may_not_be_read_is_told_and_tried_again() -> None:
    talk = Dialogue().stable(4, 0)
    talk.now_ms += INTERVAL_MS
    send, _ = talk.beat()
    talk.answer(send, ConsumerGroupHeartbeatResponse(error=TopicAuthorizationFailedError("")))
    assert isinstance(talk.member.take_failure(), TopicAuthorizationFailedError)
    talk.now_ms += BACKOFF_MS
    assert talk.beat()[1].member_epoch == 4


def test_after_an_error_everything_is_said_again() -> None:
    talk = Dialogue().stable(4, 0)
    talk.now_ms += INTERVAL_MS
    send, _ = talk.beat()
    talk.answer(send, CoordinatorLoadInProgressError(""))
    assert talk.step() == []
    talk.now_ms += BACKOFF_MS
    send, whole = talk.beat()
    assert (whole.member_epoch, whole.rebalance_timeout_ms, whole.subscribed_topic_names) == (4, POLL_MS, ("t",))
    assert whole.topic_partitions == (TopicPartitions("T", (0,)),)
    talk.answer(send, NotCoordinatorError(""))
    talk.find()
    assert talk.beat()[1].topic_partitions == (TopicPartitions("T", (0,)),)


def test_a_heartbeat_without_an_answer_is_sent_again_to_whoever_coordinates() -> None:
    talk = Dialogue().stable(4, 0)
    talk.now_ms += INTERVAL_MS
    talk.beat()
    talk.now_ms += REQUEST_TIMEOUT_MS
    talk.find()
    assert talk.beat()[1].subscribed_topic_names == ("t",)


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("static", -2)])
def test_leaving_is_a_heartbeat_with_an_epoch_of_its_own(instance_id: str | None, epoch: int) -> None:
    talk = Dialogue(instance_id).stable(4, 0)
    call = talk.member.leaving()
    assert call is not None
    assert call.kind.value == "revoked"
    talk.member.performed(call)
    (send,) = talk.member.leave("")
    assert isinstance(send.request, ConsumerGroupHeartbeatRequest)
    assert (send.request.member_epoch, send.request.instance_id) == (epoch, instance_id)
    talk.stay(send, epoch)
    assert talk.member.generation == Generation(-1, "m")
    assert talk.beat()[1].member_epoch == 0


def test_a_goodbye_is_there_to_be_said_while_the_coordinator_is_looked_up() -> None:
    talk = Dialogue().stable(4, 0)
    talk.now_ms += INTERVAL_MS
    send, _ = talk.beat()
    talk.answer(send, NotCoordinatorError("moved"))
    (goodbye,) = talk.member.leave("")
    assert isinstance(goodbye.request, ConsumerGroupHeartbeatRequest)
    assert (goodbye.broker_id, goodbye.request.member_epoch) == (NO_COORDINATOR, -1)


def test_who_polls_too_late_leaves_and_joins_again_with_the_next_poll() -> None:
    talk = Dialogue().stable(4, 0)
    talk.now_ms += POLL_MS
    (send,) = talk.step(is_polling=False)
    assert isinstance(send.request, ConsumerGroupHeartbeatRequest)
    assert send.request.member_epoch == -1
    assert talk.step(is_polling=False) == []
    assert talk.beat()[1].member_epoch == 0
    assert talk.call_texts() == ["lost 0"]


def test_a_changed_subscription_is_told_at_once_and_a_regular_expression_is_the_coordinators() -> None:
    talk = Dialogue().stable(4, 0)
    talk.member.subscribe(frozenset({"t", "u"}), re.compile("t|u"))
    send, told = talk.beat()
    assert (told.subscribed_topic_names, told.subscribed_topic_regex) == (("t", "u"), "")
    talk.stay(send, 4)
    talk.member.subscribe_to_regex("t.*")
    _, told = talk.beat()
    assert (told.subscribed_topic_names, told.subscribed_topic_regex) == ((), "t.*")
    assert talk.member.topics == {"t"}


def test_commits_name_the_epoch_and_a_stale_one_is_no_reason_to_leave() -> None:
    talk = Dialogue().stable(4, 0)
    sent = talk.member.identity_for_commit()
    stale = StaleMemberEpochError("")
    assert talk.member.commit_answered(stale, sent) is stale
    assert isinstance(talk.member.commit_answered(UnknownMemberIdError(""), sent), CommitFailedError)
    talk.member.commit_answered(NotCoordinatorError(""), sent)
    assert talk.member.coordinator == -1
    assert talk.member.identity_for_commit() == sent
