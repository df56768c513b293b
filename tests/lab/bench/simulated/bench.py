"""simulated_…: acks=all in one simulated bucket, closed loop and open loops, with its requests and its price.

I/O: versitygw behind a relay that draws each request's time, and three brokers of ours whose roots lie in its bucket.
The relay, the server, the brokers and the producer share the machine's cores.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count

from stratalog import Admin, Cluster, Producer
from stratalog.replication.price_lists import price_book
from stratalog.storage.metering.calls import StoreCalls, calls_of_others, sum_of
from tests.lab.bench.benches.latency import OpenLoop, ours
from tests.lab.bench.benches.time_to_table import times_to_reader_ms
from tests.lab.bench.lab import BROKERS, PARTITIONS, Lab, Outcome, show
from tests.lab.bench.simulated.figures import CloudRound, Span, rows_of_rounds
from tests.stores.cloud.simulated import SimulatedCloud, endpoint_of, simulated_cloud
from tests.stores.servers import lacking, versity_server

PRICES: Mapping[str, tuple[str, ...]] = {"fast": (), "slow": (), "express": ("s3-express-us-east-1",)}
"""Profiles that are measured, and the setting of prices that goes with each."""
CLOSED_S, CLOSED_ACKS_MAX = 60, 400
RATES_PER_S, WARM_S, WINDOW_S = (20, 200), 5, 30
READ_LOOP = OpenLoop(PARTITIONS, RATES_PER_S[0], WARM_S, WINDOW_S)
OUTSIDE_READER = "tests.lab.bench.simulated.outside_reader"
BULK_S, BULK_TABLES_MAX, BULK_VALUE_BYTES = 20, 2, 1_024
SETTLE_S, IDLE_S = 40, 30
TIMEOUT_S = 120

LAYOUTS: Mapping[str, Mapping[str, object]] = {"": {"stratalog.storage.domain": ""}, "_domain": {}}
"""What clusters are started with, by the end of a bench's name: three copies, or what a cluster in one bucket does by
itself, one table for all brokers."""


def simulated(profile: str, suffix: str, lab: Lab) -> Outcome:
    """The rounds of one profile and layout, each in a bucket of its own."""
    if reason := lacking()["versity_server"]:
        raise RuntimeError(f"a simulated cloud needs a server: {reason}")
    bench, book = f"simulated_{profile}{suffix}", price_book(PRICES[profile])
    rounds = [_round(lab, profile, LAYOUTS[suffix], seed) for seed in range(lab.rounds)]
    prices = book.of_root("s3://bucket")
    assert prices is not None
    for each in rounds:
        texts = (f"{name} {value:.4g}" for name, value in each.figures(prices).items())
        show(f"{bench}, simulated: {', '.join(texts)}")
    last = rounds[-1]
    note = (
        f"`{bench}` is simulated: times of requests from the profile `{profile}`, prices of `{prices.name}`, read on "
        f"{prices.read_on.isoformat()}; {PARTITIONS} partitions instead of 288, {last.acks} acknowledgements in the "
        f"closed loop, {last.bulk_bytes / last.bulk.took_s / (1 << 20):.1f} MiB/s of values at full load."
    )
    return Outcome(rows_of_rounds(bench, rounds, prices), (note,))


BENCHES: Mapping[str, Callable[[Lab], Outcome]] = {
    f"simulated_{profile}{suffix}": partial(simulated, profile, suffix) for suffix in LAYOUTS for profile in PRICES
}


@contextmanager
def _bucket(seed: int) -> Iterator[tuple[SimulatedCloud, str]]:
    """A bucket as far as this machine, and a folder in it. Clients of this process find it by the environment."""
    with versity_server() as server:
        name, url = endpoint_of(server)
        with simulated_cloud(url, "0ms", seed=seed) as cloud:
            changed = {**server.environment, name: cloud.url}
            before = {key: os.environ.get(key) for key in changed}
            os.environ.update(changed)
            try:
                yield cloud, server.new_root()
            finally:
                for key, value in before.items():
                    if value is None:
                        del os.environ[key]
                    else:
                        os.environ[key] = value


def _topic(cluster: Cluster, name: str) -> str:
    Admin(cluster).create_topic(name, PARTITIONS, BROKERS, None, min_insync_replicas=2)
    return name


def _round(lab: Lab, profile: str, layout: Mapping[str, object], seed: int) -> CloudRound:
    with _bucket(seed) as (cloud, url), Cluster.start(url, BROKERS, fetcher="thread", config=layout) as cluster:
        topic = _topic(cluster, lab.fresh("simulated"))
        with Producer(cluster, acks="all", linger_ms=0) as producer:
            for partition in range(PARTITIONS):
                producer.send(topic, b"first", partition=partition).result(TIMEOUT_S)
        cloud.profile(profile)
        time.sleep(SETTLE_S)
        with _span(cloud) as idle:  # before there is anything to merge
            time.sleep(IDLE_S)
        latencies: dict[str, list[float]] = {"closed loop": []}
        with _span(cloud) as closed:
            latencies["closed loop"] = _closed_loop(lab, cluster, topic)
        for rate_per_s in RATES_PER_S:
            _, moments = ours(lab, cluster, topic, OpenLoop(PARTITIONS, rate_per_s, WARM_S, WINDOW_S))
            latencies[f"{rate_per_s}/s"] = [moment.latency_ms for moment in moments]
        latencies["outside reader"] = times_to_reader_ms(
            cluster, _topic(cluster, lab.fresh("read")), lab.payload(100).value(0), READ_LOOP, OUTSIDE_READER
        )
        with _span(cloud) as bulk:
            bulk_bytes = _full_load(lab, cluster, topic)
        cloud.profile("0ms")  # the end is not measured
        acks = len(latencies["closed loop"])
        return CloudRound(latencies, closed(), bulk(), idle(), acks, bulk_bytes)


@contextmanager
def _span(cloud: SimulatedCloud) -> Iterator[Callable[[], Span]]:
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


def _closed_loop(lab: Lab, cluster: Cluster, topic: str) -> list[float]:
    """The times from `send` to the acknowledgement, one record after the other in one partition [ms]."""
    payload, times_ms, end_s = lab.payload(100), list[float](), time.monotonic() + CLOSED_S
    with Producer(cluster, acks="all", linger_ms=0) as producer:
        while len(times_ms) < CLOSED_ACKS_MAX and time.monotonic() < end_s:
            begun_s = time.perf_counter()
            producer.send(topic, payload.value(len(times_ms)), partition=0).result(TIMEOUT_S)
            times_ms.append(1_000 * (time.perf_counter() - begun_s))
    return times_ms


def _full_load(lab: Lab, cluster: Cluster, topic: str) -> int:
    """The bytes of values that were produced, a few tables under way at a time."""
    payload, rows, end_s = lab.payload(BULK_VALUE_BYTES), 0, time.monotonic() + BULK_S
    with Producer(cluster, acks="all") as producer:
        under_way = []
        for number in count():
            if time.monotonic() > end_s:
                break
            table = payload.table(number)
            under_way.append(producer.send_table(topic, table))
            rows += table.num_rows
            if len(under_way) == BULK_TABLES_MAX:
                under_way.pop(0).result(TIMEOUT_S)
        for each in under_way:
            each.result(TIMEOUT_S)
    return rows * BULK_VALUE_BYTES
