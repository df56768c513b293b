"""A root without space: its replicas should be led elsewhere until something fits again; nothing is lost or damaged."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from stratalog.replication import cadence
from stratalog.replication.broker.hosted_replicas import BrokerIdentity, BrokerSetup, HostedReplicas
from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.brokers import OfflineReplica, report_offline
from stratalog.replication.leader.purgatory import ProducePurgatory
from stratalog.replication.leader.replica import LeaderReplica, WaitingAppend
from stratalog.replication.requests.produce import ACKS_LEADER, ProduceRequest, ProduceResponse
from stratalog.storage.errors import StoreFullError, StoreUnavailableError, StratalogError
from stratalog.storage.objects.local import LocalStore
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from tests.replication.images import TOPIC, brief, commit, image_of, offline, partition, state
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores, create, led_by, register
from tests.storage.logs import batch

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Hosting:
    """Broker 1 with the partitions t-0 and t-1, which it leads; the disk is full while `is_full`."""

    def __init__(self) -> None:
        self.stores = MemoryStores()
        self.metadata = self.stores.metadata()
        register(self.metadata, 1, 1)
        register(self.metadata, 2, 2)
        create(self.metadata, "t", led_by(1), led_by(1, partition=1))
        self.purgatory = ProducePurgatory()
        setup = BrokerSetup(BrokerIdentity(1, "broker-1"), BrokerConfig(), METADATA_ROOT)
        self.hosted = HostedReplicas(setup, self.stores.ports(), self.purgatory, lambda: self.metadata.image)
        self.is_full = False
        disk = self.stores.disk("broker-1")
        disk.error = StoreFullError
        disk.fault = lambda operation, _table, _detail: self.is_full and operation in ("create", "put")
        self.answers: list[ProduceResponse] = []
        for topic_partition in (T0, T1):
            self.hosted.apply(topic_partition, self.metadata.image, 0)

    def leader(self, topic_partition: TopicPartition) -> LeaderReplica:
        return self.hosted.leaders[topic_partition]

    def append(self, topic_partition: TopicPartition, value: str, now_ms: int) -> None:
        request = ProduceRequest(
            IdentifiedPartition("id", topic_partition), batch([value]), ACKS_LEADER, timeout_ms=1_000
        )
        self.leader(topic_partition).waiting.append(WaitingAppend(request, self.answers.append))
        self.leader(topic_partition).append_waiting(now_ms)


@pytest.fixture
def hosting() -> Hosting:
    made = Hosting()
    for topic_partition in (T0, T1):
        assert made.leader(topic_partition).start(0)
    return made


def test_one_append_without_space_takes_all_leaders_of_the_root_offline(hosting: Hosting) -> None:
    hosting.append(T0, "a", 1)
    assert hosting.hosted.offline == {}
    hosting.is_full = True
    hosting.append(T0, "b", 2)
    assert set(hosting.hosted.offline) == {T0, T1}
    assert hosting.hosted.offline_replicas() == [
        OfflineReplica(IdentifiedPartition("id", each), 0) for each in (T0, T1)
    ]
    assert hosting.hosted.metrics.offline_count() == 2
    assert hosting.leader(T0).log.table.damage() is None, "the table is sound"
    assert [answer.base_offset for answer in hosting.answers] == [0], "no request is refused yet"


def test_a_leader_that_cannot_be_replaced_continues_when_there_is_space(hosting: Hosting) -> None:
    hosting.is_full = True
    hosting.append(T0, "a", 1)
    hosting.is_full = False
    assert hosting.leader(T0).append_waiting(1 + cadence.APPEND_RETRY.ms)
    assert [answer.base_offset for answer in hosting.answers] == [0]
    assert hosting.hosted.offline == {}
    hosting.append(T1, "b", 200)
    assert len(hosting.answers) == 2


def test_the_first_append_that_fits_brings_all_leaders_back(hosting: Hosting) -> None:
    """The one that found the disk full was led elsewhere meanwhile."""
    hosting.is_full = True
    hosting.append(T0, "a", 1)
    hosting.hosted.stop_leading(T0, "broker 2 leads")
    assert list(hosting.hosted.offline) == [T1]
    hosting.is_full = False
    hosting.append(T1, "b", 2)
    assert hosting.hosted.offline == {}


def test_an_epoch_that_cannot_start_is_reported_too() -> None:
    hosting = Hosting()
    hosting.is_full = True
    assert not hosting.leader(T1).start(0)
    assert set(hosting.hosted.offline) == {T0, T1}
    hosting.is_full = False
    assert hosting.leader(T1).start(cadence.APPEND_RETRY.ms)
    assert hosting.hosted.offline == {}


def test_free_space_does_not_end_damage(hosting: Hosting) -> None:
    hosting.is_full = True
    hosting.append(T1, "b", 1)
    hosting.leader(T0).go_offline(StratalogError("foreign hands"))
    hosting.is_full = False
    assert hosting.leader(T1).append_waiting(1 + cadence.APPEND_RETRY.ms)
    assert list(hosting.hosted.offline) == [T0]


def test_the_leaderships_move_and_the_full_broker_leaves_the_isrs() -> None:
    """Alone in its ISR it stays: no other replica has what it has."""
    image = image_of((1, 2, 3), partition((1, 2, 3), 1, (1, 2, 3)), partition((1, 2), 1, (1,), number=1))
    places = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
    assert commit(image, report_offline(image, 1, 11, offline(image, *places))) == (places[0],)
    assert brief(state(image)) == (2, (2, 3), 6)
    assert brief(state(image, 1)) == (1, (1,), 5)


def test_a_full_disk_differs_from_one_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(str(tmp_path / "root"), create=True)

    def failing(number: int) -> StoreUnavailableError:
        error = OSError(number, os.strerror(number))
        monkeypatch.setattr(os, "statvfs", lambda _path: (_ for _ in ()).throw(error))
        with pytest.raises(StoreUnavailableError) as failed:
            store.free_share()
        return failed.value

    full = failing(errno.ENOSPC)
    assert isinstance(full, StoreFullError)
    assert "No space left on device" in str(full)
    assert (full.name, full.retriable) == ("KAFKA_STORAGE_ERROR", True)
    assert type(failing(errno.EIO)) is StoreUnavailableError
