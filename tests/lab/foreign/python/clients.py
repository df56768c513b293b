"""Three Kafka clients behind one face; settings have Kafka's names. Each is called as its users call it."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import aiokafka
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

WAIT_S = 60
POLL_S = 0.1
JOIN_POLL_MS = 1_000
"""kafka-python joins a group within a poll: one that ends before the other members have joined ends the join, too."""
TopicPartition = tuple[str, int]
"""(topic, partition)"""


@dataclass(frozen=True, slots=True)
class Seen:
    """A record that a client read."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


class Reader(ABC):
    """A consumer. `revoked` are the partitions of each call of its listener. In a `with` block."""

    revoked: list[set[TopicPartition]]

    @abstractmethod
    def assign(self, partitions: Iterable[TopicPartition], offset: int = 0) -> None: ...
    @abstractmethod
    def subscribe(self, topic: str) -> None: ...
    @abstractmethod
    def poll(self) -> list[Seen]:
        """Records that are there, after waiting a little for them."""

    @abstractmethod
    def assignment(self) -> set[TopicPartition]: ...
    @abstractmethod
    def commit(self) -> None:
        """Commit the positions, and wait."""

    @abstractmethod
    def committed(self, partition: TopicPartition) -> int | None: ...
    @abstractmethod
    def seek(self, partition: TopicPartition, offset: int) -> None: ...
    @abstractmethod
    def ends(self, partition: TopicPartition) -> tuple[int, int]:
        """(first offset, end)"""

    @abstractmethod
    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """The first offset with this timestamp or a later one."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class Writer(ABC):
    """A producer. In a `with` block."""

    @abstractmethod
    def send(self, topic: str, value: bytes, partition: int, key: bytes | None = None, timestamp_ms: int = 0) -> None:
        """Give a record with a header to the producer."""

    @abstractmethod
    def flush(self) -> None:
        """Wait for every record; raises what became of one that failed."""

    @abstractmethod
    def init_transactions(self) -> None: ...
    @abstractmethod
    def begin(self) -> None: ...
    @abstractmethod
    def send_offsets(self, offsets: Mapping[TopicPartition, int], reader: Reader, group: str) -> None: ...
    @abstractmethod
    def commit(self) -> None: ...
    @abstractmethod
    def abort(self) -> None: ...
    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class PythonClient(ABC):
    """One client library."""

    name: ClassVar[str]
    version: ClassVar[str]
    assignors: ClassVar[Mapping[str, object]]
    """Assignors by Kafka's names, as this client's setting `partition.assignment.strategy` takes them."""
    fenced: ClassVar[str] = "(?i)fenced"
    """What the error of a producer with an old epoch matches."""

    @abstractmethod
    def writer(self, bootstrap: str, settings: Mapping[str, Any]) -> Writer: ...
    @abstractmethod
    def reader(self, bootstrap: str, settings: Mapping[str, Any]) -> Reader: ...


HEADERS = [("source", b"check")]


# -- confluent-kafka ---------------------------------------------------------------------------------------


class Confluent(PythonClient):
    name, version = "confluent-kafka", f"{confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}"
    assignors: ClassVar = {"range": "range", "cooperative-sticky": "cooperative-sticky"}

    def writer(self, bootstrap: str, settings: Mapping[str, Any]) -> Writer:
        return _ConfluentWriter({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})

    def reader(self, bootstrap: str, settings: Mapping[str, Any]) -> Reader:
        own = {"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        return _ConfluentReader({"bootstrap.servers": bootstrap, **own, **settings})


class _ConfluentWriter(Writer):
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._producer = confluent_kafka.Producer(settings)
        self._errors: list[confluent_kafka.KafkaError] = []

    def send(self, topic: str, value: bytes, partition: int, key: bytes | None = None, timestamp_ms: int = 0) -> None:
        self._producer.produce(
            topic, value, key, partition, on_delivery=self._delivered, timestamp=timestamp_ms, headers=HEADERS
        )
        self._producer.poll(0)

    def _delivered(self, error: confluent_kafka.KafkaError | None, _message: object) -> None:
        if error is not None:
            self._errors.append(error)

    def flush(self) -> None:
        left = self._producer.flush(WAIT_S)
        assert left == 0, f"{left} records are still under way"
        if self._errors:
            raise confluent_kafka.KafkaException(self._errors[0])

    def init_transactions(self) -> None:
        self._producer.init_transactions(WAIT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send_offsets(self, offsets: Mapping[TopicPartition, int], reader: Reader, group: str) -> None:
        assert isinstance(reader, _ConfluentReader)
        found = [confluent_kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        self._producer.send_offsets_to_transaction(found, reader.consumer.consumer_group_metadata(), WAIT_S)

    def commit(self) -> None:
        self._producer.commit_transaction(WAIT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(WAIT_S)

    def close(self) -> None:
        self._producer.flush(WAIT_S)


class _ConfluentReader(Reader):
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.consumer = confluent_kafka.Consumer(settings)
        self.revoked = []

    def assign(self, partitions: Iterable[TopicPartition], offset: int = 0) -> None:
        self.consumer.assign([confluent_kafka.TopicPartition(*partition, offset) for partition in partitions])

    def subscribe(self, topic: str) -> None:
        self.consumer.subscribe([topic], on_revoke=self._on_revoke)

    def _on_revoke(self, _consumer: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.revoked.append({(each.topic, each.partition) for each in partitions})

    def poll(self) -> list[Seen]:
        found = self.consumer.consume(500, POLL_S)
        for message in found:
            if message.error() is not None:
                raise confluent_kafka.KafkaException(message.error())
        return [
            Seen(
                each.topic(), each.partition(), each.offset(), each.key(), each.value(),
                tuple(each.headers() or ()), each.timestamp()[1],
            )
            for each in found
        ]  # fmt: skip

    def assignment(self) -> set[TopicPartition]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def committed(self, partition: TopicPartition) -> int | None:
        (found,) = self.consumer.committed([confluent_kafka.TopicPartition(*partition)], WAIT_S)
        return found.offset if found.offset >= 0 else None

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.consumer.seek(confluent_kafka.TopicPartition(*partition, offset))

    def ends(self, partition: TopicPartition) -> tuple[int, int]:
        return self.consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*partition), WAIT_S)

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        asked = confluent_kafka.TopicPartition(*partition, timestamp_ms)
        return self.consumer.offsets_for_times([asked], WAIT_S)[0].offset

    def close(self) -> None:
        self.consumer.close()


# -- kafka-python ------------------------------------------------------------------------------------------


def with_underscores(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as kafka-python and aiokafka name them.

    >>> with_underscores({"compression.type": "none", "acks": "1"})
    {'compression_type': None, 'acks': 1}
    """
    found = {name.replace(".", "_"): value for name, value in settings.items()}
    if found.get("compression_type") == "none":
        found["compression_type"] = None
    if found.get("acks", "all") != "all":
        found["acks"] = int(found["acks"])
    return found


