"""Who may do what through Kafka's requests: with an authorizer each is asked for, and the answer says so its way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.replication.metadata.acls import (
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourceType,
)
from stratalog.server.view.cluster_view import ClusterView
from stratalog.wire.api_keys import ApiKey
from tests.clients.kafka_client import KafkaClient, batch_of, code
from tests.clients.memory_cluster import ROOT, MemoryCluster

SETTINGS = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:root"}


@pytest.fixture
def cluster() -> MemoryCluster:
    """`alice` may read topic `t`, `bob` may write to it; nobody may see `secret`."""
    made = MemoryCluster()
    made.create_topic("t")
    made.create_topic("secret")
    admin = Admin(ROOT, view=ClusterView(ROOT, stores=made.stores))
    admin.create_acls([_allow("User:alice", Operation.READ), _allow("User:bob", Operation.WRITE)])
    return made


def _allow(who: str, operation: Operation) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, "t", PatternType.LITERAL, who, "*", operation, Permission.ALLOW)


@pytest.fixture
def client(cluster: MemoryCluster) -> Iterator[KafkaClient]:
    with KafkaClient(cluster, stores=cluster.stores, settings=SETTINGS) as made:
        yield made


def produced(client: KafkaClient) -> int:
    topic = {"name": "t", "partition_data": [{"index": 0, "records": batch_of(b"v")}]}
    answer = client.ask(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 1_000, "topic_data": [topic]})
    return code(answer.responses[0].partition_responses[0])


def fetched(client: KafkaClient) -> int:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}
    topics = [{"topic": "t", "partitions": [partition]}]
    return code(
        client.ask(ApiKey.FETCH, 12, {"max_wait": 0, "min_bytes": 0, "topics": topics}).responses[0].partitions[0]
    )


def listed(client: KafkaClient) -> int:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    return code(client.ask(ApiKey.LIST_OFFSETS, 5, {"replica_id": -1, "topics": topics}).topics[0].partitions[0])


@pytest.mark.parametrize(
    ("who", "may_write", "may_read", "may_describe"),
    [
        ("User:alice", False, True, True),
        ("User:bob", True, False, True),
        ("User:carol", False, False, False),
        ("User:root", True, True, True),
    ],
)
def test_records_are_for_those_who_may(
    client: KafkaClient, who: str, may_write: bool, may_read: bool, may_describe: bool
) -> None:
    client.principal = Principal(who)
    assert produced(client) == (0 if may_write else 29)
    assert fetched(client) == (0 if may_read else 29)
    assert listed(client) == (0 if may_describe else 29)
    init = client.ask(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout": 1_000})
    assert code(init) == (0 if may_write else 31)


def test_what_one_may_not_see_is_not_told(client: KafkaClient) -> None:
    client.principal = Principal("User:alice")
    assert [topic.name for topic in client.ask(ApiKey.METADATA, 12, {"topics": None}).topics] == ["t"]
    values = {"topics": [{"name": "secret"}, {"name": "t"}], "include_topic_authorized_operations": True}
    secret, known = client.ask(ApiKey.METADATA, 12, values).topics
    assert (code(secret), secret.topic_id) == (29, "0" * 32)
    assert (code(known), known.topic_authorized_operations) == (0, 1 << 3 | 1 << 8)
    described = client.ask(ApiKey.DESCRIBE_CLUSTER, 1, {"include_cluster_authorized_operations": True})
    assert described.cluster_authorized_operations == 0
    assert code(client.ask(ApiKey.METADATA, 12, {"topics": [{"name": "new"}]}).topics[0]) == 29
    deleted = client.ask(ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": "secret"}, {"name": "t"}], "timeout": 1_000})
    assert [code(each) for each in deleted.responses] == [29, 29]


CLUSTER_REQUESTS: list[tuple[int, int, dict[str, Any]]] = [
    (ApiKey.ELECT_LEADERS, 2, {"topic_partitions": None, "timeout": 1_000}),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"timeout": 1_000}),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None, "timeout": 1_000}),
    (ApiKey.DESCRIBE_LOG_DIRS, 3, {"topics": None}),
]


@pytest.mark.parametrize(("key", "version", "values"), CLUSTER_REQUESTS)
def test_the_cluster_is_for_those_who_may(client: KafkaClient, key: int, version: int, values: dict[str, Any]) -> None:
    for who, error in (("User:alice", 31), ("User:root", 0)):
        client.principal = Principal(who)
        assert code(client.ask(key, version, values)) == error


@pytest.mark.parametrize("version", range(3))
def test_an_election_is_refused_in_every_version(client: KafkaClient, version: int) -> None:
    client.principal = Principal("User:alice")
    named = {"topic_partitions": [{"topic": "t", "partitions": [0]}], "timeout": 1_000}
    (result,) = client.ask(ApiKey.ELECT_LEADERS, version, named).replica_election_results
    assert [code(each) for each in result.partition_result] == [31]


def test_topics_configs_and_groups_are_for_those_who_may(client: KafkaClient) -> None:
    client.principal = Principal("User:alice")
    topic = {"name": "new", "num_partitions": 1, "replication_factor": 1}
    assert code(client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout": 1_000}).topics[0]) == 29
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in ((2, "t"), (4, "1"))
    ]
    assert [code(each) for each in client.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": resources}).results] == [29, 31]
    assert code(client.ask(ApiKey.HEARTBEAT, 4, {"group_id": "g", "generation_id": 1, "member_id": "m"})) == 30
    assert code(client.ask(ApiKey.DESCRIBE_GROUPS, 6, {"groups": ["g"]}).groups[0]) == 30
    assert code(client.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g"]}).results[0]) == 30


def test_altered_acls_count_at_once_and_other_metadata_changes_none(
    cluster: MemoryCluster, client: KafkaClient
) -> None:
    admin, reads = Admin(ROOT, view=ClusterView(ROOT, stores=cluster.stores)), _allow("User:alice", Operation.READ)
    client.principal = Principal("User:alice")
    assert fetched(client) == 0
    admin.delete_acls([AclFilter(principal="User:alice")])
    assert fetched(client) == 29
    cluster.create_topic("other")
    assert fetched(client) == 29
    admin.create_acls([reads])
    assert fetched(client) == 0
