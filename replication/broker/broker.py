"""A broker: leads replicas, answers clients, keeps its session, follows the metadata log.

I/O: through its stores. `step` is one turn of a single-threaded loop; other threads use only `calls`, which puts
requests into queues. The same loop runs in a thread, in a spark-submit driver and, turn by turn, in the simulator.
The rules are elsewhere: `leader_and_isr` (becoming leader or follower), `leader.partition` (ISR, high watermark),
`leader.purgatory` (acks=all), and the decisions of `controller/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from stratalog.replication import cadence
from stratalog.replication.broker.calls import BrokerCalls
from stratalog.replication.broker.hosted_replicas import STATE_CHANGE_LOG, BrokerSetup, HostedReplicas
from stratalog.replication.broker.inbox import BrokerInbox
from stratalog.replication.broker.log_ends import LogEnds
from stratalog.replication.broker.longest_log import unsure_of
from stratalog.replication.broker.own_root import OwnRoot
from stratalog.replication.broker.turn import Turn
from stratalog.replication.broker_root import was_shut_down
from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.brokers import (
    NOTHING_FOUND,
    alter_partition,
    hand_to_longer_log,
    register_broker,
    report_offline,
    shut_down_broker,
)
from stratalog.replication.controller.sessions import encode_session, session_path
from stratalog.replication.controller.topic_deletion import deleted_partitions
from stratalog.replication.coordinator.runtime.kinds import COORDINATOR_KINDS, CoordinatorKind
from stratalog.replication.coordinator.runtime.remote_appends import Appends
from stratalog.replication.coordinator.runtime.runtime import CoordinatorRuntime
from stratalog.replication.leader.append_queue import AppendQueue
from stratalog.replication.leader.delete_records import RecordDeletions
from stratalog.replication.leader.partition import isr_changes, isr_expansions, proposed_isr
from stratalog.replication.leader.purgatory import ProducePurgatory
from stratalog.replication.leader.replica import LeaderReplica, WaitingAppend
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.log import METADATA_COMMITS, metadata_of_part
from stratalog.replication.metadata.look import look_for_commits
from stratalog.replication.metadata.records import NO_BROKER_EPOCH
from stratalog.replication.metrics import Metric, RunState
from stratalog.replication.progress.follower_watch import FollowerWatch
from stratalog.replication.progress.known_committed import remove_old_progress
from stratalog.replication.progress.of_leader import LeaderProgress
from stratalog.replication.progress.progress import ReplicaProgress
from stratalog.replication.replica.removal import ReplicaDeletions
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.hand_over import INBOX_PREFIX
from stratalog.replication.stores import Ports
from stratalog.replication.threads.turn_interval import TurnInterval
from stratalog.storage.cadence import IdlePause
from stratalog.storage.errors import (
    BrokerNotAvailableError,
    DuplicateBrokerRegistrationError,
    InconsistentTopicIdError,
    StaleBrokerEpochError,
    StoreError,
    StratalogError,
)
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.together import in_groups
from stratalog.storage.objects.wakeup import Wakeup, WatchedPlace
from stratalog.storage.records import IdentifiedPartition, TopicPartition

_LOG = line_logger("stratalog.broker")


class Broker:
    """One broker process. `start` registers it, `step` runs it, `shut_down` has others lead what it led.

    calls  its entrance, for clients of this process
    inbox  that for others, in its root
    """

    def __init__(
        self,
        setup: BrokerSetup,
        ports: Ports,
        *,
        on_registered: Callable[[int], None] = lambda _broker_epoch: None,
        coordinators: Mapping[CoordinatorType, CoordinatorKind] = COORDINATOR_KINDS,
        peers: Mapping[int, Appends] | None = None,
        turn_interval: TurnInterval | None = None,
    ) -> None:
        """`peers`: the brokers of this process by id, as far as coordinators may reach them; None is this one alone.
        `turn_interval`: of this broker's loop; None is one that does not know the other loops of the process."""
        self.config, self.identity = setup.config, setup.identity
        self.broker_id, self.root = setup.identity.broker_id, setup.identity.root
        self.broker_epoch = NO_BROKER_EPOCH
        self._found = NOTHING_FOUND
        self._is_known = False
        """Whether this process has registered, perhaps as one that recovers."""
        self._is_leaving = False
        self.incarnation_id = ports.ids.new_id()
        self.stopped_by: StratalogError | None = None
        self.when_published: Callable[[], None] = lambda: None
        """Called by the loop after it published high watermarks, where storage does not report that to this process's
        readers. It must not block."""
        self.metadata = metadata_of_part(ports, setup.metadata_root)
        self.wakeup = Wakeup(ports.clock)
        self.turn_interval = turn_interval or TurnInterval()
        self._clock, self._together = ports.clock, ports.together
        self._objects = ports.stores.objects(self.root)
        self._own_root = OwnRoot(self.broker_id, self._objects, ports, self.config)
        self._own_registers = setup.own_registers
        self._metadata_objects = ports.stores.objects(setup.metadata_root)
        self._on_registered = on_registered
        self._purgatory = ProducePurgatory()
        self._hosted = HostedReplicas(
            setup, ports, self._purgatory, self._image, self._forget_progress, self.wakeup.wake
        )
        self.leaders = self._hosted.leaders
        self.metrics = self._hosted.metrics
        self._queue = AppendQueue(
            self.broker_id,
            self.leaders,
            ports.clock,
            self.metrics.queue_time,
            lambda partition: self.metadata.image.state_of(partition) is not None,
            ports.together,
        )
        own: dict[int, Appends] = {}
        self._coordinators = CoordinatorRuntime(
            self, self._hosted, ports.clock, ports.ids, coordinators, own if peers is None else peers
        )
        self.calls = own[self.broker_id] = BrokerCalls(self.append, self._coordinators, self.leaders)
        self._followers = FollowerWatch(self.broker_id, ports, self.wakeup, self._progress_poll_ms)
        self._log_ends = LogEnds(self.broker_id, ports, self.wakeup, self.config.broker_session_timeout_ms)
        objects, put_answer, examine = self._objects, self._own_root.put, self._hosted.examine
        self._deletions = RecordDeletions(objects, self.leaders, ports.clock, put_answer)
        self._removed_topics = ReplicaDeletions(self.broker_id, self.root, ports, self.metadata)
        self.inbox = BrokerInbox(objects, self.calls.append, examine, self._deletions, put_answer, self._identified)
        self._inbox_watch = self.wakeup.watch(self._objects, INBOX_PREFIX, only_new=True)
        self._metadata_watch = self.wakeup.watch(self._metadata_objects, METADATA_COMMITS, only_new=True)
        self._turn = Turn()
        self._due_ms: dict[str, int] = {}
        idle = _idle_pauses(setup.config, ports.clock.monotonic_ms())
        self._metadata_idle, self._progress_idle, self._inbox_idle = idle
        self._is_metadata_expected = False
        self._metadata_look = look_for_commits(
            self.metadata, self._metadata_objects, ports, self._metadata_pause_ms, self.wakeup.wake
        )
        self._reads_in_threads = ports.threads is not None
        self._progress: LeaderProgress | None = None
        self._announced_epoch = self._stopped_epoch = NO_BROKER_EPOCH
        self._offline_due_ms = self._beat = 0

    # -- registration and end --------------------------------------------------------------------------

    def start(self) -> None:
        """Register under a new broker epoch (promise 13, KIP-380). Raises what the metadata log answers: call it again.

        Its tables lose what a power cut may have torn (promise 5), and replicas that are not assigned to this broker
        any more are removed. After an unclean stop an earlier process, or its fetch tasks, may still be at work there:
        so it registers first, which fences these, but as fenced. It leads and publishes nothing until it has
        recovered and registers again. If it dies before, there is no mark of a clean stop for that broker epoch either.
        Where it is alone in an ISR then, the replica with the longest log leads: see `longest_log`.
        """
        self.metadata.refresh()
        known = self.metadata.image.brokers.get(self.broker_id)
        self._hosted.remember_committed(self.metadata.image)
        self._found = self._hosted.found_in_root(self.metadata.image, self._found.directory_id)
        was_unclean = not was_shut_down(self._found.previous_broker_epoch, known)
        if was_unclean:
            self.metadata.propose(lambda image: self._registration(image, recovers=True))
            self._is_known = True
            if not self._objects.durable_on_answer:
                self._log_ends.suspect(unsure_of(self.metadata.image, self.broker_id))
            self._hosted.recover(self.metadata.image, self._clock.monotonic_ms())
        self._hosted.remove_unknown(self._newest_image)
        self._register()

    def _newest_image(self) -> ClusterImage:
        self.metadata.refresh_image()
        self._check_not_replaced(self.metadata.image)
        return self.metadata.image

    def _register(self) -> None:
        self._put_session(0)
        self.broker_epoch = self.metadata.propose(self._registration)
        self._is_known = True
        self._announce()

    def _registration(self, image: ClusterImage, *, recovers: bool = False) -> Result[int]:
        self._check_not_replaced(image)
        found, own = self._found, self.identity
        run = self.incarnation_id
        return register_broker(
            image, self.broker_id, run, self.root, own.rack, own.endpoint, found=found, recovers=recovers
        )

    def _check_not_replaced(self, image: ClusterImage) -> None:
        known = image.brokers.get(self.broker_id)
        if self._is_known and known is not None and known.registration.incarnation_id != self.incarnation_id:
            raise self._replaced_by(known.registration.incarnation_id)

    def _replaced_by(self, incarnation_id: str) -> StratalogError:
        """Stop for good: a later process of this broker has registered, and must not be fenced in turn."""
        reason = DuplicateBrokerRegistrationError(
            f"broker {self.broker_id} runs elsewhere as incarnation {incarnation_id}"
        )
        self.stop(reason)
        return reason

    def _announce(self) -> None:
        """Begin to publish under the new broker epoch. `step` retries it when the store failed in between."""
        epoch = self.broker_epoch
        own = self._own_registers
        registers = self._own_root if own is None else own.begin(self.root, self._own_root)
        self._progress = LeaderProgress(registers, epoch, self._together)
        self._put_session(epoch)
        remove_old_progress(self._objects, self.metadata.image, epoch)
        self._turn.applies_all = True
        self.inbox.broker_epoch = self._announced_epoch = epoch
        if self._metadata_look is not None:
            self._metadata_look.start(f"metadata-of-{self.broker_id}")
        STATE_CHANGE_LOG.info("[Broker %d] registered with epoch %d", self.broker_id, epoch)
        self._on_registered(epoch)

    def shut_down(self) -> None:
        """Controlled shutdown: append what waits, move the leaderships, leave the ISRs, stop. All is durable before
        that: the last member of an ISR stays in it."""
        self._is_leaving = True
        end_ms = self._clock.monotonic_ms() + cadence.DRAIN.ms
        while self._append_waiting(self._clock.monotonic_ms()) and self._clock.monotonic_ms() < end_ms:
            pass
        self._objects.sync_all()
        self.metadata.propose(lambda image: shut_down_broker(image, self.broker_id, self.broker_epoch))
        self.stop(BrokerNotAvailableError(f"broker {self.broker_id} was shut down"))

    def stop(self, reason: StratalogError) -> None:
        """Stop leading at once; nothing is written any more."""
        self.stopped_by = reason
        self._followers.close()
        self._log_ends.close()
        if self._metadata_look is not None:
            self._metadata_look.close()
        self._hosted.stop_all(str(reason))
        self._coordinators.stop(str(reason))
        self._queue.refuse_all(self._down())

    @property
    def run_state(self) -> RunState:
        """Whether this process is starting, recovering, running, shutting down or stopped. Called from any thread."""
        if self.stopped_by is not None:
            return RunState.NOT_RUNNING
        if self._is_leaving:
            return RunState.PENDING_CONTROLLED_SHUTDOWN
        if self.broker_epoch == NO_BROKER_EPOCH:
            return RunState.RECOVERY if self._is_known else RunState.STARTING
        return RunState.RUNNING

    def _down(self) -> str:
        return f"broker {self.broker_id} is down: {self.stopped_by}"

    def append(self, waiting: WaitingAppend) -> None:
        """Queue a request for the leader of its partition, an internal one too. Called from any thread."""
        self._queue.put(waiting)
        if self.stopped_by is not None:
            self._queue.refuse_all(self._down())
        self.wakeup.wake()

    def _image(self) -> ClusterImage:
        return self.metadata.image

    def _identified(self, topic_partition: TopicPartition) -> IdentifiedPartition:
        return self.metadata.image.identified(topic_partition)

    def coordinator_metrics(self) -> list[Metric]:
        """What the coordinators here count and hold, by the names of Kafka's metrics."""
        return self._coordinators.metrics()

    # -- one turn --------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One turn of the loop; True when something moved: the next turn may follow at once."""
        if self.stopped_by is not None:
            return False
        turn = self._turn = self._turn.next(self._clock.monotonic_ms())
        self._attempt(lambda: self._keep_registered(turn.begun_ms))
        moved = self._attempt(lambda: self._follow_followers(turn.begun_ms))
        turn.has_more = self._attempt(self._coordinators.step)
        moved |= self._append_waiting(turn.begun_ms)  # published with the high watermarks that just moved
        turn.has_more |= self._attempt(lambda: self._poll_inbox(turn.begun_ms))
        turn.has_more |= self._attempt(self._delete_records)
        self._perform(turn)
        return moved or turn.has_more

    def _perform(self, turn: Turn) -> None:
        """The end of a turn. Answers come last: a producer can read what acks=all has confirmed."""
        self._attempt(lambda: self._change_isrs(turn))
        self._attempt(lambda: self._report_offline(turn.begun_ms))
        self._purgatory.expire(turn.begun_ms)
        if self._attempt(lambda: self._publish(turn)):
            completed, turn.to_complete = turn.to_complete, set()
            for topic_partition in completed:
                if topic_partition in self.leaders:
                    self.leaders[topic_partition].complete_waiting()
        self._attempt(self.inbox.write_answers)
        upkeep_ms = self.config.stratalog_upkeep_interval_ms
        if self._is_due("upkeep", turn.begun_ms, upkeep_ms) or self._hosted.upkeep.is_pressing:
            self._attempt(lambda: turn.to_publish.update(self._hosted.keep_up()))

    def _attempt(self, part: Callable[[], bool | None]) -> bool:
        """One part of a turn. A store that is away stops only what needs it; epochs decide what is safe."""
        try:
            return bool(part())
        except StoreError as reason:
            _LOG.warning("broker %d, trying again: %s", self.broker_id, reason)
            return False

    def _keep_registered(self, now_ms: int) -> None:
        if self._announced_epoch != self.broker_epoch:
            self._announce()
        if self._is_due("session", now_ms, self.config.broker_heartbeat_interval_ms):
            self._beat_session()
        has_unseen, look = self.metadata.has_unseen, self._metadata_look
        if (self._is_metadata_expected or has_unseen) and not self._metadata_watch.is_active:
            self._is_metadata_expected = False
            self._metadata_idle.news(now_ms)
            if look is None or has_unseen:
                self._due_ms["metadata"] = now_ms
            else:
                look.expect_news()
        poll_ms = self._metadata_idle.pause_ms(now_ms, is_watched=self._metadata_watch.is_active)
        if look is not None:
            poll_ms = self.config.broker_session_timeout_ms // cadence.METADATA_READ_PART
        has_news = look is not None and look.has_news
        if has_news:
            self._due_ms["metadata"] = now_ms
        self._poll("metadata", self._metadata_watch, poll_ms, now_ms, lambda: self._follow_metadata(now_ms))
        if look is not None and has_news:
            look.read()

    def _metadata_pause_ms(self) -> int:
        return self._metadata_idle.pause_ms(self._clock.monotonic_ms())

    def expect_metadata(self) -> None:
        """Metadata are about to change, or have changed: where the log cannot be watched it is read at once, and often
        for a while. Called from any thread."""
        if not self._metadata_watch.is_active:
            self._is_metadata_expected = True
            self.wakeup.wake()

    def _beat_session(self) -> None:
        """A broker that cannot write to its own root lets its session expire, too: the process's controller thread may
        be stuck."""
        if not self._own_root.is_dead():
            self._put_session(self.broker_epoch)

    def epoch_to_give_up(self) -> int | None:
        """The broker epoch under which this broker can do nothing, because its own root answers nothing; None while it
        does. Called regularly from the controller's thread: the loop may be stuck."""
        broker_epoch = self.broker_epoch  # read first: a root that answers meanwhile is followed by a new epoch
        return broker_epoch if broker_epoch != NO_BROKER_EPOCH and self._own_root.look() else None

    def _poll_inbox(self, now_ms: int) -> bool:
        if self._is_due("answers", now_ms, cadence.ANSWERS_CLEANED.ms):
            self.inbox.clean(self._clock.wall_ms())
        if self.inbox.has_requests:
            self._inbox_idle.news(now_ms)
        poll_ms = self._inbox_idle.pause_ms(now_ms, is_watched=self._inbox_watch.is_active)
        return self._poll("inbox", self._inbox_watch, poll_ms, now_ms, self.inbox.poll)

    def _delete_records(self) -> bool:
        moved = set() if self._deletions.is_idle else self._deletions.step(self.metadata.image.live_brokers())
        self._turn.to_publish |= moved
        return bool(moved)

    def rest_ms(self) -> int:
        """How long the loop rests after a turn that was not cut off, so that the next one has more to publish."""
        if not self._queue.is_empty:
            return 0
        return self.turn_interval.rest_ms(self._turn.begun_ms, self._clock.monotonic_ms())

    def wait_ms(self, *, moved: bool) -> int:
        """How long the loop may wait for its `wakeup` after a turn. A turn that moved something is complete if nothing
        is left: where everything is watched, a further one would find nothing."""
        return 0 if moved and (self._turn.has_more or self._has_left or not self.wakeup.is_active) else self.pause_ms()

    @property
    def _has_left(self) -> bool:
        starting = any(tp in self.leaders and self.leaders[tp].is_starting for tp in self._turn.to_start)
        return starting or bool(self._turn.to_publish) or not self._queue.is_empty

    def pause_ms(self) -> int:
        """How long the loop may wait for its `wakeup` after a turn in which nothing moved: until the next thing that
        time alone brings, or that has to be polled."""
        if self._has_left or self._announced_epoch != self.broker_epoch:
            # Nothing moved: a store is away, or upkeep is first.
            return min(cadence.LOOP_RETRY.ms, self._queue.held_ms or cadence.LOOP_RETRY.ms)
        now_ms = self._clock.monotonic_ms()
        soonest_ms = min([now_ms + cadence.LOOP_WAIT.ms, *self._due_ms.values()])
        soonest_ms = min(soonest_ms, self._coordinators.next_due_ms or soonest_ms)
        pause_ms = max(1, min(soonest_ms, self._purgatory.next_deadline_ms or soonest_ms) - now_ms)
        if self.wakeup.is_active or self._reads_in_threads:
            return pause_ms
        return min(pause_ms, self._progress_poll_ms())  # the loop itself reads followers' progress

    def _progress_poll_ms(self) -> int:
        """Where storage cannot be watched: the pause between two reads of a follower's progress, the shortest while a
        request waits for followers. Called from any thread."""
        if not self._purgatory.is_empty:
            return self.config.stratalog_progress_poll_min_ms
        return self._progress_idle.pause_ms(self._clock.monotonic_ms())

    def _poll(self, name: str, place: WatchedPlace, poll_ms: int, now_ms: int, poll: Callable[[], bool | None]) -> bool:
        """Poll a place when it was written, and at intervals of `poll_ms`."""
        is_due = self._is_due(name, now_ms, poll_ms)
        try:
            return bool(place.read(poll, is_due=is_due, retries=False))
        except StoreError:
            self._due_ms[name] = now_ms + cadence.LOOP_RETRY.ms
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
        turn, changed = self._turn, self.metadata.refresh()
        image = self.metadata.image
        if changed:
            self._metadata_idle.news(now_ms)
        turn.metadata_changed(changed, lambda: {*self._hosted.known, *image.partitions})
        if not self._is_current(now_ms):
            return
        if changed or turn.to_apply:
            for forgotten in self._followers.update_brokers(image.brokers):
                self._hosted.forget_follower(forgotten, now_ms)
        for topic_partition in sorted(turn.to_apply):
            if self._hosted.apply(topic_partition, image, now_ms):
                turn.start(topic_partition)
            self._log_ends.apply(topic_partition, image)
            self._coordinators.check_leader(topic_partition)
            turn.to_apply.discard(topic_partition)
            self._raise_high_watermark(topic_partition, now_ms)  # a smaller min.insync.replicas commits more
        self._coordinators.partitions_deleted(deleted_partitions(changed))
        self._removed_topics.step(self.broker_epoch)

    def _is_current(self, now_ms: int) -> bool:
        """False when this registration is over: fenced (register anew) or replaced (stop for good)."""
        known = self.metadata.image.brokers.get(self.broker_id)
        if known is not None and known.registration.incarnation_id != self.incarnation_id:
            self._replaced_by(known.registration.incarnation_id)
            return False
        if self.metadata.image.is_current(self.broker_id, self.broker_epoch):
            return True
        if self._stopped_epoch != self.broker_epoch:
            STATE_CHANGE_LOG.warning("[Broker %d] epoch %d was fenced", self.broker_id, self.broker_epoch)
            self._hosted.stop_all("this broker was fenced")
            self._stopped_epoch = self.broker_epoch
        self._own_root.write()  # others lead until it answers
        self._register()
        self._due_ms["metadata"] = now_ms
        return False

    def _forget_progress(self, topic_partition: TopicPartition) -> None:
        self._coordinators.check_leader(topic_partition)
        if self._progress is not None:
            self._progress.forget(topic_partition)

    # -- appends and the high watermark ------------------------------------------------------------------

    def _append_waiting(self, now_ms: int) -> bool:
        moved = self._start_leaders(now_ms)
        for replica in self._queue.append(now_ms, self.turn_interval.work_ms(cadence.APPENDS.ms, now_ms)):
            moved = True
            self.turn_interval.moved(replica.state.topic_partition, now_ms)
            self._turn.to_publish.add(replica.state.topic_partition)
            self._raise_high_watermark(replica.state.topic_partition, now_ms)
        if moved:  # records, or the start of an epoch
            self._metadata_idle.news(now_ms)
            self._progress_idle.news(now_ms)
            self._followers.expect_progress()
        return moved

    def _start_leaders(self, now_ms: int) -> bool:
        moved = False
        for topic_partitions in in_groups(list(self._turn.to_start), self._together.distance.calls_max):
            moved |= self._start_some(topic_partitions, now_ms)
            if self._clock.monotonic_ms() - now_ms >= cadence.EPOCH_STARTS.ms:
                break
        return moved

    def _start_some(self, topic_partitions: Sequence[TopicPartition], now_ms: int) -> bool:
        """Begin the leader epochs of these partitions, as far as they can."""
        starting: list[LeaderReplica] = []
        for topic_partition in topic_partitions:
            replica = self.leaders.get(topic_partition)
            if replica is None or not replica.is_starting:
                del self._turn.to_start[topic_partition]  # it stopped leading meanwhile
            elif self._attempt(partial(self._has_longest_log, replica, now_ms)) and replica.may_start(now_ms):
                starting.append(replica)
        moved = False
        outcomes = self._together.run([replica.begin_epoch for replica in starting])
        for replica, outcome in zip(starting, outcomes, strict=True):
            moved |= self._start_leading(replica, outcome, now_ms)
            if not replica.is_starting:
                self._turn.to_start.pop(replica.state.topic_partition, None)
        return moved

    def _start_leading(self, replica: LeaderReplica, outcome: bool | StratalogError, now_ms: int) -> bool:
        topic_partition = replica.state.topic_partition
        try:
            if not replica.started(outcome, now_ms):
                return False
        except InconsistentTopicIdError as reason:
            # The table is of a deleted topic of this name: remove it, if the newest metadata agrees.
            self._turn.applies_all = True
            self.metadata.refresh_image()
            if self.metadata.image.topic_ids.get(topic_partition.topic) == replica.topic_id:
                self._hosted.drop_stray(replica, reason)
            return False
        self._turn.to_publish.add(topic_partition)
        self._follow(self._followers.known(topic_partition), now_ms)
        self._raise_high_watermark(topic_partition, now_ms)
        return True

    def _has_longest_log(self, replica: LeaderReplica, now_ms: int) -> bool:
        """True: this replica may begin its epoch. False while others are waited for, or when another one is to lead."""
        comparison = self._log_ends.compare(replica, self.metadata.image, now_ms)
        longer = comparison.longer
        if longer is None:
            return comparison.is_over
        if not self._log_ends.end_earlier_epochs(replica):
            return False
        try:
            is_handed = self.metadata.propose(
                lambda image: hand_to_longer_log(image, self.broker_id, self.broker_epoch, longer)
            )
        except StaleBrokerEpochError as reason:
            _LOG.info("broker %d: %s", self.broker_id, reason)
            return False
        if is_handed:
            self._log_ends.decided(longer.partition.topic_partition)
            STATE_CHANGE_LOG.warning(
                "[Broker %d] %s: after a loss of power the log of broker %d is the longest, it leads",
                self.broker_id,
                longer.partition.topic_partition,
                longer.broker_id,
            )
        self._due_ms["metadata"] = now_ms
        return False

    def _raise_high_watermark(self, topic_partition: TopicPartition, now_ms: int) -> None:
        replica, lag_ms_max = self.leaders.get(topic_partition), self.config.replica_lag_time_max_ms
        if replica and replica.partition and replica.partition.maybe_increment_high_watermark(now_ms, lag_ms_max):
            self._turn.to_publish.add(topic_partition)
        self._turn.to_complete.add(topic_partition)

    def _follow_followers(self, now_ms: int) -> bool:
        return self._follow(self._followers.poll(now_ms), now_ms)

    def _follow(self, published: Iterable[tuple[int, ReplicaProgress]], now_ms: int) -> bool:
        moved: set[TopicPartition] = set()
        for broker_id, progress in published:
            replica = self.leaders.get(progress.topic_partition)
            if replica is None or replica.partition is None or replica.topic_id != progress.topic_id:
                continue
            if replica.partition.follower_progressed(broker_id, progress, now_ms):
                moved.add(progress.topic_partition)
        for topic_partition in moved:
            self._raise_high_watermark(topic_partition, now_ms)
            self._progress_idle.news(now_ms)
        self._turn.to_expand |= moved
        return bool(moved)

    # -- ISR changes -------------------------------------------------------------------------------------

    def _change_isrs(self, turn: Turn) -> None:
        """Propose the ISR changes of all partitions in one piece; until the outcome is known the maximal ISR holds."""
        moved, turn.to_expand = turn.to_expand, set()
        lag_ms_max = self.config.replica_lag_time_max_ms
        is_due = self._is_due("isr", turn.begun_ms, max(lag_ms_max // 2, 1))
        if not moved and not is_due:
            return
        checked = self.leaders.values() if is_due else (self.leaders[tp] for tp in moved if tp in self.leaders)
        led = [replica.partition for replica in checked if replica.partition is not None]
        live = self.metadata.image.live_brokers()
        wanted = isr_changes(led, live, turn.begun_ms, lag_ms_max) if is_due else isr_expansions(led, live)
        if not wanted:
            return
        epochs = self._followers.broker_epochs()
        proposed = [
            proposed_isr(partition, self.leaders[partition.state.topic_partition].topic_id, isr, epochs)
            for partition, isr in wanted
        ]
        try:
            self.metadata.propose(lambda image: alter_partition(image, self.broker_id, self.broker_epoch, proposed))
        except StaleBrokerEpochError as reason:
            _LOG.info("broker %d: %s", self.broker_id, reason)
        now_ms = self._clock.monotonic_ms()
        self._follow_metadata(now_ms)
        for partition, _ in wanted:
            partition.end_joining()
            self._raise_high_watermark(partition.state.topic_partition, now_ms)

    def _report_offline(self, now_ms: int) -> None:
        """Report replicas that cannot be served from this broker's storage: others of the ISR should lead them."""
        if not self._hosted.offline or now_ms < self._offline_due_ms:
            return
        self._offline_due_ms = now_ms + cadence.OFFLINE_REPORTED.ms
        offline = self._hosted.offline_replicas()
        self.metadata.propose(lambda image: report_offline(image, self.broker_id, self.broker_epoch, offline))
        self._follow_metadata(now_ms)

    def _publish(self, turn: Turn) -> bool:
        """True when everybody can see what changed. Raises StoreUnavailableError: the next turn publishes it."""
        assert self._progress is not None
        moved = [self.leaders[tp] for tp in turn.to_publish if tp in self.leaders]
        entries = [progress for replica in moved if (progress := replica.progress()) is not None]
        beat_is_due = self._is_due("beat", turn.begun_ms, self.config.broker_heartbeat_interval_ms)
        self._progress.publish(entries, turn.begun_ms, beat_is_due=beat_is_due)
        turn.to_publish.clear()
        if entries and not self.wakeup.is_active:
            self.when_published()
        return True


def _idle_pauses(config: BrokerConfig, now_ms: int) -> tuple[IdlePause, IdlePause, IdlePause]:
    """The pauses of polls of metadata, of followers' progress and of the inbox."""
    progress_max_ms = cadence.FOLLOWERS_PROGRESS_TIMES * config.stratalog_progress_poll_max_ms
    return (
        IdlePause(
            cadence.METADATA.within(config.stratalog_metadata_poll_ms, config.stratalog_metadata_poll_max_ms), now_ms
        ),
        IdlePause(cadence.FOLLOWERS_PROGRESS.within(config.stratalog_progress_poll_min_ms, progress_max_ms), now_ms),
        IdlePause(cadence.INBOX.within(config.stratalog_inbox_poll_ms, config.stratalog_inbox_poll_max_ms), now_ms),
    )
