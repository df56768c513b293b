"""What the parts of a broker's loop share: its turn, the newest metadata, the replicas that it hosts.

I/O: through what it holds. One thread uses it, that of the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stratalog.replication.broker.hosted_replicas import HostedReplicas
from stratalog.replication.broker.turn import Turn
from stratalog.replication.config import BrokerConfig
from stratalog.replication.leader.replica import LeaderReplica
from stratalog.replication.metadata.log import MetadataLog
from stratalog.replication.progress.led_here import LedHere
from stratalog.replication.stores import Together
from stratalog.storage.clock import Clock
from stratalog.storage.errors import LogDirNotFoundError, StoreError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.records import TopicPartition

_LOG = line_logger("stratalog.broker")


@dataclass(frozen=True, slots=True)
class LoopState:
    """One broker's.

    objects   the broker's own root
    together  makes the calls to it that a turn needs for several partitions
    led_here  tells readers of this process what this broker leads in storage domains; None: there are none
    turn      what is to be done, in this turn or a later one. Invariant: what a store that was away prevented is in it
    """

    broker_id: int
    config: BrokerConfig
    clock: Clock
    objects: ObjectStore
    together: Together
    metadata: MetadataLog
    hosted: HostedReplicas
    led_here: LedHere | None = None
    turn: Turn = field(default_factory=Turn)

    @property
    def leaders(self) -> dict[TopicPartition, LeaderReplica]:
        """The replicas that this broker leads, started or not."""
        return self.hosted.leaders

    def attempt(self, part: Callable[[], bool | None]) -> bool:
        """One part of a turn. A store that is away stops only what needs it; epochs decide what is safe."""
        try:
            return bool(part())
        except (StoreError, LogDirNotFoundError) as reason:
            _LOG.warning("broker %d, trying again: %s", self.broker_id, reason)
            return False

    def raise_high_watermark(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Let the high watermark follow the maximal ISR. It is published at the turn's end, then requests complete."""
        replica, lag_ms_max = self.leaders.get(topic_partition), self.config.replica_lag_time_max_ms
        if replica and replica.partition and replica.partition.maybe_increment_high_watermark(now_ms, lag_ms_max):
            self.turn.to_publish.add(topic_partition)
        self.turn.to_complete.add(topic_partition)
