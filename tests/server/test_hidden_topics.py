"""What users with rights on groups, transactions or the cluster, but on no topic, are told of topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.replication.coordinator.runtime.kinds import COORDINATOR_KINDS
from stratalog.replication.metadata.acls import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourceType,
)
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.server.view.cluster_view import ClusterView
from stratalog.wire.api_keys import ApiKey
from tests.clients.coordinating_cluster import CoordinatingCluster
from tests.clients.kafka_client import KafkaClient, code
from tests.clients.memory_cluster import ROOT

SETTINGS = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:root"}
ROOT_USER, USER = Principal("User:root"), Principal("User:u")


class Hidden(KafkaClient):
    """A client of the user `u` of a cluster with topics `plain` and `secret`."""

    def __init__(self) -> None:
        cluster = CoordinatingCluster({kind: each.make for kind, each in COORDINATOR_KINDS.items()})
        for topic, partitions in (("plain", 2), ("secret", 5), *((kind.topic, 1) for kind in CoordinatorType)):
            cluster.create_topic(topic, partitions)
        super().__init__(cluster, stores=cluster.stores, settings=SETTINGS)
        self.topic_ids = dict(cluster.metadata.image.topic_ids)
        self.admin = Admin(ROOT, view=ClusterView(ROOT, stores=cluster.stores))
        self.principal = USER

    def allow(self, kind: ResourceType, name: str, *operations: Operation, who: str = "User:u") -> None:
        allowed = Permission.ALLOW
        self.admin.create_acls([AclBinding(kind, name, PatternType.LITERAL, who, "*", o, allowed) for o in operations])

    def as_root(self, key: int, version: int, values: dict[str, Any]) -> Any:
        self.principal = ROOT_USER
        try:
            return self.ask(key, version, values)
        finally:
            self.principal = USER

    def heartbeat(self, group: str = "g", **fields: Any) -> Any:
        values = {"group_id": group, "member_id": "m", "member_epoch": 0, "rebalance_timeout": 60_000}
        return self.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**values, "topic_partitions": (), **fields})


@pytest.fixture
def client() -> Iterator[Hidden]:
    with Hidden() as made:
        yield made


def test_an_expression_matches_no_topic_that_its_user_may_not_describe(client: Hidden) -> None:
    for group in ("g", "h"):
        client.allow(ResourceType.GROUP, group, Operation.READ)
    assert client.heartbeat(subscribed_topic_regex=".*").assignment.topic_partitions == ()
    client.allow(ResourceType.TOPIC, "plain", Operation.DESCRIBE)
    (found,) = client.heartbeat("h", subscribed_topic_regex=".*").assignment.topic_partitions
    assert found.partitions == (0, 1)


@pytest.mark.parametrize("version", range(2, 11))
def test_all_offsets_of_a_group_are_those_of_topics_that_one_may_describe(client: Hidden, version: int) -> None:
    partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "note"}
    topics = [{"name": each, "partitions": [partition]} for each in ("plain", "secret")]
    committed = client.as_root(ApiKey.OFFSET_COMMIT, 9, {"group_id": "g", "topics": topics})
    assert [code(each.partitions[0]) for each in committed.topics] == [0, 0]
    client.allow(ResourceType.GROUP, "g", Operation.DESCRIBE)

    def fetched(topics: list[dict[str, Any]] | None) -> dict[str, tuple[int, int]]:
        group = {"group_id": "g", "topics": topics}
        answer = client.ask(ApiKey.OFFSET_FETCH, version, {"groups": [group]} if version >= 8 else group)
        found = answer.groups[0].topics if version >= 8 else answer.topics
        names = {topic_id: name for name, topic_id in client.topic_ids.items()}
        return {
            each.name if version < 10 else names[each.topic_id]: (
                code(each.partitions[0]),
                each.partitions[0].committed_offset,
            )
            for each in found
        }

    assert fetched(None) == {}
    client.allow(ResourceType.TOPIC, "plain", Operation.DESCRIBE)
    assert fetched(None) == {"plain": (0, 7)}
    named = [
        {"name": name, "topic_id": client.topic_ids[name], "partition_indexes": [0]} for name in ("plain", "secret")
    ]
    assert fetched(named) == {"plain": (0, 7), "secret": (29, -1)}


def test_a_group_with_hidden_topics_is_described_without_their_names(client: Hidden) -> None:
    client.principal = ROOT_USER
    client.heartbeat(subscribed_topic_names=("secret",))
    client.principal = USER
    client.allow(ResourceType.GROUP, "g", Operation.DESCRIBE)
    (group,) = client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ["g"]}).groups
    assert (code(group), group.members) == (29, ())
    assert "secret" not in group.error_message


def test_how_many_partitions_a_topic_has_is_for_those_who_may_alter_it(client: Hidden) -> None:
    def growing(name: str, count: int) -> Any:
        topic = {"name": name, "count": count, "assignments": None}
        return client.ask(
            ApiKey.CREATE_PARTITIONS, 3, {"topics": [topic], "timeout": 1_000, "validate_only": True}
        ).results[0]

    assert [code(growing(name, 10_003)) for name in ("secret", "absent")] == [29, 29]
    client.allow(ResourceType.TOPIC, "secret", Operation.ALTER)
    assert (code(growing("secret", 10_003)), code(growing("secret", 10_006))) == (0, 44)


def test_new_topics_count_against_the_bound_only_for_those_who_may_make_them(client: Hidden) -> None:
    def made(*names: str) -> list[int]:
        topics = [{"name": name, "num_partitions": 6_000, "replication_factor": 1} for name in names]
        answer = client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout": 1_000, "validate_only": True})
        return [code(each) for each in answer.topics]

    assert made("a", "b") == [29, 29]
    client.allow(ResourceType.TOPIC, "a", Operation.CREATE)
    assert made("a", "b") == [0, 29]
    client.allow(ResourceType.TOPIC, "b", Operation.CREATE)
    assert made("a", "b") == [44, 44]


def test_a_brokers_user_needs_cluster_action_alone(client: Hidden) -> None:
    started = client.as_root(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": "tx", "transaction_timeout": 60_000})
    assert code(started) == 0
    producer = {"producer_id": started.producer_id, "producer_epoch": started.producer_epoch}
    topics = [{"name": "secret", "partitions": [0]}]
    transaction = {"transactional_id": "tx", **producer, "verify_only": False, "topics": topics}

    def by_broker() -> tuple[int, list[int]]:
        answer = client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 5, {"transactions": [transaction]})
        parts = [
            p for each in answer.results_by_transaction for t in each.topic_results for p in t.results_by_partition
        ]
        return code(answer), [int(part.partition_error_code) for part in parts]

    assert by_broker() == (31, [])
    client.allow(ResourceType.CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION)
    assert by_broker() == (0, [0])
    values = {"v3_and_below_transactional_id": "tx", "v3_and_below_topics": topics}
    values |= {f"v3_and_below_{name}": value for name, value in producer.items()}
    (topic,) = client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, values).results_by_topic_v3_and_below
    assert int(topic.results_by_partition[0].partition_error_code) == 53, "a producer needs Write, as before"


def test_topics_made_on_demand_count_for_the_mutation_rate(client: Hidden) -> None:
    client.allow(ResourceType.TOPIC, "*", Operation.DESCRIBE, Operation.CREATE)
    rate = {"key": "controller_mutation_rate", "value": 1.0, "remove": False}
    entry = {"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": [rate]}
    assert (
        code(client.as_root(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": [entry], "validate_only": False}).entries[0])
        == 0
    )
    answer = client.ask(ApiKey.METADATA, 12, {"topics": [{"name": f"new-{n}"} for n in range(40)]})
    assert {code(each) for each in answer.topics} == {3}, "clients ask again"
    made = {int(name.removeprefix("new-")) for name in client.admin.list_topics() if name.startswith("new-")}
    assert made == set(range(len(made))), "the first ones, until the bucket is overdrawn"
    assert 0 < len(made) <= 13, "11 in a window of 11 s, one that overdraws it, one for time that passes"
    assert answer.throttle_time > 0


def test_one_request_makes_a_bounded_number_of_partitions_on_demand(client: Hidden) -> None:
    client.allow(ResourceType.TOPIC, "*", Operation.DESCRIBE, Operation.CREATE)
    client.admin.alter_cluster_configs({"num.partitions": "4000"})
    answer = client.ask(ApiKey.METADATA, 12, {"topics": [{"name": f"new-{n}"} for n in range(4)]})
    assert [code(each) for each in answer.topics] == [3, 3, 3, 3], "clients ask again"
    assert {name for name in client.admin.list_topics() if name.startswith("new-")} == {"new-0", "new-1"}
