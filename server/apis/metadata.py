"""Metadata, DescribeTopicPartitions, DescribeCluster, DescribeQuorum: topics, partitions and brokers of the cluster.

I/O: the metadata log, for new topics.

Any broker answers, from its fold of the metadata log. The request that creates a topic is answered
UNKNOWN_TOPIC_OR_PARTITION, and so are later ones until its leaders lead; clients ask again.
Version 0 lists all replicas, also those that are down.
Source: `KafkaApis.handleTopicMetadataRequest`, `KRaftMetadataCache`, `DescribeTopicPartitionsRequestHandler` (KIP-966).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from stratalog.replication.controller.topics import check_topic_name
from stratalog.replication.internal_topics import is_internal
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.log import METADATA_PARTITION
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.server.admin.admin import NewTopic
from stratalog.server.apis.awaited_topics import AwaitedTopics
from stratalog.server.apis.new_topics import NewTopics
from stratalog.server.request.api import Api, Call, error_only, failed
from stratalog.server.request.broker import NOT_REQUESTED, ApiFamily, ServedBroker
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.layouts import EncodedPart
from stratalog.wire.messages.schema import Entity, EntityType, response_type, shape_of
from stratalog.wire.messages.values import Values, id_text

BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS = 1, 2
LISTENER_NOT_FOUND_FROM = 6
TOPIC_IDS_FROM = 12
OPERATIONS_FROM, CLUSTER_OPERATIONS_TO = 8, 10
STRICT_QUOTA_FROM = 0
"""A topic beyond the quota is not made in any version: what Kafka sends for it is a newer CreateTopics."""
ENCODED_TOPICS_MAX = 20_000
"""Number of encoded topics that are kept, each for every listener and version of the API that clients use."""


class MetadataApis(ApiFamily):
    def __init__(self, broker: ServedBroker) -> None:
        super().__init__(broker)
        self._encoded = EncodedTopics(lambda: broker.view.metadata_version)
        self._awaited = AwaitedTopics(broker.view)

    def apis(self) -> Iterable[Api]:
        return [
            Api(ApiKey.METADATA, self._metadata, _metadata_refused),
            Api(ApiKey.DESCRIBE_QUORUM, self._describe_quorum, error_only),
            Api(ApiKey.DESCRIBE_CLUSTER, self._describe_cluster),
            Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, self._describe, _descriptions_refused),
        ]

    # -- Metadata --------------------------------------------------------------------------------------------

    def _metadata(self, call: Call) -> Values:
        self._broker.image(0)
        asked = call.request.topics
        is_all = asked is None or (call.version == 0 and not asked)
        new = NewTopics(self._broker, call, STRICT_QUOTA_FROM)
        topics = self._every_topic(call) if is_all else [self._topic(call, each, new) for each in _each_once(asked)]
        image = self._broker.image()
        nodes = [self._node(call, image, broker_id) for broker_id in sorted(image.brokers)]
        values: dict[str, Any] = {
            "brokers": [node for node in nodes if node is not None],
            "cluster_id": image.cluster_id,
            "controller_id": self._controller_id(image, [node["node_id"] for node in nodes if node is not None]),
            "topics": topics,
        }
        if OPERATIONS_FROM <= call.version <= CLUSTER_OPERATIONS_TO:
            wanted = call.given("include_cluster_authorized_operations", False)
            values["cluster_authorized_operations"] = self._cluster_operations(call, wanted)
        return values

    def _node(self, call: Call, image: ClusterImage, broker_id: int) -> Values | None:
        return self._broker.node_values(image, broker_id, call.connection.listener)

    def _controller_id(self, image: ClusterImage, reachable: Sequence[int]) -> int:
        """The controller, or another broker that clients reach: any broker serves administrators, as under KRaft."""
        wanted = (image.controller_id, self._broker.broker_id, *reachable)
        return next((broker_id for broker_id in wanted if broker_id in reachable), NO_LEADER)

    def _cluster_operations(self, call: Call, wanted: bool) -> int:
        if not wanted:
            return NOT_REQUESTED
        is_refused = self._broker.refusal(call, Operation.DESCRIBE, ResourceType.CLUSTER)
        return 0 if is_refused else self._broker.allowed(call, ResourceType.CLUSTER)

    def _every_topic(self, call: Call) -> list[Values | Entity]:
        image = self._broker.image()
        names = [name for name in sorted(image.topic_ids) if self._broker.may_describe_topic(call, name)]
        return [self._known_topic(call, image, name) for name in names if not self._awaited.awaits(image, name)]

    def _topic(self, call: Call, asked: Any, new: NewTopics) -> Values | Entity:
        topic_id, name = id_text(getattr(asked, "topic_id", None)), asked.name
        if call.version < TOPIC_IDS_FROM and (name is None or topic_id is not None):
            what = "Topic name can not be null" if name is None else "Topic IDs are not supported in requests"
            raise errors.InvalidRequestError(f"{what} for version {call.version}")
        if name is None and topic_id is None:
            raise errors.InvalidRequestError("a topic has neither a name nor an id")
        try:
            if topic_id is not None:
                name = self._broker.topic_name(topic_id)
            if not self._broker.may_describe_topic(call, name):
                raise errors.TopicAuthorizationFailedError(f"not allowed to describe topic {name}")
            image = self._broker.image()
            if name not in image.topic_ids:
                image = self._created(call, name, new)
            if self._awaited.awaits(image, name):
                raise errors.UnknownTopicOrPartitionError(f"topic '{name}' was just created: its leaders begin")
            return self._known_topic(call, image, name)
        except StratalogError as error:
            shown = name if topic_id is None else None
            return {"error_code": error.as_value(), "name": shown, "topic_id": topic_id, "partitions": ()}

    def _created(self, call: Call, name: str, new: NewTopics) -> ClusterImage:
        """The metadata with a topic that is created on demand. UnknownTopicOrPartitionError where that is off, or where
        a quota or the bound of a request forbids it for now: clients ask again."""
        image = self._broker.image(0)
        if name in image.topic_ids:
            return image
        if not (call.given("allow_auto_topic_creation", True) and self._broker.config.auto_create_topics_enable):
            check_topic_name(name)
            raise errors.UnknownTopicOrPartitionError(f"topic '{name}' does not exist")
        if (refusal := new.refusal(name)) is not None:
            raise refusal
        topic = NewTopic(name)
        try:
            new.reserve(topic.partitions)
            with suppress(errors.TopicAlreadyExistsError):  # a race with another client
                new.create(topic)
        except (errors.ThrottlingQuotaExceededError, errors.PolicyViolationError) as reason:
            raise errors.UnknownTopicOrPartitionError(f"topic '{name}' was not created: {reason}") from reason
        image = self._broker.image(0)
        self._awaited.add(image.topic_ids.get(name, ""))
        return image

    def _known_topic(self, call: Call, image: ClusterImage, name: str) -> Values | Entity:
        if call.version >= OPERATIONS_FROM and call.given("include_topic_authorized_operations", False):
            values = self._topic_of(call, image, name)
            values["topic_authorized_operations"] = self._broker.allowed(call, ResourceType.TOPIC, name)
            return values
        key = name, call.connection.listener, call.version
        return self._encoded.topic(image, key, lambda: self._topic_of(call, image, name))

    def _topic_of(self, call: Call, image: ClusterImage, name: str) -> dict[str, Any]:
        states = [image.partitions[named] for named in image.partitions_of(name)]
        return _topic_values(image, name, [self._partition(call, image, state) for state in states])

    def _partition(self, call: Call, image: ClusterImage, state: PartitionRecord) -> Values:
        error: StratalogError | None = None
        leader = state.leader
        if self._node(call, image, leader) is None:
            is_known = leader in image.brokers and call.version >= LISTENER_NOT_FOUND_FROM
            kind = errors.ListenerNotFoundError if is_known else errors.LeaderNotAvailableError
            error, leader = kind(f"{state.topic_partition}: leader {leader} is not reachable"), NO_LEADER
        return {"error_code": error, **self._replicas(call, image, state), "leader_id": leader}

    def _replicas(self, call: Call, image: ClusterImage, state: PartitionRecord) -> dict[str, Any]:
        return {
            "partition_index": state.partition,
            "leader_epoch": state.leader_epoch,
            "replica_nodes": state.replicas,
            "isr_nodes": state.isr,
            "offline_replicas": [r for r in state.replicas if r in state.offline or self._node(call, image, r) is None],
        }

    # -- DescribeTopicPartitions ---------------------------------------------------------------------------------

    def _describe(self, call: Call) -> Values:
        """One page: topics in order of name, from the cursor on, until the limit; the cursor of the next page."""
        request = call.request
        start_name, start_partition = "", 0
        if request.cursor is not None:
            start_name, start_partition = request.cursor.topic_name, request.cursor.partition_index
            if start_partition < 0:
                raise errors.InvalidRequestError(f"cursor partition index {start_partition} must not be negative")
            if request.topics and start_name not in {each.name for each in request.topics}:
                raise errors.InvalidRequestError(f"the topics of the request lack that of its cursor, {start_name}")
        limit = max(1, min(request.response_partition_limit, self._broker.config.max_request_partition_size_limit))
        image = self._broker.image(0)
        asked = {each.name for each in request.topics}
        names = sorted(name for name in asked or list(image.topic_ids) if name >= start_name)
        page = _Page(start_name, start_partition, limit)
        for name in names:
            if not self._broker.may_describe_topic(call, name):
                if asked:
                    page.refused.append(_topic_error(name, errors.TopicAuthorizationFailedError("")))
            elif name not in image.topic_ids:
                allowed = self._broker.allowed(call, ResourceType.TOPIC, name)
                page.topics.append({**_topic_error(name, _unknown_topic(name)), "topic_authorized_operations": allowed})
            elif not self._add_topic(page, call, image, name):
                break
        return {"topics": [*page.topics, *page.refused], "next_cursor": page.next_cursor}

    def _add_topic(self, page: _Page, call: Call, image: ClusterImage, name: str) -> bool:
        """Put a topic's partitions on the page; False when it is full."""
        partitions = [
            self._described_partition(call, image, image.partitions[named])
            for named in page.fitting(name, image.partitions_of(name))
        ]
        if partitions or page.next_cursor is None:
            allowed = self._broker.allowed(call, ResourceType.TOPIC, name)
            page.topics.append({**_topic_values(image, name, partitions), "topic_authorized_operations": allowed})
        return page.next_cursor is None

    def _described_partition(self, call: Call, image: ClusterImage, state: PartitionRecord) -> Values:
        is_reachable = self._node(call, image, state.leader) is not None
        return {
            **self._replicas(call, image, state),
            "error_code": None,
            "leader_id": state.leader if is_reachable else NO_LEADER,
            "eligible_leader_replicas": state.elr,
            "last_known_elr": state.last_known_elr,
        }

    # -- DescribeCluster ---------------------------------------------------------------------------------------

    def _describe_cluster(self, call: Call) -> Values:
        """The brokers, without those that clients cannot reach; fenced ones if asked for (KIP-1073)."""
        endpoint_type = call.given("endpoint_type", BROKER_ENDPOINTS)
        if endpoint_type == CONTROLLER_ENDPOINTS:
            raise errors.MismatchedEndpointTypeError(
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
            )
        if endpoint_type != BROKER_ENDPOINTS:
            raise errors.UnsupportedEndpointTypeError(f"Unsupported endpoint type {endpoint_type}")
        image = self._broker.image(0)
        brokers: list[dict[str, Any]] = []
        for broker_id, broker in sorted(image.brokers.items()):
            endpoint = self._broker.endpoint_of(broker, call.connection.listener)
            if endpoint is None or (broker.fenced and not call.given("include_fenced_brokers", False)):
                continue
            where = {"host": endpoint.host, "port": endpoint.port, "rack": broker.registration.rack}
            brokers.append({"broker_id": broker_id, "is_fenced": broker.fenced, **where})
        wanted = call.request.include_cluster_authorized_operations
        return {
            "error_code": None,
            "endpoint_type": BROKER_ENDPOINTS,
            "cluster_id": image.cluster_id,
            "controller_id": self._controller_id(image, [b["broker_id"] for b in brokers if not b["is_fenced"]]),
            "brokers": brokers,
            "cluster_authorized_operations": self._cluster_operations(call, wanted),
        }

    # -- DescribeQuorum ------------------------------------------------------------------------------------------

    def _describe_quorum(self, call: Call) -> Values:
        """The one metadata log. Its controller writes it and is the only voter; the other live brokers read the same
        log from storage and are observers, which are never behind it for longer than their polls (KIP-595, KIP-836)."""
        self._broker.check(call, Operation.DESCRIBE, ResourceType.CLUSTER)
        image = self._broker.image(0)
        live = [broker_id for broker_id, broker in sorted(image.brokers.items()) if not broker.fenced]

        def values(topic: Any, asked: Any) -> Values:
            named = TopicPartition(topic.topic_name, asked.partition_index)
            if named != METADATA_PARTITION:
                unknown = errors.UnknownTopicOrPartitionError(f"{named} is not the metadata log")
                return {"partition_index": named.partition, **failed(unknown)}
            return self._quorum(image, live)

        topics = [
            {"topic_name": topic.topic_name, "partitions": [values(topic, each) for each in topic.partitions]}
            for topic in call.request.topics
        ]
        nodes = [self._quorum_node(call, image, broker_id) for broker_id in live]
        return {**failed(None), "topics": topics, "nodes": nodes}

    def _quorum(self, image: ClusterImage, live: Sequence[int]) -> Values:
        end_offset, now_ms = self._broker.view.metadata.log.log_end_offset, self._broker.view.clock.wall_ms()

        def replica(broker_id: int) -> Values:
            times = {"last_fetch_timestamp": now_ms, "last_caught_up_timestamp": now_ms}
            return {"replica_id": broker_id, "log_end_offset": end_offset, **times}

        is_led = image.controller_id in live
        error = None if is_led else errors.LeaderNotAvailableError("there is no controller")
        return {
            "partition_index": METADATA_PARTITION.partition,
            **failed(error),
            "leader_id": image.controller_id if is_led else NO_LEADER,
            "leader_epoch": image.controller_epoch,
            "high_watermark": end_offset,
            "current_voters": [replica(each) for each in live if each == image.controller_id],
            "observers": [replica(each) for each in live if each != image.controller_id],
        }

    def _quorum_node(self, call: Call, image: ClusterImage, broker_id: int) -> Values:
        node, listener = self._node(call, image, broker_id), call.connection.listener
        where = [] if node is None else [{"name": listener, "host": node["host"], "port": node["port"]}]
        return {"node_id": broker_id, "listeners": where}


