"""The demo's two clients beside Spark: a closed loop that measures acknowledgements, and a consumer of the web log.

I/O: produces into a side topic, so that the verdict's topic holds the web log alone; reads that topic from storage.
"""

from __future__ import annotations

import threading
import time

import pyarrow as pa

from stratalog import Cluster, Consumer, Producer, StratalogError
from stratalog.jobs.demo.verdict import Ack, KeyedLine

ACK_TIMEOUT_S = 60.0
POLL_MS = 500


def now_ms() -> float:
    """The demo's one clock."""
    return time.perf_counter() * 1000


def pause(duration_ms: float) -> None:
    """Let the other threads work."""
    time.sleep(duration_ms / 1000)


class ClosedLoop:
    """A thread over all partitions in turn; `acks` grows while it runs. `pause_ms` after each answer leaves the
    cores to others; 0 at first."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        self.acks: list[Ack] = []
        self.failure: StratalogError | None = None
        self.pause_ms = 0
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="closed-loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the record under way. Raises what the producer could not overcome."""
        self._ended.set()
        self._thread.join(ACK_TIMEOUT_S)
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            with Producer(self._cluster, acks="all") as producer:
                self._warm_up(producer)
                while not self._ended.wait(self.pause_ms / 1000):
                    partition = len(self.acks) % self._partitions
                    sent_ms = now_ms()
                    producer.send(self._topic, b"%d" % len(self.acks), partition=partition).result(ACK_TIMEOUT_S)
                    self.acks.append(Ack(partition, sent_ms, now_ms()))
        except StratalogError as failure:
            self.failure = failure

    def _warm_up(self, producer: Producer) -> None:
        """The first acknowledgements wait until the followers' first fetch sessions run; that is not latency."""
        for partition in range(self._partitions):
            producer.send(self._topic, b"warm-up", partition=partition).result(ACK_TIMEOUT_S)


class Tail:
    """A thread that consumes a topic from its beginning, while leaders come and go."""

    def __init__(self, root: str, topic: str) -> None:
        self.count = 0
        self.failure: StratalogError | None = None
        self._root = root
        self._topic = topic
        self._tables: list[pa.Table] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tail", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> list[KeyedLine]:
        """End, and give what was consumed, in the order in which it came. Raises what ended it early."""
        self._ended.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure
        rows = [row for table in self._tables for row in table.select(["key", "value"]).to_pylist()]
        return [KeyedLine(row["key"].decode(), row["value"].decode()) for row in rows]

    def _run(self) -> None:
        try:
            with Consumer(self._root, auto_offset_reset="earliest") as consumer:
                consumer.assign_all(self._topic)
                while not self._ended.is_set():
                    table = consumer.poll_table(POLL_MS)
                    self._tables.append(table)
                    self.count += table.num_rows
                    self._ended.wait(POLL_MS / 1000)
        except StratalogError as failure:
            self.failure = failure
