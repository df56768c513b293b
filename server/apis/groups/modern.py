"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: modern groups, of KIP-848.

I/O: through the broker that coordinates the group; its thread answers.
Source: `KafkaApis.handleConsumerGroupHeartbeat`, `handleConsumerGroupDescribe` (KIP-848, KIP-1082).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.requests.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.server.request.api import Api, Call, failed
from stratalog.server.request.broker import NOT_REQUESTED, ApiFamily
from stratalog.server.request.coordinators import Split, ask, ask_each, refused_whole
from stratalog.storage.errors import InvalidRequestError, StratalogError, TopicAuthorizationFailedError
from stratalog.wire.api_keys import ApiKey

OWN_MEMBER_ID_FROM = 1
HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


class ModernGroupApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        return [
            Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, self._heartbeat, is_quick=True),
            Api(ApiKey.CONSUMER_GROUP_DESCRIBE, self._describe, refused_whole),
        ]

    def _heartbeat(self, call: Call) -> None:
        request = replace(
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
        ask(self._broker, call, CoordinatorType.GROUP, request.group_id, request, lambda response: response, failed)

    def _describe(self, call: Call) -> None:
        wants_operations = call.request.include_authorized_operations
        visible = self._broker.visible_topics(call)

        def request(group_id: str) -> ConsumerGroupDescribeRequest:
            return ConsumerGroupDescribeRequest((group_id,))

        def described(group_id: str, response: ConsumerGroupDescribeResponse) -> DescribedConsumerGroup:
            (found,) = response.groups
            topics = _topics_of(found)
            if visible is not None and visible(topics) != topics:
                return _group_error(group_id, TopicAuthorizationFailedError(HIDDEN_TOPICS))
            is_asked = wants_operations and found.error is None
            allowed = self._broker.allowed(call, ResourceType.GROUP, group_id) if is_asked else NOT_REQUESTED
            return replace(found, authorized_operations=allowed)

        split = Split(
            CoordinatorType.GROUP, Operation.DESCRIBE, request, described, _group_error, ConsumerGroupDescribeResponse
        )
        ask_each(self._broker, call, call.request.group_ids, split)


def _topics_of(group: DescribedConsumerGroup) -> frozenset[str]:
    assigned = (
        topic
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    )
    return frozenset(topic.topic_name for topic in assigned if topic.topic_name)


def _group_error(group_id: str, error: StratalogError) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(group_id, error=error)
