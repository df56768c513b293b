"""The queue of a broker's audit events, and the thread that appends them to the audit topic.

I/O: a thread; appends through the leader of a partition of the topic, which it creates if need be. `put` never waits:
beyond `stratalog.audit.queue.events` events are dropped and counted, and the next record that is written says how many.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.runtime.remote_appends import Appends, Peer
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.replication.metrics import COUNTER, GAUGE, Labels, Metric
from stratalog.replication.requests.produce import ACKS_ALL, ProduceRequest, ProduceResponse
from stratalog.replication.stores import DeltaStores, request_ms_max
from stratalog.server.admin.admin import MetadataAdmin
from stratalog.server.audit.events import KINDS, LOST, AuditEvent
from stratalog.server.bootstrap import RunningCluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import Clock, RandomIds
from stratalog.storage.errors import (
    LeaderNotAvailableError,
    RequestTimedOutError,
    StratalogError,
    TopicAlreadyExistsError,
)
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import NewRecordBatch, TopicPartition, payload_table

_LOG = line_logger("stratalog.audit")

LINGER_S = 1.0
"""Time in which events gather for one batch: a storm of them makes few commits."""
BATCH_EVENTS, BATCH_BYTES = 2_000, 500_000
"""Events and bytes of one batch, which a topic's default `max.message.bytes` takes."""
RETRY_S, WAIT_S = 0.5, 0.01
APPEND_MS = 10_000
END_S = 5.0
"""Time in which a process that ends writes what waits."""


@dataclass(frozen=True, slots=True)
class AuditTopic:
    """Where a broker's events go. `run`: of this process."""

    name: str
    replication_factor: int
    events_max: int
    broker_id: int
    run: str


class AuditHost(RunningCluster, Protocol):
    """A process that hosts brokers."""

    def peers(self) -> Mapping[int, Peer]:
        """The brokers that can be called, by id."""
        ...


def open_audit_log(config: BrokerConfig, cluster: AuditHost, broker_id: int) -> AuditLog | None:
    """That of a broker of this process; None unless `stratalog.audit.topic` names a topic."""
    if not config.stratalog_audit_topic:
        return None
    ids = RandomIds()
    topic = AuditTopic(
        config.stratalog_audit_topic,
        config.stratalog_audit_topic_replication_factor,
        config.stratalog_audit_queue_events,
        broker_id,
        ids.new_id(),
    )
    view = ClusterView(cluster, stores=DeltaStores(ids, request_ms=request_ms_max(config.broker_session_timeout_ms)))
    return AuditLog(topic, MetadataAdmin(cluster, view=view), view, cluster.peers, view.clock)


