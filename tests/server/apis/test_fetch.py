"""Fetch, ListOffsets and OffsetForLeaderEpoch: what a consumer gets of a partition, when, and how much of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stratalog.clients.wire.rows import decode_rows
from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse, SentBatch
from stratalog.server.apis.fetch import stored_batches
from stratalog.server.apis.fetch.memory import is_at_end
from stratalog.server.apis.fetch.partition_read import PartitionRead, published_log
from stratalog.server.apis.fetch.sessions import FetchKey, WantedPartition
from stratalog.server.request.api import Connection
from stratalog.server.view.read_committed import ReadCommittedView
from stratalog.storage.errors import NotEnoughReplicasError, NotLeaderOrFollowerError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import (
    TRANSACTIONAL_ATTRIBUTE,
    IdentifiedPartition,
    NewRecordBatch,
    TopicPartition,
    payload_table,
)
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.transactions import EndMarker, marker_batch
from stratalog.storage.upkeep.erase import Erase, ErasePredicate
from stratalog.storage.upkeep.erasure import Erasure
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.batches.headers import EncodedBatch, batches_in
from stratalog.wire.batches.record_batches import encode_batch
from tests.clients.kafka_client import KafkaClient, batch_of, code, framed
from tests.clients.memory_cluster import MemoryBroker, MemoryCluster
from tests.storage.keyed import clean, compacted, keyed, step, view_of
from tests.waiting import wait_until

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LONG_MS = 20_000
APPEND_MS = 77_000


@pytest.fixture
def cluster() -> MemoryCluster:
    """t-0 holds `a` to `e` in batches of two, two and one; the last is not committed. t-1 is empty."""
    made = MemoryCluster()
    made.create_topic("t", 2)
    made.append(T0, b"a", b"b", time_ms=100)
    made.append(T0, b"c", b"d", time_ms=200)
    made.append(T0, b"e", time_ms=300)
    made.publish(T0, 4)
    return made


def wanted(offset: int, partition: int = 0, **fields: Any) -> dict[str, Any]:
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **fields}


def request_of(*partitions: dict[str, Any], version: int = 12, topic_id: str | None = None, **fields: Any) -> Any:
    named = {"topic_id": topic_id} if version >= 13 else {"topic": "t"}
    topics = [{**named, "partitions": partitions}] if partitions else []
    return {"max_wait": 0, "min_bytes": 1, "topics": topics, **fields}


def fetch(client: KafkaClient, *partitions: dict[str, Any], version: int = 12, broker: int = 1, **fields: Any) -> Any:
    """The answers for the partitions."""
    answer = client.ask(ApiKey.FETCH, version, request_of(*partitions, version=version, **fields), broker=broker)
    return [partition for topic in answer.responses for partition in topic.partitions]


def values(partition: Any, from_offset: int = 0) -> list[bytes]:
    """What a consumer that asked for `from_offset` is given: it skips what lies before it in the first batch."""
    rows = decode_rows(partition.records or b"")
    offsets = rows["offset"].to_pylist()
    return [v for offset, v in zip(offsets, rows["value"].to_pylist(), strict=True) if offset >= from_offset]


# -- records -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 19))
def test_a_consumer_gets_what_is_committed(client: KafkaClient, cluster: MemoryCluster, version: int) -> None:
    topic_id = cluster.metadata.image.topic_ids["t"]
    (partition,) = fetch(client, wanted(1), version=version, topic_id=topic_id)
    assert (code(partition), partition.partition_index) == (0, 0)
    assert (partition.high_watermark, partition.last_stable_offset) == (4, 4)
    assert values(partition, 1) == [b"b", b"c", b"d"]
    if version >= 5:
        assert partition.log_start_offset == 0
    if version >= 11:
        assert partition.preferred_read_replica == -1


def test_a_batch_comes_back_as_it_was_produced(client: KafkaClient) -> None:
    batch = batch_of(b"x", b"y", compression_type="lz4", producer_id=9, producer_epoch=0, base_sequence=0)
    data = {"name": "t", "partition_data": [{"index": 1, "records": batch}]}
    client.ask(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 1_000, "topic_data": [data]})
    (partition,) = fetch(client, wanted(0, 1))
    # The leader puts offset and epoch into the header, which the CRC leaves out.
    assert partition.records[17:] == batch[17:]
    assert partition.records[12:16] == bytes(4)


def test_what_consumers_are_sent_is_counted(client: KafkaClient) -> None:
    counted = client.handlers[1].broker.metrics
    answers = [fetch(client, wanted(offset))[0] for offset in (0, 2, 4)]
    assert values(answers[2]) == []
    sent_bytes = sum(len(answer.records or b"") for answer in answers)
    assert counted.bytes_out == counted.topic("t").bytes_out == sent_bytes > 0


def test_fetches_and_failures_are_counted_by_topic(client: KafkaClient, cluster: MemoryCluster) -> None:
    """Errors of a client that has old metadata, or an old offset, are no failures."""
    counted = client.handlers[1].broker.metrics.topic("t")
    for asked in (wanted(0), wanted(4), wanted(99), wanted(0, 7), wanted(0, current_leader_epoch=9)):
        fetch(client, asked)
    assert (counted.fetch_requests, counted.failed_fetch_requests) == (1, 0)
    cluster.running[1].script = [NotEnoughReplicasError("1 < 2"), NotLeaderOrFollowerError("moved")]
    errors: list[tuple[int, list[int]]] = []
    data = {"name": "t", "partition_data": [{"index": 0, "records": batch_of(b"x")}]}
    frame = framed(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 1_000, "topic_data": [data]})
    for _ in range(3):
        connection = Connection(errors=lambda key, codes: errors.append((key, list(codes))))
        client.handlers[1].handle(frame, connection, lambda _: None)
    assert (counted.failed_produce_requests, errors) == (1, [(ApiKey.PRODUCE, [19]), (ApiKey.PRODUCE, [6])])


class StampingBroker(MemoryBroker):
    """The leader of a topic with LogAppendTime."""

    def produce_then(self, request: ProduceRequest, complete: Callable[[ProduceResponse], None]) -> None:
        batch = request.batch
        if isinstance(batch, SentBatch):
            (read,) = batch.read([batch])
            assert isinstance(read, NewRecordBatch)
            batch = read
        stamped = replace(request, batch=batch.appended_at(APPEND_MS))
        super().produce_then(stamped, lambda response: complete(replace(response, append_time_ms=APPEND_MS)))


@pytest.mark.parametrize("tail_bytes", [0, 1 << 20])
def test_readers_get_the_time_of_the_append(cluster: MemoryCluster, tail_bytes: int) -> None:
    """From the table, and from memory, where a batch is as its producer sent it."""
    cluster.running[1] = StampingBroker(cluster, 1)
    settings = {"stratalog.encoded.tail.cache.bytes": tail_bytes}
    with KafkaClient(cluster, stores=cluster.stores, settings=settings) as client:
        data = {"name": "t", "partition_data": [{"index": 0, "records": batch_of(b"x", b"y", time_ms=5)}]}
        produced = client.ask(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 1_000, "topic_data": [data]})
        (told,) = produced.responses[0].partition_responses
        assert told.log_append_time == APPEND_MS
        (partition,) = fetch(client, wanted(told.base_offset))
        records = partition.records
    ((header, _),) = batches_in(records)
    assert (header.timestamp_type, header.max_timestamp_ms) == (1, APPEND_MS)
    rows = decode_rows(records)
    assert [each.value for each in rows["timestamp"]] == [APPEND_MS] * 2
    assert rows["value"].to_pylist() == [b"x", b"y"]


def test_batches_of_an_earlier_leader_epoch_are_not_given_from_memory(
    client: KafkaClient, cluster: MemoryCluster
) -> None:
    data = {"name": "t", "partition_data": [{"index": 1, "records": batch_of(b"x")}]}
    client.ask(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 1_000, "topic_data": [data]})
    broker = client.handlers[1].broker

    def cached() -> list[EncodedBatch]:
        marks = broker.view.watermarks.of(T1)
        return broker.memory.read(published_log(T1, marks), 0, 1, 1_000)

    assert cached()
    cluster.elect(T1, 1)
    cluster.start_leader(T1)
    cluster.publish(T1)
    assert not cached()


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("tail_bytes", [0, 1 << 20])
def test_what_compaction_removed_is_not_given_once_the_leader_has_published_it(
    cluster: MemoryCluster, tail_bytes: int, isolation_level: int
) -> None:
    settings = {"stratalog.encoded.tail.cache.bytes": tail_bytes}
    log = cluster.log(1, T1)
    log.config = compacted(segment_files_max=2)
    with KafkaClient(cluster, stores=cluster.stores, settings=settings) as client:
        for number in range(6):
            data = {"name": "t", "partition_data": [{"index": 1, "records": batch_of(b"%d" % number)}]}
            client.ask(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 1_000, "topic_data": [data]})
        (before,) = fetch(client, wanted(0, 1), isolation_level=isolation_level)
        assert values(before) == [b"%d" % number for number in range(6)]
        clean(log)
        cluster.publish(T1)
        (after,) = fetch(client, wanted(0, 1), isolation_level=isolation_level)
        assert values(after) == [b"3", b"4", b"5"]
        (behind,) = fetch(client, wanted(4, 1), isolation_level=isolation_level)
        assert values(behind) == [b"4", b"5"], "the active segment is not compacted"
        if tail_bytes and not isolation_level:
            assert client.handlers[1].broker.memory.size_bytes, "what compaction left is still in memory"


def test_an_answer_does_not_join_batches_of_the_log_before_and_after_an_erasure(
    client: KafkaClient, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys a, a, b, a, b; every other batch is in memory. While the second of the others is read, a is erased."""
    monkeypatch.setattr(stored_batches, "READ_BYTES_MAX", 1)
    disk, log = cluster.stores.disks[cluster.root_of(1)], cluster.log(1, T1)
    for number, key in enumerate("aabab"):
        if number % 2:
            cluster.append_batch(T1, keyed(f"{key}={number}"))
            cluster.publish(T1)
        else:
            records = batch_of(b"%d" % number, key=key.encode())
            data = {"name": "t", "partition_data": [{"index": 1, "records": records}]}
            client.ask(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 1_000, "topic_data": [data]})
    erase = Erase(1, 5, ErasePredicate.parse({"key": {"equals": "a"}}))
    old = [entry.path for entry in log.files]

    def access(operation: str, _table: str, detail: str) -> None:
        if operation == "get" and detail == old[3]:
            disk.access = lambda *_: None
            step(Erasure(lambda: [erase]), view_of(log, 10_000))
            log.table.delete_objects([old[0], old[1], old[3]])

    disk.access = access
    (partition,) = fetch(client, wanted(1, 1))
    assert values(partition, 1) == [b"1", b"2"]
    (partition,) = fetch(client, wanted(1, 1))
    assert values(partition, 1) == [b"2", b"4"]


