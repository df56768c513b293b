"""A copy of the metadata log as lines of JSON, and what makes an older copy fit the brokers' roots again. Pure.

The first line names the cluster and the offset up to which the copy reaches; then a line for each record and each note
of a Spark sink; the last line counts them and has a CRC32C of all before, so that a torn copy is not taken for whole.

An older copy knows nothing of what came after it. So that no epoch or id is used twice, and nothing that was
acknowledged is lost, `restored_records` asks the brokers' roots: their tables state leader epochs and log ends, their
progress objects broker epochs. Each partition's new ISR is the one replica whose table has the newest leader epoch,
and of these the highest log end: every record that was acknowledged by the whole ISR is there, since a record counts
as acknowledged only when all members' tables state its leader's epoch (promises 7 and 8).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import crc32c

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import (
    NO_LEADER,
    ControllerRecord,
    EraseRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    record_from_json,
)
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.records import TopicPartition

FORMAT = 1
EPOCH_LEAP = 1_000
"""Restored epochs begin so far above all that are known: an epoch may have begun that no table or object tells of."""
PRODUCER_ID_LEAP = 1 << 32
NOTHING = '{"key":{"in":[]}}'
"""A predicate that no record matches."""


@dataclass(frozen=True, slots=True)
class BackupRecord:
    """One record of the metadata log as it was: JSON."""

    offset: int
    timestamp_ms: int | None
    value: str

    @property
    def record(self) -> MetadataRecord:
        return record_from_json(self.value.encode())


@dataclass(frozen=True, slots=True)
class Backup:
    """The metadata log up to `end_offset`, and the notes of Spark sinks by path."""

    cluster_id: str
    end_offset: int
    taken_ms: int
    records: tuple[BackupRecord, ...]
    notes: Mapping[str, str] = field(default_factory=dict)

    def image(self) -> ClusterImage:
        """The cluster as of then. CorruptMessageError for a record that this release does not know."""
        image = ClusterImage()
        for each in self.records:
            image.replay(each.record)
        return image


def encode_backup(backup: Backup) -> str:
    """The lines, each with its end."""
    head = {
        "stratalog_metadata_backup": FORMAT,
        "cluster_id": backup.cluster_id,
        "end_offset": backup.end_offset,
        "taken_ms": backup.taken_ms,
    }
    records = (
        {"offset": each.offset, "timestamp_ms": each.timestamp_ms, "record": json.loads(each.value)}
        for each in backup.records
    )
    notes = ({"path": path, "content": content} for path, content in sorted(backup.notes.items()))
    text = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in (head, *records, *notes))
    tail = {"records": len(backup.records), "notes": len(backup.notes), "crc32c": _crc(text)}
    return f"{text}{json.dumps(tail, separators=(',', ':'))}\n"


def decode_backup(text: str) -> Backup:
    """The backup of a file's text. CorruptMessageError saying what is wrong with it."""
    lines = text.splitlines(keepends=True)
    if not lines or not text.endswith("\n"):
        raise CorruptMessageError("not a whole metadata backup: its last line is torn")
    try:
        head, *bodies, tail = [json.loads(line) for line in lines]
        if head["stratalog_metadata_backup"] != FORMAT:
            raise CorruptMessageError(f"a metadata backup of format {head['stratalog_metadata_backup']}, not {FORMAT}")
        found, expected = _crc("".join(lines[:-1])), tail["crc32c"]
        if found != expected:
            raise CorruptMessageError(f"the metadata backup's CRC32C is {found}, expected {expected}")
        records = tuple(_backup_record(body) for body in bodies if "record" in body)
        notes = {body["path"]: body["content"] for body in bodies if "path" in body}
        return Backup(head["cluster_id"], head["end_offset"], head["taken_ms"], records, notes)
    except (ValueError, KeyError, TypeError) as reason:
        raise CorruptMessageError(f"not a whole metadata backup: {type(reason).__name__}: {reason}") from reason


def _backup_record(body: Mapping[str, Any]) -> BackupRecord:
    return BackupRecord(body["offset"], body["timestamp_ms"], json.dumps(body["record"], separators=(",", ":")))


def _crc(text: str) -> str:
    return f"{crc32c.crc32c(text.encode()):08x}"


# -- what the roots say --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplicaEvidence:
    """What one replica's table states. `erased`: the newest erasure that it has applied."""

    broker_id: int
    topic_partition: TopicPartition
    topic_id: str
    leader_epoch: int
    log_end_offset: int
    erased: int = 0


