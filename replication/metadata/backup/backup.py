"""A backup of the metadata log as lines of JSON, and its restoration beside newer roots of brokers. Pure.

The first line names the cluster and the end offset; then a line for each record and each manifest of a Spark sink; the
last line counts them and has a CRC32C of all lines before it, which reveals a torn copy.

A backup lacks everything after it. So that no epoch or id is used twice, and nothing that was acknowledged is lost,
`restored_records` reads the inventory of the brokers' roots: tables have leader epochs and log ends, progress objects
broker epochs. Each partition's new ISR is one replica: the one with the newest leader epoch, and of these the one with
the highest log end. It has every record that the whole ISR acknowledged, since a record is acknowledged only when all
members' tables have its leader's epoch (promises 7 and 8). A sealed table is no such evidence: its replica had left the
assignment, its broker deletes it, and its epoch is no leader's.
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
from stratalog.replication.metadata.state_changes import check_epochs
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.log.state import SEALED_EPOCH
from stratalog.storage.records import TopicPartition

FORMAT = 1
EPOCH_LEAP = 1_000
"""The distance of restored epochs from the newest known one: there may be a newer one in no table or object."""
PRODUCER_ID_LEAP = 1 << 32
NOTHING = '{"key":{"in":[]}}'
"""A predicate that no record matches."""


@dataclass(frozen=True, slots=True)
class BackupRecord:
    """One record of the metadata log, as JSON."""

    offset: int
    timestamp_ms: int | None
    value: str

    @property
    def record(self) -> MetadataRecord:
        return record_from_json(self.value.encode())


@dataclass(frozen=True, slots=True)
class Backup:
    """The metadata log up to `end_offset`, and the manifests of Spark sinks by path."""

    cluster_id: str
    end_offset: int
    taken_ms: int
    records: tuple[BackupRecord, ...]
    manifests: Mapping[str, str] = field(default_factory=dict)

    def image(self) -> ClusterImage:
        """The image at `end_offset`. CorruptMessageError for a record that this release does not know."""
        return ClusterImage().fold(*(each.record for each in self.records))


def encode_backup(backup: Backup) -> str:
    """The lines of the backup."""
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
    manifests = ({"path": path, "content": content} for path, content in sorted(backup.manifests.items()))
    text = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in (head, *records, *manifests))
    tail = {"records": len(backup.records), "notes": len(backup.manifests), "crc32c": _crc(text)}
    return f"{text}{json.dumps(tail, separators=(',', ':'))}\n"


def decode_backup(text: str) -> Backup:
    """The backup from a file's text. CorruptMessageError, with the reason."""
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
        manifests = {body["path"]: body["content"] for body in bodies if "path" in body}
        return Backup(head["cluster_id"], head["end_offset"], head["taken_ms"], records, manifests)
    except (ValueError, KeyError, TypeError) as reason:
        raise CorruptMessageError(f"not a whole metadata backup: {type(reason).__name__}: {reason}") from reason


def _backup_record(body: Mapping[str, Any]) -> BackupRecord:
    return BackupRecord(body["offset"], body["timestamp_ms"], json.dumps(body["record"], separators=(",", ":")))


def _crc(text: str) -> str:
    return f"{crc32c.crc32c(text.encode()):08x}"


# -- restoration ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplicaInventory:
    """The state of one replica's table. `erased`: the newest erasure that it has applied, or begun."""

    broker_id: int
    topic_partition: TopicPartition
    topic_id: str
    leader_epoch: int
    log_end_offset: int
    erased: int = 0

    @property
    def is_sealed(self) -> bool:
        """Whether the table is to be deleted."""
        return self.leader_epoch >= SEALED_EPOCH


@dataclass(frozen=True, slots=True)
class RootInventory:
    """The contents of one broker's root: the newest broker epoch that was used there, and its replicas."""

    broker_id: int
    root: str
    broker_epoch: int
    replicas: tuple[ReplicaInventory, ...] = ()


@dataclass(frozen=True, slots=True)
class Restoration:
    """The records that follow those of the backup, and messages for the administrator."""

    records: tuple[MetadataRecord, ...]
    messages: tuple[str, ...]


def restored_records(backup: Backup, roots: Sequence[RootInventory]) -> Restoration:
    """The records that make the backup fit the roots; every broker registers again after that.

    IllegalStateError when no leader epoch is left above that of a table.
    Worked: the backup has t-0 with ISR {1,2,3} in leader epoch 5; since then 2 led epoch 7, alone in the ISR, up to
    offset 90, and 1 and 3 ended at 40 in epoch 6. Restored: no leader, ISR {2}, leader epoch 1007.
    """
    image = backup.image()
    epoch = image.controller_epoch + EPOCH_LEAP
    found = [replica for root in roots for replica in root.replicas]
    replicas = [replica for replica in found if not replica.is_sealed]
    removed = {r.record.topic_id for r in backup.records if isinstance(r.record, RemoveTopicRecord)}
    removed |= image.deletions.keys()
    topics = _topics(image, replicas, removed)
    messages = [_left_out(each) for each in found if each.is_sealed]
    records: list[MetadataRecord] = [ControllerRecord(NO_LEADER, epoch)]
    records.append(ProducerIdsRecord(NO_LEADER, image.next_producer_id + PRODUCER_ID_LEAP))
    records += _brokers(image, roots)
    for topic, topic_id in sorted(topics.items()):
        own = [replica for replica in replicas if replica.topic_id == topic_id]
        if image.topic_ids.get(topic) != topic_id:
            records += _adopted(image, topic, topic_id)
            messages.append(_adoption(topic, own))
        known = image.partitions if image.topic_ids.get(topic) == topic_id else {}
        records += _partitions(topic, own, known, epoch, messages)
        records += _erasures(image, topic, own, known)
    check_epochs(records)
    return Restoration(tuple(records), tuple(messages))


