"""A clean stop leaves nothing to recover, and is believed only when its mark says so."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.producer.producer import Producer
from stratalog.replication.broker_root import (
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    clean_shutdown_epoch,
    directory_id,
    mark_clean_shutdown,
    was_shut_down,
)
from stratalog.replication.metadata.image import BrokerState
from stratalog.replication.metadata.records import NO_BROKER_EPOCH, RegisterBrokerRecord
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.errors import KafkaStorageError
from stratalog.storage.objects import local
from stratalog.storage.objects.local import LocalStore
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.objects.sync import WritesLostError
from tests.replication.broker.test_broker import Running
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores
from tests.storage.power_cut_store import PowerCutStore, PowerFailure


def known(broker_epoch: int, *, clean: bool = True) -> BrokerState:
    return BrokerState(RegisterBrokerRecord(1, broker_epoch, "run", "root"), fenced=True, clean_shutdown=clean)


@pytest.mark.parametrize(
    ("marked_epoch", "state", "was_clean"),
    [
        (None, None, True),  # its first life
        (None, known(7), False),  # the power was cut between leaving the ISRs and the end
        (7, known(7), True),
        (6, known(7), False),  # the mark of an earlier life
        (7, known(7, clean=False), False),
    ],
)
def test_a_stop_was_clean_if_that_life_left_its_isrs_and_its_mark(marked_epoch, state, was_clean):
    objects = MemoryStore()
    if marked_epoch is not None:
        mark_clean_shutdown(objects, marked_epoch)
    assert was_shut_down(clean_shutdown_epoch(objects), state) is was_clean


def test_a_directory_keeps_its_id_and_an_emptied_one_gets_another():
    objects = MemoryStore()
    objects.put(META_PROPERTIES, b"version=1\ncluster.id=c\nbroker.id=1\n")  # of a release without directory ids
    assert directory_id(objects, "first") == "first"
    assert directory_id(objects, "second") == "first"
    assert objects.get(META_PROPERTIES) == b"version=1\ncluster.id=c\nbroker.id=1\ndirectory.id=first\n"
    objects.objects.clear()
    assert directory_id(objects, "third") == "third"


@pytest.mark.parametrize("seed", range(30))
def test_where_the_mark_survived_a_power_cut_everything_did(seed):
    store = PowerCutStore(random.Random(seed))
    written = {f"t-0/{i}": b"%d" % i * 50 for i in range(5)}
    for path, data in written.items():
        store.put(path, data)
    store.calls_left = seed % 4 + 1
    try:
        mark_clean_shutdown(store, 7)
    except PowerFailure:
        assert seed % 4 < 3
    store.restart()
    if was_shut_down(clean_shutdown_epoch(store), known(7)):
        assert {path: store.objects.get(path) for path in written} == written


def test_no_stop_is_clean_after_any_store_of_the_root_lost_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports it once, to the store of a fetch session: the broker's syncs succeed."""
    roots = [str(tmp_path / name) for name in ("a", "b")]
    session, broker, other = (LocalStore(root, create=True) for root in (roots[0], *roots))
    with monkeypatch.context() as failing:
        lost = OSError(errno.EIO, "Input/output error")
        failing.setattr(local, "sync_files", lambda _: (_ for _ in ()).throw(WritesLostError(*lost.args)))
        with pytest.raises(KafkaStorageError, match="did not keep"):
            session.sync(["t-0"])
    with pytest.raises(KafkaStorageError, match="no clean stop"):
        mark_clean_shutdown(broker, 7)
    mark_clean_shutdown(other, 7)
    assert (clean_shutdown_epoch(broker), clean_shutdown_epoch(other)) == (NO_BROKER_EPOCH, 7)
    monkeypatch.setattr(local, "_LOST_WRITES", {})  # another process
    with pytest.raises(KafkaStorageError, match="no clean stop"):
        mark_clean_shutdown(LocalStore(roots[0]), 7)
    broker.forget_lost_writes()  # the tails were examined
    mark_clean_shutdown(LocalStore(roots[0]), 8)
    assert clean_shutdown_epoch(broker) == 8


def test_a_mark_from_before_the_loss_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(str(tmp_path), create=True)
    mark_clean_shutdown(store, 7)
    monkeypatch.setattr(local, "sync_files", lambda _: (_ for _ in ()).throw(WritesLostError(errno.EIO, "lost")))
    with pytest.raises(KafkaStorageError, match="did not keep"):
        store.sync(["t-0"])
    assert clean_shutdown_epoch(LocalStore(str(tmp_path))) == NO_BROKER_EPOCH


def test_a_broker_syncs_its_root_before_it_leaves_its_isrs(monkeypatch):
    stores = MemoryStores()
    running = Running(stores, stores.clock, (METADATA_ROOT, "root-1", "root-2"))
    running.settle()
    was_fenced: list[bool] = []

    def sync_all() -> None:
        running.metadata.refresh()
        was_fenced.append(running.metadata.image.brokers[1].fenced)

    monkeypatch.setattr(stores.objects("root-1"), "sync_all", sync_all, raising=False)
    running.broker.shut_down()
    running.metadata.refresh()
    assert (was_fenced, running.metadata.image.brokers[1].fenced) == ([False], True)


def test_what_waits_is_refused_when_others_lead_and_answers_can_name_them() -> None:
    stores = MemoryStores()
    running = Running(stores, stores.clock, (METADATA_ROOT, "root-1", "root-2"))
    running.settle()
    found: list[tuple[bool, bool]] = []

    def moved() -> None:
        running.metadata.refresh()
        found.append((running.metadata.image.brokers[1].fenced, running.broker.stopped_by is None))

    running.broker.shut_down(moved)
    assert found == [(True, True)]
    assert running.broker.stopped_by is not None


def test_a_cluster_that_was_stopped_recovers_nothing_and_one_that_was_killed_does(
    cluster_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recovered: list[str] = []
    real = DeltaLogTable.recover_tail

    def recover_tail(table: DeltaLogTable) -> int:
        recovered.append(table.name.rpartition("/")[2])
        return real(table)

    monkeypatch.setattr(DeltaLogTable, "recover_tail", recover_tail)
    synced: list[str] = []
    monkeypatch.setattr(LocalStore, "sync_all", lambda store: synced.append(store.root.rpartition("/")[2]))
    with Cluster.start(cluster_root, brokers=1, fetcher="thread") as cluster:
        Admin(cluster).create_topics([NewTopic("orders", 1, 1)])
        with Producer(cluster) as producer:
            assert producer.send("orders", "a").result(20).offset == 0
        epoch = cluster.broker(1).broker_epoch
    assert synced == ["broker-1"] * 3  # while it served, before it left, and when its fetch sessions had ended
    assert (cluster_root / "broker-1" / CLEAN_SHUTDOWN).read_bytes() == b"%d" % epoch
    recovered.clear()
    with Cluster.start(cluster_root, brokers=1, fetcher="thread") as cluster:
        assert "orders-0" not in recovered
        cluster.kill(1)
        cluster.restart(1)
        assert recovered.count("orders-0") == 1
