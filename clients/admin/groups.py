"""Groups as an administrator sees and changes them: through their coordinators, or as they are stored.

I/O: calls coordinators, or reads `__consumer_offsets` from storage. Members, states and offsets are read from storage
without a broker; changes need a coordinator, since it alone has the current members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import pyarrow as pa

from stratalog.clients.admin.group_description import ConsumerGroupDescription, as_response, described_group
from stratalog.clients.admin.group_lag import GroupLag, lag_of
from stratalog.clients.client_view import ClientView
from stratalog.clients.consumer.offsets import Offsets, commit_error, commit_request, fetch_request, fetched_offsets
from stratalog.clients.coordinator_calls import CALLED_FROM_ELSEWHERE, InProcessCalls, ask
from stratalog.clients.records import Generation, OffsetAndMetadata
from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.modern.requests import ModernGroups
from stratalog.replication.coordinator.groups.shard import GroupShard
from stratalog.replication.coordinator.shard.shard import CoordinatorRecord
from stratalog.replication.internal_topics import GROUP_METADATA_TOPIC, partition_of_key
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.replication.requests.consumer_groups import ConsumerGroupDescribeRequest
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from stratalog.server.bootstrap import RunningCluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import Clock
from stratalog.storage.errors import BrokerNotAvailableError, RequestTimedOutError, StratalogError
from stratalog.storage.records import CONTROL_ATTRIBUTE, TRANSACTIONAL_ATTRIBUTE, TopicPartition

FETCH_BYTES = 1 << 23
_COMMIT = 1
"""Type of a transaction marker that commits; a marker's key is version and type, two bytes each."""


_READING = (DescribeGroupsRequest, ConsumerGroupDescribeRequest, OffsetFetchRequest)
"""Requests about one group that change nothing."""


class Groups(Protocol):
    """Receives requests about groups."""

    def ask(self, group_id: str, request: object) -> object:
        """The response of the group's coordinator. Raises its StratalogError."""

    def ask_all(self, request: object) -> list[object]:
        """The responses of all coordinators."""


class LiveGroups:
    """Calls the brokers of a cluster; see `InProcessCalls`."""

    def __init__(self, cluster: RunningCluster, clock: Clock, timeout_ms: int) -> None:
        self._cluster = cluster
        self._calls = InProcessCalls(cluster, clock)
        self._clock = clock
        self._timeout_ms = timeout_ms

    def ask(self, group_id: str, request: object) -> object:
        return ask(self._calls, group_id, request, self._clock, self._timeout_ms)

    def ask_all(self, request: object) -> list[object]:
        answers: list[object] = []
        for broker_id, face in sorted(self._cluster.brokers().items()):
            found: SimpleQueue[list[object]] = SimpleQueue()
            face.every_coordinator(CoordinatorType.GROUP, request, found.put)
            try:
                answers += found.get(timeout=self._timeout_ms / 1000)
            except Empty:
                why = f"broker {broker_id} did not answer within {self._timeout_ms} ms"
                raise RequestTimedOutError(why) from None
        return answers


