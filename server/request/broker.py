"""The broker that requests are sent to, as all families of APIs see it. I/O: through a `ClusterView`.

Any broker answers questions about the cluster, from the metadata log; questions about a partition are answered by its
leader, from the leader's table and progress.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import UUID

from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.sessions import PeerBeats
from stratalog.replication.coordinator.transactions.add_partitions import Coordinates
from stratalog.replication.leader.log_offsets import LogOffsetSnapshot
from stratalog.replication.metadata.acls import (
    CLUSTER,
    Authorizer,
    Operation,
    Resource,
    ResourceType,
    VisibleTopics,
    authorizer_of,
)
from stratalog.replication.metadata.image import BrokerState, ClusterImage
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.replication.metrics import BrokerMetrics
from stratalog.replication.stores import DeltaStores, request_ms_max
from stratalog.replication.threads.scheduler import CallScheduler
from stratalog.server.admin.admin import MetadataAdmin
from stratalog.server.batches.batch_memory import BatchMemory
from stratalog.server.bootstrap import BrokerFace, RunningCluster
from stratalog.server.request.api import Api, Call
from stratalog.server.request.endpoint import INBOX, Endpoint
from stratalog.server.request.fair_threads import FairThreads
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage import errors
from stratalog.storage.clock import RandomIds
from stratalog.storage.errors import StratalogError
from stratalog.storage.log.leader_epochs import EpochEndOffset
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.wire.messages.values import Values, id_text

METADATA_AGE_MS = 20
"""The age of metadata at most, for a request that does not change it."""
NOT_REQUESTED = -(2**31)
"""The bit field of allowed operations in an answer to a request that does not want it."""
NO_EPOCH = -1
ASIDE_COUNT = 100
"""The parts of an answer from which it is made in a thread for what takes long, not in the broker's own loop."""


class _KnownAuthorizer(NamedTuple):
    """The authorizer made of the ACLs with these ids, which the metadata had at that version. One value, since
    several threads replace it."""

    metadata_version: int
    acls: tuple[str, ...] | None
    decides: Authorizer | None