def test_a_fetch_that_waits_reads_again_what_was_removed_meanwhile(cluster: MemoryCluster) -> None:
    """It has six records and waits for more bytes; the answer at its deadline is not of the log as it was."""
    log = cluster.log(1, T1)
    log.config = compacted(segment_files_max=2)
    with KafkaClient(cluster, stores=cluster.stores) as client:
        for number in range(6):
            data = {"name": "t", "partition_data": [{"index": 1, "records": batch_of(b"%d" % number)}]}
            client.ask(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 1_000, "topic_data": [data]})
        waits = {"max_wait": 1_500, "min_bytes": 1 << 20}
        answer = client.asked(ApiKey.FETCH, 12, request_of(wanted(0, 1), **waits))
        wait_until(lambda: client.handlers[1].waiting_fetches == 1, "the fetch waits")
        clean(log)
        cluster.publish(T1)
        (partition,) = answer().responses[0].partitions
    assert values(partition) == [b"3", b"4", b"5"]


def test_limits_are_kept_but_for_the_first_batch(client: KafkaClient, cluster: MemoryCluster) -> None:
    cluster.append(T1, b"v")
    cluster.publish(T1)
    size_bytes = len(fetch(client, wanted(0))[0].records)
    tiny = {"partition_max_bytes": 1}
    first, second = fetch(client, wanted(0, **tiny), wanted(0, 1, **tiny))
    assert (values(first), values(second)) == ([b"a", b"b"], [])
    first, second = fetch(client, wanted(0), wanted(0, 1), max_bytes=size_bytes)
    assert (values(first), values(second)) == ([b"a", b"b", b"c", b"d"], [])
    first, second = fetch(client, wanted(4), wanted(0, 1), max_bytes=1)
    assert (values(first), values(second)) == ([], [b"v"])


