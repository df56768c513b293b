"""The handler says what it serves, describes the cluster, and gives every request an answer or ends its connection."""

from __future__ import annotations

import struct

import pytest
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

from stratalog.replication.metadata.records import FenceBrokerRecord
from stratalog.server.apis import awaited_topics
from stratalog.server.apis.api_versions import BETWEEN_BROKERS
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from tests.clients.kafka_client import ClosedError, KafkaClient, code
from tests.clients.memory_cluster import MemoryCluster

SOFTWARE = {"client_software_name": "test", "client_software_version": "1.0"}


@pytest.fixture
def cluster() -> MemoryCluster:
    """Topic `t` with three partitions, which broker 1 leads."""
    made = MemoryCluster()
    made.create_topic("t", 3)
    return made


# -- ApiVersions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_api_versions_tells_exactly_what_is_answered(client: KafkaClient, version: int) -> None:
    answer = client.ask(ApiKey.API_VERSIONS, version, SOFTWARE if version >= 3 else {})
    told = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    apis = [api for api in client.handlers[1].apis if api.key not in BETWEEN_BROKERS]
    served = {api.key: (api.versions[0], api.versions[-1]) for api in apis}
    assert code(answer) == 0
    # librdkafka looks for version 0 of Produce to see whether a broker knows compression (KAFKA-18659).
    assert told == {**served, ApiKey.PRODUCE: (0, 13)}
    assert list(told) == sorted(told)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_tells_the_levels_of_features_from_version_3_on(client: KafkaClient, version: int) -> None:
    answer = client.ask(ApiKey.API_VERSIONS, version, SOFTWARE if version >= 3 else {})
    if version < 3:
        assert not hasattr(answer, "finalized_features")
        return
    levels = {"group.version": (1, 1), "metadata.version": (25, 25), "transaction.version": (2, 2)}
    assert {f.name: (f.min_version_level, f.max_version_level) for f in answer.finalized_features} == levels
    assert {f.name: (f.min_version, f.max_version) for f in answer.supported_features} == levels
    assert answer.finalized_features_epoch == 0


def test_every_api_that_the_levels_promise_is_served(client: KafkaClient) -> None:
    """What a Java client uses under version 2 of transactions: Produce 12, EndTxn 5, TxnOffsetCommit 5; KIP-848."""
    newest = {api.key: api.versions[-1] for api in client.handlers[1].apis}
    assert all(newest[key] >= least for key, least in {ApiKey.PRODUCE: 12, 26: 5, 28: 5, 68: 1, 69: 0}.items())


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(client: KafkaClient) -> None:
    frame = struct.pack(">hhih", ApiKey.API_VERSIONS, 9, 3, -1)
    answer = client.sent(frame, ApiKey.API_VERSIONS, 0)()
    assert code(answer) == 35
    assert [(each.api_key, each.max_version) for each in answer.api_keys] == [(ApiKey.API_VERSIONS, 4)]


def test_a_clients_software_has_a_name_of_plain_letters(client: KafkaClient) -> None:
    assert code(client.ask(ApiKey.API_VERSIONS, 3, {**SOFTWARE, "client_software_name": "a b"})) == 42
    assert code(client.ask(ApiKey.API_VERSIONS, 3, {**SOFTWARE, "client_software_version": ""})) == 42


@pytest.mark.parametrize(
    "frame", [b"", b"\x00", struct.pack(">hhih", 3, 40, 1, -1), struct.pack(">hhih", 200, 0, 1, -1)]
)
def test_what_is_no_request_closes_the_connection(client: KafkaClient, frame: bytes) -> None:
    with pytest.raises(ClosedError):
        client.sent(frame, ApiKey.METADATA, 0)()


# -- Metadata ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_brokers_leaders_and_replicas(client: KafkaClient, cluster: MemoryCluster, version: int) -> None:
    answer = client.ask(ApiKey.METADATA, version, {"topics": [{"name": "t"}]})
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [
        (1, "b1.example", 9091), (2, "b2.example", 9092), (3, "b3.example", 9093),
    ]  # fmt: skip
    topic = answer.topics[0]
    assert (topic.name, code(topic)) == ("t", 0)
    assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions] == [
        (number, 1, (1, 2, 3), (1, 2, 3)) for number in range(3)
    ]
    if version >= 10:
        assert topic.topic_id == cluster.metadata.image.topic_ids["t"]
    if version >= 7:
        assert {p.leader_epoch for p in topic.partitions} == {0}


def test_all_topics_are_told_of_for_null_and_none_for_an_empty_list(
    client: KafkaClient, cluster: MemoryCluster
) -> None:
    cluster.create_topic("another")
    for version, topics, names in ((0, [], ["another", "t"]), (1, None, ["another", "t"]), (1, [], []), (12, [], [])):
        assert [topic.name for topic in client.ask(ApiKey.METADATA, version, {"topics": topics}).topics] == names


def test_an_unknown_topic_is_made_if_both_sides_allow_it(cluster: MemoryCluster) -> None:
    def asked(client: KafkaClient, *, allow: bool) -> int:
        values = {"topics": [{"name": "new"}], "allow_auto_topic_creation": allow}
        return code(client.ask(ApiKey.METADATA, 12, values).topics[0])

    with KafkaClient(cluster, stores=cluster.stores, settings={"auto.create.topics.enable": False}) as strict:
        assert asked(strict, allow=True) == 3
    with KafkaClient(cluster, stores=cluster.stores, settings={"num.partitions": 4}) as client:
        assert asked(client, allow=False) == 3
        assert asked(client, allow=True) == 3
        assert asked(client, allow=False) == 3
        assert "new" not in [topic.name for topic in client.ask(ApiKey.METADATA, 12, {"topics": None}).topics]
        cluster.metadata.refresh()
        for named in cluster.metadata.image.partitions_of("new"):
            cluster.start_leader(named)
            cluster.publish(named)
        assert asked(client, allow=False) == 0


