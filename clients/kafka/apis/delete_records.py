"""DeleteRecords and DescribeLogDirs. I/O: brokers' roots, through the admin client.

Source: `KafkaApis.handleDeleteRecordsRequest`, `ReplicaManager.describeLogDirs` (KIP-107, KIP-113, KIP-827).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stratalog.clients.kafka.protocol.entities import Values, milliseconds
from stratalog.clients.kafka.protocol.frames import served_versions
from stratalog.clients.kafka.request.api import Api, Call, error_only
from stratalog.clients.kafka.request.broker import ServedBroker
from stratalog.replication.leader.delete_records import DeletedRecords
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.storage.errors import ClusterAuthorizationFailedError, StratalogError
from stratalog.storage.records import TopicPartition

DELETE_RECORDS, DESCRIBE_LOG_DIRS = 21, 35
REFUSAL_FROM = 3
"""Before, DescribeLogDirs had no code for the whole: who may not ask gets nothing."""


class Records:
    """One broker's answers."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker

    def apis(self) -> Iterable[Api]:
        dirs = served_versions(DESCRIBE_LOG_DIRS)
        return [
            Api(DELETE_RECORDS, served_versions(DELETE_RECORDS), self._delete_records, _none_deleted, is_slow=True),
            Api(DESCRIBE_LOG_DIRS, dirs, self._describe_log_dirs, error_only, is_slow=True),
        ]

    def _delete_records(self, call: Call) -> Values:
        """Answered when every live replica's log starts there, or at the request's timeout (KIP-107)."""
        asked = {
            TopicPartition(topic.name, each.partition_index): each.offset
            for topic in call.request.topics
            for each in topic.partitions
        }
        answers: dict[TopicPartition, DeletedRecords] = {}
        for named in asked:
            try:
                self._broker.check(call, Operation.DELETE, ResourceType.TOPIC, named.topic)
                self._broker.led_partition(named)
            except StratalogError as error:
                answers[named] = DeletedRecords(error=error)
        wanted = {named: offset for named, offset in asked.items() if named not in answers}
        if wanted:
            timeout_ms = max(0, milliseconds(call.request.timeout))
            answers |= self._broker.admin.delete_records(wanted, timeout_ms)
        return _deleted(call, answers)

    def _describe_log_dirs(self, call: Call) -> Values:
        """This broker's one log directory: its root."""
        refusal = self._broker.refusal(call, Operation.DESCRIBE, ResourceType.CLUSTER)
        if refusal is not None:
            if call.version < REFUSAL_FROM:
                return {"results": ()}
            raise ClusterAuthorizationFailedError(str(refusal))
        asked = call.request.topics
        wanted = None if asked is None else {TopicPartition(t.topic, p) for t in asked for p in t.partitions}
        names = None if wanted is None else {named.topic for named in wanted}
        broker_id = self._broker.broker_id
        found = self._broker.admin.describe_log_dirs([broker_id], names)[broker_id]
        topics: dict[str, list[Values]] = {}
        for named, replica in sorted(found.replicas.items()):
            if wanted is None or named in wanted:
                topics.setdefault(named.topic, []).append(
                    {
                        "partition_index": named.partition,
                        "partition_size": replica.size_bytes,
                        "offset_lag": replica.offset_lag,
                        "is_future_key": False,
                    }
                )
        listed = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
        return {"error_code": None, "results": [{"error_code": found.error, "log_dir": found.path, "topics": listed}]}


def _deleted(call: Call, answers: dict[TopicPartition, DeletedRecords]) -> Values:
    def values(name: str, partition: int) -> dict[str, Any]:
        answer = answers[TopicPartition(name, partition)]
        return {"partition_index": partition, "low_watermark": answer.low_watermark, "error_code": answer.error}

    return {
        "topics": [
            {"name": topic.name, "partitions": [values(topic.name, each.partition_index) for each in topic.partitions]}
            for topic in call.request.topics
        ]
    }


def _none_deleted(call: Call, error: StratalogError) -> Values:
    named = (TopicPartition(t.name, p.partition_index) for t in call.request.topics for p in t.partitions)
    return _deleted(call, {each: DeletedRecords(error=error) for each in named})
