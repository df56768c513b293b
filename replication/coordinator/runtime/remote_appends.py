"""Appends of coordinators to other partitions, such as transaction markers, through each partition's leader.

I/O: through the brokers of this process and those that it calls. The shard receives each outcome once. A broker that
was killed or hangs does not answer: as soon as another leader epoch has begun the outcome is NOT_LEADER_OR_FOLLOWER,
and after a time without an answer REQUEST_TIMED_OUT. Kafka: `TransactionMarkerChannelManager`, which waits for the
connection's end or `request.timeout.ms`; meanwhile the transaction's partitions could not be read to their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from stratalog.replication import cadence
from stratalog.replication.coordinator.runtime.hosted_shard import HostedShard
from stratalog.replication.coordinator.shard.shard import RemoteAppend, RemoteAppended
from stratalog.replication.coordinator.transactions.add_partitions import Coordinates
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.replication.requests.produce import ACKS_ALL, ProduceRequest, ProduceResponse
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition

Outcome = Callable[[HostedShard, RemoteAppended, int], None]
"""`(shard, outcome, now_ms)`"""


class Appends(Protocol):
    """The broker that leads a partition: this one, another of the same process, or one that is called elsewhere."""

    def produce_then(self, request: ProduceRequest, complete: Callable[[ProduceResponse], None]) -> None:
        """Queue a batch; `complete` is called once, possibly from another thread. Does not block."""


class Peer(Appends, Coordinates, Protocol):
    """A broker as others call it: a leader that appends markers, a coordinator of transactions."""


@dataclass(frozen=True, slots=True)
class _Open:
    shard: HostedShard
    effect: RemoteAppend
    leader_epoch: int
    deadline_ms: int


class RemoteAppends:
    """All methods are called in the broker's loop; answers of other threads enter it through `put`."""

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        peers: Mapping[int, Appends],
        put: Callable[[Callable[[int], None]], None],
        notify: Outcome,
    ) -> None:
        """`peers` are the brokers that can be called, by id, this one included. `put` queues work from any thread, and
        the loop calls it with its time; `notify` passes an outcome to its shard."""
        self._image = image
        self._peers = peers
        self._put = put
        self._notify = notify
        self._open: dict[int, _Open] = {}
        self._numbers = count()

    def perform(self, shard: HostedShard, effect: RemoteAppend, now_ms: int) -> None:
        """Send it to the leader of the partition that has this name now: transactions name partitions by topic, as in
        Kafka, and a topic that was created again meanwhile may have records of it, too. It is for the leader epoch of
        now alone: in a later one that leader may find it in its queue, when it was sent again elsewhere and the
        producer has begun its next transaction."""
        number, leader_epoch = next(self._numbers), self._leader_epoch(effect.topic_partition)
        self._open[number] = _Open(shard, effect, leader_epoch, now_ms + cadence.REMOTE_APPEND.ms)

        def complete(response: ProduceResponse) -> None:
            self._put(lambda now_ms: self._end(number, response.error, now_ms))

        partition = self._image().identified(effect.topic_partition)
        leader = self._leader_of(effect.topic_partition)
        if isinstance(leader, StratalogError):
            complete(ProduceResponse(partition, error=leader))
        else:
            request = ProduceRequest(partition, effect.batch, ACKS_ALL, cadence.REMOTE_APPEND.ms, leader_epoch)
            leader.produce_then(request, complete)

    def _leader_of(self, topic_partition: TopicPartition) -> Appends | StratalogError:
        state = self._image().partitions.get(topic_partition)
        if state is None:
            return errors.UnknownTopicOrPartitionError(f"{topic_partition}: no such partition")
        if state.leader == NO_LEADER:
            return errors.LeaderNotAvailableError(f"{topic_partition} has no leader")
        peer = self._peers.get(state.leader)
        return peer or errors.BrokerNotAvailableError(f"{topic_partition}: its leader {state.leader} cannot be called")

    def _end(self, number: int, error: StratalogError | None, now_ms: int) -> None:
        ended = self._open.pop(number, None)
        if ended is not None:  # else it has timed out
            outcome = RemoteAppended(ended.effect.topic_partition, ended.effect.context, error)
            self._notify(ended.shard, outcome, now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first append times out; None when none is under way."""
        return next((each.deadline_ms for each in self._open.values()), None)

    def expire(self, now_ms: int) -> None:
        """End appends that have timed out, or whose leader has changed."""
        for number, each in list(self._open.items()):
            topic_partition = each.effect.topic_partition
            epoch = self._leader_epoch(topic_partition)
            if epoch != each.leader_epoch:
                why = f"{topic_partition}: sent under leader epoch {each.leader_epoch}, which is {epoch} by now"
                self._end(number, errors.NotLeaderOrFollowerError(why), now_ms)
            elif each.deadline_ms <= now_ms:
                self._end(
                    number,
                    errors.RequestTimedOutError(f"{topic_partition}: no answer in {cadence.REMOTE_APPEND.ms} ms"),
                    now_ms,
                )

    def _leader_epoch(self, topic_partition: TopicPartition) -> int:
        """The leader epoch of the newest metadata image; -1 for a deleted partition."""
        state = self._image().partitions.get(topic_partition)
        return -1 if state is None else state.leader_epoch
