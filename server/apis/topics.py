"""CreateTopics, DeleteTopics, CreatePartitions. I/O: the metadata log, through the admin client.

Any broker decides and commits, so a client need not find the controller. The answer follows the commit; the leaders
start a moment later.
Source: `ControllerApis`, `ReplicationControlManager` (KIP-4, KIP-195, KIP-464, KIP-516).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from stratalog.replication.controller.topics import check_new_partitions
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.server.admin.admin import NewTopic
from stratalog.server.admin.configs import topic_configs
from stratalog.server.apis.new_topics import NewTopics
from stratalog.server.request.api import SOURCE_CODES, Api, Call, failed, refused_each, repeated
from stratalog.server.request.broker import ApiFamily, attempted
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.values import Values, id_text

DELETION_DISABLED_FROM = 3
STRICT_QUOTA_FROM = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
"""The first versions whose clients know THROTTLING_QUOTA_EXCEEDED."""


class TopicApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        growth_refused = refused_each("results", "topics", _topic_error)
        return [
            Api(
                ApiKey.CREATE_TOPICS, self._create_topics, refused_each("topics", "topics", _topic_error), is_slow=True
            ),
            Api(ApiKey.DELETE_TOPICS, self._delete_topics, _deletion_refused, is_slow=True),
            Api(ApiKey.CREATE_PARTITIONS, self._create_partitions, growth_refused, is_slow=True),
        ]

    # -- CreateTopics ----------------------------------------------------------------------------------------

    def _create_topics(self, call: Call) -> Values:
        new = NewTopics(self._broker, call, STRICT_QUOTA_FROM[ApiKey.CREATE_TOPICS])
        for topic in call.request.topics:
            if new.refusal(topic.name) is None:
                new.reserve(topic.num_partitions, len(topic.assignments))
        return {"topics": _each_topic(call, partial(self._create, call, new))}

    def _create(self, call: Call, new: NewTopics, topic: Any) -> Values:
        name = topic.name
        if (refusal := new.refusal(name)) is not None:
            raise refusal
        call.check_time()
        if nulls := [each.name for each in topic.configs if each.value is None]:
            raise errors.InvalidConfigError(f"Null value not supported for topic configs: {','.join(nulls)}")
        configs = {each.name: each.value for each in topic.configs}
        only = call.request.validate_only
        topic_id = new.create(
            NewTopic(name, topic.num_partitions, topic.replication_factor, configs, _assignment(topic)),
            validate_only=only,
        )
        if only:
            return {"name": name, **failed(None)}
        return {"name": name, **failed(None), "topic_id": topic_id, **self._created(call, name)}

    def _created(self, call: Call, name: str) -> Values:
        """A new topic's partitions and configs (KIP-525), unless the caller may not describe configs."""
        refusal = self._broker.refusal(call, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name)
        if refusal is not None:
            return {"topic_config_error_code": refusal.code, "configs": None}
        image = self._broker.image(0)
        partitions = image.partitions_of(name)
        return {
            "num_partitions": len(partitions),
            "replication_factor": len(image.partitions[partitions[0]].replicas) if partitions else -1,
            "configs": [
                {"name": each.name, "value": each.value, "config_source": SOURCE_CODES[each.source]}
                for each in topic_configs(image, name)
            ],
        }

    # -- DeleteTopics ----------------------------------------------------------------------------------------

    def _delete_topics(self, call: Call) -> Values:
        if self._broker.image(0).cluster_config("delete.topic.enable", "true") != "true":
            if call.version < DELETION_DISABLED_FROM:
                raise errors.InvalidRequestError("Topic deletion is disabled.")
            raise errors.TopicDeletionDisabledError("Topic deletion is disabled.")
        asked = _names_and_ids(call)
        twice = repeated(asked)
        deleted: set[str] = set()
        return {
            "responses": [
                attempted(partial(self._delete, call, *named, named in twice, deleted), partial(_id_error, *named))
                for named in dict.fromkeys(asked)
            ]
        }

    def _delete(self, call: Call, name: str | None, topic_id: str | None, is_twice: bool, deleted: set[str]) -> Values:
        if is_twice:
            raise errors.InvalidRequestError(f"Duplicate topic {'id' if name is None else 'name'}.")
        if (name is None) == (topic_id is None):
            what = "Neither topic name nor id were specified."
            raise errors.InvalidRequestError(
                what if name is None else "You may not specify both topic name and topic id."
            )
        call.check_time()
        is_by_id = name is None
        wanted = self._broker.topic_name(topic_id) if name is None else name
        if wanted in deleted:
            raise errors.InvalidRequestError("The provided topic name maps to an ID that was already supplied.")
        hidden = self._broker.refusal(call, Operation.DESCRIBE, ResourceType.TOPIC, wanted)
        refusal = self._broker.refusal(call, Operation.DELETE, ResourceType.TOPIC, wanted)
        if hidden is not None or refusal is not None:
            error = errors.TopicAuthorizationFailedError("Authorization failed.")
            return {"name": None if is_by_id and hidden else wanted, "topic_id": topic_id, **failed(error)}
        found = self._broker.image(0).topic_ids.get(wanted)
        if is_by_id and found != topic_id:
            raise errors.UnknownTopicIdError("This server does not host this topic ID.")
        count = len(self._broker.image().partitions_of(wanted))
        call.mutates(count, strict_from=STRICT_QUOTA_FROM[ApiKey.DELETE_TOPICS])
        self._broker.admin.delete_topics([wanted], {wanted: found} if is_by_id and found else {})
        deleted.add(wanted)
        return {"name": wanted, "topic_id": found, **failed(None)}

    # -- CreatePartitions --------------------------------------------------------------------------------------

    def _create_partitions(self, call: Call) -> Values:
        refusal = partial(self._broker.refusal, call, Operation.ALTER, ResourceType.TOPIC)
        check_new_partitions(sum(self._added(each) for each in call.request.topics if refusal(each.name) is None))
        return {"results": _each_topic(call, partial(self._grow, call))}

    def _grow(self, call: Call, topic: Any) -> Values:
        self._broker.check(call, Operation.ALTER, ResourceType.TOPIC, topic.name)
        call.check_time()
        assignments = None if topic.assignments is None else [each.broker_ids for each in topic.assignments]
        only = call.request.validate_only
        call.mutates(self._added(topic), strict_from=STRICT_QUOTA_FROM[ApiKey.CREATE_PARTITIONS])
        self._broker.admin.create_partitions(topic.name, topic.count, assignments, wait=False, validate_only=only)
        return {"name": topic.name, **failed(None)}

    def _added(self, topic: Any) -> int:
        known = len(self._broker.image().partitions_of(topic.name))
        return max(0, int(topic.count) - known)


