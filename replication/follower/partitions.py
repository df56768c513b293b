"""What one fetcher follows, folded: metadata, the leaders' progress, its own and the leaders' tables.

I/O: through its stores. A fetch session works on it, a slice at a time: metadata decide which partition is fetched from
which leader, and all that reads a leader's root is done for one `LeaderFetcher`, by its thread if it has one. It
outlives the session: the next one in the same process resumes it, checks every table again, and reads only what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from stratalog.replication import cadence
from stratalog.replication.config import BrokerConfig
from stratalog.replication.follower.followed_metadata import FollowedMetadata
from stratalog.replication.follower.held_records import HeldRecords
from stratalog.replication.follower.leader_fetcher import Copy, CopyOutcome, LeaderFetcher
from stratalog.replication.follower.plan import Attempt, Need, after_copy, fetched_from, rescanned, taken
from stratalog.replication.follower.quota import ReplicationQuota
from stratalog.replication.follower.repair import ReplicaRepair
from stratalog.replication.follower.replica import FollowedReplica
from stratalog.replication.metadata.configs import TopicConfigs
from stratalog.replication.metadata.erasures import erases_of
from stratalog.replication.metadata.records import (
    NO_LEADER,
    AccessControlEntryRecord,
    ClusterRecord,
    ControllerRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from stratalog.replication.metadata.storage_domains import replica_root
from stratalog.replication.progress.of_leader import FollowedLeader
from stratalog.replication.progress.of_session import SessionProgress, published_by
from stratalog.replication.progress.progress import ReplicaProgress
from stratalog.replication.replica.removal import delete_stray
from stratalog.replication.replica.upkeep_rounds import UpkeepRounds, limits_of
from stratalog.replication.stores import Ports
from stratalog.storage.delta.table import LogTable
from stratalog.storage.errors import (
    InconsistentTopicIdError,
    LogDirNotFoundError,
    StoreUnavailableError,
    StratalogError,
)
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.wakeup import Wakeup
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import UpkeepDone, UpkeepLimits, UpkeepWork
from stratalog.storage.upkeep.erase import Erase
from stratalog.storage.upkeep.upkeep import Upkeep

_LOG = line_logger("stratalog.fetcher")

_UNCONCERNED = (
    AccessControlEntryRecord,
    ClusterRecord,
    ControllerRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
"""Records that change nothing for a follower: they wake no partition."""


@dataclass(frozen=True, slots=True)
class FetchJob:
    """What the fetch sessions of one registration of a broker need to know of it. A session may run on an executor of
    Spark's, so that no password is among it."""

    broker_id: int
    broker_epoch: int
    root: str
    metadata_root: str
    config: BrokerConfig

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", self.config.without_passwords())


