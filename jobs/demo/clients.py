"""The demo's two clients beside Spark: a closed loop that measures acknowledgements, and a consumer of the web log.

I/O: produces into a side topic, so that the verdict's topic holds the web log alone; reads that topic from storage.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod

import pyarrow as pa

from stratalog import Cluster, Consumer, Producer, StratalogError
from stratalog.jobs.demo.verdict import Ack, KeyedLine

ACK_TIMEOUT_S = 60.0
POLL_MS = 500


def now_ms() -> float:
    """The demo's clock."""
    return time.perf_counter() * 1000


def pause(duration_ms: float) -> None:
    """Sleep."""
    time.sleep(duration_ms / 1000)


class _Client(threading.Thread, ABC):
    """A client in a thread, until `end`. `failure` is the error that ended it early."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.failure: StratalogError | None = None
        self._ended = threading.Event()

    def run(self) -> None:
        try:
            self._work()
        except StratalogError as failure:
            self.failure = failure

    @abstractmethod
    def _work(self) -> None:
        """Run until `_ended` is set."""

    def end(self) -> None:
        """End after the current record or poll. Raises `failure`, if any."""
        self._ended.set()
        self.join(ACK_TIMEOUT_S)
        if self.failure is not None:
            raise self.failure


class ClosedLoop(_Client):
    """Sends one record at a time, to the partitions in turn; `acks` grows while it runs. `pause_ms`, 0 at first, is its
    pause after each acknowledgement."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        super().__init__("closed-loop")
        self.acks: list[Ack] = []
        self.pause_ms = 0
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions

    def _work(self) -> None:
        with Producer(self._cluster, acks="all") as producer:
            self._warm_up(producer)
            while not self._ended.wait(self.pause_ms / 1000):
                partition = len(self.acks) % self._partitions
                sent_ms = now_ms()
                producer.send(self._topic, b"%d" % len(self.acks), partition=partition).result(ACK_TIMEOUT_S)
                self.acks.append(Ack(partition, sent_ms, now_ms()))

    def _warm_up(self, producer: Producer) -> None:
        """Send one record to each partition: the first ones wait for the followers' fetch sessions to start."""
        for partition in range(self._partitions):
            producer.send(self._topic, b"warm-up", partition=partition).result(ACK_TIMEOUT_S)


class Tail(_Client):
    """Consumes a topic from its beginning, while leaders come and go."""

    def __init__(self, root: str, topic: str) -> None:
        super().__init__("tail")
        self.count = 0
        self._root = root
        self._topic = topic
        self._tables: list[pa.Table] = []

    def consumed(self) -> list[KeyedLine]:
        """The records so far, in their order."""
        rows = [row for table in self._tables for row in table.select(["key", "value"]).to_pylist()]
        return [KeyedLine(row["key"].decode(), row["value"].decode()) for row in rows]

    def _work(self) -> None:
        with Consumer(self._root, auto_offset_reset="earliest") as consumer:
            consumer.assign_all(self._topic)
            while not self._ended.is_set():
                table = consumer.poll_table(POLL_MS)
                self._tables.append(table)
                self.count += table.num_rows
                self._ended.wait(POLL_MS / 1000)
