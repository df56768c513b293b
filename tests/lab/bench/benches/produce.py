"""produce_100B, produce_1KiB, produce_100B_zstd, consume, producers_8: throughput at full load.

I/O: both clusters. Ours sends Arrow tables of 10,000 rows from one producer in the brokers' process; the peer gets the
same values from Kafka's producer-perf. The p99 beside is the time from handing a record (ours: its table) to the
producer until its acknowledgement, mostly spent in the producer's own buffer on both sides.
"""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass

from stratalog import Cluster, ClusterView, Consumer, Producer, StratalogError, TableMetadata
from tests.lab.bench.lab import Lab, Outcome, show
from tests.lab.bench.measures import Row, Spread, is_warm, quantile
from tests.lab.bench.payload import ROWS_A_TABLE, Payload

RECORDS = {100: 2_000_000, 1024: 300_000}
ROUND_S = 5
"""The longest round of Kafka's: both sides send fewer records where it would need more time."""
PRODUCERS, RECORDS_EACH, WARM_EACH = 8, 150_000, 60_000
PAIRS = 7
WARM_S_MAX, WARM_AGAIN_S_MAX = 300, 60
"""Limits of a warm-up: of Kafka's first one, and of those for another size or codec in the same JVMs."""

POLL_MS = 1_000
PERF_LINE = re.compile(r"^\d+ records sent, ([\d.]+) records/sec .* (\d+) ms 99th", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Produced:
    """One round: records a second, and p99 from handing over to acknowledgement [ms]."""

    records_per_s: float
    p99_ms: float


def produce(lab: Lab) -> Outcome:
    """Both sizes, and the smaller one compressed; each round's records are consumed too."""
    rows: list[Row] = []
    with lab.cluster() as cluster:
        ours(cluster, lab.topic(cluster, "warm"), lab.payload(100), RECORDS[100], "none")
        for size_bytes, codec in ((100, "none"), (1024, "none"), (100, "zstd")):
            count = round_count(RECORDS[size_bytes], warm_peer(lab, size_bytes, codec))
            rows += _rounds(lab, cluster, size_bytes, codec, count)
    return Outcome(rows)


def round_count(most: int, peer_records_per_s: float) -> int:
    """How many records a round has, whole tables.

    >>> round_count(2_000_000, 400_000.0), round_count(2_000_000, 81_234.5), round_count(300_000, 100.0)
    (2000000, 400000, 10000)
    """
    tables = int(peer_records_per_s * ROUND_S) // ROWS_A_TABLE
    return min(most, max(1, tables) * ROWS_A_TABLE)


def _rounds(lab: Lab, cluster: Cluster, size_bytes: int, codec: str, count: int) -> list[Row]:
    payload = lab.payload(size_bytes)
    name = f"produce_{'100B' if size_bytes == 100 else '1KiB'}{'' if codec == 'none' else '_' + codec}"
    consumes = name == "produce_100B"
    our_rounds, peer_rounds, consumed = [], [], []
    for number in range(lab.rounds):
        topic = lab.topic(cluster, name, compression_type="uncompressed" if codec == "none" else codec)
        peer_topic = lab.peer_topic(name)
        our_rounds.append(ours(cluster, topic, payload, count, codec))
        peer_rounds.append(peers(lab, peer_topic, payload, count, codec))
        if consumes:
            consumed.append((consume_ours(cluster, topic, count), *consume_peers(lab, peer_topic, count)))
        show(f"{name} {number + 1}, {count:,} records: {our_rounds[-1]} against {peer_rounds[-1]}")
    lab.peer.delete_topics(f"{name}-.*")
    rows = [
        Row(
            name, "", "records/s", False,
            Spread.of([r.records_per_s for r in our_rounds]), Spread.of([r.records_per_s for r in peer_rounds]),
        ),
        Row(
            name, "p99", "ms", True,
            Spread.of([r.p99_ms for r in our_rounds]), Spread.of([r.p99_ms for r in peer_rounds]),
        ),
    ]  # fmt: skip
    if consumes:
        mine, whole, without_join = (Spread.of(list(each)) for each in zip(*consumed, strict=True))
        rows.append(Row("consume", "", "records/s", False, mine, whole))
        rows.append(Row("consume", "without the group's join", "records/s", False, mine, without_join))
    return rows


def ours(cluster: Cluster, topic: str, payload: Payload, count: int, codec: str) -> Produced:
    """Send `count` records from one producer, table by table."""
    tables = [payload.table(number) for number in range(count // ROWS_A_TABLE)]
    latencies: list[float] = []
    failures: list[BaseException] = []

    with Producer(cluster, acks="all", compression_type=codec) as producer:
        began = time.perf_counter()
        for table in tables:
            handed = time.perf_counter()

            def acknowledged(future: Future[TableMetadata], handed: float = handed) -> None:
                latencies.append(time.perf_counter() - handed)
                failures.extend(filter(None, [future.exception()]))

            producer.send_table(topic, table).add_done_callback(acknowledged)
        producer.flush()
        took_s = time.perf_counter() - began
    if failures:
        raise failures[0]
    check_stored(cluster, topic, count)
    return Produced(count / took_s, 1000 * quantile(latencies, 0.99))


def check_stored(cluster: Cluster, topic: str, count: int) -> None:
    """A rate counts only if a consumer may read every record by now. RuntimeError when it may not."""
    view = ClusterView(cluster)
    stored = sum(view.offsets.end_offsets(view.partitions(topic)).values())
    if stored != count:
        raise RuntimeError(f"{stored} records of {topic} lie below the high watermarks, not {count}")


def peers(lab: Lab, topic: str, payload: Payload, count: int, codec: str) -> Produced:
    """The same by producer-perf, otherwise at its defaults (idempotent, linger 5 ms, batches of 16 KiB)."""
    text = lab.peer.tool(
        "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", lab.peer.bootstrap, "--topic", topic,
        "--num-records", count, "--payload-file", payload.lines, "--throughput", -1,
        "--command-property", "acks=all", f"compression.type={codec}",
    )  # fmt: skip
    found = PERF_LINE.findall(text)
    return Produced(float(found[-1][0]), float(found[-1][1]))


def warm_peer(lab: Lab, size_bytes: int, codec: str = "none") -> float:
    """Run until three runs in a row differ by at most 5 %, or the time is up; the last rate, records a second.

    Kafka's JVMs need some millions of records until they have compiled what they run; before that the ratio would be
    too good for stratalog.
    """
    runs: list[float] = []
    until = time.monotonic() + (WARM_S_MAX if size_bytes == 100 and codec == "none" else WARM_AGAIN_S_MAX)
    while not is_warm(runs) and time.monotonic() < until:
        topic = lab.peer_topic("warm")
        runs.append(peers(lab, topic, lab.payload(size_bytes), RECORDS[size_bytes] // 2, codec).records_per_s)
    lab.peer.delete_topics("warm-.*")
    show(f"Kafka's warm-up, {size_bytes} B {codec}: {', '.join(f'{run:,.0f}' for run in runs)} records/s")
    return runs[-1]


def consume_ours(cluster: Cluster, topic: str, count: int) -> float:
    """Records a second of a new consumer that reads Arrow tables, its construction included."""
    began = time.perf_counter()
    consumer = Consumer(cluster, auto_offset_reset="earliest")
    consumer.assign_all(topic)
    got = 0
    while got < count:
        got += consumer.poll_table(POLL_MS).num_rows
    took_s = time.perf_counter() - began
    consumer.close()
    return got / took_s


def consume_peers(lab: Lab, topic: str, count: int) -> tuple[float, float]:
    """Records a second of consumer-perf: with and without the time to join its group."""
    text = lab.peer.tool(
        "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", lab.peer.bootstrap, "--topic", topic,
        "--num-records", count, "--timeout", 20_000,
    )  # fmt: skip
    names, *_, values = [line.split(", ") for line in text.splitlines() if ", " in line]
    found = dict(zip(names, values, strict=True))
    return float(found["nMsg.sec"]), float(found["fetch.nMsg.sec"])


def producers_8(lab: Lab) -> Outcome:
    """Eight producers at once against one, on six partitions; the records are the same in all.

    The time of a second of work differs by a fifth from run to run. So eight producers are compared with the one that
    ran just before or after them, in `PAIRS` pairs whose order alternates; the row is the median of these ratios.
    """
    payload = lab.payload(100)
    mine: dict[int, list[float]] = {PRODUCERS: [], 1: []}
    peer: dict[int, list[float]] = {PRODUCERS: [], 1: []}
    with lab.cluster() as cluster:
        for count in mine:
            _at_once(cluster, lab.topic(cluster, "producers"), payload, count, PRODUCERS * WARM_EACH // count)
        for number in range(PAIRS):
            for count in (PRODUCERS, 1) if number % 2 else (1, PRODUCERS):
                each = PRODUCERS * RECORDS_EACH // count
                mine[count].append(_at_once(cluster, lab.topic(cluster, "producers"), payload, count, each))
            show(f"producers_8, ours, pair {number + 1}: {mine[PRODUCERS][-1]:,.0f} and {mine[1][-1]:,.0f} records/s")
        for _ in range(lab.rounds):
            for count, rates in peer.items():
                each, warm = (PRODUCERS * records // count for records in (RECORDS_EACH, WARM_EACH))
                topic = lab.peer_topic("producers")
                text = lab.peer.program("ManyProducers", lab.peer.bootstrap, topic, count, each, warm, payload.lines)
                rates.append(float(text.split()[-1]))
            show(f"producers_8, Kafka: {peer[PRODUCERS][-1]:,.0f} and {peer[1][-1]:,.0f} records/s")
    lab.peer.delete_topics("producers-.*")
    eight, one, peer_eight, peer_one = (Spread.of(side[count]) for side in (mine, peer) for count in (PRODUCERS, 1))
    shares = [ours / ones for ours, ones in zip(mine[PRODUCERS], mine[1], strict=True)]
    in_itself = Spread.of([1.0] * PAIRS)
    return Outcome(
        [
            Row("producers_8", "", "records/s", False, eight, peer_eight),
            Row(
                "producers_8", "against one of ours", "of its rate", False, Spread.of(shares), in_itself, "one of ours"
            ),
            Row("producers_8", "one producer", "records/s", False, one, peer_one),
        ]
    )


def _at_once(cluster: Cluster, topic: str, payload: Payload, producers: int, each: int) -> float:
    """Records a second of all together, each in a thread with a producer of its own."""
    tables = [payload.table(number) for number in range(each // ROWS_A_TABLE)]
    ready = threading.Barrier(producers + 1)
    failures: list[BaseException] = []

    def run(producer: Producer) -> None:
        ready.wait()
        try:
            futures = [producer.send_table(topic, table) for table in tables]
            producer.flush()
            failures.extend(filter(None, (future.exception() for future in futures)))
        except StratalogError as reason:
            failures.append(reason)

    made = [Producer(cluster, acks="all") for _ in range(producers)]
    threads = [threading.Thread(target=run, args=(producer,)) for producer in made]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    took_s = time.perf_counter() - began
    for producer in made:
        producer.close()
    if failures:
        raise failures[0]
    count = producers * len(tables) * ROWS_A_TABLE
    check_stored(cluster, topic, count)
    return count / took_s