def _each_topic(call: Call, answer: Callable[[Any], Values]) -> list[Values]:
    """The answers for the topics of a request, by name; a name that is there twice is refused."""
    topics = {each.name: each for each in call.request.topics}
    twice = repeated(each.name for each in call.request.topics)

    def attempt(topic: Any) -> Values:
        if topic.name in twice:
            raise errors.InvalidRequestError("Duplicate topic name.")
        return answer(topic)

    return [attempted(partial(attempt, topic), partial(_topic_error, topic)) for topic in topics.values()]


def _assignment(topic: Any) -> dict[int, tuple[int, ...]] | None:
    if not topic.assignments:
        return None
    twice = repeated(each.partition_index for each in topic.assignments)
    if twice:
        raise errors.InvalidReplicaAssignmentError(
            f"Found multiple manual partition assignments for partition {min(twice)}"
        )
    return {each.partition_index: each.broker_ids for each in topic.assignments}


def _names_and_ids(call: Call) -> list[tuple[str | None, str | None]]:
    """The topics of a DeleteTopics request; since version 6 they may be named by id."""
    named = [(each.name, id_text(each.topic_id)) for each in call.given("topics", ())]
    return named + [(name, None) for name in call.given("topic_names", ())]


def _topic_error(topic: Any, error: StratalogError) -> Values:
    return {"name": topic.name, **failed(error)}


def _id_error(name: str | None, topic_id: str | None, error: StratalogError) -> Values:
    return {"name": name, "topic_id": topic_id, **failed(error)}


def _deletion_refused(call: Call, error: StratalogError) -> Values:
    return {"responses": [_id_error(*each, error) for each in _names_and_ids(call)]}
