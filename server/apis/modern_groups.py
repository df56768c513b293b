"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: modern groups, of KIP-848.

I/O: through the broker that coordinates the group; its thread answers.
Source: `KafkaApis.handleConsumerGroupHeartbeat`, `handleConsumerGroupDescribe` (KIP-848, KIP-1082).
"""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.requests.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
    MemberDescription,
    TopicPartitions,
)
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.server.request.api import Api, Call, failed, refused_each
from stratalog.server.request.broker import NOT_REQUESTED, ApiFamily
from stratalog.server.request.coordinators import Split, ask, ask_each
from stratalog.storage.errors import InvalidRequestError, StratalogError, TopicAuthorizationFailedError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.entities import Values
from stratalog.wire.messages.values import fields_of, value_of

OWN_MEMBER_ID_FROM = 1
HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


class ModernGroupApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        return [
            Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, self._heartbeat, is_quick=True),
            Api(ApiKey.CONSUMER_GROUP_DESCRIBE, self._describe, refused_each("groups", "group_ids", _group_error)),
        ]

    def _heartbeat(self, call: Call) -> None:
        request = value_of(
            ConsumerGroupHeartbeatRequest,
            call.request,
            client_id=call.client_id,
            client_host=call.connection.principal.host,
            generates_member_id=call.version >= OWN_MEMBER_ID_FROM,
            visible=self._broker.visible_topics(call),
        )
        self._broker.check(call, Operation.READ, ResourceType.GROUP, request.group_id)
        if not request.group_id:
            raise InvalidRequestError("GroupId can't be empty.")
        for topic in request.subscribed_topic_names or ():
            self._broker.check(call, Operation.DESCRIBE, ResourceType.TOPIC, topic)
        ask(self._broker, call, CoordinatorType.GROUP, request.group_id, request, _heartbeat_values, failed)

    def _describe(self, call: Call) -> None:
        wants_operations = call.request.include_authorized_operations
        visible = self._broker.visible_topics(call)

        def request(group_id: str) -> ConsumerGroupDescribeRequest:
            return ConsumerGroupDescribeRequest((group_id,))

        def values(group_id: str, response: ConsumerGroupDescribeResponse) -> Values:
            (found,) = response.groups
            topics = _topics_of(found)
            if visible is not None and visible(topics) != topics:
                return _group_error(group_id, TopicAuthorizationFailedError(HIDDEN_TOPICS))
            is_asked = wants_operations and found.error is None
            allowed = self._broker.allowed(call, ResourceType.GROUP, group_id) if is_asked else NOT_REQUESTED
            described = fields_of(found, {"members": lambda members: [_member_values(each) for each in members]})
            return {**described, **failed(found.error), "authorized_operations": allowed}

        split = Split(CoordinatorType.GROUP, Operation.DESCRIBE, request, values, _group_error)
        ask_each(self._broker, call, call.request.group_ids, split, "groups")


def _heartbeat_values(response: ConsumerGroupHeartbeatResponse) -> Values:
    def assignment(topics: tuple[TopicPartitions, ...] | None) -> Values | None:
        if topics is None:
            return None
        return {"topic_partitions": [{"topic_id": t.topic_id, "partitions": t.partitions} for t in topics]}

    return {**fields_of(response, {"assignment": assignment}), **failed(response.error)}


def _member_values(member: MemberDescription) -> Values:
    def assignment(topics: tuple[TopicPartitions, ...]) -> Values:
        return {"topic_partitions": [fields_of(topic) for topic in topics]}

    return fields_of(member, {"assignment": assignment, "target_assignment": assignment})


def _topics_of(group: DescribedConsumerGroup) -> frozenset[str]:
    assigned = (each for m in group.members for each in (*m.assignment, *m.target_assignment))
    return frozenset(topic.topic_name for topic in assigned if topic.topic_name)


def _group_error(group_id: str, error: StratalogError) -> Values:
    return {"group_id": group_id, **failed(error)}
