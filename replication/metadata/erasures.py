"""Requests to erase records of a topic, and the erasures of one replica. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import EraseRecord
from stratalog.storage.errors import UnknownTopicOrPartitionError
from stratalog.storage.records import TopicPartition
from stratalog.storage.upkeep.erase import Erase, ErasePredicate

_parsed = lru_cache(maxsize=256)(ErasePredicate.parse)


def request_erase(
    image: ClusterImage, topic: str, topic_id: str, predicate: str, end_offsets: Sequence[int], request_id: str
) -> Result[EraseRecord]:
    """Erase the records that match below `end_offsets[partition]` of the topic with this id; the answer is the request
    with its own id.

    The same `request_id` again is answered with the first request. UnknownTopicOrPartitionError, InvalidRequestError.
    """
    if image.topic_ids.get(topic) != topic_id:
        raise UnknownTopicOrPartitionError(f"topic '{topic}' of id {topic_id} does not exist")
    known = image.erases.get(topic, {})
    asked = next((each for each in known.values() if each.request_id == request_id), None)
    if asked is not None:
        return Result((), asked)
    text = ErasePredicate.parse(predicate).text
    record = EraseRecord(topic, max(known, default=0) + 1, text, tuple(end_offsets), request_id)
    return Result((record,), record)


def erases_of(image: ClusterImage, topic_partition: TopicPartition) -> list[Erase]:
    """The erasures of a replica, by id; empty ranges for requests that are older than the partition."""
    asked = image.erases.get(topic_partition.topic, {})
    return [erase_of(asked[erase_id], topic_partition.partition) for erase_id in sorted(asked)]


def erase_of(record: EraseRecord, partition: int) -> Erase:
    """A request's erasure of one partition."""
    end_offset = record.end_offsets[partition] if partition < len(record.end_offsets) else 0
    return Erase(record.erase_id, end_offset, _parsed(record.predicate))
