"""The metadata log is a compacted log: what compaction leaves of it folds to the same image."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.log import METADATA_CONFIG, MetadataLog
from stratalog.replication.metadata.records import (
    CLUSTER_WIDE,
    ConfigRecord,
    ControllerRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicDeletionRecord,
    TopicRecord,
)
from stratalog.storage.topic_config import LogConfig
from tests.replication.memory_stores import MemoryStores, commit
from tests.storage.keyed import clean

SMALL_SEGMENTS = LogConfig.from_properties(
    {**METADATA_CONFIG.overrides, "segment.files.max": "4", "min.cleanable.dirty.ratio": "0.1"}
)


def partition(topic: str, number: int, epoch: int) -> PartitionRecord:
    return PartitionRecord(topic, number, (1, 2), 1 + epoch % 2, epoch, (1, 2), epoch, 1)


def deletion_goes_on(image: ClusterImage, broker_id: int) -> tuple[MetadataRecord, ...]:
    waiting = [deletion for deletion in image.deletions.values() if broker_id in deletion.brokers]
    return tuple(replace(d, brokers=tuple(b for b in d.brokers if b != broker_id)) for d in waiting[:1])


def random_event(rng: random.Random, metadata: MetadataLog, at: int) -> tuple[MetadataRecord, ...]:
    """What some broker, controller or admin client would commit on this image."""
    image, topic, broker_id = metadata.image, rng.choice(["a", "b", "c"]), rng.choice([1, 2, 3])
    if topic not in image.topic_ids:
        configs = (ConfigRecord(topic, "retention.ms", str(at)),) if rng.random() < 0.5 else ()
        states = (partition(topic, number, at) for number in range(rng.randint(1, 3)))
        return TopicRecord(topic, f"id-{at}"), *configs, *states
    broker = image.brokers.get(broker_id)
    events: list[tuple[MetadataRecord, ...]] = [
        (
            RemoveTopicRecord(topic, image.topic_ids[topic]),
            TopicDeletionRecord(topic, image.topic_ids[topic], 1, (1, 2)),
        ),
        deletion_goes_on(image, broker_id),
        (partition(topic, rng.randrange(len(image.partitions_of(topic))), at),),
        (ConfigRecord(topic, "retention.ms", rng.choice([None, str(at)])),),
        (ConfigRecord(CLUSTER_WIDE, "num.partitions", str(at)),),
        (ControllerRecord(broker_id, at), ProducerIdsRecord(broker_id, at * 1_000)),
        (RegisterBrokerRecord(broker_id, at, f"run-{at}", f"broker-{broker_id}"),),
        (FenceBrokerRecord(broker_id, broker.broker_epoch, rng.random() < 0.5),) if broker else (),
    ]
    return rng.choice([event for event in events if event])


@pytest.mark.parametrize("seed", range(10))
def test_a_compacted_metadata_log_folds_to_the_same_image(seed: int) -> None:
    rng, stores = random.Random(seed), MemoryStores()
    writer, follower = stores.metadata(), stores.metadata()
    writer.log.config = SMALL_SEGMENTS
    cleaned = 0
    for at in range(1, 200):
        commit(writer, *random_event(rng, writer, at))
        if rng.random() < 0.1:
            follower.refresh()
        if rng.random() < 0.1:
            cleaned += clean(writer.log, now_ms=at)
            assert stores.metadata().log.log_end_offset == writer.log.log_end_offset
    newcomer = stores.metadata()
    records = newcomer.refresh()
    follower.refresh()
    assert newcomer.image == follower.image == writer.image
    assert cleaned > 0
    assert len(records) < newcomer.log.log_end_offset / 2
