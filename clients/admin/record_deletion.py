"""Deletion of records: one request to each leader broker. I/O: requests to leaders, the metadata log.

When a leader moved meanwhile, or its answer was lost, its partitions are asked for again: a log that starts at the
offset already does not change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from stratalog.clients.client_view import ClientView
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.replication.requests.delete_records import DeletedRecords, DeleteRecordsRequest, DeleteRecordsResponse
from stratalog.server.bootstrap import BrokerFace
from stratalog.storage import errors
from stratalog.storage.errors import (
    StratalogError,
)
from stratalog.storage.objects.wakeup import Wakeup
from stratalog.storage.records import IdentifiedPartition, TopicPartition

RETRY_MS = 50
"""The pause before partitions are asked for again, and between two checks that the brokers asked are there."""
ANSWER_MS_MAX = 5_000
"""The longest wait for a leader's answer after the call's own timeout, which the leader keeps: it answers then."""


class LeaderBrokers(Protocol):
    """The brokers that can be called."""

    def get(self, broker_id: int, /) -> BrokerFace | None: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A request to a broker that has no answer yet."""

    broker_id: int
    face: BrokerFace
    topic_partitions: frozenset[TopicPartition]


class RecordDeletion:
    """The partitions of one call, until each is answered or the deadline."""

    def __init__(
        self, view: ClientView, brokers: LeaderBrokers, offsets: Mapping[TopicPartition, int], timeout_ms: int
    ) -> None:
        """`offsets`: the new start of each partition's log, -1 = its high watermark."""
        self._view = view
        self._brokers = brokers
        self._offsets = dict(offsets)
        self._identified: dict[TopicPartition, IdentifiedPartition] = {}
        """As the caller means them: of the topics that had these names when the call began."""
        self._deadline_ms = view.clock.monotonic_ms() + timeout_ms
        self._answers: dict[TopicPartition, DeletedRecords] = {}
        self._reasons: dict[TopicPartition, StratalogError] = {}
        self._asked: list[_Asked] = []
        self._ask_at_ms = 0
        self._received: deque[tuple[_Asked, DeleteRecordsResponse]] = deque()
        """By brokers' threads."""
        self._wakeup = Wakeup(view.clock)

    def run(self) -> dict[TopicPartition, DeletedRecords]:
        """The answers, one for each partition, in the order given. Blocks until the last one, or the deadline. Leaders
        wait for replicas until then; without time they do what needs no other replica, as Kafka's."""
        self._view.refresh()
        self._identified = {tp: self._view.image.identified(tp) for tp in self._offsets}
        self._ask(self._offsets)
        try:
            while self._has_open() and (self._left_ms > 0 or (self._asked and self._left_ms > -ANSWER_MS_MAX)):
                self._wakeup.wait_ms(RETRY_MS)
                self._receive()
                self._ask_again()
        finally:
            self._wakeup.close()
        late = errors.RequestTimedOutError("no answer of the partition's leader in time")
        return {tp: self._answers.get(tp) or DeletedRecords(error=self._reasons.get(tp, late)) for tp in self._offsets}

    @property
    def _left_ms(self) -> int:
        return self._deadline_ms - self._view.clock.monotonic_ms()

    def _has_open(self) -> bool:
        self._receive()
        return len(self._answers) < len(self._offsets)

    def _ask_again(self) -> None:
        """Ask for what no broker has to answer: one that is gone does not."""
        self._asked = [each for each in self._asked if self._brokers.get(each.broker_id) is each.face]
        under_way = {tp for each in self._asked for tp in each.topic_partitions}
        unasked = [tp for tp in self._offsets if tp not in self._answers and tp not in under_way]
        if unasked and self._left_ms > 0 and self._view.clock.monotonic_ms() >= self._ask_at_ms:
            self._ask(unasked)

    def _ask(self, topic_partitions: Iterable[TopicPartition]) -> None:
        self._ask_at_ms = self._view.clock.monotonic_ms() + RETRY_MS
        self._view.refresh()
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic_partition in topic_partitions:
            state = self._view.image.state_of(self._identified[topic_partition])
            if state is None:
                self._refused(topic_partition, errors.UnknownTopicOrPartitionError(f"{topic_partition} does not exist"))
            elif state.leader == NO_LEADER:
                self._reasons[topic_partition] = errors.LeaderNotAvailableError(f"{topic_partition} has no leader")
            else:
                by_leader.setdefault(state.leader, []).append(topic_partition)
        for leader, led in by_leader.items():
            self._send(leader, led)

    def _send(self, leader: int, topic_partitions: Sequence[TopicPartition]) -> None:
        face = self._brokers.get(leader)
        if face is None:
            away = errors.LeaderNotAvailableError(f"broker {leader} is not running")
            self._reasons.update(dict.fromkeys(topic_partitions, away))
            return
        asked = _Asked(leader, face, frozenset(topic_partitions))
        offsets = {self._identified[each]: self._offsets[each] for each in topic_partitions}
        self._asked.append(asked)
        face.delete_records(DeleteRecordsRequest(offsets, max(0, self._left_ms)), partial(self._answered, asked))

    def _answered(self, asked: _Asked, response: DeleteRecordsResponse) -> None:
        """In the broker's thread, or in this one."""
        self._received.append((asked, response))
        self._wakeup.wake()

    def _receive(self) -> None:
        while self._received:
            asked, response = self._received.popleft()
            self._asked = [each for each in self._asked if each is not asked]
            for partition, answer in response.items():
                if answer.error is None:
                    self._answers[partition.topic_partition] = answer
                else:
                    self._refused(partition.topic_partition, answer.error)

    def _refused(self, topic_partition: TopicPartition, reason: StratalogError) -> None:
        self._reasons[topic_partition] = reason
        if not reason.retriable or isinstance(
            reason, errors.RequestTimedOutError | errors.UnknownTopicOrPartitionError
        ):
            self._answers[topic_partition] = DeletedRecords(error=reason)
