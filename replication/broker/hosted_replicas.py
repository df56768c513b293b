"""The replicas on one broker, brought to the state that the metadata log gives them (Kafka: ReplicaManager).

I/O: opens, seals and drops tables through the broker's stores. `leader_and_isr` decides what is to be done; every
change is a line of the state change log, as in Kafka's `becomeLeaderOrFollower`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from stratalog.replication import cadence
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
from stratalog.replication.broker_root import clean_shutdown_epoch, directory_id
from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.brokers import FoundRoot, OfflineReplica
from stratalog.replication.leader.purgatory import ProducePurgatory
from stratalog.replication.leader.replica import LeaderPorts, LeaderReplica
from stratalog.replication.metadata.configs import TopicConfigs
from stratalog.replication.metadata.erasures import erases_of
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.metrics import BrokerMetrics
from stratalog.replication.progress.known_committed import (
    KnownCommitted,
    had_records,
    known_committed,
    published_before,
)
from stratalog.replication.progress.own_registers import OwnRegisters
from stratalog.replication.replica.removal import (
    Leaving,
    Sealed,
    delete_stray,
    delete_unknown,
    has_begun,
    is_of_topic,
    is_sealed,
    seal,
)
from stratalog.replication.replica.upkeep_rounds import UpkeepRounds, limits_of, most_live_files
from stratalog.replication.stores import Ports
from stratalog.storage.delta.table import LogTable
from stratalog.storage.errors import (
    LogLostError,
    NotLeaderOrFollowerError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    StratalogError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.files.damage import damage_in
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.storage.upkeep.chore import UpkeepDone, UpkeepLimits, UpkeepWork
from stratalog.storage.upkeep.erase import Erase
from stratalog.storage.upkeep.upkeep import Upkeep

_LOG = line_logger("stratalog.broker")
STATE_CHANGE_LOG = line_logger("stratalog.state.change")

NOT_ASSIGNED = "it is not assigned to this broker any more"
SEALED_CHECKED = 20
"""Tables that one such search opens at most."""
REMOVES_RECORDS = {UpkeepWork.RETENTION, UpkeepWork.COMPACTION, UpkeepWork.ERASE}
"""Upkeep after which readers must not return what they could read before. A merge leaves the records as they are."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Which broker this is: its id, its storage domain and the failure domain that it stands in.

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
    """

    identity: BrokerIdentity
    config: BrokerConfig
    metadata_root: str
    upkeep_limits: UpkeepLimits | None = None
    own_registers: OwnRegisters | None = None


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
        self._broker_id = setup.identity.broker_id
        self._root = setup.identity.root
        self._objects = ports.stores.objects(self._root)
        self._ports = ports
        self._clock = ports.clock
        self._configs = TopicConfigs(self._broker_id)
        self._producer_id_expiration_ms = setup.config.producer_id_expiration_ms
        self._upkeep_limits = limits_of(setup.config, setup.upkeep_limits)
        self._leader_ports = LeaderPorts(
            self._broker_id,
            ports.clock,
            purgatory,
            self.metrics,
            self._set_offline,
            self.upkeep.append_pause_ms,
            partial(had_records, self._objects),
            lambda: image().next_producer_id,
            ports.file_writers,
            wake,
        )
        self._on_stopped = on_stopped
        self._replicas: dict[TopicPartition, LocalReplica | StoppedReplica] = {}
        self._removals: dict[TopicPartition, Leaving | Sealed] = {}
        self._committed: dict[TopicPartition, KnownCommitted] = {}
        self._image = image
        self._has_applied = False
        self._strays_due_ms = 0
        self._sealed_due_ms = 0
        self._last_checked: TopicPartition | None = None
        self._records_removed: set[TopicPartition] = set()

    @property
    def known(self) -> set[TopicPartition]:
        """The replicas that a state was applied to, also before this broker was fenced."""
        return {*self._replicas, *self._leaving()}

    def _leaving(self) -> list[TopicPartition]:
        return [tp for tp, removal in self._removals.items() if isinstance(removal, Leaving)]

    def _table(self, topic_partition: TopicPartition) -> LogTable:
        return self._ports.stores.table(self._root, topic_partition)

    def remember_committed(self, image: ClusterImage) -> None:
        """At start: remember what the earlier process published as committed."""
        self._committed |= published_before(self._objects, image, self._broker_id)

    def found_in_root(self, image: ClusterImage, known_id: str | None) -> FoundRoot:
        """At start: what the root shows of the broker's last life. `known_id`: the id of its directory, if this process
        has seen it before. Tables are only looked for where they matter: on another disk, or where one was lost."""
        objects = self._objects
        directory = known_id or directory_id(objects, self._ports.ids.new_id())
        before = image.brokers.get(self._broker_id)
        is_another = before is not None and before.registration.directory_id not in (None, directory)
        has_lost = any(self._broker_id in state.lost for state in image.partitions.values())
        held = self._held() if is_another or has_lost else None
        return FoundRoot(clean_shutdown_epoch(objects), directory, held)

    def _held(self) -> frozenset[TopicPartition]:
        tables = self._ports.stores.replicas(self._root)
        return frozenset(tp for tp in tables if has_begun(self._table(tp), self._clock, self._ports.ids))

    def recover(self, image: ClusterImage, now_ms: int) -> None:
        """At start after an unclean stop, once earlier processes are fenced: cut off what a power cut may have torn
        (promise 5). Where writes are durable once they are answered nothing is torn.

        Tables that were to be deleted are found here or later, and are deleted by the broker's loop: a later process
        may have replaced this one meanwhile, and made them again.
        """
        if self._objects.durable_on_answer:
            return
        for topic_partition in self._ports.stores.replicas(self._root):
            table = self._table(topic_partition)
            if self._is_assigned(image.partitions.get(topic_partition)):
                table.recover_tail()
                if is_sealed(table, self._clock, self._ports.ids):
                    self._log(f"removes replica {topic_partition}, which was to be deleted: it is copied again")
                    self._removals[topic_partition] = Sealed(now_ms)
        self._objects.forget_lost_writes()

    def remove_unknown(self, image: Callable[[], ClusterImage]) -> None:
        """At start: remove tables of topics that there are no more, and what deletions left. The newest `image` is
        asked for after the tables were listed, so that it shows each topic for which one was made. The broker's loop
        finds tables of partitions that are assigned elsewhere."""
        self._delete_leftovers()
        tables = self._ports.stores.replicas(self._root)
        partitions = image().partitions
        for topic_partition in tables:
            if topic_partition in partitions:
                continue
            if delete_unknown(self._table(topic_partition), self._clock, self._ports.ids):
                self._log(f"removed replica {topic_partition}, whose topic is unknown")

    def _delete_leftovers(self) -> None:
        """Delete what deletions of tables left that ended with their process, as Kafka's `LogManager` does at start.
        Beside the start, where there is an executor: a large table takes long."""
        leftovers = self._objects.leftovers()
        if leftovers and self._ports.executor is not None:
            self._ports.executor.submit(_delete_leftovers, self._objects, leftovers)
        elif leftovers:
            _delete_leftovers(self._objects, leftovers)

    def _is_assigned(self, state: PartitionRecord | None) -> bool:
        return state is not None and self._broker_id in state.replicas

    def apply(self, topic_partition: TopicPartition, image: ClusterImage, now_ms: int) -> bool:
        """Bring one replica to the partition's newest state. What fails is retried by the next call.

        True when it became leader: the caller starts its epoch.
        """
        self._has_applied = True
        topic_id, state = image.topic_ids.get(topic_partition.topic, ""), image.partitions.get(topic_partition)
        self._finish_removal(topic_partition, state, topic_id, now_ms)
        transition = self._transition(topic_partition, state, topic_id)
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
                    self.stop_leading(topic_partition, NOT_ASSIGNED)
                    self._removals[topic_partition] = Leaving(topic_id, state.leader_epoch)
                    self._seal_some(now_ms)
                return False
            case Ignore(reason=reason):
                self._reconfigure(topic_partition, image)
                if reason:
                    STATE_CHANGE_LOG.warning("[Broker %d] %s: %s", self._broker_id, topic_partition, reason)
                return False
        self._replicas[topic_partition] = LocalReplica(new, topic_id)
        return isinstance(transition, BecomeLeader)

    def _transition(self, topic_partition: TopicPartition, state: PartitionRecord | None, topic_id: str) -> Transition:
        local = self._replicas.get(topic_partition)
        if isinstance(local, StoppedReplica):
            if not self._is_assigned(state):
                return StopReplica()  # it left the assignment while this broker was fenced
            local = None
        if local is not None and topic_partition in self.offline:
            local = replace(local, has_failed=self.leaders[topic_partition].failure is not None)
        return decide_leader_and_isr(local, state, topic_id, self._broker_id)

    def _finish_removal(
        self, topic_partition: TopicPartition, state: PartitionRecord | None, topic_id: str, now_ms: int
    ) -> None:
        """Finish what an older state began, before a newer one is applied."""
        is_assigned = self._is_assigned(state)
        if isinstance(self._removals.get(topic_partition), Leaving) and (is_assigned or state is None):
            self._seal(topic_partition, now_ms)
        if isinstance(self._removals.get(topic_partition), Sealed) and is_assigned:
            self._delete(topic_partition)  # assigned again: it is copied again
        held = self._replicas.get(topic_partition)
        applied = held.applied if isinstance(held, StoppedReplica) else held
        if applied is not None and applied.topic_id != topic_id:
            self._stop_deleted(topic_partition, applied.topic_id)

    # -- removal -----------------------------------------------------------------------------------------

    def _seal_some(self, begun_ms: int) -> None:
        """Seal replicas that are not assigned any more, for a bounded time: each takes a commit that is synced."""
        for topic_partition in self._leaving():
            if self._clock.monotonic_ms() - begun_ms > cadence.REMOVALS.ms:
                return
            try:
                self._seal(topic_partition, begun_ms)
            except StoreError as reason:
                _LOG.warning("%s is not removed yet: %s", topic_partition, reason)

    def _seal(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """End all writes to the table. It is deleted `file.delete.delay.ms` later: readers may still have it open, and
        writers may have left files for another leader."""
        leaving = self._removals[topic_partition]
        assert isinstance(leaving, Leaving)
        may_be_deleted = seal(self._table(topic_partition), leaving, self._clock, self._ports.ids)
        del self._removals[topic_partition]
        if not may_be_deleted:
            self._log(f"keeps replica {topic_partition}: it was assigned again after leader epoch {leaving.epoch}")
            return
        self._replicas.pop(topic_partition, None)
        delay_ms = self._configs.of(topic_partition.topic, self._image()).file_delete_delay_ms
        self._configs.forget(topic_partition.topic)
        self._removals[topic_partition] = Sealed(now_ms + delay_ms)
        self._log(f"stopped replica {topic_partition}: {NOT_ASSIGNED}")

    def _delete_some(self, now_ms: int) -> None:
        """Delete sealed tables whose delay has passed, for a bounded time."""
        for topic_partition, removal in list(self._removals.items()):
            if not isinstance(removal, Sealed) or removal.delete_ms > now_ms:
                continue
            if self._clock.monotonic_ms() - now_ms > cadence.REMOVALS.ms:
                return
            try:
                self._delete(topic_partition)
            except StoreError as reason:
                _LOG.warning("%s is not deleted yet: %s", topic_partition, reason)

    def _delete(self, topic_partition: TopicPartition) -> None:
        table = self._table(topic_partition)
        # not sealed: an earlier try did it after all
        if table.drop(lambda: is_sealed(table, self._clock, self._ports.ids, if_unreadable=True)):
            self._log(f"deleted replica {topic_partition}")
        del self._removals[topic_partition]

    def _find_strays(self, now_ms: int) -> None:
        """Find tables that fetch sessions made for an assignment that was over before this broker's loop knew of it, or
        made again before they knew of its end. A table of an unknown topic waits for the next start: the topic may
        be so new that only the sessions know it."""
        if not self._has_applied or now_ms < self._strays_due_ms:
            return
        self._strays_due_ms = now_ms + cadence.STRAYS_SEARCHED.ms
        tables, image = self._ports.stores.replicas(self._root), self._image()
        for topic_partition in tables:
            state, removal = image.partitions.get(topic_partition), self._removals.get(topic_partition)
            is_applied = topic_partition in self._replicas  # it may still lead: `apply` stops it first
            if state is None or self._is_assigned(state) or isinstance(removal, Sealed) or is_applied:
                continue
            if self._table(topic_partition).snapshot() is not None:
                topic_id = image.topic_ids.get(topic_partition.topic, "")
                self._removals[topic_partition] = Leaving(topic_id, state.leader_epoch)

    def _find_sealed(self, now_ms: int) -> None:
        """Find tables of replicas that are assigned again, which another process of this broker sealed and did not
        delete before it died: fetch sessions and new leaders wait for the deletion. Only replicas that are not in sync
        are checked, `SEALED_CHECKED` at a time."""
        if now_ms < self._sealed_due_ms:
            return
        self._sealed_due_ms = now_ms + cadence.SEALED_SEARCHED.ms
        applied = [each.state for each in self._replicas.values() if isinstance(each, LocalReplica)]
        out_of_sync = {s.topic_partition for s in applied if self._broker_id not in s.isr and self._is_assigned(s)}
        waiting = sorted(out_of_sync.union(tp for tp, replica in self.leaders.items() if replica.is_starting))
        first = bisect_right(waiting, self._last_checked) if self._last_checked is not None else 0
        for topic_partition in [*waiting[first:], *waiting[:first]][:SEALED_CHECKED]:
            self._last_checked = topic_partition
            if is_sealed(self._table(topic_partition), self._clock, self._ports.ids):
                self._removals.setdefault(topic_partition, Sealed(now_ms))

    # -- leading -----------------------------------------------------------------------------------------

    def _become_leader(self, state: PartitionRecord, topic_id: str, image: ClusterImage) -> None:
        topic_partition, config = state.topic_partition, self._configs.of(state.topic, image)
        self.stop_leading(topic_partition, f"epoch {state.leader_epoch} began")
        expiration_ms = self._producer_id_expiration_ms
        log = PartitionLog(self._table(topic_partition), config, self._clock, self._ports.ids, expiration_ms)
        committed = known_committed(self._committed.get(topic_partition), topic_id, state)
        self.leaders[topic_partition] = LeaderReplica(state, topic_id, log, self._leader_ports, committed)
        erases = partial(self._erases_of, topic_partition)
        self.upkeep.add(topic_partition, Upkeep(log, self._upkeep_limits, self._ports.executor, erases=erases))
        self._log_state(state, "became leader")

    def _erases_of(self, topic_partition: TopicPartition) -> list[Erase]:
        return erases_of(self._image(), topic_partition)

    def _reconfigure(self, topic_partition: TopicPartition, image: ClusterImage) -> None:
        """Apply a topic's altered config, or a request to erase, while the replica leads."""
        self.upkeep.wake(topic_partition)
        replica = self.leaders.get(topic_partition)
        if replica is not None:
            replica.reconfigure(self._configs.of(topic_partition.topic, image))

    def _stop_deleted(self, topic_partition: TopicPartition, topic_id: str) -> None:
        """The topic is gone: drop its table, but not one that a session has made for a new topic of that name."""
        reason = "its topic was deleted"
        self.stop_leading(topic_partition, reason, UnknownTopicOrPartitionError)
        table = self._table(topic_partition)
        table.drop(lambda: is_of_topic(table, (topic_id,), self._clock, self._ports.ids))
        self._replicas.pop(topic_partition, None)
        self._configs.forget(topic_partition.topic)
        self._log(f"stopped replica {topic_partition}: {reason}")

    def drop_stray(self, replica: LeaderReplica, reason: StratalogError) -> None:
        """The table of a replica that is to lead is of a deleted topic of this name."""
        if delete_stray(replica.log.table, replica.log.topic_id, self._clock, self._ports.ids):
            _LOG.warning("broker %d drops a stray replica: %s", self._broker_id, reason)

    def stop_leading(
        self, topic_partition: TopicPartition, reason: str, refusal: type[StratalogError] = NotLeaderOrFollowerError
    ) -> None:
        """Refuse what waits for this replica, with an error of the class `refusal`; the table stays."""
        replica = self.leaders.pop(topic_partition, None)
        self.offline.pop(topic_partition, None)
        self.upkeep.drop(topic_partition)
        if replica is not None:
            self._committed[topic_partition] = KnownCommitted(
                replica.topic_id, replica.state.unclean, replica.known_committed
            )
            what = f"{topic_partition} is not led by broker {self._broker_id}: {reason}"
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
        now_ms = self._clock.monotonic_ms()
        self._find_strays(now_ms)
        self._find_sealed(now_ms)
        self._seal_some(now_ms)
        self._delete_some(now_ms)
        self.upkeep.run(self._keep_one_up, self._broken)
        removed, self._records_removed = self._records_removed, set()
        return removed

    def _keep_one_up(self, topic_partition: TopicPartition, upkeep: Upkeep, is_busy: bool) -> UpkeepDone | None:
        replica = self.leaders[topic_partition]
        if replica.partition is None:
            return None
        high_watermark = replica.partition.high_watermark
        done = upkeep.step(self._clock.wall_ms(), high_watermark, replica.leader_epoch, is_busy=is_busy)
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
        log = replica.log
        try:
            log.refresh()
            log.table.check_files([entry.file for entry in log.files if entry.path == path], bits=True)
            log.table.reopened().snapshot()
        except StoreUnavailableError as reason:
            _LOG.warning("%s cannot be examined: %s", topic_partition, reason)  # the follower reports it again
        except StratalogError as reason:
            self._broken(topic_partition, reason)

    def _broken(self, topic_partition: TopicPartition, reason: StratalogError) -> None:
        """A damaged leader that is the whole ISR keeps leading, until it is not any more."""
        replica = self.leaders[topic_partition]
        if damage_in(reason) is not None and not replica.may_be_replaced:
            _LOG.error("%s stays online on broker %d, the whole ISR: %s", topic_partition, self._broker_id, reason)
            replica.keep_damaged(reason)
            return
        replica.go_offline(reason)

    def _set_offline(self, topic_partition: TopicPartition, reason: StratalogError | None) -> None:
        """A led replica cannot be served; None: it can again. A full disk concerns all replicas (Kafka: its log
        directory is offline): all of them should be led elsewhere, until something fits again."""
        if reason is not None and not isinstance(reason, StoreFullError):
            self.offline[topic_partition] = reason
            return
        for each, replica in self.leaders.items():
            replica.has_no_space = reason is not None
            if reason is not None:
                self.offline.setdefault(each, reason)
            elif isinstance(self.offline.get(each), StoreFullError):
                del self.offline[each]

    def offline_replicas(self) -> list[OfflineReplica]:
        """What is to be reported, in order. Damage is recorded beside its table before: a follower that uses the table
        later has to know it."""
        reports = []
        for topic_partition, reason in sorted(self.offline.items()):
            damage, leader = damage_in(reason), self.leaders[topic_partition]
            table = self._table(topic_partition)
            if damage is not None and table.damage() is None:
                table.note_damage(damage)
            is_absent = isinstance(reason, LogLostError)
            named = IdentifiedPartition(leader.topic_id, topic_partition)
            reports.append(OfflineReplica(named, leader.state.partition_epoch, is_absent))
        return reports

    def _log(self, what: str) -> None:
        STATE_CHANGE_LOG.info("[Broker %d] %s", self._broker_id, what)

    def _log_state(self, state: PartitionRecord, what: str) -> None:
        lost = f", whose log is lost on brokers {list(state.lost)}" if state.lost else ""
        self._log(f"{state.topic_partition} {what}: {state.state_json()}{lost}")


def _delete_leftovers(objects: ObjectStore, directories: Sequence[str]) -> None:
    """What cannot be deleted is tried again at the next start."""
    for directory in directories:
        try:
            objects.delete_leftover(directory)
            _LOG.info("deleted %s/%s, which an earlier process had begun to delete", objects.url, directory)
        except StratalogError as reason:
            _LOG.warning("%s/%s is left of a deletion: %s", objects.url, directory, reason)
