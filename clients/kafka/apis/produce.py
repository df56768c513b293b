"""Produce: record batches into the broker's queue. I/O: through the broker; its thread answers.

Each partition of a request is one batch, checked and answered by itself; a request is answered with its last partition.
Source: `KafkaApis.handleProduceRequest`, `ProduceRequest.validateRecords`, `ReplicaManager.appendRecords`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow.compute as pc

from stratalog.clients.kafka.batches.record_batches import decode_group, decode_produced, produced_header
from stratalog.clients.kafka.batches.tail import uses_zstd
from stratalog.clients.kafka.protocol.entities import Values, id_text, milliseconds
from stratalog.clients.kafka.protocol.frames import served_versions
from stratalog.clients.kafka.request.api import Api, Call, Joined
from stratalog.clients.kafka.request.broker import ServedBroker
from stratalog.replication.coordinator.transactions.add_partitions import (
    coordinator_asker,
    produce_in_transaction,
)
from stratalog.replication.internal_topics import is_internal
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.requests.produce import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    ProduceRequest,
    ProduceResponse,
    SentBatch,
)
from stratalog.replication.requests.transactions import TRANSACTION_VERSION_0, TRANSACTION_VERSION_2
from stratalog.storage.errors import (
    FencedLeaderEpochError,
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    NotLeaderOrFollowerError,
    StratalogError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
)
from stratalog.storage.files.codecs import NO_COMPRESSION
from stratalog.storage.records import NewRecordBatch, TopicPartition
from stratalog.storage.transactions import is_transactional

PRODUCE = 0
ADVERTISED_FROM = 0
"""librdkafka takes a broker that does not tell of version 0 for one that knows no compression (KAFKA-18659)."""
ZSTD_FROM = 7
TRANSACTION_ABORTABLE_FROM, EPOCH_BUMP_FROM = 11, 12
ADMIN_CLIENT_ID = "__admin_client"
RECORD_ERRORS_MAX = 100
UNKNOWN = -1
READ_TOGETHER_BYTES_MAX = 64 << 10
"""Larger batches gain nothing from company, and reading them would hold up the broker's loop, as decompressing would;
they are read in the thread that brought them. The Java producer's batches have 16 KiB."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One partition of a request, by name; its place in the request is (topic, partition)."""

    place: tuple[int, int]
    topic_partition: TopicPartition
    records: bytes
    batch: NewRecordBatch | SentBatch
    log_start_offset: int


_Answered = tuple[StratalogError | None, ProduceResponse | None, _Part | None]


