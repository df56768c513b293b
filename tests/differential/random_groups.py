"""Random changes of a KIP-848 group, after each of which its members settle and the group is described. Pure but for
what a dialogue asks.

Members are honest: they give up and take what they are told. How many heartbeats they need, and so some epochs on the
way, is each cluster's own; the group that they settle in is not. No member subscribes to a regular expression: Kafka
resolves those of a group once in ten seconds at most.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.differential.dialogue import Dialogue
from tests.differential.scripts import Step

GROUP = "members-$run"
TOPICS = {"one-$run": 1, "two-$run": 2, "five-$run": 5}
GROUP_RESOURCE = 32
ROUNDS_MAX = 60
MEMBERS_MAX = 5
FENCED = {25, 110}
"""UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH: a member joins anew."""


@dataclass(slots=True)
class Member:
    """What one member says of itself, and, on one cluster, what it was told."""

    member_id: str
    topics: list[str]
    assignor: str | None = None
    instance_id: str | None = None
    rack: str | None = None
    epoch: int = 0
    owned: list[dict[str, Any]] = field(default_factory=list)

    def heartbeat(self) -> dict[str, Any]:
        """The fields of the member's next heartbeat. All are sent each time, as after a heartbeat without an answer."""
        return {
            "groupId": GROUP,
            "memberId": self.member_id,
            "memberEpoch": self.epoch,
            "instanceId": "$null" if self.instance_id is None else self.instance_id,
            "rackId": "$null" if self.rack is None else self.rack,
            "rebalanceTimeoutMs": 60_000,
            "subscribedTopicNames": self.topics,
            "serverAssignor": "$null" if self.assignor is None else self.assignor,
            "topicPartitions": self.owned if self.epoch > 0 else [],
        }


@dataclass(frozen=True, slots=True)
class Change:
    """`apply` changes the members of one cluster, and returns the request that the change needs, if any."""

    that: str
    apply: Callable[[dict[str, Member]], Step | None]


class RandomGroup:
    """The changes of one dialogue."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._known: dict[str, Member] = {}
        self._number = 0
        self._assignors = self._random.choice([[None, "uniform"], [None, "range"]])
        """Where as many members ask for one as for another, Kafka's choice follows from the order of a hash map."""
        self._sizes = dict(TOPICS)

    def changes(self, count: int) -> Iterator[Change]:
        """`count` random changes. The first one, before them, is a member that joins."""
        kinds = {self._join: 6, self._leave: 3, self._subscribe: 4, self._return: 2, self._grow: 1, self._commit: 3}
        yield self._join()
        for _ in range(count):
            makers = [make for make in kinds if self._known or make in (self._join, self._grow)]
            (make,) = self._random.choices(makers, [kinds[each] for each in makers])
            yield make()

    def _subscription(self) -> dict[str, Any]:
        names = list(TOPICS)
        return {"topics": sorted(self._random.sample(names, self._random.randint(1, len(names))))}

    def _join(self) -> Change:
        if len(self._known) >= MEMBERS_MAX:
            return self._leave()
        self._number += 1
        random = self._random
        given = {
            "assignor": random.choice(self._assignors),
            "instance_id": f"static-{self._number}" if random.random() < 0.3 else None,
            "rack": random.choice([None, None, "a", "b"]),
            **self._subscription(),
        }
        member_id = f"member-{self._number}"
        self._known[member_id] = Member(member_id, **given)

        def apply(members: dict[str, Member]) -> None:
            members[member_id] = Member(member_id, **given)

        return Change(f"{member_id} joins: {given}", apply)

    def _any(self) -> str:
        return self._random.choice(sorted(self._known))

    def _leave(self) -> Change:
        member_id = self._any()
        del self._known[member_id]

        def apply(members: dict[str, Member]) -> Step:
            left = members.pop(member_id)
            return Step("it leaves", "ConsumerGroupHeartbeat", _last(left, -1), f"group {GROUP}")

        return Change(f"{member_id} leaves", apply)

    def _return(self) -> Change:
        """A static member leaves for a while, and comes back under another member id."""
        static = sorted(each for each, member in self._known.items() if member.instance_id is not None)
        if not static:
            return self._subscribe()
        before = self._random.choice(static)
        self._number += 1
        after, changed = f"member-{self._number}", self._subscription() if self._random.random() < 0.3 else {}
        self._known[after] = self._known.pop(before)

        def apply(members: dict[str, Member]) -> Step:
            left = members.pop(before)
            found = Member(after, left.topics, left.assignor, left.instance_id, left.rack)
            for name, value in changed.items():
                setattr(found, name, value)
            members[after] = found
            return Step("it leaves for a while", "ConsumerGroupHeartbeat", _last(left, -2), f"group {GROUP}")

        return Change(f"{before} comes back as {after}: {changed}", apply)

    def _subscribe(self) -> Change:
        member_id, changed = self._any(), self._subscription()
        if self._random.random() < 0.3:
            changed["assignor"] = self._random.choice(self._assignors)

        def apply(members: dict[str, Member]) -> None:
            for name, value in changed.items():
                setattr(members[member_id], name, value)

        return Change(f"{member_id} now: {changed}", apply)

    def _grow(self) -> Change:
        topic = self._random.choice(sorted(TOPICS))
        self._sizes[topic] += 1
        count = self._sizes[topic]
        fields = {"timeoutMs": 30_000, "topics": [{"name": topic, "count": count, "assignments": "$null"}]}

        def apply(_members: dict[str, Member]) -> Step:
            return Step("partitions are added", "CreatePartitions", fields)

        return Change(f"{topic} has {count} partitions", apply)

    def _commit(self) -> Change:
        member_id, topic, offset = self._any(), self._random.choice(sorted(TOPICS)), self._random.randrange(100)
        late = self._random.choices([0, -1, 1], [8, 1, 1])[0]

        def apply(members: dict[str, Member]) -> Step:
            partitions = [{"partitionIndex": 0, "committedOffset": offset}]
            fields = {
                "groupId": GROUP,
                "generationIdOrMemberEpoch": members[member_id].epoch + late,
                "memberId": member_id,
                "topics": [{"name": topic, "partitions": partitions}],
            }
            return Step("offsets are committed", "OffsetCommit", fields, f"group {GROUP}", version=9)

        return Change(f"{member_id} commits {offset} for {topic}, epoch {late:+}", apply)


