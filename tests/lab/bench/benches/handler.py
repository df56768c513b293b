"""Produce and Fetch through Kafka's handler: frames in, frames out, without a socket; ours alone.

I/O: a cluster of ours. Requests are those of the Java producer: to each broker, with one batch for each partition that
it leads, five under way on each connection. A rate counts only when every record lies below the high watermarks.
"""

from __future__ import annotations

import time
from collections import defaultdict
from functools import partial
from queue import Queue
from typing import Any

from stratalog import Cluster, ClusterView
from stratalog.server.handler import KafkaHandler
from stratalog.server.request.api import Connection
from stratalog.storage.records import NewRecordBatch, TopicPartition, as_payload
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.batches.record_batches import encode_batch
from stratalog.wire.messages.frames import Answer, decode_response, encode_request, whole
from stratalog.wire.messages.schema import request_type
from tests.lab.bench.benches.produce import check_stored
from tests.lab.bench.lab import Lab, Outcome
from tests.lab.bench.measures import Row, Spread
from tests.lab.bench.payload import Payload

PRODUCE_VERSION, FETCH_VERSION = 9, 12
IN_FLIGHT = 5
BATCHES = {
    "1 record a batch, 8 producers": (1, 8, 12_000),
    "16 KB batches": (150, 1, 300_000),
    "16 KB batches, 8 producers": (150, 8, 600_000),
    "100 KB batches": (1_000, 1, 1_000_000),
    "1 MB batches": (9_000, 1, 1_800_000),
}
"""Records of a batch, producers, records of a round."""
FETCH_BYTES = 1 << 20


def handler(lab: Lab) -> Outcome:
    """Records a second, acks=all, three replicas, values of 100 bytes; and the same records fetched."""
    rows: list[Row] = []
    with lab.cluster() as cluster:
        brokers = {broker: KafkaHandler(cluster, broker, config=cluster.config) for broker in cluster.brokers()}
        _produce(cluster, brokers, lab.topic(cluster, "warm"), lab.payload(100), 1_000, 1, 300_000)
        for name, (batch_records, producers, count) in BATCHES.items():
            produced, fetched = [], []
            for _ in range(lab.rounds):
                topic = lab.topic(cluster, "handler")
                produced.append(_produce(cluster, brokers, topic, lab.payload(100), batch_records, producers, count))
                fetched.append(_fetch(cluster, brokers, topic))
            rows.append(Row("handler_produce", name, "records/s", False, Spread.of(produced), None))
            rows.append(Row("handler_fetch", name, "records/s", False, Spread.of(fetched), None))
        for each in brokers.values():
            each.close()
    return Outcome(rows)


def _produce(
    cluster: Cluster,
    brokers: dict[int, KafkaHandler],
    topic: str,
    payload: Payload,
    batch_records: int,
    producers: int,
    count: int,
) -> float:
    table = as_payload(payload.table(0).slice(0, batch_records))
    records = encode_batch(NewRecordBatch(table.combine_chunks()))
    view = ClusterView(cluster)
    led: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for named in view.partitions(topic):
        led[view.leader(named)].append(named)
    asked = [(brokers[broker], _produce_frame(topic, parts, records), len(parts)) for broker, parts in led.items()]
    free: Queue[tuple[KafkaHandler, bytes, int]] = Queue()
    for request in asked * (producers * IN_FLIGHT):
        free.put(request)
    refused: list[int] = []
    sent = 0
    began = time.perf_counter()
    while sent < count:
        broker, frame, batches = request = free.get()
        broker.handle(frame, Connection(), partial(_answered, free, request, refused))
        sent += batches * batch_records
    for _ in range(len(asked) * producers * IN_FLIGHT):
        free.get()
    took_s = time.perf_counter() - began
    if refused:
        raise RuntimeError(f"{len(refused)} batches were refused, first with error {refused[0]}")
    check_stored(cluster, topic, sent)
    return sent / took_s


def _answered(free: Queue[Any], request: object, refused: list[int], frame: Answer | None) -> None:
    assert frame is not None
    _, response = decode_response(whole(frame), ApiKey.PRODUCE, PRODUCE_VERSION)
    codes = (int(each.error_code) for topic in response.responses for each in topic.partition_responses)
    refused.extend(filter(None, codes))
    free.put(request)


def _produce_frame(topic: str, parts: list[TopicPartition], records: bytes) -> bytes:
    data = [{"index": named.partition, "records": records} for named in parts]
    values = {"acks": -1, "timeout": 30_000, "topic_data": [{"name": topic, "partition_data": data}]}
    return encode_request(1, "bench", values, request_type(ApiKey.PRODUCE, PRODUCE_VERSION))


def _fetch(cluster: Cluster, brokers: dict[int, KafkaHandler], topic: str) -> float:
    """Records a second of all partitions, one after the other, from the beginning to the high watermark."""
    view = ClusterView(cluster)
    ends = view.offsets.end_offsets(view.partitions(topic))
    began = time.perf_counter()
    for named, end in ends.items():
        offset = 0
        while offset < end:
            offset = _fetched_to(brokers[view.leader(named)], named, offset)
    return sum(ends.values()) / (time.perf_counter() - began)


def _fetched_to(broker: KafkaHandler, named: TopicPartition, offset: int) -> int:
    partition = {"partition": named.partition, "fetch_offset": offset, "partition_max_bytes": FETCH_BYTES}
    topics = [{"topic": named.topic, "partitions": [partition]}]
    values = {"max_wait": 0, "min_bytes": 1, "topics": topics}
    frame = encode_request(1, "bench", values, request_type(ApiKey.FETCH, FETCH_VERSION))
    answers: list[Answer | None] = []
    broker.handle(frame, Connection(), answers.append)
    assert answers[0] is not None
    told = decode_response(whole(answers[0]), ApiKey.FETCH, FETCH_VERSION)[1].responses[0].partitions[0]
    last = _last_batch(told.records)
    if last is None:
        raise RuntimeError(f"{named}: nothing at offset {offset}, error {int(told.error_code)}")
    return last


def _last_batch(records: bytes) -> int | None:
    """The offset behind the last batch: consumers read the headers one after the other."""
    at, end = 0, None
    while at + 61 <= len(records):
        end = int.from_bytes(records[at : at + 8], "big") + int.from_bytes(records[at + 23 : at + 27], "big") + 1
        at += 12 + int.from_bytes(records[at + 8 : at + 12], "big")
    return end