class AuditLog:
    """One broker's. `put` in any thread; `drain` before the brokers of the process end, then `close`."""

    def __init__(
        self,
        topic: AuditTopic,
        admin: MetadataAdmin,
        view: ClusterView,
        peers: Callable[[], Mapping[int, Appends]],
        clock: Clock,
    ) -> None:
        """`peers`: the brokers that can be called, by id."""
        self._topic = topic
        self._admin = admin
        self._view = view
        self._peers = peers
        self._clock = clock
        self._queue: deque[tuple[int, bytes]] = deque()
        self._numbers = count()
        self._counts: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        self._lost = self._reported = self._written = 0
        self._wake, self._hurries, self._is_over = threading.Event(), threading.Event(), threading.Event()
        self._logged = ""
        self._thread = threading.Thread(target=self._run, name=f"audit-{topic.broker_id}", daemon=True)
        self._thread.start()

    def put(self, event: AuditEvent) -> None:
        """Keep an event. Never blocks; one beyond the bound is dropped, and its number is missing in the topic."""
        topic, number = self._topic, next(self._numbers)
        self._counts[event.kind] += 1
        if len(self._queue) >= topic.events_max:
            self._lost += 1
            return
        now_ms = self._clock.wall_ms()
        self._queue.append((now_ms, event.to_json(now_ms, topic.broker_id, topic.run, number)))
        if not self._wake.is_set():
            self._wake.set()

    @property
    def lost(self) -> int:
        """Events that were dropped."""
        return self._lost

    def metrics(self) -> list[Metric]:
        """What was kept, written and lost."""
        kinds: dict[Labels, float] = {(("kind", kind),): value for kind, value in self._counts.items()}
        return [
            Metric("stratalog_audit_events_total", COUNTER, "Events of the audit topic, by kind.", kinds),
            Metric("stratalog_audit_written_total", COUNTER, "Events that the topic has.", {(): self._written}),
            Metric("stratalog_audit_lost_total", COUNTER, "Events that were dropped.", {(): self._lost}),
            Metric("stratalog_audit_queue_size", GAUGE, "Events that wait to be written.", {(): len(self._queue)}),
        ]

    def drain(self) -> bool:
        """Wait until what came so far is written, for `END_S` at most; whether it is."""
        end_ms = self._clock.monotonic_ms() + int(1_000 * END_S)
        self._hurries.set()
        self._wake.set()
        while self._queue and self._clock.monotonic_ms() < end_ms:
            self._is_over.wait(WAIT_S)
        self._hurries.clear()
        return not self._queue

    def close(self) -> None:
        """End the thread. What is not written yet is lost, and logged."""
        self._is_over.set()
        self._hurries.set()
        self._wake.set()
        self._thread.join(END_S)
        if self._queue:
            _LOG.error("broker %d: %d audit events were not written", self._topic.broker_id, len(self._queue))

    # -- the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._wake.wait()
            self._hurries.wait(LINGER_S)
            self._wake.clear()
            while self._queue and not self._is_over.is_set():
                self._write_next()

    def _write_next(self) -> None:
        """Write a batch, again and again until it is stored: its events stay in the queue as long."""
        lost = self._lost
        rows, size_bytes = [], 0
        for time_ms, value in [self._queue[at] for at in range(min(len(self._queue), BATCH_EVENTS))]:
            rows.append((time_ms, None, value, None))
            size_bytes += len(value)
            if size_bytes >= BATCH_BYTES:
                break
        taken = len(rows)
        if lost > self._reported:
            now_ms, text = self._clock.wall_ms(), f"{lost - self._reported} events were dropped: the queue was full"
            report = AuditEvent(LOST, detail=text)
            number = next(self._numbers)
            rows.append((now_ms, None, report.to_json(now_ms, self._topic.broker_id, self._topic.run, number), None))
        try:
            self._append(NewRecordBatch(payload_table(rows)))
        except StratalogError as reason:
            if str(reason) != self._logged:
                _LOG.warning("broker %d: audit events wait: %s", self._topic.broker_id, reason)
            self._logged = str(reason)
            self._is_over.wait(RETRY_S)
            return
        except Exception:  # noqa: BLE001 - a thread that ends silently would hide it
            _LOG.exception("broker %d: audit events wait", self._topic.broker_id)
            self._is_over.wait(RETRY_S)
            return
        self._logged = ""
        self._reported = lost
        self._written += taken
        for _ in range(taken):
            self._queue.popleft()

    def _append(self, batch: NewRecordBatch) -> None:
        """Append to this broker's partition of the topic, with acks=all. Raises why it may not be stored."""
        named = self._partition()
        state = self._view.image.partitions[named]
        peer = None if state.leader == NO_LEADER else self._peers().get(state.leader)
        if peer is None:
            raise LeaderNotAvailableError(f"{named}: its leader {state.leader} cannot be called")
        done, responses = threading.Event(), list[ProduceResponse]()

        def complete(response: ProduceResponse) -> None:
            responses.append(response)
            done.set()

        partition = self._view.image.identified(named)
        peer.produce_then(ProduceRequest(partition, batch, ACKS_ALL, APPEND_MS), complete)
        if not done.wait(2 * APPEND_MS / 1_000):
            raise RequestTimedOutError(f"{named}: no answer of broker {state.leader} in {2 * APPEND_MS} ms")
        if responses[0].error is not None:
            self._view.expect_commit()
            raise responses[0].error

    def _partition(self) -> TopicPartition:
        """This broker's: each takes one by its number. The topic is created if it is not there."""
        topic, view = self._topic, self._view
        view.refresh(max_age_ms=1_000)
        if topic.name not in view.image.topic_ids:
            with suppress(TopicAlreadyExistsError):  # another broker was faster
                self._admin.create_topic(topic.name, 1, topic.replication_factor)
            view.refresh()
        partitions = view.image.partitions_of(topic.name)
        if not partitions:
            raise LeaderNotAvailableError(f"the topic {topic.name} has no partitions")
        return partitions[topic.broker_id % len(partitions)]
