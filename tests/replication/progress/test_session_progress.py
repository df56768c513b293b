"""What a fetch session publishes, and whom it wakes."""

from __future__ import annotations

from stratalog.replication.follower.sessions.heartbeats import ACTIVE, STANDBY
from stratalog.replication.progress.of_session import SessionProgress, remove_session_progress
from stratalog.replication.progress.progress import (
    ENDED,
    ReplicaProgress,
    fetch_progress_path,
    follower_progress_path,
    full_state_path,
    progress_header,
    progress_prefix,
)
from stratalog.replication.progress.progress_object import RECENT_CHANGES, ProgressReader
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.records import TopicPartition

OWN = fetch_progress_path(12, "0-a")
FOR_1, FOR_3 = (follower_progress_path(12, leader, "0-a") for leader in (1, 3))


def entry(partition: int, end: int) -> ReplicaProgress:
    return ReplicaProgress(TopicPartition("t", partition), 0, end, end, topic_id="id")


def state(store: MemoryStore, path: str) -> str:
    return progress_header(store.get_register(path) or b"").state


def test_each_leader_is_told_of_its_own_partitions_alone() -> None:
    store = MemoryStore()
    progress = SessionProgress(store, 12, "0-a", ACTIVE)
    progress.update(1, entry(0, 5))
    progress.update(3, entry(1, 6))
    for leader_id in (1, 3):
        progress.publish(leader_id, 1)
    others = store.get_register(FOR_3)
    progress.update(1, entry(0, 7))
    progress.publish(1, 2)
    assert ProgressReader(store, FOR_1).poll() == [entry(0, 7)]
    assert ProgressReader(store, FOR_3).poll() == [entry(1, 6)]
    assert store.get_register(FOR_3) == others
    assert store.get_register(OWN) is None


def test_a_beat_and_a_state_are_for_the_other_sessions() -> None:
    store = MemoryStore()
    progress = SessionProgress(store, 12, "0-a", STANDBY)
    progress.update(1, entry(0, 5))
    progress.beat(1)
    assert (state(store, OWN), store.get_register(FOR_1)) == (STANDBY, None)
    progress.state = ACTIVE
    progress.beat(2)
    assert state(store, OWN) == ACTIVE


def test_the_end_is_told_to_everybody() -> None:
    store = MemoryStore()
    progress = SessionProgress(store, 12, "0-a", ACTIVE)
    progress.update(1, entry(0, 5))
    progress.publish(1, 1)
    progress.update(3, entry(1, 6))
    progress.end(2, ENDED)
    assert [state(store, path) for path in (OWN, FOR_1, FOR_3)] == [ENDED] * 3
    assert ProgressReader(store, FOR_3).poll() == [entry(1, 6)]


def test_what_is_not_followed_any_more_is_not_told() -> None:
    store = MemoryStore()
    progress = SessionProgress(store, 12, "0-a", ACTIVE)
    progress.update(1, entry(0, 5))
    progress.update(1, entry(1, 5))
    progress.forget(TopicPartition("t", 0))
    progress.publish(1, 1)
    assert ProgressReader(store, FOR_1).poll() == [entry(1, 5)]


def test_what_ended_long_ago_is_removed_as_a_whole() -> None:
    store = MemoryStore()
    for name in ("0-a", "0-aa"):
        progress = SessionProgress(store, 12, name, ACTIVE)
        for partition in range(2 * RECENT_CHANGES):
            progress.update(1, entry(partition, 5))
        progress.update(3, entry(0, 5))
        progress.end(1, ENDED)
    assert store.get_register(full_state_path(FOR_1)) is not None
    remove_session_progress(store, 12, OWN)
    left = sorted(meta.path for meta in store.list(progress_prefix(12)))
    assert left == sorted(path.replace("0-a", "0-aa") for path in (OWN, FOR_1, FOR_3, full_state_path(FOR_1)))
