"""When a broker's loop looks again, and how long it waits."""

from __future__ import annotations

import pytest

from stratalog.replication import cadence
from stratalog.replication.broker.polls import MetadataPolls, Polls
from stratalog.replication.config import BrokerConfig
from stratalog.replication.leader.purgatory import ProducePurgatory
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.objects.wakeup import Wakeup
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores

CONFIG = BrokerConfig.from_properties(
    {
        "stratalog.metadata.poll.ms": 40,
        "stratalog.metadata.poll.max.ms": 500,
        "stratalog.inbox.poll.ms": 30,
        "stratalog.inbox.poll.max.ms": 400,
        "stratalog.progress.poll.min.ms": 10,
        "stratalog.progress.poll.max.ms": 250,
    }
)


class Polling:
    """The polls of one loop in memory. `reads`: what was read, in order."""

    def __init__(self, *, reports_writes: bool) -> None:
        stores = MemoryStores()
        for root in (METADATA_ROOT, "broker-1"):
            stores.stores[root] = MemoryStore({}, stores.clock.wall_ms, root, reports_writes=reports_writes)
        self.clock, ports, wakeup = stores.clock, stores.ports(), Wakeup(stores.clock)
        store, now_ms = stores.objects(METADATA_ROOT), stores.clock.monotonic_ms()
        metadata = MetadataPolls(stores.metadata(), store, CONFIG, ports, wakeup, now_ms)
        inbox = stores.objects("broker-1")
        self.polls = Polls(CONFIG, ports, metadata, inbox, ProducePurgatory(), wakeup)
        self.reads: list[str] = []
        self.lists = True

    def _read_inbox(self, lists: bool) -> None:
        self.reads.append("inbox")
        self.lists = lists

    def turn(self, after_ms: int = 0, *, has_requests: bool = False) -> list[str]:
        """What is read in a turn after a pause."""
        self.clock.now_ms += after_ms
        self.reads.clear()
        self.polls.poll_metadata(self.clock.now_ms, lambda: self.reads.append("metadata"))
        self.polls.poll_inbox(self.clock.now_ms, self._read_inbox, has_requests=has_requests)
        return list(self.reads)


def test_what_is_polled_is_read_less_and_less_and_often_again_after_news() -> None:
    polling = Polling(reports_writes=False)
    assert polling.turn() == ["metadata", "inbox"]
    assert polling.turn(30) == ["inbox"]
    assert polling.turn(10) == ["metadata"]
    assert polling.turn(60_000) == ["metadata", "inbox"]
    assert polling.turn(399) == []
    assert polling.turn(1) == ["inbox"]
    assert polling.turn(100) == ["metadata"]
    polling.polls.records_moved(polling.clock.now_ms)
    assert polling.turn(500, has_requests=True) == ["metadata", "inbox"]
    assert polling.turn(30) == ["inbox"]
    assert polling.turn(10) == ["metadata"]


def test_records_that_move_end_no_pause_where_metadata_are_announced() -> None:
    """Each commit polled for is a request, and while records flow there would be many."""
    polling = Polling(reports_writes=False)
    polling.polls.metadata.is_announced = lambda: True
    polling.turn(60_000)
    polling.polls.records_moved(polling.clock.now_ms)
    assert polling.turn(450) == ["inbox"]
    polling.polls.metadata.expect()
    assert polling.turn() == ["metadata"]


def test_an_inbox_is_listed_for_a_while_after_a_request_and_then_its_bell_is_read() -> None:
    polling = Polling(reports_writes=False)
    found = []
    for after_ms in (0, 9_000, 1_000, 400, 9_000, 1_000):
        polling.turn(after_ms, has_requests=after_ms == 400)
        found.append(polling.lists)
    assert found == [True, True, False, True, True, False]


def test_what_is_watched_is_read_when_it_is_written_and_now_and_then() -> None:
    polling = Polling(reports_writes=True)
    assert polling.turn() == ["metadata", "inbox"]
    assert polling.turn(999) == []
    assert polling.turn(1) == ["metadata", "inbox"]
    assert polling.polls.pause_ms(None) == cadence.LOOP_WAIT.ms


def test_metadata_that_are_expected_are_read_in_the_next_turn() -> None:
    polling = Polling(reports_writes=False)
    polling.turn(60_000)
    polling.polls.metadata.expect()
    assert polling.turn() == ["metadata"]
    assert polling.turn() == []


def test_a_read_that_failed_is_tried_again_soon() -> None:
    polling = Polling(reports_writes=False)

    def fail() -> None:
        raise StoreUnavailableError("away")

    with pytest.raises(StoreUnavailableError):
        polling.polls.poll_metadata(polling.clock.now_ms, fail)
    assert polling.turn(cadence.LOOP_RETRY.ms - 1) == ["inbox"]
    assert polling.turn(1) == ["metadata"]


@pytest.mark.parametrize(("coordinators_in_ms", "pause_ms"), [(None, 10), (4, 4), (-5, 1), (700, 10)])
def test_the_loop_waits_for_what_time_brings_first(coordinators_in_ms: int | None, pause_ms: int) -> None:
    """Without threads it reads followers' progress itself: every 10 ms after a record."""
    polling = Polling(reports_writes=False)
    polling.turn()
    due_ms = None if coordinators_in_ms is None else polling.clock.now_ms + coordinators_in_ms
    assert polling.polls.pause_ms(due_ms) == pause_ms


def test_followers_progress_is_read_less_and_less() -> None:
    polling = Polling(reports_writes=False)
    pauses_ms = []
    for idle_ms in (0, 3_000, 60_000):
        polling.clock.now_ms += idle_ms
        pauses_ms.append(polling.polls.progress_poll_ms())
    polling.polls.followers_progressed(polling.clock.now_ms)
    assert [*pauses_ms, polling.polls.progress_poll_ms()] == [10, 300, 1_000, 10]