def test_above_the_high_watermark_there_is_nothing_yet_and_outside_the_log_an_error(client: KafkaClient) -> None:
    for offset, error in ((4, 0), (5, 0), (6, 1), (-1, 1)):
        (partition,) = fetch(client, wanted(offset))
        assert (offset, code(partition), partition.records) == (offset, error, b"")


def test_below_the_log_start_there_is_nothing_any_more(client: KafkaClient, cluster: MemoryCluster) -> None:
    cluster.publish(T0, 4, log_start=2)
    below, at = fetch(client, wanted(1))[0], fetch(client, wanted(2))[0]
    assert (code(below), code(at), at.log_start_offset) == (1, 0, 2)


@pytest.mark.parametrize(("epoch", "error"), [(-1, 0), (0, 74), (1, 0), (2, 75)])
def test_the_leader_epoch_that_a_client_knows_is_checked(
    client: KafkaClient, cluster: MemoryCluster, epoch: int, error: int
) -> None:
    cluster.elect(T0, 1)
    cluster.start_leader(T0)
    cluster.publish(T0, 4)
    assert code(fetch(client, wanted(0, current_leader_epoch=epoch))[0]) == error


def test_a_reader_of_records_that_were_truncated_is_told_where_to_go_back_to(
    client: KafkaClient, cluster: MemoryCluster
) -> None:
    cluster.elect(T0, 1)
    cluster.elect(T0, 1)
    cluster.start_leader(T0)  # epoch 1 wrote nothing, epoch 2 begins at offset 5
    cluster.publish(T0, 5)
    (same,) = fetch(client, wanted(5, last_fetched_epoch=0))
    assert (code(same), same.diverging_epoch.epoch) == (0, -1)
    (diverging,) = fetch(client, wanted(6, last_fetched_epoch=0), max_wait=LONG_MS)
    assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (0, 5)
    (older,) = fetch(client, wanted(5, last_fetched_epoch=1))
    assert (older.diverging_epoch.epoch, older.diverging_epoch.end_offset) == (0, 5)
    assert code(fetch(client, wanted(5, last_fetched_epoch=3))[0]) == 1


