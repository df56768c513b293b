"""Produce: record batches into the broker's queue. I/O: through the broker; its thread answers.

Each partition of a request is one batch, checked and appended by itself; the answer follows the last partition's.
Source: `KafkaApis.handleProduceRequest`, `ProduceRequest.validateRecords`, `ReplicaManager.appendRecords`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow.compute as pc

from stratalog.clients.kafka.batches.headers import Buffer, with_append_time
from stratalog.clients.kafka.batches.record_batches import decode_group, decode_produced, produced_header
from stratalog.clients.kafka.batches.tail import uses_zstd
from stratalog.clients.kafka.protocol.entities import Values, milliseconds
from stratalog.clients.kafka.request.api import Api, Call, gather, topic_named
from stratalog.clients.kafka.request.broker import ApiFamily, ServedBroker
from stratalog.clients.kafka.request.coordinators import transaction_asker
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
from stratalog.storage.errors import (
    CorruptMessageError,
    FencedLeaderEpochError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    RecordListTooLargeError,
    RecordTooLargeError,
    StratalogError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
)
from stratalog.storage.files.codecs import NO_COMPRESSION
from stratalog.storage.records import IdentifiedPartition, NewRecordBatch, TopicPartition
from stratalog.storage.transactions import is_transactional

PRODUCE = 0
ADVERTISED_FROM = 0
"""The lowest version named by ApiVersions: without version 0, librdkafka uses no compression (KAFKA-18659)."""
ZSTD_FROM = 7
TRANSACTION_ABORTABLE_FROM, EPOCH_BUMP_FROM, TOPIC_IDS_FROM = 11, 12, 13
ADMIN_CLIENT_ID = "__admin_client"
RECORD_ERRORS_MAX = 100
_EXPECTED = (
    CorruptMessageError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    RecordListTooLargeError,
    RecordTooLargeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
"""Errors that say nothing of the broker: Kafka's `ReplicaManager.appendRecordsToLeader` does not count them, and tells
the start of the log beside any other. Java's producer comes again for ever where UNKNOWN_PRODUCER_ID lacks it."""
READ_TOGETHER_BYTES_MAX = 64 << 10
"""The size up to which batches are read together, in the broker's loop. Larger ones gain nothing from that and would
delay the loop, as decompressing would; they are read in the caller's thread. Java producers send 16 KiB."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One partition of a request."""

    partition: IdentifiedPartition
    records: Buffer
    batch: NewRecordBatch | SentBatch


_Answer = StratalogError | tuple[_Part, ProduceResponse]
_Put = Callable[[_Answer], None]


class ProduceApis(ApiFamily):
    def __init__(self, broker: ServedBroker) -> None:
        super().__init__(broker)
        self._held = HeldBatches()

    def apis(self) -> Iterable[Api]:
        first = ADVERTISED_FROM
        return [Api(PRODUCE, self._produce, _refused, first, is_quick=True, is_known=self._is_known)]

    def _is_known(self, call: Call) -> bool:
        topics = call.request.topic_data
        return all(self._broker.is_known(topic, data.index) for topic in topics for data in topic.partition_data)

    def _produce(self, call: Call) -> None:
        request = call.request
        if request.transactional_id is not None:
            self._broker.check(call, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        indexes = [(t, p) for t, topic in enumerate(request.topic_data) for p in range(len(topic.partition_data))]

        def append(index: tuple[int, int], put: _Put) -> None:
            topic = request.topic_data[index[0]]
            self._append(call, self._part(call, topic, topic.partition_data[index[1]]), put)

        gather(indexes, append, partial(self._answer, call))

    def _part(self, call: Call, topic: Any, data: Any) -> _Part:
        name = self._broker.topic_for(call, Operation.WRITE, topic)
        if call.request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            raise InvalidRequiredAcksError(f"acks is {call.request.acks}, must be 0, 1 or -1 (all)")
        if is_internal(name) and call.client_id != ADMIN_CLIENT_ID:
            raise InvalidTopicError(f"Cannot append to internal topic {name}")
        named = TopicPartition(name, data.index)
        self._broker.partition(named)
        return _Part(self._broker.identified(topic, named), data.records or b"", _batch(call.version, data.records))

    def _append(self, call: Call, part: _Part, put: _Put) -> None:
        timeout_ms = max(0, milliseconds(call.request.timeout))
        request = ProduceRequest(part.partition, part.batch, call.request.acks, timeout_ms)
        complete = partial(self._appended, part, put)
        transactional_id = call.request.transactional_id
        if not is_transactional(part.batch.attributes):
            self._broker.face().produce_then(request, complete)
            return
        if transactional_id is None:
            raise TransactionalIdAuthorizationFailedError("transactional records come with a transactional id")
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
            errors = [error for error in map(_error_of, answers.values()) if error is not None]
            if errors:  # no answer is read: closing is the only way to report an error
                call.connection.close(f"acks=0 and {errors[0].name}: {errors[0]}")
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
        if isinstance(response.error, UnknownTopicIdError) and call.version < TOPIC_IDS_FROM:
            return _partition_error(index, UnknownTopicOrPartitionError(str(response.error)))
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
            if not (is_transactional(part.batch.attributes) and isinstance(response.error, InvalidProducerEpochError)):
                values["log_start_offset"] = response.log_start_offset  # else Kafka's coordinator refuses it, not a log
        if isinstance(response.error, InvalidRecordError):
            values["record_errors"] = _records_without_key(part)
        if isinstance(response.error, NotLeaderOrFollowerError | FencedLeaderEpochError):
            values["current_leader"] = self._broker.current_leader(call, part.partition.topic_partition, nodes)
        return values


def _error_of(answer: _Answer) -> StratalogError | None:
    return answer if isinstance(answer, StratalogError) else answer[1].error


def _partition_error(index: int, error: StratalogError) -> dict[str, Any]:
    return {"index": index, "error_code": error, "base_offset": -1, "error_message": str(error)}


def _batch(version: int, records: bytes | memoryview | None) -> NewRecordBatch | SentBatch:
    """The one batch of a partition. InvalidRecordError, UnsupportedCompressionTypeError, …

    The broker decodes small batches, all of one commit at once.
    """
    if not records:
        raise InvalidRecordError(
            f"Produce requests with version {version} must have at least one record batch per partition"
        )
    header = produced_header(records)
    if version < ZSTD_FROM and uses_zstd(records):
        raise UnsupportedCompressionTypeError(
            f"Produce requests with version {version} are not allowed to use ZStandard compression"
        )
    if len(records) > READ_TOGETHER_BYTES_MAX or header.compression_type != NO_COMPRESSION:
        return decode_produced(records)
    return SentBatch(records, header.producer_id, header.producer_epoch, header.attributes, _read_together)


def _read_together(sent: Sequence[SentBatch]) -> list[NewRecordBatch | StratalogError]:
    read = decode_group([each.data for each in sent])
    return [
        replace(batch, verified_offset=each.verified_offset, verified_leader_epoch=each.verified_leader_epoch)
        if each.verified_offset >= 0 and isinstance(batch, NewRecordBatch)
        else batch
        for each, batch in zip(sent, read, strict=True)
    ]


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
