"""The parts of one process that read the metadata log: each for itself, and what they share of it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.log import MetadataLog, SharedMetadata, open_metadata
from stratalog.replication.metadata.records import ConfigRecord, MetadataRecord, PartitionRecord, RegisterBrokerRecord
from stratalog.replication.shared_fold import STEPS_MAX, SharedFold
from stratalog.replication.stores import DeltaStores
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.errors import StoreUnavailableError
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores, commit, create, led_by, register
from tests.waiting import wait_until


class Reads:
    """Counts reads of the log's data files; the one with number `fails_at` fails."""

    def __init__(self, stores: MemoryStores, fails_at: int = 0) -> None:
        self.count, self._fails_at = 0, fails_at
        stores.disk(METADATA_ROOT).fault = self._fault

    def _fault(self, operation: str, _table: str, detail: str) -> bool:
        if operation != "get" or not detail.endswith(".parquet"):
            return False
        self.count += 1
        return self.count == self._fails_at


def config(number: int) -> ConfigRecord:
    return ConfigRecord("t", "retention.ms", str(number))


def parts(count: int, shared: SharedMetadata | None = None) -> tuple[MemoryStores, list[MetadataLog]]:
    """A cluster of one topic, and parts of one process that have read it."""
    stores, shared = MemoryStores(), shared or SharedFold[ClusterImage, MetadataRecord]()
    writer = stores.metadata()
    register(writer, 1, 1)
    create(writer, "t", led_by(1), led_by(2, partition=1))
    readers = [stores.metadata(shared) for _ in range(count)]
    for each in readers:
        each.refresh()
    return stores, readers


def test_all_parts_hold_one_image() -> None:
    stores, readers = parts(3)
    assert readers[0].image is readers[1].image is readers[2].image
    for number in range(5):
        commit(stores.metadata(), config(number))
        for each in readers:
            assert each.refresh() == [config(number)]
        assert readers[0].image is readers[1].image is readers[2].image
    assert readers[0].image.configs == {"t": {"retention.ms": "4"}}


def test_a_part_has_read_what_it_has_read_whatever_the_others_have() -> None:
    stores, (one, other) = parts(2)
    before = other.image
    commit(stores.metadata(), config(1))
    commit(stores.metadata(), config(2))
    one.refresh()
    assert other.image is before
    assert not other.has_unseen
    commit(stores.metadata(), config(3))
    assert other.refresh() == [config(1), config(2), config(3)]
    assert one.refresh() == [config(3)]
    assert other.image is one.image


def test_records_are_read_by_one_part() -> None:
    stores, readers = parts(6)
    writer, reads = stores.metadata(), Reads(stores)
    writer.refresh()
    for number in range(10):
        commit(writer, config(number))
        reads.count = 0
        for each in readers:
            each.refresh()
        assert reads.count <= 1


def test_a_part_that_comes_later_begins_with_the_image_of_the_others() -> None:
    shared = SharedFold[ClusterImage, MetadataRecord]()
    stores, readers = parts(2, shared)
    reads = Reads(stores)
    later = stores.metadata(shared)
    records = later.refresh()
    assert reads.count == 0
    assert later.image is readers[0].image
    assert [record for record in records if isinstance(record, RegisterBrokerRecord)]
    assert {record.partition for record in records if isinstance(record, PartitionRecord)} == {0, 1}
    commit(stores.metadata(), config(1))
    assert later.refresh() == readers[0].refresh() == [config(1)]


def test_an_error_of_a_store_is_seen_by_one_part_alone() -> None:
    stores, (one, other, third) = parts(3)
    commit(stores.metadata(), config(1))
    Reads(stores, fails_at=1)
    with pytest.raises(StoreUnavailableError):
        one.refresh()
    assert other.refresh() == [config(1)]
    assert one.refresh() == third.refresh() == [config(1)]
    assert one.image is other.image is third.image


def test_a_part_that_was_interrupted_misses_no_record_and_has_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    stores, (one, other) = parts(2)
    monkeypatch.setattr("stratalog.replication.metadata.log.READ_BYTES", 1)
    for number in range(6):
        commit(stores.metadata(), config(number))
    Reads(stores, fails_at=3)
    with pytest.raises(StoreUnavailableError):
        one.refresh()
    assert one.image.configs == {"t": {"retention.ms": "1"}}
    assert other.refresh() == one.refresh() == [config(number) for number in range(6)]
    assert other.image is one.image


def test_a_part_that_is_far_behind_reads_for_itself() -> None:
    stores, (one, other) = parts(2)
    for number in range(STEPS_MAX + 10):
        commit(stores.metadata(), config(number))
        one.refresh()
    assert other.refresh() == [config(number) for number in range(STEPS_MAX + 10)]
    assert other.image is one.image
    commit(stores.metadata(), config(1))
    assert one.refresh() == other.refresh() == [config(1)]


def test_two_clusters_share_nothing() -> None:
    shared: SharedMetadata = SharedFold()
    images = []
    for broker_id in (1, 2):
        stores = MemoryStores()
        stores.ids = RandomIds()
        register(stores.metadata(), broker_id, 1)
        reader = stores.metadata(shared)
        reader.refresh()
        images.append(set(reader.image.brokers))
    assert images == [{1}, {2}]


def test_a_decision_of_one_part_is_made_on_what_another_has_committed() -> None:
    _, readers = parts(4)

    def count(image: ClusterImage) -> Result[int]:
        number = int(image.configs.get("t", {}).get("retention.ms", 0)) + 1
        return Result((config(number),), number)

    assert [readers[number % 4].propose(count) for number in range(20)] == list(range(1, 21))


class Follower:
    """One part in a thread of its own: it proposes `count` records and then follows until `is_over`."""

    def __init__(self, metadata: MetadataLog, first: int, count: int, is_over: threading.Event) -> None:
        self.metadata, self.seen = metadata, list[MetadataRecord]()
        self.failure: BaseException | None = None
        self._proposed = [config(number) for number in range(first, first + count)]
        self._is_over = is_over
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def refresh(self) -> None:
        self.seen += self.metadata.refresh()

    def _run(self) -> None:
        try:
            for record in self._proposed:
                commit(self.metadata, record)
                self.refresh()
            while not self._is_over.wait(0.001):
                self.refresh()
        except BaseException as failure:  # noqa: BLE001 - shown at the end
            self.failure = failure


def test_threads_that_follow_and_propose_miss_nothing_and_hold_one_image_at_the_end(tmp_path: Path) -> None:
    shared, ids, is_over = SharedFold[ClusterImage, MetadataRecord](), RandomIds(), threading.Event()
    readers = [open_metadata(DeltaStores(ids), str(tmp_path), SystemClock(), ids, shared=shared) for _ in range(6)]
    readers[0].create()
    for each in readers:
        each.refresh()
    followers = [Follower(each, 100 * i, 20 if i < 2 else 0, is_over) for i, each in enumerate(readers)]
    wait_until(lambda: any(each.failure for each in followers) or all(len(each.seen) == 40 for each in followers))
    is_over.set()
    for each in followers:
        each.thread.join()
    assert [each.failure for each in followers if each.failure] == []
    assert all(each.seen == followers[0].seen for each in followers)
    assert len({id(each.image) for each in readers}) == 1
