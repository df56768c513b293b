"""The consumer returns committed records in order, from where it was told to, and nothing twice."""

from __future__ import annotations

import threading

import pytest

from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.consumer.positions import CONSUMED_SCHEMA
from stratalog.clients.records import ConsumerRecord
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.objects.distance import FAR
from stratalog.storage.records import Header, NewRecordBatch, TopicPartition, payload_table
from stratalog.storage.transactions import EndMarker, marker_batch
from tests.clients.memory_cluster import ROOT, MemoryCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create_topic("t", 2)
    return made


def consumer_of(cluster: MemoryCluster, **settings: object) -> Consumer:
    view = ClusterView(ROOT, stores=cluster.stores, timeout_ms=50)
    consumer = Consumer(cluster, view=view, **({"auto_offset_reset": "earliest"} | settings))
    consumer.assign_all("t")
    return consumer


def fill(cluster: MemoryCluster, topic_partition: TopicPartition, *values: bytes) -> None:
    cluster.append(topic_partition, *values)
    cluster.publish(topic_partition)


def drain(consumer: Consumer) -> list[bytes | None]:
    values: list[bytes | None] = []
    while records := consumer.poll(5):
        values.extend(record.value for record in records)
    return values


def test_a_record_comes_with_everything_it_carries(cluster: MemoryCluster) -> None:
    headers = [Header("h", b"1"), Header("h", None)]
    cluster.append_batch(T0, NewRecordBatch(payload_table([(77, b"k", b"v", headers), (None, None, None, None)])))
    cluster.publish(T0)
    assert consumer_of(cluster).poll() == [
        ConsumerRecord("t", 0, 0, 77, 0, b"k", b"v", tuple(headers), 0),
        ConsumerRecord("t", 0, 1, None, 0, None, None, (), 0),
    ]


def test_nothing_above_the_high_watermark_is_returned(cluster: MemoryCluster) -> None:
    consumer = consumer_of(cluster)
    cluster.append(T0, b"a", b"b", b"c")
    cluster.publish(T0, 2)
    assert drain(consumer) == [b"a", b"b"]
    cluster.publish(T0)
    assert drain(consumer) == [b"c"]
    assert consumer.position(T0) == 3


def test_polls_are_bounded_and_partitions_take_turns(cluster: MemoryCluster) -> None:
    for topic_partition in (T0, T1):
        fill(cluster, topic_partition, *[b"%d-%d" % (topic_partition.partition, i) for i in range(10)])
    consumer = consumer_of(cluster, max_poll_records=4)
    polls = [consumer.poll() for _ in range(6)]
    assert all(len(records) <= 4 for records in polls)
    for partition in (0, 1):
        assert [r.offset for records in polls for r in records if r.partition == partition] == list(range(10))


def test_poll_waits_for_the_first_record(cluster: MemoryCluster) -> None:
    consumer = consumer_of(cluster)
    threading.Timer(0.03, lambda: fill(cluster, T1, b"late")).start()
    assert [r.value for r in consumer.poll(5_000)] == [b"late"]
    assert consumer.poll(5) == []


def test_a_table_holds_all_that_is_there(cluster: MemoryCluster) -> None:
    fill(cluster, T0, b"a", b"b")
    fill(cluster, T1, b"c")
    consumer = consumer_of(cluster, max_poll_records=1)
    table = consumer.poll_table()
    assert table.schema == CONSUMED_SCHEMA
    assert sorted(zip(table["partition"].to_pylist(), table["value"].to_pylist(), strict=True)) == [
        (0, b"a"),
        (0, b"b"),
        (1, b"c"),
    ]
    assert consumer.poll_table().num_rows == 0


def test_latest_starts_at_the_end_and_earliest_at_the_start(cluster: MemoryCluster) -> None:
    fill(cluster, T0, b"old")
    latest = consumer_of(cluster, auto_offset_reset="latest")
    assert latest.poll() == []
    assert latest.position(T0) == 1
    fill(cluster, T0, b"new")
    assert drain(latest) == [b"new"]
    assert drain(consumer_of(cluster)) == [b"old", b"new"]


def test_seeking_goes_there_and_drops_what_was_read_ahead(cluster: MemoryCluster) -> None:
    for i in range(10):
        cluster.append(T0, b"%d" % i, time_ms=100 * i)
    cluster.publish(T0)
    consumer = consumer_of(cluster, max_poll_records=2)
    consumer.assign([T0])
    assert drain(consumer)[:2] == [b"0", b"1"]
    consumer.seek(T0, 7)
    assert consumer.poll()[0].value == b"7"
    consumer.seek_to_beginning()
    assert consumer.poll()[0].value == b"0"
    consumer.seek_to_time(450)
    assert consumer.poll()[0].value == b"5"
    consumer.seek_to_time(10_000)
    assert consumer.position(T0) == 10
    consumer.seek(T0, 3)
    consumer.seek_to_end([T0])
    assert consumer.poll() == []
    assert (consumer.beginning_offsets([T0]), consumer.end_offsets([T0])) == ({T0: 0}, {T0: 10})