class Produce:
    """One broker's answers."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker

    def apis(self) -> Iterable[Api]:
        return [Api(PRODUCE, served_versions(PRODUCE), self._produce, _refused, advertised_from=ADVERTISED_FROM)]

    def _produce(self, call: Call) -> None:
        request = call.request
        if request.transactional_id is not None:
            self._broker.check(call, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        places = [(t, p) for t, topic in enumerate(request.topic_data) for p in range(len(topic.partition_data))]
        joined = Joined(len(places), partial(self._answer, call))
        if not places:
            self._answer(call, {})
            return
        for place in places:
            try:
                self._append(call, self._part(call, place), joined)
            except StratalogError as error:
                joined.put(place, (error, None, None))

    def _part(self, call: Call, place: tuple[int, int]) -> _Part:
        topic = call.request.topic_data[place[0]]
        data = topic.partition_data[place[1]]
        name = self._topic_name(topic)
        refusal = self._broker.refusal(call, Operation.WRITE, ResourceType.TOPIC, name)
        if refusal is not None:
            raise refusal
        if call.request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            raise InvalidRequiredAcksError(f"acks is {call.request.acks}, must be 0, 1 or -1 (all)")
        if is_internal(name) and call.client_id != ADMIN_CLIENT_ID:
            raise InvalidTopicError(f"Cannot append to internal topic {name}")
        named = TopicPartition(name, data.index)
        self._broker.partition(named)
        # Looked up here: who answers is the broker's own thread, which must not wait for a reader of this view.
        marks = self._broker.view.published(named, poll=False)
        log_start_offset = UNKNOWN if marks is None else marks.log_start_offset
        return _Part(place, named, data.records or b"", _batch(call.version, data.records), log_start_offset)

    def _topic_name(self, topic: Any) -> str:
        if hasattr(topic, "name"):
            return str(topic.name)
        topic_id = id_text(topic.topic_id)
        try:
            return self._broker.topic_name(topic_id)
        except UnknownTopicOrPartitionError as reason:
            raise UnknownTopicIdError(str(reason)) from reason

    def _append(self, call: Call, part: _Part, joined: Joined) -> None:
        timeout_ms = max(0, milliseconds(call.request.timeout))
        request = ProduceRequest(part.topic_partition, part.batch, call.request.acks, timeout_ms)
        complete = partial(self._appended, part, joined)
        transactional_id = call.request.transactional_id
        if not is_transactional(part.batch.attributes):
            self._broker.face().produce_then(request, complete)
            return
        if transactional_id is None:
            raise TransactionalIdAuthorizationFailedError("transactional records come with a transactional id")
        produce_in_transaction(
            self._broker.face(),
            coordinator_asker(lambda: self._broker.view.image, self._broker.peers()),
            request,
            transactional_id,
            TRANSACTION_VERSION_2 if call.version >= EPOCH_BUMP_FROM else TRANSACTION_VERSION_0,
            complete,
            is_abortable_known=call.version >= TRANSACTION_ABORTABLE_FROM,
        )

    def _appended(self, part: _Part, joined: Joined, response: ProduceResponse) -> None:
        if response.error is None and not response.duplicate:
            self._broker.tail.put(part.topic_partition, response.base_offset, response.leader_epoch, part.records)
        joined.put(part.place, (response.error, response, part))

    # -- the answer ------------------------------------------------------------------------------------------

    def _answer(self, call: Call, answers: dict[tuple[int, int], _Answered]) -> None:
        if call.request.acks == ACKS_NONE:
            errors = [error for error, _, _ in answers.values() if error is not None]
            if errors:  # the only way to tell a producer that does not listen
                call.connection.close(f"acks=0 and {errors[0].name}: {errors[0]}")
            else:
                call.end()
            return
        nodes: dict[int, Values] = {}
        topics = []
        for t, topic in enumerate(call.request.topic_data):
            partitions = [
                self._partition_values(data.index, answers[t, p], nodes) for p, data in enumerate(topic.partition_data)
            ]
            named = {"topic_id": topic.topic_id} if hasattr(topic, "topic_id") else {"name": topic.name}
            topics.append({**named, "partition_responses": partitions})
        call.respond({"responses": topics, "node_endpoints": list(nodes.values())})

    def _partition_values(
        self,
        index: int,
        answered: _Answered,
        nodes: dict[int, Values],
    ) -> Values:
        error, response, part = answered
        if error is None and response is not None and part is not None:
            offsets = {"base_offset": response.base_offset, "log_start_offset": part.log_start_offset}
            return {"index": index, "error_code": None, **offsets}
        values: dict[str, Any] = {"index": index, "error_code": error, "base_offset": -1, "error_message": str(error)}
        if part is not None and isinstance(error, InvalidRecordError):
            values["record_errors"] = _records_without_key(part)
        if part is not None and isinstance(error, NotLeaderOrFollowerError | FencedLeaderEpochError):
            values["current_leader"] = self._broker.current_leader(part.topic_partition, nodes)
        return values


def _batch(version: int, records: bytes | None) -> NewRecordBatch | SentBatch:
    """The one batch that a partition's records are to be. InvalidRecordError, UnsupportedCompressionTypeError, …

    Small ones are left to the broker, which reads all that go into one commit at once.
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
        replace(batch, verified_offset=each.verified_offset)
        if each.verified_offset >= 0 and isinstance(batch, NewRecordBatch)
        else batch
        for each, batch in zip(sent, read, strict=True)
    ]


def _records_without_key(part: _Part) -> list[Values]:
    """Which records of a refused batch have no key, the one thing that the log refuses records for."""
    try:
        batch = decode_produced(part.records)
    except StratalogError:
        return []  # the bytes are no records: that is why it was refused
    missing = pc.indices_nonzero(pc.is_null(batch.payload["key"])).to_pylist()
    reason = "Compacted topic cannot accept message without key"
    return [{"batch_index": index, "batch_index_error_message": reason} for index in missing[:RECORD_ERRORS_MAX]]


def _refused(call: Call, error: StratalogError) -> Values:
    topics = []
    for topic in call.request.topic_data:
        named = {"topic_id": topic.topic_id} if hasattr(topic, "topic_id") else {"name": topic.name}
        values = {"error_code": error, "base_offset": -1, "error_message": str(error)}
        topics.append({**named, "partition_responses": [{"index": p.index, **values} for p in topic.partition_data]})
    return {"responses": topics}
