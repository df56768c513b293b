"""Records by every way into a topic: what one refuses, or stores, all do. I/O: a cluster of one broker.

The judge is a producer in the broker's process. The others are its `send_table`, a producer that hands its files over
as another process does, and the tasks and the hand-over of the Spark sink. Each has a topic of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa

from stratalog import Admin, Cluster, Consumer, NewTopic, Producer
from stratalog.clients.spark.options import SinkOptions
from stratalog.clients.spark.sink.batches import SinkBatchId
from stratalog.clients.spark.sink.hand_over import HandOver
from stratalog.clients.spark.sink.task import SinkTask
from stratalog.replication.stores import DeltaStores
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TIMESTAMP_MS_LIMIT
from tests.lab.differential.values.known import ENTRIES, Outcome, Tally

ROWS = 24
HOUR_MS, POLL_MS_MAX, SHOWN_BYTES_MAX = 3_600_000, 60_000, 60
NOW = "now"
CONFIGS: tuple[dict[str, str], ...] = (
    {},
    {"cleanup.policy": "compact"},
    {"max.message.bytes": "400"},
    {"segment.bytes": "1024", "max.message.bytes": "4096"},
    {"message.timestamp.before.max.ms": str(HOUR_MS), "message.timestamp.after.max.ms": str(HOUR_MS)},
    {"compression.type": "zstd", "max.message.bytes": "400"},
    {"compression.type": "gzip", "cleanup.policy": "compact,delete"},
    {"message.timestamp.type": "LogAppendTime"},
)
_HEADERS, _TIME = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])), 3


class Row(NamedTuple):
    """A record as an application gives it; `None` for a time is now, for a partition any."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str | None, bytes | None]] | None
    timestamp_ms: int | None
    partition: int | None


Way = Callable[[str, Row], None]
"""Stores a row in a topic, or raises."""


