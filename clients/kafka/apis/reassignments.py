"""AlterPartitionReassignments, ListPartitionReassignments, ElectLeaders.

I/O: the metadata log, through the admin client.

Source: `ControllerApis`, `ReplicationControlManager` (KIP-455, KIP-460, KIP-860).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from stratalog.clients.kafka.protocol.entities import Values
from stratalog.clients.kafka.protocol.frames import served_versions
from stratalog.clients.kafka.request.api import Api, Call, error_only, failed
from stratalog.clients.kafka.request.broker import ServedBroker
from stratalog.replication.controller.preferred_leaders import ElectionType
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.storage.errors import InvalidRequestError, StratalogError
from stratalog.storage.records import TopicPartition

ELECT_LEADERS, ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS = 43, 45, 46
_ELECTION_TYPES = {0: ElectionType.PREFERRED, 1: ElectionType.UNCLEAN}
Answers = Mapping[TopicPartition, StratalogError | None]


class Reassignments:
    """One broker's answers."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker

    def apis(self) -> Iterable[Api]:
        alter, listed = ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS
        return [
            Api(ELECT_LEADERS, served_versions(ELECT_LEADERS), self._elect, error_only, is_slow=True),
            Api(alter, served_versions(alter), self._alter, is_slow=True),
            Api(listed, served_versions(listed), self._list),
        ]

    def _alter(self, call: Call) -> Values:
        self._broker.check(call, Operation.ALTER, ResourceType.CLUSTER)
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
            {"name": topic, "partitions": [{"partition_index": tp.partition, **failed(e)} for tp, e in partitions]}
            for topic, partitions in _by_topic(answers)
        ]
        return {**failed(None), "allow_replication_factor_change": may_change, "responses": responses}

    def _list(self, call: Call) -> Values:
        """What is under way; partitions that do not exist, or do not move, are left out."""
        self._broker.check(call, Operation.DESCRIBE, ResourceType.CLUSTER)
        asked = call.request.topics
        known = self._broker.image(0).partitions
        wanted = None
        if asked is not None:
            named = (TopicPartition(topic.name, number) for topic in asked for number in topic.partition_indexes)
            wanted = [each for each in named if each in known]
        found = self._broker.admin.list_partition_reassignments(wanted)
        topics: dict[str, list[Values]] = {}
        for tp, each in sorted(found.items()):
            topics.setdefault(tp.topic, []).append(
                {
                    "partition_index": tp.partition,
                    "replicas": each.replicas,
                    "adding_replicas": each.adding,
                    "removing_replicas": each.removing,
                }
            )
        return {**failed(None), "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()]}

    def _elect(self, call: Call) -> Values:
        """For all partitions (null) only those that were elected or could not be are told of."""
        self._broker.check(call, Operation.ALTER, ResourceType.CLUSTER)
        number = call.given("election_type", 0)
        if number not in _ELECTION_TYPES:
            raise InvalidRequestError(f"Unknown election type {number}")
        asked = call.request.topic_partitions
        named = None
        if asked is not None:
            named = [TopicPartition(topic.topic, partition) for topic in asked for partition in topic.partitions]
        answers = self._broker.admin.elect_leaders(_ELECTION_TYPES[number], named)
        results = [
            {"topic": topic, "partition_result": [{"partition_id": tp.partition, **failed(e)} for tp, e in partitions]}
            for topic, partitions in _by_topic(answers)
        ]
        return {"error_code": None, "replica_election_results": results}


def _by_topic(answers: Answers) -> Iterable[tuple[str, list[tuple[TopicPartition, Any]]]]:
    for topic, group in groupby(sorted(answers.items(), key=lambda item: item[0]), key=lambda item: item[0].topic):
        yield topic, list(group)
