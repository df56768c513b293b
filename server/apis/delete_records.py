"""DeleteRecords, DescribeLogDirs and AlterReplicaLogDirs. I/O: through the broker; sizes from its root.

A broker has one log directory, its root: replicas stay there, as in Kafka with one directory.
Source: `KafkaApis.handleDeleteRecordsRequest`, `ReplicaManager.describeLogDirs`, `ReplicaManager.alterReplicaLogDirs`
(KIP-107, KIP-113, KIP-827).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.requests.delete_records import DeletedRecords, DeleteRecordsRequest, DeleteRecordsResponse
from stratalog.server.request.api import Api, Call, by_topic, error_only
from stratalog.server.request.broker import ApiFamily
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.values import Values, id_text

REFUSAL_FROM = 3
"""The first version of DescribeLogDirs with a code for the whole; before it, an unauthorized client gets no log dir."""


_Answers = dict[TopicPartition, DeletedRecords]


class RecordApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        return [
            Api(ApiKey.DELETE_RECORDS, self._delete_records, _refused),
            Api(ApiKey.ALTER_REPLICA_LOG_DIRS, self._alter_replica_log_dirs, _alterations_refused),
            Api(ApiKey.DESCRIBE_LOG_DIRS, self._describe_log_dirs, error_only, is_slow=True),
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

    def _alter_replica_log_dirs(self, call: Call) -> Values:
        """A replica is moved to a directory that the broker has: it is there."""
        self._broker.check(call, Operation.ALTER, ResourceType.CLUSTER)
        image = self._broker.image(0)

        def moved(named: TopicPartition, path: str) -> StratalogError | None:
            if path != image.brokers[self._broker.broker_id].registration.root:
                return errors.LogDirNotFoundError(f"Log dir {path} is not found in the config.")
            state = image.partitions.get(named)
            if state is None:
                return errors.UnknownTopicOrPartitionError(f"{named} does not exist")
            if self._broker.broker_id not in state.replicas:
                return errors.ReplicaNotAvailableError(f"{named}: broker {self._broker.broker_id} has no replica of it")
            return None

        return _altered({named: moved(named, path) for named, path in _destinations(call).items()})

    def _describe_log_dirs(self, call: Call) -> Values:
        """This broker's one log directory: its root."""
        refusal = self._broker.refusal(call, Operation.DESCRIBE, ResourceType.CLUSTER)
        if refusal is not None:
            if call.version < REFUSAL_FROM:
                return {"results": ()}
            raise errors.ClusterAuthorizationFailedError(str(refusal))
        asked = call.request.topics
        wanted = None if asked is None else {TopicPartition(t.topic, p) for t in asked for p in t.partitions}
        names = None if wanted is None else {named.topic for named in wanted}
        broker_id = self._broker.broker_id
        found = self._broker.admin.describe_log_dirs([broker_id], names)[broker_id]
        replicas = {named: each for named, each in found.replicas.items() if wanted is None or named in wanted}
        topics = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": partition,
                        "partition_size": replica.size_bytes,
                        "offset_lag": replica.offset_lag,
                        "is_future_key": False,
                    }
                    for partition, replica in partitions
                ],
            }
            for topic, partitions in by_topic(replicas)
        ]
        return {"error_code": None, "results": [{"error_code": found.error, "log_dir": found.path, "topics": topics}]}


def _destinations(call: Call) -> dict[TopicPartition, str]:
    """The directory that each partition is to be in; of several the last one."""
    return {
        TopicPartition(topic.name, partition): each.path
        for each in call.request.dirs
        for topic in each.topics
        for partition in topic.partitions
    }


def _altered(answers: Mapping[TopicPartition, StratalogError | None]) -> Values:
    topics = [
        {
            "topic_name": topic,
            "partitions": [{"partition_index": number, "error_code": error} for number, error in partitions],
        }
        for topic, partitions in by_topic(answers)
    ]
    return {"results": topics}


def _alterations_refused(call: Call, error: StratalogError) -> Values:
    return _altered(dict.fromkeys(_destinations(call), error.as_value()))


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
