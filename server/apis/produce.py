"""Produce: record batches into the broker's queue. I/O: through the broker; its thread answers.

Each partition of a request is one batch, checked and appended by itself; the answer follows the last partition's.
Source: `KafkaApis.handleProduceRequest`, `ProduceRequest.validateRecords`, `ReplicaManager.appendRecords`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow.compute as pc

from stratalog.replication.coordinator.transactions.add_partitions import produce_in_transaction
from stratalog.replication.coordinator.transactions.held_batches import HeldBatches
from stratalog.replication.internal_topics import is_internal
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.requests.produce import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    NO_TIME,
    ProduceRequest,
    ProduceResponse,
    SentBatch,
)
from stratalog.replication.requests.transactions import TRANSACTION_VERSION_0, TRANSACTION_VERSION_2
from stratalog.replication.threads.computing_turn import TURN
from stratalog.server.apis.produced_batches import AT_HAND_PARTITIONS_MAX, BatchesAtHand, BatchesInThread, DecodedMemory
from stratalog.server.request.api import Api, Call, Later, gather, repeated, topic_named
from stratalog.server.request.broker import ApiFamily, ServedBroker, has_id
from stratalog.server.request.coordinators import transaction_asker
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import IdentifiedPartition, NewRecordBatch, TopicPartition
from stratalog.storage.transactions import is_transactional
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.batches.headers import Buffer, with_append_time
from stratalog.wire.batches.record_batches import decode_produced
from stratalog.wire.messages.values import Values

ADVERTISED_FROM = 0
"""The lowest version named by ApiVersions: without version 0, librdkafka uses no compression (KAFKA-18659)."""
TRANSACTION_ABORTABLE_FROM, EPOCH_BUMP_FROM, TOPIC_IDS_FROM = 11, 12, 13
ADMIN_CLIENT_ID = "__admin_client"
RECORD_ERRORS_MAX = 100
_EXPECTED = (
    errors.CorruptMessageError,
    errors.KafkaStorageError,
    errors.NotLeaderOrFollowerError,
    errors.RecordListTooLargeError,
    errors.RecordTooLargeError,
    errors.UnknownTopicIdError,
    errors.UnknownTopicOrPartitionError,
)
"""Errors that say nothing of the broker: Kafka's `ReplicaManager.appendRecordsToLeader` does not count them, and tells
the start of the log beside any other. Java's producer comes again for ever where UNKNOWN_PRODUCER_ID lacks it."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One partition of a request."""

    partition: IdentifiedPartition
    records: Buffer
    attributes: int


_Batch = NewRecordBatch | SentBatch
_Index = tuple[int, int]
"""Of a topic in the request, and of a partition in it."""
_Answer = StratalogError | tuple[_Part, ProduceResponse]
_Put = Callable[[_Answer], None]


