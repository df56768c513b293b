"""Callbacks of an application when its partitions are assigned, revoked or lost. Pure."""

from __future__ import annotations

from stratalog.storage.records import TopicPartition


class ConsumerRebalanceListener:
    """Called within `Consumer.poll`, `unsubscribe` and `close`, on their thread; override the methods you need.

    In them `commit_sync`, `seek` and `position` may be used. Kafka's ConsumerRebalanceListener (KIP-429).
    """

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        """After a rebalance: the new partitions, possibly none. Their positions are not decided yet."""

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """Before partitions move to other members: offsets can still be committed. Auto-commit was before this call."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        """Partitions that other members may own already, so their offsets cannot be committed."""
        self.on_partitions_revoked(partitions)
