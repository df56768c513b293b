"""What a broker's loop learns of followers, and the ISR changes that it proposes (Kafka's AlterPartition).

I/O: followers' progress, the metadata log. The rules are `leader.partition` (who is in sync) and `controller.brokers`
(`alter_partition`, `report_offline`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from stratalog.replication import cadence
from stratalog.replication.broker.leadership.domain_returns import DomainReturns
from stratalog.replication.broker.loop_state import LoopState
from stratalog.replication.broker.polls import Polls
from stratalog.replication.broker.registration import Registration
from stratalog.replication.controller.brokers import OfflineReplica, alter_partition, report_offline
from stratalog.replication.leader.partition import isr_changes, isr_expansions, proposed_isr
from stratalog.replication.metadata.records import MetadataRecord, PartitionRecord, RegisterBrokerRecord
from stratalog.replication.progress.follower_watch import FollowerWatch
from stratalog.replication.progress.progress import ReplicaProgress
from stratalog.storage.errors import StaleBrokerEpochError, StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import TopicPartition

_LOG = line_logger("stratalog.broker")

REACH_CHECKS = 6
"""Checks of the led replicas in storage domains within the time after which one gives way."""


class IsrChanges:
    """`followers` are those of all partitions that are led here. `follow_metadata` folds what was proposed."""

    def __init__(
        self,
        loop: LoopState,
        polls: Polls,
        registration: Registration,
        followers: FollowerWatch,
        follow_metadata: Callable[[int], None],
    ) -> None:
        self.followers = followers
        self._loop = loop
        self._polls = polls
        self._registration = registration
        self._follow_metadata = follow_metadata
        self._offline_due_ms = 0
        """When offline replicas are reported again. Invariant: at most one report in an interval."""
        self._returns = DomainReturns(loop, registration, follow_metadata)
        self._reach_ms = loop.config.broker_session_timeout_ms // cadence.DOMAIN_UNANSWERED_PART
        self._reach_due_ms = 0
        self._unopened: set[TopicPartition] = set()
        """Those that were to be led here, and whose storage domain has no directory here."""

    def follow(self, now_ms: int) -> bool:
        """Take in what followers have published since the last call; True when some of it counts."""
        return self.progressed(self.followers.poll(now_ms), now_ms)

    def progressed(self, published: Iterable[tuple[int, ReplicaProgress]], now_ms: int) -> bool:
        """Take in this progress of followers, by broker id; True when some of it counts."""
        loop = self._loop
        moved: set[TopicPartition] = set()
        for broker_id, progress in published:
            replica = loop.leaders.get(progress.topic_partition)
            if replica is None or replica.partition is None or replica.topic_id != progress.topic_id:
                continue
            if replica.partition.follower_progressed(broker_id, progress, now_ms):
                moved.add(progress.topic_partition)
        for topic_partition in moved:
            loop.raise_high_watermark(topic_partition, now_ms)
            self._polls.followers_progressed(now_ms)
        loop.turn.to_expand |= moved
        return bool(moved)

    def metadata_changed(self, changed: Collection[MetadataRecord]) -> None:
        """Brokers registered, or can reach a storage domain again: those that have a leader's table there are in sync
        from now on."""
        self._returns.metadata_changed(changed)
        states = [each for each in changed if isinstance(each, PartitionRecord)]
        if any(isinstance(each, RegisterBrokerRecord) for each in changed):
            states += [replica.state for replica in self._loop.leaders.values()]
        own = self._loop.broker_id
        self._loop.turn.to_expand |= {
            each.topic_partition for each in states if any(r not in each.isr for r in each.sharing(own))
        }

    def propose(self) -> None:
        """Propose the ISR changes of all partitions in one piece; until the outcome is known the maximal ISR holds."""
        loop, turn = self._loop, self._loop.turn
        moved, turn.to_expand = turn.to_expand, set()
        lag_ms_max = loop.config.replica_lag_time_max_ms
        is_due = self._polls.is_due("isr", turn.begun_ms, max(lag_ms_max // 2, 1))
        if not moved and not is_due:
            return
        checked = loop.leaders.values() if is_due else (loop.leaders[tp] for tp in moved if tp in loop.leaders)
        led = [replica.partition for replica in checked if replica.partition is not None]
        live = loop.metadata.image.live_brokers()
        wanted = isr_changes(led, live, turn.begun_ms, lag_ms_max) if is_due else isr_expansions(led, live)
        if not wanted:
            return
        caught_up, registered = self.followers.broker_epochs(), {i: each.broker_epoch for i, each in live.items()}
        proposed = [
            proposed_isr(
                partition,
                loop.leaders[partition.state.topic_partition].topic_id,
                isr,
                caught_up | {r: epoch for r, epoch in registered.items() if partition.state.domain_of(r)},
            )
            for partition, isr in wanted
        ]
        broker_epoch = self._registration.broker_epoch
        try:
            loop.metadata.propose(lambda image: alter_partition(image, loop.broker_id, broker_epoch, proposed))
        except StaleBrokerEpochError as reason:
            _LOG.info("broker %d: %s", loop.broker_id, reason)
        now_ms = loop.clock.monotonic_ms()
        self._follow_metadata(now_ms)
        for partition, _ in wanted:
            partition.end_joining()
            loop.raise_high_watermark(partition.state.topic_partition, now_ms)

    def cannot_open(self, topic_partition: TopicPartition, reason: StratalogError) -> None:
        """The storage domain of a partition is not there: another replica is to lead."""
        _LOG.warning("%s on broker %d, trying again: %s", topic_partition, self._loop.broker_id, reason)
        self._unopened.add(topic_partition)

    def report_offline(self, now_ms: int) -> None:
        """Report replicas that cannot be served from this broker's storage: others of the ISR should lead them. And
        those in storage domains that can be served again."""
        loop = self._loop
        if now_ms >= self._reach_due_ms:
            self._reach_due_ms = now_ms + self._reach_ms // REACH_CHECKS
            loop.hosted.give_way(now_ms, self._reach_ms)
        self._returns.step(now_ms)
        if not (loop.hosted.offline or self._unopened) or now_ms < self._offline_due_ms:
            return
        self._offline_due_ms = now_ms + cadence.OFFLINE_REPORTED.ms
        image, broker_epoch = loop.metadata.image, self._registration.broker_epoch
        states = (image.partitions[tp] for tp in sorted(self._unopened) if tp in image.partitions)
        unopened = [OfflineReplica(image.identified(each.topic_partition), each.partition_epoch) for each in states]
        offline = [*loop.hosted.offline_replicas(), *unopened]
        self._unopened.clear()  # the next try to open them finds them again
        loop.metadata.propose(lambda image: report_offline(image, loop.broker_id, broker_epoch, offline))
        self._follow_metadata(now_ms)