class ProduceApis(ApiFamily):
    def __init__(self, broker: ServedBroker) -> None:
        super().__init__(broker)
        self._held = HeldBatches()
        self._memory = DecodedMemory(broker.config.queued_max_request_bytes)

    def apis(self) -> Iterable[Api]:
        first = ADVERTISED_FROM
        return [Api(ApiKey.PRODUCE, self._produce, _refused, first, is_quick=True, is_known=self._is_known)]

    def _is_known(self, call: Call) -> bool:
        topics = call.request.topic_data
        return all(self._broker.is_known(topic, data.index) for topic in topics for data in topic.partition_data)

    def _produce(self, call: Call) -> Later | None:
        request = call.request
        if request.transactional_id is not None:
            self._broker.check(call, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        indexes = [(t, p) for t, topic in enumerate(request.topic_data) for p in range(len(topic.partition_data))]
        _check_each_once(request, indexes)
        parts = self._cached(call, indexes) if len(indexes) <= AT_HAND_PARTITIONS_MAX else None
        if parts is None:
            return Later(partial(self._append_one_by_one, call, indexes), computes=True)

        def append(index: _Index, put: _Put) -> None:
            part = parts[index]
            if isinstance(part, StratalogError):
                raise part
            self._append(call, *part, put)

        gather(indexes, append, partial(self._answer, call))
        return None

    def _cached(
        self, call: Call, indexes: Sequence[_Index]
    ) -> dict[_Index, tuple[_Part, _Batch] | StratalogError] | None:
        """The parts of a request that is small; None of another one."""
        batches = BatchesAtHand(call.version)
        parts: dict[_Index, tuple[_Part, _Batch] | StratalogError] = {}
        for index in indexes:
            try:
                named, records = self._checked(call, index)
                batch = batches.read(records)
                parts[index] = _Part(named, records or b"", batch.attributes), batch
            except StratalogError as error:
                parts[index] = error.as_value()
            if batches.is_over:
                return None
        return parts

    def _append_one_by_one(self, call: Call, indexes: Sequence[_Index]) -> None:
        """In a thread that may wait: a batch is in the broker's queue before the next one is read."""
        batches = BatchesInThread(call.version, self._memory, self._broker.config.stratalog_produce_max_decoded_bytes)

        def append(index: _Index, put: _Put) -> None:
            TURN.between()
            named, records = self._checked(call, index)
            batch, taken_bytes = batches.read(records)

            def put_and_release(answer: _Answer) -> None:
                self._memory.release(taken_bytes)
                put(answer)

            part = _Part(named, records or b"", batch.attributes)
            try:
                self._append(call, part, batch, put_and_release if taken_bytes else put)
            except StratalogError:
                self._memory.release(taken_bytes)
                raise

        gather(indexes, append, partial(self._answer, call))

    def _checked(self, call: Call, index: _Index) -> tuple[IdentifiedPartition, bytes | memoryview | None]:
        """A partition of the request that its client may write to, and its records."""
        topic = call.request.topic_data[index[0]]
        data = topic.partition_data[index[1]]
        name = self._broker.topic_for(call, Operation.WRITE, topic)
        if call.request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            raise errors.InvalidRequiredAcksError(f"acks is {call.request.acks}, must be 0, 1 or -1 (all)")
        if is_internal(name) and call.client_id != ADMIN_CLIENT_ID:
            raise errors.InvalidTopicError(f"Cannot append to internal topic {name}")
        named = TopicPartition(name, data.index)
        self._broker.partition(named)
        return self._broker.identified(topic, named), data.records

    def _append(self, call: Call, part: _Part, batch: _Batch, put: _Put) -> None:
        timeout_ms = max(0, call.request.timeout)
        request = ProduceRequest(part.partition, batch, call.request.acks, timeout_ms, sender=call.connection.peer)
        complete = partial(self._appended, part, put)
        transactional_id = call.request.transactional_id
        if not is_transactional(batch.attributes):
            self._broker.face().produce_then(request, complete)
            return
        if transactional_id is None:
            raise errors.TransactionalIdAuthorizationFailedError("transactional records come with a transactional id")
        transaction_version = TRANSACTION_VERSION_2 if call.version >= EPOCH_BUMP_FROM else TRANSACTION_VERSION_0
        produce_in_transaction(
            self._broker.face(),
            transaction_asker(self._broker, transaction_version),
            request,
            transactional_id,
            transaction_version,
            complete,
            is_abortable_known=call.version >= TRANSACTION_ABORTABLE_FROM,
            held=self._held,
        )

    def _appended(self, part: _Part, put: _Put, response: ProduceResponse) -> None:
        if response.error is None and not response.duplicate:
            records = part.records
            if response.append_time_ms != NO_TIME:
                records = with_append_time(records, response.append_time_ms)
            self._broker.memory.put(response.partition, response.base_offset, response.leader_epoch, records)
        put((part, response))

    # -- the answer ------------------------------------------------------------------------------------------

    def _answer(self, call: Call, answers: dict[tuple[int, int], _Answer]) -> None:
        if call.request.acks == ACKS_NONE:
            failures = [error for error in map(_error_of, answers.values()) if error is not None]
            if failures:  # no answer is read: closing is the only way to report an error
                call.connection.close(f"acks=0 and {failures[0].name}: {failures[0]}")
            else:
                call.end()
            return
        nodes: dict[int, Values] = {}
        topics = []
        for t, topic in enumerate(call.request.topic_data):
            partitions = [
                self._partition_values(call, data.index, answers[t, p], nodes)
                for p, data in enumerate(topic.partition_data)
            ]
            topics.append({**topic_named(topic), "partition_responses": partitions})
        call.respond({"responses": topics, "node_endpoints": list(nodes.values())})

    def _partition_values(self, call: Call, index: int, answer: _Answer, nodes: dict[int, Values]) -> Values:
        if isinstance(answer, StratalogError):
            return _partition_error(index, answer)
        part, response = answer
        if isinstance(response.error, errors.UnknownTopicIdError) and call.version < TOPIC_IDS_FROM:
            return _partition_error(index, errors.UnknownTopicOrPartitionError(str(response.error)))
        if response.error is None:
            offsets = {
                "base_offset": response.base_offset,
                "log_append_time": response.append_time_ms,
                "log_start_offset": response.log_start_offset,
            }
            return {"index": index, "error_code": None, **offsets}
        values = _partition_error(index, response.error)
        if not isinstance(response.error, _EXPECTED):
            self._broker.metrics.topic(part.partition.topic).failed_produce_requests += 1
            if not (is_transactional(part.attributes) and isinstance(response.error, errors.InvalidProducerEpochError)):
                values["log_start_offset"] = response.log_start_offset  # else Kafka's coordinator refuses it, not a log
        if isinstance(response.error, errors.InvalidRecordError):
            values["record_errors"] = _records_without_key(part)
        if isinstance(response.error, errors.NotLeaderOrFollowerError | errors.FencedLeaderEpochError):
            values["current_leader"] = self._broker.current_leader(call, part.partition.topic_partition, nodes)
        return values


def _error_of(answer: _Answer) -> StratalogError | None:
    return answer if isinstance(answer, StratalogError) else answer[1].error


def _partition_error(index: int, error: StratalogError) -> dict[str, Any]:
    return {"index": index, "error_code": error, "base_offset": -1, "error_message": str(error)}


def _check_each_once(request: Any, indexes: Sequence[_Index]) -> None:
    """InvalidRequestError for a partition that is named twice: a request has one batch of it, at one place."""
    named = [(*topic_named(request.topic_data[t]).values(), request.topic_data[t].partition_data[p].index)
             for t, p in indexes]  # fmt: skip
    twice = repeated(named)
    if twice:
        topic, partition = min(twice, key=str)
        topic = UUID(topic) if has_id(request.topic_data[0]) else topic
        raise errors.InvalidRequestError(f"partition {partition} of topic {topic} is named more than once")


def _records_without_key(part: _Part) -> list[Values]:
    """The records of a refused batch that have no key: the one reason for which the log refuses records."""
    try:
        batch = decode_produced(part.records)
    except StratalogError:
        return []  # refused since the bytes are no records
    missing = pc.indices_nonzero(pc.is_null(batch.payload["key"])).to_pylist()
    reason = "Compacted topic cannot accept message without key"
    return [{"batch_index": index, "batch_index_error_message": reason} for index in missing[:RECORD_ERRORS_MAX]]


def _refused(call: Call, error: StratalogError) -> Values:
    topics = []
    for topic in call.request.topic_data:
        partitions = [_partition_error(data.index, error) for data in topic.partition_data]
        topics.append({**topic_named(topic), "partition_responses": partitions})
    return {"responses": topics}