class EncodedTopics:
    """Topics as bytes of Metadata responses, made once for each version of the metadata. Any thread may use it.

    made_count  how many were made so far
    """

    def __init__(self, metadata_version: Callable[[], int]) -> None:
        self.made_count = 0
        self._metadata_version = metadata_version
        self._known: tuple[int, ClusterImage | None, dict[tuple[str, str, int], Entity]] = (-1, None, {})

    def topic(self, image: ClusterImage, key: tuple[str, str, int], make: Callable[[], Values]) -> Entity:
        """The topic of `key`: name, listener, API version; `make` makes it of `image`.

        The number of the metadata is read before `make` is called: what is made while a fold goes on is dropped after
        it. So is what is made of an image that a fold has replaced by another one.
        """
        version, known = self._metadata_version(), self._known
        if known[0] != version or known[1] is not image or len(known[2]) >= ENCODED_TOPICS_MAX:
            known = self._known = (version, image, {})
        topics = known[2]
        found = topics.get(key)
        if found is None:
            self.made_count += 1
            found = topics[key] = EncodedPart(_topic_type(key[2]), make())
        return found


@cache
def _topic_type(version: int) -> EntityType:
    return next(field.part for field in shape_of(response_type(ApiKey.METADATA, version)) if field.name == "topics")


