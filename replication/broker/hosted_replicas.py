"""The replicas on one broker, brought to the state that the metadata log gives them (Kafka: ReplicaManager).

I/O: opens and drops tables through the broker's stores. What is to be done is decided by `leader_and_isr`;
every change is a line of the state change log, as in Kafka's `becomeLeaderOrFollower`.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial

from stratalog.replication.broker.leader_and_isr import (
    BecomeFollower,
    BecomeLeader,
    Ignore,
    LocalReplica,
    StopReplica,
    Transition,
    UpdateIsr,
    decide_leader_and_isr,
)
from stratalog.replication.leader.purgatory import ProducePurgatory
from stratalog.replication.leader.replica import LeaderReplica
from stratalog.replication.metadata.configs import TopicConfigs
from stratalog.replication.metadata.erasures import erases_of
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.metrics import BrokerMetrics
from stratalog.replication.progress.known_committed import KnownCommitted, known_committed, published_before
from stratalog.replication.replica.removal import Leaving, delete_leftover, is_of_topic, is_sealed, seal
from stratalog.replication.replica.upkeep_rounds import UpkeepRounds, most_live_files
from stratalog.replication.stores import Stores
from stratalog.storage.clock import Clock, Ids
from stratalog.storage.errors import (
    NotLeaderOrFollowerError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    StratalogError,
)
from stratalog.storage.files.damage import damage_in
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import TopicPartition
from stratalog.storage.upkeep.chore import UpkeepDone, UpkeepLimits, UpkeepWork
from stratalog.storage.upkeep.upkeep import Upkeep

_LOG = logging.getLogger("stratalog.broker")
STATE_CHANGE_LOG = logging.getLogger("stratalog.state.change")

NOT_ASSIGNED = "it is not assigned to this broker any more"
REMOVE_MS_MAX = 50
"""Replicas are removed for so long at a time; the rest follows in the next round."""
STRAYS_INTERVAL_MS = 60_000
"""How often tables are looked for that no partition of this broker knows of."""

SEALED_INTERVAL_MS = 5_000
SEALED_LOOKED_AT = 20
"""So often so many tables of replicas that are not in sync are looked at, whether they are only to be deleted."""


class HostedReplicas:
    """`leaders` are those that this broker leads; followers are the fetch sessions' business.

    starting   leaders whose table does not show their epoch yet; whoever starts one takes it out
    offline    leaders whose table cannot be served, and why
    """

    def __init__(
        self,
        broker_id: int,
        root: str,
        stores: Stores,
        clock: Clock,
        ids: Ids,
        purgatory: ProducePurgatory,
        *,
        topic_defaults: Mapping[str, object],
        upkeep_limits: UpkeepLimits | None,
        executor: Executor | None,
        on_stopped: Callable[[TopicPartition], None],
    ) -> None:
        self.leaders: dict[TopicPartition, LeaderReplica] = {}
        self.starting: dict[TopicPartition, LeaderReplica] = {}
        self.offline: dict[TopicPartition, StratalogError] = {}
        self._configs = TopicConfigs(topic_defaults)
        self._applied: dict[TopicPartition, LocalReplica] = {}
        self._committed: dict[TopicPartition, KnownCommitted] = {}
        self._left: dict[TopicPartition, LocalReplica] = {}
        self._removing: dict[TopicPartition, Leaving] = {}
        self._sealed_due_ms = 0
        self._looked_at: TopicPartition | None = None
        self._removed_ms: dict[TopicPartition, int] = {}
        self._image: ClusterImage | None = None
        self._strays_due_ms = 0
        self.upkeep = UpkeepRounds(clock)
        self.metrics = BrokerMetrics(
            waiting_count=lambda: purgatory.size,
            offline_count=lambda: len(self.offline),
            live_files_max=lambda: most_live_files(each.log for each in list(self.leaders.values())),
            append_pause_ms_max=lambda: self.upkeep.pause_ms_max,
        )
        self._log_start_moved: set[TopicPartition] = set()
        self._broker_id = broker_id
        self._root = root
        self._stores = stores
        self._clock = clock
        self._ids = ids
        self._purgatory = purgatory
        self._upkeep_limits = upkeep_limits
        self._executor = executor
        self._on_stopped = on_stopped

    @property
    def known(self) -> set[TopicPartition]:
        """The replicas that a state was applied to, also before this broker was fenced."""
        return {*self._applied, *self._left, *self._removing}

    def open_after_stop(self, image: ClusterImage, *, was_clean: bool) -> None:
        """At start: remove what is not assigned to this broker any more; after an unclean stop drop what a
        power cut may have torn (promise 5), and tables that were to be deleted. What its earlier life published as
        committed is remembered."""
        self._committed |= published_before(self._stores.objects(self._root), image, self._broker_id)
        for topic_partition in self._stores.replicas(self._root):
            table = self._stores.table(self._root, topic_partition)
            if not self._is_assigned(image.partitions.get(topic_partition)):
                self._log(f"removes stray replica {topic_partition}")
                table.drop()
            elif not was_clean:
                table.recover_tail()
                if is_sealed(table, self._clock, self._ids):
                    self._log(f"removes replica {topic_partition}, which was to be deleted: it is copied anew")
                    table.drop()

    def _is_assigned(self, state: PartitionRecord | None) -> bool:
        return state is not None and self._broker_id in state.replicas

    def apply(self, topic_partition: TopicPartition, image: ClusterImage, now_ms: int) -> None:
        """Bring one replica to the partition's newest state. What fails is tried again by the next call."""
        self._image = image
        topic_id, state = image.topic_ids.get(topic_partition.topic, ""), image.partitions.get(topic_partition)
        self._settle(topic_partition, state, topic_id, now_ms)
        match self._transition(topic_partition, state, topic_id):
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
                    self._removing[topic_partition] = Leaving(topic_id, state.leader_epoch)
                    self._remove_some(now_ms)
                return
            case Ignore(reason=reason):
                self._reconfigure(topic_partition, image)
                if reason:
                    STATE_CHANGE_LOG.warning("[Broker %d] %s: %s", self._broker_id, topic_partition, reason)
                return
        self._applied[topic_partition] = LocalReplica(new, topic_id)
        self._left.pop(topic_partition, None)

    def _transition(self, topic_partition: TopicPartition, state: PartitionRecord | None, topic_id: str) -> Transition:
        if topic_partition in self._left and not self._is_assigned(state):
            return StopReplica()  # it left the assignment while this broker was fenced
        return decide_leader_and_isr(self._applied.get(topic_partition), state, topic_id, self._broker_id)

    def _settle(
        self, topic_partition: TopicPartition, state: PartitionRecord | None, topic_id: str, now_ms: int
    ) -> None:
        """What was begun and left over, before a newer state is looked at."""
        if topic_partition in self._removing and (self._is_assigned(state) or state is None):
            self._remove_replica(topic_partition, now_ms)
        if topic_partition in self._removed_ms and self._is_assigned(state):
            self._delete(topic_partition)  # assigned again: it is copied anew
        held = self._applied.get(topic_partition) or self._left.get(topic_partition)
        if held is not None and held.topic_id != topic_id:
            self._stop_deleted(topic_partition, held.topic_id)

    def _remove_some(self, begun_ms: int) -> None:
        """Replicas that are not assigned any more, for a bounded time: each takes a commit that is synced."""
        for topic_partition in list(self._removing):
            if self._clock.monotonic_ms() - begun_ms > REMOVE_MS_MAX:
                return
            try:
                self._remove_replica(topic_partition, begun_ms)
            except StoreError as reason:
                _LOG.warning("%s is not removed yet: %s", topic_partition, reason)

    def _remove_replica(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Nobody writes to its table from now on, and the table goes `file.delete.delay.ms` later, since readers may be
        at it and writers may have left files for another leader."""
        leaving, table = self._removing[topic_partition], self._stores.table(self._root, topic_partition)
        may_be_deleted = seal(table, leaving, self._clock, self._ids)
        del self._removing[topic_partition]
        if not may_be_deleted:
            self._log(f"keeps replica {topic_partition}: it was assigned again after leader epoch {leaving.epoch}")
            return
        assert self._image is not None
        self._applied.pop(topic_partition, None)
        self._left.pop(topic_partition, None)
        delay_ms = self._configs.of(topic_partition.topic, self._image).file_delete_delay_ms
        self._configs.forget(topic_partition.topic)
        self._removed_ms[topic_partition] = now_ms + delay_ms
        self._log(f"stopped replica {topic_partition}: {NOT_ASSIGNED}")

    def _delete(self, topic_partition: TopicPartition) -> None:
        table = self._stores.table(self._root, topic_partition)
        if is_sealed(table, self._clock, self._ids, if_unreadable=True):  # else an earlier try did it after all
            table.drop()
            self._log(f"deleted replica {topic_partition}")
        del self._removed_ms[topic_partition]

    def _find_strays(self, now_ms: int) -> None:
        """Tables that fetch sessions made for an assignment that was over before this broker's loop heard of it, or
        made once more before they heard of its end. What is of no known topic waits for the next start: the topic may
        be so new that only the sessions know it."""
        if self._image is None or now_ms < self._strays_due_ms:
            return
        self._strays_due_ms = now_ms + STRAYS_INTERVAL_MS
        for topic_partition in self._stores.replicas(self._root):
            state = self._image.partitions.get(topic_partition)
            if state is None or self._is_assigned(state) or topic_partition in self._removed_ms:
                continue
            if self._stores.table(self._root, topic_partition).snapshot() is not None:
                topic_id = self._image.topic_ids.get(topic_partition.topic, "")
                self._removing[topic_partition] = Leaving(topic_id, state.leader_epoch)

    def _find_sealed(self, now_ms: int) -> None:
        """Tables of replicas that are assigned again, which another process of this broker sealed but did not live to
        delete: fetch sessions and new leaders wait for that. Some at a time, of replicas that are not in sync."""
        if now_ms < self._sealed_due_ms:
            return
        self._sealed_due_ms = now_ms + SEALED_INTERVAL_MS
        out_of_sync = (each.state for each in self._applied.values() if self._broker_id not in each.state.isr)
        behind = sorted({*self.starting, *(s.topic_partition for s in out_of_sync if self._is_assigned(s))})
        first = bisect_right(behind, self._looked_at) if self._looked_at is not None else 0
        for topic_partition in [*behind[first:], *behind[:first]][:SEALED_LOOKED_AT]:
            self._looked_at = topic_partition
            if is_sealed(self._stores.table(self._root, topic_partition), self._clock, self._ids):
                self._removed_ms[topic_partition] = now_ms

    def _delete_removed(self, now_ms: int) -> None:
        for topic_partition in [tp for tp, due_ms in self._removed_ms.items() if due_ms <= now_ms]:
            if self._clock.monotonic_ms() - now_ms > REMOVE_MS_MAX:
                return
            try:
                self._delete(topic_partition)
            except StoreError as reason:
                _LOG.warning("%s is not deleted yet: %s", topic_partition, reason)

    def _become_leader(self, state: PartitionRecord, topic_id: str, image: ClusterImage) -> None:
        topic_partition, config = state.topic_partition, self._configs.of(state.topic, image)
        self.stop_leading(topic_partition, f"epoch {state.leader_epoch} began")
        log = PartitionLog(self._stores.table(self._root, topic_partition), config, self._clock, self._ids)
        self.leaders[topic_partition] = self.starting[topic_partition] = LeaderReplica(
            state,
            self._broker_id,
            topic_id,
            log,
            config,
            self._purgatory,
            self._clock,
            self._tell_offline,
            known_committed(self._committed.get(topic_partition), topic_id, state),
            self.metrics,
            partial(self.upkeep.append_pause_ms, topic_partition),
        )
        erases = partial(erases_of, image, topic_partition)
        self.upkeep.take(topic_partition, Upkeep(log, self._upkeep_limits, self._executor, erases=erases))
        self._log_state(state, "became leader")

    def _reconfigure(self, topic_partition: TopicPartition, image: ClusterImage) -> None:
        """A topic's altered config takes hold while it runs, and so does a request to erase."""
        self.upkeep.wake(topic_partition)
        replica = self.leaders.get(topic_partition)
        if replica is not None:
            replica.reconfigure(self._configs.of(topic_partition.topic, image))

    def _stop_deleted(self, topic_partition: TopicPartition, topic_id: str) -> None:
        """The topic is gone, and its table; not one that a session has already made for a new topic of that name."""
        reason = "its topic was deleted"
        self.stop_leading(topic_partition, reason)
        table = self._stores.table(self._root, topic_partition)
        if is_of_topic(table, (topic_id,), self._clock, self._ids):
            table.drop()
        self._applied.pop(topic_partition, None)
        self._left.pop(topic_partition, None)
        self._configs.forget(topic_partition.topic)
        self._log(f"stopped replica {topic_partition}: {reason}")

    def drop_leftover(self, replica: LeaderReplica, reason: StratalogError) -> None:
        """The table of a replica that is to lead is of a deleted topic of this name."""
        if delete_leftover(replica.log.table, replica.log.topic_id, self._clock, self._ids):
            _LOG.warning("broker %d drops a leftover: %s", self._broker_id, reason)

    def stop_leading(self, topic_partition: TopicPartition, reason: str) -> None:
        """Whoever waits for this replica is told that it does not lead any more; the table stays."""
        replica = self.leaders.pop(topic_partition, None)
        self.starting.pop(topic_partition, None)
        self.offline.pop(topic_partition, None)
        self.upkeep.drop(topic_partition)
        if replica is not None:
            self._committed[topic_partition] = KnownCommitted(
                replica.topic_id, replica.state.unclean, replica.known_committed
            )
            what = f"{topic_partition} is not led by broker {self._broker_id}: {reason}"
            replica.resign(NotLeaderOrFollowerError(what))
        self._on_stopped(topic_partition)

    def stop_all(self, reason: str) -> None:
        """Lead nothing; every replica is taken up anew by the next `apply`."""
        for topic_partition in list(self.leaders):
            self.stop_leading(topic_partition, reason)
        self._left |= self._applied
        self._applied.clear()

    def forget_follower(self, broker_id: int, now_ms: int) -> None:
        """A broker came up anew: what its earlier life had copied may be gone (promise 13, KIP-966)."""
        for replica in self.leaders.values():
            if replica.partition is not None:
                replica.partition.forget_follower(broker_id, now_ms)

    def keep_up(self) -> set[TopicPartition]:
        """Upkeep of the led replicas, for a bounded time; those whose log start moved. Removed replicas are deleted."""
        now_ms = self._clock.monotonic_ms()
        self._find_strays(now_ms)
        self._find_sealed(now_ms)
        self._remove_some(now_ms)
        self._delete_removed(now_ms)
        self.upkeep.run(self._keep_one_up, self._broken)
        moved, self._log_start_moved = self._log_start_moved, set()
        return moved

    def _keep_one_up(self, topic_partition: TopicPartition, upkeep: Upkeep, is_busy: bool) -> UpkeepDone | None:
        replica = self.leaders[topic_partition]
        if replica.partition is None:
            return None
        high_watermark = replica.partition.high_watermark
        done = upkeep.step(self._clock.wall_ms(), high_watermark, replica.leader_epoch, is_busy=is_busy)
        if done is not None and done.work is UpkeepWork.RETENTION:
            self._log_start_moved.add(topic_partition)
        return done

    # -- damage ------------------------------------------------------------------------------------------

    def examine(self, topic_partition: TopicPartition, path: str) -> None:
        """A follower could not read this replica, or this file of it: look whether that is so.

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
            _LOG.warning("%s cannot be examined: %s", topic_partition, reason)  # the follower will say it again
        except StratalogError as reason:
            self._broken(topic_partition, reason)

    def _broken(self, topic_partition: TopicPartition, reason: StratalogError) -> None:
        """A damaged leader that nobody of the ISR could replace leads on: what it can still read is all there is."""
        replica = self.leaders[topic_partition]
        if damage_in(reason) is not None and not replica.may_be_replaced:
            _LOG.error("%s stays online on broker %d, the whole ISR: %s", topic_partition, self._broker_id, reason)
            return
        replica.go_offline(reason)

    def _tell_offline(self, topic_partition: TopicPartition, reason: StratalogError | None) -> None:
        """A led replica cannot be served; None: it can again. A full disk is all replicas' (Kafka: its log directory
        is offline), so all of them should be led elsewhere, until something fits again."""
        if reason is not None and not isinstance(reason, StoreFullError):
            self.offline[topic_partition] = reason
            return
        for each, replica in self.leaders.items():
            replica.has_no_space = reason is not None
            if reason is not None:
                self.offline.setdefault(each, reason)
            elif isinstance(self.offline.get(each), StoreFullError):
                del self.offline[each]

    def offline_noted(self) -> list[TopicPartition]:
        """What is offline, in order. Damage stands noted beside the table before others hear of it: whoever follows
        with that table later must know."""
        for topic_partition, reason in self.offline.items():
            damage = damage_in(reason)
            table = self._stores.table(self._root, topic_partition)
            if damage is not None and table.damage() is None:
                table.note_damage(damage)
        return sorted(self.offline)

    def _log(self, what: str) -> None:
        STATE_CHANGE_LOG.info("[Broker %d] %s", self._broker_id, what)

    def _log_state(self, state: PartitionRecord, what: str) -> None:
        self._log(f"{state.topic_partition} {what}: {state.state_json()}")
