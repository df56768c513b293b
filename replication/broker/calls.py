"""What is called of a broker in its own process: leaders and coordinators, as requests of Kafka's vocabulary.

I/O: through the broker's queues. Any thread may call; nothing here blocks, and each answer comes once, from the
broker's loop, or from the caller's own thread when the broker has stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from stratalog.replication.coordinator.runtime.runtime import CoordinatorRuntime
from stratalog.replication.internal_topics import is_internal
from stratalog.replication.leader.log_offsets import LogOffsetSnapshot
from stratalog.replication.leader.replica import LeaderReplica, WaitingAppend
from stratalog.replication.requests.coordinators import CoordinatorType, FindCoordinatorRequest, FindCoordinatorResponse
from stratalog.replication.requests.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse
from stratalog.storage.records import IdentifiedPartition, TopicPartition


class LeadingBroker(Protocol):
    """The broker's loop, as its entrance uses it. Any thread may call its methods, which queue requests for leaders."""

    @property
    def leaders(self) -> Mapping[TopicPartition, LeaderReplica]:
        """The replicas that it leads now."""

    def append(self, waiting: WaitingAppend) -> None: ...

    def delete_records(
        self, request: DeleteRecordsRequest, complete: Callable[[DeleteRecordsResponse], None]
    ) -> None: ...


class BrokerCalls:
    """A broker's entrance, which its clients in this process hold (`server.bootstrap.BrokerFace`)."""

    def __init__(self, broker: LeadingBroker, coordinators: CoordinatorRuntime) -> None:
        self._broker = broker
        self._coordinators = coordinators

    def produce_then(self, request: ProduceRequest, complete: Callable[[ProduceResponse], None]) -> None:
        """Queue a batch; `complete`, which must neither raise nor block, is called once: in the broker's thread, or the
        caller's when the broker has stopped. It never raises: an error is in the response."""
        self.append(WaitingAppend(request, complete))

    def append(self, waiting: WaitingAppend) -> None:
        """Queue a client's request; one for an internal topic goes to its coordinator, which checks it."""
        if is_internal(waiting.request.topic_partition.topic):
            self._coordinators.append(waiting)
        else:
            self._broker.append(waiting)

    def delete_records(self, request: DeleteRecordsRequest, complete: Callable[[DeleteRecordsResponse], None]) -> None:
        """Have the leaders of partitions move their logs' starts; `complete` as of `produce_then`, when every live
        replica has followed, or at the request's timeout."""
        self._broker.delete_records(request, complete)

    def log_offsets(self, partition: IdentifiedPartition) -> LogOffsetSnapshot | None:
        """Those of a log that is led here; None of any other. Storage is not read."""
        leader = self._broker.leaders.get(partition.topic_partition)
        return leader.offsets if leader is not None and leader.topic_id == partition.topic_id else None

    def find_coordinator(
        self, request: FindCoordinatorRequest, answer: Callable[[FindCoordinatorResponse], None]
    ) -> None:
        """Which brokers coordinate these groups or transactional ids, as far as this broker knows.

        The first request of a kind makes the internal topic. It is answered COORDINATOR_NOT_AVAILABLE, as are those
        that follow until its leaders are known: the client asks again.
        """
        self._coordinators.find(request, answer)

    def coordinator(
        self, kind: CoordinatorType, key: str | int, request: object, answer: Callable[[object], None]
    ) -> None:
        """Ask the coordinator of a group or transactional id, or of a partition of its topic by number, on this broker.

        `answer`, which must neither raise nor block, receives the shard's response once it rests on committed records
        alone, or a StratalogError: NOT_COORDINATOR (ask another broker), COORDINATOR_LOAD_IN_PROGRESS (ask again),
        COORDINATOR_NOT_AVAILABLE (this broker is down, or the outcome is not known), or why the shard refused.
        """
        self._coordinators.request(kind, key, request, answer)

    def every_coordinator(self, kind: CoordinatorType, request: object, answer: Callable[[list[object]], None]) -> None:
        """Ask each shard of a kind on this broker: responses or errors in order of partition; [] if there is none."""
        self._coordinators.every(kind, request, answer)
