"""The load: writers whose every acknowledgement is kept, a reader, and an observer of leaders.

I/O: the cluster's clients, in this process, which keeps running when brokers lose power.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass

from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.clients.records import RecordMetadata
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import StratalogError
from tests.lab.real.harness.parties import Party
from tests.lab.real.power.judge import Ack, Poll

OUTSTANDING = 40


@dataclass(slots=True)
class Counts:
    """What clients did."""

    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    polled: int = 0


class Ledger:
    """All acknowledgements and polls, thread-safe. `errors` counts failed sends by the error's class."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acks: list[Ack] = []
        self._polls: list[Poll] = []
        self.counts = Counts()
        self.errors: dict[str, int] = defaultdict(int)

    def sent(self) -> None:
        with self._lock:
            self.counts.sent += 1

    def acknowledged(self, ack: Ack) -> None:
        with self._lock:
            self._acks.append(ack)
            self.counts.acknowledged += 1

    def failed(self, error: StratalogError | None) -> None:
        with self._lock:
            self.counts.failed += 1
            self.errors[type(error).__name__] += 1

    def polled(self, polls: list[Poll]) -> None:
        with self._lock:
            self._polls += polls
            self.counts.polled += len(polls)

    def collect(self) -> tuple[list[Ack], list[Poll]]:
        """The acknowledgements and polls since the last call."""
        with self._lock:
            acks, self._acks = self._acks, []
            polls, self._polls = self._polls, []
        return acks, polls


class LedgerWriter(Party):
    """An idempotent acks=all producer of values `<name>:<number>`; after an error that ends it, a new one."""

    def __init__(self, root: str, topics: tuple[str, ...], ledger: Ledger, name: str, pause_s: float) -> None:
        super().__init__(name)
        self._root, self._topics, self._ledger, self._pause_s = root, topics, ledger, pause_s
        self._number = 0
        self._free = threading.BoundedSemaphore(OUTSTANDING)
        self._producer: Producer | None = None
        self._is_spoilt = False

    def turn(self) -> None:
        if self._is_spoilt or self._producer is None:
            self._renew()
            return
        for topic in self._topics:
            self._number += 1
            self._send(self._producer, topic, f"{self.name}:{self._number}")
        time.sleep(self._pause_s)

    def _renew(self) -> None:
        """A producer that failed has lost its place in the sequence; Kafka's clients are closed then, too."""
        if self._producer is not None:
            old, self._producer = self._producer, None
            threading.Thread(target=_close, args=[old], daemon=True).start()
        try:
            self._producer = Producer(self._root, acks="all", delivery_timeout_ms=60_000, request_timeout_ms=5_000)
            self._is_spoilt = False
        except StratalogError:  # the metadata root is away
            time.sleep(0.1)

    def _send(self, producer: Producer, topic: str, value: str) -> None:
        while not self._free.acquire(timeout=0.1):
            if self._is_over.is_set():
                return
        sent_s = time.monotonic()
        self._ledger.sent()

        def answered(metadata: RecordMetadata | None, error: StratalogError | None) -> None:
            if metadata is not None:
                place = topic, metadata.partition
                self._ledger.acknowledged(Ack(place, metadata.offset, value, sent_s, time.monotonic()))
            else:
                self._ledger.failed(error)
                self._is_spoilt = True
            self._free.release()

        try:
            producer.send(topic, value, key=value, on_delivery=answered)
        except StratalogError as error:
            self._ledger.failed(error)
            self._free.release()
            self._is_spoilt = True

    def finish(self) -> None:
        if self._producer is not None:
            _close(self._producer)


def _close(producer: Producer) -> None:
    with suppress(StratalogError):
        producer.close(30)


class LedgerReader(Party):
    """A consumer of all partitions of some topics, from the beginning on; it begins again after an error."""

    def __init__(self, root: str, topics: tuple[str, ...], ledger: Ledger, name: str) -> None:
        super().__init__(name)
        self._root, self._topics, self._ledger = root, topics, ledger
        self._consumer: Consumer | None = None

    def turn(self) -> None:
        try:
            if self._consumer is None:
                self._consumer = Consumer(self._root, auto_offset_reset="earliest")
                view = ClusterView(self._root)
                view.refresh()
                self._consumer.assign([tp for topic in self._topics for tp in view.image.partitions_of(topic)])
            now_s = time.monotonic()
            self._ledger.polled([
                Poll((r.topic, r.partition), r.offset, r.leader_epoch, (r.value or b"").decode(), now_s)
                for r in self._consumer.poll(100)
            ])  # fmt: skip
        except StratalogError:
            time.sleep(0.1)

    def finish(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
