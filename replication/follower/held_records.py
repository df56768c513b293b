"""Which replicas of a broker are known to hold records: the evidence, should the log of one be absent.

I/O: reads what the broker's fetch sessions published, and the newest metadata.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext

from stratalog.replication import cadence
from stratalog.replication.follower.repair import has_had_a_table
from stratalog.replication.metadata.log import MetadataLog
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.progress.of_leader import FollowedLeader
from stratalog.replication.progress.of_session import held_by_sessions
from stratalog.replication.stores import Ports
from stratalog.storage.errors import FencedLeaderEpochError
from stratalog.storage.records import TopicPartition


class HeldRecords:
    """Of one registration of a broker, as one fetcher of it knows."""

    def __init__(self, broker_id: int, broker_epoch: int, root: str, metadata: MetadataLog, ports: Ports) -> None:
        self._broker_id, self._broker_epoch, self._root = broker_id, broker_epoch, root
        self._metadata = metadata
        self._ports = ports
        self._published: dict[TopicPartition, tuple[str, int]] = {}
        """The topic id and the last leader epoch under which this process published that a replica holds records."""
        self.reread()

    def reread(self) -> None:
        """What other sessions published is read again when it is needed next."""
        self._by_sessions: set[tuple[TopicPartition, str, int]] = set()
        self._read_ms = -cadence.HELD_READ.ms - 1

    @property
    def partitions(self) -> Iterable[TopicPartition]:
        """Those of which this process has published that they hold records."""
        return self._published.keys()

    def publishes(self, topic_partition: TopicPartition, topic_id: str, leader_epoch: int) -> None:
        """It is about to be published that this replica holds records."""
        self._published[topic_partition] = topic_id, leader_epoch

    def forget(self, topic_partition: TopicPartition) -> None:
        """What was published of this replica is no evidence any more."""
        self._published.pop(topic_partition, None)

    def is_relied_on(
        self, leaders: Iterable[FollowedLeader], state: PartitionRecord, topic_id: str, leader_end: int
    ) -> bool:
        """Whether the leader of this epoch, whose log ends at `leader_end`, may count on records of this replica: it
        was told that they are here, or has published a high watermark, which a member of the ISR has reached.

        The newest metadata tell. A session of an earlier registration, or one that has not heard that this replica
        joined the ISR, would put an empty table where another session's was. FencedLeaderEpochError: it is behind.
        Copies that are made side by side ask without the session's turn, and take it.
        """
        with self._ports.turn if self._ports.together.distance.is_far else nullcontext():
            topic_partition, epoch = state.topic_partition, state.leader_epoch
            has_published = self._has_published(topic_partition, topic_id, epoch)
            published = [leader.high_watermark(topic_partition, topic_id, epoch) for leader in list(leaders)]
            has_committed = max(published, default=-1) > 0
            if not (leader_end or has_published or has_committed):
                return False  # a new topic
            newest = self._newest(state)
            if has_published or (has_committed and self._broker_id in newest.isr):
                return True
            return leader_end > 0 and has_had_a_table(newest, self._broker_id)

    def _has_published(self, topic_partition: TopicPartition, topic_id: str, epoch: int) -> bool:
        """Whether this session or another one of this registration has published that the replica holds records."""
        if self._published.get(topic_partition) == (topic_id, epoch):
            return True
        now_ms = self._ports.clock.monotonic_ms()
        if now_ms - self._read_ms > cadence.HELD_READ.ms:
            self._by_sessions = held_by_sessions(self._ports.stores.objects(self._root), self._broker_epoch)
            self._read_ms = now_ms
        return (topic_partition, topic_id, epoch) in self._by_sessions

    def _newest(self, state: PartitionRecord) -> PartitionRecord:
        """The partition's state as it is committed now, under the same epoch. Raises FencedLeaderEpochError."""
        self._metadata.refresh_image()
        image = self._metadata.image
        if not image.is_current(self._broker_id, self._broker_epoch):
            raise FencedLeaderEpochError(f"registration {self._broker_epoch} of broker {self._broker_id} is over")
        newest = image.partitions.get(state.topic_partition)
        if newest is None or newest.leader_epoch != state.leader_epoch:
            raise FencedLeaderEpochError(f"{state.topic_partition}: epoch {state.leader_epoch}, newest: {newest}")
        return newest
