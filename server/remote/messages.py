"""Requests to brokers of other processes as messages, and what the answers say. Pure.

The requests of coordinators are messages as they are. An answer is what the coordinator would give in its own process:
the response, or the error with which a broker refuses requests for coordinators that it does not have. A batch becomes
a Produce request here, a deletion of records DeleteRecords.
"""

from __future__ import annotations

from stratalog.replication.requests.delete_records import DeletedRecords, DeleteRecordsRequest, DeleteRecordsResponse
from stratalog.replication.requests.messages import MESSAGES
from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse
from stratalog.replication.requests.transactions import TRANSACTION_VERSION_2, EndTxnRequest
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import NewRecordBatch
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.batches.record_batches import encode_batch
from stratalog.wire.messages.frames import Message
from stratalog.wire.messages.layouts import error_of
from stratalog.wire.messages.schema import Entity

PRODUCE_BY_TOPIC_ID = 13
DELETE_RECORDS_BY_TOPIC_ID = 2
END_TXN_BEFORE_EPOCH_BUMP = 4

_ELSEWHERE = (errors.NotCoordinatorError, errors.CoordinatorNotAvailableError, errors.CoordinatorLoadInProgressError)
"""What a broker answers for a coordinator that it does not have, or not yet, whatever the request."""


def message_of(request: object) -> Message:
    """InvalidRequestError for a request that Kafka's protocol does not have."""
    found = MESSAGES.get(type(request))
    if found is None:
        raise errors.InvalidRequestError(f"{type(request).__name__} is not sent to brokers of other processes")
    api_key, version, response = found
    if isinstance(request, EndTxnRequest) and request.transaction_version < TRANSACTION_VERSION_2:
        version = END_TXN_BEFORE_EPOCH_BUMP
    return Message(request, api_key, version, response)


def coordinators_answer(response: object) -> object:
    """The coordinator's answer: a response or a StratalogError."""
    error = _first_error(response)
    return error if isinstance(error, _ELSEWHERE) else response


def _first_error(response: object) -> StratalogError | None:
    """The error of a response, or the first one of its parts."""
    own: StratalogError | None = getattr(response, "error", None)
    if own is not None:
        return own
    for parts in ("groups", "results", "topics", "partitions", "transaction_states"):
        for part in getattr(response, parts, ()):
            found = _first_error(part)
            if found is not None:
                return found
    return None


# -- Produce -----------------------------------------------------------------------------------------------------


def produce_message(request: ProduceRequest) -> Message:
    """A batch as Produce sends it. RecordTooLargeError, UnsupportedCompressionTypeError."""
    batch = request.batch
    records = encode_batch(batch) if isinstance(batch, NewRecordBatch) else batch.data
    topic_id, (_, partition) = request.partition
    data = {"topic_id": topic_id, "partition_data": [{"index": partition, "records": records}]}
    values = {
        "transactional_id": request.transactional_id,
        "acks": request.acks,
        "timeout": request.timeout_ms,
        "topic_data": [data],
    }
    return Message(values, ApiKey.PRODUCE, PRODUCE_BY_TOPIC_ID)


def produced(request: ProduceRequest, message: Entity) -> ProduceResponse:
    """The leader's response. The message names no leader epoch, nor whether the batch was stored before."""
    (part,) = message.responses[0].partition_responses
    error = error_of(part)
    if error is not None:
        return ProduceResponse(request.partition, error=error)
    count = request.batch.record_count if isinstance(request.batch, NewRecordBatch) else 1
    last_offset = part.base_offset + count - 1
    return ProduceResponse(request.partition, part.base_offset, last_offset, append_time_ms=part.log_append_time)


# -- DeleteRecords -----------------------------------------------------------------------------------------------


def delete_records_message(request: DeleteRecordsRequest) -> Message:
    """A request to a leader, which names topics by their names and ids."""
    topics = [
        {"name": topic, "topic_id": topic_id, "partitions": [{"partition_index": partition, "offset": offset}]}
        for (topic_id, (topic, partition)), offset in request.offsets.items()
    ]
    values = {"topics": topics, "timeout": request.timeout_ms}
    return Message(values, ApiKey.DELETE_RECORDS, DELETE_RECORDS_BY_TOPIC_ID)


def records_deleted(request: DeleteRecordsRequest, message: Entity) -> DeleteRecordsResponse:
    """The leader's answers, which are in the order of the request: the message names no ids."""
    found = [(topic.name, part) for topic in message.topics for part in topic.partitions]
    named = [(topic, part.partition_index) for topic, part in found]
    if named != [each.topic_partition for each in request.offsets]:
        unknown = errors.UnknownServerError(f"{list(request.offsets)} were asked for, {named} answered")
        return dict.fromkeys(request.offsets, DeletedRecords(error=unknown))
    return {
        partition: DeletedRecords(part.low_watermark, error_of(part))
        for partition, (_, part) in zip(request.offsets, found, strict=True)
    }