def _last(member: Member, epoch: int) -> dict[str, Any]:
    fields = {"groupId": GROUP, "memberId": member.member_id, "memberEpoch": epoch}
    instance_id = "$null" if member.instance_id is None else member.instance_id
    nothing = {"subscribedTopicNames": "$null", "topicPartitions": "$null"}
    return {**fields, "instanceId": instance_id, "rebalanceTimeoutMs": -1, **nothing}


class SettledGroup:
    """The group on one cluster."""

    def __init__(self, dialogue: Dialogue) -> None:
        self._dialogue = dialogue
        self._members: dict[str, Member] = {}

    def begin(self) -> None:
        """Create the topics."""
        for name, count in TOPICS.items():
            topics = [{"name": name, "numPartitions": count, "replicationFactor": 1}]
            self._dialogue.answer(Step(name, "CreateTopics", {"timeoutMs": 30_000, "topics": topics}))
            variable = f"{name.removesuffix('-$run')}Id"
            save = {variable: "topics*.topicId"}
            self._dialogue.answer(Step(name, "Metadata", {"topics": [{"name": name}]}, version=12, save=save))

        configs = [{"name": "consumer.assignment.interval.ms", "configOperation": 0, "value": "0"}]
        resources = [{"resourceType": GROUP_RESOURCE, "resourceName": GROUP, "configs": configs}]
        self._dialogue.answer(Step("", "IncrementalAlterConfigs", {"resources": resources, "validateOnly": False}))

    def after(self, change: Change) -> tuple[Any, Any, Any]:
        """Apply a change. Returns the answer to its request (None without one), the description of the group when no
        member is told anything new any more, and the group's committed offsets."""
        step = change.apply(self._members)
        answer = None if step is None else self._dialogue.answer(step)
        return answer, self._settled(), self._offsets()

    def _settled(self) -> Any:
        for _ in range(ROUNDS_MAX):
            changed = [self._heartbeat(member) for member in self._members.values()]
            found = self._dialogue.answer(Step("", "ConsumerGroupDescribe", {"groupIds": [GROUP]}, f"group {GROUP}"))
            (group,) = found["groups"]
            if not any(changed) and group["groupState"] in ("Stable", "Empty", "Dead", ""):
                return _shares(group)
            self._dialogue.pause()
        return {"not settled": _shares(group)}

    def _heartbeat(self, member: Member) -> bool:
        """Send a heartbeat. Returns whether the answer changes the member's epoch or assignment."""
        step = Step("", "ConsumerGroupHeartbeat", member.heartbeat(), f"group {GROUP}")
        answer = self._dialogue.answer(step)
        if answer["errorCode"] in FENCED:
            member.epoch, member.owned = 0, []
            return True
        if answer["errorCode"]:
            return True
        told = answer["assignment"]
        is_new = answer["memberEpoch"] != member.epoch or (told is not None and told["topicPartitions"] != member.owned)
        member.epoch = answer["memberEpoch"]
        if told is not None:
            member.owned = told["topicPartitions"]
        return is_new

    def _offsets(self) -> Any:
        fields = {"groups": [{"groupId": GROUP, "topics": "$null"}], "requireStable": True}
        return self._dialogue.answer(Step("", "OffsetFetch", fields, f"group {GROUP}", version=9))


def _shares(group: Any) -> Any:
    """The group with the numbers of partitions that its members have, in order: which of several partitions a member
    gets follows from the ids of topics, which are each cluster's own."""
    members = [
        {name: value for name, value in member.items() if name not in ("assignment", "targetAssignment")}
        for member in group["members"]
    ]
    counts = sorted(
        tuple(
            sum(len(topic["partitions"]) for topic in member[name]["topicPartitions"])
            for name in ("assignment", "targetAssignment")
        )
        for member in group["members"]
    )
    return {**in_order(group), "members": in_order(members), "shares": str(counts)}


def in_order(value: Any, *, by_text: bool = False) -> Any:
    """The answer with its lists of numbers and names sorted, since partitions come in no order. Values of records stay
    as they are. `by_text`: a list of tables is sorted, too."""
    if isinstance(value, dict):
        return {
            name: each if name == "values" else in_order(each, by_text=name == "activeProducers")
            for name, each in value.items()
        }
    if isinstance(value, list):
        items = [in_order(each) for each in value]
        if by_text:
            return sorted(items, key=json.dumps)
        return sorted(items) if all(isinstance(item, int | str) for item in items) else items
    return value