class _Page:
    """One response of DescribeTopicPartitions, with a limited number of partitions."""

    def __init__(self, start_name: str, start_partition: int, limit: int) -> None:
        self.topics: list[Values] = []
        self.refused: list[Values] = []
        self.next_cursor: Values | None = None
        self._start = (start_name, start_partition)
        self._left = limit

    def fitting(self, name: str, partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        """The topic's partitions that fit; if not all do, the next page starts behind them."""
        first = self._start[1] if name == self._start[0] else 0
        fitting = partitions[first : first + self._left]
        self._left -= len(fitting)
        if first + len(fitting) < len(partitions):
            self.next_cursor = {"topic_name": name, "partition_index": first + len(fitting)}
        return fitting


def _topic_values(image: ClusterImage, name: str, partitions: Sequence[Values]) -> dict[str, Any]:
    return {
        "error_code": None,
        "name": name,
        "topic_id": image.topic_ids.get(name),
        "is_internal": is_internal(name),
        "partitions": partitions,
    }


def _unknown_topic(name: str) -> StratalogError:
    try:
        check_topic_name(name)
    except StratalogError as error:
        return error.as_value()
    return errors.UnknownTopicOrPartitionError(f"topic '{name}' does not exist")


def _topic_error(name: str, error: StratalogError) -> Values:
    return {"error_code": error, "name": name, "is_internal": is_internal(name), "partitions": ()}


def _each_once(topics: Iterable[Any]) -> Iterable[Any]:
    """By id, else by name: an answer about one topic may be large."""
    found: dict[Any, Any] = {}
    for each in topics:
        found.setdefault(id_text(getattr(each, "topic_id", None)) or each.name, each)
    return found.values()


def _metadata_refused(call: Call, error: StratalogError) -> Values:
    """The error for each topic named; before version 13 there is no code for the whole."""
    topics = [
        {"error_code": error, "name": each.name or "", "topic_id": getattr(each, "topic_id", None)}
        for each in call.request.topics or ()
    ]
    return {"topics": topics, "error_code": error}


def _descriptions_refused(call: Call, error: StratalogError) -> Values:
    return {"topics": [{"error_code": error, "name": each.name} for each in call.request.topics]}
