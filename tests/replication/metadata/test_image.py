"""An image: the fold of records one by one and at once, and what stays of it when the next one is made."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import (
    ConfigRecord,
    EraseRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TombstoneRecord,
    TopicDeletionRecord,
    TopicRecord,
)

PARTITIONS = 10_000


def some_record(rng: random.Random) -> MetadataRecord:
    topic, number = rng.choice("abc"), rng.randrange(3)
    makers: tuple[Callable[[], MetadataRecord], ...] = (
        lambda: TopicRecord(topic, f"id-{rng.randrange(100)}"),
        lambda: PartitionRecord(topic, number, (1, 2), 1, rng.randrange(9), (1, 2), 0, 0),
        lambda: RemoveTopicRecord(topic, "id"),
        lambda: TopicDeletionRecord(topic, "id", 3, rng.choice([(), (1,), (1, 2)])),
        lambda: ConfigRecord(topic, f"config-{number}", rng.choice([None, "1", "2"])),
        lambda: EraseRecord(topic, number, '{"value":{"is_null":true}}', (1,), "x"),
        lambda: RegisterBrokerRecord(number, rng.randrange(100), "run", "root"),
        lambda: TombstoneRecord(
            rng.choice(
                [f"partition/{topic}/{number}", f"topic/{topic}", f"config/{topic}/config-1", f"erase/{topic}/1"]
            )
        ),
    )
    return rng.choice(makers)()


@pytest.mark.parametrize("seed", range(20))
def test_records_folded_at_once_are_the_image_of_records_folded_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    records = [some_record(rng) for _ in range(200)]
    images = [ClusterImage()]
    for record in records:
        images.append(images[-1].fold(record))
    for first in range(0, 200, 20):
        last = rng.randrange(first, 201)
        at_once = images[first].fold(*records[first:last])
        assert at_once == images[last]
        assert list(at_once.partitions) == list(images[last].partitions)


@pytest.mark.parametrize("seed", range(20))
def test_an_image_stays_as_it_was_when_the_next_ones_are_made(seed: int) -> None:
    rng = random.Random(seed)
    image, kept = ClusterImage(), list[tuple[ClusterImage, str]]()
    for _ in range(100):
        kept.append((image, repr(image)))
        image = image.fold(*(some_record(rng) for _ in range(rng.randrange(4))))
    assert all(repr(each) == shown for each, shown in kept)


@pytest.mark.parametrize("seed", range(20))
def test_the_partitions_of_each_topic_are_those_that_have_a_state(seed: int) -> None:
    rng = random.Random(seed)
    image = ClusterImage()
    for _ in range(200):
        image = image.fold(some_record(rng))
        by_topic = {named for names in image.partitions_by_topic.values() for named in names}
        assert by_topic == set(image.partitions)
        assert all(image.partitions_by_topic.values()), "no topic without one"


def test_an_image_of_many_partitions_shares_with_the_next_one_what_is_the_same() -> None:
    states = [PartitionRecord("t", number, (1, 2, 3), 1, 0, (1, 2, 3), 0, 0) for number in range(PARTITIONS)]
    image = ClusterImage().fold(TopicRecord("t", "id"), *states)
    changes = [state.changed(isr=(1, 2), bump_leader_epoch=False) for state in states[:100]]
    after = image
    for change in changes:
        after = after.fold(change)
    assert after.topic_ids is image.topic_ids
    assert (image.partitions[states[0].topic_partition].isr, len(after.partitions)) == ((1, 2, 3), PARTITIONS)
