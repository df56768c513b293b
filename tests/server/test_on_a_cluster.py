"""Kafka's requests to running brokers: what is administered, and records read, processed and written exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.clients.wire.rows import decode_rows
from stratalog.server.cluster import Cluster
from stratalog.storage.clock import SystemClock
from stratalog.storage.records import TRANSACTIONAL_ATTRIBUTE
from stratalog.wire.api_keys import ApiKey
from tests.clients.kafka_client import KafkaClient, batch_of, code

TRIES = 200
NOT_YET = 5
UNSTABLE_OFFSET_COMMIT = 88
COME_AGAIN = {NOT_YET, 6, 14, 15, 16, 51}
"""What a client tries again after: leaders and coordinators that are on their way."""
SETTINGS = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
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


def produce(
    client: KafkaClient, leader: int, name: str, records: bytes, *, version: int = 9, tx: str | None = None
) -> Any:
    data = {"name": name, "partition_data": [{"index": 0, "records": records}]}
    values = {"transactional_id": tx, "acks": -1, "timeout": 10_000, "topic_data": [data]}
    return client.ask(ApiKey.PRODUCE, version, values, broker=leader).responses[0].partition_responses[0]


def values_of(client: KafkaClient, leader: int, name: str, *, committed: bool = False) -> tuple[list[bytes], Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    values = {"max_wait": 0, "min_bytes": 1, "isolation_level": int(committed)}
    answer = client.ask(
        ApiKey.FETCH, 12, {**values, "topics": [{"topic": name, "partitions": [partition]}]}, broker=leader
    )
    told = answer.responses[0].partitions[0]
    return decode_rows(told.records)["value"].to_pylist(), told


# -- administration ------------------------------------------------------------------------------------------


def test_topics_are_created_grown_and_deleted(client: KafkaClient) -> None:
    topic = {"name": "made", "num_partitions": 2, "replication_factor": -1}
    configs = [{"name": "retention.ms", "value": "5000"}]
    values = {"topics": [{**topic, "configs": configs}], "timeout": 1_000}
    checked = client.ask(ApiKey.CREATE_TOPICS, 7, {**values, "validate_only": True})
    assert code(checked.topics[0]) == 0
    made = client.ask(ApiKey.CREATE_TOPICS, 7, values).topics[0]
    assert (code(made), made.num_partitions, made.replication_factor) == (0, 2, 1)
    assert {c.name: (c.value, c.config_source) for c in made.configs}["retention.ms"] == ("5000", 1)
    assert code(client.ask(ApiKey.CREATE_TOPICS, 5, values).topics[0]) == 36
    twice = client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic, topic], "timeout": 1_000})
    assert [code(each) for each in twice.topics] == [42]
    grown = {"topics": [{"name": "made", "count": 4, "assignments": [{"broker_ids": [2]}, {"broker_ids": [3]}]}]}
    assert code(client.ask(ApiKey.CREATE_PARTITIONS, 3, {**grown, "timeout": 1_000}).results[0]) == 0
    assert code(client.ask(ApiKey.CREATE_PARTITIONS, 3, {**grown, "timeout": 1_000}).results[0]) == 37
    found = client.ask(ApiKey.METADATA, 12, {"topics": [{"name": "made"}]}, broker=2).topics[0]
    assert [p.replica_nodes for p in found.partitions][2:] == [(2,), (3,)]
    by_id = {"topics": [{"topic_id": made.topic_id, "name": None}], "timeout": 1_000}
    deleted = client.ask(ApiKey.DELETE_TOPICS, 6, by_id).responses[0]
    assert (code(deleted), deleted.name) == (0, "made")
    assert code(client.ask(ApiKey.DELETE_TOPICS, 6, by_id).responses[0]) == 100
    assert code(client.ask(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["made"], "timeout": 1_000}).responses[0]) == 3


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


def test_records_are_deleted_up_to_an_offset(client: KafkaClient) -> None:
    (leader,) = create(client, "shortened").values()
    assert code(produce(client, leader, "shortened", batch_of(b"a", b"b", b"c"))) == 0
    partitions = [{"partition_index": 0, "offset": 2}, {"partition_index": 5, "offset": 2}]
    values = {"topics": [{"name": "shortened", "partitions": partitions}], "timeout": 20_000}
    answer = client.ask(ApiKey.DELETE_RECORDS, 2, values, broker=leader).topics[0].partitions
    assert [(code(p), p.low_watermark) for p in answer] == [(0, 2), (3, -1)]
    elsewhere = client.ask(ApiKey.DELETE_RECORDS, 2, values, broker=leader % 3 + 1).topics[0].partitions
    assert code(elsewhere[0]) == 6
    told = client.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": [{"topic": "shortened", "partitions": [0]}]}).results[0]
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in told.topics] == [("shortened", [0])]
    assert told.topics[0].partitions[0].partition_size > 0


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


# -- transactions --------------------------------------------------------------------------------------------


def coordinator(client: KafkaClient, kind: int, key: str) -> int:
    def found() -> tuple[int, Any]:
        answer = client.ask(ApiKey.FIND_COORDINATOR, 3, {"key": key, "key_type": kind})
        return code(answer), answer.node_id

    node_id: int = again(found)
    return node_id


def test_an_idempotent_producer_gets_an_id_of_its_own(client: KafkaClient) -> None:
    ids = set()
    for version in range(6):
        answer = client.ask(ApiKey.INIT_PRODUCER_ID, version, {"transactional_id": None, "transaction_timeout": 60_000})
        assert (code(answer), answer.producer_epoch) == (0, 0)
        ids.add(answer.producer_id)
    assert len(ids) == 6
    half = {"transactional_id": None, "transaction_timeout": 1, "producer_id": 5, "producer_epoch": -1}
    assert code(client.ask(ApiKey.INIT_PRODUCER_ID, 3, half)) == 42


class Transaction:
    """A transactional producer: begins again with each, by the requests of `old` clients or of those since KIP-890."""

    def __init__(self, client: KafkaClient, name: str) -> None:
        self.client, self.name = client, name
        self.coordinator = coordinator(client, 1, name)
        answer = self.again(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": name, "transaction_timeout": 60_000})
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequence = 0

    def again(self, key: int, version: int, values: dict[str, Any]) -> Any:
        def ask() -> tuple[int, Any]:
            answer = self.client.ask(key, version, values, broker=self.coordinator)
            return code(answer), answer

        answer = again(ask)
        assert code(answer) == 0
        return answer

    @property
    def identity(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    def produce(self, leader: int, topic: str, value: bytes, version: int) -> Any:
        fields = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "base_sequence": self.sequence}
        records = batch_of(value, attributes=TRANSACTIONAL_ATTRIBUTE, **fields)
        answer = produce(self.client, leader, topic, records, version=version, tx=self.name)
        self.sequence += code(answer) == 0
        return answer

    def end(self, version: int, *, committed: bool) -> None:
        answer = self.again(ApiKey.END_TXN, version, {**self.identity, "committed": committed})
        if version >= 5:
            self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0

    def commit_offset(self, topic: str, offset: int, version: int) -> int:
        group_coordinator = coordinator(self.client, 0, "processors")
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": None}
        topics = [{"name": topic, "partitions": [partition]}]
        values = {**self.identity, "group_id": "processors", "topics": topics}

        def ask() -> tuple[int, Any]:
            answer = self.client.ask(ApiKey.TXN_OFFSET_COMMIT, version, values, broker=group_coordinator)
            return code(answer.topics[0].partitions[0]), code(answer.topics[0].partitions[0])

        error: int = again(ask)
        return error

    def add_partition(self, topic: str) -> int:
        named = {f"v3_and_below_{name}": value for name, value in self.identity.items()}
        topics = [{"name": topic, "partitions": [0]}]

        def ask() -> tuple[int, Any]:
            values = {**named, "v3_and_below_topics": topics}
            answer = self.client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, values, broker=self.coordinator)
            error = int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
            return error, error

        added: int = again(ask)
        return added


def stable_values(client: KafkaClient, leader: int, name: str) -> list[bytes]:
    """What read_committed gives once no transaction is open: consumers filter aborted records and markers."""

    def ask() -> tuple[int, Any]:
        found, told = values_of(client, leader, name, committed=True)
        return (0 if told.last_stable_offset == told.high_watermark else NOT_YET), (found, told)

    found, told = again(ask)
    assert code(told) == 0
    return [value for value in found if len(value) < 6]  # markers have six bytes


def stable_offset(client: KafkaClient, group_id: str, topic: str) -> int:
    """The offset of partition 0 that the group has committed, once no transaction that committed one is open.

    EndTxn is answered before its markers are written, to the partitions of records and to that of the group alike."""
    topics = [{"name": topic, "partition_indexes": [0]}]
    values = {"groups": [{"group_id": group_id, "topics": topics}], "require_stable": True}

    def ask() -> tuple[int, Any]:
        answer = client.ask(ApiKey.OFFSET_FETCH, 8, values, broker=coordinator(client, 0, group_id))
        partition = answer.groups[0].topics[0].partitions[0]
        unstable = code(partition) == UNSTABLE_OFFSET_COMMIT
        return (NOT_YET if unstable else code(partition)), partition

    partition = again(ask)
    assert code(partition) == 0
    return int(partition.committed_offset)


def test_a_transaction_of_an_older_client_holds_records_and_offsets(client: KafkaClient) -> None:
    (leader,) = create(client, "old").values()
    transaction = Transaction(client, "tx-old")
    assert code(transaction.produce(leader, "old", b"early", 9)) == 48
    assert transaction.add_partition("old") == 0
    assert transaction.add_partition("nix") == 3
    assert code(transaction.produce(leader, "old", b"one", 9)) == 0
    assert values_of(client, leader, "old", committed=True)[0] == []
    assert values_of(client, leader, "old")[0] == [b"one"]
    producers = (
        client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": "old", "partition_indexes": [0]}]}, broker=leader)
        .topics[0]
        .partitions[0]
    )
    assert [(p.producer_id, p.current_txn_start_offset) for p in producers.active_producers] == [
        (transaction.producer_id, 0)
    ]
    coordinator(client, 0, "processors")
    transaction.again(ApiKey.ADD_OFFSETS_TO_TXN, 3, {**transaction.identity, "group_id": "processors"})
    assert transaction.commit_offset("old", 5, 3) == 0
    described = client.ask(
        ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["tx-old"]}, broker=transaction.coordinator
    ).transaction_states[0]
    assert (code(described), described.transaction_state) == (0, "Ongoing")
    assert {"old", "__consumer_offsets"} == {topic.topic for topic in described.topics}
    transaction.end(3, committed=True)
    assert stable_values(client, leader, "old") == [b"one"]
    assert stable_offset(client, "processors", "old") == 5
    every = {"groups": [{"group_id": "processors", "topics": None}], "require_stable": True}
    fetched = client.ask(ApiKey.OFFSET_FETCH, 8, every, broker=coordinator(client, 0, "processors"))
    assert fetched.groups[0].topics[0].partitions[0].committed_offset == 5
    listed = client.ask(ApiKey.LIST_TRANSACTIONS, 1, broker=transaction.coordinator)
    assert "tx-old" in {each.transactional_id for each in listed.transaction_states}


def test_a_transaction_since_kip_890_adds_its_partitions_by_itself(client: KafkaClient) -> None:
    (leader,) = create(client, "new").values()
    transaction = Transaction(client, "tx-new")
    for value, committed in ((b"kept", True), (b"lost", False), (b"also", True)):
        epoch = transaction.epoch

        def ask(value: bytes = value) -> tuple[int, Any]:
            answer = transaction.produce(leader, "new", value, 12)
            return code(answer), answer

        assert code(again(ask)) == 0
        transaction.end(5, committed=committed)
        assert transaction.epoch == epoch + 1
    assert stable_values(client, leader, "new") == [b"kept", b"lost", b"also"]
    aborted = values_of(client, leader, "new", committed=True)[1].aborted_transactions
    assert [(each.producer_id, each.first_offset) for each in aborted] == [(transaction.producer_id, 2)]


def test_a_newer_producer_of_the_same_name_fences_the_older(client: KafkaClient) -> None:
    (leader,) = create(client, "fenced").values()
    older = Transaction(client, "tx-fenced")
    newer = Transaction(client, "tx-fenced")
    assert newer.epoch > older.epoch
    values = {**older.identity, "committed": True}
    assert code(client.ask(ApiKey.END_TXN, 1, values, broker=older.coordinator)) == 47
    assert code(client.ask(ApiKey.END_TXN, 3, values, broker=older.coordinator)) == 90
    assert older.add_partition("fenced") == 90
    assert code(older.produce(leader, "fenced", b"no", 12)) in (47, 90)


def test_transactional_records_need_a_transactional_id(client: KafkaClient) -> None:
    (leader,) = create(client, "unnamed").values()
    fields = {"attributes": TRANSACTIONAL_ATTRIBUTE, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    assert code(produce(client, leader, "unnamed", batch_of(b"v", **fields))) == 53
