"""The demo's closed loop: one acks=all producer that sends a record, waits for its acknowledgement, sends the next.

I/O: produces into a side topic of the cluster, so that the verdict's topic holds the web log alone.
"""

from __future__ import annotations

import threading
import time

from clients import Cluster, Producer, StratalogError
from jobs.demo_verdict import Ack

PAUSE_S = 0.02
ACK_TIMEOUT_S = 60.0


def now_ms() -> float:
    """The demo's one clock."""
    return time.perf_counter() * 1000


class ClosedLoop:
    """A thread over all partitions in turn; `acks` grows while it runs. A short pause after each answer leaves
    the cores to the rest of the demo."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        self.acks: list[Ack] = []
        self.failure: StratalogError | None = None
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
                while not self._ended.wait(PAUSE_S):
                    partition = len(self.acks) % self._partitions
                    sent_ms = now_ms()
                    producer.send(self._topic, b"%d" % len(self.acks), partition=partition).result(ACK_TIMEOUT_S)
                    self.acks.append(Ack(partition, sent_ms, now_ms()))
        except StratalogError as failure:
            self.failure = failure
