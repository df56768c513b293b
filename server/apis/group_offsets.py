"""OffsetCommit, OffsetFetch, OffsetDelete. I/O: through the broker that coordinates the group; its thread answers.

From version 10 on topics are named by id; coordinators know names.
Source: `KafkaApis.handleOffsetCommitRequest`, `handleOffsetFetchRequest`, `handleOffsetDeleteRequest` (KIP-211,
KIP-496, KIP-709, KIP-848).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.group_errors import error_response
from stratalog.replication.requests.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from stratalog.server.request.api import (
    Api,
    Call,
    each_partition,
    error_only,
    gather_in_turns,
    partition_error,
    refused_partitions,
    topic_named,
)
from stratalog.server.request.broker import ASIDE_COUNT, ApiFamily
from stratalog.server.request.coordinators import ask, coordinating_face
from stratalog.server.request.offset_commits import (
    commit_in_pieces,
    fetch_pieces,
    joined_fetch,
    offset_pieces,
    once_each,
)
from stratalog.storage.errors import (
    GroupIdNotFoundError,
    IllegalGenerationError,
    StratalogError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.entities import Values, id_text
from stratalog.wire.messages.values import as_error, fields_of, value_of

GROUP_NOT_FOUND_FROM = 9
GROUPS_FROM = 8
TOP_LEVEL_ERROR_FROM = 2
NO_OFFSET = -1
P = TypeVar("P", OffsetCommitRequestPartition, OffsetDeleteRequestPartition)


@dataclass(slots=True)
class _Topics:
    """A request's topics.

    allowed  name and topic of those that the coordinator is asked for
    ids      the topic id of each name, if the request has ids
    refused  the others: name or id as fields of the response, the topic, its error
    missing  the partitions of an allowed topic that do not exist, by its name
    """

    allowed: list[tuple[str, Any]] = field(default_factory=list)
    ids: dict[str, Any] = field(default_factory=dict)
    refused: list[tuple[Values, Any, StratalogError]] = field(default_factory=list)
    missing: dict[str, list[Any]] = field(default_factory=dict)

    def named(self, name: str) -> Values:
        """Name and id of a topic as fields of the response."""
        topic_id = self.ids.get(name)
        return {"name": name} if topic_id is None else {"name": name, "topic_id": topic_id}


class GroupOffsetApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        return [
            Api(ApiKey.OFFSET_COMMIT, self._commit, refused_partitions),
            Api(ApiKey.OFFSET_FETCH, self._fetch, _fetch_refused),
            Api(ApiKey.OFFSET_DELETE, self._delete, error_only),
        ]

    def _topics(
        self, call: Call, topics: Sequence[Any], operation: Operation = Operation.READ, *, must_exist: bool = True
    ) -> _Topics:
        """The topics on which the caller may do that and that exist, and the others."""
        found = _Topics()
        for topic in topics:
            named = topic_named(topic)
            try:
                name = self._broker.topic_for(call, operation, topic)
                if must_exist and name not in self._broker.image().topic_ids:
                    raise UnknownTopicOrPartitionError(f"topic '{name}' does not exist")
                found.allowed.append((name, topic))
                found.ids[name] = named.get("topic_id")
            except StratalogError as error:
                found.refused.append((named, topic, error.as_value()))
        return found

    # -- OffsetCommit ------------------------------------------------------------------------------------------

    def _commit(self, call: Call) -> None:
        self._broker.check(call, Operation.READ, ResourceType.GROUP, call.request.group_id)
        found = self._topics(call, call.request.topics)
        named = once_each(self._named(topic, name) for name, topic in found.allowed)
        known = [replace(topic, partitions=self._existing(found, topic.name, topic.partitions)) for topic in named]
        topics = tuple(topic for topic in known if topic.partitions)
        request = value_of(OffsetCommitRequest, call.request, topics=topics)
        if not topics:
            call.respond({"topics": [*_missing_topics(found, found.missing), *_refused_topics(found)]})
            return

        def values(response: Any) -> Values:
            return {"topics": _answered_topics(found, response, lambda each: _commit_error(call, each.error))}

        def refused(error: StratalogError) -> Values:
            return values(error_response(request, error))

        pieces = offset_pieces(topics)
        if len(pieces) == 1:
            ask(self._broker, call, CoordinatorType.GROUP, request.group_id, request, values, refused)
            return

        def ask_piece(piece: OffsetCommitRequest, put: Callable[[object], None]) -> None:
            coordinating_face(self._broker).coordinator(CoordinatorType.GROUP, request.group_id, piece, put)

        def done(make: Callable[[], OffsetCommitResponse]) -> None:
            self._broker.aside(call, lambda: call.respond_with(lambda: values(make())))

        commit_in_pieces([replace(request, topics=piece) for piece in pieces], ask_piece, done)

    def _named(self, topic: Any, name: str) -> OffsetCommitRequestTopic:
        """A topic of a commit, by name and id."""
        return value_of(OffsetCommitRequestTopic, topic, name=name, topic_id=self._id_of(topic, name))

    def _id_of(self, topic: Any, name: str) -> str:
        """The id in the request, else that of the topic which has the name now; "" for none."""
        given = id_text(getattr(topic, "topic_id", None))
        return given or self._broker.image().topic_ids.get(name, "")

    def _existing(self, found: _Topics, name: str, partitions: tuple[P, ...]) -> tuple[P, ...]:
        """A topic's partitions that exist; `found` gets the others."""
        known = self._broker.image().partitions
        missing = [each for each in partitions if TopicPartition(name, each.partition_index) not in known]
        if missing:
            found.missing.setdefault(name, []).extend(missing)
        return tuple(each for each in partitions if TopicPartition(name, each.partition_index) in known)

    # -- OffsetFetch -------------------------------------------------------------------------------------------

    def _fetch(self, call: Call) -> None:
        """Each group's coordinator is asked; groups with a coordinator elsewhere have an error of their own."""
        groups = call.request.groups if call.version >= GROUPS_FROM else [call.request]

        def ask_one(number: int, put: Callable[[Any], None]) -> None:
            self._fetch_group(call, groups[number], put)

        def group_values(number: int, answer: Any) -> Values:
            error = as_error(answer)
            if error is None:
                return _group_values(*answer)
            return _group_values(OffsetFetchResponseGroup(groups[number].group_id, error=error), _Topics())

        def done(answers: dict[int, Any]) -> None:
            def make() -> Values:
                return _fetched(call, [group_values(*each) for each in sorted(answers.items())])

            parts = len(answers)
            if parts < ASIDE_COUNT:
                parts += sum(map(_partition_count, answers.values()))
            self._broker.aside(call, lambda: call.respond_with(make), parts)

        gather_in_turns(range(len(groups)), ask_one, done, elsewhere=call.aside)

    def _fetch_group(self, call: Call, group: Any, put: Callable[[Any], None]) -> None:
        group_id = group.group_id
        self._broker.check(call, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        found = self._topics(call, group.topics or (), Operation.DESCRIBE, must_exist=False)
        visible, require_stable = self._broker.visible_topics(call), call.given("require_stable", False)
        wanted = tuple(
            OffsetFetchRequestTopic(name, topic.partition_indexes, self._id_of(topic, name))
            for name, topic in found.allowed
        )
        pieces: Sequence[Sequence[Any] | None] = [None] if group.topics is None else fetch_pieces(wanted)
        requests = [
            OffsetFetchRequest((value_of(OffsetFetchRequestGroup, group, topics=piece),), require_stable)
            for piece in pieces
        ]

        def ask_piece(number: int, put_piece: Callable[[Any], None]) -> None:
            coordinating_face(self._broker).coordinator(CoordinatorType.GROUP, group_id, requests[number], put_piece)

        def group_of(number: int, answered: Any) -> OffsetFetchResponseGroup:
            error = as_error(answered)
            response: OffsetFetchResponse = answered if error is None else error_response(requests[number], error)
            return response.groups[0]

        def answer(answers: dict[int, Any]) -> None:
            committed = joined_fetch([group_of(*each) for each in sorted(answers.items())])
            if group.topics is None:
                ids = self._broker.view.image.topic_ids
                seen = tuple(each for each in committed.topics if visible is None or visible.has(each.name))
                found.ids = {each.name: ids[each.name] for each in seen if each.name in ids}
                committed = replace(committed, topics=seen)
            put((committed, found))

        gather_in_turns(range(len(requests)), ask_piece, answer, at_a_time=1, elsewhere=call.aside)

    # -- OffsetDelete ------------------------------------------------------------------------------------------

    def _delete(self, call: Call) -> None:
        self._broker.check(call, Operation.DELETE, ResourceType.GROUP, call.request.group_id)
        found = self._topics(call, call.request.topics)
        request = value_of(OffsetDeleteRequest, call.request)
        allowed = [topic for topic in request.topics if topic.name in found.ids]
        known = [replace(topic, partitions=self._existing(found, topic.name, topic.partitions)) for topic in allowed]
        request = replace(request, topics=tuple(topic for topic in known if topic.partitions))

        def values(response: Any) -> Values:
            return {**fields_of(response), "topics": _answered_topics(found, response, lambda each: each.error)}

        def refused(error: StratalogError) -> Values:
            return values(error_response(request, error))

        ask(self._broker, call, CoordinatorType.GROUP, request.group_id, request, values, refused)


def _answered_topics(found: _Topics, response: Any, error_of: Callable[[Any], StratalogError | None]) -> list[Values]:
    """The coordinator's topics, each with its partitions that do not exist; then topics without any; those refused."""
    answered = [
        {
            **found.named(topic.name),
            "partitions": [
                *(partition_error(each, error_of(each)) for each in topic.partitions),
                *_missing_partitions(found, topic.name),
            ],
        }
        for topic in response.topics
    ]
    alone = found.missing.keys() - {topic.name for topic in response.topics}
    return [*answered, *_missing_topics(found, sorted(alone)), *_refused_topics(found)]


def _commit_error(call: Call, error: StratalogError | None) -> StratalogError | None:
    """The error as the client knows it: GROUP_ID_NOT_FOUND is ILLEGAL_GENERATION for older ones."""
    if isinstance(error, GroupIdNotFoundError) and call.version < GROUP_NOT_FOUND_FROM:
        return IllegalGenerationError(str(error))
    return error


def _refused_topics(found: _Topics) -> list[Values]:
    return [
        {**named, "partitions": [partition_error(each, error) for each in topic.partitions]}
        for named, topic, error in found.refused
    ]


def _missing_topics(found: _Topics, names: Iterable[str]) -> list[Values]:
    return [{**found.named(name), "partitions": _missing_partitions(found, name)} for name in names]


def _missing_partitions(found: _Topics, name: str) -> list[Values]:
    error = UnknownTopicOrPartitionError(f"topic '{name}' does not have this partition")
    return [partition_error(each, error) for each in found.missing.get(name, ())]


def _fetched(call: Call, groups: Sequence[Values]) -> Values:
    if call.version >= GROUPS_FROM:
        return {"groups": groups}
    alone = groups[0]
    if call.version < TOP_LEVEL_ERROR_FROM and alone["error_code"] is not None:
        return _fetch_refused(call, alone["error_code"])
    return {"topics": alone["topics"], "error_code": alone["error_code"]}


def _partition_count(answer: Any) -> int:
    """Of a group's answer that is no error."""
    return 0 if isinstance(answer, StratalogError) else sum(len(topic.partitions) for topic in answer[0].topics)


def _group_values(group: OffsetFetchResponseGroup, found: _Topics) -> Values:
    topics = [
        {**found.named(topic.name), "partitions": [fields_of(each) for each in topic.partitions]}
        for topic in group.topics
    ]
    refused = [
        {**named, "partitions": [_no_offset(partition, error) for partition in topic.partition_indexes]}
        for named, topic, error in found.refused
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


def _fetch_refused(call: Call, error: StratalogError) -> Values:
    """Below version 2 there is no code for the whole; from 8 on there is one for each group."""
    groups = [{"group_id": group.group_id, "error_code": error} for group in call.given("groups", ())]
    topics = call.given("topics") if call.version < TOP_LEVEL_ERROR_FROM else ()
    return {
        "error_code": error,
        "groups": groups,
        "topics": each_partition(topics or (), lambda _topic, each: _no_offset(each, error), "partition_indexes"),
    }
