"""Members of a random group, honest ones: each gives up and takes what it is told. Pure but for what a dialogue asks.

A member takes turns. A turn is one request of the protocol that it speaks, or the answer to a request that waits. What
members do between two changes differs from cluster to cluster; the group in which all have nothing more to do does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stratalog.storage.records import TopicPartition
from stratalog.wire.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tests.lab.differential.dialogue import Dialogue
from tests.lab.differential.scripts import Step

GROUP = "members-$run"
COORDINATOR = f"group {GROUP}"
TOPICS = {"one-$run": 1, "two-$run": 2, "five-$run": 5}
REBALANCE_TIMEOUT_MS = 60_000
SESSION_TIMEOUT_MS = 60_000
ANSWER_MS = 15
"""How long a turn waits for an answer that may come only after other members' requests."""
UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH = 25, 82, 110
ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 22, 27, 79
COOPERATIVE = "cooperative-sticky"


@dataclass(slots=True)
class Member:
    """What a member says of itself."""

    name: str
    topics: list[str]
    instance_id: str | None = None
    rack: str | None = None
    assignor: str | None = None
    protocols: tuple[str, ...] = ()

    def turn(self, dialogue: Dialogue, members: dict[str, Member]) -> bool:
        """One turn. Returns whether the member may have more to do."""
        raise AssertionError(self.name)

    def leaves(self, *, for_a_while: bool = False) -> Step | None:
        """The request with which it leaves."""
        raise AssertionError(self.name)

    def identity(self) -> tuple[str, int]:
        """Member id, and generation or epoch, of its commits."""
        raise AssertionError(self.name)

    def subscribe(self, topics: list[str]) -> None:
        self.topics = topics


@dataclass(slots=True)
class ModernMember(Member):
    """A member with `group.protocol=consumer`. Its member id is its name."""

    epoch: int = 0
    owned: list[dict[str, Any]] = field(default_factory=list)

    def turn(self, dialogue: Dialogue, members: dict[str, Member]) -> bool:
        step = Step("", "ConsumerGroupHeartbeat", self._heartbeat(), COORDINATOR)
        answer = dialogue.answer(step)
        if answer["errorCode"] in (UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH):
            self.epoch, self.owned = 0, []
            return True
        if answer["errorCode"]:
            return True
        told = answer["assignment"]
        is_new = answer["memberEpoch"] != self.epoch or (told is not None and told["topicPartitions"] != self.owned)
        self.epoch = answer["memberEpoch"]
        if told is not None:
            self.owned = told["topicPartitions"]
        return is_new

    def _heartbeat(self) -> dict[str, Any]:
        """All fields are sent each time, as after a heartbeat without an answer."""
        return {
            "groupId": GROUP,
            "memberId": self.name,
            "memberEpoch": self.epoch,
            "instanceId": _or_null(self.instance_id),
            "rackId": _or_null(self.rack),
            "rebalanceTimeoutMs": REBALANCE_TIMEOUT_MS,
            "subscribedTopicNames": self.topics,
            "serverAssignor": _or_null(self.assignor),
            "topicPartitions": self.owned if self.epoch > 0 else [],
        }

    def leaves(self, *, for_a_while: bool = False) -> Step:
        fields = {
            "groupId": GROUP,
            "memberId": self.name,
            "memberEpoch": -2 if for_a_while else -1,
            "instanceId": _or_null(self.instance_id),
            "rebalanceTimeoutMs": -1,
            "subscribedTopicNames": "$null",
            "topicPartitions": "$null",
        }
        return Step(f"{self.name} leaves", "ConsumerGroupHeartbeat", fields, COORDINATOR)

    def identity(self) -> tuple[str, int]:
        return self.name, self.epoch


