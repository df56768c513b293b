"""Appends that are stored beside the loop: partitions do not wait for each other, nor a file for the commit before."""

from __future__ import annotations

from collections.abc import Callable

from stratalog.replication import cadence
from stratalog.replication.leader.append_queue import AppendQueue
from stratalog.replication.stores import Beside, any_table
from stratalog.storage.delta.table import Commit, Committed
from stratalog.storage.errors import NotLeaderOrFollowerError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig
from tests.replication.leader.test_append_queue import Queued
from tests.storage.hand_executor import HandExecutor
from tests.storage.logs import batch, contents

ROOT = "broker-1"


class QueuedBeside(Queued):
    """Leaders whose appends `threads` store. `made`: the writes of the store, as `create t-0/_delta_log/2`."""

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        self.threads, self.woken, self.made = HandExecutor(), 0, list[str]()
        self.before: dict[str, Callable[[], None]] = {}
        """What happens once, before such a write."""
        self.queue = AppendQueue(1, self.leaders, self.stores.clock, beside=Beside(self.threads, self.wake, any_table))
        self.stores.disk(ROOT).fault = self._access

    def wake(self) -> None:
        self.woken += 1

    def _access(self, operation: str, table: str, detail: str) -> bool:
        if operation in ("create", "put"):
            kind = f"{operation} {table}/{detail.split('/', maxsplit=1)[0]}"
            self.made.append(f"{kind}/{detail.rsplit('/', maxsplit=1)[-1]}" if operation == "create" else kind)
            self.before.pop(self.made[-1], lambda: None)()
        return False

    def log(self, partition: int) -> PartitionLog:
        """As another process reads it."""
        stores = self.stores
        table = stores.table(ROOT, TopicPartition("t", partition))
        log = PartitionLog(table, LogConfig(), stores.clock, stores.ids)
        log.refresh()
        return log

    def store_all(self) -> None:
        """Turns, and the work of the threads, until nothing waits."""
        self.turn()
        while self.threads.waiting or self.queue.is_storing or not self.queue.is_empty:
            self.threads.work()
            self.turn()

    def files(self, partition: int) -> int:
        """Data files on storage, also those that no commit names."""
        return len(self.log(partition).table.list_objects("segment="))


def test_a_partition_whose_store_is_slow_holds_up_no_other() -> None:
    queued = QueuedBeside(2)
    queued.put(0, "slow")
    queued.put(1, "quick")
    assert queued.turn() == []
    slow, quick = queued.threads.waiting
    queued.threads.waiting[:] = [quick]
    queued.threads.work()
    assert queued.woken > 0
    assert queued.turn() == [], "for a moment it waits for the other one, to be published with it"
    assert not queued.queue.is_empty
    queued.stores.clock.now_ms += cadence.APPENDS_GATHERED.ms
    assert queued.turn() == [1]
    assert queued.answers == [("quick", "0")]
    queued.put(1, "next")
    queued.turn()
    queued.threads.work()
    queued.turn()
    queued.stores.clock.now_ms += cadence.APPENDS_GATHERED.ms
    assert queued.turn() == [1]
    slow()
    assert queued.turn() == [0]
    assert queued.answers == [("quick", "0"), ("next", "1"), ("slow", "0")]


def test_the_loop_does_not_poll_for_what_is_stored_beside_it() -> None:
    queued = QueuedBeside(1)
    queued.put(0, "a")
    queued.turn()
    assert queued.queue.is_empty
    assert queued.queue.is_storing


def test_the_file_of_the_next_group_is_written_while_a_commit_is_under_way() -> None:
    """So a busy partition makes a commit each round trip."""
    queued = QueuedBeside(1)
    for version, value in ((2, "b"), (3, "c"), (4, "d")):

        def meanwhile(value: str = value) -> None:
            queued.put(0, value)
            queued.turn()
            queued.threads.work()

        queued.before[f"create t-0/_delta_log/{version}"] = meanwhile
    queued.put(0, "a")
    queued.store_all()
    file = "put t-0/segment=00000000000000000000"
    commits = [f"create t-0/_delta_log/{version}" for version in (2, 3, 4, 5)]
    assert queued.made == [file, commits[0], file, commits[1], file, commits[2], file, commits[3]]
    assert queued.answers == [("a", "0"), ("b", "1"), ("c", "2"), ("d", "3")]
    assert contents(queued.log(0)) == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]


def test_what_waits_when_a_commit_begins_is_the_next_group() -> None:
    queued = QueuedBeside(1)
    queued.put(0, "a")
    queued.turn()
    queued.put(0, "b")
    queued.put(0, "c")
    queued.turn()
    woken = queued.woken

    def meanwhile() -> None:
        queued.turn()
        queued.threads.work()

    queued.before["create t-0/_delta_log/2"] = meanwhile
    queued.store_all()
    assert queued.woken > woken
    assert len(queued.made) == 4
    assert queued.answers == [("a", "0"), ("b", "1"), ("c", "2")]


def test_a_file_whose_place_another_append_took_is_written_again() -> None:
    """By another process of this broker, in the same epoch."""
    queued = QueuedBeside(1)
    queued.put(0, "a")

    def meanwhile() -> None:
        queued.put(0, "b")
        queued.turn()
        queued.threads.work()
        queued.log(0).append([batch(["x", "y"])], 0, 1)

    queued.before["create t-0/_delta_log/2"] = meanwhile
    queued.store_all()
    assert queued.answers == [("a", "2"), ("b", "3")]
    assert contents(queued.log(0)) == [(0, "x"), (1, "y"), (2, "a"), (3, "b")]
    assert queued.files(0) == 3


