"""simulated_…: acks=all in one simulated bucket, closed loop and open loops, with its requests and its price.

I/O: versitygw behind a relay that draws each request's time, and three brokers of ours whose roots lie in its bucket.
The relay, the server, the brokers and the producer share the machine's cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

from stratalog import Admin, Cluster, Producer
from stratalog.replication.price_lists import price_book
from tests.lab.bench.benches.latency import OpenLoop, ours
from tests.lab.bench.benches.time_to_table import times_to_reader_ms
from tests.lab.bench.lab import BROKERS, PARTITIONS, Lab, Outcome, show
from tests.lab.bench.simulated.figures import CloudRound, Load, rows_of_rounds
from tests.lab.bench.simulated.spans import PRICES, TIMEOUT_S, closed_loop_ms, full_load, paced_load, span
from tests.stores.cloud.simulated import SimulatedCloud, simulated_bucket
from tests.stores.servers import lacking

CLOSED_S, CLOSED_ACKS_MAX = 60, 400
RATES_PER_S, WARM_S, WINDOW_S = (20, 200), 5, 30
READ_LOOP = OpenLoop(PARTITIONS, RATES_PER_S[0], WARM_S, WINDOW_S)
OUTSIDE_READER = "tests.lab.bench.simulated.outside_reader"
BULK_S, BULK_VALUE_BYTES = 20, 1_024
SETTLE_S, IDLE_S = 40, 30
GATHER_MS = 1_800
BUDGET: Mapping[str, object] = {"stratalog.requests.budget": 1.0}
"""Dollars a day of each broker. It cannot be met: commits gather for as long as `GATHER_MS` lets them."""
SHAPE_PARTITIONS, SHAPE_BYTES_PER_S = 288, 1 << 30
"""What others measure with. Here as many partitions as fit get their share of it each."""
PACED_PRODUCERS = 4
"""Each has five requests of a partition under way at most."""
GOVERNED_BYTES_PER_S = SHAPE_BYTES_PER_S * PARTITIONS // SHAPE_PARTITIONS


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
    assert last.governed is not None
    note = (
        f"`{bench}` is simulated: times of requests from the profile `{profile}`, prices of `{prices.name}`, read on "
        f"{prices.read_on.isoformat()}; {last.acks} acknowledgements in the closed loop, {last.bulk.mib_per_s:.1f} "
        f"MiB/s of values at full load. Within a budget commits gather for {GATHER_MS} ms: 1 GiB/s over "
        f"{SHAPE_PARTITIONS} partitions, of which {PARTITIONS} are here, {last.governed.mib_per_s:.1f} MiB/s in all."
    )
    return Outcome(rows_of_rounds(bench, rounds, prices), (note,))


BENCHES: Mapping[str, Callable[[Lab], Outcome]] = {
    f"simulated_{profile}{suffix}": partial(simulated, profile, suffix) for suffix in LAYOUTS for profile in PRICES
}


def _topic(cluster: Cluster, name: str, **config: object) -> str:
    Admin(cluster).create_topic(name, PARTITIONS, BROKERS, config, min_insync_replicas=2)
    return name


def _round(lab: Lab, profile: str, layout: Mapping[str, object], seed: int) -> CloudRound:
    with simulated_bucket(seed) as (cloud, url):
        with Cluster.start(url, BROKERS, fetcher="thread", config=layout) as cluster:
            topic = _warm_topic(lab, cluster)
            cloud.profile(profile)
            time.sleep(SETTLE_S)
            with span(cloud) as idle:  # before there is anything to merge
                time.sleep(IDLE_S)
            latencies: dict[str, list[float]] = {}
            with span(cloud) as closed:
                values = lab.payload(100).value
                latencies["closed loop"] = closed_loop_ms(cluster, topic, values, CLOSED_S, CLOSED_ACKS_MAX)
            for rate_per_s in RATES_PER_S:
                _, moments = ours(lab, cluster, topic, OpenLoop(PARTITIONS, rate_per_s, WARM_S, WINDOW_S))
                latencies[f"{rate_per_s}/s"] = [moment.latency_ms for moment in moments]
            latencies["outside reader"] = times_to_reader_ms(
                cluster, _topic(cluster, lab.fresh("read")), lab.payload(100).value(0), READ_LOOP, OUTSIDE_READER
            )
            bulk, latencies["full load"] = _full_load(lab, cloud, cluster, topic)
            cloud.profile("0ms")  # the end is not measured
        with Cluster.start(f"{url}/budget", BROKERS, fetcher="thread", config={**layout, **BUDGET}) as cluster:
            topic = _warm_topic(lab, cluster, **{"stratalog.commit.latency.ms": GATHER_MS})
            cloud.profile(profile)
            governed, latencies["within a budget"] = _governed_load(lab, cloud, cluster, topic)
            cloud.profile("0ms")
    return CloudRound(latencies, closed(), idle(), len(latencies["closed loop"]), bulk, governed)


def _warm_topic(lab: Lab, cluster: Cluster, **config: object) -> str:
    topic = _topic(cluster, lab.fresh("simulated"), **config)
    with Producer(cluster, acks="all", linger_ms=0) as producer:
        for partition in range(PARTITIONS):
            producer.send(topic, b"first", partition=partition).result(TIMEOUT_S)
    return topic


def _full_load(lab: Lab, cloud: SimulatedCloud, cluster: Cluster, topic: str) -> tuple[Load, list[float]]:
    with span(cloud) as measured:
        size_bytes, times_ms = full_load(cluster, topic, lab.payload(BULK_VALUE_BYTES), BULK_S)
    return Load(measured(), size_bytes), times_ms


def _governed_load(lab: Lab, cloud: SimulatedCloud, cluster: Cluster, topic: str) -> tuple[Load, list[float]]:
    payload = lab.payload(BULK_VALUE_BYTES)
    with ExitStack() as stack:
        producers = [stack.enter_context(Producer(cluster, acks="all")) for _ in range(PACED_PRODUCERS)]
        paced_load(producers, topic, payload, SETTLE_S, GOVERNED_BYTES_PER_S)
        with span(cloud) as measured:
            size_bytes, times_ms = paced_load(producers, topic, payload, BULK_S, GOVERNED_BYTES_PER_S)
    return Load(measured(), size_bytes), times_ms
