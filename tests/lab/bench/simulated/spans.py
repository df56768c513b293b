"""What is measured in a simulated bucket: latencies of loops, and the requests of a span of time.

I/O: a cluster of this process, its meter, and the relay before its bucket.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count, cycle
from threading import Lock

import pyarrow as pa

from stratalog import Cluster, Producer, TableMetadata
from stratalog.storage.metering.calls import StoreCalls, calls_of_others, sum_of
from tests.lab.bench.payload import Payload
from tests.lab.bench.simulated.figures import Span
from tests.stores.cloud.simulated import SimulatedCloud

PRICES: Mapping[str, tuple[str, ...]] = {"fast": (), "slow": (), "express": ("s3-express-us-east-1",)}
"""Profiles that are measured, and the setting of prices that goes with each."""
TIMEOUT_S = 120
TABLES_MAX = 2
PACED_ROWS = 500
"""Of a table that is sent at a time, where a rate is kept."""


@contextmanager
def span(cloud: SimulatedCloud) -> Iterator[Callable[[], Span]]:
    """Yields what returns, behind the block, what was asked within it."""
    found: list[Span] = []
    before, begun_s = _metered(), time.monotonic()
    cloud.reset()
    yield lambda: found[0]
    counts, took_s = cloud.counts(), time.monotonic() - begun_s
    found.append(Span(took_s, dict(counts.by_kind), _metered().since(before), counts.p50_ms, counts.slower))


def _metered() -> StoreCalls:
    """What this process, brokers and producer, has counted of all stores."""
    return sum_of(calls_of_others(()).values())


def closed_loop_ms(
    cluster: Cluster, topic: str, value_of: Callable[[int], bytes], seconds: float, acks_max: int
) -> list[float]:
    """The times from `send` to the acknowledgement, one record after the other in one partition [ms]."""
    times_ms, end_s = list[float](), time.monotonic() + seconds
    with Producer(cluster, acks="all", linger_ms=0) as producer:
        while len(times_ms) < acks_max and time.monotonic() < end_s:
            begun_s = time.perf_counter()
            producer.send(topic, value_of(len(times_ms)), partition=0).result(TIMEOUT_S)
            times_ms.append(1_000 * (time.perf_counter() - begun_s))
    return times_ms


def full_load(cluster: Cluster, topic: str, payload: Payload, seconds: float) -> tuple[int, list[float]]:
    """The bytes of values that were produced, a few tables under way at a time; and the times to the acknowledgement of
    a whole table [ms]."""
    rows, end_s, times_ms = 0, time.monotonic() + seconds, list[float]()
    with Producer(cluster, acks="all") as producer:
        under_way = []
        for number in count():
            if time.monotonic() > end_s:
                break
            table = payload.table(number)
            under_way.append((time.perf_counter(), producer.send_table(topic, table)))
            rows += table.num_rows
            if len(under_way) == TABLES_MAX:
                begun_s, sent = under_way.pop(0)
                sent.result(TIMEOUT_S)
                times_ms.append(1_000 * (time.perf_counter() - begun_s))
        for _, sent in under_way:
            sent.result(TIMEOUT_S)
    return rows * payload.size_bytes, times_ms


def paced_load(
    producers: Sequence[Producer], topic: str, payload: Payload, seconds: float, bytes_per_s: int
) -> tuple[int, list[float]]:
    """The bytes of values that these producers sent in turn, at this rate, and the times to acknowledgements [ms]."""
    times_ms, lock, rows = list[float](), Lock(), 0
    tables = [part for table in payload.tables for part in _parts(table)]

    def took(begun_s: float) -> Callable[[Future[TableMetadata]], None]:
        def note(_sent: Future[TableMetadata]) -> None:
            with lock:
                times_ms.append(1_000 * (time.perf_counter() - begun_s))

        return note

    in_turn, begun_s, sent = cycle(producers), time.perf_counter(), list[Future[TableMetadata]]()
    for table in cycle(tables):
        if time.perf_counter() - begun_s > seconds:
            break
        due_s = begun_s + rows * payload.size_bytes / bytes_per_s
        time.sleep(max(0.0, due_s - time.perf_counter()))
        rows += table.num_rows
        sent.append(next(in_turn).send_table(topic, table))
        sent[-1].add_done_callback(took(due_s))
    for each in sent:
        each.result(TIMEOUT_S)
    return rows * payload.size_bytes, times_ms


def _parts(table: pa.Table) -> list[pa.Table]:
    return [table.slice(start, PACED_ROWS) for start in range(0, table.num_rows, PACED_ROWS)]
