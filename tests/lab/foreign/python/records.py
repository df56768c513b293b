"""Producing with every codec and acks, and reading by assignment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from confluent_kafka.admin import NewTopic

from tests.lab.foreign.admin import admin_client
from tests.lab.foreign.checks import fresh
from tests.lab.foreign.python.clients import HEADERS, PythonClient, Reader, Seen, TopicPartition
from tests.lab.foreign.served import Served
from tests.waiting import wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("all", "1", "0")
PARTITIONS, COUNT = 3, 300
FIRST_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}
"""Of topics with records of `FIRST_MS`: retention would delete them after five minutes."""
WAIT_S = 60


def topic_of(served: Served, partitions: int = PARTITIONS, **configs: str) -> str:
    """A new topic with three replicas, whose leaders have started."""
    topic = fresh("topic")
    admin = admin_client({"bootstrap.servers": served.bootstrap})
    made = admin.create_topics([NewTopic(topic, partitions, 3, config=configs)])
    made[topic].result(WAIT_S)
    with Starter(served) as starter:
        wait_until(lambda: starter.has_started(topic, partitions), f"leaders of {topic}", WAIT_S)
    return topic


class Starter:
    """Asks leaders for their offsets: one that has not started yet refuses."""

    def __init__(self, served: Served) -> None:
        import confluent_kafka

        self._consumer = confluent_kafka.Consumer({"bootstrap.servers": served.bootstrap, "group.id": "unused"})
        self._api = confluent_kafka

    def has_started(self, topic: str, partitions: int) -> bool:
        try:
            for number in range(partitions):
                self._consumer.get_watermark_offsets(self._api.TopicPartition(topic, number), timeout=1)
        except self._api.KafkaException:
            return False
        return True

    def __enter__(self) -> Starter:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._consumer.close()


def partitions_of(topic: str, count: int = PARTITIONS) -> list[TopicPartition]:
    return [(topic, number) for number in range(count)]


def read(reader: Reader, count: int) -> list[Seen]:
    """Poll until so many records came."""
    found: list[Seen] = []
    wait_until(lambda: found.extend(reader.poll()) or len(found) >= count, f"{count} records", WAIT_S)
    return found


def by_partition(seen: Iterable[Seen]) -> dict[int, list[Any]]:
    """Values by partition, in the order in which they came."""
    found: dict[int, list[Any]] = defaultdict(list)
    for each in seen:
        found[each.partition].append(each.value)
    return dict(found)


def value(number: int) -> bytes:
    return f"record {number} ".encode() * 8


def produce_and_read(client: PythonClient, served: Served, **settings: Any) -> None:
    """Produce to each partition with each of `acks`, read all by assignment, compare all that a record has."""
    topic = topic_of(served, **KEPT)
    wanted: dict[int, list[bytes]] = {}
    given = settings.pop("acks", ACKS)
    with client.reader(served.bootstrap, {}) as reader:
        reader.assign(partitions_of(topic))
        for begin, acks in zip(range(0, COUNT * len(given), COUNT), given, strict=True):
            own = {name.replace("_", "."): setting for name, setting in settings.items()}
            if acks != "all":
                own["enable.idempotence"] = False
            with client.writer(served.bootstrap, {"acks": acks, **own}) as writer:
                for number in range(begin, begin + COUNT):
                    wanted.setdefault(number % PARTITIONS, []).append(value(number))
                    writer.send(topic, value(number), number % PARTITIONS, b"k", FIRST_MS + number)
                writer.flush()
            seen = read(reader, COUNT)
            assert by_partition(seen) == {number: values[-COUNT // PARTITIONS :] for number, values in wanted.items()}
            assert {(each.key, each.headers) for each in seen} == {(b"k", tuple(HEADERS))}
            assert sorted(each.timestamp_ms for each in seen) == list(range(FIRST_MS + begin, FIRST_MS + begin + COUNT))


def produce_idempotently(client: PythonClient, served: Served) -> None:
    """Several batches of a partition are under way; all are there once, in order."""
    settings = {"enable.idempotence": True, "linger.ms": 0}
    topic = topic_of(served, 1)
    count = 3_000
    with client.writer(served.bootstrap, settings) as writer, client.reader(served.bootstrap, {}) as reader:
        for number in range(count):
            writer.send(topic, value(number), 0)
        writer.flush()
        reader.assign([(topic, 0)])
        seen = read(reader, count)
        assert [each.value for each in seen] == [value(number) for number in range(count)]
        assert [each.offset for each in seen] == list(range(count))


def read_by_assignment(client: PythonClient, served: Served) -> None:
    """From an offset, from a time, from a position that was sought; the ends of a partition."""
    topic = topic_of(served, 1, **KEPT)
    partition = (topic, 0)
    with client.writer(served.bootstrap, {}) as writer, client.reader(served.bootstrap, {}) as reader:
        for number in range(100):
            writer.send(topic, value(number), 0, timestamp_ms=FIRST_MS + 10 * number)
        writer.flush()
        reader.assign([partition], 40)
        assert [each.offset for each in read(reader, 60)] == list(range(40, 100))
        assert reader.ends(partition) == (0, 100)
        assert reader.offset_at(partition, FIRST_MS + 695) == 70
        reader.seek(partition, 70)
        assert [each.value for each in read(reader, 30)] == [value(number) for number in range(70, 100)]
        assert reader.assignment() == {partition}
