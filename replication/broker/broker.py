"""A broker: leads replicas, answers clients, keeps its session, follows the metadata log.

I/O: through its stores. `step` is one turn of a single-threaded loop; other threads only call `produce` and
`hand_over`, which put requests into a queue. The same loop runs in a thread, in a spark-submit driver and,
turn by turn, in the simulator. What it may do is decided elsewhere: in `leader_and_isr` (becoming leader or
follower), `partition` (ISR, high watermark), `purgatory` (acks=all), and in the decisions of `controller/`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from stratalog.replication.broker.calls import BrokerCalls
from stratalog.replication.broker.hosted_replicas import STATE_CHANGE_LOG, HostedReplicas
from stratalog.replication.broker.inbox import BrokerInbox
from stratalog.replication.broker_root import was_shut_down
from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.brokers import alter_partition, register_broker, report_offline, shut_down_broker
from stratalog.replication.controller.sessions import encode_session, session_path
from stratalog.replication.controller.topic_deletion import deleted_partitions
from stratalog.replication.coordinator.runtime.kinds import COORDINATOR_KINDS, CoordinatorKind
from stratalog.replication.coordinator.runtime.remote_appends import Appends
from stratalog.replication.coordinator.runtime.runtime import CoordinatorRuntime
from stratalog.replication.leader.append_queue import TURN_MS_MAX, AppendQueue
from stratalog.replication.leader.delete_records import RecordDeletions
from stratalog.replication.leader.partition import WantedIsr, all_isr_changes, expansions, isr_change
from stratalog.replication.leader.purgatory import ProducePurgatory
from stratalog.replication.leader.replica import LeaderReplica
from stratalog.replication.metadata.log import METADATA_COMMITS, open_metadata
from stratalog.replication.metadata.records import (
    NO_BROKER_EPOCH,
    ConfigRecord,
    EraseRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from stratalog.replication.progress.follower_watch import FollowerWatch
from stratalog.replication.progress.of_leader import LeaderProgress
from stratalog.replication.progress.progress import ReplicaProgress
from stratalog.replication.progress.progress_object import remove_old_progress
from stratalog.replication.replica.removal import ReplicaDeletions
from stratalog.replication.replica.upkeep_rounds import limits_of
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.hand_over import INBOX_PREFIX
from stratalog.replication.stores import Stores
from stratalog.replication.threads.turn_interval import TurnInterval
from stratalog.storage.clock import Clock, Ids
from stratalog.storage.errors import (
    BrokerNotAvailableError,
    DuplicateBrokerRegistrationError,
    InconsistentTopicIdError,
    StaleBrokerEpochError,
    StoreError,
    StratalogError,
)
from stratalog.storage.objects.wakeup import Wakeup, WatchedPlace
from stratalog.storage.records import TopicPartition
from stratalog.storage.upkeep.chore import UpkeepLimits

_LOG = logging.getLogger("stratalog.broker")

ANSWER_CLEAN_INTERVAL_MS = 60_000
OFFLINE_INTERVAL_MS = 1_000
DRAIN_MS_MAX = 10_000
START_MS_MAX = 50
"""Epochs of one turn begin within this time; their first commits are synced, and others wait meanwhile."""
WATCHED_POLL_MS = 1_000
"""How often what is watched is looked at all the same."""
RETRY_MS = 20
"""Pause while something waits for a store that is away."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Who a broker is: its id, its storage domain and the failure domain that it stands in."""

    broker_id: int
    root: str
    rack: str | None = None


