"""Topics, partitions and leaders, as an image of the metadata shows them.

I/O: only `refresh` of those who get the image: from storage (`server.view.topology`), or from brokers' answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.storage.errors import UnknownTopicOrPartitionError
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig


class ImageTopology(ABC):
    """What follows from the newest image. Thread-safe."""

    def __init__(self) -> None:
        self.metadata_version = 0
        """Counts the refreshes that changed the image. Invariant: what was made of the image holds while this stays."""
        self._partitions: dict[str, tuple[TopicPartition, ...]] = {}
        """Invariant: of the image of `metadata_version`, as `_available` is."""
        self._available: dict[str, tuple[int, ...]] = {}

    @property
    @abstractmethod
    def image(self) -> ClusterImage:
        """The newest image."""

    @abstractmethod
    def refresh(self, max_age_ms: int = 0) -> bool:
        """Get a newer image unless this one is younger than `max_age_ms`; True when something changed."""

    @abstractmethod
    def producer_ids(self) -> Iterator[int]:
        """Fresh ids of idempotent producers."""

    def _forget_topology(self) -> None:
        self.metadata_version += 1
        self._partitions, self._available = {}, {}

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
        known = self._partitions  # a refresh that changes something puts another one there
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

    def topic_config(self, topic: str, broker_id: int | None = None) -> LogConfig:
        """The topic's configs as of the last refresh; `broker_id`: as that broker has them."""
        return LogConfig.from_properties(self.image.topic_config(topic, broker_id))
