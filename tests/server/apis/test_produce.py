"""Produce: record batches are stored as they were sent, or refused with Kafka's error, partition by partition."""

from __future__ import annotations

from typing import Any

import pytest

from stratalog.replication.metadata.records import ConfigRecord
from stratalog.storage.errors import NotEnoughReplicasError, NotLeaderOrFollowerError
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from tests.clients.kafka_client import ClosedError, KafkaClient, batch_of, code
from tests.clients.memory_cluster import MemoryCluster
from tests.storage.logs import delete_records

T0 = TopicPartition("t", 0)
VERSIONS = range(3, 14)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create_topic("t", 2)
    return made


def produce(
    client: KafkaClient,
    records: bytes | None,
    *,
    topic: str = "t",
    topic_id: str | None = None,
    partition: int = 0,
    version: int = 9,
    acks: int = -1,
    broker: int = 1,
    client_id: str = "test",
) -> Any:
    """The answer for one partition; None when nothing is answered."""
    named = {"topic_id": topic_id} if version >= 13 else {"name": topic}
    data = {**named, "partition_data": [{"index": partition, "records": records}]}
    values = {"acks": acks, "timeout": 1_000, "topic_data": [data]}
    answer = client.ask(ApiKey.PRODUCE, version, values, broker=broker, client=client_id)
    if answer is None:
        return None
    return answer.responses[0].partition_responses[0]


def stored(cluster: MemoryCluster) -> list[tuple[bytes, bytes]]:
    rows = cluster.log(1, T0).read(0, 1 << 20)
    return list(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_is_stored_and_its_offset_answered(client: KafkaClient, cluster: MemoryCluster, version: int) -> None:
    topic_id = cluster.metadata.image.topic_ids["t"]
    for base_offset in (0, 2):
        answer = produce(client, batch_of(b"a", b"b"), version=version, topic_id=topic_id)
        assert (code(answer), answer.base_offset) == (0, base_offset)
        assert answer.log_append_time == -1
    if version >= 5:
        assert answer.log_start_offset == 0
    assert stored(cluster) == [(b"k", b"a"), (b"k", b"b")] * 2


def test_the_log_start_is_that_of_the_append(client: KafkaClient, cluster: MemoryCluster) -> None:
    """Not the one that the leader has published, which is behind after DeleteRecords."""
    produce(client, batch_of(b"a", b"b", b"c"))
    delete_records(cluster.log(1, T0), 2)
    batch = batch_of(b"d", producer_id=7, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        answer = produce(client, batch)
        assert (code(answer), answer.base_offset, answer.log_start_offset) == (0, 3, 2)


def test_each_partition_is_answered_by_itself(client: KafkaClient) -> None:
    partitions = [{"index": number, "records": batch_of(b"v")} for number in (1, 7, 0)]
    topics = [{"name": "t", "partition_data": partitions}, {"name": "nix", "partition_data": partitions[:1]}]
    answer = client.ask(ApiKey.PRODUCE, 9, {"acks": 1, "timeout": 1_000, "topic_data": topics})
    told = [(t.name, [(p.index, code(p)) for p in t.partition_responses]) for t in answer.responses]
    assert told == [("t", [(1, 0), (7, 3), (0, 0)]), ("nix", [(1, 3)])]


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, 87),
        (b"", 87),
        (b"short", 87),
        (batch_of(b"v" * 2_000_000), 10),
    ],
)
def test_what_is_not_one_sound_batch_is_refused(client: KafkaClient, records: bytes | None, error: int) -> None:
    answer = produce(client, records)
    assert (code(answer), answer.base_offset) == (error, -1)
    assert answer.error_message


@pytest.mark.parametrize("version", VERSIONS)
def test_zstd_came_with_version_7(client: KafkaClient, cluster: MemoryCluster, version: int) -> None:
    records = batch_of(b"v" * 1_000, compression_type="zstd")
    answer = produce(client, records, version=version, topic_id=cluster.metadata.image.topic_ids["t"])
    assert code(answer) == (76 if version < 7 else 0)


