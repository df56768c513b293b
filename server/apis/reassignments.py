"""AlterPartitionReassignments, ListPartitionReassignments, UnregisterBroker.

I/O: the metadata log, through the admin client.

Source: `ControllerApis`, `ReplicationControlManager` (KIP-455, KIP-860).
"""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.server.request.api import Api, Call, by_topic, failed, partition_error
from stratalog.server.request.broker import ApiFamily
from stratalog.storage.errors import InvalidRequestError, StratalogError
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.values import Values


class ReassignmentApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        return [
            Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, self._alter, _reassignments_refused, is_slow=True),
            Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, self._list),
            Api(ApiKey.UNREGISTER_BROKER, self._unregister),
        ]

    def _alter(self, call: Call) -> Values:
        self._broker.check(call, Operation.ALTER, ResourceType.CLUSTER)
        call.check_time()
        targets: dict[TopicPartition, tuple[int, ...] | None] = {}
        for topic in call.request.topics:
            for each in topic.partitions:
                named = TopicPartition(topic.name, each.partition_index)
                if named in targets:
                    raise InvalidRequestError(f"{named} is named twice")
                targets[named] = each.replicas
        may_change = call.given("allow_replication_factor_change", True)
        answers = self._broker.admin.alter_partition_reassignments(targets, allow_replication_factor_change=may_change)
        responses = [
            {"name": topic, "partitions": [{"partition_index": p, **failed(error)} for p, error in partitions]}
            for topic, partitions in by_topic(answers)
        ]
        return {**failed(None), "allow_replication_factor_change": may_change, "responses": responses}

    def _list(self, call: Call) -> Values:
        """The reassignments under way; other partitions are left out."""
        self._broker.check(call, Operation.DESCRIBE, ResourceType.CLUSTER)
        asked = call.request.topics
        known = self._broker.image(0).partitions
        wanted = None
        if asked is not None:
            named = (TopicPartition(topic.name, number) for topic in asked for number in topic.partition_indexes)
            wanted = [each for each in named if each in known]
        found = self._broker.admin.list_partition_reassignments(wanted)
        topics = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": partition,
                        "replicas": each.replicas,
                        "adding_replicas": each.adding,
                        "removing_replicas": each.removing,
                    }
                    for partition, each in partitions
                ],
            }
            for topic, partitions in by_topic(found)
        ]
        return {**failed(None), "topics": topics}

    def _unregister(self, call: Call) -> Values:
        self._broker.check(call, Operation.ALTER, ResourceType.CLUSTER)
        self._broker.admin.unregister_broker(call.request.broker_id)
        return failed(None)


def _reassignments_refused(call: Call, error: StratalogError) -> Values:
    """The error for the whole and for each partition."""
    responses = [
        {
            "name": topic.name,
            "partitions": [{**partition_error(each, error), **failed(error)} for each in topic.partitions],
        }
        for topic in call.request.topics
    ]
    return {**failed(error), "responses": responses}
