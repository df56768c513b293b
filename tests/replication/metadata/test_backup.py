"""A restored cluster: every epoch above what was used, the ISR where the acknowledged records are. Tables, no I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from stratalog.replication.metadata.backup.backup import (
    EPOCH_LEAP,
    PRODUCER_ID_LEAP,
    Backup,
    BackupRecord,
    ReplicaInventory,
    RootInventory,
    decode_backup,
    encode_backup,
    restored_records,
)
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import (
    NO_LEADER,
    ClusterRecord,
    ConfigRecord,
    ControllerRecord,
    EraseRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    StorageDomainRecord,
    TopicRecord,
    record_to_json,
)
from stratalog.storage.errors import CorruptMessageError, IllegalStateError
from stratalog.storage.log.state import SEALED_EPOCH
from stratalog.storage.records import TopicPartition
from tests.replication.images import check_partition

T0 = TopicPartition("t", 0)
RECORDS: tuple[MetadataRecord, ...] = (
    ClusterRecord("cluster", 1),
    *(RegisterBrokerRecord(i, 10 + i, f"run-{i}", f"/data/{i}") for i in (1, 2, 3)),
    ControllerRecord(2, 4),
    TopicRecord("t", "id-t"),
    ConfigRecord("t", "retention.ms", "5"),
    PartitionRecord("t", 0, (1, 2, 3), 1, 5, (1, 2, 3), 9, 4),
    TopicRecord("gone", "id-gone"),
    RemoveTopicRecord("gone", "id-gone"),
    ProducerIdsRecord(-1, 3_000),
    FenceBrokerRecord(3, 13, clean=True),
)


def backup_of(*records: MetadataRecord) -> Backup:
    lines = [record_to_json(record)[1].decode() for record in records]
    kept = tuple(BackupRecord(offset, 1_000 + offset, line) for offset, line in enumerate(lines))
    return Backup("cluster", len(kept), 77, kept, {"sinks/q.json": '{"a": "\u2028x"}'})


def root(broker_id: int, *replicas: ReplicaInventory, broker_epoch: int = 20) -> RootInventory:
    return RootInventory(broker_id, f"/data/{broker_id}", broker_epoch, replicas)


def replica(
    broker_id: int, epoch: int, end: int, place: TopicPartition = T0, topic_id: str = "id-t", erased: int = 0
) -> ReplicaInventory:
    return ReplicaInventory(broker_id, place, topic_id, epoch, end, erased)


def restored(
    *roots: RootInventory, records: Sequence[MetadataRecord] = RECORDS
) -> tuple[ClusterImage, tuple[str, ...]]:
    """The image after the backup and what makes it fit, and what is told."""
    backup = backup_of(*records)
    restoration = restored_records(backup, roots)
    image = backup.image()
    for record in restoration.records:
        image = image.fold(record)
    for state in image.partitions.values():
        assert set(state.isr) <= set(state.replicas)
        assert state.isr
    return image, restoration.messages


ALL_EQUAL = (root(1, replica(1, 5, 40)), root(2, replica(2, 5, 40)), root(3, replica(3, 5, 40)))


def test_lines_come_back_as_they_were() -> None:
    backup = backup_of(*RECORDS)
    text = encode_backup(backup)
    assert decode_backup(text) == backup
    assert all(json.loads(line) for line in text.splitlines())
    assert decode_backup(text).image().topic_config("t") == {"retention.ms": "5"}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: "",
        lambda text: text[:-1],
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("id-t", "id-u", 1),
        lambda text: "".join(text.splitlines(keepends=True)[:-1]),
        lambda text: "".join(text.splitlines(keepends=True)[1:]),
        lambda text: "{}\n{}\n",
        lambda text: "no json\n",
        lambda text: text.replace('"stratalog_metadata_backup":1', '"stratalog_metadata_backup":2'),
    ],
)
def test_a_torn_or_altered_backup_is_refused(spoil: object) -> None:
    text = encode_backup(backup_of(*RECORDS))
    with pytest.raises(CorruptMessageError):
        decode_backup(spoil(text))  # type: ignore[operator]


def test_every_epoch_and_id_is_above_all_that_were_used() -> None:
    image, told = restored(root(1, replica(1, 9, 40), broker_epoch=31), *ALL_EQUAL[1:])
    state = image.partition(T0)
    assert state.leader_epoch == 9 + EPOCH_LEAP
    assert state.partition_epoch > 9
    assert (image.controller_id, image.controller_epoch) == (NO_LEADER, 4 + EPOCH_LEAP)
    assert state.controller_epoch == image.controller_epoch
    epochs = [broker.broker_epoch for broker in image.brokers.values()]
    assert min(epochs) > 31
    assert len(set(epochs)) == 3
    assert image.last_broker_epoch == max(epochs)
    assert image.live_brokers() == {}
    assert not any(broker.clean_shutdown for broker in image.brokers.values())
    assert image.next_producer_id >= 3_000 + PRODUCER_ID_LEAP
    assert told == ()
    assert image.cluster_id == "cluster"
    assert image.topic_config("t") == {"retention.ms": "5"}


@pytest.mark.parametrize(
    ("replicas", "isr"),
    [
        ((replica(1, 5, 40), replica(2, 5, 40), replica(3, 5, 40)), 1),
        ((replica(1, 5, 40), replica(2, 5, 41), replica(3, 5, 40)), 2),
        ((replica(1, 6, 40), replica(2, 7, 90), replica(3, 6, 40)), 2),
        ((replica(1, 6, 400), replica(2, 7, 90), replica(3, 6, 400)), 2),
        ((replica(1, 7, 80), replica(2, 6, 90), replica(3, 7, 85)), 3),
        ((replica(3, 2, 1),), 3),
    ],
)
def test_the_isr_is_the_replica_of_the_newest_epoch_with_the_highest_end(
    replicas: Sequence[ReplicaInventory], isr: int
) -> None:
    image, _ = restored(*(root(each.broker_id, each) for each in replicas))
    state = image.partition(T0)
    assert (state.leader, state.isr, state.replicas) == (NO_LEADER, (isr,), (1, 2, 3))
    check_partition(None, state)


SEALED = replica(3, SEALED_EPOCH, 400)


def test_a_sealed_table_is_no_evidence() -> None:
    """Broker 3 had left the assignment after the backup, and stopped before it deleted its table."""
    image, told = restored(*ALL_EQUAL[:2], root(3, SEALED))
    state = image.partition(T0)
    assert (state.isr, state.leader_epoch) == ((1,), 5 + EPOCH_LEAP)
    assert told == ("the table of t-0 on broker 3 is sealed, since it was to be deleted: not counted",)


def test_only_sealed_tables_are_as_none() -> None:
    image, told = restored(root(1), root(2), root(3, SEALED))
    assert (image.partition(T0).isr, image.partition(T0).leader_epoch) == ((1, 2, 3), 5 + EPOCH_LEAP)
    assert told[-1] == "no replica of t-0 has a table: it comes back empty"
    unknown = replica(3, SEALED_EPOCH, 7, TopicPartition("stray", 0), "id-stray")
    image, _ = restored(*ALL_EQUAL[:2], root(3, replica(3, 5, 40), unknown))
    assert "stray" not in image.topic_ids


def test_a_leap_that_would_reach_the_seals_epoch_is_refused() -> None:
    last = SEALED_EPOCH - EPOCH_LEAP
    image, _ = restored(root(1, replica(1, last - 1, 40)), root(2), root(3))
    assert image.partition(T0).leader_epoch == SEALED_EPOCH - 1
    with pytest.raises(IllegalStateError, match=f"leader epoch {SEALED_EPOCH} of t-0 is not below {SEALED_EPOCH}"):
        restored(root(1, replica(1, last, 40)), root(2), root(3))


def test_a_topic_of_which_nothing_is_left_comes_back_empty() -> None:
    image, told = restored(root(1), root(2), root(3))
    assert image.partition(T0).leader_epoch == 5 + EPOCH_LEAP
    assert told == ("no replica of t-0 has a table: it comes back empty",)


def test_a_partition_in_a_storage_domain_needs_no_table_in_a_root() -> None:
    state = PartitionRecord("t", 0, (1, 2, 3), 1, 5, (1,), 9, 4, domain="lake")
    image, told = restored(root(1), root(2), records=(*RECORDS, StorageDomainRecord("lake", "s3://b/x", True), state))
    found = image.partition(T0)
    assert (found.domain, found.isr, found.leader, found.lost) == ("lake", (1, 2, 3), NO_LEADER, ())
    assert found.leader_epoch == 5 + EPOCH_LEAP
    assert told == ("t-0 is in the storage domain 'lake', whose table goes on",)


def test_a_topic_made_after_the_backup_is_taken_in() -> None:
    made = [replica(i, 1, 7, TopicPartition("new", n), "id-new") for i in (2, 3) for n in (0, 2)]
    image, told = restored(
        ALL_EQUAL[0],
        root(2, replica(2, 5, 40), *(each for each in made if each.broker_id == 2)),
        root(3, replica(3, 5, 40), *(each for each in made if each.broker_id == 3)),
    )
    assert image.topic_ids["new"] == "id-new"
    states = [image.partition(TopicPartition("new", n)) for n in range(3)]
    assert [state.replicas for state in states] == [(2, 3)] * 3
    assert [state.isr for state in states] == [(2,), (2, 3), (2,)]
    assert told == (
        "topic new is not in the backup: taken in from its tables on brokers 2,3, with default configs",
        "no replica of new-1 has a table: it comes back empty",
    )


def test_a_partition_made_after_the_backup_is_taken_in() -> None:
    more = replica(3, 0, 2, TopicPartition("t", 1))
    image, told = restored(*ALL_EQUAL[:2], root(3, replica(3, 5, 40), more))
    assert image.partition(TopicPartition("t", 1)).isr == (3,)
    assert told == ("partition t-1 is not in the backup: taken in from its tables",)


def test_a_topic_made_again_after_the_backup_is_the_younger_one() -> None:
    image, _ = restored(root(1, replica(1, 0, 3, topic_id="id-t2")), root(2, replica(2, 5, 40)), root(3))
    assert image.topic_ids["t"] == "id-t2"
    assert image.partition(T0).replicas == (1,)
    assert image.topic_config("t") == {}


def test_a_table_of_a_topic_that_the_backup_knows_to_be_deleted_is_left_out() -> None:
    left = replica(1, 3, 9, TopicPartition("gone", 0), "id-gone")
    image, told = restored(root(1, replica(1, 5, 40), left), *ALL_EQUAL[1:])
    assert set(image.topic_ids) == {"t"}
    assert told == ()


def test_a_partition_that_was_moved_after_the_backup_stays_where_it_is() -> None:
    image, told = restored(root(1), root(2), root(4, replica(4, 8, 70)), root(5, replica(5, 8, 60)))
    state = image.partition(T0)
    assert (state.replicas, state.isr, state.leader_epoch) == ((4, 5), (4,), 8 + EPOCH_LEAP)
    assert told == ("t-0 was moved after the backup: its replicas are 4,5",)
    assert image.brokers[5].registration.root == "/data/5"
    assert image.brokers[5].fenced


def test_a_root_that_moved_is_where_its_broker_is() -> None:
    moved = RootInventory(1, "/elsewhere/1", 20, (replica(1, 5, 40),))
    image, _ = restored(moved, *ALL_EQUAL[1:])
    assert image.brokers[1].registration.root == "/elsewhere/1"


def test_an_erasure_made_after_the_backup_keeps_its_id() -> None:
    records = (*RECORDS, EraseRecord("t", 1, '{"key":{"equals":"a"}}', (10,), "r1"))
    image, _ = restored(root(1, replica(1, 5, 40, erased=3)), *ALL_EQUAL[1:], records=records)
    assert sorted(image.erases["t"]) == [1, 3]
    assert image.erases["t"][3].end_offsets == ()
    image, _ = restored(root(1, replica(1, 5, 40, erased=1)), *ALL_EQUAL[1:], records=records)
    assert sorted(image.erases["t"]) == [1]
