"""The controller's loop: watch broker sessions, elect leaders, fail over. Every broker runs a candidate.

I/O: session objects and the metadata log. Observe, decide (`brokers` and its neighbours), commit under the controller
epoch, resign when deposed (promise 12).
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence

from stratalog.replication import cadence
from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.brokers import fence_brokers, give_up_broker, online_partitions
from stratalog.replication.controller.controller_counts import ControllerCounts
from stratalog.replication.controller.domains.moves import finish_moves
from stratalog.replication.controller.election.preferred_leaders import rebalance_leaders
from stratalog.replication.controller.history_writer import HistoryWriter
from stratalog.replication.controller.reassignment import finish_reassignments
from stratalog.replication.controller.sessions import PeerBeats, SessionObserver, late_pause_ms, session_path
from stratalog.replication.controller.tombstones import end_records
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.log import metadata_of_part
from stratalog.replication.metadata.records import MetadataRecord, PartitionRecord
from stratalog.replication.metadata.state_changes import partition_lines, replica_lines
from stratalog.replication.stores import Ports
from stratalog.storage.cadence import IdlePause
from stratalog.storage.config_def import spelled
from stratalog.storage.errors import StaleControllerEpochError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import TopicPartition
from stratalog.storage.upkeep.chore import UpkeepLimits
from stratalog.storage.upkeep.upkeep import Upkeep

_LOG = line_logger("stratalog.controller")
_STATE_CHANGE_LOG = line_logger("stratalog.state.change")


class Controller:
    """One candidate. `epoch` is the controller epoch while it is the controller, else None."""

    def __init__(
        self,
        broker_id: int,
        incarnation_id: str,
        config: BrokerConfig,
        metadata_root: str,
        ports: Ports,
        upkeep_limits: UpkeepLimits | None = None,
    ) -> None:
        """`incarnation_id`: that of the registration of this process's broker."""
        self.broker_id = broker_id
        self._incarnation_id = incarnation_id
        self.epoch: int | None = None
        self.counts = ControllerCounts()
        self.metadata = metadata_of_part(ports, metadata_root)
        self._config = config
        self._objects = ports.stores.objects(metadata_root)
        self._clock = ports.clock
        self._observer = SessionObserver(
            config.broker_session_timeout_ms, max(config.broker_session_timeout_ms // 3, 1)
        )
        timeout_ms, now_ms = config.broker_session_timeout_ms, ports.clock.monotonic_ms()
        shortest_ms, longest_ms = (max(timeout_ms // polls, 1) for polls in (cadence.POLLS, cadence.POLLS_IDLE))
        self._idle = IdlePause(cadence.SESSIONS.within(shortest_ms, longest_ms), now_ms)
        self._late_ms = config.broker_heartbeat_interval_ms * 5 // 4
        self._unheard_ms = max(timeout_ms // 3, 1)
        """The age of a beat from which the session's object is read, which its broker writes again by then."""
        self.beats: PeerBeats | None = None
        """What this process's broker hears of the others, and has folded; None: all is read from storage. It is set
        before the first step."""
        self._refreshed_ms: int | None = None
        self._read_ms = cadence.METADATA_READ_SESSIONS * timeout_ms if self._objects.distance.is_far else 0
        self.expects_changes = False
        """Whether the last step found new metadata, or a session that is late."""
        self._history = HistoryWriter(metadata_root, ports)
        self._upkeep = Upkeep(
            self.metadata.log, upkeep_limits, ports.executor, cleans_below=lambda: self._history.end_offset
        )
        self._upkeep_due_ms = 0
        self._is_checked = False
        self._rebalance_due_ms = 0
        self.metadata.on_records = self._follow_records

    @property
    def poll_interval_ms(self) -> int:
        """The time until the next `step`: at least three polls within a session, and less often while nothing changes
        where each is paid. There a late session is polled more often, and at the time at which it expires."""
        now_ms = self._clock.monotonic_ms()
        if not self._objects.distance.is_far or self._hears_all(now_ms):
            return self._idle.poll.shortest_ms
        late = self._observer.late(now_ms, self._late_ms)
        if late:
            pause_ms = max(self._config.broker_session_timeout_ms // cadence.POLLS_LATE, 1)
            return late_pause_ms(pause_ms, self._observer.expires_in_ms(now_ms), self._rank(late))
        return self._idle.pause_ms(now_ms)

    def _rank(self, late: Collection[int]) -> int:
        """The number of candidates that poll before this one when a session expires. The controller polls first. Where
        the controller's own session is late, the other live brokers poll in the order of their ids."""
        image = self.metadata.image
        if self.epoch is not None:
            return 0
        others = sorted(broker_id for broker_id in image.live_brokers() if broker_id not in late)
        before = bisect_left(others, self.broker_id)
        return before if image.controller_id in late else before + 1

    def step(self, epoch_to_give_up: int | None = None) -> None:
        """One turn: poll the sessions, stand for election or act as controller.

        epoch_to_give_up  the broker epoch of this process's broker, if its own root answers nothing: it is fenced
        """
        now_ms = self._clock.monotonic_ms()
        try:
            self._step(now_ms, epoch_to_give_up)
        finally:
            self.counts.step_time.observe(self._clock.monotonic_ms() - now_ms)

    def _step(self, now_ms: int, epoch_to_give_up: int | None) -> None:
        has_changed = self._is_behind(now_ms) and bool(self.metadata.refresh())
        if has_changed:
            self._is_checked = False
            self._idle.changed(now_ms)
        if epoch_to_give_up is not None:
            self._give_up(epoch_to_give_up)
        image = self.metadata.image
        heard_ms = self._heard_ms(image)
        unheard = [i for i in image.live_brokers() if now_ms - heard_ms.get(i, -self._unheard_ms) >= self._unheard_ms]
        contents = {i: self._objects.get_register(session_path(i)) for i in unheard}
        polled_ms = self._clock.monotonic_ms()
        expired = self._observer.observe(polled_ms, contents, heard_ms)
        self.expects_changes = has_changed or bool(self._observer.late(polled_ms, self._late_ms))
        if not self._is_registered(image):
            self.epoch = None
            return
        if self.epoch != image.controller_epoch or image.controller_id != self.broker_id:
            self.epoch = None
            self._stand_for_election(image, expired)
        if self.epoch is not None:
            self._act(expired)
            self._rebalance(now_ms)
            self._keep_up(now_ms)

    def _is_behind(self, now_ms: int) -> bool:
        """Whether to read the metadata log: where reads are paid only what this process's loop, which polls for
        commits, has seen is read, and now and then all. Every decision reads the log anyway before its commit."""
        beats, before_ms = self.beats, self._refreshed_ms
        if beats is not None and before_ms is not None and now_ms - before_ms < self._read_ms:
            return self.metadata.has_unseen or beats.metadata_version != self.metadata.log.version
        self._refreshed_ms = now_ms
        return True

    def _heard_ms(self, image: ClusterImage) -> dict[int, int]:
        """When the newest beat of each live broker came, as far as one has; this process's own needs none."""
        if self.beats is None or not self._objects.distance.is_far:
            return {}
        found = {self.broker_id: self._clock.monotonic_ms()}
        for broker_id, each in image.live_brokers().items():
            heard_ms = self.beats.heard_ms(broker_id, each.broker_epoch)
            if heard_ms is not None and broker_id != self.broker_id:
                found[broker_id] = heard_ms
        return {broker_id: found[broker_id] for broker_id in found if broker_id in image.live_brokers()}

    def _hears_all(self, now_ms: int) -> bool:
        """Whether a poll reads nothing from storage."""
        heard_ms, live = self._heard_ms(self.metadata.image), self.metadata.image.live_brokers()
        return bool(live) and all(now_ms - heard_ms.get(i, -self._unheard_ms) < self._unheard_ms for i in live)

    def _is_registered(self, image: ClusterImage) -> bool:
        """Whether this process's broker is live. A successor may have registered under the same broker id, and be
        controller itself: then this process is no candidate."""
        own = image.live_brokers().get(self.broker_id)
        return own is not None and own.registration.incarnation_id == self._incarnation_id

    def _give_up(self, broker_epoch: int) -> None:
        """Fence this process's own broker. It is the broker's own word, as a controlled shutdown is: no controller
        epoch is needed, and this process resigns if it is the controller."""
        if not give_up_broker(self.metadata.image, self.broker_id, broker_epoch).records:
            return
        if self.metadata.propose(lambda image: give_up_broker(image, self.broker_id, broker_epoch)):
            _LOG.warning("broker %d fences itself: its own root answers nothing", self.broker_id)

    def _stand_for_election(self, image: ClusterImage, expired: set[int]) -> None:
        incumbent = image.live_brokers().get(image.controller_id)
        # The own id as incumbent is an earlier process of this broker, which no longer acts.
        is_free = incumbent is None or image.controller_id in expired or image.controller_id == self.broker_id
        if not is_free:
            return
        self.epoch = self.metadata.elect_controller(self.broker_id, image.controller_epoch)
        if self.epoch is not None:
            self.counts.elections_won += 1
            self._is_checked = False
            self._rebalance_due_ms = self._clock.monotonic_ms() + self._rebalance_interval_ms
            _LOG.info("broker %d is controller of epoch %d", self.broker_id, self.epoch)

    def _act(self, expired: set[int]) -> None:
        image = self.metadata.image
        dead = {i: image.brokers[i].broker_epoch for i in expired if i in image.brokers and i != self.broker_id}
        if dead:
            _LOG.info("sessions of brokers %s expired", sorted(dead))
            self._propose(lambda current: fence_brokers(current, dead, unclean_of=self._unclean_of(current)))
            self.counts.expired_sessions += len(dead)
            for broker_id in dead:
                self._observer.forget(broker_id)
        if self.epoch is not None and not self._is_checked:  # nothing else elects a leader for an offline partition
            self._propose(lambda current: online_partitions(current, self._unclean_of(current)))
            self._finish_reassignments()
            self._is_checked = True

    def _finish_reassignments(self) -> None:
        for decide in (finish_reassignments, finish_moves):
            if self.epoch is not None and decide(self.metadata.image).records:
                self._propose(decide)

    @property
    def _rebalance_interval_ms(self) -> int:
        return 1_000 * self._config.leader_imbalance_check_interval_seconds

    def _rebalance(self, now_ms: int) -> None:
        """Elect preferred replicas once per interval, first an interval after the controller's election: brokers that
        restart together with the controller have joined the ISRs by then."""
        if self.epoch is None or not self._config.auto_leader_rebalance_enable or now_ms < self._rebalance_due_ms:
            return
        self._rebalance_due_ms = now_ms + self._rebalance_interval_ms
        percentage_max = self._config.leader_imbalance_per_broker_percentage
        self._propose(lambda current: rebalance_leaders(current, percentage_max))

    def _follow_records(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Count and log the transitions of each record, whichever broker committed it, while this is the controller."""
        if self.epoch is None:
            return
        self._count(image, records)
        if not _STATE_CHANGE_LOG.isEnabledFor(logging.INFO):
            return
        for record in records:
            self._log_state_change(image, record)
            image = image.fold(record)

    def _count(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        newest: dict[TopicPartition, PartitionRecord] = {}
        for record in records:
            if isinstance(record, PartitionRecord):
                named = record.topic_partition
                self.counts.count(newest.get(named) or image.partitions.get(named), record)
                newest[named] = record

    def _log_state_change(self, image: ClusterImage, record: MetadataRecord) -> None:
        for line in partition_lines(image, record):
            _STATE_CHANGE_LOG.info("[Controller id=%d epoch=%d] %s", self.broker_id, self.epoch, line)
        if _STATE_CHANGE_LOG.isEnabledFor(logging.DEBUG):
            for line in replica_lines(image, record):
                _STATE_CHANGE_LOG.debug("[Controller id=%d epoch=%d] %s", self.broker_id, self.epoch, line)

    def _propose(self, decide: Callable[[ClusterImage], Result[object]]) -> None:
        try:
            self.metadata.propose(decide, controller_epoch=self.epoch)
        except StaleControllerEpochError as reason:
            _LOG.info("broker %d resigns as controller: %s", self.broker_id, reason)
            self.epoch = None

    def _unclean_of(self, image: ClusterImage) -> Callable[[str], bool]:
        own = spelled(self._config.unclean_leader_election_enable)
        default = image.cluster_config("unclean.leader.election.enable", own) == "true"

        def is_allowed(topic: str) -> bool:
            override = image.topic_config(topic).get("unclean.leader.election.enable")
            return default if override is None else override == "true"

        return is_allowed

    def _keep_up(self, now_ms: int) -> None:
        if now_ms < self._upkeep_due_ms and not self._upkeep.is_overdue:
            return
        self._upkeep_due_ms = now_ms + cadence.METADATA_UPKEEP.ms
        image, log = self.metadata.image, self.metadata.log
        if self.epoch is not None and end_records(image).records:
            self._propose(end_records)
        self._history.step(log.log_end_offset, image)
        self._upkeep.step(self._clock.wall_ms(), log.log_end_offset, log.leader_epoch)
