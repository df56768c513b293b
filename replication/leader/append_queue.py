"""Requests on their way to the replicas that a broker leads, and the order in which those append.

I/O: through the replicas' logs. Any thread may `put`; everything else belongs to the broker's loop. A turn touches
only replicas that have something to append, however many there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial

from stratalog.replication import cadence
from stratalog.replication.leader.commit_governor import CommitGovernor
from stratalog.replication.leader.replica import AppendGroup, LeaderReplica, StoredAppend, WaitingAppend
from stratalog.replication.leader.waiting_partitions import WaitingPartitions
from stratalog.replication.metrics import Histogram
from stratalog.replication.stores import AppendStores, StoresBeside
from stratalog.storage import errors
from stratalog.storage.clock import Clock
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import IdentifiedPartition, TopicPartition


class AppendQueue:
    """`leaders` is the broker's own map, which changes under way."""

    def __init__(
        self,
        broker_id: int,
        leaders: Mapping[TopicPartition, LeaderReplica],
        clock: Clock,
        queue_time: Histogram | None = None,
        exists: Callable[[IdentifiedPartition], bool] = lambda _partition: True,
        stores: AppendStores | None = None,
    ) -> None:
        """`exists`: whether the broker's metadata has a partition."""
        self._broker_id = broker_id
        self._leaders = leaders
        self._clock = clock
        self._queue_time = queue_time or Histogram()
        self._exists = exists
        self._stores = stores or AppendStores()
        self.governor = CommitGovernor()
        """How long commits gather; by default they do not."""
        self._under_way: dict[LeaderReplica, tuple[AppendGroup, Future[StoredAppend]]] = {}
        """What is stored beside the loop. Invariant: these `is_storing`, and no others."""
        self._gathers_until_ms: int | None = None
        """Until when what is stored waits for more; None: nothing does."""
        self._inbound: deque[WaitingAppend] = deque()
        self._waiting = WaitingPartitions()
        self.held_ms = 0
        """Time after a turn until the first replica that was held back for upkeep may append; 0 if none was."""

    @property
    def is_empty(self) -> bool:
        """False while something waits for its append: after a turn in which nothing moved, for a store. What is stored
        beside the loop wakes it."""
        return not self._inbound and not len(self._waiting) and self._gathers_until_ms is None

    @property
    def is_storing(self) -> bool:
        """Whether something is stored beside the loop."""
        return bool(self._under_way)

    def put(self, waiting: WaitingAppend) -> None:
        """Queue a request for the next turn of the partition's leader."""
        waiting.arrived_ms = self._clock.monotonic_ms()
        waiting.arrived_in = self.arrives_in(waiting.request.partition)
        self._inbound.append(waiting)

    def arrives_in(self, partition: IdentifiedPartition) -> int | None:
        """The leader epoch under which a request that comes now may be appended; None: any, it is not led here yet."""
        replica = self._leaders.get(partition.topic_partition)
        return None if replica is None or replica.topic_id != partition.topic_id else replica.leader_epoch

    def refuse_all(self, reason: str) -> None:
        """Refuse what is queued: nothing is led here any more. Called from any thread."""
        while self._inbound:
            self._inbound.popleft().answer(errors.NotLeaderOrFollowerError(reason))

    def append(self, now_ms: int, within_ms: int = cadence.APPENDS.ms) -> Iterator[LeaderReplica]:
        """Append one group of each partition that has requests, within `within_ms` of the turn's beginning `now_ms`;
        partitions that were cut off come first in the next turn. Yields the replicas whose log moved."""
        self._distribute(now_ms)
        self.held_ms = 0
        if not self._gathers(now_ms):
            yield from self._stored_beside(now_ms)
        left = len(self._waiting)
        while left > 0:
            topic_partitions = self._waiting.take(min(left, self._stores.together.distance.calls_max))
            left -= len(topic_partitions)
            yield from self._append_some(topic_partitions, now_ms)
            if self._clock.monotonic_ms() - now_ms >= within_ms:
                return

    def _append_some(self, topic_partitions: Sequence[TopicPartition], now_ms: int) -> Iterator[LeaderReplica]:
        # Of those that are led no more the requests were answered.
        replicas = [self._leaders[each] for each in topic_partitions if each in self._leaders]
        replicas = [each for each in replicas if not self._is_held(each, now_ms)]
        if self._stores.beside is not None:
            for replica in replicas:
                if self._stores.beside.takes(replica.log.table):
                    self._store_beside(replica, self._stores.beside, now_ms)
            replicas = [replica for replica in replicas if not self._stores.beside.takes(replica.log.table)]
        groups = [(replica, replica.next_group(now_ms)) for replica in replicas]
        for replica, group in groups:
            if group is not None:
                self.governor.begins(replica.state.topic_partition, now_ms)
        calls = [partial(replica.store, group) for replica, group in groups if group is not None]
        outcomes = iter(self._stores.together.run(calls))
        for replica, group in groups:
            has_moved = group is not None and replica.stored(group, next(outcomes), now_ms)
            self._wait_for_turn(replica, now_ms)
            if has_moved:
                yield replica

    def _is_held(self, replica: LeaderReplica, now_ms: int) -> bool:
        """Whether the next commit of this partition gathers on: then it waits behind the others."""
        named, latency_ms = replica.state.topic_partition, replica.config.stratalog_commit_latency_ms
        held_ms = self.governor.held_ms(named, latency_ms, now_ms)
        if held_ms and not replica.is_storing:
            self._waiting.add(replica.state.topic_partition, replica.next_sender)
            self.held_ms = min(held_ms, self.held_ms or held_ms)
            return True
        return False

    def _write_ahead(self, replica: LeaderReplica, beside: StoresBeside, now_ms: int) -> None:
        """Write the file of the next group, unless that gathers on."""
        latency_ms = replica.config.stratalog_commit_latency_ms
        if not self.governor.interval_ms(replica.state.topic_partition, latency_ms, now_ms):
            replica.write_ahead(beside.executor)

    def _wait_for_turn(self, replica: LeaderReplica, now_ms: int) -> None:
        """It waits behind the others, if anything of it does."""
        if replica.has_waiting:
            self._waiting.add(replica.state.topic_partition, replica.next_sender)
            if held_ms := replica.held_ms(now_ms):
                self.held_ms = min(held_ms, self.held_ms or held_ms)

    def _store_beside(self, replica: LeaderReplica, beside: StoresBeside, now_ms: int) -> None:
        """Begin to store a group of this partition, or to write the file of the next one. What waits behind that waits
        for the end of what is under way."""
        if replica.is_storing:
            self._write_ahead(replica, beside, now_ms)
            return
        group = replica.next_group(now_ms)
        if group is None:
            self._wait_for_turn(replica, now_ms)
            return
        self.governor.begins(replica.state.topic_partition, now_ms)
        replica.begin_beside()
        try:
            stored = beside.executor.submit(replica.store, group)
        except RuntimeError:  # its threads have ended, with the process
            replica.is_storing = False
            self._wait_for_turn(replica, now_ms)
            return
        self._under_way[replica] = (group, stored)
        stored.add_done_callback(lambda _stored: beside.wake())

    def _gathers(self, now_ms: int) -> bool:
        """Whether what is stored waits a moment for more."""
        stored = [each.done() for _, each in self._under_way.values()]
        if all(stored) or not any(stored):
            self._gathers_until_ms = None
            return False
        if self._gathers_until_ms is None:
            self._gathers_until_ms = now_ms + cadence.APPENDS_GATHERED.ms
        self.held_ms = max(0, self._gathers_until_ms - now_ms)
        if not self.held_ms:
            self._gathers_until_ms = None
        return self.held_ms > 0

    def _stored_beside(self, now_ms: int) -> Iterator[LeaderReplica]:
        """What became of the groups that were stored beside the loop. Those of replicas that resigned meanwhile were
        answered; what was committed of them is another leader's to find."""
        for replica, (group, stored) in list(self._under_way.items()):
            if not stored.done():
                if self._stores.beside is not None:
                    self._write_ahead(replica, self._stores.beside, now_ms)
                continue
            del self._under_way[replica]
            replica.is_storing = False
            try:
                has_moved = replica.stored(group, stored.result(), now_ms)
            finally:
                self._wait_for_turn(replica, now_ms)
            if has_moved:
                yield replica

    def _distribute(self, now_ms: int) -> None:
        while self._inbound:
            waiting = self._inbound.popleft()
            self._queue_time.observe(now_ms - waiting.arrived_ms)
            partition = waiting.request.partition
            topic_partition = partition.topic_partition
            replica = self._leaders.get(topic_partition)
            if replica is None or replica.topic_id != partition.topic_id:
                waiting.answer(self._refusal(partition, replica))
            elif replica.failure is not None:
                waiting.answer(replica.failure)
            elif waiting.arrived_in not in (None, replica.leader_epoch):
                waiting.answer(self._overtaken(waiting, replica))
            else:
                replica.waiting.append(waiting)
                self._waiting.add(topic_partition, waiting.request.sender)

    def _overtaken(self, waiting: WaitingAppend, replica: LeaderReplica) -> StratalogError:
        """The refusal of what came under an earlier leader epoch: it may have been sent again to the leader of one in
        between, and its sender gone on. The queue stands when the loop does."""
        return errors.NotLeaderOrFollowerError(
            f"{waiting.request.topic_partition}: came under leader epoch {waiting.arrived_in}, which is "
            f"{replica.leader_epoch} by now"
        )

    def _refusal(self, partition: IdentifiedPartition, led: LeaderReplica | None) -> StratalogError:
        """Why nothing is appended to a partition without a leader here (Kafka's `ReplicaManager.getPartitionOrError`).

        A topic that was deleted, or that this broker does not know yet, is unknown, whatever topic has its name.
        """
        if self._exists(partition):
            return errors.NotLeaderOrFollowerError(f"{partition} is not led by broker {self._broker_id}")
        if led is not None:
            what = f"topic id {partition.topic_id} is unknown, broker {self._broker_id} leads {led.topic_id}"
            return errors.UnknownTopicIdError(f"{partition}: {what}")
        return errors.UnknownTopicOrPartitionError(f"broker {self._broker_id} does not know {partition}")