class Broker(BrokerCalls):
    """One broker process. `start` registers it, `step` runs it, `shut_down` hands everything over."""

    def __init__(
        self,
        identity: BrokerIdentity,
        config: BrokerConfig,
        metadata_root: str,
        stores: Stores,
        clock: Clock,
        ids: Ids,
        *,
        topic_defaults: Mapping[str, object] | None = None,
        upkeep_limits: UpkeepLimits | None = None,
        executor: Executor | None = None,
        on_registered: Callable[[int], None] = lambda _broker_epoch: None,
        coordinators: Mapping[CoordinatorType, CoordinatorKind] = COORDINATOR_KINDS,
        peers: Mapping[int, Appends] | None = None,
    ) -> None:
        """`peers`: the brokers of this process by id, as far as coordinators may reach them; None is this one alone."""
        self.config = config
        self.identity = identity
        self.broker_id = identity.broker_id
        self.root = identity.root
        self.broker_epoch = NO_BROKER_EPOCH
        self.incarnation_id = ids.new_id()
        self.stopped_by: StratalogError | None = None
        self.metadata = open_metadata(stores, metadata_root, clock, ids)
        self.wakeup = Wakeup(clock)
        self._metadata_objects = stores.objects(metadata_root)
        self._stores = stores
        self._clock = clock
        self._on_registered = on_registered
        self._purgatory = ProducePurgatory()
        self._hosted = HostedReplicas(
            self.broker_id,
            self.root,
            stores,
            clock,
            ids,
            self._purgatory,
            topic_defaults=topic_defaults or {},
            upkeep_limits=limits_of(config, upkeep_limits),
            executor=executor,
            on_stopped=self._forget_progress,
        )
        self.metrics = self._hosted.metrics
        self._queue = AppendQueue(self.broker_id, self._hosted.leaders, clock, self.metrics.queue_time)
        self._coordinators = CoordinatorRuntime(
            self, self._hosted, clock, ids, coordinators, {self.broker_id: self} if peers is None else peers
        )
        self._followers = FollowerWatch(self.broker_id, stores, self.wakeup)
        objects = stores.objects(identity.root)
        self._deletions = RecordDeletions(objects, self.leaders, clock)
        self._removed_topics = ReplicaDeletions(self.broker_id, self.root, stores, self.metadata, clock, ids)
        self._inbox = BrokerInbox(objects, self._enqueue, self._hosted.examine, self._deletions)
        self._inbox_watch = self.wakeup.watch(objects, INBOX_PREFIX, only_new=True)
        self._metadata_watch = self.wakeup.watch(self._metadata_objects, METADATA_COMMITS, only_new=True)
        self._progress: LeaderProgress | None = None
        self._touched: set[TopicPartition] = set()
        self._changed: set[TopicPartition] = set()
        self._moved: set[TopicPartition] = set()
        self._raised: set[TopicPartition] = set()
        self._due_ms: dict[str, int] = {}
        self._offline_due_ms = 0
        self.turn_interval = TurnInterval()
        self._turn_begun_ms = 0
        self._may_go_on = False
        self._beat = 0
        self._root_seen_ms = 0
        self._announced_epoch = NO_BROKER_EPOCH
        self._follow_all = True

    @property
    def leaders(self) -> dict[TopicPartition, LeaderReplica]:
        """The replicas that this broker leads."""
        return self._hosted.leaders

    # -- life ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Register under a new broker epoch (promise 13, KIP-380). Raises what the metadata log answers.

        After an unclean stop the own tables first lose what a power cut may have torn (promise 5). Replicas that
        are not assigned to this broker any more are removed.
        """
        self.metadata.refresh()
        image = self.metadata.image
        was_clean = was_shut_down(self._stores.objects(self.root), image.brokers.get(self.broker_id))
        self._hosted.open_after_stop(image, was_clean=was_clean)
        self._register()

    def _register(self) -> None:
        self._put_session(0)
        self.broker_epoch = self.metadata.propose(
            lambda image: register_broker(
                image,
                broker_id=self.broker_id,
                incarnation_id=self.incarnation_id,
                root=self.root,
                rack=self.identity.rack,
                endpoint=None,
            )
        )
        self._announce()

    def _announce(self) -> None:
        """Begin to publish under the new broker epoch; done again from `step` if the store failed in between."""
        objects, epoch = self._stores.objects(self.root), self.broker_epoch
        self._progress = LeaderProgress(objects, epoch)
        self._root_seen_ms = self._clock.monotonic_ms()
        self._put_session(epoch)
        remove_old_progress(objects, epoch)
        self._inbox.broker_epoch = epoch
        self._follow_all = True
        self._announced_epoch = epoch
        STATE_CHANGE_LOG.info("[Broker %d] registered with epoch %d", self.broker_id, self.broker_epoch)
        self._on_registered(self.broker_epoch)

    def shut_down(self) -> None:
        """Controlled shutdown: hand leaderships over, leave the ISRs, then stop. What it led is durable before that:
        the last member of an ISR stays its only one."""
        self._drain()
        self._stores.objects(self.root).sync_all()
        self.metadata.propose(lambda image: shut_down_broker(image, self.broker_id, self.broker_epoch))
        self.stop(BrokerNotAvailableError(f"broker {self.broker_id} was shut down"))

    def _drain(self) -> None:
        end_ms = self._clock.monotonic_ms() + DRAIN_MS_MAX
        while self._append_waiting(self._clock.monotonic_ms()) and self._clock.monotonic_ms() < end_ms:
            pass

    def stop(self, reason: StratalogError) -> None:
        """Stop leading at once; nothing is written any more."""
        self.stopped_by = reason
        self._hosted.stop_all(str(reason))
        self._coordinators.stop(str(reason))
        self._queue.refuse_all(f"broker {self.broker_id} is down: {self.stopped_by}")

    # -- one turn --------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One turn of the loop; True when something moved (take the next turn at once)."""
        if self.stopped_by is not None:
            return False
        now_ms = self._turn_begun_ms = self._clock.monotonic_ms()
        self._attempt(lambda: self._keep_registered(now_ms))
        moved = self._attempt(lambda: self._follow_followers(now_ms))
        self._may_go_on = self._attempt(self._coordinators.step)
        moved |= self._append_waiting(now_ms)  # its publication also tells the high watermarks that just moved
        self._may_go_on |= self._attempt(lambda: self._poll_inbox(now_ms))
        self._may_go_on |= self._attempt(self._delete_records)
        self._attempt(lambda: self._change_isrs(self._isr_changes(now_ms)))
        self._attempt(lambda: self._report_offline(now_ms))
        self._purgatory.expire(now_ms)
        if self._attempt(lambda: self._publish(now_ms)):
            self._complete_raised()
        self._attempt(self._inbox.write_answers)
        if self._is_due("upkeep", now_ms, self.config.stratalog_upkeep_interval_ms) or self._hosted.upkeep.is_pressing:
            self._attempt(lambda: self._changed.update(self._hosted.keep_up()))
        return moved or self._may_go_on

    def _attempt(self, part: Callable[[], bool | None]) -> bool:
        """One part of a turn. A store that is away stops only what needs it; what is safe is decided by epochs."""
        try:
            return bool(part())
        except StoreError as reason:
            _LOG.warning("broker %d, trying again: %s", self.broker_id, reason)
            return False

    def _keep_registered(self, now_ms: int) -> None:
        if self._announced_epoch != self.broker_epoch:
            self._announce()
        if self._is_due("session", now_ms, self.config.broker_heartbeat_interval_ms) and self._has_root(now_ms):
            self._put_session(self.broker_epoch)
        poll_ms = self.config.stratalog_metadata_poll_ms
        self._look("metadata", self._metadata_watch, poll_ms, now_ms, lambda: self._follow_metadata(now_ms))

    def _has_root(self, now_ms: int) -> bool:
        """A broker whose own root takes no write any more lets its session expire: others should lead."""
        return now_ms - self._root_seen_ms <= self.config.broker_session_timeout_ms

    def _poll_inbox(self, now_ms: int) -> bool:
        if self._is_due("answers", now_ms, ANSWER_CLEAN_INTERVAL_MS):
            self._inbox.clean(self._clock.wall_ms())
        return self._look("inbox", self._inbox_watch, self.config.stratalog_inbox_poll_ms, now_ms, self._inbox.poll)

    def _delete_records(self) -> bool:
        moved = set() if self._deletions.is_idle else self._deletions.step(self.metadata.image.live_brokers())
        self._changed |= moved
        return bool(moved)

    def rest_ms(self) -> int:
        """How long the loop rests after a turn that left nothing behind, so that the next one has more to tell."""
        if not self._queue.is_empty:
            return 0
        return self.turn_interval.rest_ms(self._turn_begun_ms, self._clock.monotonic_ms())

    def wait_ms(self, *, moved: bool) -> int:
        """How long the loop may rest on its `wakeup` after a turn. What appends and followers moved is done with
        it: where everything is watched, a further turn would find nothing."""
        has_left = self._may_go_on or not self._queue.is_empty or bool(self._changed) or bool(self._hosted.starting)
        return 0 if moved and (has_left or not self.wakeup.is_active) else self.pause_ms()

    def pause_ms(self) -> int:
        """How long the loop may rest on its `wakeup` after a turn in which nothing moved: where everything is watched,
        until the next thing that time alone brings; else as long as polling allows."""
        if not self.wakeup.is_active:
            config, is_idle = self.config, self._purgatory.is_empty
            return config.stratalog_progress_poll_max_ms if is_idle else config.stratalog_progress_poll_min_ms
        is_announced = self._announced_epoch == self.broker_epoch
        if not (self._queue.is_empty and not self._changed and not self._hosted.starting and is_announced):
            return min(RETRY_MS, self._queue.held_ms or RETRY_MS)  # nothing moved: something stands in their way
        now_ms = self._clock.monotonic_ms()
        soonest_ms = min([now_ms + WATCHED_POLL_MS, *self._due_ms.values()])
        soonest_ms = min(soonest_ms, self._coordinators.next_due_ms or soonest_ms)
        return max(1, min(soonest_ms, self._purgatory.next_deadline_ms or soonest_ms) - now_ms)

    def _look(self, name: str, place: WatchedPlace, poll_ms: int, now_ms: int, look: Callable[[], bool | None]) -> bool:
        """Look there when something was written; where that is not reported, and in any case now and then, by time."""
        is_due = self._is_due(name, now_ms, WATCHED_POLL_MS if place.is_active else poll_ms)
        try:
            return bool(place.read(look, is_due=is_due, retries=False))
        except StoreError:
            self._due_ms[name] = now_ms + RETRY_MS
            raise

    def _is_due(self, name: str, now_ms: int, interval_ms: int) -> bool:
        if now_ms < self._due_ms.get(name, 0):
            return False
        self._due_ms[name] = now_ms + interval_ms
        return True

    def _put_session(self, broker_epoch: int) -> None:
        self._beat += 1
        content = encode_session(broker_epoch, self.incarnation_id, self._beat)
        self._metadata_objects.put_register(session_path(self.broker_id), content)

    # -- metadata --------------------------------------------------------------------------------------

    def _follow_metadata(self, now_ms: int) -> None:
        changed = self.metadata.refresh()
        image = self.metadata.image
        # Noted before anything can fail: what was folded is not reported again.
        self._touched |= {r.topic_partition for r in changed if isinstance(r, PartitionRecord)}
        topics = {r.name for r in changed if isinstance(r, TopicRecord | RemoveTopicRecord)}
        topics |= {r.topic for r in changed if isinstance(r, ConfigRecord | EraseRecord)}
        if topics or self._follow_all:
            everything = self._hosted.known | set(image.partitions)
            self._touched |= {tp for tp in everything if self._follow_all or tp.topic in topics}
            self._follow_all = False
        if not self._is_current(now_ms):
            return
        if changed or self._touched:
            for restarted in self._followers.update_brokers(image.brokers):
                self._hosted.forget_follower(restarted, now_ms)
        for topic_partition in sorted(self._touched):
            self._hosted.apply(topic_partition, image, now_ms)
            self._coordinators.check_leader(topic_partition)
            self._touched.discard(topic_partition)
            self._raise_high_watermark(topic_partition, now_ms)  # a smaller min.insync.replicas commits more
        self._coordinators.partitions_deleted(deleted_partitions(changed))
        self._removed_topics.step(self.broker_epoch)

    def _is_current(self, now_ms: int) -> bool:
        """False when this registration is over: fenced (register anew) or replaced (stop for good)."""
        known = self.metadata.image.brokers.get(self.broker_id)
        if known is not None and known.registration.incarnation_id != self.incarnation_id:
            reason = f"broker {self.broker_id} runs elsewhere as incarnation {known.registration.incarnation_id}"
            self.stop(DuplicateBrokerRegistrationError(reason))
            return False
        if self.metadata.image.is_current(self.broker_id, self.broker_epoch):
            return True
        STATE_CHANGE_LOG.warning("[Broker %d] epoch %d was fenced", self.broker_id, self.broker_epoch)
        self._hosted.stop_all("this broker was fenced")
        self._register()
        self._due_ms["metadata"] = now_ms
        return False

    def _start_leading(self, replica: LeaderReplica, now_ms: int) -> bool:
        try:
            if not replica.start(now_ms):
                return False
        except InconsistentTopicIdError as reason:
            self._drop_leftover(replica, reason)
            return False
        self._changed.add(replica.state.topic_partition)
        self._hear_followers(self._followers.known(replica.state.topic_partition), now_ms)
        self._raise_high_watermark(replica.state.topic_partition, now_ms)
        return True

    def _drop_leftover(self, replica: LeaderReplica, reason: StratalogError) -> None:
        """The table is of a deleted topic of this name: remove it, if the newest metadata agrees."""
        self._follow_all = True
        self.metadata.refresh_image()
        if self.metadata.image.topic_ids.get(replica.state.topic) == replica.topic_id:
            self._hosted.drop_leftover(replica, reason)

    def _forget_progress(self, topic_partition: TopicPartition) -> None:
        self._coordinators.check_leader(topic_partition)
        if self._progress is not None:
            self._progress.forget(topic_partition)

    # -- appends and the high watermark ------------------------------------------------------------------

    def _append_waiting(self, now_ms: int) -> bool:
        moved = self._start_leaders(now_ms)
        for replica in self._queue.append(now_ms, self.turn_interval.work_ms(TURN_MS_MAX, now_ms)):
            moved = True
            self.turn_interval.moved(replica.state.topic_partition, now_ms)
            self._changed.add(replica.state.topic_partition)
            self._raise_high_watermark(replica.state.topic_partition, now_ms)
        return moved

    def _start_leaders(self, now_ms: int) -> bool:
        moved = False
        for topic_partition, replica in list(self._hosted.starting.items()):
            moved |= self._start_leading(replica, now_ms)
            if replica.partition is not None or replica.failure is not None:
                self._hosted.starting.pop(topic_partition, None)
            if self._clock.monotonic_ms() - now_ms >= START_MS_MAX:
                break
        return moved

    def _raise_high_watermark(self, topic_partition: TopicPartition, now_ms: int) -> None:
        replica, lag_ms_max = self.leaders.get(topic_partition), self.config.replica_lag_time_max_ms
        if replica and replica.partition and replica.partition.maybe_increment_high_watermark(now_ms, lag_ms_max):
            self._changed.add(topic_partition)
        self._raised.add(topic_partition)

    def _complete_raised(self) -> None:
        """Answer acks=all, after the high watermark was published: a producer can read its own write."""
        raised, self._raised = self._raised, set()
        for topic_partition in raised:
            if topic_partition in self.leaders:
                self.leaders[topic_partition].complete_waiting()

    def _follow_followers(self, now_ms: int) -> bool:
        is_active = self.wakeup.is_active
        is_due = self._is_due(
            "followers", now_ms, WATCHED_POLL_MS if is_active else self.config.stratalog_progress_poll_max_ms
        )
        if not is_due and not is_active and self._purgatory.is_empty:
            return False
        return self._hear_followers(self._followers.poll(now_ms), now_ms)

    def _hear_followers(self, heard: Iterable[tuple[int, ReplicaProgress]], now_ms: int) -> bool:
        moved: set[TopicPartition] = set()
        for broker_id, progress in heard:
            replica = self.leaders.get(progress.topic_partition)
            if replica is None or replica.partition is None or replica.topic_id != progress.topic_id:
                continue
            if replica.partition.follower_progressed(broker_id, progress, now_ms):
                moved.add(progress.topic_partition)
        for topic_partition in moved:
            self._raise_high_watermark(topic_partition, now_ms)
        self._moved |= moved
        return bool(moved)

    # -- ISR changes -------------------------------------------------------------------------------------

    def _isr_changes(self, now_ms: int) -> list[WantedIsr]:
        moved, self._moved = self._moved, set()
        lag_ms_max = self.config.replica_lag_time_max_ms
        is_due = self._is_due("isr", now_ms, max(lag_ms_max // 2, 1))
        if not moved and not is_due:
            return []
        live = self.metadata.image.live_brokers()
        looked_at = self.leaders.values() if is_due else (self.leaders[tp] for tp in moved if tp in self.leaders)
        led = [replica.partition for replica in looked_at if replica.partition is not None]
        return all_isr_changes(led, live, now_ms, lag_ms_max) if is_due else expansions(led, live)

    def _change_isrs(self, changes: list[WantedIsr]) -> None:
        """Commit the changes of all partitions in one piece. Until the outcome is known the maximal ISR holds."""
        if not changes:
            return
        epochs = self._followers.broker_epochs()
        wanted = [isr_change(partition, isr, epochs) for partition, isr in changes]
        try:
            self.metadata.propose(lambda image: alter_partition(image, self.broker_id, self.broker_epoch, wanted))
        except StaleBrokerEpochError as reason:
            _LOG.info("broker %d: %s", self.broker_id, reason)
        now_ms = self._clock.monotonic_ms()
        self._follow_metadata(now_ms)
        for partition, _ in changes:
            partition.end_joining()
            self._raise_high_watermark(partition.state.topic_partition, now_ms)

    def _report_offline(self, now_ms: int) -> None:
        """Replicas that cannot be served from this broker's storage: let others of the ISR lead them."""
        if not self._hosted.offline or now_ms < self._offline_due_ms:
            return
        self._offline_due_ms = now_ms + OFFLINE_INTERVAL_MS
        offline = self._hosted.offline_noted()
        self.metadata.propose(lambda image: report_offline(image, self.broker_id, self.broker_epoch, offline))
        self._follow_metadata(now_ms)

    # -- publishing and upkeep ---------------------------------------------------------------------------

    def _publish(self, now_ms: int) -> bool:
        """True when everybody can see what changed. Raises StoreUnavailableError: tried again."""
        assert self._progress is not None
        changed = [self.leaders[tp] for tp in self._changed if tp in self.leaders]
        entries = [p for replica in changed if (p := replica.progress()) is not None]
        beat_is_due = self._is_due("beat", now_ms, self.config.broker_heartbeat_interval_ms)
        if self._progress.publish(entries, now_ms, beat_is_due=beat_is_due):
            self._root_seen_ms = now_ms
        self._changed.clear()
        return True
