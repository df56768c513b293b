"""Progress objects: whatever a reader misses, it ends at the newest state, and never goes back (promise 21)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.replication.progress.progress import (
    ENDED,
    ReplicaProgress,
    fetch_progress_path,
    follower_progress_path,
    full_state_path,
    leader_ends_path,
    leader_progress_path,
    writer_state,
)
from stratalog.replication.progress.progress_object import ProgressReader, ProgressWriter
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.records import TopicPartition

PATH = leader_progress_path(4)
RECENT_CHANGES = 4


def entry(
    partition: int, version: int = 1, *, epoch: int = 0, high_watermark: int = -1, topic_id: str = "id"
) -> ReplicaProgress:
    topic_partition = TopicPartition("t", partition)
    return ReplicaProgress(topic_partition, epoch, version * 10, version, high_watermark, topic_id=topic_id)


def pair(recent_changes: int = RECENT_CHANGES) -> tuple[ProgressWriter, ProgressReader, MemoryStore]:
    store = MemoryStore()
    return ProgressWriter(store, PATH, recent_changes=recent_changes), ProgressReader(store, PATH), store


PARTITIONS = st.lists(st.integers(0, 11), max_size=7)
STEPS = st.lists(
    st.tuples(PARTITIONS, st.booleans(), st.booleans(), st.sampled_from(["", "", "forget", "again"])), max_size=40
)
"""Partitions that change, whether the writer publishes, whether the reader looks, what else happens."""


@given(steps=STEPS, recent_changes=st.integers(2, 6))
def test_a_reader_that_misses_any_subset_of_writes_ends_at_the_newest_state(
    steps: list[tuple[list[int], bool, bool, str]], recent_changes: int
) -> None:
    writer, reader, store = pair(recent_changes)
    late = ProgressReader(store, PATH)
    newest: dict[TopicPartition, ReplicaProgress] = {}
    published: dict[TopicPartition, ReplicaProgress] = {}
    for number, (partitions, publishes, looks, what) in enumerate(steps, start=1):
        for partition in partitions:
            changed = changed_entry(newest, partition, number, what)
            newest[changed.topic_partition] = changed
            writer.update([changed])
        if what == "forget" and partitions:
            writer.forget(TopicPartition("t", partitions[0]))
            newest.pop(TopicPartition("t", partitions[0]), None)
        if publishes:
            writer.publish(number)
            published = dict(newest)
        if looks:
            reader.poll()
            assert published.items() <= reader.entries.items()
    writer.publish(len(steps) + 1)
    for each in (reader, late):
        each.poll()
        assert newest.items() <= each.entries.items()


def changed_entry(
    newest: dict[TopicPartition, ReplicaProgress], partition: int, number: int, what: str
) -> ReplicaProgress:
    """The partition's next statement; `again`: its topic was deleted and created again, and counts from zero."""
    known = newest.get(TopicPartition("t", partition))
    if known is None or what == "again":
        return entry(partition, 0 if what == "again" else number, topic_id=f"id-{number}")
    return known._replace(version=known.version + 1, log_end_offset=known.log_end_offset + 1)


def test_only_what_moved_is_returned() -> None:
    writer, reader, _ = pair()
    writer.update([entry(0), entry(1)])
    writer.publish()
    assert reader.poll() == [entry(0), entry(1)]
    assert reader.poll() == []
    writer.update([entry(0), entry(1, 2)])
    writer.publish()
    assert reader.poll() == [entry(1, 2)]


def test_an_absent_object_is_an_empty_one() -> None:
    _, reader, _ = pair()
    assert reader.poll() == []
    assert reader.entries == {}


def test_a_beat_changes_the_object_and_moves_nothing() -> None:
    writer, reader, store = pair()
    writer.update([entry(0)])
    writer.publish(1)
    reader.poll()
    before = store.get(PATH)
    writer.publish(2)
    assert store.get(PATH) != before
    assert reader.poll() == []


