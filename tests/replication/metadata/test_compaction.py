"""The metadata log is a compacted log: what compaction leaves of it folds to the same image."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from stratalog.replication.controller.tombstones import end_records
from stratalog.replication.controller.topic_deletion import deleted_partitions
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.log import METADATA_CONFIG, MetadataLog, SharedMetadata
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
    RemoveUserScramCredentialRecord,
    TopicDeletionRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from stratalog.replication.shared_fold import SharedFold
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.storage.topic_config import LogConfig
from tests.replication.memory_stores import MemoryStores, commit
from tests.storage.keyed import clean

SMALL_SEGMENTS = LogConfig.from_properties(
    {
        **METADATA_CONFIG.overrides,
        "segment.files.max": "4",
        "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": "8",
    }
)


def partition(topic: str, number: int, epoch: int) -> PartitionRecord:
    return PartitionRecord(topic, number, (1, 2), 1 + epoch % 2, epoch, (1, 2), epoch, 1)


def deletion_goes_on(image: ClusterImage, broker_id: int) -> tuple[MetadataRecord, ...]:
    waiting = [deletion for deletion in image.deletions.values() if broker_id in deletion.brokers]
    return tuple(replace(d, brokers=tuple(b for b in d.brokers if b != broker_id)) for d in waiting[:1])


def access(rng: random.Random, at: int) -> MetadataRecord:
    """A credential or a quota of a user whose name has a separator of keys in it, made or removed."""
    user, mechanism = f"team/{rng.randint(1, 2)}", rng.choice(["SCRAM-SHA-256", "SCRAM-SHA-512"])
    return rng.choice(
        [
            UserScramCredentialRecord(user, mechanism, "c2FsdA==", "a2V5", "a2V5", 4096 + at),
            RemoveUserScramCredentialRecord(user, mechanism),
            ConfigRecord(f'<quota>{{"user":"{user}"}}', "producer_byte_rate", rng.choice([None, str(at)])),
        ]
    )


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
        (access(rng, at),),
        (UnregisterBrokerRecord(broker_id, broker.broker_epoch),) if broker else (),
    ]
    return rng.choice([event for event in events if event])


@pytest.mark.parametrize(
    ("seed", "shares"), [*((seed, False) for seed in range(20)), *((seed, True) for seed in range(5))]
)
def test_a_compacted_metadata_log_folds_to_the_same_image(seed: int, shares: bool) -> None:
    """Whoever folds it, at whatever pace, also after tombstones have done their work and are gone; and the parts of one
    process, which share what they fold."""
    rng, stores = random.Random(seed), MemoryStores()
    shared: SharedMetadata | None = SharedFold() if shares else None
    writer, never_compacted = stores.metadata(shared), ClusterImage()
    followers = [stores.metadata(shared) for _ in range(3)]
    writer.log.config = SMALL_SEGMENTS
    cleaned = 0
    for at in range(1, 300):
        commit(writer, *random_event(rng, writer, at))
        if rng.random() < 0.1:
            writer.propose(end_records)
        for record in writer.refresh():
            never_compacted = never_compacted.fold(record)
        for number, follower in enumerate(followers, 1):
            if rng.random() < 0.2 / number**2:
                follower.refresh()
                assert follower.image == writer.image
        if rng.random() < 0.1:
            cleaned += clean(writer.log, now_ms=at)
            assert stores.metadata().log.log_end_offset == writer.log.log_end_offset
            newcomer = stores.metadata()
            newcomer.refresh()
            assert newcomer.image == writer.image == never_compacted
    assert cleaned > 0


def test_what_is_over_leaves_nothing_in_the_log() -> None:
    stores = MemoryStores()
    writer = stores.metadata()
    writer.log.config = SMALL_SEGMENTS
    for number in range(100):
        topic = f"topic-{number}"
        commit(writer, TopicRecord(topic, topic), ConfigRecord(topic, "retention.ms", "5"), partition(topic, 0, 1))
        commit(writer, RemoveTopicRecord(topic, topic), TopicDeletionRecord(topic, topic, 1, (1,)))
        commit(writer, TopicDeletionRecord(topic, topic, 1, ()))
        writer.propose(end_records)
        clean(writer.log, now_ms=number)
    for now_ms in (1_000, 2_000):
        commit(writer, *(ControllerRecord(1, now_ms + n) for n in range(5)))
        for n in range(4):
            commit(writer, ControllerRecord(1, now_ms + 10 + n))
        clean(writer.log, now_ms=now_ms)
    newcomer = stores.metadata()
    assert len(newcomer.refresh()) < 40
    assert newcomer.image == writer.image
    assert (newcomer.image.topic_ids, newcomer.image.ended) == ({}, {})


def test_the_removal_of_a_topic_stays_until_its_replicas_are_deleted() -> None:
    writer = MemoryStores().metadata()
    commit(writer, TopicRecord("t", "id"), partition("t", 0, 1))
    commit(writer, RemoveTopicRecord("t", "id"), TopicDeletionRecord("t", "id", 1, (1,)))
    assert [record.key for record in end_records(writer.image).records] == ["partition/t/0"]
    writer.propose(end_records)
    assert end_records(writer.image).records == ()
    commit(writer, TopicDeletionRecord("t", "id", 1, ()))
    assert [record.key for record in end_records(writer.image).records] == ["deletion/id", "topic/t"]


def test_a_fold_that_compaction_has_passed_is_told_of_each_topic_that_is_gone() -> None:
    stores = MemoryStores()
    writer, sleeper = stores.metadata(), stores.metadata()
    writer.log.config = SMALL_SEGMENTS
    commit(writer, TopicRecord("t", "id"), partition("t", 0, 1), partition("t", 1, 1))
    sleeper.refresh()
    commit(writer, RemoveTopicRecord("t", "id"), TopicDeletionRecord("t", "id", 2, ()))
    writer.propose(end_records)
    for number in range(20):
        commit(writer, ControllerRecord(1, number))
        clean(writer.log, now_ms=10_000 * number)
    records = sleeper.refresh()
    assert records[:2] == [RemoveTopicRecord("t", "id"), TopicDeletionRecord("t", "id", 2, ())]
    assert deleted_partitions(records) == [IdentifiedPartition("id", TopicPartition("t", at)) for at in (0, 1)]
    assert sleeper.image == writer.image
