"""Kafka's requests to running brokers. `tests.lab.differential` compares more of them with Kafka's own answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.server.cluster import Cluster
from stratalog.storage.clock import SystemClock
from stratalog.wire.api_keys import ApiKey
from tests.clients.kafka_client import KafkaClient, code

TRIES = 200
NOT_YET = 5
COME_AGAIN = {NOT_YET, 6, 14, 15, 16, 51}
"""What a client tries again after: leaders and coordinators that are on their way."""
SETTINGS = {
    "offsets.topic.num.partitions": 2,
    "stratalog.fetch.sessions": 1,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.start(Path(tmp_path_factory.mktemp("kafka")), fetcher="thread", config=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[KafkaClient]:
    with KafkaClient(cluster, config=cluster.config) as made:
        yield made


def again(ask: Any) -> Any:
    """The answer of `ask`, a pair of error code and answer, once it is not one to come again after."""
    for _ in range(TRIES):
        error, answer = ask()
        if error not in COME_AGAIN:
            return answer
        SystemClock().sleep_ms(20)
    raise AssertionError(f"still error {error}")


def create(client: KafkaClient, name: str, partitions: int = 1, **fields: Any) -> dict[int, int]:
    """A new topic; the leader of each partition once all have started."""
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 3, **fields}
    answer = client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout": 1_000})
    assert code(answer.topics[0]) == 0
    found = client.ask(ApiKey.METADATA, 12, {"topics": [{"name": name}]}).topics[0].partitions
    leaders = {p.partition_index: p.leader_id for p in found}
    for partition, leader in leaders.items():
        asked = {"topics": [{"name": name, "partitions": [{"partition_index": partition, "timestamp": -1}]}]}

        def listed(leader: int = leader, asked: Any = asked) -> tuple[int, Any]:
            part = (
                client.ask(ApiKey.LIST_OFFSETS, 4, {"replica_id": -1, **asked}, broker=leader).topics[0].partitions[0]
            )
            return code(part), part

        again(listed)
    return leaders


def test_too_many_new_partitions_are_refused_for_the_whole_request(client: KafkaClient) -> None:
    """A count at random of 31 bits is a valid request: nothing is made for it."""
    create(client, "grows-too-much")
    small, large = {"num_partitions": 1, "replication_factor": 1}, {"num_partitions": 10_000, "replication_factor": 1}
    topics = [{"name": "small", **small}, {"name": "large", **large}]
    made = client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout": 1_000}).topics
    assert [code(each) for each in made] == [44, 44]
    assert made[0].error_message.startswith("Excessively large number of partitions per request: 10001 new ones")
    growth = {"topics": [{"name": "grows-too-much", "count": 2**31 - 1, "assignments": None}], "timeout": 1_000}
    assert code(client.ask(ApiKey.CREATE_PARTITIONS, 3, growth).results[0]) == 44


def test_configs_are_described_and_altered(client: KafkaClient) -> None:
    create(client, "configured")
    topic = {"resource_type": 2, "resource_name": "configured"}

    def described(key: str) -> Any:
        asked = {**topic, "configuration_keys": [key]}
        answer = client.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [asked], "include_synonyms": True})
        return answer.results[0].configs[0]

    def altered(operation: int, name: str, value: str | None, **fields: Any) -> int:
        configs = [{"name": name, "config_operation": operation, "value": value}]
        values = {"resources": [{**topic, "configs": configs}], **fields}
        return code(client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, values).responses[0])

    assert (described("cleanup.policy").value, described("cleanup.policy").config_source) == ("delete", 5)
    assert described("retention.ms").config_type == 5
    assert altered(2, "cleanup.policy", "compact", validate_only=True) == 0
    assert described("cleanup.policy").value == "delete"
    assert altered(2, "cleanup.policy", "compact") == 0
    assert [s.value for s in described("cleanup.policy").synonyms] == ["delete,compact", "delete"]
    assert altered(3, "cleanup.policy", "delete") == 0
    assert described("cleanup.policy").value == "compact"
    assert altered(1, "cleanup.policy", None) == 0
    assert described("cleanup.policy").config_source == 5
    assert altered(2, "retention.ms", "1") == 40
    assert altered(0, "no.such.config", "1") == 40
    assert altered(0, "retention.ms", None) == 42
    assert altered(9, "retention.ms", "1") == 42


def test_brokers_share_what_may_be_altered(client: KafkaClient) -> None:
    def described(name: str) -> dict[str, Any]:
        resource = {"resource_type": 4, "resource_name": name, "configuration_keys": None}
        answer = client.ask(ApiKey.DESCRIBE_CONFIGS, 1, {"resources": [resource]})
        assert code(answer.results[0]) == 0
        return {each.name: each for each in answer.results[0].configs}

    own = described("1")
    assert (own["offsets.topic.num.partitions"].value, own["offsets.topic.num.partitions"].config_source) == ("2", 4)
    assert (own["num.partitions"].read_only, own["broker.session.timeout.ms"].read_only) == (False, True)
    everybody = {"resource_type": 4, "resource_name": ""}
    change = [{"name": "num.partitions", "config_operation": 0, "value": "3"}]
    values = {"resources": [{**everybody, "configs": change}]}
    assert code(client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, values).responses[0]) == 0
    assert {name: each.value for name, each in described("").items()} == {"num.partitions": "3"}
    change[0] = {"name": "num.partitions", "config_operation": 1, "value": None}
    assert code(client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, values).responses[0]) == 0
    other = {"resource_type": 4, "resource_name": "2", "configuration_keys": None}
    loggers = {"resource_type": 8, "resource_name": "1", "configuration_keys": None}
    answer = client.ask(ApiKey.DESCRIBE_CONFIGS, 2, {"resources": [other, loggers]})
    assert [code(each) for each in answer.results] == [42, 0]


def test_replicas_move_and_leaders_are_elected(client: KafkaClient) -> None:
    create(client, "moved")
    topics = [{"name": "moved", "partitions": [{"partition_index": 0, "replicas": [3, 2]}]}]
    moved = client.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, {"topics": topics, "timeout": 1_000})
    assert (code(moved), code(moved.responses[0].partitions[0])) == (0, 0)
    cancel = [{"name": "moved", "partitions": [{"partition_index": 7, "replicas": None}]}]
    refused = client.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": cancel, "timeout": 1_000})
    assert code(refused.responses[0].partitions[0]) == 3

    def listed() -> tuple[int, Any]:
        answer = client.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None, "timeout": 1_000})
        return NOT_YET if answer.topics else 0, answer

    again(listed)
    asked = {"topic_partitions": [{"topic": "moved", "partitions": [0]}], "timeout": 1_000}
    elected = client.ask(ApiKey.ELECT_LEADERS, 2, {"election_type": 0, **asked})
    assert code(elected.replica_election_results[0].partition_result[0]) in (0, 84)
    assert client.ask(ApiKey.METADATA, 12, {"topics": [{"name": "moved"}]}).topics[0].partitions[0].leader_id == 3
    again_elected = client.ask(ApiKey.ELECT_LEADERS, 0, asked)
    assert code(again_elected.replica_election_results[0].partition_result[0]) == 84
    assert code(client.ask(ApiKey.ELECT_LEADERS, 1, {"election_type": 5, **asked})) == 42


def test_an_idempotent_producer_gets_an_id_of_its_own(client: KafkaClient) -> None:
    ids = set()
    for version in range(6):
        answer = client.ask(ApiKey.INIT_PRODUCER_ID, version, {"transactional_id": None, "transaction_timeout": 60_000})
        assert (code(answer), answer.producer_epoch) == (0, 0)
        ids.add(answer.producer_id)
    assert len(ids) == 6
    half = {"transactional_id": None, "transaction_timeout": 1, "producer_id": 5, "producer_epoch": -1}
    assert code(client.ask(ApiKey.INIT_PRODUCER_ID, 3, half)) == 42
