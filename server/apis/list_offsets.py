"""ListOffsets and OffsetForLeaderEpoch: where in a partition's log something lies. I/O: reads the leader's table.

Answered by the leader only. There is no tiered storage: the earliest local offset is the log's start, an offset of the
second tier is -1.
Source: `ReplicaManager.fetchOffset`, `Partition.fetchOffsetForTimestamp`, `OffsetsForLeaderEpochRequest` (KIP-79,
KIP-207, KIP-320, KIP-405, KIP-734, KIP-1005).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import partial
from typing import Any

from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.server.offset_spec import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    UNKNOWN_OFFSET,
    ListedOffset,
    OffsetSpec,
)
from stratalog.server.request.api import Api, Call, each_partition, partition_error, refused_partitions, repeated
from stratalog.server.request.broker import ApiFamily, attempted
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.log.leader_epochs import UNDEFINED_EPOCH
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.values import Values

EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP = -4, -5, -6
_SINCE = {
    LATEST_TIMESTAMP: 0,
    EARLIEST_TIMESTAMP: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
"""The first version of ListOffsets with each of the times that stand for a position."""
DEBUGGING_REPLICA = -2


class OffsetApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        return [
            Api(ApiKey.LIST_OFFSETS, self._list_offsets, refused_partitions),
            Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, self._offsets_for_leader_epoch, _epochs_refused),
        ]

    # -- ListOffsets -------------------------------------------------------------------------------------------

    def _list_offsets(self, call: Call) -> Values:
        topics = call.request.topics
        twice = repeated((topic.name, each.partition_index) for topic in topics for each in topic.partitions)

        def values(topic: Any, asked: Any) -> Values:
            named = TopicPartition(topic.name, asked.partition_index)
            return attempted(partial(self._listed, call, named, asked, twice), partial(partition_error, asked))

        return {"topics": each_partition(topics, values)}

    def _listed(self, call: Call, named: TopicPartition, asked: Any, twice: Container[tuple[str, int]]) -> Values:
        self._broker.check(call, Operation.DESCRIBE, ResourceType.TOPIC, named.topic)
        if named in twice:
            raise errors.InvalidRequestError(f"{named} is named twice")
        if asked.timestamp < 0 and call.version < _SINCE.get(asked.timestamp, call.version + 1):
            raise errors.UnsupportedVersionError(f"timestamp {asked.timestamp} in ListOffsets version {call.version}")
        self._broker.led_partition(named, getattr(asked, "current_leader_epoch", UNDEFINED_EPOCH))
        is_committed = call.reads_committed
        is_debugging = call.request.replica_id == DEBUGGING_REPLICA
        try:
            found = self._offset(named, asked.timestamp, is_committed, is_debugging=is_debugging)
        except errors.LeaderNotAvailableError as reason:  # it leads by the metadata and has not started: come again
            raise errors.NotLeaderOrFollowerError(str(reason)) from reason
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
            start = view.offsets.list_offset(named, OffsetSpec.earliest(), 0).offset
            return ListedOffset(start, leader_epoch=self._broker.epoch_at(named, start))
        if is_debugging and timestamp == LATEST_TIMESTAMP:
            end = self._broker.log_end(named)
            return ListedOffset(end, leader_epoch=self._broker.partition(named).leader_epoch)
        found = view.offsets.list_offset(named, OffsetSpec(timestamp), 0)
        if not is_committed:
            return found
        stable = self._last_stable_offset(named)
        if timestamp == LATEST_TIMESTAMP:
            return ListedOffset(stable, leader_epoch=found.leader_epoch)
        return found if found.offset < stable else ListedOffset(UNKNOWN_OFFSET)

    def _last_stable_offset(self, named: TopicPartition) -> int:
        """Not below the log's start, from which on the records of an open transaction may have been deleted."""
        view = self._broker.view
        marks = view.watermarks.of(named, 0)
        stable = self._broker.stable_offset(named, marks.high_watermark)
        if stable is None:
            stable = view.records.read_from_log(named, lambda log: log.last_stable_offset(marks.high_watermark), 0)
        return max(stable, marks.log_start_offset)

    # -- OffsetForLeaderEpoch ------------------------------------------------------------------------------------

    def _offsets_for_leader_epoch(self, call: Call) -> Values:
        def values(topic: Any, asked: Any) -> Values:
            return attempted(partial(self._epoch_end, call, topic.topic, asked), partial(_epoch_error, asked))

        return {"topics": each_partition(call.request.topics, values)}

    def _epoch_end(self, call: Call, topic: str, asked: Any) -> Values:
        named = TopicPartition(topic, asked.partition)
        self._broker.check(call, Operation.DESCRIBE, ResourceType.TOPIC, topic)
        self._broker.led_partition(named, asked.current_leader_epoch)
        try:
            end = self._broker.end_of_epoch(named, asked.leader_epoch)
        except errors.LeaderNotAvailableError as reason:
            raise errors.NotLeaderOrFollowerError(str(reason)) from reason
        return {
            "error_code": None,
            "partition": asked.partition,
            "leader_epoch": end.epoch,
            "end_offset": end.end_offset,
        }


def _epoch_error(asked: Any, error: StratalogError) -> Values:
    return {"error_code": error, "partition": asked.partition}


def _epochs_refused(call: Call, error: StratalogError) -> Values:
    return {"topics": each_partition(call.request.topics, lambda _topic, asked: _epoch_error(asked, error))}
