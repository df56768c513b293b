"""Deletion of records: one request to each leader broker, through its inbox.

I/O: small objects in the leaders' roots. When a leader moved meanwhile, the new one gets the request again: a log that
starts at the offset already does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from stratalog.replication.leader.delete_records import (
    DeletedRecords,
    decode_deleted,
    delete_records_path,
    encode_delete_records,
)
from stratalog.replication.metadata.image import BrokerState
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.replication.requests.hand_over import answer_path
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import (
    LeaderNotAvailableError,
    LogDirNotFoundError,
    RequestTimedOutError,
    StoreError,
    StratalogError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.records import IdentifiedPartition, TopicPartition

PAUSE_MS_MIN, PAUSE_MS_MAX = 2, 50
ANSWER_MS_MAX = 5_000
"""The longest wait for a leader's answer after the call's own timeout, which the leader keeps: it answers then."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request in the inbox of one registration of a broker."""

    objects: ObjectStore
    broker: BrokerState
    topic_partitions: tuple[TopicPartition, ...]


class RecordDeletion:
    """The partitions of one call, until each is answered or the deadline."""

    def __init__(self, view: ClusterView, offsets: Mapping[TopicPartition, int], timeout_ms: int) -> None:
        """`offsets`: the new start of each partition's log, -1 = its high watermark."""
        self.answers: dict[TopicPartition, DeletedRecords] = {}
        self._view = view
        self._offsets = dict(offsets)
        self._identified: dict[TopicPartition, IdentifiedPartition] = {}
        """As the caller means them: of the topics that had these names when the call began."""
        self._deadline_ms = view.clock.monotonic_ms() + timeout_ms
        self._asked: dict[str, _Asked] = {}
        self._reasons: dict[TopicPartition, StratalogError] = {}

    def run(self) -> dict[TopicPartition, DeletedRecords]:
        """The answers, one for each partition, in the order given. Blocks until the last one, or the deadline. Leaders
        wait for replicas until then; without time they do what needs no other replica, as Kafka's."""
        pause_ms = PAUSE_MS_MIN
        self._view.refresh()
        self._identified = {tp: self._view.image.identified(tp) for tp in self._offsets}
        self._ask(self._offsets)
        while self._poll() and (self._left_ms > 0 or (self._asked and self._left_ms > -ANSWER_MS_MAX)):
            self._view.clock.sleep_ms(pause_ms)
            pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)
        for request_id, asked in self._asked.items():
            with suppress(StoreError, LogDirNotFoundError):  # the broker removes old requests, too
                asked.objects.delete(delete_records_path(request_id))
        late = RequestTimedOutError("no answer of the partition's leader in time")
        return {tp: self.answers.get(tp) or DeletedRecords(error=self._reasons.get(tp, late)) for tp in self._offsets}

    @property
    def _left_ms(self) -> int:
        return self._deadline_ms - self._view.clock.monotonic_ms()

    def _poll(self) -> bool:
        """Read answers and send requests; True while answers are missing."""
        for request_id, asked in list(self._asked.items()):
            self._read_answer(request_id, asked)
        under_way = {tp for asked in self._asked.values() for tp in asked.topic_partitions}
        unasked = [tp for tp in self._offsets if tp not in self.answers and tp not in under_way]
        if unasked and self._left_ms > 0:
            self._ask(unasked)
        return len(self.answers) < len(self._offsets)

    def _ask(self, topic_partitions: Iterable[TopicPartition]) -> None:
        self._view.refresh()
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic_partition in topic_partitions:
            state = self._view.image.state_of(self._identified[topic_partition])
            if state is None:
                self._refused(topic_partition, UnknownTopicOrPartitionError(f"{topic_partition} does not exist"))
            elif state.leader == NO_LEADER:
                self._reasons[topic_partition] = LeaderNotAvailableError(f"{topic_partition} has no leader")
            else:
                by_leader.setdefault(state.leader, []).append(topic_partition)
        for leader, led in by_leader.items():
            self._put(self._view.image.brokers[leader], tuple(led))

    def _put(self, broker: BrokerState, topic_partitions: tuple[TopicPartition, ...]) -> None:
        request_id = self._view.ids.new_id()
        offsets = {self._identified[each]: self._offsets[each] for each in topic_partitions}
        try:
            objects = self._view.stores.objects(broker.registration.root)
            request = encode_delete_records(offsets, broker.broker_epoch, max(0, self._left_ms))
            objects.put(delete_records_path(request_id), request)
        except (StoreError, LogDirNotFoundError) as reason:
            self._reasons.update(dict.fromkeys(topic_partitions, reason))
            return
        self._asked[request_id] = _Asked(objects, broker, topic_partitions)

    def _read_answer(self, request_id: str, asked: _Asked) -> None:
        """Read the answer to a request. A broker that was fenced or registered again sends none for its old epoch."""
        try:
            data = asked.objects.get_optional(answer_path(request_id))
        except (StoreError, LogDirNotFoundError):
            return
        if data is None:
            self._view.refresh(max_age_ms=PAUSE_MS_MAX)
            if not self._view.image.is_current(asked.broker.registration.broker_id, asked.broker.broker_epoch):
                del self._asked[request_id]
            return
        del self._asked[request_id]
        for topic_partition, answer in decode_deleted(data).items():
            if answer.error is None:
                self.answers[topic_partition] = answer
            else:
                self._refused(topic_partition, answer.error)
        with suppress(StoreError, LogDirNotFoundError):
            asked.objects.delete(answer_path(request_id))

    def _refused(self, topic_partition: TopicPartition, reason: StratalogError) -> None:
        self._reasons[topic_partition] = reason
        if not reason.retriable or isinstance(reason, RequestTimedOutError | UnknownTopicOrPartitionError):
            self.answers[topic_partition] = DeletedRecords(error=reason)