@dataclass(frozen=True, slots=True)
class RootEvidence:
    """What one broker's root tells: the newest broker epoch that was used there, and its replicas."""

    broker_id: int
    root: str
    broker_epoch: int
    replicas: tuple[ReplicaEvidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Restoration:
    """The records that follow those of the backup, and what is worth telling of them."""

    records: tuple[MetadataRecord, ...]
    told: tuple[str, ...]


def restored_records(backup: Backup, roots: Sequence[RootEvidence]) -> Restoration:
    """What makes the backup fit the roots as they are now; every broker comes up anew after that.

    Worked: the backup has t-0 with ISR {1,2,3} in leader epoch 5; since then 2 led epoch 7, alone in the ISR, up to
    offset 90, and 1 and 3 ended at 40 in epoch 6. Restored: no leader, ISR {2}, leader epoch 1007.
    """
    image = backup.image()
    epoch = image.controller_epoch + EPOCH_LEAP
    evidence = [replica for root in roots for replica in root.replicas]
    removed = {r.record.topic_id for r in backup.records if isinstance(r.record, RemoveTopicRecord)}
    topics = _topics(image, evidence, removed)
    told: list[str] = []
    records: list[MetadataRecord] = [ControllerRecord(NO_LEADER, epoch)]
    records.append(ProducerIdsRecord(NO_LEADER, image.next_producer_id + PRODUCER_ID_LEAP))
    records += _brokers(image, roots)
    for topic, topic_id in sorted(topics.items()):
        own = [replica for replica in evidence if replica.topic_id == topic_id]
        if image.topic_ids.get(topic) != topic_id:
            records += _adopted(image, topic, topic_id)
            told.append(_adoption(topic, own))
        known = image.partitions if image.topic_ids.get(topic) == topic_id else {}
        records += _partitions(topic, own, known, epoch, told)
        records += _erasures(image, topic, own, known)
    return Restoration(tuple(records), tuple(told))


def _topics(image: ClusterImage, evidence: Iterable[ReplicaEvidence], removed: set[str]) -> dict[str, str]:
    """Topic ids by name: the backup's, and of those that are on the roots only all that it does not know to be
    deleted. An id that the backup never heard of is younger than the one that it has under this name."""
    topics = dict(image.topic_ids)
    for replica in evidence:
        is_new = replica.topic_id not in removed and replica.topic_id not in image.topic_ids.values()
        if is_new:
            topics[replica.topic_partition.topic] = replica.topic_id
    return topics


def _brokers(image: ClusterImage, roots: Sequence[RootEvidence]) -> Iterator[MetadataRecord]:
    """Every broker is down, and under a broker epoch that none has had."""
    epoch = max([image.last_broker_epoch, *(root.broker_epoch for root in roots)]) + EPOCH_LEAP
    places = {root.broker_id: root.root for root in roots}
    for broker_id in sorted(image.brokers.keys() | places.keys()):
        known = image.brokers.get(broker_id)
        before = known.registration if known else RegisterBrokerRecord(broker_id, epoch, "restored", places[broker_id])
        epoch += 1
        root = places.get(broker_id, before.root)
        yield replace(before, broker_epoch=epoch, incarnation_id="restored", root=root)
        yield FenceBrokerRecord(broker_id, epoch)


def _adopted(image: ClusterImage, topic: str, topic_id: str) -> Iterator[MetadataRecord]:
    if topic in image.topic_ids:
        yield RemoveTopicRecord(topic, image.topic_ids[topic])
    yield TopicRecord(topic, topic_id)


def _adoption(topic: str, own: Sequence[ReplicaEvidence]) -> str:
    brokers = ",".join(map(str, sorted({replica.broker_id for replica in own})))
    return f"topic {topic} is not in the backup: taken in from its tables on brokers {brokers}, with default configs"


def _partitions(
    topic: str,
    own: Sequence[ReplicaEvidence],
    known: Mapping[TopicPartition, PartitionRecord],
    controller_epoch: int,
    told: list[str],
) -> Iterator[PartitionRecord]:
    """The state of each partition of a topic, known or found."""
    held: dict[int, list[ReplicaEvidence]] = {}
    for replica in own:
        held.setdefault(replica.topic_partition.partition, []).append(replica)
    numbers = {tp.partition for tp in known if tp.topic == topic} | held.keys()
    everywhere = tuple(sorted({replica.broker_id for replica in own}))
    for number in range(max(numbers, default=-1) + 1):
        topic_partition = TopicPartition(topic, number)
        holders = held.get(number, [])
        before = known.get(topic_partition)
        if before is None:
            replicas = tuple(sorted(replica.broker_id for replica in holders)) or everywhere
            before = PartitionRecord(topic, number, replicas, NO_LEADER, 0, replicas, 0, controller_epoch)
            if known:
                told.append(f"partition {topic_partition} is not in the backup: taken in from its tables")
        yield _partition(before, holders, controller_epoch, told)


def _partition(
    before: PartitionRecord, holders: Sequence[ReplicaEvidence], controller_epoch: int, told: list[str]
) -> PartitionRecord:
    epoch = max([before.leader_epoch, *(replica.leader_epoch for replica in holders)]) + EPOCH_LEAP
    # Made anew, not changed: whatever else the record says was true at the time of the backup only.
    after = PartitionRecord(
        before.topic,
        before.partition,
        before.replicas,
        NO_LEADER,
        epoch,
        before.isr,
        before.partition_epoch + EPOCH_LEAP,
        controller_epoch,
        adding=before.adding,
        removing=before.removing,
        unclean=before.unclean,
    )
    if not holders:
        told.append(f"no replica of {before.topic_partition} has a table: it comes back empty")
        return after
    best = max(holders, key=lambda replica: (replica.leader_epoch, replica.log_end_offset, -replica.broker_id))
    if best.broker_id in before.replicas:
        return replace(after, isr=(best.broker_id,))
    moved = tuple(dict.fromkeys([best.broker_id, *sorted(replica.broker_id for replica in holders)]))
    told.append(f"{before.topic_partition} was moved after the backup: its replicas are {','.join(map(str, moved))}")
    return replace(after, isr=(best.broker_id,), replicas=moved, adding=(), removing=())


def _erasures(
    image: ClusterImage,
    topic: str,
    own: Sequence[ReplicaEvidence],
    known: Mapping[TopicPartition, PartitionRecord],
) -> Iterator[EraseRecord]:
    """An erasure that was asked for after the backup keeps its id, lest the next one has it and seems to be done."""
    newest = max((replica.erased for replica in own), default=0)
    if newest > (max(image.erases.get(topic, {}), default=0) if known else 0):
        yield EraseRecord(topic, newest, NOTHING, (), "restored")
