"""The sender looks at queues that changed or named a time, each once, however many there are."""

from __future__ import annotations

from stratalog.clients.config import ProducerConfig
from stratalog.clients.producer.accumulator import PartitionQueue
from stratalog.clients.producer.schedule import Schedule
from stratalog.storage.records import TopicPartition


def queue(partition: int) -> PartitionQueue:
    return PartitionQueue(TopicPartition("t", partition), ProducerConfig(), 0, lambda: 0)


def test_a_queue_that_changed_is_taken_once() -> None:
    schedule, a, b = Schedule(), queue(0), queue(1)
    schedule.add(a)
    schedule.add(b)
    schedule.add(a)
    assert schedule.has_due
    assert schedule.take_due(0) == [a, b]
    assert schedule.take_due(0) == []
    assert not schedule.has_due


def test_a_queue_is_looked_at_when_its_earliest_time_has_come() -> None:
    schedule, a = Schedule(), queue(0)
    schedule.add_timer(a, 50)
    schedule.add_timer(a, 80)
    schedule.add_timer(a, 20)
    assert schedule.next_ms() == 20
    assert schedule.take_due(19) == []
    assert schedule.take_due(20) == [a]
    assert schedule.take_due(100) == []
    assert schedule.next_ms() is None


def test_a_queue_that_changed_when_its_time_came_is_taken_once() -> None:
    schedule, a = Schedule(), queue(0)
    schedule.add_timer(a, 5)
    schedule.add(a)
    assert schedule.take_due(5) == [a]


def test_many_looks_that_come_to_nothing_leave_one_timer() -> None:
    schedule, a = Schedule(), queue(0)
    for now_ms in range(1_000):
        schedule.add_timer(a, 30_000 + now_ms)
    assert schedule.next_ms() == 30_000
    assert schedule.take_due(30_000) == [a]
    assert schedule.next_ms() is None