def test_who_does_not_lead_says_who_does_and_replicas_serve_newer_clients(
    client: KafkaClient, cluster: MemoryCluster
) -> None:
    (refused,) = fetch(client, wanted(0), version=10, broker=2)
    assert code(refused) == 6
    (served,) = fetch(client, wanted(0), version=12, broker=2)
    assert values(served) == [b"a", b"b", b"c", b"d"]
    cluster.commit(cluster.state(T0).changed(leader=-1, bump_leader_epoch=True))
    topic_id = cluster.metadata.image.topic_ids["t"]
    answer = client.ask(ApiKey.FETCH, 16, request_of(wanted(0), version=16, topic_id=topic_id))
    assert code(answer.responses[0].partitions[0]) == 6


def test_followers_do_not_fetch_by_request(client: KafkaClient) -> None:
    assert code(fetch(client, wanted(0), replica_id=2)[0]) == 6


# -- waiting -------------------------------------------------------------------------------------------------


def test_a_fetch_waits_for_the_high_watermark_and_not_for_its_time(client: KafkaClient, cluster: MemoryCluster) -> None:
    answer = client.asked(ApiKey.FETCH, 12, request_of(wanted(4), max_wait=LONG_MS))
    assert not answer.is_there.wait(0.05)
    cluster.publish(T0, 5)
    assert answer.is_there.wait(5), "not woken"
    assert values(answer().responses[0].partitions[0]) == [b"e"]


def test_a_fetch_waits_for_as_many_bytes_as_it_asked_for(client: KafkaClient, cluster: MemoryCluster) -> None:
    answer = client.asked(ApiKey.FETCH, 12, request_of(wanted(4), wanted(0, 1), max_wait=LONG_MS, min_bytes=100))
    cluster.publish(T0, 5)
    assert not answer.is_there.wait(0.2)
    cluster.append(T1, b"f")
    cluster.publish(T1)
    assert answer.is_there.wait(5), "not woken"
    assert [values(p) for p in answer().responses[0].partitions] == [[b"e"], [b"f"]]


def test_a_fetch_that_nothing_comes_for_is_answered_in_time(client: KafkaClient) -> None:
    answer = client.ask(ApiKey.FETCH, 12, request_of(wanted(4), max_wait=30))
    assert answer.responses[0].partitions[0].records == b""


def test_a_waiting_fetch_hears_of_a_new_leader(client: KafkaClient, cluster: MemoryCluster) -> None:
    answer = client.asked(ApiKey.FETCH, 12, request_of(wanted(4, current_leader_epoch=0), max_wait=LONG_MS))
    assert not answer.is_there.wait(0.05)
    cluster.elect(T0, 2)
    assert answer.is_there.wait(5), "not woken"
    assert code(answer().responses[0].partitions[0]) == 74


def test_an_error_is_not_waited_with(client: KafkaClient) -> None:
    (partition,) = fetch(client, wanted(9), max_wait=LONG_MS)
    assert code(partition) == 1


def test_an_offset_that_was_just_acknowledged_is_in_range_before_it_is_published(
    client: KafkaClient, cluster: MemoryCluster
) -> None:
    """acks=1: the client knows the offset before the leader's log end is published. No log end is beyond the log's."""
    assert code(fetch(client, wanted(5))[0]) == 0
    cluster.append(T0, b"f")
    assert code(fetch(client, wanted(6))[0]) == 0
    assert code(fetch(client, wanted(7))[0]) == 1


