"""Delayed produce: every waiting request is answered once, at the right moment, with the right answer."""

from __future__ import annotations

from stratalog.replication.leader.purgatory import DelayedProduce, ProducePurgatory
from stratalog.replication.requests.produce import ProduceResponse
from stratalog.storage.errors import NotLeaderOrFollowerError
from stratalog.storage.records import IdentifiedPartition, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Waiting:
    """A purgatory and what it answered: (name, error name or "ok"), in order."""

    def __init__(self) -> None:
        self.purgatory = ProducePurgatory()
        self.answers: list[tuple[str, str]] = []

    def add(
        self,
        name: str,
        offset: int,
        *,
        partition: TopicPartition = T0,
        deadline_ms: int = 1_000,
        is_confirmed: bool = False,
    ) -> None:
        def complete(response: ProduceResponse) -> None:
            self.answers.append((name, response.error.name if response.error else "ok"))

        response = ProduceResponse(IdentifiedPartition("id", partition), offset, offset, leader_epoch=3)
        self.purgatory.add(DelayedProduce(response, offset + 1, deadline_ms, complete, is_confirmed))


def test_the_high_watermark_answers_what_lies_below_it() -> None:
    waiting = Waiting()
    for offset, name in enumerate("abc"):
        waiting.add(name, offset)
    assert waiting.purgatory.high_watermark_moved(T0, 2, True) == 2
    assert waiting.answers == [("a", "ok"), ("b", "ok")]
    assert not waiting.purgatory.is_empty
    assert waiting.purgatory.high_watermark_moved(T0, 3, True) == 1
    assert waiting.purgatory.is_empty


def test_an_answered_or_failed_partition_leaves_nothing_behind() -> None:
    waiting = Waiting()
    waiting.add("a", 0, deadline_ms=500)
    waiting.add("b", 0, partition=T1, deadline_ms=700)
    deadlines = [waiting.purgatory.next_deadline_ms]
    waiting.purgatory.expire(600)
    deadlines.append(waiting.purgatory.next_deadline_ms)
    waiting.purgatory.fail(T1, NotLeaderOrFollowerError("moved"))
    assert waiting.purgatory.is_empty
    deadlines.append(waiting.purgatory.next_deadline_ms)
    assert deadlines == [500, 700, None]


def test_partitions_wait_apart() -> None:
    waiting = Waiting()
    waiting.add("a", 0, partition=T0)
    waiting.add("b", 0, partition=T1)
    waiting.purgatory.high_watermark_moved(T1, 1, True)
    assert waiting.answers == [("b", "ok")]
    assert waiting.purgatory.high_watermark_moved(T1, 2, True) == 0


def test_committed_by_too_few_replicas() -> None:
    waiting = Waiting()
    waiting.add("a", 0)
    waiting.purgatory.high_watermark_moved(T0, 1, False)
    assert waiting.answers == [("a", "NOT_ENOUGH_REPLICAS_AFTER_APPEND")]


def test_a_deadline_that_passed_is_a_time_out_and_the_others_wait_on() -> None:
    waiting = Waiting()
    waiting.add("late", 0, deadline_ms=500)
    waiting.add("patient", 1, deadline_ms=900)
    waiting.purgatory.expire(499)
    assert waiting.answers == []
    waiting.purgatory.expire(500)
    assert waiting.answers == [("late", "REQUEST_TIMED_OUT")]
    waiting.purgatory.high_watermark_moved(T0, 2, True)
    assert waiting.answers == [("late", "REQUEST_TIMED_OUT"), ("patient", "ok")]


def test_what_no_replica_has_to_confirm_succeeds_whatever_happens() -> None:
    waiting = Waiting()
    waiting.add("late", 0, deadline_ms=500, is_confirmed=True)
    waiting.add("alone", 1, is_confirmed=True)
    waiting.add("moved", 2, is_confirmed=True)
    waiting.purgatory.expire(500)
    waiting.purgatory.high_watermark_moved(T0, 2, False)
    waiting.purgatory.fail(T0, NotLeaderOrFollowerError("gone"))
    assert waiting.answers == [("late", "ok"), ("alone", "ok"), ("moved", "ok")]


def test_no_request_is_answered_twice() -> None:
    waiting = Waiting()
    waiting.add("a", 0, deadline_ms=500)
    waiting.purgatory.high_watermark_moved(T0, 1, True)
    waiting.purgatory.fail(T0, NotLeaderOrFollowerError("gone"))
    waiting.purgatory.expire(10_000)
    assert waiting.answers == [("a", "ok")]


def test_a_lost_partition_fails_its_own_and_forgets_their_deadlines() -> None:
    waiting = Waiting()
    waiting.add("a", 0)
    waiting.add("b", 0, partition=T1)
    waiting.purgatory.fail(T0, NotLeaderOrFollowerError("gone"))
    assert waiting.answers == [("a", "NOT_LEADER_OR_FOLLOWER")]
    waiting.purgatory.expire(10_000)
    assert waiting.answers == [("a", "NOT_LEADER_OR_FOLLOWER"), ("b", "REQUEST_TIMED_OUT")]
    assert waiting.purgatory.is_empty


def test_a_duplicate_of_a_committed_batch_does_not_wait_for_later_ones() -> None:
    """A retried batch has the offsets of its first try, below those of the requests that wait already."""
    waiting = Waiting()
    waiting.add("new", 9)
    waiting.add("duplicate", 4)
    waiting.purgatory.high_watermark_moved(T0, 5, True)
    assert waiting.answers == [("duplicate", "ok")]
    waiting.purgatory.high_watermark_moved(T0, 10, True)
    assert waiting.answers == [("duplicate", "ok"), ("new", "ok")]
