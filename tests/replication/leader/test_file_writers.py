"""The data file of a large append is written beside the loop: other partitions go on, and the order stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stratalog.replication.leader.replica import LeaderPorts
from stratalog.replication.stores import FileWriters
from stratalog.storage.errors import NotLeaderOrFollowerError, StoreUnavailableError
from stratalog.storage.records import NewRecordBatch
from tests.replication.leader.test_replica import EPOCH, Led
from tests.storage.hand_executor import HandExecutor
from tests.storage.logs import batch, contents, values

LARGE = 4_000


class LedBeside(Led):
    """A leader whose large files another thread writes."""

    def __init__(self) -> None:
        super().__init__()
        self.threads, self.woken = HandExecutor(), 0
        ports = LeaderPorts(1, self.stores.clock, self.purgatory)
        self.replica._ports = replace(ports, file_writers=FileWriters(self.threads, LARGE), wake=self.wake)

    def wake(self) -> None:
        self.woken += 1

    def large(self, name: str) -> NewRecordBatch:
        made = batch([name * LARGE])
        self.queue(name, made)
        return made

    def files(self) -> int:
        """Data files on storage, also those that no commit names."""
        return len(list(self.log().table.list_objects("segment=")))


@pytest.fixture
def led() -> LedBeside:
    made = LedBeside()
    made.started()
    return made


def test_a_large_append_is_committed_once_its_file_is_written_and_what_follows_comes_behind(led: LedBeside) -> None:
    led.large("a")
    assert not led.replica.append_waiting(0)
    led.produce("b")
    assert not led.replica.append_waiting(0)
    assert led.replica.has_waiting
    assert led.said() == {}
    led.threads.work()
    assert led.woken == 1
    assert led.replica.append_waiting(0)
    assert led.replica.append_waiting(0)
    assert led.said() == {"a": "0-0", "b": "1-1"}
    assert values(led.log()) == "a" * LARGE + " b"
    assert led.files() == 2, "the file was written once"


def test_a_small_append_takes_no_other_thread(led: LedBeside) -> None:
    led.produce("a")
    assert led.replica.append_waiting(0)
    assert (led.said(), led.threads.waiting) == ({"a": "0-0"}, [])


@pytest.mark.parametrize("has_ended", [True, False])
def test_the_loop_writes_what_the_thread_could_not(led: LedBeside, has_ended: bool) -> None:
    led.threads.has_ended = has_ended
    led.large("a")
    if not has_ended:
        assert not led.replica.append_waiting(0)
        led.disk.fault = lambda operation, _table, _detail: operation == "put"
        led.threads.work()
        led.disk.fault = lambda _operation, _table, _detail: False
    assert led.replica.append_waiting(0)
    assert led.said() == {"a": "0-0"}
    assert values(led.log()) == "a" * LARGE


def test_a_leader_that_resigns_meanwhile_appends_nothing(led: LedBeside) -> None:
    led.large("a")
    assert not led.replica.append_waiting(0)
    led.replica.resign(NotLeaderOrFollowerError("another one leads"))
    led.threads.work()
    assert not led.replica.append_waiting(0)
    assert led.said() == {"a": "NOT_LEADER_OR_FOLLOWER"}
    assert contents(led.log()) == []


def test_a_fenced_leader_resigns_although_its_file_is_written(led: LedBeside) -> None:
    led.large("a")
    assert not led.replica.append_waiting(0)
    other = led.log()
    other.refresh()
    other.start_epoch(EPOCH + 1, as_leader=True)
    led.threads.work()
    led.replica.append_waiting(0)
    led.replica.append_waiting(0)
    assert led.said() == {"a": "NOT_LEADER_OR_FOLLOWER"}
    assert contents(led.log()) == []


def test_an_append_whose_outcome_is_open_is_made_once(led: LedBeside) -> None:
    led.large("a")
    assert not led.replica.append_waiting(0)
    led.threads.work()
    failures = [StoreUnavailableError("the answer is lost")]
    create = type(led.replica.log.table).commit

    def commit(table: Any, *args: Any, **kwargs: Any) -> Any:
        made = create(table, *args, **kwargs)
        if failures:
            raise failures.pop()
        return made

    led.replica.log.table.commit = commit.__get__(led.replica.log.table)  # type: ignore[method-assign]
    assert not led.replica.append_waiting(0)
    now_ms = 1_000
    while led.replica.append_waiting(now_ms):
        now_ms += 1_000
    assert led.said() == {"a": "0-0"}
    assert (values(led.log()), led.files()) == ("a" * LARGE, 1)
