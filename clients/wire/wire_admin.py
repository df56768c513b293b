"""The admin client of a cluster that is known by its brokers' addresses: `clients.admin.port.ClusterAdmin`.

I/O: requests to brokers. Any broker takes them; log directories and brokers' own configs are asked of each.
Source: Kafka's `KafkaAdminClient`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from stratalog.clients.admin.record_deletion import RecordDeletion
from stratalog.clients.wire.access import (
    alter_quota_message,
    alter_scram_message,
    binding_of,
    create_acls_message,
    delete_acls_message,
    describe_acls_message,
    describe_quotas_message,
    describe_scram_message,
    described_acls,
    described_quotas,
    described_scram,
)
from stratalog.clients.wire.cluster_image import described_partitions
from stratalog.clients.wire.configs import (
    BROKER,
    GROUP,
    TOPIC,
    alter_message,
    configs_of,
    describe_message,
    list_groups_message,
    of_all_brokers,
)
from stratalog.clients.wire.view import WireView
from stratalog.replication.controller import topics as topic_rules
from stratalog.replication.controller.election.preferred_leaders import Answers, ElectionType
from stratalog.replication.controller.reassignment import PartitionReassignment
from stratalog.replication.controller.topic_deletion import TopicDeletion
from stratalog.replication.follower.quota import FOLLOWER_REPLICAS, LEADER_REPLICAS, Move, throttled_replicas
from stratalog.replication.metadata.acls import AclBinding, AclFilter
from stratalog.replication.metadata.client_quotas import QuotaEntity, QuotaMatch, Quotas
from stratalog.replication.metadata.configs import FOLLOWER_RATE, LEADER_RATE
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.metadata.scram import ScramDeletion, ScramDescription, ScramUpsertion
from stratalog.replication.requests.delete_records import DeletedRecords
from stratalog.server.admin.admin import BrokerDescription, ClusterDescription, NewTopic, TopicDescription
from stratalog.server.admin.configs import DEFAULT_CONFIG, DYNAMIC_TOPIC_CONFIG, ConfigInForce
from stratalog.server.admin.log_dirs import LogDirDescription, ReplicaInfo
from stratalog.server.admin.reassignment import moves_of_replicas
from stratalog.storage import errors
from stratalog.storage.config_def import spelled
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import Message
from stratalog.wire.messages.layouts import error_of
from stratalog.wire.messages.schema import Entity

CREATE_TOPICS_VERSION, DELETE_TOPICS_VERSION, CREATE_PARTITIONS_VERSION = 7, 6, 3
DESCRIBE_TOPICS_VERSION, DESCRIBE_LOG_DIRS_VERSION, ELECT_LEADERS_VERSION = 0, 4, 2
ALTER_REASSIGNMENTS_VERSION, LIST_REASSIGNMENTS_VERSION = 1, 0
PARTITIONS_OF_A_PAGE = 2_000
"""The number of partitions in one answer of DescribeTopicPartitions; Kafka's default."""
_ELECTION_CODES = {ElectionType.PREFERRED: 0, ElectionType.UNCLEAN: 1}


