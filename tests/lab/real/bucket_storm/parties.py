"""The writer of a storm on a bucket, and the brokers' processes there. I/O: processes, sockets, threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from kafka import KafkaProducer

from tests.lab.foreign.served import HOST, free_ports
from tests.lab.real.harness.broker_processes import BROKERS, LAUNCHER, BrokerProcess
from tests.lab.real.harness.history import ACK, FAIL, SEND, History
from tests.lab.real.harness.parties import OUTSTANDING, Party


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """Where a broker's process runs: its host's address, and what starts a process there."""

    address: str = HOST
    launcher: Sequence[str] = LAUNCHER


HERE = MappingProxyType(dict.fromkeys(BROKERS, BrokerPlace()))


class BucketBrokers:
    """Three brokers, each a process, whose roots lie in one bucket. At the end of a `with` block all are killed."""

    def __init__(
        self, folder: Path, url: str, settings: Mapping[str, object], places: Mapping[int, BrokerPlace] = HERE
    ) -> None:
        """`folder`: for what they print."""
        self.url = url
        self.metadata_root = f"{url}/metadata"
        ports = dict(zip(BROKERS, free_ports(len(BROKERS)), strict=True))
        self._addresses = {i: f"{places[i].address}:{ports[i]}" for i in BROKERS}
        self.by_id = {
            i: BrokerProcess(folder, i, {**settings, **self._own(i)}, "thread", places[i].launcher) for i in BROKERS
        }

    def _own(self, broker_id: int) -> dict[str, object]:
        return {
            "log.dirs": f"{self.url}/broker-{broker_id}",
            "stratalog.metadata.root": self.metadata_root,
            "listeners": f"PLAINTEXT://{self._addresses[broker_id]}",
        }

    @property
    def bootstrap(self) -> list[str]:
        """`bootstrap.servers`."""
        return list(self._addresses.values())

    def __getitem__(self, broker_id: int) -> BrokerProcess:
        return self.by_id[broker_id]

    def stop(self) -> dict[int, int]:
        """A controlled shutdown, one after the other; the exit codes."""
        return {broker_id: broker.stop() for broker_id, broker in self.by_id.items()}

    def __enter__(self) -> Self:
        try:
            self.by_id[1].start()
            self.by_id[1].await_started()
            for broker_id in BROKERS[1:]:
                self.by_id[broker_id].start()
            for broker in self.by_id.values():
                broker.await_started()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._kill()

    def _kill(self) -> None:
        for broker in self.by_id.values():
            if broker.is_running:
                broker.kill()


class SocketWriter(Party):
    """An idempotent producer of kafka-python with acks=all: a record `<name>-<partition>:<number>` for each partition
    in turn, a number of them in flight."""

    def __init__(self, bootstrap: list[str], topic: str, partitions: int, history: History, name: str) -> None:
        super().__init__(name)
        self._producer: Any = KafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=0, request_timeout_ms=5_000,
            delivery_timeout_ms=120_000, max_block_ms=120_000, metadata_max_age_ms=5_000,
        )  # fmt: skip
        self._topic, self._partitions = topic, partitions
        self._history = history
        self._number = 0
        self._free = threading.BoundedSemaphore(OUTSTANDING)

    def turn(self) -> None:
        self._number += 1
        for partition in range(self._partitions):
            self._send(partition, f"{self.name}-{partition}:{self._number}")
        time.sleep(0.05)

    def _send(self, partition: int, value: str) -> None:
        while not self._free.acquire(timeout=0.1):
            if self._is_over.is_set():
                return
        self._history.add(self.name, SEND, partition, value=value)
        sent = self._producer.send(self._topic, value.encode(), partition=partition)
        sent.add_callback(partial(self._acked, value)).add_errback(partial(self._failed, partition, value))

    def _acked(self, value: str, found: Any) -> None:
        self._history.add(self.name, ACK, found.partition, found.offset, value=value)
        self._free.release()

    def _failed(self, partition: int, value: str, error: BaseException) -> None:
        self._history.add(self.name, FAIL, partition, value=f"{value} {type(error).__name__} {error}")
        self._free.release()

    def finish(self) -> None:
        self._producer.flush(120)
        self._producer.close()
