"""OffsetCommit, OffsetFetch, OffsetDelete. I/O: through the broker that coordinates the group; its thread answers.

From version 10 on topics are named by id; coordinators know names.
Source: `KafkaApis.handleOffsetCommitRequest`, `handleOffsetFetchRequest`, `handleOffsetDeleteRequest` (KIP-211,
KIP-496, KIP-709, KIP-848).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequestPartition,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from stratalog.replication.requests.messages import error_response
from stratalog.server.request.api import Api, Call, as_error, error_only, gather_in_turns
from stratalog.server.request.broker import ASIDE_COUNT, ApiFamily
from stratalog.server.request.coordinators import ask, coordinating_face, refused_whole
from stratalog.server.request.offset_commits import (
    commit_in_pieces,
    fetch_pieces,
    joined_fetch,
    offset_pieces,
    once_each,
)
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.values import id_text

GROUP_NOT_FOUND_FROM = 9
GROUPS_FROM = 8
TOP_LEVEL_ERROR_FROM = 2
P = TypeVar("P", OffsetCommitRequestPartition, OffsetDeleteRequestPartition)


@dataclass(slots=True)
class _Topics:
    """A request's topics.

    allowed  name and topic of those that the coordinator is asked for
    ids      the topic id of each name in the response, "" where the request has none
    refused  the others, each with its error
    missing  the partitions of an allowed topic that do not exist, by its name
    """

    allowed: list[tuple[str, Any]] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    refused: list[tuple[Any, StratalogError]] = field(default_factory=list)
    missing: dict[str, list[Any]] = field(default_factory=dict)


class GroupOffsetApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        return [
            Api(ApiKey.OFFSET_COMMIT, self._commit, refused_whole),
            Api(ApiKey.OFFSET_FETCH, self._fetch, _fetch_refused),
            Api(ApiKey.OFFSET_DELETE, self._delete, error_only),
        ]

    def _topics(
        self, call: Call, topics: Sequence[Any], operation: Operation = Operation.READ, *, must_exist: bool = True
    ) -> _Topics:
        """The topics on which the caller may do that and that exist, and the others."""
        found = _Topics()
        for topic in topics:
            try:
                name = self._broker.topic_for(call, operation, topic)
                if must_exist and name not in self._broker.image().topic_ids:
                    raise errors.UnknownTopicOrPartitionError(f"topic '{name}' does not exist")
                found.allowed.append((name, topic))
                found.ids[name] = getattr(topic, "topic_id", "")
            except StratalogError as error:
                found.refused.append((topic, error.as_value()))
        return found

    # -- OffsetCommit ------------------------------------------------------------------------------------------

    def _commit(self, call: Call) -> None:
        self._broker.check(call, Operation.READ, ResourceType.GROUP, call.request.group_id)
        found = self._topics(call, call.request.topics)
        named = once_each(self._named(topic, name) for name, topic in found.allowed)
        known = [replace(topic, partitions=self._existing(found, topic.name, topic.partitions)) for topic in named]
        topics = tuple(topic for topic in known if topic.partitions)
        request: OffsetCommitRequest = replace(call.request, topics=topics)
        if not topics:
            call.respond(OffsetCommitResponse((*_missing_topics(found, found.missing), *_refused_topics(found))))
            return

        def body(response: OffsetCommitResponse) -> OffsetCommitResponse:
            return OffsetCommitResponse(_answered_topics(found, response.topics, partial(_known_to, call)))

        def refused(error: StratalogError) -> OffsetCommitResponse:
            return body(error_response(request, error))

        pieces = offset_pieces(topics)
        if len(pieces) == 1:
            ask(self._broker, call, CoordinatorType.GROUP, request.group_id, request, body, refused)
            return

        def ask_piece(piece: OffsetCommitRequest, put: Callable[[object], None]) -> None:
            coordinating_face(self._broker).coordinator(CoordinatorType.GROUP, request.group_id, piece, put)

        def done(make: Callable[[], OffsetCommitResponse]) -> None:
            self._broker.aside(call, lambda: call.respond_with(lambda: body(make())))

        commit_in_pieces([replace(request, topics=piece) for piece in pieces], ask_piece, done)

    def _named(self, topic: Any, name: str) -> OffsetCommitRequestTopic:
        """A topic of a commit, by name and id."""
        named: OffsetCommitRequestTopic = replace(topic, name=name, topic_id=self._id_of(topic, name))
        return named

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
        groups = _groups(call)

        def ask_one(number: int, put: Callable[[Any], None]) -> None:
            self._fetch_group(call, groups[number], put)

        def answered(number: int, answer: Any) -> OffsetFetchResponseGroup:
            error = as_error(answer)
            if error is None:
                return _with_refused(*answer)
            return OffsetFetchResponseGroup(groups[number].group_id, error=error)

        def done(answers: dict[int, Any]) -> None:
            def make() -> OffsetFetchResponse:
                return _fetched(call, tuple(answered(*each) for each in sorted(answers.items())))

            parts = len(answers)
            if parts < ASIDE_COUNT:
                parts += sum(map(_partition_count, answers.values()))
            self._broker.aside(call, lambda: call.respond_with(make), parts)

        gather_in_turns(range(len(groups)), ask_one, done, elsewhere=call.aside)

    def _fetch_group(self, call: Call, group: OffsetFetchRequestGroup, put: Callable[[Any], None]) -> None:
        group_id = group.group_id
        self._broker.check(call, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        found = self._topics(call, group.topics or (), Operation.DESCRIBE, must_exist=False)
        visible = self._broker.visible_topics(call)
        wanted = tuple(
            OffsetFetchRequestTopic(name, topic.partition_indexes, self._id_of(topic, name))
            for name, topic in found.allowed
        )
        pieces: Sequence[tuple[OffsetFetchRequestTopic, ...] | None] = (
            [None] if group.topics is None else fetch_pieces(wanted)
        )
        requests = [
            OffsetFetchRequest((replace(group, topics=piece),), call.request.require_stable) for piece in pieces
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
        allowed = [topic for topic in call.request.topics if topic.name in found.ids]
        known = [replace(topic, partitions=self._existing(found, topic.name, topic.partitions)) for topic in allowed]
        request = replace(call.request, topics=tuple(topic for topic in known if topic.partitions))

        def body(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
            return replace(response, topics=_answered_topics(found, response.topics, lambda each: each))

        def refused(error: StratalogError) -> OffsetDeleteResponse:
            return body(error_response(request, error))

        ask(self._broker, call, CoordinatorType.GROUP, request.group_id, request, body, refused)


def _answered_topics(
    found: _Topics,
    topics: Sequence[OffsetCommitResponseTopic],
    known: Callable[[OffsetCommitResponsePartition], OffsetCommitResponsePartition],
) -> tuple[OffsetCommitResponseTopic, ...]:
    """The coordinator's topics, each with its partitions that do not exist; then topics without any; those refused."""
    answered = (
        OffsetCommitResponseTopic(
            topic.name,
            (*map(known, topic.partitions), *_missing_partitions(found, topic.name)),
            found.ids.get(topic.name, ""),
        )
        for topic in topics
    )
    alone = found.missing.keys() - {topic.name for topic in topics}
    return (*answered, *_missing_topics(found, sorted(alone)), *_refused_topics(found))