class WireAdmin:
    """Calls block until brokers answer. Errors are those of the admin client of storage."""

    def __init__(self, view: WireView) -> None:
        self._view = view
        self._cluster = view.cluster

    def _call(self, values: Mapping[str, Any], api_key: ApiKey, version: int) -> Entity:
        return self._answer(Message({"timeout": self._view.timeout_ms, **values}, api_key, version))

    def _answer(self, message: Message) -> Entity:
        """The answer of any broker. Raises the error of the whole, if it has one."""
        answer = self._cluster.call(message, timeout_ms=self._view.timeout_ms)
        _raise(answer)
        return answer

    # -- topics ------------------------------------------------------------------------------------------------

    def list_topics(self) -> list[str]:
        """All topics by name."""
        return self._view.topics()

    def create_topics(self, new_topics: Iterable[NewTopic], *, wait: bool = True) -> None:
        """Create topics, and wait until their leaders have started. Every one is tried, then the first error raised."""
        asked = [_new_topic(each) for each in new_topics]
        answer = self._call({"topics": asked}, ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION)
        _raise_first(answer.topics)
        self._view.refresh()
        for topic in answer.topics if wait else ():
            self.await_leaders(topic.name)

    def await_leaders(self, topic: str, timeout_ms: int | None = None) -> None:
        """Wait until every partition's leader answers. LeaderNotAvailableError names one that does not."""
        self._view.offsets.end_offsets(self._view.partitions(topic), timeout_ms)

    def describe_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        """The named topics, or all. UnknownTopicOrPartitionError."""
        wanted = self.list_topics() if names is None else list(names)
        found = {each.name: each for each in self._topics(wanted)}
        for name in wanted:
            if name not in found or found[name].error_code:
                raise errors.UnknownTopicOrPartitionError(f"topic '{name}' does not exist")
        moving = [(tp, each.adding, each.removing) for tp, each in self.list_partition_reassignments().items()]
        states = described_partitions(found.values(), moving)
        configs = self._configs(TOPIC, wanted)
        by_topic: dict[str, list[PartitionRecord]] = {}
        for named, state in sorted(states.items()):
            by_topic.setdefault(named.topic, []).append(state)
        ids = self._view.image.topic_ids
        return {
            name: TopicDescription(
                name,
                ids.get(name, ""),
                tuple(by_topic[name]),
                {each.name: each.text for each in configs[name] if each.source != DEFAULT_CONFIG},
            )
            for name in wanted
        }

    def _topics(self, names: Sequence[str]) -> list[Entity]:
        """Their parts of DescribeTopicPartitions, page by page."""
        found: dict[str, list[Entity]] = {}
        cursor: dict[str, object] | None = None
        while names:
            values = {
                "topics": [{"name": name} for name in sorted(names)],
                "response_partition_limit": PARTITIONS_OF_A_PAGE,
                "cursor": cursor,
            }
            answer = self._answer(Message(values, ApiKey.DESCRIBE_TOPIC_PARTITIONS, DESCRIBE_TOPICS_VERSION))
            for topic in answer.topics:
                found.setdefault(topic.name, []).append(topic)
            if answer.next_cursor is None:
                break
            cursor = {
                "topic_name": answer.next_cursor.topic_name,
                "partition_index": answer.next_cursor.partition_index,
            }
        return [part for parts in found.values() for part in parts]

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics. Every one is tried, then the first error is raised."""
        asked = [{"name": name, "topic_id": None} for name in names]
        if asked:
            _raise_first(self._call({"topics": asked}, ApiKey.DELETE_TOPICS, DELETE_TOPICS_VERSION).responses)
            self._view.refresh()

    def list_topic_deletions(self) -> list[TopicDeletion]:
        """None: brokers do not show topics that are being deleted."""
        return []

    def create_partitions(
        self, name: str, count: int, new_assignments: Sequence[Sequence[int]] | None = None, *, wait: bool = True
    ) -> int:
        """Grow a topic to `count` partitions and wait for their leaders; how many are new."""
        before = len(self._view.partitions(name))
        assignments = None if new_assignments is None else [{"broker_ids": list(each)} for each in new_assignments]
        asked = {"topics": [{"name": name, "count": count, "assignments": assignments}]}
        _raise_first(self._call(asked, ApiKey.CREATE_PARTITIONS, CREATE_PARTITIONS_VERSION).results)
        self._view.refresh()
        if wait:
            self.await_leaders(name)
        return count - before

    # -- partitions --------------------------------------------------------------------------------------------

    def elect_leaders(
        self, election_type: ElectionType, topic_partitions: Iterable[TopicPartition] | None = None
    ) -> Answers:
        """Elect leaders of these partitions, or of all (None): None or its error for each."""
        named = None
        if topic_partitions is not None:
            by_topic = _by_topic(topic_partitions)
            named = [{"topic": topic, "partitions": numbers} for topic, numbers in by_topic.items()]
        asked = {"election_type": _ELECTION_CODES[election_type], "topic_partitions": named}
        answer = self._call(asked, ApiKey.ELECT_LEADERS, ELECT_LEADERS_VERSION)
        return {
            TopicPartition(topic.topic, each.partition_id): error_of(each)
            for topic in answer.replica_election_results
            for each in topic.partition_result
        }

    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, allow_replication_factor_change: bool = True
    ) -> dict[TopicPartition, StratalogError | None]:
        """Move partitions to these replicas; None cancels what is under way."""
        topics: dict[str, list[dict[str, object]]] = {}
        for (topic, partition), replicas in targets.items():
            wanted = None if replicas is None else list(replicas)
            topics.setdefault(topic, []).append({"partition_index": partition, "replicas": wanted})
        asked = {
            "allow_replication_factor_change": allow_replication_factor_change,
            "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
        }
        answer = self._call(asked, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ALTER_REASSIGNMENTS_VERSION)
        return {
            TopicPartition(topic.name, each.partition_index): error_of(each)
            for topic in answer.responses
            for each in topic.partitions
        }

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Reassignments under way, of these partitions or of all."""
        named = None
        if partitions is not None:
            by_topic = _by_topic(partitions)
            named = [{"name": topic, "partition_indexes": numbers} for topic, numbers in by_topic.items()]
        answer = self._call({"topics": named}, ApiKey.LIST_PARTITION_REASSIGNMENTS, LIST_REASSIGNMENTS_VERSION)
        return {
            TopicPartition(topic.name, each.partition_index): PartitionReassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    def throttle(self, proposed: Mapping[TopicPartition, Sequence[int]], bytes_per_s: int) -> None:
        """Throttle the copies of these moves and of those under way, by broker. InvalidConfigError."""
        self._view.refresh()
        current = {tp: self._view.partition_state(tp).replicas for tp in proposed}
        moves: Mapping[TopicPartition, Move] = moves_of_replicas(self.list_partition_reassignments(), current, proposed)
        rates = {name: str(bytes_per_s) for name in (LEADER_RATE, FOLLOWER_RATE)}
        self.alter_cluster_configs(rates)
        for name, of_leaders in ((LEADER_REPLICAS, True), (FOLLOWER_REPLICAS, False)):
            for topic, replicas in throttled_replicas(moves, of_leaders=of_leaders).items():
                self.alter_configs(topic, {name: replicas})

    def unthrottle(self, topics: Collection[str]) -> None:
        """Remove the throttles of these topics, and the rates."""
        self.alter_cluster_configs(dict.fromkeys((LEADER_RATE, FOLLOWER_RATE)))
        known = self._view.topics()
        for topic in topics:
            if topic in known:
                self.alter_configs(topic, dict.fromkeys((LEADER_REPLICAS, FOLLOWER_REPLICAS)))

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, DeletedRecords]:
        """Delete the records before an offset in each partition; -1: all below the high watermark."""
        limit_ms = self._view.timeout_ms if timeout_ms is None else timeout_ms
        return RecordDeletion(self._view, self._cluster.peers(), offsets, limit_ms).run()

    # -- configs -----------------------------------------------------------------------------------------------

    def _configs(self, kind: int, names: Sequence[str], broker_id: int | None = None) -> dict[str, list[ConfigInForce]]:
        """The configs of resources, by name; of brokers, asked of the broker itself."""
        if not names:
            return {}
        limit_ms = self._view.timeout_ms
        answer = self._cluster.call(describe_message(kind, names), broker_id, limit_ms)
        _raise_first(answer.results)
        return {each.resource_name: configs_of(each) for each in answer.results}

    def topic_configs(self, topic: str) -> list[ConfigInForce]:
        """Every config of a topic, by name. UnknownTopicOrPartitionError."""
        return self._configs(TOPIC, [topic])[topic]

    def topic_overrides(self, topic: str) -> dict[str, str]:
        """The configs that are set for the topic itself."""
        return {each.name: each.text for each in self.topic_configs(topic) if each.source == DYNAMIC_TOPIC_CONFIG}

    def broker_configs(self, broker_id: int) -> list[ConfigInForce]:
        """The cluster-wide configs as a broker has them, which is asked."""
        return of_all_brokers(self._configs(BROKER, [str(broker_id)], broker_id)[str(broker_id)], with_own=True)

    def describe_cluster_configs(self) -> list[ConfigInForce]:
        """The cluster-wide configs, asked of the first live broker."""
        live = sorted(self._view.image.live_brokers())
        if not live:
            raise errors.BrokerNotAvailableError("no live broker")
        return of_all_brokers(self._configs(BROKER, [str(live[0])], live[0])[str(live[0])], with_own=False)

    def groups_with_configs(self) -> list[str]:
        """The groups that have configs of their own."""
        return sorted(each.resource_name for each in self._answer(list_groups_message()).config_resources)

    def describe_group_configs(self, group_id: str) -> list[ConfigInForce]:
        """The configs in force of a group of the modern protocol."""
        return self._configs(GROUP, [group_id])[group_id]

    def alter_configs(self, topic: str, changes: Mapping[str, object | None]) -> None:
        """Set overrides of a topic, or remove those given as None."""
        self._alter(TOPIC, topic, changes)

    def alter_cluster_configs(self, changes: Mapping[str, object | None]) -> None:
        """Alter cluster-wide configs, or with None undo that."""
        self._alter(BROKER, "", changes)

    def alter_group_configs(self, group_id: str, changes: Mapping[str, object | None]) -> None:
        """Set configs of one group, or remove those given as None."""
        self._alter(GROUP, group_id, changes)

    def _alter(self, kind: int, name: str, changes: Mapping[str, object | None]) -> None:
        texts = {key: None if value is None else spelled(value) for key, value in changes.items()}
        _raise_first(self._answer(alter_message(kind, name, texts)).responses)

    # -- access ------------------------------------------------------------------------------------------------

    def create_acls(self, bindings: Sequence[AclBinding]) -> None:
        """Add ACL bindings. SecurityDisabledError where brokers have no authorizer."""
        _raise_first(self._answer(create_acls_message(bindings)).results)

    def describe_acls(self, wanted: AclFilter | None = None) -> tuple[AclBinding, ...]:
        """The bindings that a filter matches; all without one."""
        return described_acls(self._answer(describe_acls_message(wanted or AclFilter())).resources)

    def delete_acls(self, filters: Sequence[AclFilter]) -> tuple[AclBinding, ...]:
        """Remove the bindings that any of the filters matches; these are returned."""
        results = self._answer(delete_acls_message(filters)).filter_results
        _raise_first(results)
        return tuple(binding_of(each, each) for result in results for each in result.matching_acls)

    def alter_user_scram_credentials(
        self, deletions: Sequence[ScramDeletion] = (), upsertions: Sequence[ScramUpsertion] = ()
    ) -> dict[str, StratalogError | None]:
        """Remove, add and replace credentials; the error of each user, None if it is done."""
        answer = self._answer(alter_scram_message(deletions, upsertions))
        return {each.user: error_of(each) for each in answer.results}

    def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> list[ScramDescription]:
        """Mechanisms and iterations of these users; of all users without any named."""
        return [described_scram(each) for each in self._answer(describe_scram_message(users)).results]

    def alter_client_quota(
        self, entity: QuotaEntity, changes: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        """As `MetadataAdmin.alter_client_quota`."""
        _raise_first(self._answer(alter_quota_message(entity, changes, validate_only=validate_only)).entries)

    def describe_client_quotas(self, wanted: Sequence[QuotaMatch] = (), *, is_strict: bool = False) -> Quotas:
        """The quotas of entities that have all these parts; with `is_strict` no others."""
        return described_quotas(self._answer(describe_quotas_message(wanted, is_strict=is_strict)))

    # -- the cluster -------------------------------------------------------------------------------------------

    def describe_cluster(self) -> ClusterDescription:
        """Controller and brokers as of now. Brokers' roots are not shown."""
        self._view.refresh()
        image = self._view.image
        brokers = tuple(
            BrokerDescription(broker_id, each.broker_epoch, each.registration.root, each.registration.rack, each.fenced)
            for broker_id, each in sorted(image.brokers.items())
        )
        return ClusterDescription(image.cluster_id, image.controller_id, image.controller_epoch, brokers)

    def describe_log_dirs(
        self, broker_ids: Iterable[int] | None = None, topics: Iterable[str] | None = None
    ) -> dict[int, LogDirDescription]:
        """The log directory of each broker named, or of all, with the replicas of these topics, or of all. The brokers
        themselves are asked: the first error is raised."""
        self._view.refresh()
        image = self._view.image
        wanted = sorted(image.brokers) if broker_ids is None else list(dict.fromkeys(broker_ids))
        asked = None
        if topics is not None:
            named = [tp for topic in topics for tp in image.partitions_of(topic)]
            asked = [{"topic": topic, "partitions": numbers} for topic, numbers in _by_topic(named).items()]
        message = Message({"topics": asked}, ApiKey.DESCRIBE_LOG_DIRS, DESCRIBE_LOG_DIRS_VERSION)
        found: dict[int, LogDirDescription] = {}
        for broker_id, answer in self._cluster.call_each(dict.fromkeys(wanted, message), self._view.timeout_ms).items():
            if isinstance(answer, StratalogError):
                raise answer
            _raise(answer)
            for each in answer.results:
                found[broker_id] = _log_dir(each)
        return found

    def close(self) -> None:
        """Does nothing: the cluster is the caller's."""


def _raise(answer: Entity) -> None:
    error = error_of(answer)
    if error is not None:
        raise error


def _raise_first(parts: Iterable[Entity]) -> None:
    for part in parts:
        _raise(part)


def _by_topic(topic_partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in topic_partitions:
        found.setdefault(topic, []).append(partition)
    return found


def _new_topic(topic: NewTopic) -> dict[str, object]:
    placed = topic.replica_assignment
    if placed is not None and sorted(placed) != list(range(len(placed))):
        raise errors.InvalidReplicaAssignmentError(
            f"Partitions are numbered from 0 without gaps, found {sorted(placed)}"
        )
    assignments = [
        {"partition_index": number, "broker_ids": list(brokers)} for number, brokers in (placed or {}).items()
    ]
    is_placed = placed is not None
    return {
        "name": topic.name,
        "num_partitions": topic_rules.NOT_GIVEN if is_placed else topic.partitions,
        "replication_factor": topic_rules.NOT_GIVEN if is_placed else topic.replication_factor,
        "assignments": assignments,
        "configs": [{"name": name, "value": spelled(value)} for name, value in topic.configs.items()],
    }


def _log_dir(result: Entity) -> LogDirDescription:
    replicas = {
        TopicPartition(topic.name, each.partition_index): ReplicaInfo(
            each.partition_size, each.offset_lag, each.is_future_key
        )
        for topic in result.topics
        for each in topic.partitions
    }
    return LogDirDescription(result.log_dir, replicas, error_of(result))
