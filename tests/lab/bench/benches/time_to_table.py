"""time_to_table: how long after `send` a reader that knows nothing of stratalog sees the record's row in the table.

I/O: a cluster of ours, and deltalake in another process (`python -m tests.lab.bench.benches.time_to_table <table> …`).
Requests of one record follow a fixed schedule; the time counts from a record's scheduled time to the moment when the
reader has read its row from the leader's table. Both clocks are the machine's monotonic one. There is no peer: Kafka's
records reach a table through another system (Databricks names 5 s for its own ingest).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from stratalog import Admin, Cluster, ClusterView, Producer, StratalogError, TopicPartition
from tests.lab.bench.benches.latency import OpenLoop
from tests.lab.bench.lab import Lab, Outcome, show
from tests.lab.bench.measures import Row, Spread, latency_figures

LOOP = OpenLoop(partitions=3, rate_per_s=100, warm_s=10, window_s=60)
NUMBER_DIGITS = 10
POLL_PAUSE_S = 0.005
READ_WAIT_S = 30
READY = "ready"
BASE_OFFSET = "partition.base_offset"


def time_to_table(lab: Lab) -> Outcome:
    """100 records a second over three partitions for a minute."""
    padding = lab.payload(100).value(0)[NUMBER_DIGITS:]
    with lab.cluster() as cluster:
        topic = lab.topic(cluster, "time-to-table", LOOP.partitions)
        figures = latency_figures(times_to_reader_ms(cluster, topic, padding, LOOP, __name__))
    show(f"time_to_table: {', '.join(f'{name} {value:.1f}' for name, value in figures.items())} ms")
    rows = [Row("time_to_table", name, "ms", True, Spread.of([value]), None) for name, value in figures.items()]
    return Outcome(rows)


def times_to_reader_ms(cluster: Cluster, topic: str, padding: bytes, loop: OpenLoop, reader: str) -> list[float]:
    """How long after it was due each record of the window was read. `reader`: the module that is the reader."""
    with _reader(reader, _leaders_tables(cluster, topic), (loop.warm_s + loop.window_s) * loop.rate_per_s) as seen_of:
        due_s = _send(cluster, topic, padding, loop)
        seen_s = seen_of()
    return [1000 * (seen_s[number] - due) for number, due in enumerate(due_s)][loop.warm_s * loop.rate_per_s :]


def _leaders_tables(cluster: Cluster, topic: str) -> list[str]:
    view = ClusterView(cluster.root)
    view.refresh()
    partitions = Admin(cluster).describe_topics([topic])[topic].partitions
    roots = [view.replica_root(TopicPartition(topic, number), each.leader) for number, each in enumerate(partitions)]
    return [f"{root}/{topic}-{number}" for number, root in enumerate(roots)]


def _send(cluster: Cluster, topic: str, padding: bytes, loop: OpenLoop) -> list[float]:
    """Each record's scheduled time, by its number, which its value begins with."""
    failures: list[StratalogError] = []
    due_s: list[float] = []
    with Producer(cluster, acks="all", linger_ms=0) as producer:
        start = time.monotonic() + 0.1
        for number in range((loop.warm_s + loop.window_s) * loop.rate_per_s):
            due_s.append(start + number / loop.rate_per_s)
            time.sleep(max(0.0, due_s[-1] - time.monotonic()))
            value = f"{number:0{NUMBER_DIGITS}}".encode() + padding
            producer.send(
                topic, value, partition=number % loop.partitions,
                on_delivery=lambda _, error: failures.extend(filter(None, [error])),
            )  # fmt: skip
        producer.flush()
    if failures:
        raise failures[0]
    return due_s


@contextmanager
def _reader(module: str, tables: Sequence[str], count: int) -> Iterator[Callable[[], list[float]]]:
    """The reader's process, and how to have the times at which it saw the records, by their numbers."""
    command = [sys.executable, "-m", module, str(count), *tables]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline().strip() != READY:
                raise RuntimeError("the reader of time_to_table did not start")

            def seen_of() -> list[float]:
                text, _ = process.communicate(timeout=READ_WAIT_S)
                seen = dict(line.split() for line in text.splitlines())
                return [float(seen[str(number)]) for number in range(count)]

            yield seen_of
        finally:
            process.kill()


@dataclass(slots=True)
class FollowedTable:
    """One table, and the offset of the first row that was not read yet.

    open_file  opens the file of a path below the table
    """

    table: DeltaTable
    open_file: Callable[[str], pq.ParquetFile]
    next_offset: int = 0

    def new_values(self) -> list[bytes]:
        """The values of the rows that came since the last call; merges of small files bring none."""
        version = self.table.version()
        self.table.update_incremental()
        if self.table.version() == version:
            return []
        adds = pa.table(self.table.get_add_actions(flatten=True)).select([BASE_OFFSET, "num_records", "path"])
        new = adds.filter(pc.field(BASE_OFFSET) >= self.next_offset).sort_by(BASE_OFFSET)
        values: list[bytes] = []
        for add in new.to_pylist():
            with self.open_file(add["path"]) as file:
                values += file.read(columns=["value"])["value"].to_pylist()
            self.next_offset = add[BASE_OFFSET] + add["num_records"]
        return values


def main(arguments: Sequence[str]) -> None:
    """Print `<number> <seconds of the monotonic clock>` for each record, once all are there."""
    count, paths = int(arguments[0]), [path.removeprefix("file://") for path in arguments[1:]]
    tables = [FollowedTable(DeltaTable(path), partial(_file_below, path)) for path in paths]
    print(READY, flush=True)
    seen: dict[int, float] = {}
    while len(seen) < count:
        for table in tables:
            values = table.new_values()
            now_s = time.monotonic()
            seen.update((number_of(value), now_s) for value in values)
        time.sleep(POLL_PAUSE_S)
    print_seen(seen)


def print_seen(seen: Mapping[int, float]) -> None:
    """The lines that the reader's process prints."""
    for number, at_s in seen.items():
        print(number, at_s)


def number_of(value: bytes) -> int:
    """The number that a record's value begins with."""
    return int(value[:NUMBER_DIGITS])


def _file_below(folder: str, path: str) -> pq.ParquetFile:
    return pq.ParquetFile(f"{folder}/{path}")


if __name__ == "__main__":
    main(sys.argv[1:])
