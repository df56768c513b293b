"""The producer keeps order and stores once through retries, and says of every record what became of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from stratalog.clients.producer.producer import Producer
from stratalog.clients.records import RecordMetadata
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import (
    InvalidConfigError,
    InvalidRecordError,
    InvalidTimestampError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    RecordTooLargeError,
    RequestTimedOutError,
    StratalogError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.records import TopicPartition
from tests.clients.memory_cluster import ROOT, MemoryCluster

T0 = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create_topic("t", 3)
    return made


@pytest.fixture
def producers(cluster: MemoryCluster) -> Iterator[list[Producer]]:
    made: list[Producer] = []
    yield made
    for producer in made:
        producer.close(1)


def producer_of(cluster: MemoryCluster, producers: list[Producer], **settings: object) -> Producer:
    view = ClusterView(ROOT, stores=cluster.stores)
    producers.append(Producer(cluster, view=view, **({"retry_backoff_ms": 1, "max_block_ms": 50} | settings)))
    return producers[-1]


def stored(cluster: MemoryCluster, topic_partition: TopicPartition = T0) -> list[bytes]:
    view = ClusterView(ROOT, stores=cluster.stores)
    found: list[bytes] = view.records.read(topic_partition, 0, 1 << 30)["value"].to_pylist()
    return found


def test_a_record_is_stored_with_everything_it_carries(cluster: MemoryCluster, producers: list[Producer]) -> None:
    producer = producer_of(cluster, producers)
    sent = producer.send("t", "värde", key="k", partition=0, timestamp_ms=77, headers={"h": "1", "n": None})
    assert sent.result(5) == RecordMetadata("t", 0, 0, 77)
    row = ClusterView(ROOT, stores=cluster.stores).records.read(T0, 0, 1).to_pylist()[0]
    assert (row["key"], row["value"], row["timestamp"].timestamp()) == (b"k", "värde".encode(), 0.077)
    assert row["headers"] == [{"key": "h", "value": b"1"}, {"key": "n", "value": None}]
    assert (row["producer_id"], row["producer_epoch"], row["sequence"]) == (0, 0, 0)


def test_retries_keep_order_and_store_once(cluster: MemoryCluster, producers: list[Producer]) -> None:
    producer = producer_of(cluster, producers, batch_size=1)
    cluster.running[1].script = [NotLeaderOrFollowerError(), NotEnoughReplicasError(), NotLeaderOrFollowerError()]
    futures = [producer.send("t", str(i), partition=0) for i in range(20)]
    assert [f.result(5).offset for f in futures] == list(range(20))
    assert stored(cluster) == [str(i).encode() for i in range(20)]
    assert producer.metrics["record-retry-total"] >= 3


def test_a_new_leader_is_sent_to_at_once(cluster: MemoryCluster, producers: list[Producer]) -> None:
    """The backoff of 600 s is for retries at the leader that refused, not for another leader (KIP-951)."""
    producer = producer_of(cluster, producers, retry_backoff_ms=600_000, retry_backoff_max_ms=600_000)
    producer.send("t", "0", partition=0).result(5)
    cluster.follow(2, T0)
    cluster.running[1].script = [NotLeaderOrFollowerError()]
    cluster.elect(T0, 2)
    cluster.start_leader(T0)
    assert producer.send("t", "1", partition=0).result(30).offset == 1
    assert [len(cluster.running[broker].requests) for broker in (1, 2)] == [2, 1]


def test_the_compression_wish_reaches_the_leader(cluster: MemoryCluster, producers: list[Producer]) -> None:
    producer = producer_of(cluster, producers, compression_type="lz4")
    producer.send("t", "v", partition=0).result(5)
    assert [request.batch.compression_type for request in cluster.running[1].requests] == ["lz4"]


def test_a_lost_answer_is_recognised_and_not_stored_twice(cluster: MemoryCluster, producers: list[Producer]) -> None:
    producer = producer_of(cluster, producers)
    broker = cluster.running[1]
    broker.script = [None]
    sent = producer.send("t", "once", partition=0)
    while not broker.requests:
        time.sleep(0.001)
    cluster.append_batch(T0, broker.requests[0].batch)
    broker_again = type(broker)(cluster, 1)
    cluster.running[1] = broker_again
    assert sent.result(5).offset == 0
    assert stored(cluster) == [b"once"]


def test_a_broker_that_is_down_is_waited_for(cluster: MemoryCluster, producers: list[Producer]) -> None:
    producer = producer_of(cluster, producers)
    broker = cluster.running.pop(1)
    sent = producer.send("t", "v", partition=0)
    with pytest.raises(RequestTimedOutError, match="still under way"):
        sent.result(0.05)
    cluster.running[1] = broker
    assert sent.result(5).offset == 0


def test_delivery_timeout_ends_the_retries(cluster: MemoryCluster, producers: list[Producer]) -> None:
    producer = producer_of(cluster, producers, delivery_timeout_ms=100)
    cluster.running.clear()
    with pytest.raises(RequestTimedOutError, match="100 ms has passed since batch creation"):
        producer.send("t", "v", partition=0).result(5)


def test_a_batch_that_the_broker_finds_too_large_is_split(cluster: MemoryCluster, producers: list[Producer]) -> None:
    producer = producer_of(cluster, producers, linger_ms=10_000)
    cluster.running[1].script = [RecordTooLargeError("too large")]
    futures = [producer.send("t", str(i), partition=0) for i in range(5)]
    producer.flush(5)
    assert [f.result(0).offset for f in futures] == [0, 1, 2, 3, 4]
    assert [r.batch.record_count for r in cluster.running[1].requests] == [5, 2, 3]


def test_a_table_is_stored_in_row_order_per_partition(cluster: MemoryCluster, producers: list[Producer]) -> None:
    producer = producer_of(cluster, producers)
    rows = pa.table({"value": [str(i) for i in range(300)], "partition": pa.array([i % 3 for i in range(300)])})
    sent = producer.send_table("t", rows).result(5)
    assert sent.record_count == 300
    assert sorted((r.partition, r.base_offset, r.last_offset) for r in sent.ranges) == [(p, 0, 99) for p in range(3)]
    assert stored(cluster) == [str(i).encode() for i in range(0, 300, 3)]
    assert producer.send_table("t", rows.slice(0, 0)).result(5).ranges == ()


def test_callbacks_hear_metadata_or_error_and_may_fail(cluster: MemoryCluster, producers: list[Producer]) -> None:
    producer = producer_of(cluster, producers)
    heard: list[tuple[RecordMetadata | None, StratalogError | None]] = []

    def tell(metadata: RecordMetadata | None, error: StratalogError | None) -> None:
        heard.append((metadata, error))
        raise ValueError("a callback's own trouble")

    producer.send("t", "v", partition=0, timestamp_ms=1, on_delivery=tell)
    producer.send("t", "v", partition=9, on_delivery=tell)
    producer.flush(5)
    errors = [error for _, error in heard]
    assert [metadata for metadata, _ in heard if metadata] == [RecordMetadata("t", 0, 0, 1)]
    assert any(isinstance(error, UnknownTopicOrPartitionError) for error in errors)
    assert producer.send("t", "still alive", partition=0).result(5).offset == 1


def test_without_acks_the_offset_is_unknown(cluster: MemoryCluster, producers: list[Producer]) -> None:
    producer = producer_of(cluster, producers, acks=0)
    assert producer.send("t", "v", partition=0).result(5).offset == -1


def test_close_sends_what_waits_and_refuses_more(cluster: MemoryCluster, producers: list[Producer]) -> None:
    producer = producer_of(cluster, producers, linger_ms=60_000)
    sent = producer.send("t", "v", partition=0)
    producer.close(5)
    assert sent.result(0).offset == 0
    with pytest.raises(UnknownServerError, match="after producer has been closed"):
        producer.send("t", "v")


def test_close_with_a_timeout_fails_what_is_left(cluster: MemoryCluster, producers: list[Producer]) -> None:
    producer = producer_of(cluster, producers)
    cluster.running.clear()
    sent = producer.send("t", "v", partition=0)
    producer.close(0.05)
    with pytest.raises(UnknownServerError, match="closed forcefully"):
        sent.result(5)


def test_a_full_buffer_blocks_and_then_refuses(cluster: MemoryCluster, producers: list[Producer]) -> None:
    producer = producer_of(cluster, producers, buffer_memory=200, batch_size=50)
    brokers = dict(cluster.running)
    cluster.running.clear()
    futures = [producer.send("t", b"x" * 40, partition=0) for _ in range(3)]
    with pytest.raises(RequestTimedOutError, match="Failed to allocate 64 bytes"):
        producer.send("t", b"x" * 40, partition=0).result(0)
    threading.Timer(0.01, lambda: cluster.running.update(brokers)).start()
    late = [producer.send("t", b"y" * 40, partition=0) for _ in range(3)]
    assert all(f.result(5) for f in futures)
    assert all(isinstance(f.exception(5), RequestTimedOutError | None) for f in late)


def test_a_topic_created_meanwhile_is_found(cluster: MemoryCluster, producers: list[Producer]) -> None:
    producer = producer_of(cluster, producers, max_block_ms=5_000)
    threading.Timer(0.02, lambda: cluster.create_topic("late")).start()
    assert producer.send("late", "v").result(5).offset == 0


BAD_RECORDS: list[tuple[dict[str, object], type[StratalogError], str]] = [
    ({"topic": "nope", "value": "v"}, UnknownTopicOrPartitionError, "Topic nope not present in metadata after 50 ms"),
    ({"topic": "t", "partition": 3}, UnknownTopicOrPartitionError, r"3 is not in the range \[0...3\)"),
    ({"topic": "t", "partition": -1}, UnknownTopicOrPartitionError, r"-1 is not in the range \[0...3\)"),
    ({"topic": "t", "value": b"x" * 1_048_576}, RecordTooLargeError, "The message is 1048600 bytes"),
    ({"topic": "t", "value": 5}, InvalidRecordError, "the value is int"),
    ({"topic": "t", "key": 1.5}, InvalidRecordError, "the key is float"),
    ({"topic": "t", "headers": [("h", 5)]}, InvalidRecordError, "the header value is int"),
    ({"topic": "t", "headers": [(None, b"")]}, InvalidRecordError, "a header's key is NoneType"),
    ({"topic": "t", "value": "\ud800"}, InvalidRecordError, "the value is no text"),
    ({"topic": "t", "timestamp_ms": -1}, InvalidTimestampError, "Invalid timestamp: -1"),
    ({"topic": "t", "timestamp_ms": 1 << 62}, InvalidTimestampError, "is outside"),
]


@pytest.mark.parametrize(("record", "kind", "text"), BAD_RECORDS)
def test_a_bad_record_fails_alone_and_says_why(
    cluster: MemoryCluster,
    producers: list[Producer],
    record: dict[str, object],
    kind: type[StratalogError],
    text: str,
) -> None:
    producer = producer_of(cluster, producers)
    with pytest.raises(kind, match=text):
        producer.send(**record).result(5)  # type: ignore[arg-type]
    assert producer.send("t", "good", partition=0).result(5).offset == 0


def test_a_wrong_config_is_refused_at_once(cluster: MemoryCluster) -> None:
    with pytest.raises(InvalidConfigError, match="Unknown producer config name: lingre_ms"):
        Producer(cluster, lingre_ms=5)
