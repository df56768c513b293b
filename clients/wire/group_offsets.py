"""The committed offsets of many groups in few requests: their coordinators are asked for, then each for all of its own.

I/O: requests to brokers. Source: Kafka's `ListConsumerGroupOffsetsHandler` (KIP-709).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from stratalog.clients.admin.group_description import as_response
from stratalog.clients.consumer.offsets import fetched_offsets
from stratalog.clients.records import OffsetAndMetadata
from stratalog.clients.wire.wire_cluster import WireCluster
from stratalog.replication.requests.coordinators import (
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from stratalog.replication.requests.groups import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from stratalog.server.remote.messages import message_of
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition

GROUPS_AT_ONCE = 250
"""Number of groups of one request: an answer to a few is there before one to all, and coordinators serve others."""


def committed_offsets(
    cluster: WireCluster, group_ids: Sequence[str], deadline_ms: int
) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
    """Group -> what it has committed, of those that were answered before the deadline and without an error.

    Topics are left out that the connection's user may not describe.
    """
    found: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    for some in _batches(group_ids):
        left_ms = deadline_ms - cluster.clock.monotonic_ms()
        if left_ms <= 0:
            break
        found |= _answered(cluster, some, left_ms)
    return found


def _batches(group_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(group_ids), GROUPS_AT_ONCE):
        yield group_ids[start : start + GROUPS_AT_ONCE]


def _answered(
    cluster: WireCluster, group_ids: Sequence[str], timeout_ms: int
) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
    asked = message_of(FindCoordinatorRequest(CoordinatorType.GROUP, tuple(group_ids)))
    by_broker: dict[int, list[OffsetFetchRequestGroup]] = {}
    for each in as_response(FindCoordinatorResponse, cluster.call(asked, timeout_ms=timeout_ms)).coordinators:
        if each.error is None:
            by_broker.setdefault(each.node_id, []).append(OffsetFetchRequestGroup(each.key))
    messages = {broker_id: message_of(OffsetFetchRequest(tuple(groups))) for broker_id, groups in by_broker.items()}
    found: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    for answer in cluster.call_each(messages, timeout_ms).values():
        if not isinstance(answer, StratalogError):
            found |= _offsets(as_response(OffsetFetchResponse, answer))
    return found


def _offsets(response: OffsetFetchResponse) -> Iterable[tuple[str, dict[TopicPartition, OffsetAndMetadata]]]:
    """Of each group without an error."""
    for each in response.groups:
        try:
            offsets = fetched_offsets(OffsetFetchResponse((each,)))
        except StratalogError:
            continue
        yield each.group_id, {named: held for named, held in offsets.items() if held is not None}
