"""What a follower copies next: from which leader, which partitions, how much, and what not now. Pure.

State in, plan out, as `storage/log/copy.plan_copy` does for one copy. A fetch session (`partitions`) reads storage and
does what is planned here.

which leader     `fetched_from`: the partition's, by the one fetcher of the broker that the partition falls to
which partition  `need`, by what the leader published, and `CopyQueue`: what has records to copy comes before what is
                 only to be checked; `rescanned` names those that are checked whatever was published
how long         `cadence.COPIES`, longer while many partitions move (`TurnInterval.work_ms`)
how much         `Allowance`: `replica.fetch.max.bytes`, and no more than a second's worth of a throttled replica
not now          `Allowance.delay_ms` before a copy, `after_copy` behind it
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from zlib import crc32

from stratalog.replication import cadence
from stratalog.replication.internal_topics import is_internal
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.replication.progress.progress import ReplicaProgress
from stratalog.storage.cadence import BackOff
from stratalog.storage.log.copy import is_behind, lacks_records
from stratalog.storage.records import TopicPartition

RESCAN_ROUNDS = 30
"""Number of rescans in which every table is checked, whatever its leader published."""
RESCAN_MIN = 8

# -- which leader ----------------------------------------------------------------------------------------


def fetched_from(
    state: PartitionRecord, broker_id: int, fetcher_id: int, fetchers: int, live: Collection[int] = ()
) -> int:
    """The leader that one fetcher of a broker fetches this partition from; NO_LEADER if it does not, as where both have
    one table in a storage domain, or where another replica copies into the table that they share.

    fetchers  `num.replica.fetchers`: each partition falls to one of them
    live      the live brokers: of those that share a table the first live one copies
    """
    if broker_id not in state.replicas or state.leader in (*state.sharing(broker_id), NO_LEADER):
        return NO_LEADER
    if next((r for r in state.sharing(broker_id) if r in live), broker_id) != broker_id:
        return NO_LEADER
    is_its = fetchers == 1 or crc32(str(state.topic_partition).encode()) % fetchers == fetcher_id
    return state.leader if is_its else NO_LEADER


# -- which partition -------------------------------------------------------------------------------------


class Need(Enum):
    """What a replica needs, by what its leader published.

    COPY   there is something to copy, or the replica has started and something else than records changed
    CHECK  it is only to be started under the leader's epoch: nothing waits for that; or it has a backlog, which is
           copied in rounds of many files: those that keep pace, whose producers wait, do not wait for many of them
    """

    NOTHING = "nothing"
    CHECK = "check"
    COPY = "copy"


class Standing(NamedTuple):
    """What is known of a followed replica.

    has_started       whether its own table shows `leader_epoch`. Until then the offsets may be of an older epoch
    log_start_offset  of the own log as it is folded, 0 before
    log_end_offset    the same; of a replica that has not started at least what the elder session published of it
    has_backlog       whether its last copy left more
    """

    topic_id: str
    leader_epoch: int
    has_started: bool
    log_start_offset: int
    log_end_offset: int
    has_backlog: bool = False


def need(own: Standing, published: ReplicaProgress) -> Need:
    """What this replica needs after its leader published this.

    example  own `[0, 5)` of epoch 3, started: published `[0, 5)` nothing, `[0, 7)` copy, `[2, 5)` copy
    example  the same, not started: published `[0, 5)` check, `[0, 7)` copy, `[0, 7)` of epoch 4 check
    example  the same, started, with a backlog: published `[0, 7)` check
    """
    is_of_epoch = published.leader_epoch == own.leader_epoch
    if not own.has_started:
        return Need.COPY if is_of_epoch and lacks_records(own, published) else Need.CHECK
    if is_of_epoch and published.topic_id == own.topic_id and not is_behind(own, published):
        return Need.NOTHING
    return Need.CHECK if own.has_backlog else Need.COPY


class CopyQueue:
    """The partitions of one leader in the order in which they are copied or checked.

    Those with something to copy come first, in the order in which they were added, then those that are only checked:
    one of them in each turn, the others when nothing is more urgent.

    Invariant: a partition that is held is delayed. Invariant: none is added to be copied that is delayed; one that is
    delayed after it was added stays queued, and is left out when it is taken.

    >>> one, two, three = (TopicPartition("t", number) for number in (1, 2, 3))
    >>> queue = CopyQueue()
    >>> queue.check([one, two])
    >>> queue.add(three)
    >>> queue.delay(two, due_ms=70)
    >>> queue.add(two)
    >>> [[str(each) for each in some] for some in queue.copies(count_max=2)], queue.due_in_ms(now_ms=50, idle_ms=1_000)
    ([['t-3']], 0)
    >>> queue.release_due(now_ms=70)
    >>> [[str(each) for each in some] for part in (queue.copies(2), queue.checks(1)) for some in part]
    [['t-2'], ['t-1'], ['t-2']]
    """

    def __init__(self) -> None:
        self._soon: OrderedDict[TopicPartition, None] = OrderedDict()
        self._checks: OrderedDict[TopicPartition, None] = OrderedDict()
        self._later: dict[TopicPartition, int] = {}
        """When each that is delayed is due."""
        self._later_ms = 0
        """Invariant: no later than the first of these is due; 0 while none is delayed."""
        self._held: set[TopicPartition] = set()
        """Those whose delay ends at its time alone."""

    def __bool__(self) -> bool:
        """Whether something is queued."""
        return bool(self._soon or self._checks)

    def clear(self) -> None:
        """Drop all but what is delayed."""
        self._soon.clear()
        self._checks.clear()

    def add(self, topic_partition: TopicPartition) -> None:
        """Copy it soon, unless it is delayed."""
        if topic_partition not in self._later:
            self._soon[topic_partition] = None

    def needs(self, topic_partition: TopicPartition, need: Need) -> None:
        """Queue it for what it needs."""
        if need is Need.COPY:
            self.add(topic_partition)
        elif need is Need.CHECK:
            self.check([topic_partition])

    def check(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Check them when nothing is more urgent, and one of them in each turn; internal topics are last."""
        in_order = sorted(topic_partitions, key=lambda each: is_internal(each.topic))
        self._checks.update(OrderedDict.fromkeys(in_order))

    @property
    def has_copies(self) -> bool:
        """Whether something is queued to be copied."""
        return bool(self._soon)

    def copies(self, count_max: int) -> Iterator[list[TopicPartition]]:
        """Take what is to be copied, at most `count_max` at a time, without what is delayed."""
        return self._taken(self._soon, count_max)

    def checks(self, count_max: int) -> Iterator[list[TopicPartition]]:
        """The same of what is only to be checked."""
        return self._taken(self._checks, count_max)

    def _taken(self, queue: OrderedDict[TopicPartition, None], count_max: int) -> Iterator[list[TopicPartition]]:
        for some in taken(queue, count_max):
            yield [topic_partition for topic_partition in some if topic_partition not in self._later]

    def delay(self, topic_partition: TopicPartition, due_ms: int, *, is_held: bool = False) -> None:
        """Not before `due_ms`; `is_held`: not even if its leader publishes something meanwhile."""
        self._later_ms = min(self._later_ms, due_ms) if self._later else due_ms
        self._later[topic_partition] = due_ms
        if is_held:
            self._held.add(topic_partition)

    def is_delayed(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._later

    def published(self, topic_partition: TopicPartition) -> None:
        """Its leader published something: a delay ends, unless the partition is held."""
        if topic_partition not in self._held:
            self._later.pop(topic_partition, None)

    def release(self, topic_partition: TopicPartition) -> None:
        """End its delay, even if it is held."""
        self._later.pop(topic_partition, None)
        self._held.discard(topic_partition)

    def release_due(self, now_ms: int) -> None:
        """Copy soon what was delayed until now."""
        if not self._later or now_ms < self._later_ms:
            return
        for topic_partition in [tp for tp, due_ms in self._later.items() if due_ms <= now_ms]:
            self.release(topic_partition)
            self._soon[topic_partition] = None
        self._later_ms = min(self._later.values(), default=0)

    def due_in_ms(self, now_ms: int, idle_ms: int) -> int:
        """How long until something is queued; `idle_ms` when nothing is delayed."""
        if self:
            return 0
        return max(0, self._later_ms - now_ms) if self._later else idle_ms


def taken(queue: OrderedDict[TopicPartition, None], count_max: int) -> Iterator[list[TopicPartition]]:
    """Take the first ones out of a queue, at most `count_max` at a time and no more than it holds now: what is added
    while a part is copied waits for the next turn, and what is cleared meanwhile is gone."""
    left = len(queue)
    while left and queue:
        some = [queue.popitem(last=False)[0] for _ in range(min(left, count_max, len(queue)))]
        left -= len(some)
        yield some


def rescanned(partitions: Sequence[TopicPartition], count_before: int) -> tuple[Sequence[TopicPartition], int]:
    """Those of a leader's partitions that are checked in the next rescan, and how many have been by then.

    >>> tps = [TopicPartition("t", number) for number in range(12)]
    >>> [(len(some), some[0].partition, count) for some, count in [rescanned(tps, 0), rescanned(tps, 8)]]
    [(8, 0, 8), (4, 8, 16)]
    """
    count = max(RESCAN_MIN, -(-len(partitions) // RESCAN_ROUNDS))
    begin = count_before % max(len(partitions), 1)
    return partitions[begin : begin + count], begin + count


# -- how much, and not now -------------------------------------------------------------------------------


class Allowance(NamedTuple):
    """What a partition may copy now: about `max_bytes`, or nothing before `delay_ms` have passed."""

    max_bytes: int
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one copy, or one attempt to start, came to.

    has_copied   whether something was committed
    has_more     whether there may be more at once, as the copy itself found
    has_started  whether the replica has started by now, or does not for a reason that was seen to
    need         by what the leader published last
    is_away      a store did not answer
    pause_ms     for which its upkeep makes the next copy wait
    starts       attempts to start before this one, in a row, that found the leader in an older epoch
    """

    has_copied: bool = False
    has_more: bool = False
    has_started: bool = True
    need: Need = Need.NOTHING
    is_away: bool = False
    pause_ms: int = 0
    starts: BackOff = cadence.REPLICA_RETRY


class Next(NamedTuple):
    """What becomes of a partition after a copy.

    is_soon   it is queued to be copied, unless it is delayed
    delay_ms  it is not copied before; None: no delay
    is_held   not even if its leader publishes something meanwhile
    starts    the attempts to start, with this one
    """

    starts: BackOff
    is_soon: bool = False
    delay_ms: int | None = None
    is_held: bool = False


def after_copy(attempt: Attempt, retry_ms: int, now_ms: int) -> Next:
    """What becomes of a partition after this attempt. `retry_ms`: `replica.fetch.backoff.ms`."""
    starts = attempt.starts
    if attempt.is_away:
        return Next(starts, delay_ms=retry_ms, is_held=True)
    if attempt.pause_ms:
        return Next(starts, delay_ms=attempt.pause_ms, is_held=True)
    if attempt.has_more or attempt.has_copied:
        return Next(starts, is_soon=attempt.has_more or attempt.need is not Need.NOTHING)
    if not attempt.has_started:
        return Next(starts.failed(now_ms), delay_ms=starts.next_ms)
    return Next(starts)