def test_a_new_topic_whose_leaders_do_not_begin_is_named_after_a_while(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited_topics, "LED_MS_MAX", 0)
    with KafkaClient(cluster, stores=cluster.stores) as client:
        assert code(client.ask(ApiKey.METADATA, 12, {"topics": [{"name": "new"}]}).topics[0]) == 0


def test_a_name_that_no_topic_can_have_is_refused(cluster: MemoryCluster) -> None:
    with KafkaClient(cluster, stores=cluster.stores) as client:
        answer = client.ask(ApiKey.METADATA, 12, {"topics": [{"name": "no good"}], "allow_auto_topic_creation": True})
        assert code(answer.topics[0]) == 17


@pytest.mark.parametrize(("version", "error"), [(5, 5), (6, 72), (12, 72)])
def test_a_leader_that_clients_cannot_reach_is_none(cluster: MemoryCluster, version: int, error: int) -> None:
    with KafkaClient(cluster, stores=cluster.stores, advertised=(2, 3)) as client:
        answer = client.ask(ApiKey.METADATA, version, {"topics": [{"name": "t"}]}, broker=2)
    assert [b.node_id for b in answer.brokers] == [2, 3]
    assert {(code(p), p.leader_id, p.offline_replicas) for p in answer.topics[0].partitions} == {(error, -1, (1,))}


def test_a_broker_that_is_down_is_offline_and_no_controller(client: KafkaClient, cluster: MemoryCluster) -> None:
    cluster.commit(FenceBrokerRecord(3, 3))
    answer = client.ask(ApiKey.METADATA, 12, {"topics": [{"name": "t"}]})
    assert [b.node_id for b in answer.brokers] == [1, 2]
    assert answer.topics[0].partitions[0].offline_replicas == (3,)
    described = client.ask(ApiKey.DESCRIBE_CLUSTER, 2, {"include_fenced_brokers": True})
    assert [(b.broker_id, b.is_fenced) for b in described.brokers] == [(1, False), (2, False), (3, True)]
    assert [b.broker_id for b in client.ask(ApiKey.DESCRIBE_CLUSTER, 1).brokers] == [1, 2]


def test_old_versions_of_metadata_know_no_topic_ids(client: KafkaClient) -> None:
    answer = client.ask(ApiKey.METADATA, 10, {"topics": [{"name": "t", "topic_id": "a" * 32}]})
    assert code(answer.topics[0]) == 42


# -- DescribeTopicPartitions ---------------------------------------------------------------------------------


def test_partitions_are_described_page_by_page(client: KafkaClient, cluster: MemoryCluster) -> None:
    cluster.create_topic("a", 2)
    cluster.create_topic("z", 1)
    pages, cursor = [], None
    while not pages or cursor is not None:
        answer = client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"response_partition_limit": 2, "cursor": cursor})
        pages.append([(topic.name, p.partition_index) for topic in answer.topics for p in topic.partitions])
        told = answer.next_cursor
        cursor = told and {"topic_name": told.topic_name, "partition_index": told.partition_index}
    assert pages == [[("a", 0), ("a", 1)], [("t", 0), ("t", 1)], [("t", 2), ("z", 0)]]


# -- another implementation of the protocol --------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2, 4])
def test_kafka_python_reads_what_is_served(client: KafkaClient, version: int) -> None:
    request = ApiVersionsRequest[version](client_software_name="kafka-python", client_software_version="3.0.12")
    request.with_header(correlation_id=3, client_id="x")
    answer = client.sent(bytes(request.encode(header=True)), ApiKey.API_VERSIONS, version)
    answer()
    decoded = ApiVersionsResponse.decode(answer.frame, version=version, header=True)
    assert {each.api_key for each in decoded.api_keys} == {api.key for api in client.handlers[1].apis} - BETWEEN_BROKERS
    if version >= 3:
        finalized = {each.name: each.max_version_level for each in decoded.finalized_features}
        assert (decoded.finalized_features_epoch, finalized["transaction.version"]) == (0, 2)


@pytest.mark.parametrize("version", [0, 5, 8, 9, 12])
def test_kafka_python_reads_metadata(client: KafkaClient, cluster: MemoryCluster, version: int) -> None:
    request = MetadataRequest[version](topics=[MetadataRequest.MetadataRequestTopic(name="t")])
    request.with_header(correlation_id=3, client_id="x")
    answer = client.sent(bytes(request.encode(header=True)), ApiKey.METADATA, version)
    answer()
    decoded = MetadataResponse.decode(answer.frame, version=version, header=True)
    assert next((b.node_id, b.host, b.port) for b in decoded.brokers) == (1, "b1.example", 9091)
    assert [p.leader_id for p in decoded.topics[0].partitions] == [1, 1, 1]


@pytest.mark.parametrize("version", [1, 5, 8])
def test_kafka_python_lists_offsets(client: KafkaClient, cluster: MemoryCluster, version: int) -> None:
    cluster.append(TopicPartition("t", 1), b"x", b"y")
    cluster.publish(TopicPartition("t", 1))
    topic = ListOffsetsRequest.ListOffsetsTopic
    partition = topic.ListOffsetsPartition(partition_index=1, timestamp=-1)
    request = ListOffsetsRequest[version](replica_id=-1, topics=[topic(name="t", partitions=[partition])])
    request.with_header(correlation_id=3, client_id="x")
    answer = client.sent(bytes(request.encode(header=True)), 2, version)
    answer()
    decoded = ListOffsetsResponse.decode(answer.frame, version=version, header=True)
    assert decoded.topics[0].partitions[0].offset == 2