class KafkaPython(PythonClient):
    name, version = "kafka-python", kafka.__version__
    assignors: ClassVar = {"range": [RangePartitionAssignor], "cooperative-sticky": [CooperativeStickyAssignor]}

    def writer(self, bootstrap: str, settings: Mapping[str, Any]) -> Writer:
        return _KafkaPythonWriter({"bootstrap_servers": bootstrap, "linger_ms": 5, **with_underscores(settings)})

    def reader(self, bootstrap: str, settings: Mapping[str, Any]) -> Reader:
        own = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}
        return _KafkaPythonReader({"bootstrap_servers": bootstrap, **own, **with_underscores(settings)})


class _KafkaPythonWriter(Writer):
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._producer = kafka.KafkaProducer(**settings)
        self._futures: list[Any] = []

    def send(self, topic: str, value: bytes, partition: int, key: bytes | None = None, timestamp_ms: int = 0) -> None:
        self._futures.append(
            self._producer.send(topic, value, key, HEADERS, partition=partition, timestamp_ms=timestamp_ms or None)
        )

    def flush(self) -> None:
        self._producer.flush(WAIT_S)
        futures, self._futures = self._futures, []
        for each in futures:
            each.get(WAIT_S)

    def init_transactions(self) -> None:
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send_offsets(self, offsets: Mapping[TopicPartition, int], reader: Reader, group: str) -> None:
        assert isinstance(reader, _KafkaPythonReader)
        found = {
            kafka.TopicPartition(*partition): kafka.OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }
        self._producer.send_offsets_to_transaction(found, reader.consumer.group_metadata())

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._futures.clear()
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(WAIT_S)