def a_row(draw: Random, now_ms: int) -> Row:
    size = draw.choice([0, 1, 40, 200, draw.randint(280, 420), draw.randint(900, 1_100), 4_000, 4_200])
    key = draw.choice([None, b"", b"k", b"key" * 20])
    value = draw.choice([None, b"", b"v", bytes(size), draw.randbytes(size)])
    names: list[str | None] = draw.choices(
        ["", "h", "h", "ä", "name" * 30, None], [9, 9, 9, 9, 9, 1], k=draw.choice([0, 1, 1, 3])
    )
    headers = [(name, draw.choice([None, b"", b"x", bytes(size // 4)])) for name in names]
    times = (None, None, 0, 1, -1, now_ms, now_ms - 2 * HOUR_MS, now_ms + 2 * HOUR_MS, now_ms - HOUR_MS // 2,
             TIMESTAMP_MS_LIMIT, TIMESTAMP_MS_LIMIT + 1, -TIMESTAMP_MS_LIMIT, draw.randrange(2**45))  # fmt: skip
    partition = draw.choice([None] * 12 + [0, 0, 0, 1, -1, 2**31 - 1])
    return Row(key, value, draw.choice([None, headers, headers]), draw.choice(times), partition)


def judge(folder: Path, seed: int, count: int, tally: Tally) -> None:
    """Count what `count` topics with rows have, by each way."""
    now_ms = SystemClock().wall_ms()
    alone = {"offsets.topic.replication.factor": 1}
    with (
        Cluster.start(folder, brokers=1, fetcher="thread", config=alone) as cluster,
        Producer(cluster, linger_ms=0) as producer,
        Producer(cluster.root, linger_ms=0) as remote,
    ):
        judging = _by(producer)
        judged: dict[str, Way] = {
            "send_table": _by_table(producer),
            "a producer of another process": _by(remote),
            "the Spark sink": _by_sink(cluster.root),
        }
        for number in range(count):
            draw = Random(f"{seed} topic {number}")
            config = draw.choice(CONFIGS)
            rows = [a_row(draw, now_ms) for _ in range(ROWS)]
            by_producer = _stored(cluster, f"t{number}", config, judging, rows)
            for place, (name, way) in enumerate(judged.items()):
                found = _stored(cluster, f"t{number}-{place}", config, way, rows)
                for row, ours, theirs in zip(rows, found, by_producer, strict=True):
                    _count(tally, name, ours, theirs, f"topic {number} {config}: {shown(row)}")


def _count(tally: Tally, way: str, ours: Any, theirs: Any, about: str) -> None:
    name = f"{ENTRIES}, {way}"
    if repr(ours) == repr(theirs):
        tally.count(name, f"the same refusal, {ours}" if isinstance(ours, str) else "the same record")
    else:
        is_time = not isinstance(ours, str) and not isinstance(theirs, str) and ours[:_TIME] == theirs[:_TIME]
        marked = f"{about} [times alone differ]" if is_time else about
        tally.judge(name, Outcome(ours, None), Outcome(theirs, None), marked)


def _stored(cluster: Cluster, topic: str, config: dict[str, str], way: Way, rows: Sequence[Row]) -> list[Any]:
    """Of each row the name of the error that refuses it, or the record that is stored: a tuple."""
    Admin(cluster).create_topics([NewTopic(topic, 1, 1, config)])
    refused: dict[int, str] = {}
    began_ms = SystemClock().wall_ms()
    for place, row in enumerate(rows):
        try:
            way(topic, row)
        except StratalogError as reason:
            refused[place] = type(reason).__name__
    records: list[tuple[Any, ...]] = []
    with Consumer(cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign_all(topic)
        while len(records) < len(rows) - len(refused):
            found = consumer.poll(timeout_ms=POLL_MS_MAX)
            assert found, f"{topic}: {len(records)} records, {len(rows)} rows, {len(refused)} refusals"
            for each in found:
                assert each.timestamp_ms is not None
                is_now = began_ms <= each.timestamp_ms <= began_ms + HOUR_MS // 4
                time = NOW if is_now else each.timestamp_ms
                records.append(shown((each.key, each.value, each.headers, time, each.timestamp_type)))
        assert not consumer.poll(), f"{topic}: more than {len(rows)} rows with {len(refused)} refusals"
    stored = iter(records)
    return [refused[place] if place in refused else next(stored) for place in range(len(rows))]


def shown(value: Any) -> Any:
    """A row or a record with the length and the checksum of what is long."""
    if isinstance(value, bytes) and len(value) > SHOWN_BYTES_MAX:
        return f"{len(value)} bytes, CRC {crc32(value):08x}"
    return tuple(map(shown, value)) if isinstance(value, tuple | list) else value


# -- ways --------------------------------------------------------------------------------------------------


def _by(producer: Producer) -> Way:
    def send(topic: str, row: Row) -> None:
        headers: Any = row.headers  # of any names, as a wrong application gives them
        producer.send(topic, row.value, row.key, row.partition, row.timestamp_ms, headers).result()

    return send


def _by_table(producer: Producer) -> Way:
    def send(topic: str, row: Row) -> None:
        producer.send_table(topic, pa.table(_columns(row, per_ms=1))).result()

    return send


def _by_sink(root: str) -> Way:
    view = ClusterView(root, stores=DeltaStores(RandomIds()))

    def send(topic: str, row: Row) -> None:
        view.refresh()
        options = SinkOptions(root, topic=topic, timestamp_column="timestamp")
        task, driver = (SinkTask(view, options, 0) for _ in range(2))
        task.add(pa.RecordBatch.from_pydict(_columns(row, per_ms=1_000)))
        rows = task.send()
        if rows is not None:
            driver.add_sent(rows)
        files = [*task.finish(), *driver.finish()]
        HandOver(view, options, SinkBatchId(RandomIds().new_id(), 0, is_replayable=False)).run(files)

    return send


def _columns(row: Row, per_ms: int) -> dict[str, pa.Array]:
    """The row as columns; Spark's times are microseconds, but those that no column of them has."""
    headers = None if row.headers is None else [{"key": name, "value": value} for name, value in row.headers]
    per_ms = 1 if row.timestamp_ms is not None and abs(row.timestamp_ms) > TIMESTAMP_MS_LIMIT else per_ms
    time = None if row.timestamp_ms is None else row.timestamp_ms * per_ms
    return {
        "key": pa.array([row.key], pa.binary()),
        "value": pa.array([row.value], pa.binary()),
        "headers": pa.array([headers], _HEADERS),
        "timestamp": pa.array([time], pa.int64()).cast(pa.timestamp("ms" if per_ms == 1 else "us", "UTC")),
        "partition": pa.array([row.partition], pa.int32()),
    }
