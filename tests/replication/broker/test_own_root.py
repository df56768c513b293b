"""When a broker takes its own root for dead: a write has waited for a third of the session, and no stall is enough."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stratalog.replication.broker.inbox import BrokerInbox
from stratalog.replication.broker.own_root import ROOT_PROBE, OwnRoot
from stratalog.replication.config import BrokerConfig
from stratalog.replication.progress.of_leader import LeaderProgress
from stratalog.replication.progress.progress import ReplicaProgress
from stratalog.replication.requests.hand_over import encode_request, request_path
from stratalog.replication.stores import Ports
from stratalog.storage.clock import RandomIds
from stratalog.storage.errors import StoreFullError, StoreUnavailableError
from stratalog.storage.records import TopicPartition
from tests.replication.memory_stores import MemoryStores

CONFIG = BrokerConfig.from_properties({"broker.session.timeout.ms": 9_000, "broker.heartbeat.interval.ms": 2_000})
LOOK_MS = 750
"""The interval at which a controller's thread looks."""


class Later:
    """`Threads` whose threads do not run before `run`."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def start(self, _name: str, run: Callable[[], None]) -> None:
        self.waiting.append(run)

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each()


class Watched:
    """The own root of broker 1, from 1,000,000 on; `look_until` looks at each interval."""

    def __init__(self) -> None:
        self.stores, self.threads = MemoryStores(), Later()
        self.stores.clock.now_ms = 1_000_000
        self.objects = self.stores.objects("broker-1")
        ports = Ports(self.stores, self.stores.clock, RandomIds(), threads=self.threads)
        self.own = OwnRoot(1, self.objects, ports, CONFIG)
        self.begun_ms = self.stores.clock.monotonic_ms()

    def pass_ms(self, duration_ms: int) -> None:
        self.stores.clock.now_ms += duration_ms

    def looks_until_dead_ms(self, most_ms: int) -> int | None:
        """How long it takes from the beginning until a look finds it dead; None: not for `most_ms` from now on."""
        end_ms = self.stores.clock.monotonic_ms() + most_ms
        while self.stores.clock.monotonic_ms() < end_ms:
            self.pass_ms(LOOK_MS)
            if self.own.answers():
                return self.stores.clock.monotonic_ms() - self.begun_ms
        return None


def fails(path: str, _data: bytes) -> None:
    raise StoreUnavailableError(f"{path} is out of reach")


def test_a_write_that_is_not_answered_for_a_third_of_the_session() -> None:
    watched = Watched()
    watched.own.asks()
    assert watched.looks_until_dead_ms(9_000) == 3_000


def test_a_loop_that_is_stuck_elsewhere_is_found_by_a_write_of_another_thread() -> None:
    watched = Watched()
    assert watched.looks_until_dead_ms(20_000) == 6_000  # late at 2,500, seen at 3,000
    assert len(watched.threads.waiting) == 1, "one such write at a time"


def test_a_loop_that_is_only_busy_is_left_alone() -> None:
    watched = Watched()
    for _ in range(20):
        watched.pass_ms(LOOK_MS)
        assert not watched.own.answers()
        watched.threads.run()
    assert watched.objects.get_optional(ROOT_PROBE) == b""


@pytest.mark.parametrize("stall_ms", [1_000, 2_000])
def test_a_short_stall_changes_nothing(stall_ms: int) -> None:
    watched = Watched()
    for _ in range(5):
        watched.own.asks()
        assert watched.looks_until_dead_ms(stall_ms) is None
        watched.own.answered()


def test_a_process_that_slept_measures_anew() -> None:
    watched = Watched()
    assert not watched.own.answers()
    watched.own.asks()
    watched.pass_ms(60_000)
    assert not watched.own.answers()
    assert watched.looks_until_dead_ms(9_000) == 63_000


def test_a_full_disk_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()

    def is_full(path: str, _data: bytes) -> None:
        raise StoreFullError(f"{path}: no space left")

    monkeypatch.setattr(watched.objects, "put", is_full)
    for _ in range(20):
        watched.pass_ms(LOOK_MS)
        assert not watched.own.answers()
        watched.threads.run()


def test_each_write_of_a_publication_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log ends and high watermarks are two objects: together they may take longer than one may."""
    watched = Watched()
    progress = LeaderProgress(watched.own, 4)
    was_dead: list[bool] = []

    def is_slow(_path: str, _data: bytes) -> None:
        for _ in range(3):
            watched.pass_ms(LOOK_MS)
            was_dead.append(watched.own.answers())

    monkeypatch.setattr(watched.objects, "put_register", is_slow)
    entry = ReplicaProgress(TopicPartition("t", 0), 3, 10, 7, high_watermark=9, topic_id="id")
    progress.publish([entry], 1, beat_is_due=True)
    assert was_dead == [False] * 6


def test_an_answer_in_the_inbox_shows_that_the_root_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage of the root and the metadata it may come before anything else is published."""
    watched = Watched()
    inbox = BrokerInbox(watched.objects, lambda _: None, put_answer=watched.own.put)
    watched.objects.put(request_path("r"), encode_request([], 4))
    monkeypatch.setattr(watched.objects, "put", fails)
    inbox.poll()
    with pytest.raises(StoreUnavailableError):
        inbox.write_answers()
    watched.pass_ms(3_000)
    assert watched.own.is_dead()
    monkeypatch.undo()
    assert inbox.write_answers()
    assert not watched.own.is_dead()


def test_the_write_of_a_full_disk_is_refused_and_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()

    def is_full(path: str, _data: bytes) -> None:
        raise StoreFullError(f"{path}: no space left")

    monkeypatch.setattr(watched.objects, "put_register", is_full)
    with pytest.raises(StoreFullError):
        LeaderProgress(watched.own, 4)
    watched.pass_ms(3_000)
    assert not watched.own.is_dead()


def test_requests_that_fail_are_no_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    monkeypatch.setattr(watched.objects, "put", fails)
    for _ in range(4):
        watched.pass_ms(LOOK_MS)
        watched.own.answers()
        watched.threads.run()
    with pytest.raises(StoreUnavailableError):
        watched.own.write()
    watched.pass_ms(3_000)
    assert watched.own.is_dead()
    monkeypatch.undo()
    watched.own.write()
    assert not watched.own.is_dead()
