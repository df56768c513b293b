"""DeleteRecords. I/O: through the broker.

Source: `KafkaApis.handleDeleteRecordsRequest` (KIP-107).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.requests.delete_records import DeletedRecords, DeleteRecordsRequest, DeleteRecordsResponse
from stratalog.server.request.api import Api, Call
from stratalog.server.request.broker import ApiFamily
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.values import Values, id_text

_Answers = dict[TopicPartition, DeletedRecords]


class DeleteRecordsApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        return [
            Api(ApiKey.DELETE_RECORDS, self._delete_records, _refused),
        ]

    def _delete_records(self, call: Call) -> None:
        """Answered when every live replica's log starts there, or at the request's timeout (KIP-107)."""
        wanted: dict[IdentifiedPartition, int] = {}
        answers: _Answers = {}
        for topic in call.request.topics:
            for each in topic.partitions:
                named = TopicPartition(topic.name, each.partition_index)
                try:
                    self._broker.check(call, Operation.DELETE, ResourceType.TOPIC, named.topic)
                    self._broker.led_partition(named)
                    wanted[self._identified(topic, named)] = each.offset
                except StratalogError as error:
                    answers[named] = DeletedRecords(error=error.as_value())

        def complete(deleted: DeleteRecordsResponse) -> None:
            answers.update({partition.topic_partition: _as_named(call, each) for partition, each in deleted.items()})
            self._broker.aside(call, lambda: call.respond_with(lambda: _deleted(call, answers)), len(answers))

        if wanted:
            timeout_ms = max(0, call.request.timeout)
            self._broker.face().delete_records(DeleteRecordsRequest(wanted, timeout_ms), complete)
        else:
            complete({})

    def _identified(self, topic: Any, named: TopicPartition) -> IdentifiedPartition:
        """Without an id the topic is meant that has the name now."""
        topic_id = _topic_id(topic)
        return self._broker.view.image.identified(named) if topic_id is None else IdentifiedPartition(topic_id, named)


def _as_named(call: Call, answer: DeletedRecords) -> DeletedRecords:
    """A client that names no ids knows no error of them: the topic that it meant is gone."""
    if not isinstance(answer.error, errors.UnknownTopicIdError) or any(map(_topic_id, call.request.topics)):
        return answer
    return DeletedRecords(error=errors.UnknownTopicOrPartitionError(str(answer.error)))


def _topic_id(topic: Any) -> str | None:
    """The id that our own clients send beside the name."""
    return id_text(getattr(topic, "topic_id", None))


def _deleted(call: Call, answers: _Answers) -> Values:
    def values(topic: str, partition: int) -> Values:
        answer = answers[TopicPartition(topic, partition)]
        return {"partition_index": partition, "low_watermark": answer.low_watermark, "error_code": answer.error}

    topics = [
        {"name": topic.name, "partitions": [values(topic.name, each.partition_index) for each in topic.partitions]}
        for topic in call.request.topics
    ]
    return {"topics": topics}


def _refused(call: Call, error: StratalogError) -> Values:
    named = (
        TopicPartition(topic.name, each.partition_index) for topic in call.request.topics for each in topic.partitions
    )
    return _deleted(call, dict.fromkeys(named, DeletedRecords(error=error.as_value())))
