"""A broker: leads replicas, answers clients, keeps its session, follows the metadata log.

I/O: through its stores. `step` is one turn of a single-threaded loop; other threads use only `calls`, which puts
requests into queues. The same loop runs in a thread, in a spark-submit driver and, turn by turn, in the simulator.
What a turn does is divided among parts, which share a `LoopState`: `registration`, `polls` (when to look again),
`epoch_starts`, `appends`, `isr_changes`. The rules are elsewhere: `leader_and_isr` (becoming leader or follower),
`leader.partition` (ISR, high watermark), `leader.purgatory` (acks=all), and the decisions of `controller/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stratalog.replication import cadence
from stratalog.replication.broker.appends import LoopAppends
from stratalog.replication.broker.calls import BrokerCalls
from stratalog.replication.broker.hosted_replicas import BrokerIdentity, BrokerSetup, HostedReplicas
from stratalog.replication.broker.inbox import BrokerInbox
from stratalog.replication.broker.isr_changes import IsrChanges
from stratalog.replication.broker.leadership.epoch_starts import EpochStarts
from stratalog.replication.broker.leadership.log_ends import LogEnds
from stratalog.replication.broker.leadership.longest_log import unsure_of
from stratalog.replication.broker.loop_state import LoopState
from stratalog.replication.broker.own_root import OwnRoot
from stratalog.replication.broker.own_tables import STATE_CHANGE_LOG
from stratalog.replication.broker.polls import MetadataPolls, Polls
from stratalog.replication.broker.registration import Registration
from stratalog.replication.broker.session import BrokerSession
from stratalog.replication.broker.turn import Turn
from stratalog.replication.broker_root import was_shut_down
from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.brokers import shut_down_broker
from stratalog.replication.controller.topic_deletion import deleted_partitions
from stratalog.replication.coordinator.runtime.kinds import COORDINATOR_KINDS, CoordinatorKind
from stratalog.replication.coordinator.runtime.remote_appends import Appends
from stratalog.replication.coordinator.runtime.runtime import CoordinatorRuntime
from stratalog.replication.coordinator.shard.shard import HeldGroup
from stratalog.replication.follower.sessions.needed import needs_sessions
from stratalog.replication.leader.append_queue import AppendQueue
from stratalog.replication.leader.commit_governor import CommitGovernor
from stratalog.replication.leader.delete_records import RecordDeletions
from stratalog.replication.leader.purgatory import ProducePurgatory
from stratalog.replication.leader.replica import LeaderReplica, WaitingAppend
from stratalog.replication.metadata.image import BrokerState, ClusterImage
from stratalog.replication.metadata.log import MetadataLog, metadata_of_part
from stratalog.replication.metadata.records import NO_BROKER_EPOCH
from stratalog.replication.metrics import BrokerMetrics, Metric, RunState
from stratalog.replication.price_lists import price_book
from stratalog.replication.progress.follower_watch import FollowerWatch
from stratalog.replication.progress.known_committed import remove_old_progress
from stratalog.replication.progress.of_leader import LeaderProgress
from stratalog.replication.replica.deletions import ReplicaDeletions
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from stratalog.replication.stores import AppendStores, Ports, StoresBeside
from stratalog.replication.threads.turn_interval import TurnInterval
from stratalog.storage.errors import BrokerNotAvailableError, LogDirNotFoundError, StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.metering.calls import WRITE
from stratalog.storage.objects.wakeup import Wakeup
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.storage.step_times import StepTimes

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
        config, identity, clock, together = setup.config, setup.identity, ports.clock, ports.together
        broker_id, wakeup, purgatory = identity.broker_id, Wakeup(ports.clock), ProducePurgatory()
        incarnation_id = ports.ids.new_id()
        metadata = metadata_of_part(ports, setup.metadata_root)
        objects, metadata_objects = ports.stores.objects(identity.root), ports.stores.objects(setup.metadata_root)
        hosted = HostedReplicas(setup, ports, purgatory, lambda: metadata.image, self._stopped_leading, wakeup.wake)
        led_here = None if setup.own_registers is None else setup.own_registers.led_here
        self._loop = loop = LoopState(broker_id, config, clock, objects, together, metadata, hosted, led_here)
        self._own_root = OwnRoot(broker_id, objects, ports, config, setup.own_registers)
        session = BrokerSession(loop, metadata_objects, incarnation_id, setup.peer_beats)
        self._registration = registration = Registration(loop, identity, session, self.stop, on_registered)
        of_metadata = MetadataPolls(metadata, metadata_objects, config, ports, wakeup, clock.monotonic_ms())
        of_metadata.is_announced = lambda: session.is_taken
        self._polls = polls = Polls(config, ports, of_metadata, objects, purgatory, wakeup)
        followers = FollowerWatch(broker_id, ports, wakeup, polls.progress_poll_ms)
        self._isr_changes = IsrChanges(loop, polls, registration, followers, self._follow_metadata)
        log_ends = LogEnds(broker_id, ports, wakeup, config.broker_session_timeout_ms)
        self._starts = EpochStarts(loop, polls, registration, self._isr_changes, log_ends)
        far = ports.appends
        queue = AppendQueue(
            broker_id,
            loop.leaders,
            clock,
            hosted.metrics.queue_time,
            lambda partition: metadata.image.state_of(partition) is not None,
            AppendStores(together, None if far is None else StoresBeside(far.executor, wakeup.wake, far.takes)),
        )
        if config.stratalog_requests_budget:
            queue.governor = self._governor()
        intervals = turn_interval or TurnInterval()
        self._appends = LoopAppends(loop, polls, self._starts, self._isr_changes, queue, intervals)
        own: dict[int, Appends] = {}
        self.coordinators = CoordinatorRuntime(
            self, hosted, clock, ports.ids, coordinators, own if peers is None else peers
        )
        self.calls = own[broker_id] = BrokerCalls(self, self.coordinators)
        put_answer, examine = self._own_root.put, hosted.examine
        self._deletions = RecordDeletions(loop.leaders, clock)
        self._removed_topics = ReplicaDeletions(broker_id, identity.root, ports, metadata)
        self.inbox = BrokerInbox(objects, self.calls.append, examine, put_answer, self._identified)

    def _governor(self) -> CommitGovernor:
        """Keeps the commits here to the budget, by the prices of the places where the tables are."""
        loop, own, prices = self._loop, self.root, price_book(self.config.stratalog_prices)

        def price_of(named: TopicPartition) -> float:
            image = loop.metadata.image
            state = image.partitions.get(named)
            domain = None if state is None else image.storage_domains.get(state.domain_of(loop.broker_id))
            listed = prices.of_root(own if domain is None else domain.url)
            return 0.0 if listed is None else listed.prices.get(WRITE, 0.0)

        governor = CommitGovernor(self.config.stratalog_requests_budget, price_of)
        loop.hosted.metrics.commit_interval = lambda: governor.shown(loop.clock.monotonic_ms())
        return governor

    # -- what it is ------------------------------------------------------------------------------------

    @property
    def config(self) -> BrokerConfig:
        return self._loop.config

    @property
    def identity(self) -> BrokerIdentity:
        return self._registration.identity

    @property
    def broker_id(self) -> int:
        return self._loop.broker_id

    @property
    def root(self) -> str:
        return self._registration.identity.root

    @property
    def incarnation_id(self) -> str:
        return self._registration.session.incarnation_id

    @property
    def broker_epoch(self) -> int:
        """Of the newest registration."""
        return self._registration.broker_epoch

    @property
    def stopped_by(self) -> StratalogError | None:
        """Why it has stopped; None: it runs."""
        return self._registration.stopped_by

    @property
    def run_state(self) -> RunState:
        """Whether this process is starting, recovering, running, shutting down or stopped. Called from any thread."""
        return self._registration.run_state

    @property
    def metadata(self) -> MetadataLog:
        return self._loop.metadata

    @property
    def leaders(self) -> dict[TopicPartition, LeaderReplica]:
        """The replicas that it leads, started or not."""
        return self._loop.leaders

    @property
    def is_root_dead(self) -> bool:
        """Whether its own root answers no writes. Called from any thread."""
        return self._own_root.is_dead()

    @property
    def metrics(self) -> BrokerMetrics:
        return self._loop.hosted.metrics

    @property
    def wakeup(self) -> Wakeup:
        """What its loop sleeps on."""
        return self._polls.wakeup

    @property
    def turn_interval(self) -> TurnInterval:
        return self._appends.turn_interval

    def coordinator_metrics(self) -> list[Metric]:
        """What the coordinators here count and hold, by the names of Kafka's metrics."""
        return self.coordinators.metrics()

    def groups(self) -> list[HeldGroup]:
        """The groups that are coordinated here, with their committed offsets. Called from any thread."""
        return self.coordinators.groups()

    def call_when_published(self, call: Callable[[], None]) -> None:
        """Have the loop call this after it published high watermarks, where storage does not report that to this
        process's readers. It must not block."""
        self._appends.when_published = call

    # -- registration and end --------------------------------------------------------------------------

    def start(self) -> None:
        """Register under a new broker epoch (promise 13, KIP-380). Raises what the metadata log answers: call it again.

        Its tables lose what a power cut may have torn (promise 5), and replicas that are not assigned to this broker
        any more are removed. After an unclean stop an earlier process, or its fetch tasks, may still be at work there:
        so it registers first, which fences these, but as fenced. It leads and publishes nothing until it has
        recovered and registers again. If it dies before, there is no mark of a clean stop for that broker epoch either.
        Where it is alone in an ISR then, the replica with the longest log leads: see `longest_log`.
        """
        loop, registration = self._loop, self._registration
        loop.metadata.refresh()
        known = loop.metadata.image.brokers.get(self.broker_id)
        loop.hosted.remember_committed(loop.metadata.image)
        registration.found = loop.hosted.tables.found_in_root(loop.metadata.image, registration.found.directory_id)
        if not was_shut_down(registration.found.previous_broker_epoch, known):
            registration.recover()
            if not loop.objects.durable_on_answer:
                self._starts.log_ends.suspect(unsure_of(loop.metadata.image, self.broker_id))
            loop.hosted.recover(loop.metadata.image, loop.clock.monotonic_ms())
        loop.hosted.tables.remove_unknown(self._newest_image)
        self._register()

    def _newest_image(self) -> ClusterImage:
        self.metadata.refresh_image()
        self._registration.check_not_replaced(self.metadata.image)
        return self.metadata.image

    def _register(self) -> None:
        self._registration.register()
        self._announce()

    def _announce(self) -> None:
        """Begin to publish under the new broker epoch. `step` retries it when the store failed in between."""
        loop, registration, epoch = self._loop, self._registration, self.broker_epoch
        registers, beats = self._own_root.registers(self.root), not loop.objects.distance.is_far
        self._appends.publish_by(LeaderProgress(registers, epoch, loop.together, beats=beats))
        registration.session.put(epoch)
        remove_old_progress(loop.objects, loop.metadata.image, epoch)
        loop.turn.applies_all = True
        self.inbox.broker_epoch = registration.announced_epoch = epoch
        self._polls.metadata.start(f"metadata-of-{self.broker_id}")
        STATE_CHANGE_LOG.info("[Broker %d] registered with epoch %d", self.broker_id, epoch)
        registration.on_registered(epoch)

    def sync_ahead(self) -> None:
        """Make durable what is there while the loop goes on, so that `shut_down` has little left to sync: nobody is
        served meanwhile then. Called from another thread."""
        self._loop.objects.sync_all()

    def shut_down(self, on_moved: Callable[[], None] = lambda: None) -> None:
        """Controlled shutdown: append what waits, move the leaderships, leave the ISRs, stop. All is durable before
        that: the last member of an ISR stays in it. `on_moved` is called before what waits is refused, so that the
        refusals name the new leaders."""
        self._registration.is_leaving = True
        clock = self._loop.clock
        times = StepTimes(clock.monotonic_ms)
        self._appends.queue.governor = CommitGovernor()  # nothing gathers on
        end_ms = clock.monotonic_ms() + cadence.DRAIN.ms
        while clock.monotonic_ms() < end_ms:
            if not self._appends.append_waiting(clock.monotonic_ms()):
                if not self._appends.queue.is_storing:
                    break
                self.wakeup.wait_ms(cadence.LOOP_RETRY.ms)
        times.done("append what waits")
        self._loop.objects.sync_all()
        times.done("sync")
        self.metadata.propose(lambda image: shut_down_broker(image, self.broker_id, self.broker_epoch))
        times.done("move leaderships")
        on_moved()
        times.done("answer")
        self.stop(BrokerNotAvailableError(f"broker {self.broker_id} was shut down"))
        times.done("stop")
        _LOG.info("broker %d: controlled shutdown: %s", self.broker_id, times)

    def stop(self, reason: StratalogError) -> None:
        """Stop leading at once; nothing is written any more."""
        self._registration.stopped_by = reason
        self._isr_changes.followers.close()
        self._starts.log_ends.close()
        self._polls.metadata.close()
        self._loop.hosted.stop_all(str(reason))
        self.coordinators.stop(str(reason))
        self._appends.queue.refuse_all(self._down())
        self._deletions.stop(self._down())

    def _down(self) -> str:
        return f"broker {self.broker_id} is down: {self.stopped_by}"

    def append(self, waiting: WaitingAppend) -> None:
        """Queue a request for the leader of its partition, an internal one too. Called from any thread."""
        self._appends.queue.put(waiting)
        if self.stopped_by is not None:
            self._appends.queue.refuse_all(self._down())
        self.wakeup.wake()

    def delete_records(self, request: DeleteRecordsRequest, complete: Callable[[DeleteRecordsResponse], None]) -> None:
        """Queue a request for the leaders of its partitions. Called from any thread."""
        self._deletions.put(request, complete)
        if self.stopped_by is not None:
            self._deletions.refuse_inbound(self._down())
        self.wakeup.wake()

    def expect_metadata(self) -> None:
        """Metadata are about to change, or have changed: where the log cannot be watched it is read at once, and often
        for a while. Called from any thread."""
        self._polls.metadata.expect()

    def epoch_to_give_up(self) -> int | None:
        """The broker epoch under which this broker can do nothing, because its own root answers nothing; None while it
        does. Called regularly from the controller's thread: the loop may be stuck."""
        broker_epoch = self.broker_epoch  # read first: a root that answers meanwhile is followed by a new epoch
        return broker_epoch if broker_epoch != NO_BROKER_EPOCH and self._own_root.answers() else None

    def _identified(self, topic_partition: TopicPartition) -> IdentifiedPartition:
        return self.metadata.image.identified(topic_partition)

    def _stopped_leading(self, topic_partition: TopicPartition) -> None:
        self.coordinators.check_leader(topic_partition)
        self._appends.forget(topic_partition)

    # -- one turn --------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One turn of the loop; True when something moved: the next turn may follow at once."""
        if self.stopped_by is not None:
            return False
        turn, attempt = self._loop.turn, self._loop.attempt
        turn.begin(self._loop.clock.monotonic_ms())
        attempt(lambda: self._keep_registered(turn.begun_ms))
        moved = attempt(lambda: self._isr_changes.follow(turn.begun_ms))
        turn.has_more = attempt(self.coordinators.step)
        moved |= self._appends.append_waiting(turn.begun_ms)  # published with the high watermarks that just moved
        turn.has_more |= attempt(lambda: self._poll_inbox(turn.begun_ms))
        turn.has_more |= attempt(self._move_log_starts)
        self._perform(turn)
        return moved or turn.has_more

    def _perform(self, turn: Turn) -> None:
        """The end of a turn. Answers come last: a producer can read what acks=all has confirmed."""
        attempt, hosted = self._loop.attempt, self._loop.hosted
        attempt(self._isr_changes.propose)
        attempt(lambda: self._isr_changes.report_offline(turn.begun_ms))
        self._polls.purgatory.expire(turn.begun_ms)
        is_published = attempt(self._appends.publish)
        if is_published:
            self._appends.complete()
        self._deletions.answer(is_published=is_published)
        attempt(self.inbox.write_answers)
        upkeep_ms = self.config.stratalog_upkeep_interval_ms
        if self._polls.is_due("upkeep", turn.begun_ms, upkeep_ms) or hosted.is_upkeep_pressing:
            attempt(lambda: turn.to_publish.update(hosted.keep_up()))
            attempt(lambda: self._removed_topics.left.step(self.broker_epoch, turn.begun_ms))

    def _keep_registered(self, now_ms: int) -> None:
        if not self._registration.is_announced:
            self._announce()
        if self._polls.is_due("session", now_ms, self.config.broker_heartbeat_interval_ms):
            self._beat_session(now_ms)
        self._polls.poll_metadata(now_ms, lambda: self._follow_metadata(now_ms))
        if self._registration.is_announced:
            self._registration.session.announce(self.broker_epoch, now_ms)

    def _beat_session(self, now_ms: int) -> None:
        """A broker that cannot write to its own root lets its session expire, too: the process's controller thread may
        be stuck."""
        if not self._own_root.is_dead():
            self._registration.session.beat(self.broker_epoch, now_ms, self._polls.metadata.answered_ms)

    def _poll_inbox(self, now_ms: int) -> bool:
        if self._polls.is_due("answers", now_ms, cadence.ANSWERS_CLEANED.ms):
            self.inbox.clean(self._loop.clock.wall_ms())
        return self._polls.poll_inbox(now_ms, self.inbox.poll, has_requests=self.inbox.has_requests)

    def _move_log_starts(self) -> bool:
        moved = set() if self._deletions.is_idle else self._deletions.step(self.metadata.image.live_brokers())
        self._loop.turn.to_publish |= moved
        return bool(moved)

    # -- between turns ---------------------------------------------------------------------------------

    def rest_ms(self) -> int:
        """How long the loop rests after a turn that was not cut off, so that the next one has more to publish."""
        return self._appends.rest_ms()

    def wait_ms(self, *, moved: bool) -> int:
        """How long the loop may wait for its `wakeup` after a turn. A turn that moved something is complete if nothing
        is left: where everything is watched, a further one would find nothing."""
        has_more = self._loop.turn.has_more or self._appends.has_left or not self.wakeup.is_active
        return 0 if moved and has_more else self.pause_ms()

    def pause_ms(self) -> int:
        """How long the loop may wait for its `wakeup` after a turn in which nothing moved."""
        if self._appends.has_left or not self._registration.is_announced:
            return self._appends.retry_ms()
        return self._polls.pause_ms(self.coordinators.next_due_ms, self._deletions.next_due_ms)

    # -- metadata --------------------------------------------------------------------------------------

    def _follow_metadata(self, now_ms: int) -> None:
        loop, turn, changed = self._loop, self._loop.turn, self._loop.metadata.refresh()
        image = loop.metadata.image
        if changed:
            self._polls.metadata_changed(now_ms)
        turn.metadata_changed(changed, lambda: {*loop.hosted.known, *image.partitions})
        self._isr_changes.metadata_changed(changed)
        if not self._is_current(now_ms):
            return
        if changed or turn.to_apply:
            for forgotten in self._isr_changes.followers.update_brokers(self._followers(image)):
                loop.hosted.forget_follower(forgotten, now_ms)
        for topic_partition in sorted(turn.to_apply):
            try:
                if loop.hosted.apply(topic_partition, image, now_ms):
                    turn.start(topic_partition)
            except LogDirNotFoundError as reason:  # of a storage domain, whose directory may be mounted later
                self._isr_changes.cannot_open(topic_partition, reason)
                continue
            self._starts.log_ends.apply(topic_partition, image)
            self.coordinators.check_leader(topic_partition)
            turn.to_apply.discard(topic_partition)
            loop.raise_high_watermark(topic_partition, now_ms)  # a smaller min.insync.replicas commits more
        self.coordinators.partitions_deleted(deleted_partitions(changed))
        self._removed_topics.step(self.broker_epoch)

    def _followers(self, image: ClusterImage) -> Mapping[int, BrokerState]:
        """The brokers whose progress is read: nobody's where reads are paid and all tables lie in storage domains."""
        self._own_root.is_shared = needs_sessions(image, self.broker_id)
        is_paid = self._loop.objects.distance.is_far
        return {} if is_paid and not self._own_root.is_shared else image.brokers

    def _is_current(self, now_ms: int) -> bool:
        """False when this registration is over: fenced (register again) or replaced (stop for good)."""
        registration, image = self._registration, self.metadata.image
        if registration.replaced_by(image) is not None:
            return False
        if image.is_current(self.broker_id, self.broker_epoch):
            return True
        if registration.fenced_epoch != self.broker_epoch:
            STATE_CHANGE_LOG.warning("[Broker %d] epoch %d was fenced", self.broker_id, self.broker_epoch)
            self._loop.hosted.stop_all("this broker was fenced")
            registration.fenced_epoch = self.broker_epoch
        self._own_root.write()  # others lead until it answers
        self._register()
        self._polls.read_metadata_at(now_ms)
        return False