@dataclass(slots=True)
class ClassicMember(Member):
    """A member of the classic protocol, which may become its leader.

    sent       the request whose answer it waits for
    joins      it has to join next; else it sends SyncGroup if `syncs`, else a heartbeat
    """

    member_id: str = ""
    generation: int = -1
    protocol: str = ""
    owned: tuple[TopicPartition, ...] = ()
    plan: list[dict[str, Any]] = field(default_factory=list)
    sent: str = ""
    joins: bool = True
    syncs: bool = False

    def subscribe(self, topics: list[str]) -> None:
        self.topics, self.joins = topics, True

    def turn(self, dialogue: Dialogue, members: dict[str, Member]) -> bool:
        if not self.sent:
            self._send(dialogue)
        if not dialogue.is_answered(self.name, ANSWER_MS):
            return True
        _, answer = dialogue.told(Step("", receive=self.name))
        sent, self.sent = self.sent, ""
        if answer["errorCode"]:
            self._refused(answer, dialogue)
            return True
        match sent:
            case "JoinGroup":
                self._joined(answer, dialogue, members)
            case "SyncGroup":
                self._synced(answer)
            case _:
                return False
        return True

    def _send(self, dialogue: Dialogue) -> None:
        fields: dict[str, Any] = {"groupId": GROUP, "memberId": self.member_id}
        fields["groupInstanceId"] = _or_null(self.instance_id)
        if self.joins:
            self.sent, self.joins = "JoinGroup", False
            subscription = self._subscription(dialogue)
            fields |= {
                "sessionTimeoutMs": SESSION_TIMEOUT_MS,
                "rebalanceTimeoutMs": REBALANCE_TIMEOUT_MS,
                "protocolType": "consumer",
                "protocols": [{"name": name, "metadata": f"0x{subscription.hex()}"} for name in self.protocols],
            }
        elif self.syncs:
            self.sent = "SyncGroup"
            fields |= {
                "generationId": self.generation,
                "protocolType": "consumer",
                "protocolName": self.protocol,
                "assignments": self.plan,
            }
        else:
            self.sent = "Heartbeat"
            fields["generationId"] = self.generation
        dialogue.answer(Step("", self.sent, fields, COORDINATOR, send=self.name))

    def _subscription(self, dialogue: Dialogue) -> bytes:
        topics = tuple(dialogue.filled(self.topics))
        is_cooperative = COOPERATIVE in self.protocols
        owned = self.owned if is_cooperative and self.generation >= 0 else ()
        return encode_subscription(Subscription(topics, None, owned, self.generation, self.rack))

    def _refused(self, answer: dict[str, Any], dialogue: Dialogue) -> None:
        self.joins, self.syncs = True, False
        match answer["errorCode"]:
            case code if code == MEMBER_ID_REQUIRED:
                self.member_id = answer["memberId"]
                dialogue.name(self.name, self.member_id)
            case code if code in (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID):
                self.member_id, self.generation, self.owned = "", -1, ()
            case code if code == ILLEGAL_GENERATION:
                self.generation, self.owned = -1, ()
            case code:
                assert code == REBALANCE_IN_PROGRESS, answer

    def _joined(self, answer: dict[str, Any], dialogue: Dialogue, members: dict[str, Member]) -> None:
        self.member_id, self.generation = answer["memberId"], answer["generationId"]
        dialogue.name(self.name, self.member_id)
        self.protocol, self.syncs, self.plan = answer["protocolName"], True, []
        if answer["leader"] == self.member_id and not answer.get("skipAssignment"):
            self.plan = _assigned(answer["members"], dialogue, members)

    def _synced(self, answer: dict[str, Any]) -> None:
        self.syncs, self.plan = False, []
        self.owned = decode_assignment(answer["assignment"].encode("latin-1")).partitions

    def leaves(self, *, for_a_while: bool = False) -> Step | None:
        if for_a_while:
            return None
        identity = {"memberId": self.member_id, "groupInstanceId": _or_null(self.instance_id)}
        fields = {"groupId": GROUP, "members": [identity]}
        return Step(f"{self.name} leaves", "LeaveGroup", fields, COORDINATOR)

    def identity(self) -> tuple[str, int]:
        return self.member_id, self.generation


def _or_null(text: str | None) -> str:
    return "$null" if text is None else text


def _classic(members: dict[str, Member]) -> list[tuple[str, ClassicMember]]:
    return [(name, each) for name, each in members.items() if isinstance(each, ClassicMember)]


def _assigned(told: list[dict[str, Any]], dialogue: Dialogue, members: dict[str, Member]) -> list[dict[str, Any]]:
    """A leader's assignments: of each topic the partitions in turn, to its members in the order of their names."""
    known_by = {each.instance_id or each.member_id: name for name, each in _classic(members)}
    known = sorted(told, key=lambda each: known_by[each["groupInstanceId"] or each["memberId"]])
    shares: dict[str, list[TopicPartition]] = {each["memberId"]: [] for each in known}
    for topic, count in TOPICS.items():
        name = dialogue.filled(topic)
        readers = [
            each["memberId"] for each in known if name in decode_subscription(each["metadata"].encode("latin-1")).topics
        ]
        for number in range(count if readers else 0):
            shares[readers[number % len(readers)]].append(TopicPartition(name, number))
    return [
        {"memberId": member_id, "assignment": f"0x{encode_assignment(Assignment(tuple(share))).hex()}"}
        for member_id, share in shares.items()
    ]