class FollowedPartitions:
    """One fetcher's partitions under one broker epoch. One session at a time uses it, from `resume` on.

    Its threads use it in turns (`Ports.turn`); after a call to a leader's root anything may have changed.
    """

    _wakeup: Wakeup
    _progress: SessionProgress

    def __init__(self, job: FetchJob, fetcher_id: int, ports: Ports, upkeep_limits: UpkeepLimits | None = None) -> None:
        """`fetcher_id`: from 0 to `num.replica.fetchers` - 1."""
        self.job = job
        self.ports = ports
        self.replicas: dict[TopicPartition, FollowedReplica] = {}
        """What is followed, each by the fetcher of its `state.leader`. Invariant: one that was not given up is replaced
        by one of a newer leader epoch or another topic id alone."""
        self.fetchers: dict[int, LeaderFetcher] = {}
        """The session's fetchers by leader. Invariant: each of `followed_leaders` has one."""
        self.followed_leaders: frozenset[int] = frozenset()
        """The leaders that partitions are to be fetched from. Invariant: those in `_leader_of`, as of the last fold."""
        self.is_over = False
        """Whether another registration of the broker took this one's place, or this one was fenced."""
        self.fetcher_id = fetcher_id
        self._upkeep: dict[int, UpkeepRounds] = {}
        """The upkeep of the replicas by leader. Invariant: a replica has upkeep at its own leader alone. It outlives
        the session as the folds do: what is under way is committed by the next one in this process."""
        self._upkeep_limits = limits_of(job.config, upkeep_limits)
        self._metadata = FollowedMetadata(job.metadata_root, job.config, ports)
        self._repair = ReplicaRepair(job.broker_id, job.broker_epoch, self._metadata.log, ports.stores)
        self.idle = self._metadata.idle
        """The time without new metadata and without copies."""
        self._configs = TopicConfigs(job.broker_id)
        self._quota = ReplicationQuota(job.broker_id, job.config.num_replica_fetchers)
        self._leader_of: dict[TopicPartition, int] = {}
        """The leader that each partition is to be fetched from."""
        self._held = HeldRecords(job.broker_id, job.broker_epoch, job.root, self._metadata.log, ports)
        self._kept: dict[int, dict[int, FollowedLeader]] = {}
        """What earlier sessions read of the leaders, by broker id and broker epoch."""

    # -- from session to session -------------------------------------------------------------------------

    def resume(self, progress: SessionProgress, wakeup: Wakeup) -> None:
        """A session begins: no replica counts as started until its tables were checked again.

        What happened meanwhile is what happens to a session that sleeps: others copied, an epoch began, a table is new.
        """
        for topic_partition, replica in list(self.replicas.items()):
            replica.has_started = False
            if replica.failure is not None:
                del self.replicas[topic_partition]
                for rounds in self._upkeep.values():
                    rounds.drop(topic_partition)
        for rounds in self._upkeep.values():
            rounds.wake_all()
        self.fetchers = {}
        self._wakeup, self._progress = wakeup, progress
        self._published_by_elder: dict[TopicPartition, ReplicaProgress] = {}
        self._held.reread()
        self._is_assignment_due = True
        self._metadata.resume(wakeup, f"metadata-of-fetch-{self.job.broker_id}-{self.fetcher_id}")
        self._leader_of.clear()
        for leader in (each for kept in self._kept.values() for each in kept.values()):
            leader.unwatch(None)
        for topic_partition, replica in self.replicas.items():
            self._fetcher_of(replica.state.leader).to_fold[topic_partition] = None

    def end_work(self) -> None:
        """The session is over. What is fetched from a leader whose root answers nothing is forgotten: the call that is
        under way still uses it."""
        self._metadata.end()
        for fetcher in self.fetchers.values():
            if fetcher.under_way or (self.ports.threads is not None and not fetcher.has_ended):
                self._kept.pop(fetcher.leader_id, None)
                self._upkeep.pop(fetcher.leader_id, None)
                for topic_partition, replica in list(self.replicas.items()):
                    if replica.state.leader == fetcher.leader_id:
                        del self.replicas[topic_partition]

    def _fetcher_of(self, leader_id: int) -> LeaderFetcher:
        fetcher = self.fetchers.get(leader_id)
        if fetcher is None:
            wakeup = self._wakeup if self.ports.threads is None else Wakeup(self.ports.clock)
            retry_ms = self.job.config.replica_fetch_backoff_ms
            fetcher = self.fetchers[leader_id] = LeaderFetcher(leader_id, wakeup, self.ports.clock, retry_ms)
            fetcher.upkeep = self._upkeep.setdefault(leader_id, fetcher.upkeep)
            fetcher.leaders = self._kept.setdefault(leader_id, {})
        return fetcher

    def remove(self, fetcher: LeaderFetcher) -> None:
        """A fetcher's thread has ended, and its wakeup is closed. What was assigned to it meanwhile is begun again."""
        del self.fetchers[fetcher.leader_id]
        for leader in fetcher.leaders.values():
            leader.unwatch(None)
        if fetcher.leader_id in self.followed_leaders:
            successor = self._fetcher_of(fetcher.leader_id)
            successor.to_follow.update(fetcher.to_follow)
            fetched = self._fetched_by(fetcher)
            successor.to_fold.update(dict.fromkeys(fetched))
            successor.queue.check(fetched)

    @property
    def copied_count(self) -> int:
        """Copies of the session so far."""
        return sum(fetcher.copied_count for fetcher in self.fetchers.values())

    @property
    def pause_ms_max(self) -> int:
        """The longest pause of copies for upkeep."""
        return max((fetcher.upkeep.pause_ms_max for fetcher in list(self.fetchers.values())), default=0)

    def begin_work(self, elder: str) -> None:
        """The session copies from now on, after the session `elder`, if there was one.

        All tables are checked, those with something to copy first: their records do not wait for the others' checks.
        """
        self._metadata.listen()
        if elder:
            objects = self.ports.stores.objects(self.job.root)
            self._published_by_elder = published_by(objects, self.job.broker_epoch, elder, self.followed_leaders)
        for fetcher in self.fetchers.values():
            fetcher.queue.clear()
            fetcher.queue.check(self._fetched_by(fetcher))
            self._queue_lagging(fetcher)
            fetcher.wakeup.wake()

    def stop_work(self) -> None:
        """The session is on standby from now on: when it copies again, every table is checked again."""
        self._metadata.is_listening = False
        for replica in self.replicas.values():
            replica.has_started = False
        for fetcher in self.fetchers.values():
            fetcher.queue.clear()

    @property
    def file_count(self) -> int:
        """How many files the folds name: a measure of the memory they take."""
        return sum(replica.file_count for replica in self.replicas.values())

    # -- metadata ----------------------------------------------------------------------------------------

    def follow_metadata(self, now_ms: int) -> bool:
        """Fold new metadata when a refresh is due; True when it was refreshed."""
        records = self._metadata.refresh(now_ms)
        if records is None:
            return False
        if records or self._is_assignment_due:
            self._apply(records)
        return True

    def metadata_due_in_ms(self, now_ms: int) -> int:
        """How long until metadata are to be read, if nothing reports that they changed."""
        return self._metadata.due_in_ms(now_ms)

    def _apply(self, records: list[MetadataRecord]) -> None:
        known = self._metadata.image.brokers.get(self.job.broker_id)
        if known is not None and (known.broker_epoch, known.fenced) > (self.job.broker_epoch, False):
            self.is_over = True
            return
        was_due, self._is_assignment_due = self._is_assignment_due, False
        records = [record for record in records if not isinstance(record, _UNCONCERNED)]
        moved = [record.topic_partition for record in records if isinstance(record, PartitionRecord)]
        if was_due or len(moved) < len(records):
            self._assign(list(self._metadata.image.partitions))
            for topic_partition in {*self.replicas, *self._held.partitions} - set(self._metadata.image.partitions):
                self._forget(topic_partition)
        else:
            self._assign(moved)
        self.followed_leaders = frozenset(self._leader_of.values())

    def prepare(self, fetcher: LeaderFetcher, now_ms: int) -> None:
        """Open the leader's root, and follow what was assigned since the last call."""
        current = self._metadata.image.brokers.get(fetcher.leader_id)
        if current is not None and current.broker_epoch not in fetcher.leaders:
            if not fetcher.back_off.is_due(now_ms):
                return
            try:
                store = self.ports.stores.objects(current.registration.root)
            except StratalogError as reason:
                self._leader_unavailable(fetcher, reason)
                return
            fetcher.leaders[current.broker_epoch] = FollowedLeader(store, current.broker_epoch)
        for epoch in [each for each in fetcher.leaders if current is None or each < current.broker_epoch]:
            fetcher.leaders.pop(epoch).unwatch(fetcher.wakeup)
        for leader in list(fetcher.leaders.values()):
            if self._metadata.is_listening:
                leader.watch(fetcher.wakeup)
            else:
                leader.unwatch(fetcher.wakeup)
        while fetcher.to_follow:
            topic_partition = next(iter(fetcher.to_follow))
            state, topic_id = fetcher.to_follow.pop(topic_partition)
            try:
                self._follow(fetcher, state, topic_id)
            except StratalogError as reason:
                self._assign_later(str(topic_partition), reason)

    def _assign_later(self, what: str, reason: StratalogError) -> None:
        """One root is out of reach: the rest is followed, this is tried again."""
        _LOG.warning("broker %d cannot follow %s: %s", self.job.broker_id, what, reason)
        self._metadata.read_soon()
        self._is_assignment_due = True
        self._wakeup.wake()

    def _assign(self, topic_partitions: list[TopicPartition]) -> None:
        image = self._metadata.image
        live = image.live_brokers()
        for topic_partition in topic_partitions:
            state = image.partitions.get(topic_partition)
            if state is None or self.job.broker_id not in state.replicas:
                self._forget(topic_partition)
                continue
            fetchers = self.job.config.num_replica_fetchers
            leader = fetched_from(state, self.job.broker_id, self.fetcher_id, fetchers, live)
            if leader == NO_LEADER:
                self._stop_fetching(topic_partition)
                continue
            self._leader_of[topic_partition] = leader
            fetcher = self._fetcher_of(leader)
            fetcher.to_follow[topic_partition] = (state, image.topic_ids.get(state.topic, ""))
            fetcher.changed_ms = self.ports.clock.monotonic_ms()
            fetcher.wakeup.wake()

    def _fetched_by(self, fetcher: LeaderFetcher) -> list[TopicPartition]:
        return [tp for tp, replica in self.replicas.items() if replica.state.leader == fetcher.leader_id]

    def _follow(self, fetcher: LeaderFetcher, state: PartitionRecord, topic_id: str) -> None:
        topic_partition = state.topic_partition
        config = self._configs.of(state.topic, self._metadata.image)
        known = self.replicas.get(topic_partition)
        if known is not None and known.topic_id != topic_id:
            known = None
        if known is not None and known.leader_epoch >= state.leader_epoch:
            known.own.config = self._own_config(state, config)
            fetcher.upkeep.wake(topic_partition)
            return
        clock, ids, broker_id = self.ports.clock, self.ports.ids, self.job.broker_id
        leader = PartitionLog(self._table_of(state, state.leader), config, clock, ids)
        leader.remembers_removed = False
        is_there = known is not None and known.state.domain_of(broker_id) == state.domain_of(broker_id)
        if known is not None and is_there and not self._is_under_way_elsewhere(topic_partition, fetcher):
            own = known.own
        else:
            own = PartitionLog(self._table_of(state, broker_id), self._own_config(state, config), clock, ids)
        is_relied_on = partial(self._held.is_relied_on, fetcher.leaders.values(), state, topic_id)
        replica = FollowedReplica(state, topic_id, own, leader, self.job.broker_id, is_relied_on)
        for other in self.fetchers.values():
            if other is not fetcher:
                other.drop(topic_partition)
        for rounds in self._upkeep.values():
            rounds.drop(topic_partition)
        self.replicas[topic_partition] = replica
        self._begin_upkeep(fetcher, topic_partition, replica)
        fetcher.to_fold[topic_partition] = None
        fetcher.queue.release(topic_partition)
        fetcher.queue.add(topic_partition)

    def _own_config(self, state: PartitionRecord, config: LogConfig) -> LogConfig:
        """In a storage domain there is no other copy for those that share the table: each commit is synced."""
        return replace(config, flush_messages=1) if state.domain_of(self.job.broker_id) else config

    def _table_of(self, state: PartitionRecord, broker_id: int) -> LogTable:
        """That of a replica, as the newest image shows it. LogDirNotFoundError."""
        root = replica_root(self._metadata.image, state, broker_id)
        if root is None:
            raise LogDirNotFoundError(f"{state.topic_partition}: broker {broker_id} has never registered")
        return self.ports.stores.table(root, state.topic_partition)

    def _is_under_way_elsewhere(self, topic_partition: TopicPartition, fetcher: LeaderFetcher) -> bool:
        """Whether another leader's fetcher waits amid this partition: it still uses the fold of the own log."""
        others = (each for each in self.fetchers.values() if each is not fetcher)
        return any(topic_partition in other.under_way for other in others)

    def _begin_upkeep(self, fetcher: LeaderFetcher, topic_partition: TopicPartition, replica: FollowedReplica) -> None:
        leader = self._metadata.image.brokers.get(fetcher.leader_id)
        limits, executor = self._upkeep_limits, self.ports.executor
        if leader is not None:
            executor = self.ports.executor_at(leader.registration.root)
        erases = partial(self._erases_of, topic_partition)
        upkeep = Upkeep(replica.own, limits, executor, leader=replica.leader, erases=erases)
        fetcher.upkeep.add(topic_partition, upkeep)

    def _erases_of(self, topic_partition: TopicPartition) -> list[Erase]:
        return erases_of(self._metadata.image, topic_partition)

    def _forget(self, topic_partition: TopicPartition) -> None:
        """The replica is no longer assigned: what was published of it is no evidence any more."""
        self._stop_fetching(topic_partition)
        self._progress.forget(topic_partition)
        self._held.forget(topic_partition)

    def _stop_fetching(self, topic_partition: TopicPartition) -> None:
        """What was published of the replica stays: it is the evidence, should its log be lost."""
        self.replicas.pop(topic_partition, None)
        self._leader_of.pop(topic_partition, None)
        for fetcher in self.fetchers.values():
            fetcher.drop(topic_partition)
        for rounds in self._upkeep.values():
            rounds.drop(topic_partition)

    # -- leaders -----------------------------------------------------------------------------------------

    def poll_leader(self, fetcher: LeaderFetcher, now_ms: int) -> None:
        """Queue what the leader published, where its objects were written."""
        is_rescan_due = now_ms >= fetcher.rescan_ms
        if fetcher.back_off.is_due(now_ms):
            try:
                for leader in list(fetcher.leaders.values()):
                    self._queue_published(fetcher, leader.moved())
                    if is_rescan_due:
                        leader.poll_high_watermarks()
                fetcher.back_off = fetcher.back_off.answered()
            except StratalogError as reason:
                self._leader_unavailable(fetcher, reason)
        if is_rescan_due:
            fetcher.rescan_ms = now_ms + self._rescan_interval_ms(fetcher, now_ms)
            self._rescan(fetcher)

    def _rescan_interval_ms(self, fetcher: LeaderFetcher, now_ms: int) -> int:
        return cadence.RESCAN.pause_ms(self.idle.idle_ms(now_ms), is_watched=fetcher.wakeup.is_active)

    def _leader_unavailable(self, fetcher: LeaderFetcher, reason: StratalogError) -> None:
        """The leader's root did not answer: it is tried again later, ever less often."""
        _LOG.warning("broker %d cannot follow leader %d: %s", self.job.broker_id, fetcher.leader_id, reason)
        fetcher.back_off = fetcher.back_off.failed(self.ports.clock.monotonic_ms())

    def _queue_published(self, fetcher: LeaderFetcher, moved: list[ReplicaProgress]) -> None:
        for progress in moved:
            replica = self.replicas.get(progress.topic_partition)
            if replica is None or replica.state.leader != fetcher.leader_id:
                continue
            needed = self._need(replica, progress)
            if needed is Need.NOTHING:
                continue
            fetcher.to_fold[progress.topic_partition] = None
            fetcher.queue.published(progress.topic_partition)
            fetcher.queue.needs(progress.topic_partition, needed)

    def _rescan(self, fetcher: LeaderFetcher) -> None:
        """Check replicas that lag behind what their leader published, and a few others each time."""
        checked, fetcher.rescanned = rescanned(self._fetched_by(fetcher), fetcher.rescanned)
        fetcher.queue.check(checked)
        self._queue_lagging(fetcher)

    def _queue_lagging(self, fetcher: LeaderFetcher) -> None:
        for topic_partition in self._fetched_by(fetcher):
            fetcher.queue.needs(topic_partition, self._need_of(self.replicas[topic_partition]))

    def _need(self, replica: FollowedReplica, published: ReplicaProgress) -> Need:
        return replica.need(published, self._published_by_elder.get(replica.state.topic_partition))

    def _need_of(self, replica: FollowedReplica) -> Need:
        """What a replica needs, judged by the newest progress that its leader published in this epoch; NOTHING when
        it has published none."""
        for leader in self._leaders_of(replica):
            published = leader.published(replica.state.topic_partition, replica.topic_id, replica.leader_epoch)
            if published is not None:
                return self._need(replica, published)
        return Need.NOTHING

    def _leaders_of(self, replica: FollowedReplica) -> list[FollowedLeader]:
        """The registrations of its leader that are known."""
        fetcher = self.fetchers.get(replica.state.leader)
        return [] if fetcher is None else list(fetcher.leaders.values())

    # -- copying -----------------------------------------------------------------------------------------

    def catch_up(self, fetcher: LeaderFetcher, now_ms: int) -> bool:
        """Copy from this leader for about a slice; True when something was copied or there is more to do at once."""
        queue = fetcher.queue
        queue.release_due(now_ms)
        end_ms = now_ms + fetcher.turn_interval.work_ms(cadence.COPIES.ms, now_ms)
        count_max = self.ports.together.distance.calls_max
        copied = self._drain(fetcher, queue.copies(count_max), end_ms)
        copied |= self._drain(fetcher, queue.checks(count_max), end_ms)
        return copied or bool(queue)

    def rest_ms(self, fetcher: LeaderFetcher, begun_ms: int) -> int:
        """How long to rest after a turn that began at `begun_ms`; 0 if it left something to copy."""
        now_ms = self.ports.clock.monotonic_ms()
        return 0 if fetcher.queue.has_copies else fetcher.turn_interval.rest_ms(begun_ms, now_ms)

    def due_in_ms(self, fetcher: LeaderFetcher, now_ms: int) -> int:
        """How long until a delayed partition is due; 0 while there is more to do at once."""
        return fetcher.queue.due_in_ms(now_ms, cadence.METADATA.watched_ms)

    def _delay(self, fetcher: LeaderFetcher, topic_partition: TopicPartition, delay_ms: int) -> None:
        fetcher.queue.delay(topic_partition, self.ports.clock.monotonic_ms() + delay_ms)

    def _drain(self, fetcher: LeaderFetcher, queued: Iterator[list[TopicPartition]], end_ms: int) -> bool:
        copied = False
        for some in queued:
            if replicas := self._fetched(fetcher, some):
                copied |= self._catch_up_some(fetcher, replicas, end_ms)
                if self.ports.clock.monotonic_ms() >= end_ms:
                    break
        return copied

    def _fetched(self, fetcher: LeaderFetcher, topic_partitions: Iterable[TopicPartition]) -> list[FollowedReplica]:
        """The replicas of these partitions that are fetched from this leader."""
        found = [self.replicas[tp] for tp in topic_partitions if tp in self.replicas]
        return [replica for replica in found if replica.state.leader == fetcher.leader_id]

    def _catch_up_some(self, fetcher: LeaderFetcher, replicas: Sequence[FollowedReplica], end_ms: int) -> bool:
        """Copy a bounded part of each; True when something was copied or there is more to do at once."""
        image, now_ms = self._metadata.image, self.ports.clock.monotonic_ms()
        copies: list[Copy] = []
        for replica in replicas:
            topic_partition, max_bytes = replica.state.topic_partition, self.job.config.replica_fetch_max_bytes
            is_start = not replica.has_started
            allowed = self._quota.allowance(image, topic_partition, max_bytes, now_ms, is_start=is_start)
            if allowed.delay_ms:
                self._delay(fetcher, topic_partition, allowed.delay_ms)
            else:
                copies.append(Copy(replica, allowed.max_bytes, replica.copied_count, replica.copied_bytes))
        copied = False
        fetcher.under_way = frozenset(copy.topic_partition for copy in copies)
        try:
            for copy, outcome in zip(copies, self.ports.together.run([copy.make for copy in copies]), strict=True):
                copied |= self._after_copy(fetcher, copy, outcome, end_ms)
        finally:
            fetcher.under_way = frozenset()
        return copied

    def _after_copy(self, fetcher: LeaderFetcher, copy: Copy, outcome: CopyOutcome, end_ms: int) -> bool:
        """Do what follows from a copy; True when something was copied or there is more to do at once."""
        replica, topic_partition = copy.replica, copy.topic_partition
        has_more, has_copied = self._settle(fetcher, copy, outcome), replica.copied_count > copy.count_before
        is_followed = self.replicas.get(topic_partition) is replica
        has_ended = replica.has_started or replica.failure is not None or fetcher.queue.is_delayed(topic_partition)
        attempt = Attempt(
            has_copied=has_copied,
            has_more=has_more and is_followed,
            has_started=has_ended or not is_followed,
            need=self._need_of(replica) if is_followed and has_copied else Need.NOTHING,
            is_away=isinstance(outcome, StoreUnavailableError),
            pause_ms=fetcher.upkeep.append_pause_ms(topic_partition, replica.copied_files) if has_copied else 0,
            starts=replica.starts,
        )
        now_ms = self.ports.clock.monotonic_ms()
        then = after_copy(attempt, self.job.config.replica_fetch_backoff_ms, now_ms)
        replica.starts = then.starts
        if then.delay_ms is not None:
            fetcher.queue.delay(topic_partition, now_ms + then.delay_ms, is_held=then.is_held)
        if then.is_soon:
            fetcher.queue.needs(topic_partition, Need.CHECK if replica.has_backlog else Need.COPY)
        if not is_followed:
            return False
        if has_more or has_copied:
            fetcher.turn_interval.moved(topic_partition, end_ms)
        self._update_progress(replica)
        return has_more or has_copied

    def _update_progress(self, replica: FollowedReplica) -> None:
        if (progress := replica.progress()) is not None:
            if progress.log_end_offset > 0:
                self._held.publishes(progress.topic_partition, replica.topic_id, replica.leader_epoch)
            self._progress.update(replica.state.leader, progress)

    def _settle(self, fetcher: LeaderFetcher, copy: Copy, outcome: CopyOutcome) -> bool:
        """What becomes of a copy's outcome; True when there is more to do at once."""
        replica, topic_partition = copy.replica, copy.topic_partition
        match outcome:
            case None:
                self._reopen(topic_partition, replica)
                return True
            case StoreUnavailableError():
                _LOG.warning("%s on broker %d, trying again: %s", topic_partition, self.job.broker_id, outcome)
                return False
            case InconsistentTopicIdError():
                self._drop_stray(fetcher, replica, outcome)
                return False
            case StratalogError():
                self._repair_or_retry(fetcher, replica, outcome)
                return False
        if replica.copied_count > copy.count_before:
            fetcher.copied_count += replica.copied_count - copy.count_before
            now_ms = self.ports.clock.monotonic_ms()
            fetcher.changed_ms = now_ms
            self.idle.changed(now_ms)
            copied_bytes = replica.copied_bytes - copy.bytes_before
            self._quota.consume(self._metadata.image, topic_partition, copied_bytes, now_ms)
        return outcome

    def _reopen(self, topic_partition: TopicPartition, replica: FollowedReplica) -> None:
        """A table is not the one that was folded: it was made again or deleted, or clean-up has passed the fold.

        Whether it is still to be followed is decided by the newest metadata, or a deleted replica would be made again.
        """
        if self.replicas.get(topic_partition) is replica:
            self._stop_fetching(topic_partition)
        self._metadata.read_next()
        self._is_assignment_due = True
        self._wakeup.wake()

    def _drop_stray(self, fetcher: LeaderFetcher, replica: FollowedReplica, reason: StratalogError) -> None:
        """The own table is of a deleted topic of this name. A session that lags may itself know the old topic only."""
        self._is_assignment_due = True
        self._metadata.log.refresh_image()
        self._apply(self._metadata.log.refresh())
        if not self.is_over and self._metadata.image.topic_ids.get(replica.state.topic) == replica.topic_id:
            if delete_stray(replica.own.table, replica.own.topic_id, self.ports.clock, self.ports.ids):
                _LOG.warning("broker %d drops a stray replica: %s", self.job.broker_id, reason)
            else:
                self._delay(fetcher, replica.state.topic_partition, self.job.config.replica_fetch_backoff_ms)
            self._reopen(replica.state.topic_partition, replica)

    # -- standby -----------------------------------------------------------------------------------------

    def fold_ahead(self, fetcher: LeaderFetcher, now_ms: int) -> bool:
        """Fold for about a slice what copying would need, without a write; True when there is more to fold."""
        end_ms = now_ms + cadence.COPIES.ms
        for some in taken(fetcher.to_fold, self.ports.together.distance.calls_max):
            replicas = self._fetched(fetcher, some)
            fetcher.under_way = frozenset(replica.state.topic_partition for replica in replicas)
            try:
                have_more = self.ports.together.run([replica.fold_ahead for replica in replicas])
            finally:
                fetcher.under_way = frozenset()
            for replica, has_more in zip(replicas, have_more, strict=True):
                if has_more:
                    fetcher.to_fold[replica.state.topic_partition] = None
            if self.ports.clock.monotonic_ms() >= end_ms:
                break
        return bool(fetcher.to_fold)

    # -- upkeep ------------------------------------------------------------------------------------------

    def keep_up(self, fetcher: LeaderFetcher, *, may_begin: bool = True) -> None:
        """A round of upkeep of the replicas that are fetched from this leader. `may_begin` False: what was begun is
        ended, nothing else."""
        fetcher.upkeep.run(
            partial(self._keep_one_up, fetcher, may_begin),
            lambda topic_partition, reason: self._repair_or_retry(fetcher, self.replicas[topic_partition], reason),
        )

    def _keep_one_up(
        self, fetcher: LeaderFetcher, may_begin: bool, topic_partition: TopicPartition, upkeep: Upkeep, is_busy: bool
    ) -> UpkeepDone | None:
        replica = self.replicas.get(topic_partition)
        if replica is None or not replica.has_started or replica.failure is not None:
            return None
        now_ms, high_watermark = self.ports.clock.wall_ms(), self._high_watermark(replica)
        fetcher.under_way = frozenset((topic_partition,))
        try:
            done = upkeep.step(now_ms, high_watermark, replica.leader_epoch, is_busy=is_busy, may_begin=may_begin)
        finally:
            fetcher.under_way = frozenset()
        if done is not None and done.work is UpkeepWork.RETENTION and self.replicas.get(topic_partition) is replica:
            self._update_progress(replica)
        return done

    def _repair_or_retry(self, fetcher: LeaderFetcher, replica: FollowedReplica, reason: StratalogError) -> None:
        topic_partition = replica.state.topic_partition
        if self.replicas.get(topic_partition) is not replica:
            return
        if self._repair.begin(replica.state, replica.topic_id, replica.own.table, replica.leader.name, reason):
            replica.failure = reason
        else:
            replica.has_started = False
            self._delay(fetcher, topic_partition, self.job.config.replica_fetch_backoff_ms)

    def _high_watermark(self, replica: FollowedReplica) -> int:
        """The one that the leader published for this epoch, as of the last rescan; -1 when none."""
        asked = replica.state.topic_partition, replica.topic_id, replica.leader_epoch
        return max((leader.high_watermark(*asked) for leader in self._leaders_of(replica)), default=-1)
