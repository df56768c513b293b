"""What one broker follows, folded: metadata, the leaders' progress, its own and the leaders' tables.

I/O: through its stores. A fetch session works on it, a slice at a time. It outlives the session: the next one in
the same process goes on with it (`resume`), looks at every table as a cold one would, and reads only what is new.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Executor
from functools import partial
from zlib import crc32

from stratalog.replication.config import BrokerConfig
from stratalog.replication.follower.look_queue import LookQueue
from stratalog.replication.follower.quota import ReplicationQuota
from stratalog.replication.follower.repair import ReplicaRepair
from stratalog.replication.follower.replica import FollowedReplica
from stratalog.replication.metadata.configs import TopicConfigs
from stratalog.replication.metadata.erasures import erases_of
from stratalog.replication.metadata.log import METADATA_COMMITS, open_metadata
from stratalog.replication.metadata.records import NO_LEADER, MetadataRecord, PartitionRecord
from stratalog.replication.progress.of_leader import FollowedLeader
from stratalog.replication.progress.of_session import SessionProgress, published_by
from stratalog.replication.progress.progress import ReplicaProgress
from stratalog.replication.replica.removal import delete_stray
from stratalog.replication.replica.upkeep_rounds import UpkeepRounds, limits_of
from stratalog.replication.stores import Stores
from stratalog.replication.threads.turn_pace import TurnPace
from stratalog.storage.clock import Clock, Ids
from stratalog.storage.errors import InconsistentTopicIdError, StoreUnavailableError, StratalogError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.objects.wakeup import Wakeup, Watch
from stratalog.storage.records import TopicPartition
from stratalog.storage.upkeep.chore import UpkeepDone, UpkeepLimits, UpkeepWork
from stratalog.storage.upkeep.upkeep import Upkeep

_LOG = logging.getLogger("stratalog.fetcher")

SLICE_MS = 4
"""A turn copies about this long, so that what was copied is published soon and heartbeats are on time."""
RESCAN_INTERVAL_MS = 2_000
RESCAN_ROUNDS = 30
"""After so many rescans every table was looked at, whatever its leader published."""
RESCAN_MIN = 8
REPLICA_BACKOFF_MS = 20
REPLICA_BACKOFF_MS_MAX = 320
METADATA_WATCHED_INTERVAL_MS = 1_000
"""Where a new commit is told of: only in case something was missed."""


class FollowedPartitions:
    """A share of the partitions that a broker follows under one broker epoch. One session at a time uses it."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: int,
        root: str,
        *,
        config: BrokerConfig,
        metadata_root: str,
        stores: Stores,
        clock: Clock,
        ids: Ids,
        share: int = 0,
        topic_defaults: Mapping[str, object] | None = None,
        upkeep_limits: UpkeepLimits | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.root = root
        self.config = config
        self.stores = stores
        self.clock = clock
        self.share = share
        self.replicas: dict[TopicPartition, FollowedReplica] = {}
        self.copied_count = 0
        self.is_over = False
        self._ids = ids
        self._upkeep_limits = limits_of(config, upkeep_limits)
        self._executor = executor
        self._metadata_root = metadata_root
        self._metadata = open_metadata(stores, metadata_root, clock, ids)
        self._repair = ReplicaRepair(broker_id, broker_epoch, self._metadata, stores)
        self._configs = TopicConfigs(topic_defaults or {})
        self._quota = ReplicationQuota(broker_id, config.num_replica_fetchers)
        self._leaders: dict[tuple[int, int], FollowedLeader] = {}
        self._followed_leaders: set[int] = set()
        self._begin()

    def _begin(self) -> None:
        self._queue = LookQueue()
        self._published_by_elder: dict[TopicPartition, ReplicaProgress] = {}
        self._cold: OrderedDict[TopicPartition, None] = OrderedDict.fromkeys(self.replicas)
        self._rescan_ms = self._rescanned = 0
        self._is_assignment_open = True
        self._is_listening = False
        self._wakeup: Wakeup | None = None
        self._progress: SessionProgress | None = None
        self._metadata_watch: Watch | None = None
        self._metadata_ms = 0
        self.upkeep = UpkeepRounds(self.clock)
        self._pace = TurnPace()

    # -- from session to session -------------------------------------------------------------------------

    def resume(self, progress: SessionProgress, wakeup: Wakeup) -> None:
        """A session begins: nothing counts as started until its tables were looked at again.

        What happened meanwhile is what happens to a session that sleeps: others copied, an epoch began, a table is new.
        """
        self.copied_count = 0
        for topic_partition, replica in list(self.replicas.items()):
            replica.has_started = False
            if replica.failure is not None:
                del self.replicas[topic_partition]
        self._begin()
        self._wakeup, self._progress = wakeup, progress
        self._metadata_watch = wakeup.watch(self.stores.objects(self._metadata_root), METADATA_COMMITS)
        for leader in self._leaders.values():
            leader.stop_listening(None)
        for topic_partition, replica in self.replicas.items():
            self._look_after(topic_partition, replica)

    def begin_work(self, elder: str) -> None:
        """From now on the session copies, after the session `elder`, if there was one. All tables are looked at, first
        those with something to copy: to look at 333 takes 0.3 s of CPU, too long for the records of a few to wait."""
        self.listen()
        self._queue.clear()
        if elder:
            objects = self.stores.objects(self.root)
            self._published_by_elder = published_by(objects, self.broker_epoch, elder, self._followed_leaders)
        self._queue.check(self.replicas)
        self._look_at_those_behind()

    def stop_work(self) -> None:
        """From now on the session stands by: what it takes up again later is looked at anew."""
        self._is_listening = False
        for leader in self._leaders.values():
            leader.stop_listening(self._wakeup)
        for replica in self.replicas.values():
            replica.has_started = False
        self._queue.clear()

    def listen(self) -> None:
        """Be woken by what the leaders publish from now on."""
        self._is_listening = True
        for leader in self._leaders.values():
            if self._wakeup is not None:
                leader.listen(self._wakeup)

    @property
    def file_count(self) -> int:
        """How much it holds in memory."""
        return sum(replica.file_count for replica in self.replicas.values())

    # -- metadata ----------------------------------------------------------------------------------------

    def follow_metadata(self, now_ms: int) -> bool:
        """Fold what is new, when it is time to look; True when it was looked at."""
        watch = self._metadata_watch
        is_watched = watch is not None and watch.is_armed
        is_told = is_watched and watch is not None and watch.take()
        interval_ms = METADATA_WATCHED_INTERVAL_MS if is_watched else self.config.stratalog_metadata_poll_ms
        if not is_told and now_ms < self._metadata_ms:
            return False
        self._metadata_ms = now_ms + interval_ms
        try:
            records = self._metadata.refresh()
        except StratalogError:
            if watch is not None:
                watch.mark()
            raise
        if records or self._is_assignment_open:
            self._apply(records)
        return True

    def _apply(self, records: list[MetadataRecord]) -> None:
        known = self._metadata.image.brokers.get(self.broker_id)
        if known is not None and (known.broker_epoch, known.fenced) > (self.broker_epoch, False):
            self.is_over = True  # fenced, or a newer life of this broker has sessions of its own
            return
        was_open, self._is_assignment_open = self._is_assignment_open, False
        moved = [record.topic_partition for record in records if isinstance(record, PartitionRecord)]
        if was_open or len(moved) < len(records):
            self._find_leaders()
            self._assign()
        else:
            self._assign_only(moved)

    def _find_leaders(self) -> None:
        brokers = self._metadata.image.brokers
        for broker_id, broker in brokers.items():
            key = (broker_id, broker.broker_epoch)
            if broker_id != self.broker_id and key not in self._leaders:
                self._hear(key, broker.registration.root)
        for key in set(self._leaders) - {(i, b.broker_epoch) for i, b in brokers.items()}:
            self._leaders.pop(key).stop_listening(self._wakeup)

    def _hear(self, key: tuple[int, int], root: str) -> None:
        try:
            self._leaders[key] = FollowedLeader(self.stores.objects(root), key[1])
        except StratalogError as reason:
            self._leave_open(f"leader {key[0]}", reason)
            return
        if self._is_listening:
            self.listen()

    def _leave_open(self, what: str, reason: StratalogError) -> None:
        """One storage domain is out of reach: the rest is followed, this is tried again."""
        _LOG.warning("broker %d cannot follow %s: %s", self.broker_id, what, reason)
        self._is_assignment_open = True

    def _assign(self) -> None:
        self._assign_only(list(self._metadata.image.partitions))
        for topic_partition in set(self.replicas) - set(self._metadata.image.partitions):
            self._forget(topic_partition)

    def _assign_only(self, topic_partitions: list[TopicPartition]) -> None:
        image = self._metadata.image
        for topic_partition in topic_partitions:
            state = image.partitions.get(topic_partition)
            if state is None or not self._follows(state):
                self._forget(topic_partition)
                continue
            try:
                self._follow(state, image.topic_ids.get(state.topic, ""))
            except StratalogError as reason:
                self._leave_open(str(topic_partition), reason)
        self._followed_leaders = {replica.state.leader for replica in self.replicas.values()}

    def _follows(self, state: PartitionRecord) -> bool:
        if self.broker_id not in state.replicas or state.leader in (self.broker_id, NO_LEADER):
            return False
        fetchers = self.config.num_replica_fetchers
        return fetchers == 1 or crc32(str(state.topic_partition).encode()) % fetchers == self.share

    def _follow(self, state: PartitionRecord, topic_id: str) -> None:
        topic_partition = state.topic_partition
        config = self._configs.of(state.topic, self._metadata.image)
        known = self.replicas.get(topic_partition)
        if known is not None and known.topic_id == topic_id and known.leader_epoch >= state.leader_epoch:
            known.own.config = config
            self.upkeep.wake(topic_partition)
            return
        leader_root = self._metadata.image.brokers[state.leader].registration.root
        own = known.own if known is not None and known.topic_id == topic_id else None
        own = own or PartitionLog(self.stores.table(self.root, topic_partition), config, self.clock, self._ids)
        leader = PartitionLog(self.stores.table(leader_root, topic_partition), config, self.clock, self._ids)
        leader.remembers_removed = False
        self.replicas[topic_partition] = FollowedReplica(state, topic_id, own, leader, self.broker_id)
        self._look_after(topic_partition, self.replicas[topic_partition])
        self._cold[topic_partition] = None
        self._queue.begin_anew(topic_partition)
        self._queue.mark(topic_partition)

    def _look_after(self, topic_partition: TopicPartition, replica: FollowedReplica) -> None:
        erases = partial(erases_of, self._metadata.image, topic_partition)
        upkeep = Upkeep(replica.own, self._upkeep_limits, self._executor, leader=replica.leader, erases=erases)
        self.upkeep.add(topic_partition, upkeep)

    def _forget(self, topic_partition: TopicPartition) -> None:
        if self.replicas.pop(topic_partition, None) is None:
            return
        self.upkeep.drop(topic_partition)
        if self._progress is not None:
            self._progress.forget(topic_partition)

    # -- leaders -----------------------------------------------------------------------------------------

    def watch_leaders(self, now_ms: int) -> None:
        """Mark what leaders published, where their objects were written."""
        is_rescan_due = now_ms >= self._rescan_ms
        for (broker_id, _), leader in self._leaders.items():
            if broker_id not in self._followed_leaders or now_ms < leader.retry_at_ms:
                continue
            try:
                self._take_in(broker_id, leader.moved())
                if is_rescan_due:
                    leader.look_at_marks()
            except StratalogError as reason:
                # Its storage domain is out of reach: the other leaders must be followed all the same.
                _LOG.warning("broker %d cannot hear leader %d: %s", self.broker_id, broker_id, reason)
                leader.retry_at_ms = now_ms + self.config.replica_fetch_backoff_ms
        if is_rescan_due:
            self._rescan_ms = now_ms + RESCAN_INTERVAL_MS
            self._rescan()

    def _take_in(self, leader_id: int, moved: list[ReplicaProgress]) -> None:
        for progress in moved:
            replica = self.replicas.get(progress.topic_partition)
            if replica is None or replica.state.leader != leader_id or replica.has_all_of(progress):
                continue
            self._cold[progress.topic_partition] = None
            self._queue.heard_of(progress.topic_partition)
            self._look_at(replica, progress)

    def _rescan(self) -> None:
        """Whoever is behind what the leader published, and a few more each time, is looked at anew."""
        order = list(self.replicas)
        count = max(RESCAN_MIN, -(-len(order) // RESCAN_ROUNDS))
        begin = self._rescanned % max(len(order), 1)
        self._rescanned = begin + count
        self._queue.check(order[begin : begin + count])
        self._look_at_those_behind()

    def _look_at_those_behind(self) -> None:
        for replica in self.replicas.values():
            published = self._published(replica)
            if published is not None and not replica.has_all_of(published):
                self._look_at(replica, published)

    def _look_at(self, replica: FollowedReplica, published: ReplicaProgress) -> None:
        """Soon; those that are only to be started come after those with something to copy."""
        if replica.has_started or self._lacks_records(replica, published):
            self._queue.mark(replica.state.topic_partition)
        else:
            self._queue.check([replica.state.topic_partition])

    def _is_behind(self, replica: FollowedReplica) -> bool:
        entry = self._published(replica)
        return entry is not None and not replica.has_all_of(entry)

    def _lacks_records(self, replica: FollowedReplica, published: ReplicaProgress) -> bool:
        """Whether the leader published more than the own log is known to hold, by its fold or by the elder session."""
        elders = self._published_by_elder.get(replica.state.topic_partition)
        own_end = replica.own.log_end_offset if replica.own.is_folded else 0
        elders_end = elders.log_end_offset if elders and elders.leader_epoch == replica.leader_epoch else 0
        return published.leader_epoch == replica.leader_epoch and max(own_end, elders_end) < published.log_end_offset

    def _published(self, replica: FollowedReplica) -> ReplicaProgress | None:
        """What the leader last published of this epoch."""
        for leader in self._leaders_of(replica):
            entry = leader.published(replica.state.topic_partition, replica.leader_epoch)
            if entry is not None:
                return entry
        return None

    def _leaders_of(self, replica: FollowedReplica) -> list[FollowedLeader]:
        """The registrations of its leader that are known."""
        return [leader for (broker_id, _), leader in self._leaders.items() if broker_id == replica.state.leader]

    # -- copying -----------------------------------------------------------------------------------------

    def catch_up(self, now_ms: int) -> bool:
        """Copy for about a slice; True when something was copied or there is more to do at once."""
        self._queue.take_up(now_ms)
        end_ms = now_ms + self._pace.work_ms(SLICE_MS, now_ms)
        copied = self._drain(self._queue.soon, end_ms) | self._drain(self._queue.checks, end_ms)
        return copied or bool(self._queue)

    def rest_ms(self, begun_ms: int) -> int:
        """How long to rest after a turn that began at `begun_ms`, unless it left something behind."""
        return 0 if self._queue.soon else self._pace.rest_ms(begun_ms, self.clock.monotonic_ms())

    def due_in_ms(self, now_ms: int) -> int:
        """How long until something that was put off is to be tried again; 0 while there is more to do at once."""
        return self._queue.due_in_ms(now_ms, METADATA_WATCHED_INTERVAL_MS)

    def _put_off(self, topic_partition: TopicPartition, delay_ms: int, *, is_held: bool = False) -> None:
        self._queue.put_off(topic_partition, self.clock.monotonic_ms() + delay_ms, is_held=is_held)

    def _drain(self, queue: OrderedDict[TopicPartition, None], end_ms: int) -> bool:
        copied = False
        for _ in range(len(queue)):
            topic_partition, _ = queue.popitem(last=False)
            replica = self.replicas.get(topic_partition)
            if replica is None or self._queue.is_put_off(topic_partition):
                continue
            count_before = self.copied_count
            has_more = self._catch_up_one(topic_partition, replica)
            if has_more or self.copied_count > count_before:
                copied = True
                self._pace.moved(topic_partition, end_ms)
                if has_more or self._is_behind(replica):
                    self._queue.mark(topic_partition)
            elif not (replica.has_started or replica.failure or self._queue.is_put_off(topic_partition)):
                self._put_off(topic_partition, min(REPLICA_BACKOFF_MS << replica.waits, REPLICA_BACKOFF_MS_MAX))
                replica.waits += 1
            self._tell(replica)
            if self.clock.monotonic_ms() >= end_ms:
                break
        return copied

    def _tell(self, replica: FollowedReplica) -> None:
        if (progress := replica.progress()) is not None and self._progress is not None:
            self._progress.update(replica.state.leader, progress)

    def _catch_up_one(self, topic_partition: TopicPartition, replica: FollowedReplica) -> bool:
        try:
            if not replica.has_started and not replica.stands():
                self._open_again(topic_partition)
                return True
            if delay_ms := self._quota.delay_ms(self._metadata.image, topic_partition, self.clock.monotonic_ms()):
                self._put_off(topic_partition, delay_ms)
                return False
            return self._copy_within_quota(topic_partition, replica)
        except StoreUnavailableError as reason:
            _LOG.warning("%s on broker %d, trying again: %s", topic_partition, self.broker_id, reason)
            self._put_off(topic_partition, self.config.replica_fetch_backoff_ms, is_held=True)
        except InconsistentTopicIdError as reason:
            self._drop_leftover(replica, reason)
        except StratalogError as reason:
            self._distrust(topic_partition, reason)
        return False

    def _copy_within_quota(self, topic_partition: TopicPartition, replica: FollowedReplica) -> bool:
        image, count_before, bytes_before = self._metadata.image, replica.copied_count, replica.copied_bytes
        moved = replica.catch_up(self._quota.max_bytes(image, topic_partition, self.config.replica_fetch_max_bytes))
        if replica.copied_count > count_before:
            self.copied_count += replica.copied_count - count_before
            self._quota.take(image, topic_partition, replica.copied_bytes - bytes_before, self.clock.monotonic_ms())
            if pause_ms := self.upkeep.append_pause_ms(topic_partition, replica.copied_files):
                self._put_off(topic_partition, pause_ms, is_held=True)
        return moved

    def _open_again(self, topic_partition: TopicPartition) -> None:
        """A table is not the one that was folded: it was made anew or deleted, or clean-up has passed the fold. Whether
        it is still to be followed says the newest metadata, or a deleted replica would be made once more."""
        self._forget(topic_partition)
        self._metadata_ms, self._is_assignment_open = 0, True

    def _drop_leftover(self, replica: FollowedReplica, reason: StratalogError) -> None:
        """The own table is of a deleted topic of this name. A session that is behind may itself have the old topic."""
        self._is_assignment_open = True
        self._metadata.look()
        self._apply(self._metadata.refresh())
        if not self.is_over and self._metadata.image.topic_ids.get(replica.state.topic) == replica.topic_id:
            if delete_stray(replica.own.table, replica.own.topic_id, self.clock, self._ids):
                _LOG.warning("broker %d drops a leftover: %s", self.broker_id, reason)
            else:
                self._put_off(replica.state.topic_partition, self.config.replica_fetch_backoff_ms)
            self._open_again(replica.state.topic_partition)

    # -- standing by -------------------------------------------------------------------------------------

    def warm_up(self, now_ms: int) -> bool:
        """Fold for about a slice what copying would need, without a write; True when there is more to fold."""
        end_ms = now_ms + SLICE_MS
        for _ in range(len(self._cold)):
            topic_partition, _ = self._cold.popitem(last=False)
            replica = self.replicas.get(topic_partition)
            if replica is not None and replica.warm_up():
                self._cold[topic_partition] = None
            if self.clock.monotonic_ms() >= end_ms:
                break
        return bool(self._cold)

    # -- upkeep ------------------------------------------------------------------------------------------

    def keep_up(self) -> None:
        """A round of upkeep."""
        self.upkeep.run(self._keep_one_up, self._distrust)

    def _keep_one_up(self, topic_partition: TopicPartition, upkeep: Upkeep, is_busy: bool) -> UpkeepDone | None:
        replica = self.replicas[topic_partition]
        if not replica.has_started or replica.failure is not None:
            return None
        done = upkeep.step(self.clock.wall_ms(), self._high_watermark(replica), replica.leader_epoch, is_busy=is_busy)
        if done is not None and done.work is UpkeepWork.RETENTION:
            self._tell(replica)
        return done

    def _distrust(self, topic_partition: TopicPartition, reason: StratalogError) -> None:
        replica = self.replicas[topic_partition]
        if self._repair.take_up(replica.state, replica.own.table, replica.leader.name, reason):
            replica.failure = reason
        else:
            replica.has_started = False
            self._put_off(topic_partition, self.config.replica_fetch_backoff_ms)

    def _high_watermark(self, replica: FollowedReplica) -> int:
        """The one that the leader published for this epoch, as of the last rescan; -1 when none."""
        topic_partition, leader_epoch = replica.state.topic_partition, replica.leader_epoch
        return max(
            (each.high_watermark(topic_partition, leader_epoch) for each in self._leaders_of(replica)), default=-1
        )
