"""The replicas on one broker, brought to the state that the metadata log gives them (Kafka: ReplicaManager).

I/O: opens, seals and drops tables through the broker's stores. `leader_and_isr` decides what is to be done; every
change is a line of the state change log, as in Kafka's `becomeLeaderOrFollower`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from stratalog.replication.broker.leadership.leader_and_isr import (
    BecomeFollower,
    BecomeLeader,
    Ignore,
    LocalReplica,
    StopReplica,
    Transition,
    UpdateIsr,
    decide_leader_and_isr,
)
from stratalog.replication.broker.own_tables import STATE_CHANGE_LOG, OwnTables
from stratalog.replication.broker.removals import NOT_ASSIGNED, ReplicaRemovals
from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.brokers import OfflineReplica
from stratalog.replication.controller.sessions import PeerBeats
from stratalog.replication.leader.domain_reach import out_of_reach
from stratalog.replication.leader.purgatory import ProducePurgatory
from stratalog.replication.leader.replica import LeaderPorts, LeaderReplica
from stratalog.replication.metadata.configs import TopicConfigs
from stratalog.replication.metadata.erasures import erases_of
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.metrics import BrokerMetrics
from stratalog.replication.progress.known_committed import (
    KnownCommitted,
    known_committed,
    published_before,
)
from stratalog.replication.progress.own_registers import OwnRegisters
from stratalog.replication.replica.removal import is_of_topic
from stratalog.replication.replica.upkeep_rounds import UpkeepRounds, limits_of, most_live_files
from stratalog.replication.stores import Ports
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.files.damage import damage_in
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import UpkeepDone, UpkeepLimits, UpkeepWork
from stratalog.storage.upkeep.erase import Erase
from stratalog.storage.upkeep.upkeep import Upkeep

_LOG = line_logger("stratalog.broker")

REMOVES_RECORDS = {UpkeepWork.RETENTION, UpkeepWork.COMPACTION, UpkeepWork.ERASE}
"""Upkeep after which readers must not return what they could read before. A merge leaves the records as they are."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Which broker this is: its id, its root and the failure domain that it stands in.

    endpoint  where clients reach it: `NAME://host:port` for each listener, with commas; None for nowhere
    """

    broker_id: int
    root: str
    rack: str | None = None
    endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerSetup:
    """What a broker is started with.

    upkeep_limits  a test's, whose times are shorter; None follows from `config`
    own_registers  keeps the progress that the broker publishes for readers in its process; None: they read storage
    peer_beats     what it hears of the other brokers over their listeners; None: nobody is called
    """

    identity: BrokerIdentity
    config: BrokerConfig
    metadata_root: str
    upkeep_limits: UpkeepLimits | None = None
    own_registers: OwnRegisters | None = None
    peer_beats: PeerBeats | None = None


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """What the leaders of one broker are opened with.

    producer_id_expiration_ms  `producer.id.expiration.ms`
    """

    configs: TopicConfigs
    producer_id_expiration_ms: int
    upkeep_limits: UpkeepLimits
    ports: LeaderPorts


@dataclass(frozen=True, slots=True)
class StoppedReplica:
    """What was applied to a replica before `stop_all`, and is applied again if it is still assigned here."""

    applied: LocalReplica


class HostedReplicas:
    """`leaders` are those that this broker leads, started or not; followers are the fetch sessions' business.

    offline  leaders whose table cannot be served, and why

    Of each partition two facts are kept: what was applied to its replica here (`LocalReplica | StoppedReplica`), and
    how far the removal of its table is (`Leaving | Sealed`). A sealed table may be deleted after its replica was
    assigned again, so neither follows from the other.
    """

    def __init__(
        self,
        setup: BrokerSetup,
        ports: Ports,
        purgatory: ProducePurgatory,
        image: Callable[[], ClusterImage],
        on_stopped: Callable[[TopicPartition], None] = lambda _topic_partition: None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`image` returns the newest image. `on_stopped` is called when a partition is not led here any more, `wake`
        when the loop has something to do, from any thread."""
        self.leaders: dict[TopicPartition, LeaderReplica] = {}
        self.offline: dict[TopicPartition, StratalogError] = {}
        self.upkeep = UpkeepRounds(ports.clock, lambda: self.metrics.bytes_out)
        self.metrics = BrokerMetrics(
            waiting_count=lambda: purgatory.size,
            offline_count=lambda: len(self.offline),
            live_files_max=lambda: most_live_files(each.log for each in list(self.leaders.values())),
            append_pause_ms_max=lambda: self.upkeep.pause_ms_max,
        )
        self.tables = OwnTables(setup.identity.broker_id, setup.identity.root, ports)
        self.removals = ReplicaRemovals(self.tables, self._sealed)
        self._settings = LeaderSettings(
            TopicConfigs(setup.identity.broker_id),
            setup.config.producer_id_expiration_ms,
            limits_of(setup.config, setup.upkeep_limits),
            LeaderPorts(
                setup.identity.broker_id,
                ports.clock,
                purgatory,
                self.metrics,
                self._set_offline,
                self.upkeep.append_pause_ms,
                lambda state, topic_id: self.tables.had_records(image(), state, topic_id),
                lambda state: self.tables.check_claim(image(), state),
                lambda: image().next_producer_id,
                ports.file_writers,
                wake,
            ),
        )
        self._on_stopped = on_stopped
        self._replicas: dict[TopicPartition, LocalReplica | StoppedReplica] = {}
        self._committed: dict[TopicPartition, KnownCommitted] = {}
        self._image = image
        self._records_removed: set[TopicPartition] = set()

    @property
    def known(self) -> set[TopicPartition]:
        """The replicas that a state was applied to, also before this broker was fenced."""
        return {*self._replicas, *self.removals.leaving()}

    def remember_committed(self, image: ClusterImage) -> None:
        """At start: remember what the earlier process published as committed."""
        self._committed |= published_before(self.tables.objects, image, self.tables.broker_id)

    def recover(self, image: ClusterImage, now_ms: int) -> None:
        """At start after an unclean stop, once earlier processes are fenced: see `OwnTables.recover`."""
        for topic_partition in self.tables.recover(image):
            self.removals.is_to_be_deleted(topic_partition, now_ms)

    def apply(self, topic_partition: TopicPartition, image: ClusterImage, now_ms: int) -> bool:
        """Bring one replica to the partition's newest state. What fails is retried by the next call.

        True when it became leader: the caller starts its epoch.
        """
        self.removals.applies = True
        topic_id, state = image.topic_ids.get(topic_partition.topic, ""), image.partitions.get(topic_partition)
        self.removals.finish(topic_partition, state, now_ms)
        self._stop_older(topic_partition, topic_id)
        transition, applied = self._transition(topic_partition, state, topic_id), self._applied(topic_partition)
        match transition:
            case BecomeLeader(state=new):
                self._become_leader(new, topic_id, image)
            case BecomeFollower(state=new):
                self.stop_leading(topic_partition, f"broker {new.leader} leads epoch {new.leader_epoch}")
                self._log_state(new, "became follower")
            case UpdateIsr(state=new):
                if topic_partition in self.leaders:
                    self.metrics.isr_changed(self.leaders[topic_partition].state.isr, new.isr)
                    self.leaders[topic_partition].update_state(new, now_ms)
                    self._reconfigure(topic_partition, image)
                    self._log_state(new, "ISR updated")
            case StopReplica():
                if state is not None:
                    self._leave(applied, topic_id, state, now_ms)
                return False
            case Ignore(reason=reason):
                self._reconfigure(topic_partition, image)
                if reason:
                    STATE_CHANGE_LOG.warning("[Broker %d] %s: %s", self.tables.broker_id, topic_partition, reason)
                return False
        self._replicas[topic_partition] = local = LocalReplica(new, topic_id)
        if applied is not None and self._is_in_domain(local) and not self._is_in_domain(applied):
            self.removals.begin(topic_partition, topic_id, new.leader_epoch)
        return isinstance(transition, BecomeLeader)

    def _leave(self, applied: LocalReplica | None, topic_id: str, state: PartitionRecord, now_ms: int) -> None:
        """This broker has no replica any more, by this state. A table in a storage domain is that of others."""
        topic_partition = state.topic_partition
        self.stop_leading(topic_partition, NOT_ASSIGNED)
        if applied is not None and self._is_in_domain(applied):
            self._forget(topic_partition)
            return
        self.removals.begin(topic_partition, topic_id, state.leader_epoch)
        self.removals.seal_some(now_ms)

    def _applied(self, topic_partition: TopicPartition) -> LocalReplica | None:
        """What was applied last, also before this broker was fenced."""
        held = self._replicas.get(topic_partition)
        return held.applied if isinstance(held, StoppedReplica) else held

    def _is_applied_in_root(self, topic_partition: TopicPartition) -> bool:
        applied = self._applied(topic_partition)
        return applied is not None and not self._is_in_domain(applied)

    def _is_in_domain(self, local: LocalReplica) -> bool:
        return bool(local.state.domain_of(self.tables.broker_id))

    def _transition(self, topic_partition: TopicPartition, state: PartitionRecord | None, topic_id: str) -> Transition:
        local = self._replicas.get(topic_partition)
        if isinstance(local, StoppedReplica):
            if not self.tables.is_assigned(state):
                return StopReplica()  # it left the assignment while this broker was fenced
            local = None
        if local is not None and topic_partition in self.offline:
            local = replace(local, has_failed=self.leaders[topic_partition].failure is not None)
        return decide_leader_and_isr(local, state, topic_id, self.tables.broker_id)

    def _stop_older(self, topic_partition: TopicPartition, topic_id: str) -> None:
        """What was applied is of an older topic of this name, which was deleted."""
        applied = self._applied(topic_partition)
        if applied is not None and applied.topic_id != topic_id:
            self._stop_deleted(applied)

    def _sealed(self, topic_partition: TopicPartition) -> int:
        """A replica that left the root is sealed. Returns its `file.delete.delay.ms`."""
        delay_ms = self._settings.configs.of(topic_partition.topic, self._image()).file_delete_delay_ms
        applied = self._applied(topic_partition)
        if applied is None or not self._is_in_domain(applied):
            self._forget(topic_partition)
        return delay_ms

    def _forget(self, topic_partition: TopicPartition) -> None:
        self._replicas.pop(topic_partition, None)
        self._settings.configs.forget(topic_partition.topic)

    def _maybe_sealed(self) -> set[TopicPartition]:
        """Replicas that may wait for the deletion of a sealed table: only those that are not in sync do."""
        applied = [each.state for each in self._replicas.values() if isinstance(each, LocalReplica)]
        tables = self.tables
        out_of_sync = {s.topic_partition for s in applied if tables.broker_id not in s.isr and tables.is_in_root(s)}
        starting = (tp for tp, leader in self.leaders.items() if leader.is_starting and tables.is_in_root(leader.state))
        return out_of_sync.union(starting)

    # -- leading -----------------------------------------------------------------------------------------

    def _become_leader(self, state: PartitionRecord, topic_id: str, image: ClusterImage) -> None:
        topic_partition, config = state.topic_partition, self._config_of(state, image)
        self.stop_leading(topic_partition, f"epoch {state.leader_epoch} began")
        expiration_ms = self._settings.producer_id_expiration_ms
        tables = self.tables
        log = PartitionLog(tables.table_of(state, image), config, tables.clock, tables.ports.ids, expiration_ms)
        committed = known_committed(self._committed.get(topic_partition), topic_id, state)
        self.leaders[topic_partition] = LeaderReplica(state, topic_id, log, self._settings.ports, committed)
        erases = partial(self._erases_of, topic_partition)
        self.upkeep.add(
            topic_partition, Upkeep(log, self._settings.upkeep_limits, self.tables.ports.executor, erases=erases)
        )
        self._log_state(state, "became leader")

    def _erases_of(self, topic_partition: TopicPartition) -> list[Erase]:
        return erases_of(self._image(), topic_partition)

    def _reconfigure(self, topic_partition: TopicPartition, image: ClusterImage) -> None:
        """Apply a topic's altered config, or a request to erase, while the replica leads."""
        self.upkeep.wake(topic_partition)
        replica = self.leaders.get(topic_partition)
        if replica is not None:
            replica.reconfigure(self._config_of(replica.state, image))

    def _config_of(self, state: PartitionRecord, image: ClusterImage) -> LogConfig:
        """The configs of a led partition's log. In a storage domain there is no other copy of what was acknowledged:
        where writes are not durable once they are answered, each commit is synced before its answer."""
        config = self._settings.configs.of(state.topic, image)
        return replace(config, flush_messages=1) if state.domain_of(self.tables.broker_id) else config

    def _stop_deleted(self, applied: LocalReplica) -> None:
        """The topic is gone: drop its table, but not one that a session has made for a new topic of that name.
        `ReplicaDeletions` drops those in storage domains."""
        topic_partition, reason = applied.state.topic_partition, "its topic was deleted"
        self.stop_leading(topic_partition, reason, errors.UnknownTopicOrPartitionError)
        if not self._is_in_domain(applied):
            table = self.tables.table(topic_partition)
            table.drop(lambda: is_of_topic(table, (applied.topic_id,), self.tables.clock, self.tables.ports.ids))
        self._forget(topic_partition)
        self.tables.log(f"stopped replica {topic_partition}: {reason}")

    def stop_leading(
        self,
        topic_partition: TopicPartition,
        reason: str,
        refusal: type[StratalogError] = errors.NotLeaderOrFollowerError,
    ) -> None:
        """Refuse what waits for this replica, with an error of the class `refusal`; the table stays."""
        replica = self.leaders.pop(topic_partition, None)
        self.offline.pop(topic_partition, None)
        self.upkeep.drop(topic_partition)
        if replica is not None:
            self._committed[topic_partition] = KnownCommitted(
                replica.topic_id, replica.state.unclean, replica.known_committed
            )
            what = f"{topic_partition} is not led by broker {self.tables.broker_id}: {reason}"
            replica.resign(refusal(what))
        self._on_stopped(topic_partition)

    def stop_all(self, reason: str) -> None:
        """Lead nothing until the next `apply` of each partition."""
        for topic_partition in list(self.leaders):
            self.stop_leading(topic_partition, reason)
        for topic_partition, held in self._replicas.items():
            if isinstance(held, LocalReplica):
                self._replicas[topic_partition] = StoppedReplica(held)

    def forget_follower(self, broker_id: int, now_ms: int) -> None:
        """A broker was fenced or came up again: what it had copied before may be gone (promise 13, KIP-966)."""
        for replica in self.leaders.values():
            if replica.partition is not None:
                replica.partition.forget_follower(broker_id, now_ms)

    def keep_up(self) -> set[TopicPartition]:
        """Upkeep of the led replicas and the removal of others, for a bounded time. Returns the partitions of which
        it removed records: a reader refreshes its fold of an idle log only once the leader publishes a newer version.
        """
        now_ms = self.tables.clock.monotonic_ms()
        self.removals.find_strays(self._image, self._is_applied_in_root, now_ms)
        self.removals.find_sealed(self._maybe_sealed, now_ms)
        self.removals.seal_some(now_ms)
        self.removals.delete_some(now_ms)
        self.upkeep.run(self._keep_one_up, self._broken)
        removed, self._records_removed = self._records_removed, set()
        return removed

    @property
    def is_upkeep_pressing(self) -> bool:
        """Whether upkeep is to run now, not at its interval: also where the append that it found under way is stored,
        and the next ones wait for it."""
        leaders = self.leaders
        has_freed = any(tp in leaders and not leaders[tp].is_storing for tp in self.upkeep.put_off)
        return has_freed or self.upkeep.is_pressing

    def _keep_one_up(self, topic_partition: TopicPartition, upkeep: Upkeep, is_busy: bool) -> UpkeepDone | None:
        replica = self.leaders[topic_partition]
        if replica.partition is None:
            return None
        if not replica.may_change(self.tables.clock.monotonic_ms()):
            self.upkeep.put_off.add(topic_partition)
            return None
        self.upkeep.put_off.discard(topic_partition)
        high_watermark = replica.partition.high_watermark
        done = upkeep.step(self.tables.clock.wall_ms(), high_watermark, replica.leader_epoch, is_busy=is_busy)
        if done is not None and done.work in REMOVES_RECORDS:
            self._records_removed.add(topic_partition)
        return done

    # -- damage ------------------------------------------------------------------------------------------

    def examine(self, topic_partition: TopicPartition, path: str) -> None:
        """Check this replica, and this file of it, which a follower could not read.

        The fold that the leader holds may be older than the damage, so the table is folded from storage.
        """
        replica = self.leaders.get(topic_partition)
        if replica is None or replica.partition is None:
            return
        if replica.is_storing:
            return  # the follower reports it again
        log = replica.log
        try:
            log.refresh()
            log.table.check_files([entry.file for entry in log.files if entry.path == path], bits=True)
            log.table.reopened().snapshot()
        except errors.StoreUnavailableError as reason:
            _LOG.warning("%s cannot be examined: %s", topic_partition, reason)  # the follower reports it again
        except StratalogError as reason:
            self._broken(topic_partition, reason)

    def _broken(self, topic_partition: TopicPartition, reason: StratalogError) -> None:
        """A damaged leader that is the whole ISR keeps leading, until it is not any more."""
        replica = self.leaders[topic_partition]
        if damage_in(reason) is not None and not replica.may_be_replaced:
            _LOG.error(
                "%s stays online on broker %d, the whole ISR: %s", topic_partition, self.tables.broker_id, reason
            )
            replica.keep_damaged(reason)
            return
        replica.go_offline(reason)

    def _set_offline(self, topic_partition: TopicPartition, reason: StratalogError | None) -> None:
        """A led replica cannot be served; None: it can again. A full disk concerns all replicas there (Kafka: its log
        directory is offline): all of them should be led elsewhere, until something fits again."""
        if reason is not None and not isinstance(reason, errors.StoreFullError):
            self.offline[topic_partition] = reason
            return
        domain = self.leaders[topic_partition].domain
        there = {tp: replica for tp, replica in self.leaders.items() if replica.domain == domain}
        if reason is not None:
            self._wait_for_store(there, reason)
            return
        now_ms = self.tables.clock.monotonic_ms()
        for each, replica in there.items():
            away = self.offline.get(each)
            is_answered = isinstance(away, errors.StoreFullError) or replica.unanswered_ms(now_ms) is None
            if isinstance(away, errors.StoreUnavailableError) and is_answered:
                del self.offline[each]
                replica.waits_for_store = False

    def _wait_for_store(self, replicas: Mapping[TopicPartition, LeaderReplica], reason: StratalogError) -> None:
        for topic_partition, replica in replicas.items():
            self.offline.setdefault(topic_partition, reason)
            replica.waits_for_store = True

    def give_way(self, now_ms: int, unanswered_ms: int) -> None:
        """Report the led replicas of storage domains that this broker cannot write to for `unanswered_ms`. They try on
        until others lead, and then refuse what waits: its outcome may be unknown, and only its client can tell."""
        for replica in out_of_reach(self.leaders.values(), now_ms, unanswered_ms):
            topic_partition, domain = replica.state.topic_partition, replica.domain
            if topic_partition not in self.offline:
                what = (
                    f"{topic_partition}: broker {self.tables.broker_id} cannot write to the storage domain '{domain}'"
                )
                reason = errors.StoreUnavailableError(f"{what} for {replica.unanswered_ms(now_ms) or unanswered_ms} ms")
                _LOG.error("%s: another replica is to lead", reason)
                self._wait_for_store({topic_partition: replica}, reason)

    def offline_replicas(self) -> list[OfflineReplica]:
        """What is to be reported, in order. Damage is recorded beside its table before: a follower that uses the table
        later has to know it."""
        reports = []
        for topic_partition, reason in sorted(self.offline.items()):
            damage, leader = damage_in(reason), self.leaders[topic_partition]
            table = leader.log.table
            if damage is not None and table.damage() is None:
                table.note_damage(damage)
            is_absent = isinstance(reason, errors.LogLostError)
            named = IdentifiedPartition(leader.topic_id, topic_partition)
            reports.append(OfflineReplica(named, leader.state.partition_epoch, is_absent))
        return reports

    def _log_state(self, state: PartitionRecord, what: str) -> None:
        lost = f", whose log is lost on brokers {list(state.lost)}" if state.lost else ""
        self.tables.log(f"{state.topic_partition} {what}: {state.state_json()}{lost}")