def test_a_repeated_statement_is_nothing_to_publish() -> None:
    writer, _, _ = pair()
    writer.update([entry(0)])
    assert writer.is_unpublished
    writer.publish()
    writer.update([entry(0)])
    assert not writer.is_unpublished


def test_an_idle_partition_costs_nothing() -> None:
    """With 3,000 partitions of which one moves, the object that everybody polls stays small."""
    writer, reader, store = pair(recent_changes=64)
    writer.update([entry(partition) for partition in range(3_000)])
    writer.publish()
    full_bytes = len(store.get(full_state_path(PATH)))
    for version in range(2, 20):
        writer.update([entry(7, version)])
        writer.publish()
    assert len(store.get(PATH)) < full_bytes / 20
    reader.poll()
    assert len(reader.entries) == 3_000
    assert reader.entries[TopicPartition("t", 7)] == entry(7, 19)


def test_the_state_of_the_writer_is_told() -> None:
    writer, reader, _ = pair()
    writer.state = "ended"
    writer.publish()
    reader.poll()
    assert reader.state == "ended"


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        pytest.param(entry(0, 1, epoch=2), entry(0, 9, epoch=1), id="a later epoch, whatever the versions"),
        pytest.param(entry(0, 2), entry(0, 1), id="a later version in the epoch"),
        pytest.param(entry(0, 1, high_watermark=4), entry(0, 1, high_watermark=3), id="a higher mark at the version"),
    ],
)
def test_what_supersedes_what(newer: ReplicaProgress, older: ReplicaProgress) -> None:
    assert newer.supersedes(older)
    assert not older.supersedes(newer)
    assert not newer.supersedes(newer)
    assert newer.supersedes(None)


def test_a_topic_made_anew_counts_from_zero() -> None:
    assert entry(0, 0, topic_id="new").supersedes(entry(0, 99, epoch=7, topic_id="old"))


def test_recent_changes_are_newer_than_the_full_state() -> None:
    """A topic is created again after the full state was written: a new reader must not end at the old topic."""
    writer, reader, _ = pair(recent_changes=8)
    writer.update([entry(partition, 5) for partition in range(12)])
    writer.publish()
    writer.update([entry(0, 1, topic_id="new")])
    writer.publish()
    reader.poll()
    assert reader.entries[TopicPartition("t", 0)] == entry(0, 1, topic_id="new")


def test_one_object_a_writer() -> None:
    paths = [leader_progress_path(4), leader_progress_path(5), leader_ends_path(4)]
    paths += [fetch_progress_path(4, "a"), fetch_progress_path(4, "b")]
    paths += [follower_progress_path(4, 1, "a"), follower_progress_path(4, 11, "a"), follower_progress_path(4, 1, "b")]
    assert len(set(paths) | {full_state_path(path) for path in paths}) == 2 * len(paths)


SPOILT = [b"", bytes(4_096), b"\xff\x00", b"[12", b"{}", b"[1,2]", b'["a","b","c","d"]', b"null"]
"""What a power cut may leave of a file whose name was durable before its content."""


@pytest.mark.parametrize("left", SPOILT)
def test_an_object_that_a_power_cut_spoilt_is_an_empty_one_until_it_is_written_anew(left: bytes) -> None:
    writer, reader, store = pair()
    store.put(PATH, left)
    assert reader.poll() == reader.poll() == []
    assert writer_state(left) == ENDED
    writer.update([entry(0)])
    writer.publish()
    assert reader.poll() == [entry(0)]


def test_a_spoilt_full_state_leaves_the_recent_changes() -> None:
    writer, _, store = pair(recent_changes=2)
    writer.update([entry(partition) for partition in range(6)])
    writer.publish()
    store.put(full_state_path(PATH), b"\n[zeros" + bytes(10))
    late = ProgressReader(store, PATH)
    assert late.poll() == [entry(4), entry(5)]
