"""What an administrator changes by commits to the metadata log, and what the cluster looks like.

I/O: through a `ClusterView`. Changes are decided by the controller's pure rules and committed here, by
compare-and-set on the metadata log; no broker has to run in this process, and none is called. What leaders do is in
`clients.admin.admin`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self, TypeVar

from stratalog.replication.controller import topics
from stratalog.replication.controller.cluster_configs import alter_cluster_configs
from stratalog.replication.controller.domains.promotions import Promotion
from stratalog.replication.controller.election.preferred_leaders import Answers, ElectionType, elect_leaders
from stratalog.replication.controller.reassignment import PartitionReassignment
from stratalog.replication.controller.topic_deletion import TopicDeletion, topic_deletions
from stratalog.replication.controller.unregistration import unregister_broker
from stratalog.replication.html_table import html_fields, html_table
from stratalog.replication.metadata.acls import AclBinding, AclFilter, create_acls, delete_acls, describe_acls
from stratalog.replication.metadata.client_quotas import (
    QuotaEntity,
    QuotaMatch,
    Quotas,
    alter_client_quota,
    describe_client_quotas,
    quotas_of,
)
from stratalog.replication.metadata.configs import alter_group_config
from stratalog.replication.metadata.history.leaders import LeaderOfOffset
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord, group_of
from stratalog.replication.metadata.scram import (
    ScramDeletion,
    ScramDescription,
    ScramUpsertion,
    alter_credentials,
    describe_credentials,
)
from stratalog.replication.metrics import Histogram
from stratalog.replication.threads.long_wait import long_wait
from stratalog.server.admin.configs import (
    DYNAMIC_TOPIC_CONFIG,
    ConfigInForce,
    cluster_configs,
    group_configs,
    topic_configs,
)
from stratalog.server.admin.domains import (
    StorageDomainDescription,
    add_domain,
    describe_domains,
    promote_domain,
    remove_domain,
)
from stratalog.server.admin.erasure import ErasureReport, erasure_report, request_erasure
from stratalog.server.admin.log_dirs import LogDirDescription, describe_log_dirs
from stratalog.server.admin.reassignment import alter_reassignments, list_reassignments, throttle, unthrottle
from stratalog.server.admin.who_led import who_led
from stratalog.server.bootstrap import Cluster
from stratalog.server.metrics.of_image import image_metrics
from stratalog.server.offset_spec import ListedOffset, OffsetSpec
from stratalog.server.view.cluster_view import DEFAULT_TIMEOUT_MS, ClusterView
from stratalog.storage.config_def import spelled
from stratalog.storage.errors import InvalidConfigError, StratalogError
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import TOPIC_CONFIGS, LogConfig

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created, with numbers or a `replica_assignment`: partition -> brokers, preferred leader first."""

    name: str
    partitions: int = topics.NOT_GIVEN
    replication_factor: int = topics.NOT_GIVEN
    configs: Mapping[str, object] = field(default_factory=dict)
    replica_assignment: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic: its id, its partitions in order (leader, ISR, epochs) and its configs that are not Kafka's defaults."""

    name: str
    topic_id: str
    partitions: tuple[PartitionRecord, ...]
    configs: Mapping[str, str]

    def _repr_html_(self) -> str:
        header = ("partition", "leader", "leader epoch", "replicas", "ISR")
        leaders = [None if each.leader == NO_LEADER else each.leader for each in self.partitions]
        rows = [
            (each.partition, leader, each.leader_epoch, each.replicas, each.isr)
            for each, leader in zip(self.partitions, leaders, strict=True)
        ]
        about = {"id": self.topic_id, **self.configs}
        return html_table(f"topic {self.name}", header, rows) + html_fields(about)


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A registered broker; `fenced` when it is down."""

    broker_id: int
    broker_epoch: int
    root: str
    rack: str | None
    fenced: bool


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster: its controller (-1: none yet) and its brokers, by id."""

    cluster_id: str
    controller_id: int
    controller_epoch: int
    brokers: tuple[BrokerDescription, ...]

    def _repr_html_(self) -> str:
        header = ("broker", "state", "controller", "epoch", "rack", "root")
        rows = [
            (
                each.broker_id,
                "fenced" if each.fenced else "running",
                each.broker_id == self.controller_id,
                each.broker_epoch,
                each.rack,
                each.root,
            )
            for each in self.brokers
        ]
        return html_table(f"cluster {self.cluster_id}", header, rows)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One topic config in force; `is_default` when the topic does not override it."""

    name: str
    value: str
    is_default: bool
    unit: str
    doc: str


class MetadataAdmin:
    """Calls block until their commit is made; those that create partitions, until the leaders have started.

    cluster  a running `Cluster`, or the URL or path of its metadata root.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        view: ClusterView | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._view = view or ClusterView(cluster, timeout_ms=timeout_ms)
        self._timeout_ms = timeout_ms
        self._rng = rng or random.Random()

    # -- topics ------------------------------------------------------------------------------------------

    def create_topics(
        self, new_topics: Iterable[NewTopic], *, wait: bool = True, validate_only: bool = False
    ) -> dict[str, str]:
        """Create topics and wait until their leaders have started; topic ids by name.

        Every topic is tried; then the first error is raised: InvalidTopicError, TopicAlreadyExistsError,
        InvalidPartitionsError, InvalidReplicationFactorError, InvalidReplicaAssignmentError,
        InvalidConfigError, LeaderNotAvailableError (created, but not up in time). With `validate_only` nothing is
        created, but the errors are the same.
        """
        created = _each(new_topics, lambda topic: (topic.name, self._create(topic, validate_only)))
        if wait and not validate_only:
            for name, _ in created:
                self.await_leaders(name)
        return dict(created)

    def create_topic(
        self,
        name: str,
        partitions: int = topics.NOT_GIVEN,
        replication_factor: int = topics.NOT_GIVEN,
        config: Mapping[str, object] | None = None,
        **configs: object,
    ) -> str:
        """Create one topic; its topic id.

        config   configs by Kafka's names: `{"retention.ms": 1000}`
        configs  the same with underscores: `retention_ms=1000`

        Raises as `create_topics`; InvalidConfigError for a config that is given in both ways.
        """
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        given = {} if config is None else config
        if not isinstance(given, Mapping):
            raise InvalidConfigError(f"config is a mapping such as {{'retention.ms': 1000}}, not {given!r}")
        for twice in sorted(dotted.keys() & given.keys()):
            raise InvalidConfigError(f"{twice} is given twice: {given[twice]!r} and {dotted[twice]!r}")
        return self.create_topics([NewTopic(name, partitions, replication_factor, {**given, **dotted})])[name]

    def _create(self, topic: NewTopic, validate_only: bool) -> str:
        topic_id = self._view.ids.new_id()
        assignment = topic.replica_assignment
        start_index, shift = self._rng.randrange(1 << 16), self._rng.randrange(1 << 16)

        def decide(image: ClusterImage) -> Result[str]:
            return topics.create_topic(
                image,
                topic.name,
                topic_id,
                topic.partitions,
                topic.replication_factor,
                assignment,
                {name: spelled(value) for name, value in topic.configs.items()},
                start_index=start_index,
                shift=shift,
                check_configs=LogConfig.validated,
            )

        return self._decided(decide, validate_only)

    def _decided(self, decide: Callable[[ClusterImage], Result[Answer]], validate_only: bool) -> Answer:
        """The answer of a decision; it is committed unless `validate_only`."""
        if not validate_only:
            return self._view.propose(decide)
        self._view.refresh()
        return decide(self._view.image).response

    def await_leaders(self, topic: str, timeout_ms: int | None = None) -> None:
        """Wait until every partition's leader has started. LeaderNotAvailableError names one that has not."""
        partitions = self._view.partitions(topic)
        with long_wait(lambda: f"waiting for the leaders of the {len(partitions)} partitions of {topic}"):
            self._view.offsets.end_offsets(partitions, timeout_ms)

    def list_topics(self) -> list[str]:
        """All topics by name."""
        return self._view.topics()

    def describe_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        """The named topics, or all. UnknownTopicOrPartitionError."""
        self._view.refresh()
        return {name: self._describe(name) for name in (self.list_topics() if names is None else names)}

    def _describe(self, name: str) -> TopicDescription:
        partitions = tuple(self._view.partition_state(tp) for tp in self._view.partitions(name))
        image = self._view.image
        return TopicDescription(name, image.topic_ids[name], partitions, dict(image.topic_config(name)))

    def delete_topics(self, names: Iterable[str], topic_ids: Mapping[str, str] = MappingProxyType({})) -> None:
        """Delete topics; brokers then drop their replicas. Every one is tried, then the first error is raised.

        topic_ids  of topics that are only deleted if they still have these ids, by name: else UnknownTopicIdError
        TopicDeletionDisabledError (`delete.topic.enable` is false), UnknownTopicOrPartitionError.
        """

        def delete(name: str) -> None:
            self._view.propose(lambda image: topics.delete_topic(image, name, topic_ids.get(name)))

        _each(names, delete)

    def list_topic_deletions(self) -> list[TopicDeletion]:
        """Deleted topics with replicas left, and the brokers that have them: one that is down deletes its own when it
        starts again."""
        self._view.refresh()
        return topic_deletions(self._view.image)

    def create_partitions(
        self,
        name: str,
        count: int,
        new_assignments: Sequence[Sequence[int]] | None = None,
        *,
        wait: bool = True,
        validate_only: bool = False,
    ) -> int:
        """Grow a topic to `count` partitions and wait for their leaders; how many are new.

        new_assignments  the brokers of each new partition, the preferred leader first; None: they are placed
        InvalidPartitionsError, InvalidReplicaAssignmentError, UnknownTopicOrPartitionError.
        """
        start_index, shift = self._rng.randrange(1 << 16), self._rng.randrange(1 << 16)

        def decide(image: ClusterImage) -> Result[int]:
            first = len(image.partitions_of(name))
            placed = None if new_assignments is None else dict(enumerate(new_assignments, start=first))
            return topics.create_partitions(image, name, count, placed, start_index=start_index, shift=shift)

        # A retry after a commit of unknown outcome may find its own effect and be refused, as in Kafka.
        new = self._decided(decide, validate_only)
        if wait and not validate_only:
            self.await_leaders(name)
        return new

    def elect_leaders(
        self, election_type: ElectionType, topic_partitions: Iterable[TopicPartition] | None = None
    ) -> Answers:
        """Elect leaders of these partitions, or of all (None), in one commit (KIP-460).

        PREFERRED moves leadership to the first assigned replica. UNCLEAN elects leaders of partitions without one,
        which may lose acknowledged records. The answer for a partition is None or its error; for all partitions those
        that need no election are left out: see `replication.controller.election.preferred_leaders`.
        """
        named = None if topic_partitions is None else list(topic_partitions)
        return self._view.propose(lambda image: elect_leaders(image, election_type, named))

    # -- reassignment --------------------------------------------------------------------------------------

    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, allow_replication_factor_change: bool = True
    ) -> dict[TopicPartition, StratalogError | None]:
        """Move partitions to these replicas, the preferred leader first; None cancels what is under way (KIP-455).

        All requests are one commit; the brokers copy, whichever broker is the controller. The answer for a partition is
        None or its error, nothing is raised: UnknownTopicOrPartitionError, InvalidReplicaAssignmentError (an empty
        list, a broker that is listed twice or not registered; a cancellation that would leave no replica in sync),
        InvalidReplicationFactorError, NoReassignmentInProgressError (nothing to cancel).
        """
        allowed = allow_replication_factor_change
        return alter_reassignments(self._view, targets, allow_replication_factor_change=allowed)

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Reassignments under way, of these partitions or of all; empty when every one has ended."""
        return list_reassignments(self._view, None if partitions is None else list(partitions))

    def throttle(self, proposed: Mapping[TopicPartition, Sequence[int]], bytes_per_s: int) -> None:
        """Throttle the copies of these moves and of those under way, to so much of each broker (KIP-73).

        InvalidConfigError, UnknownTopicOrPartitionError.
        """
        throttle(self._view, proposed, bytes_per_s)

    def unthrottle(self, topics: Collection[str]) -> None:
        """Remove the throttles of these topics, and the rates."""
        unthrottle(self._view, topics)

    # -- offsets -------------------------------------------------------------------------------------------

    def list_offsets(self, specs: Mapping[TopicPartition, OffsetSpec]) -> dict[TopicPartition, ListedOffset]:
        """For each partition the offset of its spec, among committed records (Kafka's ListOffsets, KIP-396).

        Every partition is tried; then the first error is raised: UnknownTopicOrPartitionError,
        LeaderNotAvailableError.
        """
        return dict(_each(specs.items(), lambda item: (item[0], self._view.offsets.list_offset(*item))))

    def who_led(self, topic_partition: TopicPartition, offset: int, topic_id: str | None = None) -> LeaderOfOffset:
        """The broker that led when the record at `offset` was written, and what is known of its acknowledgement.

        It looks through all of the past, without Spark. `topic_id`: of a topic that is gone; None is the newest topic
        of that name. Raises OffsetOutOfRangeError beyond the log or before the history, UnknownTopicOrPartitionError.
        """
        return who_led(self._view, topic_partition, offset, topic_id)

    def delete_where(self, topic: str, predicate: str | Mapping[str, object], timeout_ms: int | None = None) -> int:
        """Erase every committed record that matches, on every replica; the erasure's id in its topic.

        `predicate` is JSON or the same as a mapping, on key, value, timestamp and headers:
        `storage.upkeep.erase`. The request is part of the metadata: a replica that is down erases when it is back.
        Records that are sent later stay. Offsets stay, readers skip the gaps. Erased records leave storage
        `file.delete.delay.ms` later. `describe_erasure` reports the progress. InvalidRequestError,
        UnknownTopicOrPartitionError, LeaderNotAvailableError.
        """
        return request_erasure(self._view, topic, predicate, timeout_ms)

    def describe_erasure(self, topic: str, erase_id: int) -> ErasureReport:
        """Each replica's progress of an erasure, and what its files hold now. Reads every replica of the topic.

        InvalidRequestError (no such erasure), UnknownTopicOrPartitionError.
        """
        return erasure_report(self._view, topic, erase_id)

    # -- configs and the cluster ----------------------------------------------------------------------------

    def describe_configs(self, topic: str) -> list[ConfigEntry]:
        """Every config of a topic in force. UnknownTopicOrPartitionError."""
        self._view.refresh()
        self._view.partitions(topic)
        return [
            ConfigEntry(key.name, now.text, now.source != DYNAMIC_TOPIC_CONFIG, key.unit, key.doc)
            for key, now in zip(TOPIC_CONFIGS, topic_configs(self._view.image, topic), strict=True)
        ]

    def topic_configs(self, topic: str) -> list[ConfigInForce]:
        """Every config of a topic, by name, with the source of each value. UnknownTopicOrPartitionError."""
        self._view.refresh()
        self._view.partitions(topic)
        return topic_configs(self._view.image, topic)

    def topic_overrides(self, topic: str) -> dict[str, str]:
        """The configs that are set for the topic itself. UnknownTopicOrPartitionError."""
        self._view.refresh()
        self._view.partitions(topic)
        return dict(self._view.image.topic_overrides(topic))

    def alter_configs(self, topic: str, changes: Mapping[str, object | None]) -> dict[str, str]:
        """Set overrides, or remove those given as None; all overrides afterwards.

        InvalidConfigError for an unknown name or a bad value, UnknownTopicOrPartitionError; nothing is changed then.
        """
        check = LogConfig.validated
        return self._view.propose(lambda image: topics.alter_config(image, topic, _texts(changes), check_configs=check))

    def describe_cluster_configs(self) -> list[ConfigInForce]:
        """The cluster-wide configs in force, with the source of each value."""
        self._view.refresh()
        return cluster_configs(self._view.image)

    def broker_configs(self, broker_id: int) -> list[ConfigInForce]:
        """The cluster-wide configs as one broker has them."""
        self._view.refresh()
        return cluster_configs(self._view.image, broker_id)

    def alter_cluster_configs(self, changes: Mapping[str, object | None]) -> dict[str, str]:
        """Alter cluster-wide configs while the cluster runs, or with None undo that; all altered ones afterwards.

        They hold at once and outlive restarts. InvalidConfigError: unknown, a bad value, or one that needs a restart.
        """
        return self._view.propose(lambda image: alter_cluster_configs(image, _texts(changes)))

    def groups_with_configs(self) -> list[str]:
        """The groups that have configs of their own."""
        self._view.refresh()
        return sorted(group for each in list(self._view.image.configs) if (group := group_of(each)) is not None)

    def describe_group_configs(self, group_id: str) -> list[ConfigInForce]:
        """The configs in force of a group of the modern protocol, which need not exist, with each value's source."""
        self._view.refresh()
        return group_configs(self._view.image, group_id)

    def alter_group_configs(self, group_id: str, changes: Mapping[str, object | None]) -> dict[str, str]:
        """Set configs of one group, or remove those given as None; all that are set afterwards.

        InvalidConfigError for an unknown name, or a value beyond the bounds of the cluster's settings.
        """
        return self._view.propose(lambda image: alter_group_config(image, group_id, _texts(changes)))

    def create_acls(self, bindings: Sequence[AclBinding]) -> None:
        """Add ACL bindings that are not there yet; they are checked when `authorizer.class.name` is set.

        InvalidRequestError for an invalid binding.
        """
        self._view.propose(lambda image: create_acls(image, bindings, self._view.ids))

    def describe_acls(self, wanted: AclFilter | None = None) -> tuple[AclBinding, ...]:
        """The bindings that a filter matches; all without one."""
        self._view.refresh()
        return describe_acls(self._view.image, wanted or AclFilter())

    def delete_acls(self, filters: Sequence[AclFilter]) -> tuple[AclBinding, ...]:
        """Remove the bindings that any of the filters matches; these are returned."""
        return self._view.propose(lambda image: delete_acls(image, filters))

    def alter_user_scram_credentials(
        self, deletions: Sequence[ScramDeletion] = (), upsertions: Sequence[ScramUpsertion] = ()
    ) -> dict[str, StratalogError | None]:
        """Remove, add and replace what passwords are checked against; the error of each user, None if it is done."""
        return self._view.propose(lambda image: alter_credentials(image, deletions, upsertions))

    def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> list[ScramDescription]:
        """Mechanisms and iterations of these users; of all users without any named."""
        self._view.refresh()
        return describe_credentials(self._view.image, users)

    def alter_client_quota(
        self, entity: QuotaEntity, changes: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        """Set quotas of a user, a client id or both, or remove those given as None; `validate_only` checks them.

        entity  `(("user", "alice"),)`, with `("client-id", name)` beside or alone; None is the name of all that have no
                quota of their own
        InvalidRequestError in Kafka's words.
        """
        wanted = list(changes.items())
        if validate_only:
            self._view.refresh()
            alter_client_quota(self._view.image, entity, wanted)
        else:
            self._view.propose(lambda image: alter_client_quota(image, entity, wanted))

    def describe_client_quotas(self, wanted: Sequence[QuotaMatch] = (), *, is_strict: bool = False) -> Quotas:
        """The quotas of entities that have all these parts; with `is_strict` no others."""
        self._view.refresh()
        return describe_client_quotas(quotas_of(self._view.image), wanted, is_strict=is_strict)

    def add_storage_domain(
        self, name: str, url: str, *, durable: bool | None = None, racks: Sequence[str] | None = None
    ) -> StorageDomainDescription:
        """Make a place known in which topics can have one table for all brokers (`stratalog.storage.domain`).

        durable  whether what is stored there survives the loss of any machine; None: as object stores do
        racks    the `broker.rack` of the brokers that use it; None: as before, at first any
        Raises InvalidRequestError: an illegal name, or a place that is in use; InconsistentClusterIdError: another
        cluster has claimed it; KafkaStorageError where the store does not refuse to create an object that exists;
        StoreUnavailableError. Brokers need credentials for the place, too.
        """
        return add_domain(self._view, name, url, durable=durable, racks=racks)

    def remove_storage_domain(self, name: str, *, is_lost: bool = False) -> None:
        """Forget a domain in which nothing is. Raises UnknownStorageDomainError, InvalidRequestError: it is in use.

        is_lost  the place is gone for good: tables that partitions have left there are not deleted before
        """
        remove_domain(self._view, name, is_lost=is_lost)

    def promote_storage_domain(self, name: str, *, leave: Sequence[str] = (), unclean: bool = False) -> Promotion:
        """Make a domain the home of all topics that it has a copy of, as when the region of the old one is lost.

        leave    domains that keep no copy, as those that are gone for good
        unclean  let a copy lead that is behind, where nobody else can: what it lacks is lost
        Raises UnknownStorageDomainError, InvalidRequestError: no topic has a copy there;
        EligibleLeadersNotAvailableError: a copy is behind, nobody else can lead, and `unclean` is not set.
        """
        return promote_domain(self._view, name, leave=leave, unclean=unclean)

    def describe_storage_domains(self) -> list[StorageDomainDescription]:
        """All domains by name, with what is in them."""
        return describe_domains(self._view)

    def unregister_broker(self, broker_id: int) -> None:
        """Forget a broker that was stopped for good and holds no replica any more; see `unregister_broker` of the
        controller for the errors."""
        self._view.propose(lambda image: unregister_broker(image, broker_id))

    def describe_cluster(self) -> ClusterDescription:
        """Controller and brokers as of now."""
        self._view.refresh()
        image = self._view.image
        brokers = tuple(
            BrokerDescription(broker_id, b.broker_epoch, b.registration.root, b.registration.rack, b.fenced)
            for broker_id, b in sorted(image.brokers.items())
        )
        return ClusterDescription(image.cluster_id, image.controller_id, image.controller_epoch, brokers)

    def describe_log_dirs(
        self, broker_ids: Iterable[int] | None = None, topics: Iterable[str] | None = None
    ) -> dict[int, LogDirDescription]:
        """The log directory of each broker named, or of all, with the replicas of these topics, or of all.

        Reads storage: brokers need not run. BrokerNotAvailableError for a broker that never registered; a root that
        cannot be read has its error.
        """
        return describe_log_dirs(self._view, broker_ids, topics)

    def describe_metrics(self) -> dict[int, dict[str, float]]:
        """Metrics of each broker that follow from the metadata, by Kafka's names: leaders, under-replicated and offline
        partitions, the controller. Counters of the brokers are in `Cluster.metrics` and on their metrics port."""
        self._view.refresh()
        image = self._view.image
        metrics = {broker_id: image_metrics(image, broker_id) for broker_id in sorted(image.brokers)}
        return {
            broker_id: {m.name: v for m in found for v in m.values.values() if not isinstance(v, Histogram)}
            for broker_id, found in metrics.items()
        }

    def close(self) -> None:
        """Does nothing: an admin client holds no resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _texts(changes: Mapping[str, object | None]) -> dict[str, str | None]:
    return {name: None if value is None else spelled(value) for name, value in changes.items()}


def _each(items: Iterable[Item], act: Callable[[Item], Answer]) -> list[Answer]:
    """Act on every item; raise the first error only after all were tried."""
    answers: list[Answer] = []
    errors: list[StratalogError] = []
    for item in items:
        try:
            answers.append(act(item))
        except StratalogError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return answers
