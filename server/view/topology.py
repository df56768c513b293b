"""Topics, partitions, leaders and configs of a cluster, as the metadata log on storage shows them.

I/O: folds the metadata log. Its lock is held during a fold alone: the image is there without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.log import METADATA_COMMITS, METADATA_FOLDER, MetadataLog, open_metadata
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.replication.stores import Stores, client_stores
from stratalog.server.bootstrap import Cluster, root_of, shared_metadata_of
from stratalog.server.view.leader_progress import LeaderEntries, PublishedProgress, own_registers_of
from stratalog.server.view.shared_read import SharedRead
from stratalog.storage.clock import Clock, Ids, RandomIds, SystemClock
from stratalog.storage.errors import LogDirNotFoundError, TableReplacedError, UnknownTopicOrPartitionError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig

_LOG = line_logger("stratalog.clients")

T = TypeVar("T")

LogId = tuple[TopicPartition, str, int]
"""A partition, the topic's id and the number of unclean elections: of one log id, an offset has one record for ever."""


class ClusterTopology:
    """The newest image that was folded. Thread-safe; calls may block on storage.

    root      of the metadata
    progress  what leaders publish, which the image names
    """

    def __init__(
        self, cluster: Cluster, stores: Stores | None = None, clock: Clock | None = None, ids: Ids | None = None
    ) -> None:
        """`cluster`: as of `ClusterView`. Raises LogDirNotFoundError where there is no metadata."""
        self.root = root_of(cluster)
        self.clock = clock or SystemClock()
        self.ids = ids or RandomIds()
        self.stores = stores or client_stores(self.ids)
        self._shared_metadata = shared_metadata_of(cluster)
        self.metadata = self._open_metadata()
        self.metadata_version = 0
        """Counts the folds that changed the image. Invariant: what was made of the image holds while this stays."""
        self.progress = PublishedProgress(self.stores, own_registers_of(cluster))
        self._folds = SharedRead(self._fold)
        self._folded_ms: int | None = None
        """When the last fold began. Invariant: None where a commit is known that it may not have seen."""
        self._partitions: dict[str, tuple[TopicPartition, ...]] = {}
        """Invariant: of the image of `metadata_version`, as `_available` is."""
        self._available: dict[str, tuple[int, ...]] = {}
        try:
            self.refresh()
        except LogDirNotFoundError as reason:
            raise LogDirNotFoundError(f"{reason}. {self._where_metadata_is()}") from reason

    def _open_metadata(self) -> MetadataLog:
        return open_metadata(self.stores, self.root, self.clock, self.ids, shared=self._shared_metadata)

    def _where_metadata_is(self) -> str:
        """What to do about a root without metadata."""
        below = f"{self.root.rstrip('/')}/{METADATA_FOLDER}"
        if self.stores.objects(self.root).list(f"{METADATA_FOLDER}/{METADATA_COMMITS}"):
            return f"This is a cluster's folder: use its metadata root, {below}"
        return f"Give the cluster's metadata root, mostly the folder {METADATA_FOLDER} beside the brokers' roots"

    @property
    def image(self) -> ClusterImage:
        """The fold as of the last refresh."""
        return self.metadata.image

    def refresh(self, max_age_ms: int = 0) -> bool:
        """Fold new metadata unless that was less than `max_age_ms` ago; True when something changed.

        With 0, all that was committed before the call is folded. With an age nothing is waited for: while another
        thread folds, the image is used as it is.
        """
        before = self.metadata_version
        if not max_age_ms:
            self._folds.run()
        elif self.is_older_than(max_age_ms):
            self._folds.run_if_free()
        return self.metadata_version != before

    def is_older_than(self, max_age_ms: int) -> bool:
        """Whether metadata was last folded so long ago, or may have been committed since (`expect_commit`)."""
        folded_ms = self._folded_ms
        return folded_ms is None or self.clock.monotonic_ms() - folded_ms >= max_age_ms

    def _fold(self) -> None:
        now_ms = self.clock.monotonic_ms()
        self._folded_ms = now_ms  # before the read: a `wait` that hears of a later commit must not be overruled
        try:
            changed = bool(self.metadata.refresh())
        except TableReplacedError as reason:
            changed = self._refold(reason)
        except BaseException:
            self._folded_ms = None
            raise
        if changed:
            self._forget_topology()

    def _refold(self, reason: TableReplacedError) -> bool:
        """The metadata root lost its newest commits, which this view had folded, as in a power cut before their sync.
        Always True: the image is another."""
        _LOG.warning("folding the metadata log again: %s", reason)
        metadata = self._open_metadata()
        metadata.refresh()
        self.metadata = metadata
        self.progress.clear()
        return True

    def _forget_topology(self) -> None:
        self.metadata_version += 1
        self._partitions, self._available = {}, {}
        self.progress.all_moved()

    def propose(self, decide: Callable[[ClusterImage], Result[T]]) -> T:
        """Decide on the newest metadata image and commit the records, as the admin client does."""
        with self._folds.lock:
            try:
                response = self.metadata.propose(decide)
            except TableReplacedError as reason:  # nothing was committed
                self._refold(reason)
                response = self.metadata.propose(decide)
            self._forget_topology()
            return response

    def topics(self) -> list[str]:
        """All topics by name."""
        self.refresh()
        return sorted(self.image.topic_ids)

    def partitions(self, topic: str) -> tuple[TopicPartition, ...]:
        """The topic's partitions in order. UnknownTopicOrPartitionError when there is no such topic."""
        found = self._partitions.get(topic)
        if found is not None:
            return found
        self.refresh()
        known = self._partitions  # a fold that changes something puts another one there
        found = tuple(self.image.partitions_of(topic)) if topic in self.image.topic_ids else ()
        if not found:
            raise UnknownTopicOrPartitionError(f"topic '{topic}' does not exist")
        known[topic] = found
        return found

    def available_partitions(self, topic: str) -> tuple[int, ...]:
        """Numbers of the topic's partitions that have a leader, as of the last refresh."""
        found = self._available.get(topic)
        if found is not None:
            return found
        partitions, known = self.partitions(topic), self._available
        states = [self.image.partitions.get(tp) for tp in partitions]
        found = tuple(state.partition for state in states if state is not None and state.leader != NO_LEADER)
        known[topic] = found
        return found

    def partition_count(self, topic: str) -> int:
        """As of the last refresh; 0 of an unknown topic."""
        return len(self.image.partitions_by_topic.get(topic, ()))

    def topic_name(self, topic_id: str) -> str | None:
        """As of the last refresh; None for an unknown id."""
        return next((name for name, known in self.image.topic_ids.items() if known == topic_id), None)

    def partition_racks(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
        """The racks of the replicas of the topics' partitions, without those of brokers that have none."""
        image = self.image
        rack_of = {broker: state.registration.rack for broker, state in image.brokers.items()}
        return {
            tp: frozenset(rack for each in image.partitions[tp].replicas if (rack := rack_of.get(each)))
            for topic in topics
            for tp in image.partitions_of(topic)
        }

    def partition_state(self, topic_partition: TopicPartition) -> PartitionRecord:
        """Leader, ISR and epochs as of the last refresh. UnknownTopicOrPartitionError when unknown even after one."""
        if topic_partition not in self.image.partitions:
            self.refresh()
        return self.image.partition(topic_partition)

    def leader(self, topic_partition: TopicPartition) -> int:
        """The leader's broker id as of the last refresh, -1 when there is none."""
        return self.partition_state(topic_partition).leader

    def leader_root(self, topic_partition: TopicPartition) -> str | None:
        """The leader's root as of the last refresh; None when there is none."""
        leader = self.image.brokers.get(self.leader(topic_partition))
        return None if leader is None else leader.registration.root

    def leader_progress(self, broker_id: int) -> LeaderEntries | None:
        """What this broker's present registration publishes; None for a broker that is not known."""
        return self.progress.of(self.image.brokers.get(broker_id))

    def topic_config(self, topic: str, broker_id: int | None = None) -> LogConfig:
        """The topic's configs as of the last refresh; `broker_id`: as that broker has them."""
        return LogConfig.from_properties(self.image.topic_config(topic, broker_id))

    def log_id(self, state: PartitionRecord) -> LogId:
        """Which log the partition's offsets are of."""
        return state.topic_partition, self.image.topic_ids.get(state.topic, ""), state.unclean

    def expect_commit(self) -> None:
        """Metadata may have been committed: the next `refresh` reads, whatever age it allows."""
        self._folded_ms = None
