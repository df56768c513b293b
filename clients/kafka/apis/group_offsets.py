"""OffsetCommit, OffsetFetch, OffsetDelete. I/O: through the broker that coordinates the group; its thread answers.

Topics may be named by id from version 10 on; groups' coordinators know names.
Source: `KafkaApis.handleOffsetCommitRequest`, `handleOffsetFetchRequest`, `handleOffsetDeleteRequest` (KIP-211,
KIP-496, KIP-709, KIP-848).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from stratalog.clients.kafka.apis.find_coordinator import ask, coordinating_face
from stratalog.clients.kafka.protocol.entities import Values, id_text
from stratalog.clients.kafka.protocol.frames import served_versions
from stratalog.clients.kafka.protocol.values import as_error, fields_of, value_of
from stratalog.clients.kafka.request.api import Api, Call, Joined, error_only
from stratalog.clients.kafka.request.broker import ServedBroker
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.group_errors import error_response
from stratalog.replication.requests.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from stratalog.storage.errors import (
    GroupIdNotFoundError,
    IllegalGenerationError,
    StratalogError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

OFFSET_COMMIT, OFFSET_FETCH, OFFSET_DELETE = 8, 9, 47
GROUP_NOT_FOUND_FROM = 9
GROUPS_FROM = 8
TOP_LEVEL_ERROR_FROM = 2
NO_OFFSET = -1


@dataclass(slots=True)
class _Named:
    """A request's topics: what is asked of the coordinator, and what is answered without it.

    ids      topic id by name, where the request named topics so
    refused  the error of each topic that is not asked for, by name, or by id when that is not known
    """

    asked: list[Any]
    ids: dict[str, Any]
    refused: list[tuple[dict[str, Any], Any, StratalogError]]


class GroupOffsets:
    """One broker's answers."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker

    def apis(self) -> Iterable[Api]:
        return [
            Api(OFFSET_COMMIT, served_versions(OFFSET_COMMIT), self._commit, _none_committed),
            Api(OFFSET_FETCH, served_versions(OFFSET_FETCH), self._fetch, _none_fetched),
            Api(OFFSET_DELETE, served_versions(OFFSET_DELETE), self._delete, error_only),
        ]

    def _sorted_out(self, call: Call, topics: Sequence[Any], *, must_exist: bool = True) -> _Named:
        """Which topics the caller may read, and which exist."""
        named = _Named([], {}, [])
        for topic in topics:
            told: dict[str, Any] = {"topic_id": topic.topic_id} if hasattr(topic, "topic_id") else {}
            try:
                name = self._broker.topic_name(id_text(topic.topic_id)) if told else topic.name
                told["name"] = name
                refusal = self._broker.refusal(call, Operation.READ, ResourceType.TOPIC, name)
                if refusal is not None:
                    raise TopicAuthorizationFailedError(str(refusal))
                if must_exist and name not in self._broker.image().topic_ids:
                    raise UnknownTopicOrPartitionError(f"topic '{name}' does not exist")
            except StratalogError as error:
                named.refused.append((told, topic, error))
                continue
            named.ids[name] = told.get("topic_id")
            named.asked.append((name, topic))
        return named

    # -- OffsetCommit ------------------------------------------------------------------------------------------

    def _commit(self, call: Call) -> None:
        self._broker.check(call, Operation.READ, ResourceType.GROUP, call.request.group_id)
        named = self._sorted_out(call, call.request.topics)
        topics = tuple(value_of(OffsetCommitRequestTopic, topic, name=name) for name, topic in named.asked)
        request = value_of(OffsetCommitRequest, call.request, topics=topics)
        if not topics:
            call.respond({"topics": _refused_topics(named)})
            return

        def values(response: Any) -> Values:
            told = [
                {
                    "name": topic.name,
                    "topic_id": named.ids[topic.name],
                    "partitions": [
                        {"partition_index": each.partition_index, "error_code": _committed_as(call, each.error)}
                        for each in topic.partitions
                    ],
                }
                for topic in response.topics
            ]
            return {"topics": [*told, *_refused_topics(named)]}

        def refused(error: StratalogError) -> Values:
            return values(error_response(request, error))

        ask(self._broker, call, CoordinatorType.GROUP, request.group_id, request, values, refused)

    # -- OffsetFetch -------------------------------------------------------------------------------------------

    def _fetch(self, call: Call) -> None:
        """Each group's coordinator is asked; a broker that is not that of one says so for that group."""
        groups = call.request.groups if call.version >= GROUPS_FROM else [call.request]
        require_stable = call.given("require_stable", False)

        def done(answers: dict[int, Values]) -> None:
            call.respond_with(lambda: _fetched(call, [answers[number] for number in range(len(groups))]))

        joined = Joined(len(groups), done)
        if not groups:
            done({})
        for number, group in enumerate(groups):
            self._fetch_group(call, group, require_stable, partial(joined.put, number))

    def _fetch_group(self, call: Call, group: Any, require_stable: bool, put: Any) -> None:
        group_id = group.group_id
        try:
            self._broker.check(call, Operation.DESCRIBE, ResourceType.GROUP, group_id)
            named = self._sorted_out(call, group.topics or (), must_exist=False)
            topics = tuple(OffsetFetchRequestTopic(name, tuple(topic.partition_indexes)) for name, topic in named.asked)
            asked = value_of(OffsetFetchRequestGroup, group, topics=None if group.topics is None else topics)
            request = OffsetFetchRequest((asked,), require_stable)

            def answer(answered: object) -> None:
                error = as_error(answered)
                response = answered if error is None else error_response(request, error)
                assert isinstance(response, OffsetFetchResponse)
                put((response.groups[0], named))

            coordinating_face(self._broker).coordinator(CoordinatorType.GROUP, group_id, request, answer)
        except StratalogError as error:
            put((OffsetFetchResponseGroup(group_id, error=error), _Named([], {}, [])))

    # -- OffsetDelete ------------------------------------------------------------------------------------------

    def _delete(self, call: Call) -> None:
        self._broker.check(call, Operation.DELETE, ResourceType.GROUP, call.request.group_id)
        named = self._sorted_out(call, call.request.topics)
        request = value_of(OffsetDeleteRequest, call.request)
        wanted = {name for name, _ in named.asked}
        request = replace(request, topics=tuple(topic for topic in request.topics if topic.name in wanted))

        def values(response: Any) -> Values:
            told = fields_of(response)
            return {**told, "topics": [*map(fields_of, response.topics), *_refused_topics(named)]}

        def refused(error: StratalogError) -> Values:
            return values(error_response(request, error))

        ask(self._broker, call, CoordinatorType.GROUP, request.group_id, request, values, refused)


