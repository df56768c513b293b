"""The protocol between a coordinator's shard and its runtime: requests, records, decisions, effects. Pure.

A shard is one partition of `__consumer_offsets` or `__transaction_state`, folded. Its runtime
(`replication.coordinator.runtime.runtime`) owns log, threads and time: it folds the partition into a new shard when
this broker begins to lead it, passes requests and timers to it, appends the records of its decisions, and returns its
answers once these records are committed. Kafka: `CoordinatorShard` and `CoordinatorResult`, with one difference: a
decision that is not stored is not rolled back in memory; the shard is discarded and folded again.

    request -> decide -> replay, at once -> append under exactly this leader epoch -> high watermark -> answers

Records of a producer's transaction and its markers are replayed only when they are committed: the log may refuse them
because of that producer alone, and then nothing has to be rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.shard.metrics import CoordinatorCounts, Held
from stratalog.replication.metadata.image import ClusterImage
from stratalog.storage.clock import Ids
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NewRecordBatch, TopicPartition
from stratalog.storage.transactions import NOT_VERIFIED, OffsetAndEpoch

NO_TOKEN = -1
"""Token of a request without an answer, such as `RemoteAppended`."""
RECORD_OVERHEAD_BYTES = 40
BATCH_OVERHEAD_BYTES = 512
"""Arrow's bytes beside keys and values, rounded up: timestamp, offsets, validity."""


class CoordinatorRecord(NamedTuple):
    """A record of an internal topic, exactly in Kafka's binary schema. `value` None is a tombstone."""

    key: bytes
    value: bytes | None


def size_bytes(records: Iterable[CoordinatorRecord]) -> int:
    """The size of these records in a batch, rounded up: 612 for two with 10 bytes of key and value each."""
    sizes = (len(record.key) + len(record.value or b"") + RECORD_OVERHEAD_BYTES for record in records)
    return BATCH_OVERHEAD_BYTES + sum(sizes)


class Answered(NamedTuple):
    """The answer to the request that came with `token`: a response value, or a StratalogError."""

    token: int
    response: object


class RemoteAppend(NamedTuple):
    """An effect: append `batch` to any partition of the cluster, acks=all, through its leader.

    The outcome returns as the request `RemoteAppended(context, …)`, unless this broker stops leading the shard before.
    An append that fails may have been stored, so it has to be one that may be repeated, as a transaction marker.
    """

    topic_partition: TopicPartition
    batch: NewRecordBatch
    context: object


class RemoteAppended(NamedTuple):
    """The outcome of a `RemoteAppend`, passed to `decide` with NO_TOKEN. The shard decides whether to repeat it."""

    topic_partition: TopicPartition
    context: object
    error: StratalogError | None


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of a request or of a timer.

    records         appended as one piece: all or none; together less than the topic's max.message.bytes (1 MiB)
    answers         to this request or to others that waited, returned once `records` and those of all earlier decisions
                    of the shard are below the high watermark. A decision without records waits for the earlier ones,
                    too, as it may depend on them
    producer_id, producer_epoch
                    set: the records are a transactional batch of that producer (TxnOffsetCommit)
    verified        of such a batch: where the log ended when the transaction's coordinator was asked
    effects         performed when the answers are returned, never before `records` are committed
    is_read         the answers contain stored state that clients continue from: they are returned once it is certain
                    that no other broker coordinated before the request was received. See `CoordinatorRuntime`
    is_divisible    `records` are not one piece: each stands for itself, as tombstones do, so that there may be more of
                    them than fit into a batch
    """

    records: tuple[CoordinatorRecord, ...] = ()
    answers: tuple[Answered, ...] = ()
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    effects: tuple[RemoteAppend, ...] = ()
    is_read: bool = False
    verified: OffsetAndEpoch = NOT_VERIFIED
    is_divisible: bool = False


class HeldOffset(NamedTuple):
    """A committed offset. `topic_id` "": not known, as of records of earlier releases."""

    offset: int
    topic_id: str


@dataclass(frozen=True, slots=True)
class HeldGroup:
    """A group as a measurement of its lag needs it, or the offsets that were committed without one.

    subscribed  whether its members read a topic
    """

    group_id: str
    member_count: int
    committed: Mapping[TopicPartition, HeldOffset]
    subscribed: Callable[[str], bool]


class CoordinatorShard(Protocol):
    """One partition's coordinator. No I/O, no threads; all calls come one after the other, from the broker's loop.

    `now_ms` is milliseconds since 1970 by a clock that never jumps: the wall time at which the shard's folding began,
    plus what the monotonic clock counted since. It serves timers and timestamps alike. When the wall clock is set by
    more than a minute, the shard is folded again under the new time.
    """

    def replay(
        self,
        record: CoordinatorRecord,
        timestamp_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> None:
        """Fold one record: of the log, or of a decision of this shard just made.

        `producer_id` is set if the record is part of that producer's transaction, which is still open.
        """

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """A transaction marker, in its place between the records."""

    def loaded(self, now_ms: int) -> Decision:
        """The whole log was folded and is committed. Sessions and time-outs begin now."""

    def decide(self, request: object, token: int, now_ms: int) -> Decision:
        """Decide on a request. May answer other tokens that wait, or this one later, in another decision.

        A StratalogError that it raises is the request's answer, and the shard must be as before. Anything else that it
        raises is a defect: the request is answered UNKNOWN_SERVER_ERROR and the shard folded again.
        """

    def expire(self, now_ms: int) -> Decision:
        """Run the timers that are due; called when `next_due_ms` is reached. Long work is cut: due again at once."""

    @property
    def next_due_ms(self) -> int | None:
        """The time of the next `expire`; None without timers. Read after every call."""

    def held(self) -> Mapping[Held, int]:
        """Sizes for metrics. Any thread may call it, as `groups`, while others change the shard."""

    def groups(self) -> Sequence[HeldGroup]:
        """The groups with their committed offsets; none where the shard holds no groups."""

    def unload(self, error: StratalogError) -> tuple[Answered, ...]:
        """This broker does not lead the shard anymore, or folds it again: answers for the requests that wait. Those
        left out are answered with `error` itself."""


@dataclass(frozen=True, slots=True)
class ShardPlace:
    """The partition of a shard, and what its broker provides.

    image         returns the broker's newest metadata image, to be read within a call
    producer_ids  returns the next producer id of this broker's block; None while it has none
    counts        the broker's counters, which continue under the next shard
    """

    topic_partition: TopicPartition
    leader_epoch: int
    config: BrokerConfig
    ids: Ids
    image: Callable[[], ClusterImage]
    producer_ids: Callable[[], int | None]
    counts: CoordinatorCounts = field(default_factory=CoordinatorCounts)


ShardFactory = Callable[[ShardPlace], CoordinatorShard]