def test_who_waits_is_answered_when_the_handler_closes(cluster: MemoryCluster) -> None:
    client = KafkaClient(cluster, stores=cluster.stores)
    answers = [client.asked(ApiKey.FETCH, 12, request_of(wanted(4), max_wait=LONG_MS)) for _ in range(3)]
    client.close()
    assert [answer.is_there.is_set() for answer in answers] == [True] * 3
    assert code(client.ask(ApiKey.FETCH, 12, request_of(wanted(4), max_wait=LONG_MS))) == 0


def test_many_fetches_wait_at_once(client: KafkaClient, cluster: MemoryCluster) -> None:
    asked: list[Any] = []

    def ask(offset: int) -> None:
        asked.append(client.asked(ApiKey.FETCH, 12, request_of(wanted(offset), max_wait=LONG_MS)))

    threads = [threading.Thread(target=ask, args=(4,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cluster.publish(T0, 5)
    assert [values(answer().responses[0].partitions[0]) for answer in asked] == [[b"e"]] * 8


# -- sessions ------------------------------------------------------------------------------------------------


def test_a_session_tells_only_what_is_new(client: KafkaClient, cluster: MemoryCluster) -> None:
    full = client.ask(ApiKey.FETCH, 12, request_of(wanted(4), wanted(0, 1), session_epoch=0))
    assert full.session_id > 0
    assert [p.partition_index for p in full.responses[0].partitions] == [0, 1]
    going_on = {"session_id": full.session_id}
    assert client.ask(ApiKey.FETCH, 12, request_of(**going_on, session_epoch=1)).responses == ()
    cluster.append(T1, b"f")
    cluster.publish(T1)
    news = client.ask(ApiKey.FETCH, 12, request_of(**going_on, session_epoch=2))
    assert [(p.partition_index, values(p)) for p in news.responses[0].partitions] == [(1, [b"f"])]
    forgotten = [{"topic": "t", "partitions": [1]}]
    cluster.publish(T0, 5)
    news = client.ask(ApiKey.FETCH, 12, request_of(**going_on, session_epoch=3, forgotten_topics_data=forgotten))
    assert [(p.partition_index, values(p)) for p in news.responses[0].partitions] == [(0, [b"e"])]
    assert code(client.ask(ApiKey.FETCH, 12, request_of(**going_on, session_epoch=3))) == 71
    assert code(client.ask(ApiKey.FETCH, 12, request_of(session_id=1, session_epoch=3))) == 70
    ended = client.ask(ApiKey.FETCH, 12, request_of(wanted(4), **going_on, session_epoch=-1))
    assert (ended.session_id, code(ended)) == (0, 0)


def test_a_full_fetch_without_partitions_begins_a_session(client: KafkaClient) -> None:
    full = client.ask(ApiKey.FETCH, 12, request_of(session_epoch=0))
    assert (code(full), full.session_id > 0) == (0, True)
    going_on = client.ask(ApiKey.FETCH, 12, request_of(wanted(0), session_id=full.session_id, session_epoch=1))
    assert going_on.session_id == full.session_id
    assert values(going_on.responses[0].partitions[0]) == [b"a", b"b", b"c", b"d"]


def test_a_session_knows_the_name_of_a_deleted_topic(client: KafkaClient, cluster: MemoryCluster) -> None:
    """It answers as Kafka: UNKNOWN_TOPIC_OR_PARTITION, then INCONSISTENT_TOPIC_ID; without it, UNKNOWN_TOPIC_ID."""
    old = {"version": 13, "topic_id": cluster.metadata.image.topic_ids["t"]}
    full = client.ask(ApiKey.FETCH, 13, request_of(wanted(4), session_epoch=0, **old))

    def next_error(epoch: int) -> int:
        answer = client.ask(ApiKey.FETCH, 13, request_of(version=13, session_id=full.session_id, session_epoch=epoch))
        ((partition,),) = [topic.partitions for topic in answer.responses]
        return code(partition)

    cluster.delete_topic("t")
    assert next_error(1) == 3
    assert code(fetch(client, wanted(4), **old)[0]) == 100
    cluster.create_topic("t", 1)
    assert next_error(2) == 103
    assert code(fetch(client, wanted(4), **old)[0]) == 100


def test_a_waiting_fetch_knows_the_name_of_a_topic_that_is_deleted(client: KafkaClient, cluster: MemoryCluster) -> None:
    topic_id = cluster.metadata.image.topic_ids["t"]
    waiting = client.asked(ApiKey.FETCH, 13, request_of(wanted(4), version=13, topic_id=topic_id, max_wait=LONG_MS))
    cluster.delete_topic("t")
    assert code(waiting().responses[0].partitions[0]) == 3


def test_a_session_of_topic_ids_is_not_gone_on_with_by_names(client: KafkaClient, cluster: MemoryCluster) -> None:
    topic_id = cluster.metadata.image.topic_ids["t"]
    full = client.ask(ApiKey.FETCH, 13, request_of(wanted(4), version=13, topic_id=topic_id, session_epoch=0))
    assert code(client.ask(ApiKey.FETCH, 12, request_of(session_id=full.session_id, session_epoch=1))) == 106


# -- transactions --------------------------------------------------------------------------------------------


def transactional(cluster: MemoryCluster, producer_id: int, value: bytes) -> None:
    payload = payload_table([(1, None, value, None)])
    batch = NewRecordBatch(
        payload, producer_id, 0, 0, attributes=TRANSACTIONAL_ATTRIBUTE, verified_offset=1 << 40, verified_leader_epoch=0
    )
    assert cluster.append_batch(T1, batch).error is None


@pytest.fixture
def in_transactions(cluster: MemoryCluster) -> MemoryCluster:
    """t-1: 0 `x` of producer 1, 1 its abort, 2 `y` of producer 2, which is open, 3 `z` of nobody."""
    transactional(cluster, 1, b"x")
    cluster.append_batch(T1, marker_batch(1, 0, EndMarker(False, 0), 1))
    transactional(cluster, 2, b"y")
    cluster.append(T1, b"z")
    cluster.publish(T1)
    return cluster


def test_committed_records_end_at_the_first_open_transaction(
    client: KafkaClient, in_transactions: MemoryCluster
) -> None:
    (everything,) = fetch(client, wanted(0, 1))
    assert (values(everything)[2:], everything.high_watermark) == ([b"y", b"z"], 4)
    assert everything.aborted_transactions is None
    (committed,) = fetch(client, wanted(0, 1), isolation_level=1)
    assert decode_rows(committed.records)["offset"].to_pylist() == [0, 1]
    assert (committed.high_watermark, committed.last_stable_offset) == (4, 2)
    assert [(a.producer_id, a.first_offset) for a in committed.aborted_transactions] == [(1, 0)]
    in_transactions.append_batch(T1, marker_batch(2, 0, EndMarker(True, 0), 1))
    in_transactions.publish(T1)
    (all_committed,) = fetch(client, wanted(2, 1), isolation_level=1)
    assert values(all_committed, 2)[:2] == [b"y", b"z"]
    assert all_committed.aborted_transactions == ()


def test_the_last_stable_offset_is_told_to_readers_of_all_records(
    client: KafkaClient, in_transactions: MemoryCluster
) -> None:
    """From memory and from the log, and not below the log start."""
    batch = batch_of(b"w", producer_id=9, producer_epoch=0, base_sequence=0)
    data = {"name": "t", "partition_data": [{"index": 1, "records": batch}]}
    client.ask(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 1_000, "topic_data": [data]})
    reads = [fetch(client, wanted(offset, 1))[0] for offset in (0, 4, 5)]
    assert [(read.last_stable_offset, read.high_watermark) for read in reads] == [(2, 5)] * 3
    assert [values(read, offset)[-1:] for read, offset in zip(reads, (0, 4, 5), strict=True)] == [[b"w"], [b"w"], []]
    in_transactions.publish(T1, log_start=3)
    assert fetch(client, wanted(5, 1))[0].last_stable_offset == 3
    in_transactions.append_batch(T1, marker_batch(2, 0, EndMarker(True, 0), 1))
    in_transactions.publish(T1, log_start=3)
    assert fetch(client, wanted(5, 1))[0].last_stable_offset == 6


def test_a_reader_of_all_records_is_not_at_the_end_where_a_transaction_is_open() -> None:
    at_2 = WantedPartition(FetchKey("t", None, 1), 2, 1 << 20)
    assert not is_at_end(at_2, PartitionRead(T1, (), high_watermark=4, last_stable_offset=2))
    assert is_at_end(at_2, PartitionRead(T1, (), high_watermark=4, last_stable_offset=2, aborted=()))


@pytest.fixture
def to_be_compacted(cluster: MemoryCluster) -> PartitionLog:
    """t-1: 0 `a=1` of producer 1, 1 its abort, 2 `a=2` of producer 1, 3 its commit, 4 `b=1`, 5 `b=2`; two a segment."""
    log = cluster.log(1, T1)
    log.config = compacted(segment_files_max=2)
    in_one = {"producer_id": 1, "attributes": TRANSACTIONAL_ATTRIBUTE}
    cluster.append_batch(
        T1, replace(keyed("a=1", sequence=0, **in_one), verified_offset=1 << 40, verified_leader_epoch=0)
    )
    cluster.append_batch(T1, marker_batch(1, 0, EndMarker(False, 0), 1))
    cluster.append_batch(
        T1, replace(keyed("a=2", sequence=1, **in_one), verified_offset=1 << 40, verified_leader_epoch=0)
    )
    cluster.append_batch(T1, marker_batch(1, 0, EndMarker(True, 0), 1))
    for record in ("b=1", "b=2"):
        cluster.append_batch(T1, keyed(record))
    cluster.publish(T1)
    return log


def given(partition: Any) -> tuple[list[int], list[tuple[int, int]]]:
    """The offsets of records and markers, and the aborted transactions."""
    told = [(each.producer_id, each.first_offset) for each in partition.aborted_transactions]
    return decode_rows(partition.records)["offset"].to_pylist(), told


def test_of_aborted_records_that_compaction_took_nothing_is_told_nor_given_from_memory(
    client: KafkaClient, cluster: MemoryCluster, to_be_compacted: PartitionLog
) -> None:
    broker = client.handlers[1].broker
    produced = replace(keyed("a=1", producer_id=1, sequence=0), attributes=16)
    broker.memory.put(broker.view.image.identified(T1), 0, to_be_compacted.leader_epoch, encode_batch(produced))
    (before,) = fetch(client, wanted(0, 1), isolation_level=1)
    assert given(before) == ([0, 1, 2, 3, 4, 5], [(1, 0)])
    clean(to_be_compacted)
    client.handlers[1].broker.view.records.read_from_log(T1, lambda log: log.refresh(), 0)
    (after,) = fetch(client, wanted(0, 1), isolation_level=1)
    assert given(after) == ([1, 2, 3, 4, 5], [])
    (everything,) = fetch(client, wanted(0, 1))
    assert decode_rows(everything.records)["offset"].to_pylist()[0] == 0, "the leader has not published it yet"
    cluster.publish(T1)
    (everything,) = fetch(client, wanted(0, 1))
    assert decode_rows(everything.records)["offset"].to_pylist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_a_client_comes_to_the_end_though_compaction_left_nothing_before_it(
    client: KafkaClient, cluster: MemoryCluster, isolation_level: int
) -> None:
    """`a=1`, two records without a key from before the topic was compacted, and one that is not committed."""
    log = cluster.log(1, T1)
    log.config = LogConfig.from_properties({"segment.files.max": 2})
    for record in ("a=1", "=2 =3", "b=1"):
        cluster.append_batch(T1, keyed(record))
    cluster.publish(T1, 3)
    log.config = compacted(segment_files_max=2)
    assert clean(log, high_watermark=3)
    client.handlers[1].broker.view.records.read_from_log(T1, lambda known: known.refresh(), 0)
    (partition,) = fetch(client, wanted(0, 1), isolation_level=isolation_level)
    assert values(partition) == [b"1"]
    for asked in (0, 1, 2):
        (partition,) = fetch(client, wanted(asked, 1), isolation_level=isolation_level)
        last = list(batches_in(partition.records))[-1][0]
        assert (last.last_offset, last.leader_epoch) == (2, log.leader_epoch)
    assert values(partition) == []
    (at_end,) = fetch(client, wanted(3, 1), isolation_level=isolation_level)
    assert not at_end.records


def test_what_was_aborted_is_told_of_the_very_records_that_are_given(
    client: KafkaClient, cluster: MemoryCluster, to_be_compacted: PartitionLog
) -> None:
    """The files vanish while they are read, so others are read than those that the transactions were looked up for."""
    disk, old = cluster.stores.disks[cluster.root_of(1)], [entry.path for entry in to_be_compacted.files[:4]]

    def access(operation: str, _table: str, detail: str) -> None:
        if operation == "get" and detail in old:
            disk.access = lambda *_: None
            clean(to_be_compacted)
            live = {entry.path for entry in to_be_compacted.files}
            to_be_compacted.table.delete_objects([path for path in old if path not in live])

    disk.access = access
    (partition,) = fetch(client, wanted(0, 1), isolation_level=1)
    assert given(partition) == ([1, 2, 3, 4, 5], [])


def test_the_latest_offset_of_committed_records_is_the_last_stable_one(
    client: KafkaClient, in_transactions: MemoryCluster
) -> None:
    for level, offset in ((0, 4), (1, 2)):
        assert listed(client, -1, partition=1, isolation_level=level).offset == offset


def test_committed_records_end_no_earlier_than_the_log_starts(
    client: KafkaClient, in_transactions: MemoryCluster
) -> None:
    """DeleteRecords has gone beyond the beginning of an open transaction: a consumer that begins at the end can fetch
    there."""
    in_transactions.publish(T1, log_start=3)
    assert [listed(client, at, partition=1, isolation_level=1).offset for at in (-2, -1)] == [3, 3]
    (partition,) = fetch(client, wanted(3, 1), isolation_level=1)
    assert (code(partition), partition.log_start_offset, partition.last_stable_offset) == (0, 3, 3)
    assert not partition.records
    view = ReadCommittedView(in_transactions, stores=in_transactions.stores)
    assert (view.offsets.beginning_offsets([T1]), view.offsets.end_offsets([T1])) == ({T1: 3}, {T1: 3})


# -- offsets -------------------------------------------------------------------------------------------------


def listed(
    client: KafkaClient, timestamp: int, *, partition: int = 0, version: int = 11, epoch: int = -1, **fields: Any
) -> Any:
    asked = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": epoch}
    topics = [{"name": "t", "partitions": [asked]}]
    answer = client.ask(ApiKey.LIST_OFFSETS, version, {"replica_id": -1, "topics": topics, **fields})
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11)])
def test_a_place_that_came_with_a_later_version_is_not_known(client: KafkaClient, timestamp: int, version: int) -> None:
    assert code(listed(client, timestamp, version=version)) == 35


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_lists_offsets(client: KafkaClient, version: int) -> None:
    assert (code(listed(client, -1, version=version)), listed(client, -1, version=version).offset) == (0, 4)


