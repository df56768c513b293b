"""Recording a history: the file, and a producer and a consumer that record their calls.

I/O: appends lines to one file, from any number of threads and processes; each line is one write, which a kill cannot
split.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path

from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.clients.records import ConsumerRecord, RecordFuture, RecordMetadata
from stratalog.storage.clock import Clock, SystemClock
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition
from tests.lab.history.history import ABORT, ACK, FAIL, POLL, SEEK, SEND, UNKNOWN, HistoryEvent, parse_events

ValueId = Callable[[bytes], str]
"""The id of a record by its value; no two records have the same."""


def as_text(value: bytes) -> str:
    """The whole value is the id; bytes that are no UTF-8 as escapes."""
    return value.decode("utf-8", "backslashreplace")


class History:
    """A history's file. `counts`: events of each kind that this object wrote."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self.path = path
        self.counts: dict[str, int] = defaultdict(int)
        self._clock = clock or SystemClock()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._lock = threading.Lock()

    def add(
        self,
        client: str,
        kind: str,
        partition: int = UNKNOWN,
        offset: int = UNKNOWN,
        epoch: int = UNKNOWN,
        value: str = "",
        topic: str = "",
        call: int = UNKNOWN,
        txn: str = "",
    ) -> None:
        """Write one event, dated now."""
        now_ms = self._clock.monotonic_ms()
        event = HistoryEvent(now_ms, client, kind, partition, offset, epoch, value, topic, call, txn)
        os.write(self._file, event.to_line().encode())
        with self._lock:
            self.counts[kind] += 1

    def close(self) -> None:
        os.close(self._file)

    def events(self) -> list[HistoryEvent]:
        """All events of the file, of every writer."""
        return read_events(self.path)


def read_events(path: Path) -> list[HistoryEvent]:
    """The events of all whole lines; a missing file is an empty history. CorruptMessageError for another line."""
    if not path.exists():
        return []
    return list(parse_events(path.read_text(encoding="utf-8").splitlines(keepends=True)))


class RecordingProducer:
    """Sends through a `Producer` and records sends and outcomes. `client` is its name in the history.

    >>> sender = RecordingProducer(Producer(cluster), history, "p1")  # doctest: +SKIP
    >>> sender.send("events", "p1:1")  # doctest: +SKIP
    """

    def __init__(self, producer: Producer, history: History, client: str, value_id: ValueId = as_text) -> None:
        self.producer = producer
        self._history = history
        self._client = client
        self._value_id = value_id
        self._calls = count(1)
        self._lock = threading.Lock()

    def send(
        self, topic: str, value: bytes | str, key: bytes | str | None = None, partition: int | None = None
    ) -> RecordFuture:
        """As `Producer.send`. Calls of several threads are serialized, in the order of their numbers."""
        name = self._value_id(value.encode() if isinstance(value, str) else value)
        with self._lock:
            call = next(self._calls)
            self._history.add(self._client, SEND, value=name, topic=topic, call=call)

            def answered(metadata: RecordMetadata | None, error: StratalogError | None) -> None:
                self._record_answer(topic, name, call, metadata, error)

            try:
                return self.producer.send(topic, value, key, partition, on_delivery=answered)
            except StratalogError:
                self._history.add(self._client, ABORT, value=name, topic=topic, call=call)
                raise

    def _record_answer(
        self, topic: str, name: str, call: int, metadata: RecordMetadata | None, error: StratalogError | None
    ) -> None:
        if metadata is not None:
            place = (metadata.partition, metadata.offset)
            self._history.add(self._client, ACK, *place, value=name, topic=topic, call=call)
        else:
            text = f"{name} {error.name if error is not None else ''} {error}"
            self._history.add(self._client, FAIL, value=text, topic=topic, call=call)

    def flush(self, timeout: float | None = None) -> None:
        self.producer.flush(timeout)

    def close(self, timeout: float | None = None) -> None:
        self.producer.close(timeout)


class RecordingConsumer:
    """Polls through a `Consumer` and records the records. `client` is its name in the history."""

    def __init__(self, consumer: Consumer, history: History, client: str, value_id: ValueId = as_text) -> None:
        self.consumer = consumer
        self._history = history
        self._client = client
        self._value_id = value_id
        self._calls = count(1)

    def assign(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.assign`, recorded as a seek to an unknown offset."""
        wanted = list(topic_partitions)
        self.consumer.assign(wanted)
        for topic_partition in wanted:
            self._record_seek(topic_partition, UNKNOWN)

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """As `Consumer.seek`."""
        self.consumer.seek(topic_partition, offset)
        self._record_seek(topic_partition, offset)

    def seek_to_beginning(self, topic_partitions: Iterable[TopicPartition] = ()) -> None:
        """As `Consumer.seek_to_beginning`."""
        wanted = list(topic_partitions) or sorted(self.consumer.assignment())
        starts = self.consumer.beginning_offsets(wanted)
        self.consumer.seek_to_beginning(wanted)
        for topic_partition in wanted:
            self._record_seek(topic_partition, starts[topic_partition])

    def _record_seek(self, topic_partition: TopicPartition, offset: int) -> None:
        self._history.add(self._client, SEEK, topic_partition.partition, offset, topic=topic_partition.topic)

    def poll(self, timeout_ms: int = 0) -> list[ConsumerRecord]:
        """As `Consumer.poll`."""
        call = next(self._calls)
        records = self.consumer.poll(timeout_ms)
        for record in records:
            place, name = (record.partition, record.offset), self._value_id(record.value or b"")
            self._history.add(self._client, POLL, *place, record.leader_epoch, name, record.topic, call)
        return records

    def close(self) -> None:
        self.consumer.close()
