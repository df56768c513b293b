"""One partition as its leader sees it: followers' log ends, the high watermark, ISR expand and ISR shrink. Pure.

The rules of Kafka's `Partition`: the broker feeds it what it appended and what the followers published, and asks it
what is committed (promise 17) and which ISR it wants. A follower that caught up joins the ISR, one that lags leaves it.
The changes of all partitions go into one commit, which `controller.brokers.alter_partition` checks.

In a storage domain replicas share a table. Those that have the leader's never lag, and each live one joins that did not
report that it cannot reach it; where all have it, what it stores is committed. The others wait for the tables of the
ISR: what one of them has copied, all that share its table have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from stratalog.replication.controller.brokers import IsrChange
from stratalog.replication.controller.election.eligible_leaders import effective_min_isr
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.progress.progress import UNKNOWN, ReplicaProgress
from stratalog.storage.records import IdentifiedPartition


@dataclass(slots=True)
class FollowerState:
    """A follower as known to the leader of this epoch; UNKNOWN until it published under this very epoch."""

    log_end_offset: int = UNKNOWN
    last_caught_up_ms: int | None = None
    log_start_offset: int = UNKNOWN


def counts_for_epoch(progress: ReplicaProgress, leader_epoch: int) -> bool:
    """Rule (c), promise 8: only progress of exactly the leader's own epoch counts.

    A replica that already follows a newer leader may hold other records at these offsets.
    """
    return progress.leader_epoch == leader_epoch


class Partition:
    """The leader's side of one leader epoch; every epoch has a new one.

    min_insync_replicas   the topic's; changes with it
    held_by_isr           up to where the ISR has the log: the high watermark, if the ISR is large enough
    """

    def __init__(
        self,
        state: PartitionRecord,
        broker_id: int,
        epoch_start_offset: int,
        log_start_offset: int,
        now_ms: int,
        min_insync_replicas: int = 1,
    ) -> None:
        self.broker_id = broker_id
        self.min_insync_replicas = min_insync_replicas
        self.leader_epoch = state.leader_epoch
        self.epoch_start_offset = epoch_start_offset
        self.log_end_offset = epoch_start_offset
        self.log_start_offset = log_start_offset
        self.high_watermark = UNKNOWN
        self.held_by_isr = UNKNOWN
        self.state = state
        self.joining: frozenset[int] = frozenset()
        self._sharing: set[int] = set()
        """Those with the leader's table, itself among them."""
        self.followers: dict[int, FollowerState] = {}
        self._update_members(now_ms)

    @property
    def isr(self) -> tuple[int, ...]:
        """The committed ISR: `min.insync.replicas` is checked on it."""
        return self.state.isr

    @property
    def maximal_isr(self) -> set[int]:
        """The committed ISR and all replicas whose joining is under way or not known to have failed.

        The high watermark waits for all of them: whichever ISR turns out to be committed, its members have it.
        """
        return set(self.state.isr) | self.joining

    @property
    def commits_alone(self) -> bool:
        """Whether this leader is the whole ISR, and that is large enough: what it stores is committed."""
        if self.state.has_one_table:
            return True
        return self.maximal_isr <= self._sharing and not self.is_under_min_isr

    def update_state(self, state: PartitionRecord, now_ms: int) -> None:
        """A newer committed state of the same leader epoch: it decides every change that was under way."""
        if state.partition_epoch < self.state.partition_epoch:
            return
        self.state = state
        self.joining = frozenset()
        self._update_members(now_ms)

    def _update_members(self, now_ms: int) -> None:
        self._sharing = set(self.state.sharing(self.broker_id))
        for replica in self.state.replicas:
            if replica == self.broker_id or replica in self.followers:
                continue
            in_sync = replica in self.state.isr
            others = (self.followers.get(r) for r in self.state.sharing(replica))
            known = next(filter(None, others), FollowerState(last_caught_up_ms=now_ms if in_sync else None))
            self.followers[replica] = replace(known)
        for replica in set(self.followers) - set(self.state.replicas):
            del self.followers[replica]

    def appended(self, log_end_offset: int, now_ms: int) -> None:
        """The leader's own log grew. A follower that had all of it was caught up until now."""
        for follower in self.followers.values():
            if follower.log_end_offset >= self.log_end_offset:
                follower.last_caught_up_ms = now_ms
        self.log_end_offset = log_end_offset

    def follower_progressed(self, replica: int, progress: ReplicaProgress, now_ms: int) -> bool:
        """Record a follower's published log end; False when it does not count (rule (c)) or is nothing new."""
        if replica not in self.followers or not counts_for_epoch(progress, self.leader_epoch):
            return False
        sharing = [self.followers[r] for r in self.state.sharing(replica) if r in self.followers]
        moved = [self._progressed(each, progress, now_ms) for each in sharing]
        return True in moved

    def _progressed(self, follower: FollowerState, progress: ReplicaProgress, now_ms: int) -> bool:
        follower.log_start_offset = max(follower.log_start_offset, progress.log_start_offset)
        if progress.log_end_offset <= follower.log_end_offset:
            return False
        follower.log_end_offset = progress.log_end_offset
        if follower.log_end_offset >= self.log_end_offset:
            follower.last_caught_up_ms = now_ms
        return True

    def low_watermark(self, log_start_offset: int, live: Collection[int]) -> int:
        """The least log start offset of the leader and its live followers (Kafka's lowWatermarkIfLeader).

        Leader at 8, live followers at 8 and 5: it is 5. UNKNOWN while a live follower has published nothing.
        """
        others = (f for r, f in self.followers.items() if r in live and r not in self._sharing)
        return min([log_start_offset, *(follower.log_start_offset for follower in others)])

    def forget_follower(self, replica: int, now_ms: int) -> None:
        """The follower was fenced or came up again: it has to publish again what it holds. Until then it does not join,
        and outside the ISR it is not waited for."""
        if self.followers.pop(replica, None):
            self._update_members(now_ms)

    def maybe_increment_high_watermark(self, now_ms: int, lag_ms_max: int) -> bool:
        """Raise the high watermark to the least log end of the maximal ISR and of those about to join it.

        Leader at 8, ISR followers at 8 and 6: the high watermark is 6. It stays where it is

        - until it can reach the epoch's start offset (KIP-207): so it never goes back under clean elections;
        - while the ISR is under `min.insync.replicas` (KIP-966): a replica that left it may still be elected. But what
          lies below the log's start is committed in any case.
        """
        if self.state.has_one_table:
            return self._commit_all()
        waited_for = self.maximal_isr | {r for r in self.followers if self._is_about_to_join(r, now_ms, lag_ms_max)}
        log_ends = [self.followers[r].log_end_offset for r in waited_for - self._sharing if r in self.followers]
        candidate = min([self.log_end_offset, *log_ends])
        if candidate < self.epoch_start_offset:
            return False
        self.held_by_isr = max(self.held_by_isr, candidate)
        if self.is_under_min_isr:
            candidate = self.log_start_offset if self.log_start_offset >= self.epoch_start_offset else UNKNOWN
        if candidate <= self.high_watermark:
            return False
        self.high_watermark = candidate
        return True

    def _commit_all(self) -> bool:
        """The table is everybody's, so its end is committed."""
        if self.log_end_offset <= self.high_watermark:
            return False
        self.held_by_isr = self.high_watermark = self.log_end_offset
        return True

    @property
    def is_under_min_isr(self) -> bool:
        """Whether the committed ISR is too small for anything to be committed."""
        return len(self.isr) < effective_min_isr(self.state.replicas, self.min_insync_replicas)

    def _is_about_to_join(self, replica: int, now_ms: int, lag_ms_max: int) -> bool:
        follower = self.followers[replica]
        if follower.last_caught_up_ms is None or follower.log_end_offset == UNKNOWN:
            return False
        return now_ms - follower.last_caught_up_ms <= lag_ms_max

    def out_of_sync(self, now_ms: int, lag_ms_max: int) -> set[int]:
        """ISR followers that have not been caught up for longer than `replica.lag.time.max.ms` (Kafka:
        `getOutOfSyncReplicas`)."""
        followers = ((r, self.followers[r]) for r in self.isr if r in self.followers and r not in self._sharing)
        return {r for r, follower in followers if self._lags(follower, now_ms, lag_ms_max)}

    def _lags(self, follower: FollowerState, now_ms: int, lag_ms_max: int) -> bool:
        if follower.log_end_offset >= self.log_end_offset:
            return False
        return follower.last_caught_up_ms is None or now_ms - follower.last_caught_up_ms > lag_ms_max

    def may_join(self, live: Iterable[int], *, again: bool = False) -> set[int]:
        """Followers outside the ISR whose log reached the high watermark and the epoch's start.

        again   also those whose joining was tried and whose outcome is not known
        While the ISR is under `min.insync.replicas` the high watermark does not rise. They must have what the ISR holds
        then, or a follower that stopped would join again and again.
        """
        if self.held_by_isr == UNKNOWN:
            return set()
        needed = max(self.held_by_isr, self.epoch_start_offset)
        outside = (set(self.followers) & set(live)) - (set(self.isr) if again else self.maximal_isr)
        ready = {r for r in outside if r in self._sharing or self.followers[r].log_end_offset >= needed}
        return ready - set(self.state.offline)

    def begin_joining(self, replicas: Iterable[int]) -> None:
        """From now until the outcome is known the high watermark waits for these too."""
        self.joining = self.joining | frozenset(replicas)

    def end_joining(self) -> None:
        """The change is known not to be committed."""
        self.joining = frozenset()

    def has_enough_replicas(self, min_insync_replicas: int) -> bool:
        """Whether the committed ISR has `min.insync.replicas` members, or all replicas where there are fewer.
        Kafka's `Partition.effectiveMinIsr`."""
        return len(self.isr) >= effective_min_isr(self.state.replicas, min_insync_replicas)