def test_below_the_log_start_the_reset_policy_decides(cluster: MemoryCluster) -> None:
    fill(cluster, T0, b"a", b"b", b"c")
    cluster.publish(T0, log_start=2)
    earliest = consumer_of(cluster)
    earliest.seek(T0, 0)
    assert drain(earliest) == [b"c"]
    latest = consumer_of(cluster, auto_offset_reset="latest")
    latest.seek(T0, 0)
    assert drain(latest) == []
    assert latest.position(T0) == 3
    none = consumer_of(cluster, auto_offset_reset="none")
    none.assign([T0])
    with pytest.raises(OffsetOutOfRangeError, match="Undefined offset with no reset policy"):
        none.poll()
    none.seek(T0, 1)
    with pytest.raises(OffsetOutOfRangeError, match="Fetch position out of range"):
        none.poll()


def test_a_paused_partition_keeps_its_place(cluster: MemoryCluster) -> None:
    fill(cluster, T0, b"a")
    fill(cluster, T1, b"b")
    consumer = consumer_of(cluster)
    consumer.pause([T0])
    assert consumer.paused() == {T0}
    assert drain(consumer) == [b"b"]
    consumer.resume([T0])
    assert drain(consumer) == [b"a"]


def test_a_new_leader_is_followed(cluster: MemoryCluster) -> None:
    fill(cluster, T0, b"a", b"b")
    consumer = consumer_of(cluster)
    assert drain(consumer) == [b"a", b"b"]
    cluster.follow(2, T0)
    cluster.elect(T0, 2)
    cluster.start_leader(T0)
    fill(cluster, T0, b"c")
    assert [(r.value, r.offset, r.leader_epoch) for r in consumer.poll(2_000)] == [(b"c", 2, 1)]


def test_control_records_are_not_shown(cluster: MemoryCluster) -> None:
    cluster.append_batch(T0, marker_batch(7, 0, EndMarker(True, 0), 1))
    fill(cluster, T0, b"a")
    consumer = consumer_of(cluster)
    assert [(r.value, r.offset) for r in consumer.poll()] == [(b"a", 1)]
    cluster.append_batch(T0, marker_batch(7, 0, EndMarker(True, 0), 1))
    cluster.publish(T0)
    assert consumer.poll(100) == []
    assert consumer.position(T0) == 3


def test_what_cannot_be_done_is_said(cluster: MemoryCluster) -> None:
    consumer = consumer_of(cluster)
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 't' has 2 partitions"):
        consumer.assign([("t", 2)])
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 'x' does not exist"):
        consumer.assign_all("x")
    with pytest.raises(InvalidRequestError, match="seek offset must not be a negative number"):
        consumer.seek(T0, -1)
    with pytest.raises(InvalidRequestError, match="No current assignment for partition x-0"):
        consumer.seek(("x", 0), 1)
    consumer.close()
    with pytest.raises(UnknownServerError, match="already been closed"):
        consumer.poll()


@pytest.mark.parametrize("count", [pytest.param(n, id=f"{n} new records behind position 3") for n in (1, 3, 5)])
def test_a_topic_that_was_created_again_is_read_from_its_beginning(cluster: MemoryCluster, count: int) -> None:
    """However many records it has: a position of the earlier topic is none of it."""
    consumer = consumer_of(cluster)
    fill(cluster, T0, b"a", b"b", b"c")
    assert drain(consumer) == [b"a", b"b", b"c"]
    cluster.delete_topic("t")
    assert drain(consumer) == []
    cluster.create_topic("t", 2)
    new = [b"%d" % number for number in range(count)]
    fill(cluster, T0, *new)
    assert drain(consumer) == new


def test_without_a_reset_a_topic_that_was_created_again_is_an_error(cluster: MemoryCluster) -> None:
    consumer = consumer_of(cluster, auto_offset_reset="none")
    consumer.seek(T0, 0)
    consumer.seek(T1, 0)
    fill(cluster, T0, b"a")
    assert drain(consumer) == [b"a"]
    cluster.delete_topic("t")
    cluster.create_topic("t", 2)
    fill(cluster, T0, b"b", b"c")
    with pytest.raises(OffsetOutOfRangeError):
        consumer.poll(10_000)
    for topic_partition in (T0, T1):
        consumer.seek(topic_partition, 0)
    assert drain(consumer) == [b"b", b"c"]


def test_partitions_of_a_far_store_are_fetched_side_by_side(cluster: MemoryCluster) -> None:
    """The first read of each partition waits for the first read of the other: read in turn, they would never end."""
    fill(cluster, T0, b"a")
    fill(cluster, T1, b"b")
    both = threading.Barrier(2)
    begun: set[str] = set()

    def meets(_operation: str, table: str, _detail: str) -> bool:
        if table.startswith("t-") and table not in begun:
            begun.add(table)
            both.wait(timeout=30)
        return False

    consumer = consumer_of(cluster)
    for root in (ROOT, *map(cluster.root_of, (1, 2, 3))):
        cluster.stores.objects(root).distance = FAR
        cluster.stores.disk(root).fault = meets
    assert sorted(drain(consumer), key=str) == [b"a", b"b"]
    assert begun == {"t-0", "t-1"}