def _committed_as(call: Call, error: StratalogError | None) -> StratalogError | None:
    """GROUP_ID_NOT_FOUND as older clients know it."""
    if isinstance(error, GroupIdNotFoundError) and call.version < GROUP_NOT_FOUND_FROM:
        return IllegalGenerationError(str(error))
    return error


def _refused_topics(named: _Named) -> list[Values]:
    return [
        {
            **told,
            "partitions": [{"partition_index": each.partition_index, "error_code": error} for each in topic.partitions],
        }
        for told, topic, error in named.refused
    ]


def _fetched(call: Call, answers: Sequence[Any]) -> Values:
    groups = [_group_values(group, named) for group, named in answers]
    if call.version >= GROUPS_FROM:
        return {"groups": groups}
    alone = groups[0]
    if call.version < TOP_LEVEL_ERROR_FROM and alone["error_code"] is not None:
        return _none_fetched(call, alone["error_code"])
    return {"topics": alone["topics"], "error_code": alone["error_code"]}


def _group_values(group: OffsetFetchResponseGroup, named: _Named) -> Mapping[str, Any]:
    topics = [
        {
            "name": topic.name,
            "topic_id": named.ids.get(topic.name),
            "partitions": [fields_of(each) for each in topic.partitions],
        }
        for topic in group.topics
    ]
    refused = [
        {**told, "partitions": [_no_offset(partition, error) for partition in topic.partition_indexes]}
        for told, topic, error in named.refused
    ]
    return {"group_id": group.group_id, "error_code": group.error, "topics": [*topics, *refused]}


def _no_offset(partition: int, error: StratalogError) -> Values:
    return {
        "partition_index": partition,
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": -1,
        "metadata": "",
        "error_code": error,
    }


def _topic_named(topic: Any) -> dict[str, Any]:
    return {"topic_id": topic.topic_id} if hasattr(topic, "topic_id") else {"name": topic.name}


def _none_committed(call: Call, error: StratalogError) -> Values:
    return {
        "topics": [
            {
                **_topic_named(topic),
                "partitions": [{"partition_index": p.partition_index, "error_code": error} for p in topic.partitions],
            }
            for topic in call.request.topics
        ]
    }


def _none_fetched(call: Call, error: StratalogError) -> Values:
    """Below version 2 there was no code for the whole, and from 8 on there is one for each group."""
    groups = [{"group_id": group.group_id, "error_code": error} for group in call.given("groups", ())]
    topics = [
        {"name": topic.name, "partitions": [_no_offset(p, error) for p in topic.partition_indexes]}
        for topic in (call.given("topics") or ())
    ]
    if call.version >= TOP_LEVEL_ERROR_FROM:
        topics = []
    return {"error_code": error, "groups": groups, "topics": topics}