class ServedBroker:
    """One broker of a cluster that runs in this process.

    advertised  endpoints by broker id, which override those that brokers registered; a broker without either is
                hidden from clients, as a broker without that listener in Kafka
    metrics     the counters to which is added what consumers are sent; who serves a broker sets the broker's own
    """

    def __init__(
        self,
        cluster: RunningCluster,
        broker_id: int,
        *,
        config: BrokerConfig | None = None,
        view: ClusterView | None = None,
        advertised: Mapping[int, Endpoint] | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.metrics = BrokerMetrics()
        self.config = config or BrokerConfig()
        deadline_ms = request_ms_max(self.config.broker_session_timeout_ms)
        self.view = view or ClusterView(cluster, stores=DeltaStores(RandomIds(), request_ms=deadline_ms))
        self.admin = MetadataAdmin(cluster, view=self.view)
        memory_bounds = self.config.stratalog_encoded_tail_cache_bytes, self.config.stratalog_encoded_tail_cache_ms
        self.memory = BatchMemory(*memory_bounds, self.view.clock)
        self.scheduler = CallScheduler(self.view.clock, f"kafka-{broker_id}-scheduler")
        self.beats: PeerBeats | None = None
        """Takes beats of the other brokers; who serves a broker sets it. None: they are refused."""
        self.computing: FairThreads | None = None
        """Threads in which long answers are made; who serves a broker sets them. None: the thread that has them."""
        self._cluster = cluster
        self._advertised = dict(advertised or {})
        self._settings = self.config.properties()
        self._authorizer = _KnownAuthorizer(-1, None, None)
        self._names: tuple[int, dict[str, str]] = (-1, {})
        self._here = threading.local()

    # -- the cluster ---------------------------------------------------------------------------------------

    def face(self) -> BrokerFace:
        """The broker object. NotLeaderOrFollowerError when it has stopped."""
        found = self._cluster.brokers().get(self.broker_id)
        if found is None:
            raise errors.NotLeaderOrFollowerError(f"broker {self.broker_id} is not running")
        return found

    def aside(self, call: Call, work: Callable[[], None], count: int = ASIDE_COUNT) -> None:
        """Do the work here if the answer has few parts, else in a computing thread: this may be the broker's loop."""
        if self.computing is None or count < ASIDE_COUNT:
            work()
        else:
            self.computing.take_over(call.connection, work)

    def peers(self) -> Mapping[int, Coordinates]:
        """The brokers that this one can call, itself among them."""
        return self._cluster.peers()

    def image(self, max_age_ms: int = METADATA_AGE_MS) -> ClusterImage:
        """The metadata, not older than this; in a block of `cached_metadata` an age is not looked at."""
        if not max_age_ms or not getattr(self._here, "is_cached", False):
            self.view.refresh(max_age_ms)
        return self.view.image

    @contextmanager
    def cached_metadata(self) -> Iterator[None]:
        """A block in which this thread uses the metadata as it was last folded: somebody else keeps it new."""
        before = getattr(self._here, "is_cached", False)
        self._here.is_cached = True
        try:
            yield
        finally:
            self._here.is_cached = before

    def endpoint_of(self, broker: BrokerState, listener: str = "") -> Endpoint | None:
        """Where clients of a listener reach a broker; None when it has registered no endpoint there."""
        registration = broker.registration
        if listener == INBOX:
            return Endpoint(registration.root, 0)
        found = self._advertised.get(registration.broker_id)
        return found or Endpoint.by_listener(registration.endpoint or "").get(listener)

    def node_values(self, image: ClusterImage, broker_id: int, listener: str = "") -> Values | None:
        """A live broker as a node of a response, at the listener asked; None for one that is not reached there."""
        broker = image.brokers.get(broker_id)
        endpoint = None if broker is None or broker.fenced else self.endpoint_of(broker, listener)
        if broker is None or endpoint is None:
            return None
        rack = broker.registration.rack
        return {"node_id": broker_id, "host": endpoint.host, "port": endpoint.port, "rack": rack}

    # -- topics and partitions -------------------------------------------------------------------------------

    def topic_name(self, topic_id: str | None) -> str:
        """The topic of an id, by the metadata at hand; storage is read for an id that it does not have.
        UnknownTopicIdError."""
        name = self._names_by_id().get(topic_id or "")
        if name is None:
            self.view.refresh()
            name = self._names_by_id().get(topic_id or "")
        if name is None:
            raise errors.UnknownTopicIdError(f"no topic has the id {topic_id}")
        return name

    def is_known(self, topic: Any, partition: int) -> bool:
        """Whether the metadata at hand has this partition of a request's topic."""
        name = self._names_by_id().get(id_text(topic.topic_id) or "") if has_id(topic) else str(topic.name)
        return name is not None and TopicPartition(name, partition) in self.view.image.partitions

    def cached_name(self, topic: str | None, topic_id: str | None, partition: int) -> TopicPartition | None:
        """A partition by its topic's name or, without one, id; None when the metadata at hand does not have it."""
        name = self._names_by_id().get(topic_id or "") if topic is None else topic
        named = None if name is None else TopicPartition(name, partition)
        return named if named in self.view.image.partitions else None

    def cached_state(self, named: TopicPartition, leader_epoch: int, *, leader_only: bool) -> PartitionRecord | None:
        """As `checked`, by the metadata at hand; None where that would be an error, or read storage."""
        state = self.view.image.partitions.get(named)
        if state is None or leader_epoch not in (NO_EPOCH, state.leader_epoch):
            return None
        return state if self._is_here(state, leader_only=leader_only) else None

    def name_of(self, topic: Any) -> str:
        """The name of a request's topic, which may have an id instead. UnknownTopicIdError."""
        return self.topic_name(id_text(topic.topic_id)) if has_id(topic) else str(topic.name)

    def identified(self, topic: Any, named: TopicPartition) -> IdentifiedPartition:
        """A partition of a request's topic: that of the id in the request, or of the topic that has the name now."""
        if has_id(topic):
            return IdentifiedPartition(id_text(topic.topic_id) or "", named)
        return self.view.image.identified(named)

    def _names_by_id(self) -> dict[str, str]:
        """Made once for each image; its number is read first, so that a fold that goes on has it made again."""
        version, known = self.view.metadata_version, self._names
        if known[0] != version:
            topic_ids = list(self.view.image.topic_ids.items())
            known = self._names = (version, {topic_id: name for name, topic_id in topic_ids})
        return known[1]

    def led_offsets(self, topic_partition: TopicPartition) -> LogOffsetSnapshot | None:
        """What this broker knows of a log that it leads, under the leader epoch of the cached metadata; None of others,
        whose leaders' tables have to be read."""
        image, face = self.view.image, self._cluster.brokers().get(self.broker_id)
        state = image.partitions.get(topic_partition)
        known = None if face is None or state is None else face.log_offsets(image.identified(topic_partition))
        return known if known is not None and state is not None and known.leader_epoch == state.leader_epoch else None

    def stable_offset(self, topic_partition: TopicPartition, high_watermark: int) -> int | None:
        """The offset below which every transaction has ended; None where this broker does not know without reading
        storage, as one that follows, or that has not appended since it leads."""
        known = self.led_offsets(topic_partition)
        return None if known is None else known.last_stable_offset(high_watermark)

    def log_end(self, topic_partition: TopicPartition) -> int:
        """The end of the leader's log, as of this call. The published one, and a log as it was last read, may be behind
        an offset that a producer knows by acks=1. LeaderNotAvailableError."""

        def newest(log: LogReader) -> int:
            log.refresh_for_sure()
            return log.log_end_offset

        known = self.led_offsets(topic_partition)
        return self.view.records.read_from_log(topic_partition, newest, 0) if known is None else known.log_end_offset

    def partition(self, topic_partition: TopicPartition) -> PartitionRecord:
        """A partition's state. UnknownTopicOrPartitionError when the newest metadata has none."""
        image = self.image()
        if topic_partition not in image.partitions:
            image = self.image(0)
        state = image.partitions.get(topic_partition)
        if state is None:
            raise errors.UnknownTopicOrPartitionError(f"{topic_partition} does not exist")
        return state

    def led_partition(self, topic_partition: TopicPartition, leader_epoch: int = NO_EPOCH) -> PartitionRecord:
        """The state of a partition that this broker leads, under the client's leader epoch (-1: any).

        UnknownTopicOrPartitionError, NotLeaderOrFollowerError, FencedLeaderEpochError (the client's epoch is older),
        UnknownLeaderEpochError (it is newer than the newest metadata here). Source: `Partition.getLocalLog`.
        """
        state = self.partition(topic_partition)
        if leader_epoch < NO_EPOCH:  # where a fetch has none, as in Kafka
            raise errors.FencedLeaderEpochError(
                f"leader epoch {leader_epoch} < current {state.leader_epoch} for {topic_partition}"
            )
        return self.checked(state, leader_epoch, leader_only=True)

    def checked(self, state: PartitionRecord, leader_epoch: int, *, leader_only: bool) -> PartitionRecord:
        """As `led_partition`; without `leader_only` for any replica (KIP-392)."""
        if leader_epoch > state.leader_epoch or not self._is_here(state, leader_only=leader_only):
            state = self.image(0).partitions.get(state.topic_partition, state)
        named, current = state.topic_partition, state.leader_epoch
        if NO_EPOCH < leader_epoch < current:
            raise errors.FencedLeaderEpochError(f"leader epoch {leader_epoch} < current {current} for {named}")
        if leader_epoch > current:
            raise errors.UnknownLeaderEpochError(f"leader epoch {leader_epoch} > current {current} for {named}")
        if not self._is_here(state, leader_only=leader_only):
            raise errors.NotLeaderOrFollowerError(f"{named} is led by broker {state.leader}, this is {self.broker_id}")
        return state

    def _is_here(self, state: PartitionRecord, *, leader_only: bool) -> bool:
        if leader_only or state.leader == NO_LEADER:
            return state.leader == self.broker_id
        return self.broker_id in state.replicas

    def current_leader(self, call: Call, named: TopicPartition, nodes: dict[int, Values]) -> Values:
        """The leader of a partition, for a client that asked another broker (KIP-951); its node is put into `nodes`.

        By the metadata at hand: called from the broker's own thread, too.
        """
        image = self.view.image
        state = image.partitions.get(named)
        if state is None or state.leader == NO_LEADER:
            return {"leader_id": NO_LEADER, "leader_epoch": NO_EPOCH}
        node = self.node_values(image, state.leader, call.connection.listener)
        if node is not None:
            nodes[state.leader] = node
        return {"leader_id": state.leader, "leader_epoch": state.leader_epoch}

    def end_of_epoch(self, named: TopicPartition, leader_epoch: int) -> EpochEndOffset:
        """Where a leader epoch, or the largest known below it, ended in the leader's log. LeaderNotAvailableError."""

        def end_of(log: LogReader | LogOffsetSnapshot) -> EpochEndOffset:
            return log.epochs.end_offset_for(leader_epoch, log.log_end_offset)

        known = self.led_offsets(named)
        return self.view.records.read_from_log(named, end_of, 0) if known is None else end_of(known)

    def epoch_at(self, named: TopicPartition, offset: int) -> int:
        """The leader epoch of an offset in the leader's log. LeaderNotAvailableError."""
        known = self.led_offsets(named)
        if known is not None:
            return known.epochs.epoch_at(offset)
        return self.view.records.read_from_log(named, lambda log: log.epochs.epoch_at(offset), 0)

    # -- authorization -----------------------------------------------------------------------------------------

    @property
    def authorizer(self) -> Authorizer | None:
        """The authorizer of the newest bindings; None: everything is allowed."""
        if not self.config.authorizer_class_name:
            return None
        image, version, known = self.image(), self.view.metadata_version, self._authorizer
        if version != known.metadata_version:  # read first, so that a fold that goes on has them compared again
            acls = tuple(image.acls)
            decides = known.decides if acls == known.acls else authorizer_of(image, self._settings)
            known = self._authorizer = _KnownAuthorizer(version, acls, decides)
        return known.decides

    def refusal(self, call: Call, operation: Operation, kind: ResourceType, name: str = "") -> StratalogError | None:
        """None if the caller may do that, else the error to answer."""
        authorizer = self.authorizer
        if authorizer is None:
            return None
        resource = CLUSTER if kind is ResourceType.CLUSTER else Resource(kind, name)
        return authorizer.refusal(call.connection.principal, operation, resource)

    def check(self, call: Call, operation: Operation, kind: ResourceType, name: str = "") -> None:
        """As `refusal`, but the error is raised."""
        refusal = self.refusal(call, operation, kind, name)
        if refusal is not None:
            raise refusal

    def visible_topics(self, call: Call) -> VisibleTopics | None:
        """The topics that the caller may describe, by the ACLs of now; None: all. For work that another thread does,
        which must not read storage."""
        authorizer = self.authorizer
        return None if authorizer is None else authorizer.visible_topics(call.connection.principal)

    def topic_for(self, call: Call, operation: Operation, topic: Any) -> str:
        """The name of a request's topic, on which the caller may do that; UnknownTopicIdError. A refusal names it as
        the request does: the name of a topic id is for those who may see the topic."""
        name = self.name_of(topic)
        refusal = self.refusal(call, operation, ResourceType.TOPIC, name)
        if refusal is not None and has_id(topic):
            who, topic_id = call.connection.principal.name, UUID(topic.topic_id)
            raise errors.TopicAuthorizationFailedError(f"{who} is not allowed to {operation.value} topic id {topic_id}")
        if refusal is not None:
            raise refusal
        return name

    def may_describe_topic(self, call: Call, name: str) -> bool:
        return self.refusal(call, Operation.DESCRIBE, ResourceType.TOPIC, name) is None

    def allowed(self, call: Call, kind: ResourceType, name: str = "") -> int:
        """The bit field of the caller's operations on a resource (KIP-430)."""
        resource = CLUSTER if kind is ResourceType.CLUSTER else Resource(kind, name)
        authorizer = self.authorizer or _EVERYTHING
        return authorizer.authorized_operations(call.connection.principal, resource)


def has_id(topic: Any) -> bool:
    """Whether a request names this topic by its id; "" is that of a version which has names."""
    return getattr(topic, "topic_id", "") != ""


_EVERYTHING = Authorizer((), frozenset(), allow_everyone_if_no_acl_found=True)


class ApiFamily(ABC):
    """The APIs of one file of `apis`, as one broker answers them."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker

    @abstractmethod
    def apis(self) -> Iterable[Api]:
        """One row an API."""


def attempted(attempt: Callable[[], Values], refused: Callable[[StratalogError], Values]) -> Values:
    """The values of one item of a response, or those of its error."""
    try:
        return attempt()
    except StratalogError as error:
        return refused(error.as_value())