def test_a_debugger_sees_the_log_end(client: KafkaClient) -> None:
    assert listed(client, -1, replica_id=-2).offset == 5


class ReadingBroker(MemoryBroker):
    """Knows nothing of the logs that it leads."""

    def log_offsets(self, partition: IdentifiedPartition) -> None:
        assert partition.topic_id


@pytest.mark.parametrize("is_known", [True, False])
def test_a_leader_reads_its_table_for_an_end_that_it_does_not_know(
    client: KafkaClient, cluster: MemoryCluster, is_known: bool
) -> None:
    """The published log end is older than the last append, and the high watermark below it."""
    cluster.append(T0, b"f")
    if not is_known:
        cluster.running[1] = ReadingBroker(cluster, 1)
    reads: list[str] = []
    cluster.stores.disks[cluster.root_of(1)].access = lambda operation, _table, _detail: reads.append(operation)
    assert (listed(client, -1, replica_id=-2).offset, listed(client, -2).leader_epoch) == (6, 0)
    asked = {"topics": [{"topic": "t", "partitions": [{"partition": 0, "leader_epoch": 0}]}]}
    ended = client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, asked).topics[0].partitions[0]
    assert (code(ended), ended.end_offset) == (0, 6)
    assert [code(fetch(client, wanted(offset))[0]) for offset in (6, 7)] == [0, 1]
    assert bool(reads) != is_known


