"""Requests get to their leaders, and a turn is fair, bounded in time and touches no idle replica."""

from __future__ import annotations

from dataclasses import replace

from stratalog.replication import cadence
from stratalog.replication.leader.append_queue import AppendQueue
from stratalog.replication.leader.purgatory import ProducePurgatory
from stratalog.replication.leader.replica import LeaderPorts, LeaderReplica, WaitingAppend
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.requests.produce import ACKS_LEADER, ProduceRequest
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.storage.topic_config import LogConfig
from tests.replication.memory_stores import MemoryStores, led_by
from tests.storage.logs import batch


class Queued:
    """Broker 1 leads `partitions` partitions. `answers` are (value, error name or base offset), in order."""

    def __init__(self, partitions: int) -> None:
        self.stores = MemoryStores()
        self.leaders = {state.topic_partition: self.led(state.partition) for state in map(_state, range(partitions))}
        self.queue = AppendQueue(
            1,
            self.leaders,
            self.stores.clock,
            exists=lambda named: named[0] == "id" and named[1].partition < partitions,
        )
        self.answers: list[tuple[str, str]] = []

    def led(self, partition: int, epoch: int = 0) -> LeaderReplica:
        state = replace(_state(partition), leader_epoch=epoch)
        table = self.stores.table("broker-1", state.topic_partition)
        log = PartitionLog(table, LogConfig(), self.stores.clock, self.stores.ids)
        replica = LeaderReplica(state, "id", log, LeaderPorts(1, self.stores.clock, ProducePurgatory()))
        assert replica.start(0)
        return replica

    def put(self, partition: int, value: str, topic_id: str = "id", sender: str = "") -> None:
        request = ProduceRequest(
            IdentifiedPartition(topic_id, TopicPartition("t", partition)),
            batch([value]),
            ACKS_LEADER,
            timeout_ms=1_000,
            sender=sender,
        )
        self.queue.put(
            WaitingAppend(
                request, lambda r: self.answers.append((value, r.error.name if r.error else str(r.base_offset)))
            )
        )

    def turn(self, within_ms: int = cadence.APPENDS.ms) -> list[int]:
        """The partitions that appended."""
        return [r.state.partition for r in self.queue.append(self.stores.clock.monotonic_ms(), within_ms)]

    def slow(self, table_ms: int) -> None:
        """The duration of every commit."""

        def takes_time(operation: str, _table: str, _detail: str) -> bool:
            self.stores.clock.now_ms += table_ms if operation == "create" else 0
            return False

        self.stores.disk("broker-1").fault = takes_time


def _state(partition: int) -> PartitionRecord:
    return led_by(1, partition=partition)


def test_all_that_waits_for_a_partition_is_one_append() -> None:
    queued = Queued(3)
    for partition, value in [(2, "a"), (0, "b"), (2, "c")]:
        queued.put(partition, value)
    assert queued.turn() == [2, 0]
    assert queued.answers == [("a", "0"), ("c", "1"), ("b", "0")]
    assert queued.queue.is_empty
    assert queued.turn() == []


def test_a_turn_ends_in_time_and_the_next_one_goes_on_with_the_others() -> None:
    queued = Queued(3)
    queued.slow(cadence.APPENDS.ms)
    for partition in (0, 1, 2):
        queued.put(partition, f"first of {partition}")
    assert queued.turn() == [0]
    queued.put(0, "second of 0")
    assert [queued.turn(), queued.turn(), queued.turn()] == [[1], [2], [0]]
    assert queued.queue.is_empty


def test_a_turn_that_is_given_more_time_appends_more() -> None:
    queued = Queued(3)
    queued.slow(cadence.APPENDS.ms)
    for partition in (0, 1, 2):
        queued.put(partition, f"of {partition}")
    assert queued.turn(2 * cadence.APPENDS.ms) == [0, 1]
    assert queued.turn() == [2]


def test_a_turn_touches_only_leaders_with_requests() -> None:
    queued = Queued(3)
    touched: set[str] = set()

    def note(_operation: str, table: str, _detail: str) -> bool:
        touched.add(table)
        return False

    queued.stores.disk("broker-1").fault = note
    queued.put(1, "a")
    queued.turn()
    queued.turn()
    assert touched == {"t-1"}


