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
    schedule.mark(a)
    schedule.mark(b)
    schedule.mark(a)
    assert schedule.has_marked
    assert schedule.take(0) == [a, b]
    assert schedule.take(0) == []
    assert not schedule.has_marked


def test_a_queue_is_looked_at_when_its_earliest_time_has_come() -> None:
    schedule, a = Schedule(), queue(0)
    schedule.look_at(a, 50)
    schedule.look_at(a, 80)
    schedule.look_at(a, 20)
    assert schedule.next_ms() == 20
    assert schedule.take(19) == []
    assert schedule.take(20) == [a]
    assert schedule.take(100) == []
    assert schedule.next_ms() is None


def test_a_queue_that_changed_when_its_time_came_is_taken_once() -> None:
    schedule, a = Schedule(), queue(0)
    schedule.look_at(a, 5)
    schedule.mark(a)
    assert schedule.take(5) == [a]


def test_many_looks_that_come_to_nothing_leave_one_timer() -> None:
    schedule, a = Schedule(), queue(0)
    for now_ms in range(1_000):
        schedule.look_at(a, 30_000 + now_ms)
    assert schedule.next_ms() == 30_000
    assert schedule.take(30_000) == [a]
    assert schedule.next_ms() is None
