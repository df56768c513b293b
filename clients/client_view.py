"""What clients need to know of a cluster, wherever they know it from: storage, or brokers. I/O: that of the views.

`server.view.cluster_view.ClusterView` reads storage, `clients.wire.view.WireView` asks brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.stores import Stores
from stratalog.server.offset_spec import ListedOffset, OffsetAndTimestamp, OffsetSpec
from stratalog.server.view.leader_progress import Watermarks
from stratalog.server.view.records import Fetched
from stratalog.storage.clock import Clock, Ids
from stratalog.storage.records import TopicPartition

Item = TypeVar("Item")


class ReadableBounds(Protocol):
    """The readable bounds of partitions; `server.view.watermarks.PublishedWatermarks` has the words on each call."""

    def of(
        self, topic_partition: TopicPartition, timeout_ms: int | None = None, *, needs_end: bool = True
    ) -> Watermarks: ...

    def published(self, topic_partition: TopicPartition, *, poll: bool = True) -> Watermarks | None: ...

    def published_now(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks | None]: ...


class OffsetLookUps(Protocol):
    """First and last offsets, and those of timestamps; `server.view.offsets.ViewOffsets` has the words."""

    def readable_end(self, topic_partition: TopicPartition, marks: Watermarks, /) -> int: ...

    def beginning_offsets(
        self, topic_partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]: ...

    def end_offsets(
        self, topic_partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]: ...

    def offset_for_timestamp(
        self, topic_partition: TopicPartition, timestamp_ms: int, timeout_ms: int | None = None
    ) -> OffsetAndTimestamp | None: ...

    def list_offset(
        self, topic_partition: TopicPartition, spec: OffsetSpec, timeout_ms: int | None = None
    ) -> ListedOffset: ...


class RecordReads(Protocol):
    """Committed records; `server.view.records.CommittedRecords` has the words."""

    def fetch(
        self,
        topic_partition: TopicPartition,
        offset: int,
        max_bytes: int,
        end_offset: int | None = None,
        timeout_ms: int | None = None,
        *,
        decoded_bytes_max: int | None = None,
    ) -> Fetched: ...

    def any_at_once(self, look: Callable[[Item], bool], items: Iterable[Item]) -> bool: ...


class ViewChanges(Protocol):
    """What changed since a reader last asked; `server.view.progress_changes.ProgressChanges` has the words."""

    def poll(self) -> None: ...

    def moved_since(self, sequence: int) -> tuple[int, list[TopicPartition] | None]: ...

    def wait(self, timeout_ms: float, poll_ms: float) -> None: ...

    def wake(self) -> None: ...


class ClientView(Protocol):
    """A cluster as producers, consumers and administrators see it.

    root    what names the cluster in messages: its metadata root, or brokers' addresses
    stores  of clients that call brokers through storage
    """

    root: str
    clock: Clock
    ids: Ids
    stores: Stores

    @property
    def image(self) -> ClusterImage: ...

    @property
    def watermarks(self) -> ReadableBounds: ...

    @property
    def offsets(self) -> OffsetLookUps: ...

    @property
    def records(self) -> RecordReads: ...

    @property
    def changes(self) -> ViewChanges: ...

    def refresh(self, max_age_ms: int = 0) -> bool: ...

    def producer_ids(self) -> Iterator[int]: ...

    def topics(self) -> list[str]: ...

    def partitions(self, topic: str) -> tuple[TopicPartition, ...]: ...

    def available_partitions(self, topic: str) -> tuple[int, ...]: ...

    def partition_count(self, topic: str) -> int: ...

    def topic_name(self, topic_id: str) -> str | None: ...

    def partition_racks(self, topics: Iterable[str]) -> Mapping[TopicPartition, frozenset[str]]: ...

    def partition_state(self, topic_partition: TopicPartition) -> PartitionRecord: ...

    def leader(self, topic_partition: TopicPartition) -> int: ...
