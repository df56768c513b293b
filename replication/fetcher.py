"""A fetch session: follows leaders for a while, on behalf of one broker. It is what a micro-batch runs.

I/O: through its stores. Spark (or a thread, or the simulator) schedules it and it does not know which. The
session watches one progress object per leader broker, copies what moved, commits to the broker's own
tables and publishes one progress object of its own: the commit, then the progress, is the acknowledgement.

A follower's partitions may be shared out to several tasks (`num.replica.fetchers`); each watches all leaders.
Two sessions of a share overlap: the younger stands by until the elder ends or falls silent, which hides the
gap between two micro-batches (DESIGN §6). Both working at once is safe (§4), only wasteful.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Executor
from zlib import crc32

from replication.config import BrokerConfig
from replication.followed_replica import FollowedReplica
from replication.follower_watch import ENDED
from replication.progress import fetch_progress_path, image_path, leader_progress_path, progress_prefix
from replication.progress_object import ProgressReader, ProgressWriter
from replication.state import NO_LEADER, PartitionRecord
from replication.stores import Stores, open_metadata
from replication.upkeep_rounds import UpkeepRounds
from storage.clock import Clock, Ids
from storage.config import LogConfig
from storage.errors import (
    InconsistentTopicIdError,
    StoreUnavailableError,
    StratalogError,
)
from storage.log import PartitionLog
from storage.records import TopicPartition
from storage.upkeep import Upkeep, UpkeepDone, UpkeepLimits

_LOG = logging.getLogger("stratalog.fetcher")

STANDBY, ACTIVE = "standby", "active"
BEAT_INTERVAL_MS = 200
SILENCE_MS = 1_000
RESCAN_INTERVAL_MS = 2_000
FORGOTTEN_MS = 60_000
REPLICA_BACKOFF_MS = 20


def stop_path(broker_epoch: int) -> str:
    """An object whose presence ends all fetch sessions of that broker epoch."""
    return f"{progress_prefix(broker_epoch)}stop"


class FetchSession:
    """One session. `step` is one turn; `run` turns until the deadline or until `is_over`: the broker stopped,
    or its registration is no longer the live one."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: int,
        root: str,
        name: str,
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
        self.name = f"{share}-{name}"
        self._share = share
        self._topic_defaults = dict(topic_defaults or {})
        self.replicas: dict[TopicPartition, FollowedReplica] = {}
        self.is_over = False
        self.state = STANDBY
        self._root = root
        self._config = config
        self._stores = stores
        self._clock = clock
        self._ids = ids
        self._upkeep_limits = upkeep_limits
        self._executor = executor
        self._objects = stores.objects(root)
        self._metadata = open_metadata(stores, metadata_root, clock, ids)
        self._writer = ProgressWriter(self._objects, fetch_progress_path(broker_epoch, self.name))
        self._leaders: dict[tuple[int, int], ProgressReader] = {}
        self._dirty: OrderedDict[TopicPartition, None] = OrderedDict()
        self._upkeep = UpkeepRounds(clock)
        self._retry_at_ms: dict[TopicPartition, int] = {}
        self._leader_retry_at_ms: dict[int, int] = {}
        self._due_ms: dict[str, int] = {}
        self._is_assignment_open = False
        self._metadata_seen_ms = clock.monotonic_ms()
        self._others: dict[str, tuple[bytes | None, int]] = {}

    # -- life --------------------------------------------------------------------------------------------

    @property
    def copied_count(self) -> int:
        """Rounds of copying so far."""
        return sum(replica.copied_count for replica in self.replicas.values())

    def run(self, duration_ms: int) -> None:
        """Follow until the deadline, until the registration is over or until the broker stops."""
        deadline_ms = self._clock.monotonic_ms() + duration_ms
        idle_since_ms = self._clock.monotonic_ms()
        while self._clock.monotonic_ms() < deadline_ms and not self.is_over:
            try:
                moved = self.step()
            except StratalogError as reason:
                _LOG.warning("fetch session %s of broker %d, trying again: %s", self.name, self.broker_id, reason)
                self._clock.sleep_ms(self._config.replica_fetch_backoff_ms)
                if self._is_blind():
                    break
                continue
            if moved:
                idle_since_ms = self._clock.monotonic_ms()
                continue
            self._clock.sleep_ms(self._pause_ms(self._clock.monotonic_ms() - idle_since_ms))
        self.end()

    def _is_blind(self) -> bool:
        """The metadata log has been out of reach for a session timeout: leave the work to another session."""
        blind_ms = self._clock.monotonic_ms() - self._metadata_seen_ms
        return blind_ms > self._config.broker_session_timeout_ms

    def _pause_ms(self, idle_ms: int) -> int:
        """Short right after work, longer when long idle."""
        shortest, longest = self._config.stratalog_progress_poll_min_ms, self._config.stratalog_progress_poll_max_ms
        if self.state == STANDBY:
            return longest
        return shortest if idle_ms < 2_000 else min(longest, shortest + idle_ms // 1_000)

    def end(self) -> None:
        """Say that this session is over, so that the next takes over at once."""
        self.state = ENDED
        self._writer.state = ENDED
        self._writer.publish(self._clock.monotonic_ms())

    # -- one turn ----------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One turn; True when something was copied or there is more to do at once."""
        now_ms = self._clock.monotonic_ms()
        if self._is_due("metadata", now_ms, self._config.stratalog_metadata_poll_ms):
            self._follow_metadata()
            self._metadata_seen_ms = now_ms
        if self._is_due("stop", now_ms, BEAT_INTERVAL_MS) and self._objects.exists(stop_path(self.broker_epoch)):
            self.is_over = True
        if self.is_over:
            return False
        if self.state == STANDBY and not self._takes_over(now_ms):
            self._publish(now_ms)
            return False
        self._watch_leaders(now_ms)
        moved = self._catch_up(now_ms)
        self._publish(now_ms)
        if self._is_due("upkeep", now_ms, self._config.stratalog_upkeep_interval_ms):
            self._keep_up()
        return moved

    def _is_due(self, name: str, now_ms: int, interval_ms: int) -> bool:
        if now_ms < self._due_ms.get(name, 0):
            return False
        self._due_ms[name] = now_ms + interval_ms
        return True

    # -- metadata ----------------------------------------------------------------------------------------

    def _follow_metadata(self) -> None:
        if not self._metadata.refresh() and self._leaders and not self._is_assignment_open:
            return
        self._is_assignment_open = False
        image = self._metadata.image
        known = image.brokers.get(self.broker_id)
        if known is not None and known.broker_epoch > self.broker_epoch:
            self.is_over = True  # a newer life of this broker has sessions of its own
            return
        if known is not None and known.broker_epoch == self.broker_epoch and known.fenced:
            self.is_over = True
            return
        for broker_id, broker in image.brokers.items():
            key = (broker_id, broker.broker_epoch)
            if broker_id != self.broker_id and key not in self._leaders:
                self._hear(key, broker.registration.root)
        current = {(i, b.broker_epoch) for i, b in image.brokers.items()}
        for key in set(self._leaders) - current:
            del self._leaders[key]
        self._assign()

    def _hear(self, key: tuple[int, int], root: str) -> None:
        try:
            self._leaders[key] = ProgressReader(self._stores.objects(root), leader_progress_path(key[1]))
        except StratalogError as reason:
            self._leave_open(f"leader {key[0]}", reason)

    def _leave_open(self, what: str, reason: StratalogError) -> None:
        """One storage domain is out of reach: the rest is followed, this is tried again."""
        _LOG.warning("broker %d cannot follow %s: %s", self.broker_id, what, reason)
        self._is_assignment_open = True

    def _assign(self) -> None:
        image = self._metadata.image
        for state in image.partitions.values():
            if not self._follows(state):
                continue
            try:
                self._follow(state, image.topic_ids.get(state.topic, ""))
            except StratalogError as reason:
                self._leave_open(str(state.topic_partition), reason)
        for topic_partition in list(self.replicas):
            state_now = image.partitions.get(topic_partition)
            if state_now is None or not self._follows(state_now):
                self._forget(topic_partition)

    def _follows(self, state: PartitionRecord) -> bool:
        if self.broker_id not in state.replicas or state.leader in (self.broker_id, NO_LEADER):
            return False
        return crc32(str(state.topic_partition).encode()) % self._config.num_replica_fetchers == self._share

    def _follow(self, state: PartitionRecord, topic_id: str) -> None:
        topic_partition = state.topic_partition
        overrides = self._metadata.image.topic_config(state.topic)
        config = LogConfig.from_properties({**self._topic_defaults, **overrides})
        known = self.replicas.get(topic_partition)
        if known is not None and known.topic_id == topic_id and known.leader_epoch >= state.leader_epoch:
            known.own.config = config
            return
        leader_root = self._metadata.image.brokers[state.leader].registration.root
        own = known.own if known is not None and known.topic_id == topic_id else None
        own = own or PartitionLog(self._stores.table(self._root, topic_partition), config, self._clock, self._ids)
        leader = PartitionLog(self._stores.table(leader_root, topic_partition), config, self._clock, self._ids)
        self.replicas[topic_partition] = FollowedReplica(state, topic_id, own, leader)
        self._upkeep.take(topic_partition, Upkeep(own, self._upkeep_limits, self._executor))
        self._mark(topic_partition)

    def _forget(self, topic_partition: TopicPartition) -> None:
        del self.replicas[topic_partition]
        self._upkeep.drop(topic_partition)
        self._writer.forget(topic_partition)

    # -- standing by -------------------------------------------------------------------------------------

    def _takes_over(self, now_ms: int) -> bool:
        """True when no other session of this share is at work: it ended, fell silent, or never was."""
        if self._is_due("others", now_ms, BEAT_INTERVAL_MS):
            self._find_others(now_ms)
        if any(self._is_at_work(path, now_ms) for path in list(self._others)):
            return False
        self.state = ACTIVE
        self._writer.state = ACTIVE
        _LOG.debug("fetch session %s of broker %d takes over", self.name, self.broker_id)
        return True

    def _find_others(self, now_ms: int) -> None:
        prefix = fetch_progress_path(self.broker_epoch, f"{self._share}-")
        own = fetch_progress_path(self.broker_epoch, self.name)
        for meta in self._objects.list(progress_prefix(self.broker_epoch)):
            if not meta.path.startswith(prefix) or meta.path == own:
                continue
            if self._clock.wall_ms() - meta.last_modified_ms > FORGOTTEN_MS:
                self._objects.delete(image_path(meta.path))
                self._objects.delete(meta.path)
                self._others.pop(meta.path, None)
            elif meta.path not in self._others:
                self._others[meta.path] = (None, now_ms)

    def _is_at_work(self, path: str, now_ms: int) -> bool:
        content = self._objects.get_optional(path)
        if content is None or json.loads(content)["state"] != ACTIVE:
            if content is None or json.loads(content)["state"] == ENDED:
                del self._others[path]
            return False
        seen, since_ms = self._others[path]
        if content != seen:
            self._others[path] = (content, now_ms)
            return True
        return now_ms - since_ms < SILENCE_MS

    # -- fetching ----------------------------------------------------------------------------------------

    def _watch_leaders(self, now_ms: int) -> None:
        followed = {replica.state.leader for replica in self.replicas.values()}
        for (broker_id, _), reader in self._leaders.items():
            if broker_id not in followed or now_ms < self._leader_retry_at_ms.get(broker_id, 0):
                continue
            try:
                moved = reader.poll()
            except StratalogError as reason:
                # Its storage domain is out of reach: the other leaders must be followed all the same.
                _LOG.warning("broker %d cannot hear leader %d: %s", self.broker_id, broker_id, reason)
                self._leader_retry_at_ms[broker_id] = now_ms + self._config.replica_fetch_backoff_ms
                continue
            for progress in moved:
                replica = self.replicas.get(progress.topic_partition)
                if replica is not None and replica.state.leader == broker_id:
                    self._mark(progress.topic_partition)
        if self._is_due("rescan", now_ms, RESCAN_INTERVAL_MS):
            for topic_partition in self.replicas:
                self._mark(topic_partition)

    def _mark(self, topic_partition: TopicPartition) -> None:
        self._dirty.setdefault(topic_partition)

    def _catch_up(self, now_ms: int) -> bool:
        moved = False
        for _ in range(len(self._dirty)):
            topic_partition, _ = self._dirty.popitem(last=False)
            replica = self.replicas.get(topic_partition)
            if replica is None:
                continue
            if now_ms < self._retry_at_ms.get(topic_partition, 0):
                self._mark(topic_partition)
                continue
            if self._catch_up_one(topic_partition, replica, now_ms):
                self._mark(topic_partition)
                moved = True
            elif not replica.has_started and replica.failure is None:
                self._retry_at_ms[topic_partition] = now_ms + REPLICA_BACKOFF_MS
                self._mark(topic_partition)
            progress = replica.progress()
            if progress is not None:
                self._writer.update([progress])
        return moved

    def _catch_up_one(self, topic_partition: TopicPartition, replica: FollowedReplica, now_ms: int) -> bool:
        try:
            return replica.catch_up(self._config.replica_fetch_max_bytes)
        except StoreUnavailableError as reason:
            _LOG.warning("%s on broker %d, trying again: %s", topic_partition, self.broker_id, reason)
            self._retry_at_ms[topic_partition] = now_ms + self._config.replica_fetch_backoff_ms
            self._mark(topic_partition)
            return False
        except InconsistentTopicIdError as reason:
            self._drop_leftover(replica, reason)
            return False
        except StratalogError as reason:
            self._go_offline(topic_partition, reason)
            return False

    def _drop_leftover(self, replica: FollowedReplica, reason: StratalogError) -> None:
        """The own table is of a deleted topic of this name: remove it. Only if the newest metadata says so,
        since a session that is behind may itself be the one with the old topic."""
        self._metadata.refresh()
        self._assign()
        if self._metadata.image.topic_ids.get(replica.state.topic) == replica.topic_id:
            _LOG.warning("broker %d drops a leftover: %s", self.broker_id, reason)
            replica.own.table.drop()

    def _publish(self, now_ms: int) -> None:
        beat_is_due = self._is_due("beat", now_ms, BEAT_INTERVAL_MS)
        if self._writer.is_unpublished or beat_is_due:
            self._writer.state = self.state
            self._writer.publish(now_ms)

    def _keep_up(self) -> None:
        self._upkeep.run(self._keep_one_up, self._go_offline)

    def _keep_one_up(self, topic_partition: TopicPartition, upkeep: Upkeep) -> UpkeepDone | None:
        replica = self.replicas[topic_partition]
        if not replica.has_started or replica.failure is not None:
            return None
        return upkeep.step(self._clock.wall_ms(), self._high_watermark(topic_partition), replica.leader_epoch)

    def _go_offline(self, topic_partition: TopicPartition, reason: StratalogError) -> None:
        _LOG.error("%s goes offline on broker %d: %s", topic_partition, self.broker_id, reason)
        self.replicas[topic_partition].failure = reason

    def _high_watermark(self, topic_partition: TopicPartition) -> int:
        """The high watermark that the leader last published for this epoch; -1 when none."""
        state = self.replicas[topic_partition].state
        for (broker_id, _), reader in self._leaders.items():
            entry = reader.entries.get(topic_partition)
            if broker_id == state.leader and entry is not None and entry.leader_epoch == state.leader_epoch:
                return entry.high_watermark
        return -1
