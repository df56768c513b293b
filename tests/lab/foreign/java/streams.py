"""Kafka Streams, by `WordCount.java`: exactly_once_v2 over two instances, one of which is killed at work."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import confluent_kafka

from tests.lab.foreign.checks import fresh
from tests.lab.foreign.java.programs import Programs
from tests.lab.foreign.python.records import topic_of
from tests.lab.foreign.served import Served
from tests.lab.real.harness.broker_processes import ServerProcess
from tests.waiting import wait_until

PARTITIONS, PORTION = 4, 3_000
WORDS = [f"word-{number}" for number in range(50)]
WORDS_PER_LINE = 4
CONFIGS = {
    "replication.factor": 3,
    "main.consumer.session.timeout.ms": 6_000,
    "main.consumer.heartbeat.interval.ms": 500,
    "main.consumer.max.poll.records": 50,
    "num.standby.replicas": 1,
}
"""A killed instance is missed early, and one transaction has few records, so that many are under way in a portion."""
WAIT_S, POLL_S = 120, 0.05
SILENT = 2
"""Of the levels of librdkafka's own log."""


class Counts:
    """The counts that the application wrote, by word in the order of the log: what read_committed shows of `topic`."""

    def __init__(self, served: Served, topic: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": served.bootstrap,
                "group.id": fresh("reader"),
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "log_level": SILENT,
            }
        )
        self._consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self.by_word: dict[str, list[int]] = defaultdict(list)
        self.total = 0

    def await_total(self, count: int) -> None:
        """Read until there are so many counts."""
        wait_until(lambda: self.poll() >= count, f"{count} counts", WAIT_S)

    def poll(self) -> int:
        """Read what there is; how many counts came so far."""
        for message in self._consumer.consume(500, POLL_S):
            assert message.error() is None, message.error()
            self.by_word[message.key().decode()].append(int(message.value()))
            self.total += 1
        return self.total

    def close(self) -> None:
        self._consumer.close()


def lines_of(count: int, rng: random.Random) -> list[str]:
    return [" ".join(rng.choices(WORDS, k=WORDS_PER_LINE)) for _ in range(count)]


def write(served: Served, topic: str, lines: Sequence[str]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": served.bootstrap, "enable.idempotence": True})
    for number, line in enumerate(lines):
        producer.produce(topic, line, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def active_tasks(instance: ServerProcess) -> int:
    """How many an instance had when it was in the state RUNNING last."""
    found = re.findall(r"^tasks (\d+)$", instance.output(), re.MULTILINE)
    return int(found[-1]) if found else 0


def lag_of(served: Served, group: str, topic: str) -> int:
    """How many records of the topic are past the group's committed offsets."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": served.bootstrap,
            "group.id": group,
            "isolation.level": "read_uncommitted",
            "log_level": SILENT,
        }
    )
    places = [confluent_kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
    committed = {each.partition: max(each.offset, 0) for each in consumer.committed(places, WAIT_S)}
    ends = {each.partition: consumer.get_watermark_offsets(each, WAIT_S)[1] for each in places}
    consumer.close()
    return sum(ends[partition] - committed[partition] for partition in ends)


def word_count(served: Served) -> None:
    """Each word's counts are 1, 2, 3 ... up to how often it was written: none is lost, none is there twice."""
    source, target, application = topic_of(served, PARTITIONS), topic_of(served, PARTITIONS), fresh("word-count")
    lines = lines_of(3 * PORTION, random.Random(7))
    portions = [lines[begin : begin + PORTION] for begin in range(0, len(lines), PORTION)]
    counts = Counts(served, target)
    with Programs() as programs:

        def started(name: str) -> ServerProcess:
            place = (served.bootstrap, application, str(programs.folder / f"state-{name}"), source, target)
            configs = [f"{key}={value}" for key, value in CONFIGS.items()]
            return programs.start(name, "WordCount", *place, *configs)

        killed, survivor = started("first"), started("second")
        wait_until(lambda: active_tasks(killed) and active_tasks(survivor), "tasks at both instances", WAIT_S)
        write(served, source, portions[0])
        counts.await_total(PORTION * WORDS_PER_LINE)
        write(served, source, portions[1])
        counts.await_total(PORTION * WORDS_PER_LINE + 1)
        killed.kill()
        left = [lag_of(served, application, topic) for topic in (source, f"{application}-words-repartition")]
        assert any(left), "nothing was left to do when the instance was killed"
        write(served, source, portions[2])
        counts.await_total(len(lines) * WORDS_PER_LINE)
        assert survivor.stop() == 0, survivor.output()
    counts.poll()
    counts.close()
    expected = Counter(word for line in lines for word in line.split())
    assert counts.by_word == {word: list(range(1, count + 1)) for word, count in expected.items()}


CHECKS = {
    "word count, exactly_once_v2: one of two instances is killed; each word's counts are exact": word_count,
}
