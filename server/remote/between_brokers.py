"""What brokers ask each other: markers of transactions, and whether a partition is in a transaction. Pure.

A coordinator sends a marker for each partition of a transaction to its leader; a leader asks the coordinator about
the first batch of a transaction in a partition. Both come in numbers, and a broker answers one request of a connection
after the other. So those that come while one is under way wait, and go together in the next message.
Source: Kafka's `TransactionMarkerChannelManager`, `AddPartitionsToTxnManager`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse
from stratalog.replication.requests.transactions import (
    TRANSACTION_VERSION_2,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from stratalog.storage.errors import StratalogError, UnknownServerError
from stratalog.storage.records import NewRecordBatch, TopicPartition
from stratalog.storage.transactions import EndMarker, is_control, marker_of
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.consumer_protocol import partitions_by_topic
from stratalog.wire.messages.frames import Message
from stratalog.wire.messages.layouts import error_of
from stratalog.wire.messages.schema import Entity
from stratalog.wire.messages.values import Values

WRITE_TXN_MARKERS_VERSION, ADD_PARTITIONS_TO_TXN_VERSION = 2, 5

T = TypeVar("T")
Question = AddPartitionsToTxnRequest | AddOffsetsToTxnRequest


class Gathering(Generic[T]):
    """Items that wait while others are under way.

    >>> gathering = Gathering[int]()
    >>> gathering.put(1), gathering.put(2), gathering.put(3)
    ([1], [], [])
    >>> gathering.answered(), gathering.answered(), gathering.put(4)
    ([2, 3], [], [4])
    """

    def __init__(self) -> None:
        self._waiting: list[T] = []
        self._is_under_way = False

    def put(self, item: T) -> list[T]:
        """The items to send now: this one, or none while others are under way."""
        self._waiting.append(item)
        return [] if self._is_under_way else self.answered()

    def answered(self) -> list[T]:
        """The items to send now that those under way are answered."""
        items, self._waiting = self._waiting, []
        self._is_under_way = bool(items)
        return items


# -- markers -----------------------------------------------------------------------------------------------------


def is_marker(request: ProduceRequest) -> bool:
    """Whether it appends a transaction's marker."""
    return is_control(request.batch.attributes) and _marker_of(request) is not None


def _marker_of(request: ProduceRequest) -> EndMarker | None:
    batch = request.batch
    if not isinstance(batch, NewRecordBatch):
        return None
    return marker_of(batch.first.key, batch.first.value)


def markers_message(requests: Sequence[ProduceRequest]) -> Message:
    """WriteTxnMarkers, for requests that are markers, in their order."""
    values = {"markers": [_marker(request) for request in requests]}
    return Message(values, ApiKey.WRITE_TXN_MARKERS, WRITE_TXN_MARKERS_VERSION)


def _marker(request: ProduceRequest) -> Values:
    batch, marker = request.batch, _marker_of(request)
    assert isinstance(batch, NewRecordBatch)
    assert marker is not None
    topic, partition = request.topic_partition
    return {
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "transaction_result": marker.is_commit,
        "topics": [{"name": topic, "partition_indexes": [partition]}],
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_version": batch.transaction_version,
    }


def markers_written(requests: Sequence[ProduceRequest], message: Entity) -> list[ProduceResponse]:
    """The outcome of each marker, in order."""
    if len(message.markers) != len(requests):
        unknown = UnknownServerError(f"{len(requests)} markers were sent, {len(message.markers)} answered")
        return [ProduceResponse(request.partition, error=unknown) for request in requests]
    parts = (each.topics[0].partitions[0] for each in message.markers)
    return [
        ProduceResponse(request.partition, error=error_of(part)) for request, part in zip(requests, parts, strict=True)
    ]


# -- partitions of transactions ------------------------------------------------------------------------------------


def is_question(request: object) -> bool:
    """Whether it goes to a transaction's coordinator as AddPartitionsToTxn of a broker."""
    if isinstance(request, AddOffsetsToTxnRequest):
        return request.transaction_version >= TRANSACTION_VERSION_2
    return isinstance(request, AddPartitionsToTxnRequest)


def questions_message(requests: Sequence[Question]) -> Message:
    """AddPartitionsToTxn, a transaction for each request."""
    values = {"transactions": [_transaction(each) for each in requests]}
    return Message(values, ApiKey.ADD_PARTITIONS_TO_TXN, ADD_PARTITIONS_TO_TXN_VERSION)


def _transaction(request: Question) -> Values:
    topics = partitions_by_topic(_partitions(request))
    return {
        "transactional_id": request.transactional_id,
        "producer_id": request.producer_id,
        "producer_epoch": request.producer_epoch,
        "verify_only": isinstance(request, AddPartitionsToTxnRequest) and request.verify_only,
        "topics": [{"name": name, "partitions": numbers} for name, numbers in topics.items()],
    }


def _partitions(request: Question) -> tuple[TopicPartition, ...]:
    return request.topics if isinstance(request, AddPartitionsToTxnRequest) else (request.offsets_partition,)


def questions_answered(requests: Sequence[Question], message: Entity) -> list[object]:
    """The coordinator's answer to each request, in order: a response or a StratalogError."""
    error = error_of(message)
    if error is None and len(message.results_by_transaction) != len(requests):
        count = len(message.results_by_transaction)
        error = UnknownServerError(f"{len(requests)} transactions were asked for, {count} answered")
    if error is not None:
        return [error] * len(requests)
    return [_answer(request, result) for request, result in zip(requests, message.results_by_transaction, strict=True)]


def _answer(request: Question, result: Any) -> object:
    errors = {
        TopicPartition(topic.name, part.partition_index): error_of(part, "partition_error_code")
        for topic in result.topic_results
        for part in topic.results_by_partition
    }
    missing = UnknownServerError(f"transactional id {request.transactional_id}: a partition was not answered")
    results: list[tuple[TopicPartition, StratalogError | None]] = [
        (named, errors.get(named, missing)) for named in _partitions(request)
    ]
    if isinstance(request, AddOffsetsToTxnRequest):
        return AddOffsetsToTxnResponse(results[0][1])
    return AddPartitionsToTxnResponse(tuple(results))