def test_offsets_are_listed_by_the_leader_alone(client: KafkaClient, cluster: MemoryCluster) -> None:
    cluster.elect(T0, 2)
    assert code(listed(client, -1)) == 6
    cluster.elect(T0, 1)
    for version in (4, 5):  # it leads, but has not started
        assert code(listed(client, -1, version=version)) == 6


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(("asked", "epoch", "end"), [(0, 0, 5), (1, 1, 6), (2, -1, -1)])
def test_an_epoch_ends_where_the_next_begins(
    client: KafkaClient, cluster: MemoryCluster, version: int, asked: int, epoch: int, end: int
) -> None:
    cluster.elect(T0, 1)
    cluster.start_leader(T0)
    cluster.append(T0, b"f")
    cluster.publish(T0)
    partition = {"partition": 0, "leader_epoch": asked}
    values = {"topics": [{"topic": "t", "partitions": [partition]}]}
    found = client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, values).topics[0].partitions[0]
    assert (code(found), found.leader_epoch, found.end_offset) == (0, epoch, end)


def test_metadata_and_fetch_share_a_connection(client: KafkaClient) -> None:
    waiting = client.asked(ApiKey.FETCH, 12, request_of(wanted(4), max_wait=200))
    assert client.ask(ApiKey.METADATA, 12, {"topics": []}).topics == ()
    assert waiting().responses
