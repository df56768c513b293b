"""The coordinators of one broker: a shard for each partition of the internal topics that it leads.

I/O: reads these partitions' logs, appends through the broker's queue, creates the internal topics in the metadata log.
Any thread may send requests; everything else happens in the broker's loop, a turn at a time (`step`), so shards need no
locks and the same code runs in the simulation. The cost of a turn grows with its requests and timers, not with the
number of shards.

A read (OffsetFetch) is answered once the metadata log, read after the request was received, shows that this broker
still leads in the shard's epoch: so no other broker has acknowledged a commit before. All reads of a turn share one
read of the log.

Kafka: `CoordinatorRuntime`. Where we differ: Kafka answers reads from memory, so a coordinator that was deposed without
knowing it returns old offsets; after a failed append nothing is rolled back in memory, the shard is folded again from
its log; and the fold ends when the high watermark has passed it, so that a shard begins with committed records only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Protocol

from stratalog.replication import cadence
from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.producer_id_blocks import ProducerIds
from stratalog.replication.coordinator.runtime.find_coordinator import (
    coordinator_partition,
    create_internal_topic,
    find_coordinators,
    no_coordinators,
)
from stratalog.replication.coordinator.runtime.hosted_shard import Answer, HostedShard, ShardOutlets
from stratalog.replication.coordinator.runtime.kinds import CoordinatorKind
from stratalog.replication.coordinator.runtime.remote_appends import Appends, RemoteAppends
from stratalog.replication.coordinator.shard.metrics import CoordinatorCounts, coordinator_metrics
from stratalog.replication.coordinator.shard.shard import (
    CoordinatorShard,
    HeldGroup,
    RemoteAppend,
    RemoteAppended,
    ShardPlace,
)
from stratalog.replication.internal_topics import internal_topic
from stratalog.replication.leader.replica import LeaderReplica, WaitingAppend
from stratalog.replication.metadata.log import MetadataLog
from stratalog.replication.metrics import Metric
from stratalog.replication.requests.coordinators import CoordinatorType, FindCoordinatorRequest, FindCoordinatorResponse
from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse
from stratalog.storage import errors
from stratalog.storage.clock import Clock, Ids
from stratalog.storage.errors import StoreError, StratalogError
from stratalog.storage.files.damage import damage_in
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.wakeup import Wakeup
from stratalog.storage.records import CONTROL_ATTRIBUTE, IdentifiedPartition, NewRecordBatch, TopicPartition

_LOG = line_logger("stratalog.coordinator")


class CoordinatorHost(Protocol):
    """The broker of the coordinators."""

    @property
    def broker_id(self) -> int: ...

    @property
    def broker_epoch(self) -> int: ...

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def metadata(self) -> MetadataLog: ...

    @property
    def wakeup(self) -> Wakeup: ...

    def append(self, waiting: WaitingAppend) -> None:
        """Queue an append to a partition that this broker leads."""


class LedReplicas(Protocol):
    """The replicas that the broker leads; the map changes."""

    leaders: dict[TopicPartition, LeaderReplica]

    def examine(self, topic_partition: TopicPartition, path: str) -> None:
        """Check whether this file of a led replica is damaged; another replica would have to lead then."""


class CoordinatorRuntime:
    """`check_leader` queues partitions whose leader may have changed, `step` is its part of the broker's turn."""

    def __init__(
        self,
        host: CoordinatorHost,
        led: LedReplicas,
        clock: Clock,
        ids: Ids,
        kinds: Mapping[CoordinatorType, CoordinatorKind],
        peers: Mapping[int, Appends],
    ) -> None:
        """`peers` are the brokers of this process by id, `host` included."""
        self._host = host
        self._led = led
        self._clock = clock
        self._ids = ids
        self._kinds = {kind.topic: hosted for kind, hosted in kinds.items()}
        self._producer_ids = ProducerIds(host.broker_id, host.metadata)
        self._inbound: deque[Callable[[int], None]] = deque()
        self._changed: set[TopicPartition] = set()
        self._shards: dict[TopicPartition, HostedShard] = {}
        self._folding: dict[TopicPartition, int] = {}
        self._decided: dict[TopicPartition, HostedShard] = {}
        self._due_ms: dict[TopicPartition, int] = {}
        self._reading: set[TopicPartition] = set()
        self._confirm_due_ms = 0
        self._begun_ms: dict[TopicPartition, int] = {}
        self._led_from_ms: dict[TopicPartition, int] = {}
        self._counts = CoordinatorCounts()
        self._remote = RemoteAppends(
            lambda: host.metadata.image, peers, lambda work: self._put(work, lambda _error: None), self._performed
        )
        self._base_ms = clock.wall_ms() - clock.monotonic_ms()
        self._stopped_by: str | None = None

    # -- requests, from any thread -----------------------------------------------------------------------

    def request(self, kind: CoordinatorType, key: str | int, request: object, answer: Answer) -> None:
        """Send a request to the shard of a key, or of a partition by number. See `Broker.coordinator`."""
        arrived_ms = self._clock.monotonic_ms()
        self._put(lambda now_ms: self._request(kind, key, request, answer, arrived_ms, now_ms), answer)

    def every(self, kind: CoordinatorType, request: object, answer: Callable[[list[object]], None]) -> None:
        """Send a request to every shard of a kind here; the answers, or errors, in order of partition."""
        self._put(lambda now_ms: self._every(kind, request, answer, now_ms), lambda error: answer([error]))

    def find(self, request: FindCoordinatorRequest, answer: Callable[[FindCoordinatorResponse], None]) -> None:
        """The coordinators of these keys in this broker's metadata image."""
        self._put(
            lambda _now_ms: self._find(request, answer), lambda _error: answer(no_coordinators(request, self._down()))
        )

    def append(self, waiting: WaitingAppend) -> None:
        """An append of a client to an internal topic: refused, unless it is a transaction's marker."""
        request = waiting.request
        topic_partition = request.topic_partition
        batch = request.batch if isinstance(request, ProduceRequest) else None
        is_marker = isinstance(batch, NewRecordBatch) and batch.attributes & CONTROL_ATTRIBUTE
        if not is_marker or topic_partition.topic not in self._kinds:
            waiting.answer(errors.InvalidTopicError(f"Cannot append to internal topic {topic_partition.topic}"))
            return
        assert isinstance(batch, NewRecordBatch)

        def complete(response: object) -> None:
            error = response if isinstance(response, StratalogError) else None
            waiting.complete(ProduceResponse(request.partition, error=error))

        epoch = request.expected_leader_epoch if isinstance(request, ProduceRequest) else None
        self._put(lambda now_ms: self._mark(request.partition, batch, epoch, complete, now_ms), complete)

    def _down(self) -> errors.CoordinatorNotAvailableError:
        return errors.CoordinatorNotAvailableError(f"broker {self._host.broker_id} is down: {self._stopped_by}")

    def _put(self, work: Callable[[int], None], refuse: Answer) -> None:
        if self._stopped_by is not None:
            refuse(self._down())
            return
        self._inbound.append(work)
        if self._stopped_by is not None:  # it stopped in between, and no other caller may follow
            self._refuse_inbound()
        self._host.wakeup.wake()

    def _refuse_inbound(self) -> None:
        with suppress(IndexError):  # another thread may do the same now
            while True:
                self._inbound.popleft()(0)

    def metrics(self) -> list[Metric]:
        """Counters and gauges of the coordinators here."""
        return coordinator_metrics(self._counts, [shard.held() for shard in list(self._shards.values())])

    def groups(self) -> list[HeldGroup]:
        """The groups that are coordinated here. Called from any thread."""
        return [group for shard in list(self._shards.values()) for group in shard.groups()]

    # -- from the broker's loop ---------------------------------------------------------------------------

    def check_leader(self, topic_partition: TopicPartition) -> None:
        """The partition's leader may have changed."""
        if topic_partition.topic in self._kinds:
            self._changed.add(topic_partition)
            self._host.wakeup.wake()

    def partitions_deleted(self, partitions: Iterable[IdentifiedPartition]) -> None:
        """These partitions were deleted with their topics."""
        gone = tuple(partitions)
        for topic, kind in self._kinds.items():
            if gone and kind.partitions_deleted is not None:
                for shard in [each for tp, each in self._shards.items() if tp.topic == topic and each.is_active]:
                    shard.request(kind.partitions_deleted(gone), None, self._now_ms())
                    self._reschedule(shard)
                    self._host.wakeup.wake()

    def stop(self, reason: str) -> None:
        """Refuse all waiting and later requests."""
        self._stopped_by = reason
        for topic_partition in list(self._shards):
            self._drop(topic_partition, reason)
        self._refuse_inbound()

    def step(self) -> bool:
        """One turn; True if there was progress, so that the broker's turn continues."""
        self._follow_clock()
        moved, now_ms = self._follow_leaders(), self._now_ms()
        moved |= bool(self._folding) and self._fold(now_ms)
        moved |= bool(self._inbound)
        while self._inbound and self._now_ms() - now_ms < cadence.SHARD_REQUESTS.ms:
            self._inbound.popleft()(now_ms)
        self._expire(now_ms)
        decided, self._decided = self._decided, {}
        for shard in decided.values():
            moved |= shard.flush()
            self._replace_failed(shard, now_ms)
        self._confirm_reads(now_ms)
        return moved

    @property
    def next_due_ms(self) -> int | None:
        """The time of the next `step` without requests, on the monotonic clock; None: never."""
        dues = [*self._due_ms.values(), *(due for due in self._folding.values() if due)]
        if (deadline_ms := self._remote.next_deadline_ms) is not None:
            dues.append(deadline_ms)
        if self._reading:
            dues.append(self._confirm_due_ms)
        return min(dues) - self._base_ms if dues else None

    # -- shards come and go ------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        """The time of shards: wall time without jumps, see `CoordinatorShard`."""
        return self._clock.monotonic_ms() + self._base_ms

    def _follow_leaders(self) -> bool:
        changed, self._changed = self._changed, set()
        for topic_partition in sorted(changed):
            replica, shard = self._led.leaders.get(topic_partition), self._shards.get(topic_partition)
            if shard is not None and shard.replica is not replica:
                self._begun_ms.pop(topic_partition, None)
                self._drop(topic_partition, f"broker {self._host.broker_id} does not lead it in that epoch anymore")
                shard = None
            if shard is None and replica is not None and self._stopped_by is None:
                self._led_from_ms[topic_partition] = self._clock.monotonic_ms()
                self._begin(replica, None)
        return bool(changed)

    def _follow_clock(self) -> None:
        base_ms = self._clock.wall_ms() - self._clock.monotonic_ms()
        if abs(base_ms - self._base_ms) <= cadence.CLOCK_STEP.ms:
            return
        _LOG.warning("broker %d: the wall clock was set by %d ms", self._host.broker_id, base_ms - self._base_ms)
        self._base_ms = base_ms
        for shard in list(self._shards.values()):
            self._replace(shard, "the wall clock was set", 0)

    def _begin(self, replica: LeaderReplica, predecessor: HostedShard | None, due_ms: int = 0) -> None:
        topic_partition = replica.state.topic_partition
        self._folding[topic_partition] = due_ms
        self._begun_ms.setdefault(topic_partition, self._clock.monotonic_ms())
        self._shards[topic_partition] = HostedShard(
            replica,
            lambda: self._make(topic_partition, replica.leader_epoch),
            ShardOutlets(self._host.append, self._perform, self._ended),
            self._host.config.offsets_commit_timeout_ms,
            predecessor,
        )

    def _make(self, topic_partition: TopicPartition, leader_epoch: int) -> CoordinatorShard:
        place = ShardPlace(
            topic_partition,
            leader_epoch,
            self._host.config,
            self._ids,
            lambda: self._host.metadata.image,
            lambda: self._producer_ids.next(self._host.broker_epoch),
            self._counts,
        )
        return self._kinds[topic_partition.topic].make(place)

    def _drop(self, topic_partition: TopicPartition, why: str) -> None:
        shard = self._shards.pop(topic_partition)
        self._folding.pop(topic_partition, None)
        self._due_ms.pop(topic_partition, None)
        self._reading.discard(topic_partition)
        shard.unload(errors.NotCoordinatorError(f"{topic_partition}: {why}"))

    def _replace(self, shard: HostedShard, why: str, due_ms: int) -> None:
        """Fold the shard again, while this broker leads its partition in the same epoch."""
        self._drop(shard.topic_partition, why)
        if self._led.leaders.get(shard.topic_partition) is shard.replica and self._stopped_by is None:
            self._begin(shard.replica, shard, due_ms)

    def _replace_failed(self, shard: HostedShard, now_ms: int) -> None:
        if shard.failure is not None and self._shards.get(shard.topic_partition) is shard:
            due_ms = now_ms + cadence.SHARD_RETRY.ms if shard.has_defect else 0
            self._replace(shard, str(shard.failure), due_ms)

    def _fold(self, now_ms: int) -> bool:
        moved, begun_ms = False, self._clock.monotonic_ms()
        for topic_partition, due_ms in list(self._folding.items()):
            if due_ms > now_ms:
                continue
            shard = self._shards[topic_partition]
            try:
                while shard.fold(now_ms):
                    moved = True
                    if shard.is_active:
                        self._begin_serving(shard)
                        break
                    if self._clock.monotonic_ms() - begun_ms >= cadence.SHARD_FOLDS.ms:
                        return True
            except StoreError as reason:
                self._fold_later(shard, reason, now_ms + cadence.SHARD_STORE_RETRY.ms)
            except Exception as reason:  # noqa: BLE001 - also a record that the shard cannot decode
                self._fold_later(shard, reason, now_ms + cadence.SHARD_RETRY.ms)
        return moved

    def _begin_serving(self, shard: HostedShard) -> None:
        topic_partition = shard.topic_partition
        del self._folding[topic_partition]
        took_ms = self._clock.monotonic_ms() - self._begun_ms.pop(topic_partition)
        self._counts.load_times[topic_partition.topic].observe(took_ms)
        self._reschedule(shard)

    def _fold_later(self, shard: HostedShard, reason: Exception, due_ms: int) -> None:
        """Fold from the beginning: the position of the shard is not certain."""
        damage = damage_in(reason) if isinstance(reason, StratalogError) else None
        if damage is not None:
            self._led.examine(shard.topic_partition, damage.path)
        _LOG.error("%s cannot be folded, trying again: %s: %s", shard.topic_partition, type(reason).__name__, reason)
        self._replace(shard, str(reason), due_ms)

    # -- requests ----------------------------------------------------------------------------------------

    def _request(
        self, kind: CoordinatorType, key: str | int, request: object, answer: Answer, arrived_ms: int, now_ms: int
    ) -> None:
        if isinstance(key, int):
            topic_partition: TopicPartition | None = TopicPartition(kind.topic, key)
        else:
            topic_partition = coordinator_partition(self._host.metadata.image, kind, key)
        shard = self._shard_of(topic_partition, arrived_ms)
        if isinstance(shard, StratalogError):
            answer(shard)
            return
        shard.request(request, answer, now_ms)
        self._reschedule(shard)

    def _shard_of(
        self, topic_partition: TopicPartition | None, arrived_ms: int | None = None
    ) -> HostedShard | StratalogError:
        """The shard for a request that arrived at this time, by the monotonic clock.

        What came before its leader epoch began here is refused: while this broker's loop stood still, its sender may
        have asked another coordinator and gone on, and an EndTxn would end the transaction after its own.
        """
        if self._stopped_by is not None:
            return self._down()
        shard = None if topic_partition is None else self._shards.get(topic_partition)
        if topic_partition is None or shard is None or shard.replica.failure is not None:
            return errors.NotCoordinatorError(
                f"{topic_partition or 'this key'}: broker {self._host.broker_id} does not coordinate it"
            )
        if arrived_ms is not None and arrived_ms < self._led_from_ms[topic_partition]:
            return errors.NotCoordinatorError(
                f"{topic_partition}: the request came before leader epoch {shard.replica.leader_epoch} began here"
            )
        if shard.is_active and shard.failure is None:
            return shard
        return errors.CoordinatorLoadInProgressError(
            f"{topic_partition}: broker {self._host.broker_id} folds it for leader epoch {shard.replica.leader_epoch}"
        )

    def _every(
        self, kind: CoordinatorType, request: object, answer: Callable[[list[object]], None], now_ms: int
    ) -> None:
        asked = sorted(topic_partition for topic_partition in self._shards if topic_partition.topic == kind.topic)
        answers: dict[TopicPartition, object] = {}

        def collect(topic_partition: TopicPartition, response: object) -> None:
            answers[topic_partition] = response
            if len(answers) == len(asked):
                answer([answers[each] for each in asked])

        if self._stopped_by is not None:
            answer([self._down()])
        elif not asked:
            answer([])
        else:
            arrived_ms = self._clock.monotonic_ms()
            for topic_partition in asked:
                self._request(
                    kind, topic_partition.partition, request, partial(collect, topic_partition), arrived_ms, now_ms
                )

    def _mark(
        self,
        partition: IdentifiedPartition,
        marker: NewRecordBatch,
        leader_epoch: int | None,
        answer: Answer,
        now_ms: int,
    ) -> None:
        """Append a marker, if it is for this leader epoch (None: any)."""
        shard = self._shard_of(partition.topic_partition)
        if isinstance(shard, StratalogError):
            answer(shard)
            return
        if shard.replica.topic_id != partition.topic_id:
            answer(
                errors.UnknownTopicIdError(
                    f"{partition}: topic id {partition.topic_id} is unknown, it is {shard.replica.topic_id}"
                )
            )
            return
        refusal = shard.replica.wrong_epoch(leader_epoch)
        if refusal is not None:
            answer(refusal)
            return
        shard.end_transaction(marker, answer, now_ms)
        self._reschedule(shard)

    def _find(self, request: FindCoordinatorRequest, answer: Callable[[FindCoordinatorResponse], None]) -> None:
        refusal: StratalogError | None = None
        topic = CoordinatorType(request.key_type).topic
        if self._stopped_by is not None:
            answer(no_coordinators(request, self._down()))
            return
        if topic not in self._host.metadata.image.topic_ids:
            refusal = self._create(topic)
        answer(find_coordinators(self._host.metadata.image, request, refusal))

    def _create(self, topic: str) -> StratalogError | None:
        wanted = internal_topic(topic, self._host.config)
        topic_id, chance = self._ids.new_id(), int(self._ids.new_id()[-8:], 16)
        start_index, shift = chance >> 16, chance & 0xFFFF
        try:
            self._host.metadata.propose(
                lambda image: create_internal_topic(image, wanted, topic_id, start_index=start_index, shift=shift)
            )
        except StratalogError as reason:
            _LOG.warning("broker %d: %s", self._host.broker_id, reason)
            return reason.as_value()
        return None

    def _confirm_reads(self, now_ms: int) -> None:
        """Answer the reads of shards that this broker still leads; others are dropped with the change of leader."""
        if not self._reading or now_ms < self._confirm_due_ms:
            return
        self._confirm_due_ms = self._now_ms() + cadence.SHARD_STORE_RETRY.ms
        self._host.metadata.refresh_image()
        image, broker_id = self._host.metadata.image, self._host.broker_id
        for topic_partition in sorted(self._reading):
            state, shard = image.partitions.get(topic_partition), self._shards[topic_partition]
            if state is not None and (state.leader, state.leader_epoch) == (broker_id, shard.replica.leader_epoch):
                self._reading.discard(topic_partition)
                shard.confirm()
                self._reschedule(shard)
        if not self._reading:
            self._confirm_due_ms = 0

    # -- time and effects --------------------------------------------------------------------------------

    def _reschedule(self, shard: HostedShard) -> None:
        """After a decision or the end of an append: flush the shard in this turn or the next, and update its timer."""
        topic_partition = shard.topic_partition
        if self._shards.get(topic_partition) is not shard:
            return
        self._decided[topic_partition] = shard
        if shard.has_reads:
            self._reading.add(topic_partition)
        due_ms = shard.next_due_ms
        if due_ms is None:
            self._due_ms.pop(topic_partition, None)
        else:
            self._due_ms[topic_partition] = due_ms
        if shard.is_stalled:
            soon_ms = self._now_ms() + cadence.SHARD_STORE_RETRY.ms
            self._due_ms[topic_partition] = min(self._due_ms.get(topic_partition, soon_ms), soon_ms)

    def _ended(self, shard: HostedShard) -> None:
        """An append is committed or failed: the next one is sent, or the shard is folded again."""
        self._reschedule(shard)
        self._host.wakeup.wake()

    def _expire(self, now_ms: int) -> None:
        for topic_partition in [each for each, due_ms in self._due_ms.items() if due_ms <= now_ms]:
            shard = self._shards[topic_partition]
            if shard.is_stalled:
                shard.advance()
            shard.expire(now_ms)
            self._reschedule(shard)
        self._remote.expire(now_ms)

    def _perform(self, shard: HostedShard, effect: RemoteAppend) -> None:
        self._remote.perform(shard, effect, self._now_ms())

    def _performed(self, shard: HostedShard, outcome: RemoteAppended, now_ms: int) -> None:
        if self._shards.get(shard.topic_partition) is shard and shard.is_active:
            shard.request(outcome, None, now_ms)
            self._reschedule(shard)
