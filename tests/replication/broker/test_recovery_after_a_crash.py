"""A broker that starts after an unclean stop: earlier processes are fenced, then its tables are recovered, then it is
live."""

from __future__ import annotations

import pytest

from stratalog.replication.broker.broker import Broker
from stratalog.replication.broker.hosted_replicas import BrokerIdentity, BrokerSetup
from stratalog.replication.controller.brokers import online_partitions
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.storage.clock import RandomIds
from stratalog.storage.errors import DuplicateBrokerRegistrationError, StoreUnavailableError
from tests.replication.broker.test_broker import CONFIG, T0, Running, in_memory, tick
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores
from tests.storage.memory_table import MemoryLogTable


def led_alone() -> tuple[Running, MemoryStores]:
    """Broker 1 leads, and broker 2 has left the ISR."""
    running, stores = in_memory()
    stores.objects("broker-1").durable_on_answer = False
    for _ in range(200):
        tick(stores)
        running.settle()
        if running.metadata.refresh() and running.metadata.image.partition(T0).isr == (1,):
            return running, stores
    raise AssertionError(f"{running.metadata.image.partition(T0)}")


def next_process(stores: MemoryStores) -> Broker:
    ports = stores.ports()
    setup = BrokerSetup(BrokerIdentity(1, "broker-1"), CONFIG, METADATA_ROOT)
    return Broker(setup, type(ports)(stores, stores.clock, RandomIds()))


def test_the_earlier_process_is_fenced_and_nobody_leads_before_a_table_is_recovered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    earlier, stores = led_alone()
    seen: list[tuple[bool, int]] = []

    def recover_tail(table: MemoryLogTable) -> int:
        earlier.metadata.propose(online_partitions)
        image = earlier.metadata.image
        seen.append((image.is_live(1), image.partition(T0).leader))
        tick(stores)
        earlier.settle()
        return -1

    monkeypatch.setattr(MemoryLogTable, "recover_tail", recover_tail)
    later = next_process(stores)
    later.start()
    assert seen == [(False, NO_LEADER)]
    assert isinstance(earlier.broker.stopped_by, DuplicateBrokerRegistrationError)
    assert earlier.broker.leaders == {}
    earlier.metadata.propose(online_partitions)
    assert (earlier.metadata.image.is_live(1), earlier.metadata.image.partition(T0).leader) == (True, 1)


def test_a_crash_before_the_end_of_a_recovery_leaves_the_next_start_to_recover_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, stores = led_alone()
    recovered: list[str] = []

    def is_lost(table: MemoryLogTable) -> int:
        raise StoreUnavailableError("the power is cut")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryLogTable, "recover_tail", is_lost)
        with pytest.raises(StoreUnavailableError, match="the power is cut"):
            next_process(stores).start()
    monkeypatch.setattr(MemoryLogTable, "recover_tail", lambda table: recovered.append(table.name) or 0)
    next_process(stores).start()
    assert recovered == ["memory:///t-0"]


def test_a_process_that_was_replaced_while_it_recovered_stops_and_fences_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    earlier, stores = led_alone()
    slow, newest = next_process(stores), next_process(stores)

    def recover_tail(table: MemoryLogTable) -> int:
        monkeypatch.undo()
        newest.start()
        return 0

    monkeypatch.setattr(MemoryLogTable, "recover_tail", recover_tail)
    with pytest.raises(DuplicateBrokerRegistrationError):
        slow.start()
    assert isinstance(slow.stopped_by, DuplicateBrokerRegistrationError)
    earlier.metadata.refresh()
    assert earlier.metadata.image.is_current(1, newest.broker_epoch)
    assert newest.stopped_by is None


def test_on_a_store_that_is_durable_on_answer_no_table_is_recovered(monkeypatch: pytest.MonkeyPatch) -> None:
    _, stores = led_alone()
    stores.objects("broker-1").durable_on_answer = True
    recovered: list[str] = []
    monkeypatch.setattr(MemoryLogTable, "recover_tail", lambda table: recovered.append(table.name) or 0)
    next_process(stores).start()
    assert recovered == []
