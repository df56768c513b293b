"""What a fetch session fetches from one leader: which partitions come next, their copies and their upkeep.

I/O: its wakeup, and through the replicas' logs.

Each leader has its own, and with `Ports.threads` a thread of its own, so that a leader's root that answers nothing
keeps no other leader's partitions waiting. Kafka: `ReplicaFetcherThread`, one for each leader broker.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from stratalog.replication import cadence
from stratalog.replication.follower.plan import CopyQueue
from stratalog.replication.follower.replica import FollowedReplica
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.progress.of_leader import FollowedLeader
from stratalog.replication.replica.upkeep_rounds import UpkeepRounds
from stratalog.replication.threads.turn_interval import TurnInterval
from stratalog.storage.cadence import BackOff, DueTimes
from stratalog.storage.clock import Clock
from stratalog.storage.errors import StratalogError
from stratalog.storage.objects.wakeup import Wakeup
from stratalog.storage.records import TopicPartition

CopyOutcome = bool | StratalogError | None
"""Of a copy: whether there may be more to do at once; why it failed; None: the tables are to be opened again."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A bounded part of a replica that is to be copied; `before`: what the session has copied of it so far."""

    replica: FollowedReplica
    max_bytes: int
    count_before: int
    bytes_before: int

    @property
    def topic_partition(self) -> TopicPartition:
        return self.replica.state.topic_partition

    def make(self) -> CopyOutcome:
        """Copy it, perhaps in a thread beside the others of a turn."""
        try:
            if not self.replica.has_started and not self.replica.stands():
                return None
            return self.replica.catch_up(self.max_bytes)
        except StratalogError as reason:
            return reason


class LeaderFetcher:
    """The work for one leader.

    wakeup        wakes who does it: its thread's own, or the session's
    queue         its partitions that have something to copy or are to be checked. It may name some that another
                  fetcher has by now: whoever takes them asks who does
    to_follow     partitions whose newest state it has to follow, with their topic ids
    to_fold       partitions whose tables a standby session folds ahead
    leaders       the leader's registrations, by broker epoch. Invariant: none is older than the newest one that
                  `prepare` has seen
    under_way     the partitions that are being worked on, perhaps waiting for a root. Invariant: empty between turns
    begun_ms      when the turn began that its thread is in; None between turns
    copied_count  its copies so far. Invariant: it never decreases
    changed_ms       when it last copied, or partitions were assigned to it. Invariant: it never decreases
    due           when its upkeep, and its folds ahead, are due
    rescanned     how many partitions rescans have checked, modulo their number
    """

    def __init__(self, leader_id: int, wakeup: Wakeup, clock: Clock, retry_ms: int) -> None:
        """`retry_ms`: the first pause after the leader's root did not answer."""
        self.leader_id = leader_id
        self.wakeup = wakeup
        self.queue = CopyQueue()
        self.turn_interval = TurnInterval()
        self.upkeep = UpkeepRounds(clock)
        self.to_follow: dict[TopicPartition, tuple[PartitionRecord, str]] = {}
        self.to_fold: OrderedDict[TopicPartition, None] = OrderedDict()
        self.leaders: dict[int, FollowedLeader] = {}
        self.back_off = BackOff(max(1, retry_ms), max(retry_ms, cadence.LEADER_RETRY_MOST.ms))
        self.rescan_ms = self.rescanned = 0
        self.under_way: frozenset[TopicPartition] = frozenset()
        self.begun_ms: int | None = None
        self.copied_count = 0
        self.changed_ms = clock.monotonic_ms()
        self.has_more_to_fold = True
        self.is_over = self.has_ended = False
        self.due = DueTimes()

    def drop(self, topic_partition: TopicPartition) -> None:
        """This partition is fetched from here no more."""
        self.to_follow.pop(topic_partition, None)
        self.to_fold.pop(topic_partition, None)

    def is_stuck(self, now_ms: int, turn_ms_max: int) -> bool:
        """Whether its turn takes longer than that: its leader's root answers nothing."""
        begun_ms = self.begun_ms
        return begun_ms is not None and now_ms - begun_ms >= turn_ms_max

    def close(self) -> None:
        """End its thread; a call that is under way is not waited for."""
        self.is_over = True
        self.wakeup.wake()