def test_a_store_that_is_away_holds_up_only_its_own_partition() -> None:
    queued = Queued(2)
    queued.stores.disk("broker-1").fault = lambda _operation, table, _detail: table == "t-0"
    queued.put(0, "a")
    queued.put(1, "b")
    assert queued.turn() == [1]
    assert not queued.queue.is_empty
    queued.stores.disk("broker-1").fault = None
    queued.stores.clock.now_ms += cadence.APPEND_RETRY.ms
    assert queued.turn() == [0]
    assert queued.answers == [("b", "0"), ("a", "0")]


def test_a_request_for_a_partition_that_is_not_led_here_is_refused_at_once() -> None:
    queued = Queued(3)
    del queued.leaders[TopicPartition("t", 2)]
    queued.put(2, "led elsewhere")
    queued.put(7, "unknown")
    queued.leaders[TopicPartition("t", 1)].go_offline(CorruptMessageError("torn"))
    queued.put(1, "offline")
    queued.turn()
    assert queued.answers == [
        ("led elsewhere", "NOT_LEADER_OR_FOLLOWER"),
        ("unknown", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("offline", "CORRUPT_MESSAGE"),
    ]


def test_a_leader_that_went_meanwhile_is_forgotten() -> None:
    queued = Queued(1)
    queued.stores.disk("broker-1").fault = lambda *_: True
    queued.put(0, "a")
    queued.turn()
    del queued.leaders[TopicPartition("t", 0)]
    assert queued.turn() == []
    assert queued.queue.is_empty


def test_a_broker_that_stopped_refuses_all() -> None:
    queued = Queued(1)
    queued.put(0, "a")
    queued.put(0, "b")
    queued.queue.refuse_all("stopped")
    assert queued.answers == [("a", "NOT_LEADER_OR_FOLLOWER"), ("b", "NOT_LEADER_OR_FOLLOWER")]
    assert queued.turn() == []


def test_a_request_to_a_deleted_topic_is_not_appended_to_the_next_one_of_that_name() -> None:
    queued = Queued(1)
    queued.put(0, "old", topic_id="of the topic before")
    queued.put(0, "new")
    queued.put(7, "gone", topic_id="of the topic before")
    queued.turn()
    assert queued.answers == [("old", "UNKNOWN_TOPIC_ID"), ("gone", "UNKNOWN_TOPIC_OR_PARTITION"), ("new", "0")]


def test_what_came_under_an_earlier_leader_epoch_is_not_appended_in_a_later_one() -> None:
    """The loop stood still with a request in its queue. Meanwhile another broker led, its sender sent it there again
    and went on; a marker would end the transaction that follows its own."""
    queued = Queued(2)
    queued.put(0, "late")
    queued.put(1, "in time")
    queued.leaders[TopicPartition("t", 0)] = queued.led(0, epoch=5)
    queued.put(0, "now")
    assert queued.turn() == [1, 0]
    assert queued.answers == [("late", "NOT_LEADER_OR_FOLLOWER"), ("in time", "0"), ("now", "0")]


def test_what_came_before_the_partition_was_led_here_is_appended() -> None:
    """Its sender knew of the new leader first."""
    queued = Queued(1)
    named = TopicPartition("t", 0)
    replica = queued.leaders.pop(named)
    queued.put(0, "early")
    queued.leaders[named] = replica
    assert (queued.turn(), queued.answers) == ([0], [("early", "0")])


def test_senders_take_turns_however_many_partitions_one_of_them_writes_to() -> None:
    queued = Queued(7)
    queued.slow(table_ms=cadence.APPENDS.ms)
    for partition in range(5):
        queued.put(partition, f"a{partition}", sender="a")
    queued.put(5, "b5", sender="b")
    queued.put(0, "c0", sender="c")
    queued.put(6, "b6", sender="b")
    assert [queued.turn() for _ in range(7)] == [[0], [5], [1], [6], [2], [3], [4]]
    assert queued.answers[:2] == [("a0", "0"), ("c0", "1")], "what comes for a partition that waits goes with it"
    assert queued.queue.is_empty


def test_a_sender_that_goes_on_does_not_hold_up_another() -> None:
    queued = Queued(3)
    queued.slow(table_ms=cadence.APPENDS.ms)
    queued.put(1, "b", sender="b")
    order = []
    for number in range(4):
        queued.put(0, f"a{number}", sender="a")
        queued.put(2, f"c{number}", sender="a")
        order += queued.turn()
    assert order == [1, 0, 2, 0]
