"""DescribeLogDirs and AlterReplicaLogDirs. I/O: through the broker; sizes from its root.

A broker has one log directory, its root: replicas stay there, as in Kafka with one directory.
Source: `ReplicaManager.describeLogDirs`, `ReplicaManager.alterReplicaLogDirs` (KIP-113, KIP-827).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.server.request.api import Api, Call, by_topic, error_only
from stratalog.server.request.broker import ApiFamily
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.values import Values

REFUSAL_FROM = 3
"""The first version of DescribeLogDirs with a code for the whole; before it, an unauthorized client gets no log dir."""


class LogDirApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        return [
            Api(ApiKey.ALTER_REPLICA_LOG_DIRS, self._alter_replica_log_dirs, _alterations_refused),
            Api(ApiKey.DESCRIBE_LOG_DIRS, self._describe_log_dirs, error_only, is_slow=True),
        ]

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