@pytest.mark.parametrize("compression_type", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_read(client: KafkaClient, cluster: MemoryCluster, compression_type: str) -> None:
    assert code(produce(client, batch_of(b"v" * 1_000, b"w", compression_type=compression_type))) == 0
    assert stored(cluster) == [(b"k", b"v" * 1_000), (b"k", b"w")]


def test_a_compacted_topic_names_the_records_without_key(client: KafkaClient, cluster: MemoryCluster) -> None:
    cluster.create_topic("compacted")
    log = cluster.log(1, TopicPartition("compacted", 0))
    log.config = log.config.from_properties({"cleanup.policy": "compact"})
    answer = produce(client, batch_of(b"a", b"b", key=None), topic="compacted")
    assert code(answer) == 87
    assert [error.batch_index for error in answer.record_errors] == [0, 1]


def test_clients_do_not_write_to_internal_topics(client: KafkaClient, cluster: MemoryCluster) -> None:
    cluster.create_topic("__consumer_offsets")
    assert code(produce(client, batch_of(b"v"), topic="__consumer_offsets")) == 17
    assert code(produce(client, batch_of(b"v"), topic="__consumer_offsets", client_id="__admin_client")) == 0


def test_who_does_not_lead_says_who_does(client: KafkaClient, cluster: MemoryCluster) -> None:
    cluster.running[2].script = [NotLeaderOrFollowerError("t-0 is not led by broker 2")]
    topic = {"name": "t", "partition_data": [{"index": 0, "records": batch_of(b"v")}]}
    answer = client.ask(ApiKey.PRODUCE, 10, {"acks": -1, "timeout": 1_000, "topic_data": [topic]}, broker=2)
    partition = answer.responses[0].partition_responses[0]
    assert (code(partition), partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (6, 1, 0)
    assert [(node.node_id, node.host) for node in answer.node_endpoints] == [(1, "b1.example")]


def test_a_broker_that_has_stopped_does_not_lead(client: KafkaClient, cluster: MemoryCluster) -> None:
    del cluster.running[1]
    assert code(produce(client, batch_of(b"v"))) == 6


def test_acks_0_is_not_answered_and_an_error_ends_the_connection(client: KafkaClient, cluster: MemoryCluster) -> None:
    assert produce(client, batch_of(b"v"), acks=0) is None
    cluster.running[1].script = [NotEnoughReplicasError("too few")]
    with pytest.raises(ClosedError, match="NOT_ENOUGH_REPLICAS"):
        produce(client, batch_of(b"v"), acks=0)
    assert stored(cluster) == [(b"k", b"v")]


def test_a_smaller_limit_of_the_topic_holds_for_the_batch_as_it_was_sent(cluster: MemoryCluster) -> None:
    cluster.commit(ConfigRecord("t", "max.message.bytes", "500"))
    log = cluster.log(1, T0)
    log.config = log.config.from_properties({"max.message.bytes": "500"})
    with KafkaClient(cluster, stores=cluster.stores) as client:
        assert code(produce(client, batch_of(b"v" * 600))) == 10
        assert code(produce(client, batch_of(b"v" * 600, compression_type="gzip"))) == 0


def test_a_partition_that_is_named_twice_refuses_the_request(client: KafkaClient, cluster: MemoryCluster) -> None:
    partition = {"index": 0, "records": batch_of(b"v")}
    topics = [{"name": "t", "partition_data": [partition]}, {"name": "t", "partition_data": [partition]}]
    answer = client.ask(ApiKey.PRODUCE, 9, {"acks": 1, "timeout": 1_000, "topic_data": topics})
    assert [code(each.partition_responses[0]) for each in answer.responses] == [42, 42]
    assert "is named more than once" in answer.responses[0].partition_responses[0].error_message
    assert stored(cluster) == []
