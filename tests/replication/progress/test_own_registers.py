"""What brokers of this process published, as its readers find it: without a read, and never more than storage has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stratalog.replication.progress.of_leader import LeaderProgress
from stratalog.replication.progress.own_registers import OwnRegisters
from stratalog.replication.progress.progress import ReplicaProgress, leader_progress_path
from stratalog.replication.progress.progress_object import ProgressReader
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.records import TopicPartition

ROOT = "memory:///broker-1"


class FailingStore(MemoryStore):
    """Memory whose accesses fail while `is_away`; `is_lost`: only the answers of writes for readers do. `on_written` is
    called before a write is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = self.is_lost = False
        self.on_written: Callable[[], None] = lambda: None

    def put_register(self, path: str, data: bytes) -> None:
        if self.is_away:
            raise StoreUnavailableError("test: away")
        super().put_register(path, data)
        self.on_written()
        if self.is_lost and path == leader_progress_path(5):
            raise StoreUnavailableError("test: no answer")

    def get_register(self, path: str) -> bytes | None:
        if self.is_away:
            raise StoreUnavailableError("test: away")
        return super().get_register(path)


def moved_to(high_watermark: int, partition: int = 0) -> ReplicaProgress:
    return ReplicaProgress(TopicPartition("t", partition), 0, high_watermark, high_watermark, high_watermark)


def publish(progress: LeaderProgress, *entries: ReplicaProgress) -> None:
    progress.publish(entries, 1, beat_is_due=False)


def high_watermarks(reader: ProgressReader) -> list[int]:
    return [entry.high_watermark for entry in reader.poll()]


def test_a_reader_of_this_process_reads_nothing_from_storage() -> None:
    own, store = OwnRegisters(), FailingStore()
    progress = LeaderProgress(own.begin(ROOT, store), 5)
    reader = ProgressReader(own.readable(ROOT, store), leader_progress_path(5))
    publish(progress, moved_to(1))
    store.is_away = True
    assert high_watermarks(reader) == [1]
    assert high_watermarks(reader) == []


def test_more_changes_than_an_object_holds_are_all_found() -> None:
    own, store = OwnRegisters(), FailingStore()
    progress = LeaderProgress(own.begin(ROOT, store), 5)
    reader = ProgressReader(own.readable(ROOT, store), leader_progress_path(5))
    publish(progress, *(moved_to(1, partition) for partition in range(500)))
    store.is_away = True
    assert len(reader.poll()) == 500


@pytest.mark.parametrize(("failing", "stored"), [("is_away", 1), ("is_lost", 2)])
def test_after_a_write_that_failed_storage_is_asked_what_it_has(failing: str, stored: int) -> None:
    own, store = OwnRegisters(), FailingStore()
    progress = LeaderProgress(own.begin(ROOT, store), 5)
    reader = ProgressReader(own.readable(ROOT, store), leader_progress_path(5))
    publish(progress, moved_to(1))
    setattr(store, failing, True)
    with pytest.raises(StoreUnavailableError):
        publish(progress, moved_to(2))
    setattr(store, failing, False)
    assert high_watermarks(reader) == [stored]
    publish(progress, moved_to(3))
    store.is_away = True
    assert high_watermarks(reader) == [3]


def test_a_reader_that_a_write_wakes_finds_it() -> None:
    """It may come before the writer knows that the write is done."""
    own, store = OwnRegisters(), FailingStore()
    progress = LeaderProgress(own.begin(ROOT, store), 5)
    reader = ProgressReader(own.readable(ROOT, store), leader_progress_path(5))
    publish(progress, moved_to(1))
    found: list[int] = []
    store.on_written = lambda: found.extend(high_watermarks(reader))
    publish(progress, moved_to(2))
    assert found[-1] == 2


def test_other_brokers_and_other_registrations_are_read_from_storage() -> None:
    own, store = OwnRegisters(), MemoryStore()
    publish(LeaderProgress(own.begin(ROOT, store), 5), moved_to(1))
    publish(LeaderProgress(store, 6), moved_to(2))
    assert high_watermarks(ProgressReader(own.readable(ROOT, store), leader_progress_path(6))) == [2]
    assert high_watermarks(ProgressReader(own.readable("memory:///broker-2", store), leader_progress_path(5))) == [1]
    assert own.get(ROOT, leader_progress_path(6)) is None


def test_a_new_registration_forgets_what_the_one_before_wrote() -> None:
    own, store = OwnRegisters(), MemoryStore()
    publish(LeaderProgress(own.begin(ROOT, store), 5), moved_to(1))
    assert own.get(ROOT, leader_progress_path(5))
    publish(LeaderProgress(own.begin(ROOT, store), 6), moved_to(2))
    assert own.get(ROOT, leader_progress_path(5)) is None
    assert high_watermarks(ProgressReader(own.readable(ROOT, store), leader_progress_path(6))) == [2]
    assert high_watermarks(ProgressReader(own.readable(ROOT, store), leader_progress_path(5))) == [1], "it is stored"
