"""The participants of a real run: writers, readers, an observer of high watermarks, a reader of the tables alone.

Each runs in a thread of its own until `stop` and writes what it does and sees into the `History`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.clients.records import RecordMetadata
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.replication.progress.progress import UNKNOWN, leader_progress_path
from stratalog.replication.progress.progress_object import ProgressReader
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import LogDirNotFoundError, StoreError, StratalogError, UnknownTopicOrPartitionError
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import TopicPartition
from tests.domains import replica_folder
from tests.lab.real.harness.history import ACK, FAIL, HIGH_WATERMARK, POLL, SEND, STORED, History, HistoryEvent
from tests.waiting import wait_until

POLL_PAUSE_S = 0.002
OUTSTANDING = 60
"""The most records that a writer has in flight: enough for group commits, few enough for a short history."""


class Party:
    """A thread that runs turns until it is stopped. `stop` raises the error of a turn."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self, timeout_s: float = 150) -> None:
        self._is_over.set()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"{self.name} did not end in {timeout_s} s"
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self.turn()
            self.finish()
        except BaseException as failure:  # noqa: BLE001 - `stop` raises it
            self._failure = failure

    def turn(self) -> None: ...

    def finish(self) -> None: ...


class Writer(Party):
    """An idempotent acks=all producer of keyed records `<name>-<key>:<number>`. One turn is a record of each key."""

    def __init__(
        self,
        cluster: Cluster | str,
        topic: str,
        history: History,
        name: str,
        key_count: int = 8,
        pause_s: float = 0.0,
        **settings: object,
    ) -> None:
        super().__init__(name)
        self._producer = Producer(cluster, **{"acks": "all", **settings})
        self._topic = topic
        self._history = history
        self._keys = [f"{name}-{number}" for number in range(key_count)]
        self._pause_s = pause_s
        self._number = 0
        self._free = threading.BoundedSemaphore(OUTSTANDING)

    def turn(self) -> None:
        self._number += 1
        for key in self._keys:
            self._send(key, f"{key}:{self._number}")
        time.sleep(self._pause_s)

    def _send(self, key: str, value: str) -> None:
        while not self._free.acquire(timeout=0.1):
            if self._is_over.is_set():
                return
        self._history.add(self.name, SEND, value=value)

        def answered(metadata: RecordMetadata | None, error: StratalogError | None) -> None:
            if metadata is not None:
                self._history.add(self.name, ACK, metadata.partition, metadata.offset, value=value)
            else:
                self._history.add(self.name, FAIL, value=f"{value} {type(error).__name__} {error}")
            self._free.release()

        self._producer.send(self._topic, value, key=key, on_delivery=answered)

    def finish(self) -> None:
        self._producer.flush(120)
        self._producer.close()


class Reader(Party):
    """A consumer that polls from the beginning on, until it is stopped."""

    def __init__(self, cluster: Cluster | str, topic: str, history: History, name: str) -> None:
        super().__init__(name)
        self._consumer = Consumer(cluster, auto_offset_reset="earliest")
        self._partitions = self._consumer.assign_all(topic)
        self._history = history

    def turn(self) -> None:
        for record in self._consumer.poll(100):
            value = (record.value or b"").decode()
            self._history.add(self.name, POLL, record.partition, record.offset, record.leader_epoch, value)

    def finish(self) -> None:
        """Read up to the present end."""
        ends = self._consumer.end_offsets(self._partitions)
        deadline = time.monotonic() + 60
        while any(self._consumer.position(tp) < end for tp, end in ends.items()):
            assert time.monotonic() < deadline, f"{self.name} does not reach {ends}"
            self.turn()
        self._consumer.close()


