"""Produce beside waiting fetches and beside a consumer of old records, through Kafka's handlers, without a socket.

I/O: a cluster of ours, threads. Run it as `python -m tests.lab.bench.benches.waiting`, with the tree to be measured in
PYTHONPATH: it prints medians and 99th percentiles of Produce with acks=all in ms.
"""

from __future__ import annotations

import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from stratalog import Admin, Cluster, ClusterView, NewTopic
from stratalog.server.handler import KafkaHandler
from stratalog.server.request.api import Connection
from stratalog.server.request.endpoint import Endpoint
from stratalog.storage.records import NewRecordBatch, TopicPartition, payload_table
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.batches.record_batches import encode_batch
from stratalog.wire.messages.frames import encode_request
from stratalog.wire.messages.schema import request_type

PRODUCES, WAITING, TOPICS = 600, 1_000, 100
OLD_BATCHES, OLD_BYTES = 40, 1 << 20
LONG_MS = 600_000


def signal(done: threading.Event, _answer: object) -> None:
    done.set()


def frame(key: int, version: int, values: dict[str, Any]) -> bytes:
    return encode_request(1, "bench", values, request_type(key, version))


def produced(handler: KafkaHandler, named: TopicPartition, value: bytes) -> None:
    records = encode_batch(NewRecordBatch(payload_table([(1, None, value, None)])))
    data = [{"name": named.topic, "partition_data": [{"index": named.partition, "records": records}]}]
    done = threading.Event()
    handler.handle(
        frame(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 30_000, "topic_data": data}),
        Connection(),
        partial(signal, done),
    )
    assert done.wait(60)


def fetch(named: TopicPartition, offset: int, max_wait_ms: int) -> bytes:
    wanted = {"partition": named.partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    topics = [{"topic": named.topic, "partitions": [wanted]}]
    return frame(ApiKey.FETCH, 12, {"max_wait": max_wait_ms, "min_bytes": 1, "topics": topics})


def latencies(handler: KafkaHandler, named: TopicPartition) -> str:
    found = []
    for _ in range(PRODUCES):
        began = time.perf_counter()
        produced(handler, named, bytes(100))
        found.append(1_000 * (time.perf_counter() - began))
        time.sleep(0.005)
    found.sort()
    return f"p50 {found[len(found) // 2]:6.1f} ms, p99 {found[len(found) * 99 // 100]:6.1f} ms"


def read_on(handler: KafkaHandler, named: TopicPartition, ended: threading.Event, sizes: list[int]) -> None:
    """A consumer that begins again and again, with nothing in the encoded tail; `sizes` gets those of the answers."""
    offset = 0

    def answered(done: threading.Event, answer: Any) -> None:
        sizes.append(len(answer) if isinstance(answer, bytes) else sum(map(len, answer)))
        done.set()

    while not ended.is_set():
        done = threading.Event()
        handler.handle(fetch(named, offset, 0), Connection(), partial(answered, done))
        done.wait(60)
        offset = (offset + 1) % OLD_BATCHES


def handler_of(cluster: Cluster, io: ThreadPoolExecutor) -> KafkaHandler:
    advertised = {1: Endpoint("b1.example", 9092)}
    return KafkaHandler(cluster, 1, config=cluster.config, view=ClusterView(cluster), advertised=advertised, io=io)


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster.start(Path(folder) / "c", 1, fetcher="thread") as cluster,
        ThreadPoolExecutor(8) as io,
    ):
        admin = Admin(cluster)
        admin.create_topics([NewTopic("hot", 1, 1), NewTopic("idle", 1, 1), NewTopic("old", 1, 1)])
        admin.create_topics([NewTopic(f"many-{number}", 3, 1) for number in range(TOPICS)])
        handler = handler_of(cluster, io)
        hot, idle, old = (TopicPartition(topic, 0) for topic in ("hot", "idle", "old"))
        latencies(handler, hot)
        print("alone:                    ", latencies(handler, hot), flush=True)
        for _ in range(WAITING):
            handler.handle(fetch(idle, 0, LONG_MS), Connection(), lambda _answer: None)
        time.sleep(5)
        if handler.waiting_fetches != WAITING:
            raise RuntimeError(f"{handler.waiting_fetches} fetches wait instead of {WAITING}")
        print("1,000 fetches wait:       ", latencies(handler, hot), flush=True)
        handler.close()
        handler = handler_of(cluster, io)
        for _ in range(OLD_BATCHES):
            produced(handler, old, bytes(OLD_BYTES // 2))
        handler.close()
        handler = handler_of(cluster, io)  # without the newest batches in memory
        ended, sizes = threading.Event(), list[int]()
        reader = threading.Thread(target=read_on, args=(handler, old, ended, sizes))
        reader.start()
        print("beside a cold consumer:   ", latencies(handler, hot), flush=True)
        ended.set()
        reader.join()
        print(f"  it read {len(sizes)} times, {sum(sizes) >> 20} MiB", flush=True)
        metadata_ms(handler)
        handler.close()


def metadata_ms(handler: KafkaHandler) -> None:
    found = []
    for _ in range(60):
        done, began = threading.Event(), time.perf_counter()
        handler.handle(frame(ApiKey.METADATA, 12, {"topics": None}), Connection(), partial(signal, done))
        done.wait(60)
        found.append(1_000 * (time.perf_counter() - began))
    found.sort()
    print(f"Metadata of {TOPICS} topics:   p50 {found[30]:6.1f} ms", flush=True)


if __name__ == "__main__":
    main()
