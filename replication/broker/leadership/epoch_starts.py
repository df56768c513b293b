"""The starts of the leader epochs for which a broker was elected: the first commits of its leaders.

I/O: the replicas' logs, and the metadata log where another replica is to lead. After a loss of power the replica with
the longest log leads: see `longest_log`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from stratalog.replication import cadence
from stratalog.replication.broker.isr_changes import IsrChanges
from stratalog.replication.broker.leadership.log_ends import LogEnds
from stratalog.replication.broker.loop_state import LoopState
from stratalog.replication.broker.own_tables import STATE_CHANGE_LOG
from stratalog.replication.broker.polls import Polls
from stratalog.replication.broker.registration import Registration
from stratalog.replication.controller.brokers import hand_to_longer_log
from stratalog.replication.internal_topics import is_internal
from stratalog.replication.leader.replica import LeaderReplica
from stratalog.storage.errors import InconsistentTopicIdError, StaleBrokerEpochError, StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.together import in_groups
from stratalog.storage.records import TopicPartition

_LOG = line_logger("stratalog.broker")


class EpochStarts:
    """`log_ends` compares the logs of replicas that are unsure after a loss of power."""

    def __init__(
        self, loop: LoopState, polls: Polls, registration: Registration, isr_changes: IsrChanges, log_ends: LogEnds
    ) -> None:
        self.log_ends = log_ends
        self._loop = loop
        self._polls = polls
        self._registration = registration
        self._isr_changes = isr_changes

    @property
    def has_left(self) -> bool:
        """Whether a leader that is to start has not yet."""
        leaders = self._loop.leaders
        return any(tp in leaders and leaders[tp].is_starting for tp in self._loop.turn.to_start)

    def begin(self, now_ms: int) -> bool:
        """Begin leader epochs, for a while; True when some began. Those of internal topics are last: there are many,
        and who asks a coordinator asks again, while records wait for the others."""
        loop, moved = self._loop, False
        in_order = sorted(loop.turn.to_start, key=lambda each: is_internal(each.topic))
        for topic_partitions in in_groups(in_order, loop.together.distance.calls_max):
            moved |= self._begin_some(topic_partitions, now_ms)
            if loop.clock.monotonic_ms() - now_ms >= cadence.EPOCH_STARTS.ms:
                break
        return moved

    def _begin_some(self, topic_partitions: Sequence[TopicPartition], now_ms: int) -> bool:
        """Begin the leader epochs of these partitions, as far as they can."""
        loop = self._loop
        starting: list[LeaderReplica] = []
        for topic_partition in topic_partitions:
            replica = loop.leaders.get(topic_partition)
            if replica is None or not replica.is_starting:
                del loop.turn.to_start[topic_partition]  # it stopped leading meanwhile
            elif loop.attempt(partial(self._has_longest_log, replica, now_ms)) and replica.may_start(now_ms):
                starting.append(replica)
        moved = False
        outcomes = loop.together.run([replica.begin_epoch for replica in starting])
        for replica, outcome in zip(starting, outcomes, strict=True):
            moved |= self._start_leading(replica, outcome, now_ms)
            if not replica.is_starting:
                loop.turn.to_start.pop(replica.state.topic_partition, None)
        return moved

    def _start_leading(self, replica: LeaderReplica, outcome: bool | StratalogError, now_ms: int) -> bool:
        loop, topic_partition = self._loop, replica.state.topic_partition
        try:
            if not replica.started(outcome, now_ms):
                return False
        except InconsistentTopicIdError as reason:
            # The table is of a deleted topic of this name: remove it, if the newest metadata agrees.
            loop.turn.applies_all = True
            loop.metadata.refresh_image()
            if loop.metadata.image.topic_ids.get(topic_partition.topic) == replica.topic_id:
                loop.hosted.tables.drop_stray(replica.log.table, replica.log.topic_id, reason)
            return False
        loop.turn.to_publish.add(topic_partition)
        self._isr_changes.progressed(self._isr_changes.followers.known(topic_partition), now_ms)
        loop.raise_high_watermark(topic_partition, now_ms)
        return True

    def _has_longest_log(self, replica: LeaderReplica, now_ms: int) -> bool:
        """True: this replica may begin its epoch. False while others are waited for, or when another one is to lead."""
        loop, broker_epoch = self._loop, self._registration.broker_epoch
        comparison = self.log_ends.compare(replica, loop.metadata.image, now_ms)
        longer = comparison.longer
        if longer is None:
            return comparison.is_over
        if not self.log_ends.end_earlier_epochs(replica):
            return False
        try:
            is_handed = loop.metadata.propose(
                lambda image: hand_to_longer_log(image, loop.broker_id, broker_epoch, longer)
            )
        except StaleBrokerEpochError as reason:
            _LOG.info("broker %d: %s", loop.broker_id, reason)
            return False
        if is_handed:
            self.log_ends.decided(longer.partition.topic_partition)
            STATE_CHANGE_LOG.warning(
                "[Broker %d] %s: after a loss of power the log of broker %d is the longest, it leads",
                loop.broker_id,
                longer.partition.topic_partition,
                longer.broker_id,
            )
        self._polls.read_metadata_at(now_ms)
        return False
