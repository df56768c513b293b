"""Topics, partitions, leaders and configs of a cluster, as the metadata log on storage shows them.

I/O: folds the metadata log. Its lock is held during a fold alone: the image is there without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from stratalog.replication.controller.producer_id_blocks import allocate_producer_ids
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.log import METADATA_COMMITS, METADATA_FOLDER, MetadataLog, open_metadata
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.replication.metadata.storage_domains import replica_root
from stratalog.replication.stores import Stores, client_stores
from stratalog.server.bootstrap import Cluster, root_of, shared_metadata_of
from stratalog.server.view.image_topology import ImageTopology
from stratalog.server.view.leader_progress import LeaderEntries, PublishedProgress, own_registers_of
from stratalog.server.view.shared_read import SharedRead, read_again
from stratalog.storage.clock import Clock, Ids, RandomIds, SystemClock
from stratalog.storage.errors import LogDirNotFoundError, TableReplacedError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import TopicPartition

_LOG = line_logger("stratalog.clients")

T = TypeVar("T")

LogId = tuple[TopicPartition, str, int]
"""A partition, the topic's id and the number of unclean elections: of one log id, an offset has one record for ever."""


class ClusterTopology(ImageTopology):
    """The newest image that was folded. Thread-safe; calls may block on storage.

    root      of the metadata
    progress  what leaders publish, which the image names
    """

    def __init__(
        self, cluster: Cluster, stores: Stores | None = None, clock: Clock | None = None, ids: Ids | None = None
    ) -> None:
        """`cluster`: as of `ClusterView`. Raises LogDirNotFoundError where there is no metadata."""
        super().__init__()
        self.root = root_of(cluster)
        self.clock = clock or SystemClock()
        self.ids = ids or RandomIds()
        self.stores = stores or client_stores(self.ids)
        self._shared_metadata = shared_metadata_of(cluster)
        self.metadata = self._open_metadata()
        self.progress = PublishedProgress(self.stores, own_registers_of(cluster))
        self._folds = SharedRead(self._fold)
        self._folded_ms: int | None = None
        """When the last fold began. Invariant: None where a commit is known that it may not have seen."""
        self.on_folded: Callable[[int], None] = lambda _offset: None
        """Called with the end of the metadata log when this view has folded more of it. It must not block."""
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
            self.on_folded(self.metadata.next_offset)

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
        super()._forget_topology()
        self.progress.all_moved()

    def propose(self, decide: Callable[[ClusterImage], Result[T]]) -> T:
        """Decide on the newest metadata image and commit the records, as the admin client does."""
        read_again()
        with self._folds.lock:
            try:
                response = self.metadata.propose(decide)
            except TableReplacedError as reason:  # nothing was committed
                self._refold(reason)
                response = self.metadata.propose(decide)
            self._forget_topology()
            self.on_folded(self.metadata.next_offset)
            return response

    def producer_ids(self) -> Iterator[int]:
        """A block of fresh ids of idempotent producers, which it commits; StopIteration behind the last one."""
        return iter(self.propose(allocate_producer_ids))

    def replica_root(self, topic_partition: TopicPartition, broker_id: int) -> str | None:
        """Below which the table of a replica lies, as of the last refresh; None for a broker that never registered.
        UnknownTopicOrPartitionError."""
        image = self.image
        return replica_root(image, image.partition(topic_partition), broker_id)

    def leader_root(self, topic_partition: TopicPartition) -> str | None:
        """Below which the leader's table lies, as of the last refresh; None when there is no leader."""
        leader = self.leader(topic_partition)
        return None if leader == NO_LEADER else self.replica_root(topic_partition, leader)

    def leader_progress(self, broker_id: int) -> LeaderEntries | None:
        """What this broker's present registration publishes; None for a broker that is not known."""
        return self.progress.of(self.image.brokers.get(broker_id))

    def log_id(self, state: PartitionRecord) -> LogId:
        """Which log the partition's offsets are of."""
        return state.topic_partition, self.image.topic_ids.get(state.topic, ""), state.unclean

    def expect_commit(self) -> None:
        """Metadata may have been committed: the next `refresh` reads, whatever age it allows."""
        self._folded_ms = None
