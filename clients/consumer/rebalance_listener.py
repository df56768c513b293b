"""What an application is told when its partitions come and go. Pure."""

from __future__ import annotations

from stratalog.storage.records import TopicPartition


class ConsumerRebalanceListener:
    """Called within `Consumer.poll`, `unsubscribe` and `close`, on their thread; derive from it what you need.

    In them `commit_sync`, `seek` and `position` may be used. Kafka's ConsumerRebalanceListener (KIP-429).
    """

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        """These came; none at the end of a rebalance that brought nothing. Their positions are not decided yet."""

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """These are about to go to somebody else, and can be committed still. Auto-commit has done so before."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        """These went without being asked back: somebody else may have them, so they cannot be committed."""
        self.on_partitions_revoked(partitions)
