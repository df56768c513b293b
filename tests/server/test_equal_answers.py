"""An answer about what one may not see is the answer about what does not exist: in every API, version and dialogue."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from stratalog.replication.controller.topics import check_new_partitions
from stratalog.replication.coordinator.groups.modern.group import ModernGroup
from stratalog.replication.coordinator.groups.modern.member import ModernMember
from stratalog.replication.coordinator.groups.modern.records import ResolvedRegex
from stratalog.replication.metadata.acls import Operation, ResourceType, VisibleTopics
from stratalog.server.apis.topics import TopicApis
from stratalog.server.request.api import Call
from stratalog.server.request.broker import ServedBroker
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.values import Values
from tests.clients.equal_dialogue import Dialogue
from tests.clients.equal_worlds import ELSEWHERE, HIDDEN, REVEALED_BY, World, rights

SEEDS, REQUESTS = 4, 300
LONG_SEEDS, LONG_REQUESTS = 60, 1_500


def differences(seed: int, count: int, keys: tuple[int, ...] = ()) -> tuple[list[str], Counter[int]]:
    """The answers of one dialogue that differ, up to the first one, after which the clusters do; the numbers of
    requests by API. `keys`: these APIs alone."""
    rng = random.Random(seed)
    given, on_cluster = rights(rng)
    asked: Counter[int] = Counter()
    with ExitStack() as stack:
        secret, elsewhere = (stack.enter_context(World(hidden, given)) for hidden in (HIDDEN, ELSEWHERE))
        served = [(api.key, version) for api in secret.handlers[1].apis for version in api.versions]
        served = [each for each in served if REVEALED_BY.get(each[0]) not in on_cluster]
        by_key: dict[int, list[int]] = {}
        for key, version in served:
            by_key.setdefault(key, []).append(version)
        dialogue = Dialogue(rng, lambda: secret.ids.stand_ins)
        for _ in range(count):
            key = rng.choice(keys or tuple(by_key))
            version = rng.choice(by_key[key])
            values = dialogue.request(key, version)
            asked[key] += 1
            there, not_there = (world.answered(key, version, values) for world in (secret, elsewhere))
            if there != not_there:
                return [f"seed {seed}, API {key} version {version}, {values}:\n{there}\n{not_there}"], asked
            if ELSEWHERE in there:
                return [f"seed {seed}, API {key} version {version}, {values}: names {there}"], asked
    return [], asked


@pytest.mark.parametrize("seed", range(SEEDS))
def test_hidden_topics_groups_and_transactions_change_no_answer(seed: int) -> None:
    found, asked = differences(seed, REQUESTS)
    assert found == []
    assert len(asked) > 30, "nearly every API is asked"


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_hidden_topics_groups_and_transactions_change_no_answer_for_long() -> None:
    for seed in range(1_000, 1_000 + LONG_SEEDS):
        assert differences(seed, LONG_REQUESTS)[0] == []


# What the dialogues find


def _sees_all(_self: VisibleTopics, names: frozenset[str]) -> frozenset[str]:
    return names


def _subscribes_to_all(
    group: ModernGroup, member: ModernMember, regexes: Mapping[str, ResolvedRegex] | None = None
) -> frozenset[str]:
    resolved = (group.regexes if regexes is None else regexes).get(member.subscribed_topic_regex)
    return member.subscribed_topic_names | (resolved.topics if resolved else frozenset())


def _adds_up_first(apis: TopicApis, call: Call) -> Values:
    check_new_partitions(sum(apis._added(each) for each in call.request.topics))
    return _CREATE_PARTITIONS(apis, call)


def _names_the_topic_of_an_id(broker: ServedBroker, call: Call, operation: Operation, topic: Any) -> str:
    name = broker.name_of(topic)
    broker.check(call, operation, ResourceType.TOPIC, name)
    return name


_CREATE_PARTITIONS = TopicApis._create_partitions

DEFECTS: dict[str, tuple[type, str, Callable[..., Any], tuple[int, ...]]] = {
    "expressions find all topics": (VisibleTopics, "__call__", _sees_all, (ApiKey.CONSUMER_GROUP_HEARTBEAT,)),
    "members are assigned hidden topics that they name": (
        ModernGroup, "topics_of", _subscribes_to_all,
        (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT),
    ),
    "all offsets are those of hidden topics, too": (
        VisibleTopics, "has", lambda _self, _name: True, (ApiKey.OFFSET_FETCH,),
    ),
    "partitions are added up before the check": (
        TopicApis, "_create_partitions", _adds_up_first, (ApiKey.CREATE_PARTITIONS,),
    ),
    "a refusal names the topic of an id": (
        ServedBroker, "topic_for", _names_the_topic_of_an_id, (ApiKey.METADATA, ApiKey.PRODUCE),
    ),
    "lists are not filtered": (
        ServedBroker, "may_describe_topic", lambda _self, _call, _name: True,
        (ApiKey.METADATA, ApiKey.DESCRIBE_TRANSACTIONS),
    ),
}  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_dialogues_find(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, function, keys = DEFECTS[defect]
    monkeypatch.setattr(where, name, function)
    assert any(differences(seed, REQUESTS, keys)[0] for seed in range(20))
