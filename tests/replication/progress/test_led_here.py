"""What leaders of a process tell its readers of partitions in storage domains."""

from __future__ import annotations

import gc

from stratalog.replication.progress.led_here import LedHere
from stratalog.replication.progress.progress import ReplicaProgress
from stratalog.storage.records import TopicPartition

ONE, TWO = TopicPartition("t", 1), TopicPartition("t", 2)


def entry(topic_partition: TopicPartition, end: int, epoch: int = 4, topic_id: str = "id") -> ReplicaProgress:
    return ReplicaProgress(topic_partition, epoch, end, end, high_watermark=end, topic_id=topic_id)


class Reader:
    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


def test_a_reader_finds_what_was_put_since_it_last_asked() -> None:
    led = LedHere()
    assert led.put_since(0) == (0, [])
    led.put(entry(ONE, 1))
    led.put(entry(TWO, 1))
    led.put(entry(ONE, 2))
    number, found = led.put_since(0)
    assert found == [ONE, TWO]
    assert led.put_since(number) == (number, [])
    led.put(entry(TWO, 2))
    assert led.put_since(number)[1] == [TWO]
    led.forget(TWO)
    assert led.put_since(0)[1] == [ONE]


def test_an_entry_counts_for_its_topic_and_leader_epoch_alone() -> None:
    led = LedHere()
    led.put(entry(ONE, 3))
    assert led.get(ONE, "id", 4) == entry(ONE, 3)
    assert [led.get(ONE, "id", 5), led.get(ONE, "other", 4), led.get(TWO, "id", 4)] == [None, None, None]
    led.forget(ONE)
    assert led.get(ONE, "id", 4) is None


def test_a_put_wakes_the_readers_that_somebody_holds() -> None:
    led, kept = LedHere(), Reader()
    led.add_reader(kept)
    led.add_reader(Reader())
    gc.collect()
    led.put(entry(ONE, 1))
    assert kept.woken == 1