def _topics(image: ClusterImage, replicas: Iterable[ReplicaInventory], removed: set[str]) -> dict[str, str]:
    """Topic ids by name: the backup's and those of the roots, without those that the backup has as deleted.

    An id that is not in the backup is younger than the backup's id of the name.
    """
    topics = dict(image.topic_ids)
    for replica in replicas:
        if replica.topic_id not in removed and replica.topic_id not in image.topic_ids.values():
            topics[replica.topic_partition.topic] = replica.topic_id
    return topics


def _brokers(image: ClusterImage, roots: Sequence[RootInventory]) -> Iterator[MetadataRecord]:
    """Every broker is fenced, under an unused broker epoch."""
    epoch = max([image.last_broker_epoch, *(root.broker_epoch for root in roots)]) + EPOCH_LEAP
    urls = {root.broker_id: root.root for root in roots}
    for broker_id in sorted(image.brokers.keys() | urls.keys()):
        known = image.brokers.get(broker_id)
        before = known.registration if known else RegisterBrokerRecord(broker_id, epoch, "restored", urls[broker_id])
        epoch += 1
        root = urls.get(broker_id, before.root)
        yield replace(before, broker_epoch=epoch, incarnation_id="restored", root=root)
        yield FenceBrokerRecord(broker_id, epoch)


def _adopted(image: ClusterImage, topic: str, topic_id: str) -> Iterator[MetadataRecord]:
    if topic in image.topic_ids:
        yield RemoveTopicRecord(topic, image.topic_ids[topic])
    yield TopicRecord(topic, topic_id)


def _adoption(topic: str, own: Sequence[ReplicaInventory]) -> str:
    brokers = ",".join(map(str, sorted({replica.broker_id for replica in own})))
    return f"topic {topic} is not in the backup: taken in from its tables on brokers {brokers}, with default configs"


def _left_out(sealed: ReplicaInventory) -> str:
    where = f"{sealed.topic_partition} on broker {sealed.broker_id}"
    return f"the table of {where} is sealed, since it was to be deleted: not counted"


def _partitions(
    topic: str,
    own: Sequence[ReplicaInventory],
    known: Mapping[TopicPartition, PartitionRecord],
    controller_epoch: int,
    messages: list[str],
) -> Iterator[PartitionRecord]:
    """The state of each partition of a topic, of the backup or found on the roots."""
    held: dict[int, list[ReplicaInventory]] = {}
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
                messages.append(f"partition {topic_partition} is not in the backup: taken in from its tables")
        yield _partition(before, holders, controller_epoch, messages)


def _partition(
    before: PartitionRecord, holders: Sequence[ReplicaInventory], controller_epoch: int, messages: list[str]
) -> PartitionRecord:
    epoch = max([before.leader_epoch, *(replica.leader_epoch for replica in holders)]) + EPOCH_LEAP
    after = replace(
        before,
        leader=NO_LEADER,
        leader_epoch=epoch,
        partition_epoch=before.partition_epoch + EPOCH_LEAP,
        controller_epoch=controller_epoch,
        elr=(),  # eligible at the time of the backup only
        last_known_elr=(),
        lost=(),
    )
    if before.has_one_table:
        name = before.domain_of(before.replicas[0])
        messages.append(f"{before.topic_partition} is in the storage domain '{name}', whose table goes on")
        return replace(after, isr=before.replicas, adding=(), removing=())
    if not holders:
        messages.append(f"no replica of {before.topic_partition} has a table: it comes back empty")
        return after
    best = max(holders, key=lambda replica: (replica.leader_epoch, replica.log_end_offset, -replica.broker_id))
    if best.broker_id in before.replicas:
        return replace(after, isr=(best.broker_id,))
    moved = tuple(dict.fromkeys([best.broker_id, *sorted(replica.broker_id for replica in holders)]))
    replicas = ",".join(map(str, moved))
    messages.append(f"{before.topic_partition} was moved after the backup: its replicas are {replicas}")
    return replace(after, isr=(best.broker_id,), replicas=moved, adding=(), removing=())


def _erasures(
    image: ClusterImage, topic: str, own: Sequence[ReplicaInventory], known: Mapping[TopicPartition, PartitionRecord]
) -> Iterator[EraseRecord]:
    """An erasure after the backup keeps its id: a next one of the same id would seem to be done."""
    newest = max((replica.erased for replica in own), default=0)
    if newest > (max(image.erases.get(topic, {}), default=0) if known else 0):
        yield EraseRecord(topic, newest, NOTHING, (), "restored")