# -- ISR expand and ISR shrink ----------------------------------------------------------------------------

WantedIsr = tuple[Partition, tuple[int, ...]]
"""A partition, and the ISR that its leader wants for it."""


def isr_expansions(partitions: Iterable[Partition], live: Collection[int], *, again: bool = False) -> list[WantedIsr]:
    """ISR expand (Kafka: `maybeExpandIsr`): new ISRs with the followers that may join. From here on the high watermark
    waits for them, whatever becomes of the commit.

    again   also for followers whose joining was tried and whose outcome is not known
    """
    wanted: list[WantedIsr] = []
    for partition in partitions:
        if joining := partition.may_join(live, again=again):
            partition.begin_joining(joining)
            wanted.append((partition, tuple(sorted({*partition.isr, *joining}))))
    return wanted


def isr_shrinks(partitions: Iterable[Partition], now_ms: int, lag_ms_max: int) -> list[WantedIsr]:
    """ISR shrink (Kafka: `maybeShrinkIsr`): new ISRs without the followers that are out of sync."""
    lagging = [(partition, partition.out_of_sync(now_ms, lag_ms_max)) for partition in partitions]
    return [(partition, tuple(r for r in partition.isr if r not in left)) for partition, left in lagging if left]


def isr_changes(
    partitions: Sequence[Partition], live: Collection[int], now_ms: int, lag_ms_max: int
) -> list[WantedIsr]:
    """The periodic check of all partitions; each changes in one direction at a time, and growing comes first."""
    expanding = isr_expansions(partitions, live, again=True)
    changing = {partition.state.topic_partition for partition, _ in expanding}
    rest = [partition for partition in partitions if partition.state.topic_partition not in changing]
    return expanding + isr_shrinks(rest, now_ms, lag_ms_max)


def proposed_isr(
    partition: Partition, topic_id: str, isr: tuple[int, ...], broker_epochs: Mapping[int, int]
) -> IsrChange:
    """The proposal to the metadata log. `broker_epochs`: the registration under which each follower's progress was
    read."""
    state = partition.state
    named = IdentifiedPartition(topic_id, state.topic_partition)
    return IsrChange(named, partition.leader_epoch, state.partition_epoch, isr, broker_epochs)