class StoredGroups:
    """Folds the committed records of `__consumer_offsets`, a partition at its first request; for reading only."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._shards: dict[int, GroupShard] = {}
        self._folded: dict[int, tuple[object, int]] = {}
        """Partition -> which log was folded, and the offset behind what was."""

    def refresh(self) -> None:
        """Fold what was committed since the first requests: without it they go on answering as of then."""
        for partition in list(self._shards):
            self._catch_up(partition)

    def ask(self, group_id: str, request: object) -> object:
        if not isinstance(request, _READING):
            raise BrokerNotAvailableError(
                f"group {group_id}: a change goes through the group's coordinator, and no broker can be called from "
                f"this process. {CALLED_FROM_ELSEWHERE}"
            )
        return self._answer(self._shard_of(group_id), request)

    def ask_all(self, request: object) -> list[object]:
        partitions = self._view.image.partitions_of(GROUP_METADATA_TOPIC)
        return [self._answer(self._shard(each.partition), request) for each in partitions]

    def _answer(self, shard: GroupShard, request: object) -> object:
        (answered,) = shard.decide(request, 0, self._view.clock.wall_ms()).answers
        return answered.response

    def _shard_of(self, group_id: str) -> GroupShard:
        count = len(self._view.image.partitions_of(GROUP_METADATA_TOPIC))
        return self._shard(partition_of_key(group_id, count)) if count else self._empty()

    def _empty(self) -> GroupShard:
        return GroupShard(
            BrokerConfig(), self._view.ids, (lambda table: ModernGroups(table, lambda: self._view.image),)
        )

    def _shard(self, partition: int) -> GroupShard:
        if partition not in self._shards:
            self._catch_up(partition)
        return self._shards[partition]

    def _catch_up(self, partition: int) -> None:
        """Anew after an unclean election, which may have taken back what was folded, and for a topic made again."""
        named = TopicPartition(GROUP_METADATA_TOPIC, partition)
        marks = self._view.watermarks.of(named)
        log_id = self._view.log_id(self._view.partition_state(named))
        folded_id, offset = self._folded.get(partition, (None, marks.log_start_offset))
        if folded_id != log_id or offset > marks.high_watermark:
            self._shards[partition], offset = self._empty(), marks.log_start_offset
        shard, offset = self._shards[partition], max(offset, marks.log_start_offset)
        while offset < marks.high_watermark:
            fetched = self._view.records.fetch(named, offset, FETCH_BYTES, marks.high_watermark)
            rows = fetched.rows
            for row in rows.append_column("timestamp_ms", rows["timestamp"].cast(pa.int64())).to_pylist():
                _replay(shard, row)
            offset = fetched.next_offset
            self._folded[partition] = log_id, offset
        self._folded[partition] = log_id, offset


def _replay(shard: GroupShard, row: Mapping[str, Any]) -> None:
    producer = (row["producer_id"], row["producer_epoch"])
    if row["attributes"] & CONTROL_ATTRIBUTE:
        shard.replay_end_transaction(*producer, int.from_bytes(row["key"][2:4]) == _COMMIT)
        return
    is_transactional = row["attributes"] & TRANSACTIONAL_ATTRIBUTE
    record = CoordinatorRecord(row["key"], row["value"])
    shard.replay(record, row["timestamp_ms"], *(producer if is_transactional else ()))


class GroupAdmin:
    """Operations of `kafka-consumer-groups`. Errors of single groups and partitions are values; others are raised."""

    def __init__(self, groups: Groups, view: ClientView) -> None:
        self._groups = groups
        self._view = view

    def list_groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
        """All groups in these states and of these types (none: any), by name."""
        responses = self._groups.ask_all(ListGroupsRequest(tuple(states), tuple(types)))
        listed = [as_response(ListGroupsResponse, response) for response in responses]
        errors = [each.error for each in listed if each.error is not None]
        if errors:
            raise errors[0]
        return sorted((group for each in listed for group in each.groups), key=lambda group: group.group_id)

    def describe_group(self, group_id: str) -> ConsumerGroupDescription:
        """State, assignor and members of a group of either protocol; GROUP_ID_NOT_FOUND is its `error`, not raised."""
        return described_group(group_id, partial(self._groups.ask, group_id))

    def committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """All offsets that the group has committed."""
        request = fetch_request(group_id, None, require_stable=False)
        found = fetched_offsets(as_response(OffsetFetchResponse, self._groups.ask(group_id, request)))
        return {tp: committed for tp, committed in found.items() if committed is not None}

    def lag(self, group_id: str) -> GroupLag:
        """The committed offsets beside the high watermarks; empty for an unknown group. No leader is waited for."""
        return lag_of(self._view, group_id, self.committed(group_id))

    def alter_offsets(self, group_id: str, offsets: Offsets) -> None:
        """Commit offsets of a group without members. UnknownMemberIdError when it has members."""
        request = commit_request(group_id, offsets, Generation())
        error = commit_error(as_response(OffsetCommitResponse, self._groups.ask(group_id, request)))
        if error is not None:
            raise error

    def delete_groups(self, group_ids: Iterable[str]) -> dict[str, StratalogError | None]:
        """Remove groups without members, with their offsets; None for a removed one, else NON_EMPTY_GROUP, …"""
        outcomes: dict[str, StratalogError | None] = {}
        for group_id in group_ids:
            response = as_response(DeleteGroupsResponse, self._groups.ask(group_id, DeleteGroupsRequest((group_id,))))
            outcomes[group_id] = response.results[0].error
        return outcomes

    def delete_offsets(
        self, group_id: str, topic_partitions: Iterable[TopicPartition]
    ) -> tuple[StratalogError | None, dict[TopicPartition, StratalogError | None]]:
        """Remove offsets of topics that no member reads: the group's error, and that of each partition."""
        by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for topic, partition in topic_partitions:
            by_topic.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition))
        topics = tuple(OffsetDeleteRequestTopic(topic, tuple(rows)) for topic, rows in by_topic.items())
        response = as_response(OffsetDeleteResponse, self._groups.ask(group_id, OffsetDeleteRequest(group_id, topics)))
        rows = {
            TopicPartition(topic.name, row.partition_index): row.error
            for topic in response.topics
            for row in topic.partitions
        }
        return response.error, rows

    def coordinator(self, group_id: str) -> int:
        """The broker id of the group's coordinator, -1 when there is none."""
        partitions = self._view.image.partitions_of(GROUP_METADATA_TOPIC)
        if not partitions:
            return NO_LEADER
        return self._view.leader(partitions[partition_of_key(group_id, len(partitions))])
