"""A broker's loop while its appends are stored in other threads: upkeep has its turn, and the end waits for them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from stratalog.replication.config import BrokerConfig
from stratalog.replication.metadata.records import ConfigRecord
from tests.replication.broker.test_requests_of_an_append import T0, Alone
from tests.replication.memory_stores import commit
from tests.storage.hand_executor import HandExecutor

KEPT_UP = BrokerConfig.from_properties({"stratalog.upkeep.interval.ms": 100})


class Busy(Alone):
    """A partition of which some append is always under way: a test works for the threads."""

    def __init__(self) -> None:
        self.threads = HandExecutor()
        super().__init__(self.threads, KEPT_UP)

    def turn(self, value: str) -> None:
        """One more append, the work of the threads, and turns of the loop that do not wait for its end."""
        self.produce(value)
        self.broker.step()
        self.threads.work()
        self.produce(value)
        self.broker.step()


def test_upkeep_has_its_turn_between_appends_that_follow_each_other() -> None:
    """Retention commits to the log, which it may only do while no append is under way."""
    busy = Busy()
    commit(busy.metadata, ConfigRecord("t", "segment.files.max", "1"), ConfigRecord("t", "retention.bytes", "1"))
    busy.rest(1_000)
    replica = busy.broker.leaders[T0]
    rounds = 0
    while replica.log.log_start_offset == 0:
        rounds += 1
        assert rounds < 100
        busy.clock.now_ms += 5_000
        busy.turn("a")
    for _ in range(20):
        busy.clock.now_ms += 100
        busy.broker.step()
        busy.threads.work()
    assert [answer.error for answer in busy.answers] == [None] * (2 * rounds)
    assert replica.log.log_end_offset == 2 * rounds


def test_a_controlled_shutdown_waits_for_what_is_under_way() -> None:
    with ThreadPoolExecutor(1) as threads:
        alone = Alone(threads)
        for value in "abc":
            alone.produce(value)
        alone.broker.shut_down()
    assert len(alone.answers) == 3, "by another leader's name: nobody published them as committed"
    stored = alone.stores.table("broker-1", T0).snapshot()
    assert stored is not None
    assert sum(entry.file.record_count for entry in stored.files) == 3
