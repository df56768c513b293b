"""ListOffsets and OffsetForLeaderEpoch: where in a partition's log something lies. I/O: reads the leader's table.

Answered by the leader only. There is no tiered storage here: the earliest local offset is the log's start, and what
only a second tier could have is offset -1.
Source: `ReplicaManager.fetchOffset`, `Partition.fetchOffsetForTimestamp`, `OffsetsForLeaderEpochRequest` (KIP-79,
KIP-207, KIP-320, KIP-405, KIP-734, KIP-1005).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from stratalog.clients.kafka.protocol.entities import Values
from stratalog.clients.kafka.protocol.frames import served_versions
from stratalog.clients.kafka.request.api import Api, Call
from stratalog.clients.kafka.request.broker import ServedBroker, attempted
from stratalog.clients.offset_spec import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    UNKNOWN_OFFSET,
    ListedOffset,
    OffsetSpec,
)
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.storage.errors import (
    InvalidRequestError,
    LeaderNotAvailableError,
    OffsetNotAvailableError,
    StratalogError,
    UnsupportedVersionError,
)
from stratalog.storage.log.leader_epochs import UNDEFINED_EPOCH, EpochEndOffset
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import TopicPartition

LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH = 2, 23
EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP = -4, -5, -6
_SINCE = {
    LATEST_TIMESTAMP: 0,
    EARLIEST_TIMESTAMP: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
"""The version of ListOffsets from which each of the times that stand for a place may be asked for."""
OFFSET_NOT_AVAILABLE_FROM = 5
READ_COMMITTED = 1
DEBUGGING_REPLICA = -2


class Offsets:
    """One broker's answers."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker

    def apis(self) -> Iterable[Api]:
        epochs = served_versions(OFFSET_FOR_LEADER_EPOCH)
        return [
            Api(LIST_OFFSETS, served_versions(LIST_OFFSETS), self._list_offsets, _none_listed),
            Api(OFFSET_FOR_LEADER_EPOCH, epochs, self._offsets_for_leader_epoch, _no_epoch),
        ]

    # -- ListOffsets -------------------------------------------------------------------------------------------

    def _list_offsets(self, call: Call) -> Values:
        return _each_partition(call.request.topics, partial(self._listed, call), _offset_error)

    def _listed(self, call: Call, topic: Any, asked: Any, is_twice: bool) -> Values:
        named = TopicPartition(topic.name, asked.partition_index)
        self._broker.check(call, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        if is_twice:
            raise InvalidRequestError(f"{named} is named twice")
        if asked.timestamp < 0 and call.version < _SINCE.get(asked.timestamp, call.version + 1):
            raise UnsupportedVersionError(f"timestamp {asked.timestamp} in ListOffsets version {call.version}")
        replica_id = call.request.replica_id
        epoch = getattr(asked, "current_leader_epoch", UNDEFINED_EPOCH)
        self._broker.led_partition(named, epoch)
        is_committed = call.given("isolation_level", 0) == READ_COMMITTED
        try:
            found = self._offset(named, asked.timestamp, is_committed, is_debugging=replica_id == DEBUGGING_REPLICA)
        except LeaderNotAvailableError as reason:
            if call.version < OFFSET_NOT_AVAILABLE_FROM:
                raise
            raise OffsetNotAvailableError(str(reason)) from reason
        return {
            "partition_index": asked.partition_index,
            "error_code": None,
            "timestamp": found.timestamp_ms,
            "offset": found.offset,
            "leader_epoch": UNDEFINED_EPOCH if found.leader_epoch is None else found.leader_epoch,
        }

    def _offset(self, named: TopicPartition, timestamp: int, is_committed: bool, *, is_debugging: bool) -> ListedOffset:
        view = self._broker.view
        if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
            return ListedOffset(UNKNOWN_OFFSET)
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            start = view.list_offset(named, OffsetSpec.earliest(), 0).offset
            epoch = view.look_at_log(named, lambda log: log.epochs.epoch_at(start), 0)
            return ListedOffset(start, leader_epoch=epoch)
        if is_debugging and timestamp == LATEST_TIMESTAMP:
            end = view.look_at_log(named, lambda log: log.log_end_offset, 0)
            return ListedOffset(end, leader_epoch=self._broker.partition(named).leader_epoch)
        found = view.list_offset(named, OffsetSpec(timestamp), 0)
        if not is_committed:
            return found
        stable = self._last_stable_offset(named)
        if timestamp == LATEST_TIMESTAMP:
            return ListedOffset(stable, leader_epoch=found.leader_epoch)
        return found if found.offset < stable else ListedOffset(UNKNOWN_OFFSET)

    def _last_stable_offset(self, named: TopicPartition) -> int:
        marks = self._broker.view.watermarks(named, 0)
        return self._broker.view.look_at_log(named, lambda log: log.last_stable_offset(marks.high_watermark), 0)

    # -- OffsetForLeaderEpoch ------------------------------------------------------------------------------------

    def _offsets_for_leader_epoch(self, call: Call) -> Values:
        topics: list[Values] = []
        for topic in call.request.topics:
            answers = [
                attempted(partial(self._epoch_end, call, topic.topic, each), partial(_epoch_error, each.partition))
                for each in topic.partitions
            ]
            topics.append({"topic": topic.topic, "partitions": answers})
        return {"topics": topics}

    def _epoch_end(self, call: Call, topic: str, asked: Any) -> Values:
        named = TopicPartition(topic, asked.partition)
        self._broker.check(call, Operation.DESCRIBE, ResourceType.TOPIC, topic)
        self._broker.led_partition(named, asked.current_leader_epoch)
        try:
            end = end_of_epoch(self._broker, named, asked.leader_epoch)
        except LeaderNotAvailableError as reason:
            raise OffsetNotAvailableError(str(reason)) from reason
        return {
            "error_code": None,
            "partition": asked.partition,
            "leader_epoch": end.epoch,
            "end_offset": end.end_offset,
        }


def end_of_epoch(broker: ServedBroker, named: TopicPartition, leader_epoch: int) -> EpochEndOffset:
    """Where a leader epoch, or the largest known below it, ended in the leader's log. LeaderNotAvailableError."""

    def look(log: LogReader) -> EpochEndOffset:
        return log.epochs.end_offset_for(leader_epoch, log.log_end_offset)

    return broker.view.look_at_log(named, look, 0)


Answer = Callable[[Any, Any, bool], Values]


def _each_partition(topics: Sequence[Any], answer: Answer, refused: Callable[[int, StratalogError], Values]) -> Values:
    """The answers for the partitions of a request, by topic."""
    count = Counter((topic.name, each.partition_index) for topic in topics for each in topic.partitions)
    answered: list[Values] = []
    for topic in topics:
        partitions = [
            attempted(
                partial(answer, topic, each, count[topic.name, each.partition_index] > 1),
                partial(refused, each.partition_index),
            )
            for each in topic.partitions
        ]
        answered.append({"name": topic.name, "partitions": partitions})
    return {"topics": answered}


def _offset_error(partition: int, error: StratalogError) -> Values:
    return {"partition_index": partition, "error_code": error}


def _epoch_error(partition: int, error: StratalogError) -> Values:
    return {"error_code": error, "partition": partition}


def _none_listed(call: Call, error: StratalogError) -> Values:
    def refuse(_topic: Any, _asked: Any, _is_twice: bool) -> Values:
        raise error

    return _each_partition(call.request.topics, refuse, _offset_error)


def _no_epoch(call: Call, error: StratalogError) -> Values:
    return {
        "topics": [
            {"topic": topic.topic, "partitions": [_epoch_error(each.partition, error) for each in topic.partitions]}
            for topic in call.request.topics
        ]
    }
