"""Brokers on an object store show each other over their listeners that they live, and write little meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from stratalog.replication import cadence
from stratalog.replication.broker.broker import Broker
from stratalog.replication.broker.hosted_replicas import BrokerIdentity, BrokerSetup
from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.controller import Controller
from stratalog.replication.controller.sessions import Beat, PeerBeats, session_path
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.objects.distance import FAR
from stratalog.storage.objects.memory import MemoryStore
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores

BROKERS = (1, 2, 3)
CONFIG = BrokerConfig()
SESSION_MS = CONFIG.broker_session_timeout_ms
STEP_MS = 100


class FarStore(MemoryStore):
    """An object store that counts reads and writes of sessions. `refuses`: those whose sessions it does not take."""

    distance = FAR

    def __init__(self, stores: MemoryStores) -> None:
        super().__init__({}, stores.clock.wall_ms, METADATA_ROOT, reports_writes=False)
        self.writes: dict[str, int] = {}
        self.reads = 0
        self.refuses: set[str] = set()

    def put_register(self, path: str, data: bytes) -> None:
        if path in self.refuses:
            raise StoreUnavailableError(f"test: {path}")
        self.writes[path] = self.writes.get(path, 0) + 1
        super().put_register(path, data)

    def get_register(self, path: str) -> bytes | None:
        self.reads += path.startswith("sessions/")
        return super().get_register(path)


class Process:
    """A broker, its candidate, and what it hears."""

    def __init__(self, stores: MemoryStores, broker_id: int) -> None:
        ports, self.beats = stores.ports(), PeerBeats()
        identity = BrokerIdentity(broker_id, f"broker-{broker_id}", None)
        self.broker = Broker(BrokerSetup(identity, CONFIG, METADATA_ROOT, peer_beats=self.beats), ports)
        self.controller = Controller(broker_id, self.broker.incarnation_id, CONFIG, METADATA_ROOT, ports)
        self.controller.beats, self.beats.on_newer = self.beats, self.broker.expect_metadata
        self.due_ms = 0


class Together:
    """Three processes of one cluster. `apart`: pairs that cannot call each other; `dead`: those that do nothing."""

    def __init__(self) -> None:
        self.stores = MemoryStores()
        self.store = self.stores.stores[METADATA_ROOT] = FarStore(self.stores)
        self.stores.metadata()
        self.apart: set[frozenset[int]] = set()
        self.dead: set[int] = set()
        self.processes = {broker_id: Process(self.stores, broker_id) for broker_id in BROKERS}
        for broker_id, each in self.processes.items():
            each.beats.send = lambda beat, peers, now_ms, own=broker_id: self._send(own, beat, peers, now_ms)
            each.broker.start()
        self.pass_ms(5_000)

    def _send(self, own: int, beat: Beat, peers: Mapping[int, int], now_ms: int) -> None:
        for broker_id, broker_epoch in peers.items():
            if broker_id not in self.dead and frozenset({own, broker_id}) not in self.apart:
                self.processes[broker_id].beats.hears(beat, now_ms)
                self.processes[own].beats.took(broker_id, broker_epoch, now_ms)

    def pass_ms(self, duration_ms: int) -> None:
        end_ms = self.stores.clock.now_ms + duration_ms
        while self.stores.clock.now_ms < end_ms:
            self.stores.clock.now_ms += STEP_MS
            for broker_id, each in self.processes.items():
                if broker_id in self.dead:
                    continue
                each.broker.step()
                if self.stores.clock.now_ms >= each.due_ms:
                    each.controller.step()
                    each.due_ms = self.stores.clock.now_ms + each.controller.poll_interval_ms

    def live(self) -> set[int]:
        """By the metadata of a broker that runs."""
        newest = next(each for broker_id, each in self.processes.items() if broker_id not in self.dead)
        newest.controller.metadata.refresh()
        return set(newest.controller.metadata.image.live_brokers())

    def forget(self) -> None:
        self.store.writes.clear()
        self.store.reads = 0


def test_while_all_hear_each_other_sessions_are_hardly_written_and_never_read() -> None:
    together = Together()
    together.forget()
    together.pass_ms(10 * SESSION_MS)
    most = 10 * SESSION_MS // cadence.SESSION_WRITTEN.ms
    assert {path: count for path, count in together.store.writes.items() if count > most} == {}
    assert together.store.reads == 0
    assert together.live() == {*BROKERS}


def test_who_cannot_be_called_sees_the_object_change() -> None:
    """Promise 14: nobody is fenced while its session goes on, whichever way it is seen."""
    together = Together()
    together.apart = {frozenset({1, 2}), frozenset({1, 3})}
    together.forget()
    together.pass_ms(5 * SESSION_MS)
    assert together.live() == {*BROKERS}
    beats = 5 * SESSION_MS // CONFIG.broker_heartbeat_interval_ms
    assert min(together.store.writes[session_path(each)] for each in BROKERS) >= beats - 3
    together.apart = set()
    together.pass_ms(SESSION_MS)
    together.forget()
    together.pass_ms(SESSION_MS)
    assert sum(together.store.writes.values()) <= len(BROKERS)


@pytest.mark.parametrize("dead", BROKERS)
def test_a_dead_broker_is_fenced_within_a_session_and_a_second(dead: int) -> None:
    together = Together()
    together.pass_ms(2 * cadence.SESSION_WRITTEN.ms)
    together.dead = {dead}
    together.pass_ms(SESSION_MS - 2_500)
    assert together.live() == {*BROKERS}
    together.pass_ms(3_500)
    assert together.live() == {*BROKERS} - {dead}


def test_a_broker_that_may_not_write_its_session_is_fenced_although_it_could_be_called() -> None:
    together = Together()
    together.store.refuses = {session_path(2)}
    together.pass_ms(cadence.SESSION_WRITTEN.ms + SESSION_MS + 2_000)
    assert together.live() == {1, 3}
