"""What a broker remembers to be committed, over its own restarts (KIP-966)."""

from __future__ import annotations

import pytest

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import RegisterBrokerRecord
from stratalog.replication.progress.known_committed import (
    KnownCommitted,
    had_records,
    known_committed,
    published_before,
    remove_old_progress,
)
from stratalog.replication.progress.progress import (
    PROGRESS_PREFIX,
    UNKNOWN,
    ReplicaProgress,
    encode_row,
    leader_progress_path,
    progress_rows,
)
from stratalog.replication.progress.progress_object import ProgressWriter
from stratalog.storage.records import TopicPartition
from tests.replication.images import TOPIC, image_of, partition
from tests.replication.memory_stores import MemoryStores

P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


@pytest.mark.parametrize(
    ("known", "offset"),
    [
        (KnownCommitted("id", 0, 7), 7),
        (KnownCommitted("other", 0, 7), UNKNOWN),  # a topic created again begins at 0
        (KnownCommitted("id", 1, 7), UNKNOWN),  # an unclean leader may lack it
        (None, UNKNOWN),
    ],
)
def test_what_was_known_holds_for_the_same_topic_without_an_unclean_election(
    known: KnownCommitted | None, offset: int
) -> None:
    assert known_committed(known, "id", partition((1, 2), 1, (1,))) == offset


def test_a_broker_reads_what_its_earlier_life_published() -> None:
    objects = MemoryStores().objects("broker-1")
    unclean = partition((1, 2), 1, (1, 2), number=1).changed(isr=(1,), bump_leader_epoch=True, unclean=True)
    image = image_of([1, 2], partition((1, 2), 1, (1,)), unclean)
    assert published_before(objects, image, 1) == {}
    writer = ProgressWriter(objects, leader_progress_path(image.brokers[1].broker_epoch))
    writer.update([ReplicaProgress(named, 5, 9, 3, 8, topic_id="id-orders") for named in (P0, P1)])
    writer.publish()
    assert published_before(objects, image, 1) == {P0: KnownCommitted("id-orders", 0, 8)}
    writer.update([ReplicaProgress(P0, 6, 9, 4, topic_id="id-orders", known_committed=8)])
    writer.publish()
    assert published_before(objects, image, 1)[P0].offset == 8, "handed on from life to life"
    image = image.fold(RegisterBrokerRecord(1, 99, "run", "/data/1"))
    assert published_before(objects, image, 1) == {}
    assert published_before(objects, ClusterImage(), 1) == {}


def test_what_alone_says_that_there_were_records_outlives_later_registrations() -> None:
    objects = MemoryStores().objects("broker-1")
    state = partition((1, 2), 1, (1,))
    image = image_of([1, 2], state)

    def publish(epoch: int, topic_partition: TopicPartition, topic_id: str, end: int) -> None:
        writer = ProgressWriter(objects, leader_progress_path(epoch))
        writer.update([ReplicaProgress(topic_partition, 5, end, 1, topic_id=topic_id)])
        writer.publish()

    def epochs() -> list[int]:
        return sorted({int(meta.path.split("/")[1]) for meta in objects.list(PROGRESS_PREFIX)})

    publish(10, P0, "id-orders", 0)  # an empty log
    publish(11, P0, "id-orders", 9)
    publish(12, P0, "of-a-deleted-topic", 9)
    publish(13, P1, "id-orders", 9)  # not a partition any more
    publish(14, P0, "id-orders", 0)
    publish(15, P0, "id-orders", 0)
    remove_old_progress(objects, image, 15)
    assert epochs() == [11, 14, 15]
    assert had_records(objects, state, "id-orders")
    publish(15, P0, "id-orders", 10)
    publish(16, P0, "id-orders", 0)
    remove_old_progress(objects, image, 16)
    assert epochs() == [15, 16], "registration 15 says it, too"
    assert had_records(objects, state, "id-orders")


@pytest.mark.parametrize("known", [UNKNOWN, 7])
def test_it_is_a_column_of_progress_only_where_there_is_something_to_say(known: int) -> None:
    progress = ReplicaProgress(P0, 6, 9, 4, topic_id="id", known_committed=known)
    row = encode_row(3, progress)
    assert list(progress_rows(b'[3,0,1,"active"]\n' + row)) == [progress]
    assert row.endswith(b'"id"]') == (known == UNKNOWN)
    removed = progress._replace(removed_version=9, removed_end=4)
    assert list(progress_rows(b'[3,0,1,"active"]\n' + encode_row(3, removed))) == [removed]
