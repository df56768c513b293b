"""What the benches share: one peer, one Spark session, new clusters of ours, payloads, and the number of rounds.

I/O: everything lies below one temporary folder. Each side stays up while the other is measured; `idle_cpu` measures
what that costs.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession

from stratalog import Admin, Cluster
from stratalog.replication.spark.session import stratalog_session
from tests.lab.bench.measures import Row
from tests.lab.bench.payload import Payload
from tests.lab.bench.peer.kafka import Kafka

BROKERS = 3
PEER_SETTINGS = {"log.segment.delete.delay.ms": 1_000}
"""Beside Kafka's defaults: the files of a deleted topic are gone soon, since data on tmpfs is memory."""
PARTITIONS = 6
FETCH_SLOTS = 2 * BROKERS
"""Two overlapping fetch sessions for each broker (`stratalog.fetch.sessions`)."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One request of an open loop: when it was due, seconds from the start of the window, and how long it took."""

    due_s: float
    latency_ms: float


@dataclass(frozen=True, slots=True)
class Window:
    """One window of an open loop; `hand_overs_s`: when a fetch session became active, by broker."""

    ours: tuple[Moment, ...]
    peer: tuple[Moment, ...]
    hand_overs_s: Mapping[int, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Curve:
    """A figure over a run."""

    title: str
    at: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A bench's results: rows for the table, sentences for the reader, at most one window to draw, and curves.

    curves  by the picture's name: what `at` is, and the curves one above the other
    """

    rows: list[Row]
    notes: tuple[str, ...] = ()
    window: Window | None = None
    curves: Mapping[str, tuple[str, Sequence[Curve]]] = field(default_factory=dict)


@dataclass
class Lab:
    """The surroundings of a run.

    rounds                            how often each side is measured, ours and the peer in turns
    busy_minutes, busy_commits_per_s  of `busy_log`
    """

    folder: Path
    rounds: int = 3
    busy_minutes: int = 30
    busy_commits_per_s: int = 400
    _peer: Kafka | None = None
    _payloads: dict[int, Payload] = field(default_factory=dict)
    _count: int = 0

    def payload(self, size_bytes: int) -> Payload:
        """The records of this size, the same for all benches."""
        if size_bytes not in self._payloads:
            self._payloads[size_bytes] = Payload.make(self.folder, size_bytes)
        return self._payloads[size_bytes]

    @property
    def peer(self) -> Kafka:
        """The Kafka of this run, started at the first use."""
        if self._peer is None:
            show("starting Kafka")
            self._peer = Kafka.start(self.folder / self.fresh("kafka"), settings=PEER_SETTINGS)
        return self._peer

    def stop_peer(self) -> None:
        """Stop Kafka's processes and keep its files: removing many would slow the disk down for the next measurement.
        The next use starts another Kafka."""
        if self._peer is not None:
            self._peer.stop()
            self._peer = None

    @cached_property
    def spark(self) -> SparkSession:
        """The session in which our followers fetch."""
        return stratalog_session("stratalog bench", fetch_slots=FETCH_SLOTS, log_dir=self.folder / "spark")

    @contextmanager
    def cluster(self, **config: object) -> Iterator[Cluster]:
        """Three brokers of ours on fresh directories; settings by their names with underscores."""
        named = {name.replace("_", "."): value for name, value in config.items()}
        path = self.folder / self.fresh("cluster")
        with Cluster.start(path, BROKERS, spark=self.spark, config=named) as cluster:
            yield cluster
        shutil.rmtree(path, ignore_errors=True)

    def fresh(self, stem: str) -> str:
        """A name that was not returned before."""
        self._count += 1
        return f"{stem}-{self._count}"

    def topic(self, cluster: Cluster, stem: str, partitions: int = PARTITIONS, **configs: object) -> str:
        """A new topic of ours, three replicas, `min.insync.replicas=2`."""
        name = self.fresh(stem)
        Admin(cluster).create_topic(name, partitions, BROKERS, None, min_insync_replicas=2, **configs)
        return name

    def peer_topic(self, stem: str, partitions: int = PARTITIONS) -> str:
        """A new topic of the peer's, likewise."""
        name = self.fresh(stem)
        self.peer.create_topic(name, partitions)
        return name

    def close(self) -> None:
        """Stop what was started, Kafka first: after Ctrl-C Spark's JVM may have ended already."""
        self.stop_peer()
        if "spark" in self.__dict__:
            self.spark.stop()

    @property
    def peer_pids(self) -> list[int]:
        """The brokers of the peer, which are children of this process; none when it was not started."""
        return self._peer.pids if self._peer else []

    @property
    def own_pids(self) -> list[int]:
        """This process, with the embedded cluster, its JVM and its workers, but without the peer."""
        return [os.getpid()]


def show(text: str) -> None:
    """A line of progress on standard error; figures go to standard output."""
    print(f"# {text}", file=sys.stderr, flush=True)