def test_appends_that_begin_together_are_published_together() -> None:
    queued = QueuedBeside(3)
    for partition in range(3):
        queued.put(partition, "a")
    queued.turn()
    for number in range(3):
        queued.threads.work(1)
        assert queued.turn() == ([] if number < 2 else [0, 1, 2])


def test_a_fenced_leader_refuses_the_group_behind_too() -> None:
    queued = QueuedBeside(1)
    queued.put(0, "a")
    replica = queued.leaders[TopicPartition("t", 0)]

    def meanwhile() -> None:
        queued.put(0, "b")
        queued.turn()
        queued.threads.work()
        other = queued.log(0)
        begun = other.start_epoch(1, as_leader=True)
        assert begun == Committed(2)

    queued.before["create t-0/_delta_log/2"] = meanwhile
    queued.store_all()
    assert queued.answers == [("a", "NOT_LEADER_OR_FOLLOWER"), ("b", "NOT_LEADER_OR_FOLLOWER")]
    assert isinstance(replica.failure, NotLeaderOrFollowerError)
    assert contents(queued.log(0)) == []


def test_a_lost_race_is_decided_again_and_the_files_are_used() -> None:
    queued = QueuedBeside(1)
    queued.put(0, "a")

    def meanwhile() -> None:
        queued.put(0, "b")
        queued.turn()
        queued.threads.work()
        version, txns = 2, queued.log(0).state.position_txns
        table = queued.stores.table(ROOT, TopicPartition("t", 0))
        table.snapshot()
        assert table.commit(version, Commit("other", "START EPOCH", 1, txns=txns)) == Committed(version)

    queued.before["create t-0/_delta_log/2"] = meanwhile
    queued.store_all()
    assert queued.answers == [("a", "0"), ("b", "1")]
    assert queued.files(0) == 2
    assert sum(made.startswith("put") for made in queued.made) == 2


def test_a_lost_answer_makes_no_second_copy() -> None:
    queued = QueuedBeside(1)
    queued.put(0, "a")
    queued.turn()
    queued.stores.disk(ROOT).fault = lambda operation, _table, _detail: operation in ("create:done", "get")
    queued.threads.work()
    assert queued.turn() == []
    queued.put(0, "b")
    queued.stores.disk(ROOT).fault = None
    queued.stores.clock.now_ms += 1_000
    queued.store_all()
    assert queued.answers == [("a", "0"), ("b", "1")]
    assert contents(queued.log(0)) == [(0, "a"), (1, "b")]


def test_who_stops_leading_meanwhile_answers_once_and_leaves_what_was_committed() -> None:
    queued = QueuedBeside(1)
    queued.put(0, "a")
    replica = queued.leaders[TopicPartition("t", 0)]

    def meanwhile() -> None:
        queued.put(0, "b")
        queued.turn()
        queued.put(0, "c")
        replica.resign(NotLeaderOrFollowerError("fenced"))
        del queued.leaders[TopicPartition("t", 0)]

    queued.before["create t-0/_delta_log/2"] = meanwhile
    queued.turn()
    queued.threads.work()
    assert queued.turn() == []
    assert sorted(queued.answers) == [(value, "NOT_LEADER_OR_FOLLOWER") for value in "abc"]
    assert not queued.queue.is_storing
    queued.leaders[TopicPartition("t", 0)] = again = queued.led(0, epoch=1)
    assert contents(queued.log(0)) == [(0, "a")], "it lost the answer, not the commit"
    queued.put(0, "d")
    queued.store_all()
    assert queued.answers[-1] == ("d", "1")
    assert again.failure is None


def test_the_loop_commits_between_two_appends() -> None:
    """Upkeep and deletions of records find no gap where appends follow each other: the next one waits for them."""
    queued = QueuedBeside(1)
    replica = queued.leaders[TopicPartition("t", 0)]
    now_ms = queued.stores.clock.monotonic_ms()
    queued.put(0, "a")
    queued.turn()
    assert not replica.may_change(now_ms)
    queued.put(0, "b")
    queued.threads.work()
    assert queued.turn() == [0]
    assert not queued.queue.is_storing
    assert queued.turn() == []
    assert replica.may_change(now_ms)
    queued.turn()
    assert queued.queue.is_storing
    queued.store_all()
    assert queued.answers == [("a", "0"), ("b", "1")]


def test_a_store_that_is_away_is_tried_again() -> None:
    queued = QueuedBeside(1)
    queued.put(0, "a")
    queued.stores.disk(ROOT).fault = lambda operation, _table, _detail: operation == "put"
    queued.turn()
    queued.threads.work()
    assert queued.turn() == []
    assert not queued.queue.is_empty
    queued.stores.disk(ROOT).fault = None
    queued.stores.clock.now_ms += 1_000
    queued.store_all()
    assert queued.answers == [("a", "0")]


def test_threads_that_have_ended_store_nothing() -> None:
    queued = QueuedBeside(1)
    queued.threads.has_ended = True
    queued.put(0, "a")
    assert queued.turn() == []
    assert not queued.queue.is_storing
    assert queued.answers == []