class HighWatermarkWatch(Party):
    """Reads the leaders' progress objects directly: a `ClusterView` would not show a watermark that goes back. In a
    storage domain it reads the tables, whose ends are committed."""

    def __init__(self, cluster: Cluster | str, topic: str, history: History, name: str = "watch") -> None:
        super().__init__(name)
        self._view = ClusterView(cluster)
        self._topic = topic
        self._history = history
        self._tables: dict[TopicPartition, LogReader] = {}
        self.seen: dict[TopicPartition, tuple[int, int]] = {}

    def turn(self) -> None:
        self._view.refresh()
        image = self._view.image
        states = [image.partition(tp) for tp in image.partitions_of(self._topic)]
        for state in (each for each in states if each.has_one_table):
            self._note_end(state)
        for leader in sorted({state.leader for state in states if not state.has_one_table} - {NO_LEADER}):
            broker = image.brokers[leader]
            objects = self._view.stores.objects(broker.registration.root)
            published = ProgressReader(objects, leader_progress_path(broker.broker_epoch))
            published.poll()
            for state in (s for s in states if s.leader == leader):
                entry = published.entries.get(state.topic_partition)
                if entry and entry.leader_epoch == state.leader_epoch and entry.high_watermark != UNKNOWN:
                    self._note(state.topic_partition, entry.leader_epoch, entry.high_watermark)
        time.sleep(POLL_PAUSE_S)

    def _note_end(self, state: PartitionRecord) -> None:
        place = state.topic_partition
        root = self._view.replica_root(place, state.replicas[0])
        if place not in self._tables and root is not None:
            self._tables[place] = LogReader(self._view.stores.table(root, place), self._view.clock)
        with suppress(LogDirNotFoundError, UnknownTopicOrPartitionError):  # it is not made yet
            log = self._tables[place]
            log.refresh()
            self._note(place, log.leader_epoch, log.log_end_offset)

    def _note(self, topic_partition: TopicPartition, epoch: int, high_watermark: int) -> None:
        if self.seen.get(topic_partition) != (epoch, high_watermark):
            self.seen[topic_partition] = (epoch, high_watermark)
            self._history.add(self.name, HIGH_WATERMARK, topic_partition.partition, high_watermark, epoch)

    def finish(self) -> None:
        self.turn()


def table_rows(table: Path) -> pa.Table:
    """A replica's records as deltalake alone sees them: offset, leader_epoch, value; by offset."""
    rows = DeltaTable(str(table)).to_pyarrow_table(columns=["base_offset", "offset_delta", "leader_epoch", "value"])
    offsets = pc.add(rows["base_offset"], rows["offset_delta"].cast(pa.int64()))
    columns = [offsets, rows["leader_epoch"], rows["value"]]
    return pa.table(columns, names=["offset", "leader_epoch", "value"]).sort_by("offset")


def note_replicas(history: History, cluster_path: Path, topic: str, broker_ids: Iterable[int], partitions: int) -> None:
    """Record, as `stored` by each broker, all records of its tables of the topic."""
    for broker_id in broker_ids:
        for partition in range(partitions):
            rows = table_rows(replica_folder(cluster_path, broker_id, topic, partition))
            for offset, epoch, value in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                history.add(f"broker-{broker_id}", STORED, partition, offset, epoch, value.decode())


def events_with_replicas(
    history: History, cluster_path: Path, topic: str, broker_ids: Sequence[int], partitions: int, timeout_s: float = 120
) -> list[HistoryEvent]:
    """Wait until all replicas are equal and record them; every event of the history, which is closed."""
    wait_until(lambda: replicas_are_equal(cluster_path, topic, broker_ids, partitions), "equal replicas", timeout_s)
    note_replicas(history, cluster_path, topic, broker_ids, partitions)
    history.close()
    return history.events()


def replicas_are_equal(cluster_path: Path, topic: str, broker_ids: Sequence[int], partitions: int) -> bool:
    """True when all replicas hold the same records; False also while one cannot be read, as during a merge."""
    try:
        for partition in range(partitions):
            first, *others = (table_rows(replica_folder(cluster_path, i, topic, partition)) for i in broker_ids)
            if any(rows != first for rows in others):
                return False
    except (OSError, StoreError, LogDirNotFoundError):
        return False
    return True