class _KafkaPythonReader(Reader, kafka.ConsumerRebalanceListener):
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.consumer = kafka.KafkaConsumer(**settings)
        self.revoked = []

    def assign(self, partitions: Iterable[TopicPartition], offset: int = 0) -> None:
        found = [kafka.TopicPartition(*partition) for partition in partitions]
        self.consumer.assign(found)
        for each in found:
            self.consumer.seek(each, offset)

    def subscribe(self, topic: str) -> None:
        self.consumer.subscribe([topic], listener=self)

    def on_partitions_revoked(self, revoked: Iterable[kafka.TopicPartition]) -> None:
        if revoked:
            self.revoked.append({tuple(each) for each in revoked})

    def on_partitions_assigned(self, assigned: Iterable[kafka.TopicPartition]) -> None:
        """The assignment is asked for."""

    def poll(self) -> list[Seen]:
        found = self.consumer.poll(JOIN_POLL_MS)
        return [
            Seen(each.topic, each.partition, each.offset, each.key, each.value, tuple(each.headers), each.timestamp)
            for records in found.values()
            for each in records
        ]

    def assignment(self) -> set[TopicPartition]:
        return {tuple(each) for each in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit()

    def committed(self, partition: TopicPartition) -> int | None:
        return self.consumer.committed(kafka.TopicPartition(*partition))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.consumer.seek(kafka.TopicPartition(*partition), offset)

    def ends(self, partition: TopicPartition) -> tuple[int, int]:
        asked = kafka.TopicPartition(*partition)
        return self.consumer.beginning_offsets([asked])[asked], self.consumer.end_offsets([asked])[asked]

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        asked = kafka.TopicPartition(*partition)
        return self.consumer.offsets_for_times({asked: timestamp_ms})[asked].offset

    def close(self) -> None:
        self.consumer.close(autocommit=False)


# -- aiokafka ----------------------------------------------------------------------------------------------


class LoopThread:
    """An event loop in a thread of its own, for calls from others."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(call, self.loop).result(WAIT_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WAIT_S)
        self.loop.close()


class Aiokafka(PythonClient):
    name, version = "aiokafka", aiokafka.__version__
    assignors: ClassVar = {"range": [AioRange]}

    def writer(self, bootstrap: str, settings: Mapping[str, Any]) -> Writer:
        return _AiokafkaWriter({"bootstrap_servers": bootstrap, "linger_ms": 5, **with_underscores(settings)})

    def reader(self, bootstrap: str, settings: Mapping[str, Any]) -> Reader:
        own = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "metadata_max_age_ms": 3_000}
        return _AiokafkaReader({"bootstrap_servers": bootstrap, **own, **with_underscores(settings)})


class _AiokafkaWriter(Writer):
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._thread = LoopThread()
        self._futures: list[Any] = []
        self._producer: aiokafka.AIOKafkaProducer = self._thread.run(self._start(settings))

    async def _start(self, settings: Mapping[str, Any]) -> aiokafka.AIOKafkaProducer:
        producer = aiokafka.AIOKafkaProducer(**settings)
        await producer.start()
        return producer

    def send(self, topic: str, value: bytes, partition: int, key: bytes | None = None, timestamp_ms: int = 0) -> None:
        call = self._producer.send(topic, value, key, partition, timestamp_ms=timestamp_ms or None, headers=HEADERS)
        self._futures.append(self._thread.run(call))

    def flush(self) -> None:
        futures, self._futures = self._futures, []
        self._thread.run(_gathered(futures))

    def init_transactions(self) -> None:
        """`start` did it."""

    def begin(self) -> None:
        self._thread.run(self._producer.begin_transaction())

    def send_offsets(self, offsets: Mapping[TopicPartition, int], reader: Reader, group: str) -> None:
        found = {aiokafka.TopicPartition(*partition): offset for partition, offset in offsets.items()}
        self._thread.run(self._producer.send_offsets_to_transaction(found, group))

    def commit(self) -> None:
        self._thread.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._futures.clear()
        self._thread.run(self._producer.abort_transaction())

    def close(self) -> None:
        try:
            self._thread.run(self._producer.stop())
        finally:
            self._thread.close()


async def _gathered(futures: Iterable[Any]) -> None:
    for each in futures:
        await each


class _AiokafkaReader(Reader, aiokafka.ConsumerRebalanceListener):
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._thread = LoopThread()
        self.revoked = []
        self.consumer: aiokafka.AIOKafkaConsumer = self._thread.run(self._start(settings))

    async def _start(self, settings: Mapping[str, Any]) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(**settings)
        await consumer.start()
        return consumer

    def assign(self, partitions: Iterable[TopicPartition], offset: int = 0) -> None:
        self._thread.run(self._assign([aiokafka.TopicPartition(*partition) for partition in partitions], offset))

    async def _assign(self, partitions: list[aiokafka.TopicPartition], offset: int) -> None:
        self.consumer.assign(partitions)
        for each in partitions:
            self.consumer.seek(each, offset)

    def subscribe(self, topic: str) -> None:
        self._thread.run(self._subscribe(topic))

    async def _subscribe(self, topic: str) -> None:
        self.consumer.subscribe([topic], listener=self)

    def on_partitions_revoked(self, revoked: Iterable[aiokafka.TopicPartition]) -> None:
        if revoked:
            self.revoked.append({tuple(each) for each in revoked})

    def on_partitions_assigned(self, assigned: Iterable[aiokafka.TopicPartition]) -> None:
        """The assignment is asked for."""

    def poll(self) -> list[Seen]:
        found = self._thread.run(self.consumer.getmany(timeout_ms=int(POLL_S * 1_000)))
        return [
            Seen(each.topic, each.partition, each.offset, each.key, each.value, tuple(each.headers), each.timestamp)
            for records in found.values()
            for each in records
        ]

    def assignment(self) -> set[TopicPartition]:
        return {tuple(each) for each in self.consumer.assignment()}

    def commit(self) -> None:
        self._thread.run(self.consumer.commit())

    def committed(self, partition: TopicPartition) -> int | None:
        return self._thread.run(self.consumer.committed(aiokafka.TopicPartition(*partition)))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._thread.run(self._seek(aiokafka.TopicPartition(*partition), offset))

    async def _seek(self, partition: aiokafka.TopicPartition, offset: int) -> None:
        self.consumer.seek(partition, offset)

    def ends(self, partition: TopicPartition) -> tuple[int, int]:
        asked = aiokafka.TopicPartition(*partition)
        first = self._thread.run(self.consumer.beginning_offsets([asked]))
        return first[asked], self._thread.run(self.consumer.end_offsets([asked]))[asked]

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        asked = aiokafka.TopicPartition(*partition)
        return self._thread.run(self.consumer.offsets_for_times({asked: timestamp_ms}))[asked].offset

    def close(self) -> None:
        try:
            self._thread.run(self.consumer.stop())
        finally:
            self._thread.close()