def _known_to(call: Call, partition: OffsetCommitResponsePartition) -> OffsetCommitResponsePartition:
    """The error as the client knows it: GROUP_ID_NOT_FOUND is ILLEGAL_GENERATION for older ones."""
    if isinstance(partition.error, errors.GroupIdNotFoundError) and call.version < GROUP_NOT_FOUND_FROM:
        return replace(partition, error=errors.IllegalGenerationError(str(partition.error)))
    return partition


def _refused_topics(found: _Topics) -> list[OffsetCommitResponseTopic]:
    return [
        OffsetCommitResponseTopic(topic.name, _errors(topic.partitions, error), getattr(topic, "topic_id", ""))
        for topic, error in found.refused
    ]


def _missing_topics(found: _Topics, names: Iterable[str]) -> list[OffsetCommitResponseTopic]:
    return [
        OffsetCommitResponseTopic(name, _missing_partitions(found, name), found.ids.get(name, "")) for name in names
    ]


def _missing_partitions(found: _Topics, name: str) -> tuple[OffsetCommitResponsePartition, ...]:
    error = errors.UnknownTopicOrPartitionError(f"topic '{name}' does not have this partition")
    return _errors(found.missing.get(name, ()), error)


def _errors(partitions: Iterable[Any], error: StratalogError) -> tuple[OffsetCommitResponsePartition, ...]:
    return tuple(OffsetCommitResponsePartition(each.partition_index, error) for each in partitions)


def _groups(call: Call) -> tuple[OffsetFetchRequestGroup, ...]:
    request: OffsetFetchRequest = call.request
    if call.version >= GROUPS_FROM:
        return request.groups
    return (OffsetFetchRequestGroup(request.group_id, request.topics),)


def _fetched(call: Call, groups: tuple[OffsetFetchResponseGroup, ...]) -> OffsetFetchResponse:
    if call.version >= GROUPS_FROM:
        return OffsetFetchResponse(groups)
    (alone,) = groups
    if call.version < TOP_LEVEL_ERROR_FROM and alone.error is not None:
        return _fetch_refused(call, alone.error)
    return OffsetFetchResponse(topics=alone.topics, error=alone.error)


def _partition_count(answer: Any) -> int:
    """Of a group's answer that is no error."""
    return 0 if isinstance(answer, StratalogError) else sum(len(topic.partitions) for topic in answer[0].topics)


def _with_refused(group: OffsetFetchResponseGroup, found: _Topics) -> OffsetFetchResponseGroup:
    """The coordinator's answer, with topic ids, and with the topics that it was not asked for."""
    answered = (replace(topic, topic_id=found.ids.get(topic.name, "")) for topic in group.topics)
    refused = (_no_offsets(topic, error) for topic, error in found.refused)
    return replace(group, topics=(*answered, *refused))


def _no_offsets(topic: OffsetFetchRequestTopic, error: StratalogError) -> OffsetFetchResponseTopic:
    partitions = tuple(OffsetFetchResponsePartition(each, error=error) for each in topic.partition_indexes)
    return OffsetFetchResponseTopic(topic.name, partitions, topic.topic_id)


def _fetch_refused(call: Call, error: StratalogError) -> OffsetFetchResponse:
    """Below version 2 there is no code for the whole; from 8 on there is one for each group."""
    request: OffsetFetchRequest = call.request
    groups = tuple(OffsetFetchResponseGroup(group.group_id, error=error) for group in request.groups)
    topics = (request.topics or ()) if call.version < TOP_LEVEL_ERROR_FROM else ()
    return OffsetFetchResponse(groups, tuple(_no_offsets(topic, error) for topic in topics), error)
