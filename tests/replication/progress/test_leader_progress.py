"""What a leader publishes, and whom each change wakes."""

from __future__ import annotations

from typing import Any

import pytest

from stratalog.replication.progress.of_leader import LeaderProgress
from stratalog.replication.progress.progress import ReplicaProgress, leader_ends_path, leader_progress_path
from stratalog.replication.progress.progress_object import ProgressReader
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.records import TopicPartition

T0 = TopicPartition("t", 0)
START = ReplicaProgress(T0, 3, 10, 7, high_watermark=9, log_start_offset=2, start_offset=8, topic_id="id")
BOTH, FOLLOWERS, READERS, NOBODY = (True, True), (True, False), (False, True), (False, False)

CHANGES = [
    pytest.param({}, NOBODY, id="nothing"),
    pytest.param({"log_end_offset": 11, "version": 8}, FOLLOWERS, id="records"),
    pytest.param({"high_watermark": 10}, READERS, id="they are committed"),
    pytest.param({"log_end_offset": 11, "version": 8, "high_watermark": 10}, BOTH, id="records, and earlier ones are"),
    pytest.param({"version": 8}, READERS, id="the table without records: files merged, something erased"),
    pytest.param({"log_start_offset": 3, "version": 8}, BOTH, id="a log start"),
    pytest.param({"leader_epoch": 4, "version": 8}, BOTH, id="an epoch"),
    pytest.param({"topic_id": "new"}, BOTH, id="a topic again"),
    pytest.param({"removed_version": 8, "removed_end": 5, "log_end_offset": 11, "version": 9}, BOTH, id="compacted"),
    pytest.param({"known_committed": 9}, READERS, id="committed in an earlier epoch"),
]


@pytest.mark.parametrize(("change", "told"), CHANGES)
def test_a_change_is_told_to_whom_it_concerns(change: dict[str, Any], told: tuple[bool, bool]) -> None:
    store = MemoryStore()
    progress = LeaderProgress(store, 4)
    progress.publish([START], 1, beat_is_due=False)
    paths = (leader_ends_path(4), leader_progress_path(4))
    before = [store.get_register(path) for path in paths]
    after = START._replace(**change)
    assert progress.publish([after], 2, beat_is_due=False) == any(told)
    assert tuple(store.get_register(path) != old for path, old in zip(paths, before, strict=True)) == told
    for path, is_told in zip(paths, told, strict=True):
        reader = ProgressReader(store, path)
        reader.poll()
        assert reader.entries == {T0: after if is_told else START}


def test_what_readers_were_not_told_comes_with_what_they_are() -> None:
    store = MemoryStore()
    progress = LeaderProgress(store, 4)
    progress.publish([START], 1, beat_is_due=False)
    for end in (11, 12, 13):
        progress.publish([START._replace(log_end_offset=end, version=end)], 2, beat_is_due=False)
    newest = START._replace(log_end_offset=13, version=13, high_watermark=12)
    progress.publish([newest], 3, beat_is_due=False)
    reader = ProgressReader(store, leader_progress_path(4))
    assert reader.poll() == [newest]


def test_a_beat_is_the_readers_object_written_anew() -> None:
    store = MemoryStore()
    progress = LeaderProgress(store, 4)
    ends, marks = (store.get_register(path) for path in (leader_ends_path(4), leader_progress_path(4)))
    assert not progress.publish([], 1, beat_is_due=False)
    assert progress.publish([], 2, beat_is_due=True)
    assert store.get_register(leader_ends_path(4)) == ends
    assert store.get_register(leader_progress_path(4)) != marks


class _Failing(MemoryStore):
    """Fails once at the path that is named."""

    failing = ""

    def put_register(self, path: str, data: bytes) -> None:
        if path == self.failing:
            self.failing = ""
            raise StoreUnavailableError(path)
        super().put_register(path, data)


@pytest.mark.parametrize("path", [leader_ends_path(4), leader_progress_path(4)])
def test_what_a_failure_kept_back_is_published_by_the_next_call(path: str) -> None:
    store = _Failing()
    progress = LeaderProgress(store, 4)
    store.failing = path
    with pytest.raises(StoreUnavailableError):
        progress.publish([START], 1, beat_is_due=False)
    assert progress.publish([START], 2, beat_is_due=False)
    for each in (leader_ends_path(4), leader_progress_path(4)):
        assert ProgressReader(store, each).poll() == [START]


def test_a_partition_that_is_led_no_more_is_in_neither() -> None:
    store = MemoryStore()
    progress = LeaderProgress(store, 4)
    other = START._replace(topic_partition=TopicPartition("t", 1))
    progress.publish([START, other], 1, beat_is_due=False)
    progress.forget(T0)
    progress.publish([other._replace(log_end_offset=11, version=8, high_watermark=11)], 2, beat_is_due=False)
    for each in (leader_ends_path(4), leader_progress_path(4)):
        assert [entry.topic_partition.partition for entry in ProgressReader(store, each).poll()] == [1]
