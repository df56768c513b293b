"""Fetches that wait: an append visits those of its partition, and reads for those alone that may have enough."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stratalog.server.apis.fetch.delayed_fetches import NEVER, DelayedFetches
from stratalog.server.apis.fetch.partition_read import PartitionRead
from stratalog.server.apis.fetch.sessions import FetchContext, FetchKey, WantedPartition
from stratalog.server.apis.fetch.waiting_fetches import (
    SPARE_ENTRIES,
    FetchRun,
    Lead,
    PartitionChange,
    Readiness,
    WaitingFetches,
    readiness,
)
from stratalog.server.batches.tail import EncodedTail
from stratalog.server.request.api import Call, Connection
from stratalog.server.view.cluster_view import ClusterView
from stratalog.server.view.marks import Watermarks
from stratalog.storage.errors import NotLeaderOrFollowerError
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.batches.headers import EncodedBatch
from stratalog.wire.messages.schema import request_type
from tests.clients.kafka_client import KafkaClient, batch_of
from tests.clients.memory_cluster import ROOT, MemoryCluster
from tests.kio_messages import build, request_frame
from tests.waiting import wait_until

LONG_MS = 60_000
LEAD = Lead("id-of-t", 0)
ANSWER_S = 60


def run_of(*partitions: int, min_bytes: int = 1, deadline_ms: int = LONG_MS, offset: int = 0) -> FetchRun:
    """A fetch that has read its partitions of `t` up to the high watermark 0, and found nothing."""
    wanted = tuple(WantedPartition(FetchKey("t", None, number), offset, 1 << 20) for number in partitions)
    request = request_frame(build(request_type(ApiKey.FETCH, 12), {}), "test")
    call = Call(request, Connection(), lambda _answer: None)
    run = FetchRun(call, FetchContext(wanted), min_bytes, 1 << 20, deadline_ms, 0)
    for each in wanted:
        run.reads[each.key] = PartitionRead(TopicPartition("t", each.key.partition), (), offset, offset, 0)
        run.leads[each.key] = LEAD
    return run


# -- what news mean ----------------------------------------------------------------------------------------------


def change(end: int, readable: int | None = None, *, start: int = 0, lead: Lead | None = LEAD) -> PartitionChange:
    return PartitionChange(lead, Watermarks(start, end, 0, 1, "id"), lambda _start, _end: readable)


@pytest.mark.parametrize(
    ("told", "min_bytes", "expected"),
    [
        (change(0, 0), 1, Readiness(False, True)),
        (change(1, 70), 1, Readiness(True, True)),
        (change(1, 70), 71, Readiness(False, True)),
        (change(1, 70), 70, Readiness(True, True)),
        (change(1, None), 1_000, Readiness(True, False)),
        (change(0, 0, lead=Lead("id-of-t", 1)), 1, Readiness(True, False)),
        (change(0, 0, lead=Lead("another", 0)), 1, Readiness(True, False)),
        (change(0, 0, lead=None), 1, Readiness(True, False)),
        (change(5, 0, start=3), 1, Readiness(True, False)),
        (PartitionChange(LEAD, None, lambda _start, _end: 0), 1, Readiness(True, False)),
    ],
)
def test_a_fetch_is_due_when_its_bytes_may_be_there_or_it_has_an_error(
    told: PartitionChange, min_bytes: int, expected: Readiness
) -> None:
    run = run_of(0, min_bytes=min_bytes)
    assert readiness(run, run.context.wanted, lambda _named: told) == expected


def test_the_bytes_of_several_partitions_add_up() -> None:
    run = run_of(0, 1, min_bytes=100)
    first, second = run.context.wanted
    assert readiness(run, [first], lambda _: change(1, 60)) == Readiness(False, True)
    assert [each.key.partition for each in run.unread] == [0]
    assert readiness(run, [second], lambda _: change(1, 39)) == Readiness(False, True)
    assert readiness(run, [second], lambda _: change(1, 40)) == Readiness(True, True)


def test_what_exceeds_a_partitions_limit_does_not_count() -> None:
    run = run_of(0, min_bytes=(1 << 20) + 1)
    assert not readiness(run, run.context.wanted, lambda _: change(1, 1 << 30)).is_due


def test_the_same_bytes_are_counted_once_for_many_fetches() -> None:
    asked: list[tuple[int, int]] = []

    def readable(start: int, end: int) -> int:
        asked.append((start, end))
        return 10

    told = PartitionChange(LEAD, Watermarks(0, 7, 0, 1, "id"), readable)
    for run in (run_of(0), run_of(0), run_of(0, offset=3)):
        assert readiness(run, run.context.wanted, lambda _: told).is_due
    assert asked == [(0, 7), (3, 7)]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 4, 40),
        (2, 4, 20),
        (1, 4, 40),
        (4, 4, 0),
        (0, 3, None),
        (0, 5, None),
        (7, 9, 20),
        (4, 9, None),
        (-1, 4, None),
    ],
)
def test_the_tail_counts_the_bytes_that_it_has_without_a_gap(start: int, end: int, expected: int | None) -> None:
    tail = EncodedTail()
    size = len(batch_of(b"x", b"y"))
    for base_offset in (0, 2, 7):
        tail.append(IdentifiedPartition("id", TopicPartition("t", 0)), base_offset, 0, batch_of(b"x", b"y"), 0)
    found = tail.readable_bytes(IdentifiedPartition("id", TopicPartition("t", 0)), 0, start, end)
    assert found == (None if expected is None else expected // 20 * size)
    assert tail.readable_bytes(IdentifiedPartition("id", TopicPartition("t", 0)), 1, start, end) is None
    assert tail.readable_bytes(IdentifiedPartition("id", TopicPartition("t", 1)), 0, start, end) is None


# -- the index ---------------------------------------------------------------------------------------------------


def test_fetches_are_found_by_partition_and_leave_in_the_order_of_their_deadlines() -> None:
    waiting = WaitingFetches()
    late, soon, other = run_of(0, 1, deadline_ms=30), run_of(1, deadline_ms=10), run_of(2, deadline_ms=20)
    assert [waiting.add(run) for run in (late, soon, other)] == [True, True, False]
    found = waiting.waiting_for([TopicPartition("t", 1), TopicPartition("t", 9)])
    assert {run: [each.key.partition for each in wanted] for run, wanted in found.items()} == {late: [1], soon: [1]}
    assert waiting.next_deadline_ms() == 10
    assert waiting.pop_expired(9) == []
    assert waiting.pop_expired(20) == [soon, other]
    assert not waiting.remove(soon)
    assert waiting.remove(late)
    assert (len(waiting), waiting.partitions, waiting.next_deadline_ms()) == (0, [], None)


def test_answered_fetches_leave_nothing_behind_however_far_their_deadlines_are() -> None:
    waiting = WaitingFetches()
    stays = run_of(0)
    waiting.add(stays)
    for _ in range(1_000):
        run = run_of(0, 1)
        waiting.add(run)
        waiting.remove(run)
    assert len(waiting._heap) <= 2 + SPARE_ENTRIES
    assert waiting.partitions == [TopicPartition("t", 0)]
    assert waiting.pop_all() == [stays]
    assert len(waiting) == 0


def test_a_fetch_that_waits_again_keeps_its_deadline() -> None:
    waiting = WaitingFetches()
    run = run_of(0, deadline_ms=10)
    for _ in range(3):
        waiting.add(run)
        waiting.remove(run)
    waiting.add(run)
    assert waiting.pop_expired(10) == [run]
    assert waiting.pop_expired(10) == []


# -- who is woken -------------------------------------------------------------------------------------------------


class Fetches:
    """Delayed fetches of a cluster whose leader has partitions 0 to 9 of `t`. Counts their reads."""

    def __init__(self, io: ThreadPoolExecutor | None = None, readable: int | None = 50) -> None:
        self.cluster = MemoryCluster()
        self.cluster.create_topic("t", 10)
        self.view = ClusterView(ROOT, stores=self.cluster.stores)
        self.readable = readable
        self.visited: list[TopicPartition] = []
        self.read_by: list[tuple[FetchRun, str]] = []
        self.answered: list[FetchRun] = []
        self.before_read: Callable[[FetchRun], None] = lambda _run: None
        for number in range(10):
            self.view.watermarks.published(TopicPartition("t", number))
        self.delayed = DelayedFetches(self.view, self._read, self.answered.append, self._change_of, "fetches", io)

    def _change_of(self, named: TopicPartition) -> PartitionChange:
        self.visited.append(named)
        state = self.view.image.partitions[named]
        topic_id = self.view.image.topic_ids["t"]
        marks = self.view.watermarks.published(named, poll=False)
        return PartitionChange(Lead(topic_id, state.leader_epoch), marks, lambda _start, _end: self.readable)

    def _read(self, run: FetchRun, wanted: Sequence[WantedPartition]) -> bool:
        self.before_read(run)
        self.read_by.append((run, threading.current_thread().name))
        reads = dict(run.reads)
        for each in wanted:
            named = TopicPartition("t", each.key.partition)
            marks = self.view.watermarks.published(named, poll=False)
            if marks is None:
                reads[each.key] = PartitionRead(named, error=NotLeaderOrFollowerError(f"{named} is led by another"))
                continue
            size_bytes = (self.readable or 50) if marks.high_watermark > each.fetch_offset else 0
            batches = [EncodedBatch(0, 0, bytes(size_bytes))] if size_bytes else []
            reads[each.key] = PartitionRead(named, batches, marks.high_watermark)
        run.reads, run.unread_bytes = reads, {}
        return run.is_enough

    def wait(self, *partitions: int, **settings: int) -> FetchRun:
        """A new fetch that waits."""
        run = run_of(*partitions, **settings)
        run.sequence = self.view.changes.moved_since(NEVER)[0]
        run.deadline_ms = self.view.clock.monotonic_ms() + run.deadline_ms
        lead = Lead(self.view.image.topic_ids["t"], 0)
        run.leads = dict.fromkeys(run.leads, lead)
        self.delayed.add(run)
        return run

    def append(self, partition: int) -> None:
        named = TopicPartition("t", partition)
        self.cluster.append(named, b"v")
        self.cluster.publish(named)

    @property
    def reads(self) -> int:
        return len(self.read_by)


@pytest.fixture
def fetches() -> Iterator[Fetches]:
    made = Fetches()
    yield made
    made.delayed.close()


def test_an_append_wakes_the_fetches_of_its_partition_alone(fetches: Fetches) -> None:
    """300 of a thousand fetches wait for partition 3."""
    runs = [fetches.wait(number % 7 + 3 if number % 10 >= 3 else 3) for number in range(1_000)]
    of_3 = {run for run in runs if run.context.wanted[0].key.partition == 3}
    wait_until(lambda: fetches.view.changes.moved_since(NEVER)[0] == fetches.delayed.sequence)
    fetches.visited.clear()
    fetches.append(3)
    wait_until(lambda: len(fetches.answered) >= len(of_3))
    assert set(fetches.answered) == of_3
    assert fetches.reads == len(of_3), "nobody else's log was looked at"
    assert set(fetches.visited) == {TopicPartition("t", 3)}
    assert len(fetches.delayed) == 1_000 - len(of_3)


def test_an_append_that_is_too_small_wakes_nobody_until_enough_has_come(fetches: Fetches) -> None:
    runs = [fetches.wait(0, 1, min_bytes=100) for _ in range(50)]
    fetches.append(0)
    wait_until(lambda: all(run.unread_bytes for run in runs))
    assert (fetches.reads, fetches.answered) == (0, [])
    fetches.append(1)
    wait_until(lambda: len(fetches.answered) == 50)
    assert fetches.reads == 50, "one read each, of both partitions"
    assert {run.size_bytes for run in runs} == {100}


def test_at_the_deadline_what_was_too_little_is_answered(fetches: Fetches) -> None:
    run = fetches.wait(0, min_bytes=100, deadline_ms=300)
    fetches.append(0)
    wait_until(lambda: fetches.answered == [run])
    assert run.size_bytes == 50


def test_new_metadata_wakes_the_fetches_of_another_leader_alone(fetches: Fetches) -> None:
    for partition in range(10):
        fetches.wait(partition)
    fetches.cluster.create_topic("u")
    state = fetches.cluster.state(TopicPartition("t", 4))
    fetches.cluster.commit(state.changed(isr=(1, 2), bump_leader_epoch=False))
    wait_until(lambda: "u" in fetches.view.image.topic_ids)
    wait_until(lambda: fetches.view.changes.moved_since(NEVER)[0] == fetches.delayed.sequence)
    assert fetches.reads == 0
    fetches.cluster.elect(TopicPartition("t", 5), 2)
    wait_until(lambda: fetches.answered)
    (run,) = fetches.answered
    assert run.context.wanted[0].key.partition == 5
    assert fetches.reads == 1


def test_what_came_between_a_read_and_the_waiting_is_not_missed(fetches: Fetches) -> None:
    """The thread saw the move before the fetch was there."""
    run = run_of(0)
    run.sequence = fetches.view.changes.moved_since(NEVER)[0]
    run.leads = dict.fromkeys(run.leads, Lead(fetches.view.image.topic_ids["t"], 0))
    run.deadline_ms += fetches.view.clock.monotonic_ms()
    fetches.append(0)
    fetches.view.changes.poll()
    fetches.delayed.sequence = fetches.view.changes.moved_since(NEVER)[0]
    fetches.delayed.add(run)
    assert fetches.answered == [run]
    assert fetches.read_by == [(run, threading.current_thread().name)]


def test_a_read_that_comes_from_storage_holds_up_no_other_waiting_fetch() -> None:
    with ThreadPoolExecutor(1, thread_name_prefix="io") as io:
        fetches = Fetches(io, readable=None)
        reached, go_on = threading.Event(), threading.Event()

        def stop(run: FetchRun) -> None:
            if run is cold:
                reached.set()
                assert go_on.wait(ANSWER_S)

        fetches.before_read = stop
        cold, warm = fetches.wait(0), fetches.wait(1)
        fetches.append(0)
        assert reached.wait(ANSWER_S)
        fetches.readable = 50
        fetches.append(1)
        wait_until(lambda: fetches.answered == [warm])
        go_on.set()
        wait_until(lambda: fetches.answered == [warm, cold])
        fetches.delayed.close()
    by = dict(fetches.read_by)
    assert (by[cold][:2], by[warm]) == ("io", "fetches")


def test_a_fetch_that_is_read_when_the_handler_closes_is_answered() -> None:
    with ThreadPoolExecutor(1) as io:
        fetches = Fetches(io, readable=None)
        reached, go_on = threading.Event(), threading.Event()

        def stop(_run: FetchRun) -> None:
            reached.set()
            assert go_on.wait(ANSWER_S)

        fetches.before_read = stop
        run, other = fetches.wait(0, min_bytes=1_000), fetches.wait(1)
        fetches.append(0)
        assert reached.wait(ANSWER_S)
        fetches.delayed.close()
        assert fetches.answered == [other]
        go_on.set()
    assert fetches.answered == [other, run]


# -- with a broker -------------------------------------------------------------------------------------------------


def fetch_of(partition: int, **fields: Any) -> dict[str, Any]:
    wanted = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    return {"max_wait": LONG_MS, "min_bytes": 1, "topics": [{"topic": "t", "partitions": [wanted]}], **fields}


def test_a_produced_batch_reaches_the_fetches_of_its_partition_from_memory() -> None:
    cluster = MemoryCluster()
    cluster.create_topic("t", 2)
    with KafkaClient(cluster, stores=cluster.stores) as client:
        waiting = [client.asked(ApiKey.FETCH, 12, fetch_of(number % 2)) for number in range(20)]
        reads: list[str] = []
        cluster.stores.disks[cluster.root_of(1)].access = lambda _operation, table, detail: (
            reads.append(detail) if threading.current_thread().name == "kafka-fetch-1" and table == "t-1" else None
        )
        data = {"name": "t", "partition_data": [{"index": 1, "records": batch_of(b"x")}]}
        client.ask(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 1_000, "topic_data": [data]})
        for answer in waiting[1::2]:
            (partition,) = answer().responses[0].partitions
            assert partition.records
        assert not any(answer.is_there.is_set() for answer in waiting[::2])
        assert reads == []
