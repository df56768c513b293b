"""Random changes of a consumer group, after each of which its members settle and the group is described. Pure but for
what a dialogue asks.

Members speak one protocol, or both: then the group changes from the classic one to KIP-848's and back. How many
requests they need, and so some epochs on the way, is each cluster's own; the group that they settle in is not. No
member subscribes to a regular expression: Kafka resolves those of a group once in ten seconds at most.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from stratalog.wire.consumer_protocol import decode_assignment, decode_subscription
from tests.lab.differential import normal
from tests.lab.differential.dialogue import Dialogue
from tests.lab.differential.random_members import (
    COOPERATIVE,
    COORDINATOR,
    GROUP,
    TOPICS,
    ClassicMember,
    Member,
    ModernMember,
)
from tests.lab.differential.scripts import Step

GROUP_RESOURCE = 32
ROUNDS_MAX = 60
MEMBERS_MAX = 5
KINDS: dict[str, type[Member]] = {"classic": ClassicMember, "consumer": ModernMember}


@dataclass(frozen=True, slots=True)
class Change:
    """`apply` changes the members of one cluster, and returns the request that the change needs, if any."""

    that: str
    apply: Callable[[dict[str, Member]], Step | None]


class RandomGroup:
    """The changes of one dialogue. `protocols`: those that members speak."""

    def __init__(self, seed: int, protocols: tuple[str, ...] = ("consumer",)) -> None:
        self._random = Random(seed)
        self._protocols = protocols
        self._known: dict[str, str | None] = {}
        """The instance id of each member."""
        self._number = 0
        self._assignors = self._random.choice([[None, "uniform"], [None, "range"]])
        """Where as many members ask for one as for another, Kafka's choice follows from the order of a hash map."""
        self._classic_assignors = self._random.choice([["range", "roundrobin"], ["range", COOPERATIVE]])
        self._sizes = dict(TOPICS)

    def changes(self, count: int) -> Iterator[Change]:
        """`count` random changes. The first one, before them, is a member that joins."""
        kinds = {self._join: 6, self._leave: 3, self._subscribe: 4, self._return: 2, self._grow: 1, self._commit: 3}
        if "classic" in self._protocols:
            kinds |= {self._rejoin: 2, self._remove: 1, self._stranger: 1, self._delete_offsets: 1, self._delete: 1}
        yield self._join()
        for _ in range(count):
            of_nobody = (self._join, self._grow, self._remove, self._delete_offsets, self._delete)
            makers = [make for make in kinds if self._known or make in of_nobody]
            (make,) = self._random.choices(makers, [kinds[each] for each in makers])
            yield make()

    def _subscription(self) -> list[str]:
        names = list(TOPICS)
        return sorted(self._random.sample(names, self._random.randint(1, len(names))))

    def _new(self, instance_id: str | None) -> tuple[str, Callable[[], Member]]:
        """The name of a new member, and what makes it."""
        self._number += 1
        random, protocol = self._random, self._random.choice(self._protocols)
        name = f"member-{self._number}-{protocol}"
        ordered = random.sample(self._classic_assignors, len(self._classic_assignors))
        given: dict[str, Any] = {
            "topics": self._subscription(),
            "instance_id": instance_id,
            "rack": random.choice([None, None, "a", "b"]),
            "assignor": random.choice(self._assignors),
            "protocols": tuple(ordered if random.random() < 0.5 else ["range"]),
        }
        self._known[name] = instance_id
        return f"{name}: {given}", lambda: KINDS[protocol](name, **given)

    def _join(self) -> Change:
        if len(self._known) >= MEMBERS_MAX:
            return self._leave()
        is_static = self._random.random() < 0.3
        that, make = self._new(f"static-{self._number}" if is_static else None)

        def apply(members: dict[str, Member]) -> None:
            made = make()
            members[made.name] = made

        return Change(f"joins: {that}", apply)

    def _any(self) -> str:
        return self._random.choice(sorted(self._known))

    def _leave(self) -> Change:
        name = self._any()
        del self._known[name]
        return Change(f"{name} leaves", lambda members: members.pop(name).leaves())

    def _return(self) -> Change:
        """A static member leaves for a while, and comes back under another member id, perhaps in the other protocol."""
        static = sorted(name for name, instance_id in self._known.items() if instance_id is not None)
        if not static:
            return self._subscribe()
        before = self._random.choice(static)
        that, make = self._new(self._known.pop(before))

        def apply(members: dict[str, Member]) -> Step | None:
            left, made = members.pop(before), make()
            members[made.name] = made
            return left.leaves(for_a_while=True)

        return Change(f"{before} comes back: {that}", apply)

    def _subscribe(self) -> Change:
        name, topics = self._any(), self._subscription()
        return Change(f"{name} now reads {topics}", lambda members: members[name].subscribe(topics))

    def _rejoin(self) -> Change:
        """A member joins again as it is."""
        name = self._any()
        return Change(f"{name} joins again", lambda members: members[name].subscribe(members[name].topics))

    def _remove(self) -> Change:
        """An administrator removes members by their instance ids."""
        static = sorted(name for name, instance_id in self._known.items() if instance_id is not None)
        removed = self._random.sample(static, min(len(static), self._random.randint(1, 2)))
        identities = [{"memberId": "", "groupInstanceId": self._known.pop(name)} for name in removed]
        identities.append({"memberId": "", "groupInstanceId": "nobody"})

        def apply(members: dict[str, Member]) -> Step:
            for name in removed:
                del members[name]
            return Step("members are removed", "LeaveGroup", {"groupId": GROUP, "members": identities}, COORDINATOR)

        return Change(f"{removed} and nobody are removed", apply)

    def _stranger(self) -> Change:
        """A member that has no protocol in common with the others."""
        fields = {
            "groupId": GROUP,
            "memberId": "",
            "sessionTimeoutMs": 30_000,
            "rebalanceTimeoutMs": 30_000,
            "protocolType": self._random.choice(["consumer", "connect"]),
            "protocols": [{"name": "strange", "metadata": "strange"}],
        }
        step = Step("a stranger", "JoinGroup", fields, COORDINATOR, own=["memberId"])
        return Change("a stranger joins", lambda _: step)

    def _delete_offsets(self) -> Change:
        topics = [{"name": topic, "partitions": [{"partitionIndex": 0}]} for topic in self._subscription()]
        fields = {"groupId": GROUP, "topics": topics}
        return Change(f"offsets are deleted: {topics}", lambda _: Step("", "OffsetDelete", fields, COORDINATOR))

    def _delete(self) -> Change:
        fields = {"groupsNames": [GROUP]}
        return Change("the group is deleted", lambda _: Step("", "DeleteGroups", fields, COORDINATOR))

    def _grow(self) -> Change:
        if "classic" in self._protocols:
            return self._join()  # a leader would have to look for new partitions
        topic = self._random.choice(sorted(TOPICS))
        self._sizes[topic] += 1
        count = self._sizes[topic]
        fields = {"timeoutMs": 30_000, "topics": [{"name": topic, "count": count, "assignments": "$null"}]}
        return Change(f"{topic} has {count} partitions", lambda _: Step("", "CreatePartitions", fields))

    def _commit(self) -> Change:
        name, topic, offset = self._any(), self._random.choice(sorted(TOPICS)), self._random.randrange(100)
        # Whether an older epoch will do in a group of both protocols follows from who has the partition.
        late = self._random.choices([0, -1, 1], [8, 2 - len(self._protocols), 1])[0]

        def apply(members: dict[str, Member]) -> Step:
            member_id, generation = members[name].identity()
            partitions = [{"partitionIndex": 0, "committedOffset": offset}]
            fields = {
                "groupId": GROUP,
                "generationIdOrMemberEpoch": generation + late,
                "memberId": member_id,
                "topics": [{"name": topic, "partitions": partitions}],
            }
            return Step("offsets are committed", "OffsetCommit", fields, COORDINATOR, version=9)

        return Change(f"{name} commits {offset} for {topic}, epoch {late:+}", apply)


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

    def after(self, change: Change) -> tuple[Any, ...]:
        """Apply a change. Returns the answer to its request (None without one), the descriptions of the group when no
        member has more to do, and the group's committed offsets."""
        step = change.apply(self._members)
        answer = None if step is None else normal.without(self._dialogue.answer(step), step.own)
        return answer, *self._settled(), self._offsets()

    def _settled(self) -> tuple[Any, Any]:
        for _ in range(ROUNDS_MAX):
            changed = [member.turn(self._dialogue, self._members) for member in self._members.values()]
            modern, classic = self._modern(), self._classic()
            states = {modern["groupState"], classic["groupState"]}
            if not any(changed) and states <= {"Stable", "Empty", "Dead", ""}:
                return modern, classic
            self._dialogue.pause()
        return {"not settled": modern}, classic

    def _modern(self) -> Any:
        step = Step("", "ConsumerGroupDescribe", {"groupIds": [GROUP]}, COORDINATOR)
        (group,) = self._dialogue.answer(step)["groups"]
        return _shares(group)

    def _classic(self) -> Any:
        """Members with the topics that they subscribe to, and the number of their partitions."""
        _, told = self._dialogue.told(Step("", "DescribeGroups", {"groups": [GROUP]}, COORDINATOR))
        (group,) = told["groups"]
        for member in group["members"]:
            subscription, assignment = (
                member.pop(f"member{each}").encode("latin-1") for each in ("Metadata", "Assignment")
            )
            member["topics"] = list(decode_subscription(subscription).topics) if subscription else []
            member["partitions"] = len(decode_assignment(assignment).partitions)
        group["members"].sort(key=lambda member: str(self._dialogue.normal(member)))
        return in_order(self._dialogue.normal(group))

    def _offsets(self) -> Any:
        fields = {"groups": [{"groupId": GROUP, "topics": "$null"}], "requireStable": True}
        return self._dialogue.answer(Step("", "OffsetFetch", fields, COORDINATOR, version=9))


def _shares(group: Any) -> Any:
    """The group with the numbers of partitions that its members have, in order: which of several partitions a member
    gets follows from the ids of topics, which are each cluster's own. Where members read different topics, the numbers,
    too, follow from the order of ids, and only the sum is told."""
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
    if len({tuple(sorted(member["subscribedTopicNames"])) for member in members}) > 1:
        counts = [(sum(assigned), sum(target)) for assigned, target in [zip(*counts, strict=True)]]
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
