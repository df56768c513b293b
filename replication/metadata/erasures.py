"""Requests to erase records of a topic, and the erasures of one replica. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import EraseRecord
from stratalog.storage.errors import UnknownTopicOrPartitionError
from stratalog.storage.log.leader_epochs import UNDEFINED_EPOCH
from stratalog.storage.records import TopicPartition
from stratalog.storage.transactions import OffsetAndEpoch
from stratalog.storage.upkeep.erase import Erase, ErasePredicate

_parsed = lru_cache(maxsize=256)(ErasePredicate.parse)


def request_erase(
    image: ClusterImage, topic: str, topic_id: str, predicate: str, ends: Sequence[OffsetAndEpoch], request_id: str
) -> Result[EraseRecord]:
    """Erase the records that match below `ends[partition]` of the topic with this id; the answer is the request with
    its own id.

    `ends`: high watermarks, each with the leader epoch under which it was published. The same `request_id` again is
    answered with the first request. UnknownTopicOrPartitionError, InvalidRequestError.
    """
    if image.topic_ids.get(topic) != topic_id:
        raise UnknownTopicOrPartitionError(f"topic '{topic}' of id {topic_id} does not exist")
    known = image.erases.get(topic, {})
    asked = next((each for each in known.values() if each.request_id == request_id), None)
    if asked is not None:
        return Result((), asked)
    text = ErasePredicate.parse(predicate).text
    end_offsets, leader_epochs = tuple(end.offset for end in ends), tuple(end.leader_epoch for end in ends)
    record = EraseRecord(topic, max(known, default=0) + 1, text, end_offsets, request_id, leader_epochs)
    return Result((record,), record)


def erases_of(image: ClusterImage, topic_partition: TopicPartition) -> list[Erase]:
    """The erasures of a replica, by id; empty ranges for requests that are older than the partition."""
    asked = image.erases.get(topic_partition.topic, {})
    return [erase_of(asked[erase_id], topic_partition.partition) for erase_id in sorted(asked)]


def erase_of(record: EraseRecord, partition: int) -> Erase:
    """A request's erasure of one partition."""
    end_offset = record.end_offsets[partition] if partition < len(record.end_offsets) else 0
    leader_epoch = record.leader_epochs[partition] if partition < len(record.leader_epochs) else UNDEFINED_EPOCH
    return Erase(record.erase_id, end_offset, _parsed(record.predicate), leader_epoch)
