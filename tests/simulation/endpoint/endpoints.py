"""Kafka's endpoint in a simulated cluster: what each broker's process remembers of batches, and consumers that read it.

The memory, the reading of a partition and the view are the real ones. A process has one memory, into which its loop
puts the batches that it appended, and several readers, each with a view of its own that is folded at another time.
Connections, requests and their order are not simulated: `tests/server` has those.

ConsistentRead, OwnTopic   every batch that is read, as for consumers of tables
ErasedIsUnread             every read that began when the leader had published that the erased records are gone
"""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from stratalog.clients.wire.rows import decode_rows
from stratalog.replication.broker.broker import Broker
from stratalog.replication.coordinator.transactions.add_partitions import Coordinates
from stratalog.replication.internal_topics import is_internal
from stratalog.replication.requests.produce import ProduceResponse
from stratalog.server.apis.fetch.partition_read import PartitionFetch
from stratalog.server.apis.fetch.sessions import FetchKey, WantedPartition
from stratalog.server.batches.batch_memory import BatchMemory
from stratalog.server.bootstrap import BrokerFace
from stratalog.server.request.broker import ServedBroker
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import OffsetOutOfRangeError, StratalogError
from stratalog.storage.records import CONTROL_ATTRIBUTE, NewRecordBatch, TopicPartition
from stratalog.wire.batches.record_batches import encode_batch
from tests.simulation.cluster import CONFIG, METADATA_ROOT, SimCluster
from tests.simulation.erasures.erased import Log
from tests.simulation.invariants import Violation

MEMORY_BYTES = 1 << 20
MEMORY_MS = 120_000
FETCH_BYTES_MAX = 2_000
"""A few batches, so that some are read ahead and kept."""
LOOK_MS = 1_000
"""The time in which a reader that looks at what is published has seen it, also where a store gives what was before."""
READERS = 2
"""Of each host."""
AGAIN = 0.2
"""The probability that a reader begins again, somewhere: what is remembered is read more than once."""


class Endpoints:
    """The memories of all processes."""

    def __init__(self, sim: SimCluster) -> None:
        self._sim = sim
        self._memories: WeakKeyDictionary[Broker, BatchMemory] = WeakKeyDictionary()
        self.read_count = 0
        """Records that came from a memory, or from storage by way of one."""

    def memory_of(self, broker: Broker) -> BatchMemory:
        if broker not in self._memories:
            self._memories[broker] = BatchMemory(MEMORY_BYTES, MEMORY_MS, self._sim.clock)
        return self._memories[broker]

    def appended(self, broker: Broker, batch: NewRecordBatch, response: ProduceResponse) -> None:
        """As the endpoint does when its broker's loop answers."""
        if response.error is None and not response.duplicate:
            records = encode_batch(batch)
            self.memory_of(broker).put(response.partition, response.base_offset, response.leader_epoch, records)

    def start(self) -> None:
        for broker_id in self._sim.hosts:
            for number in range(READERS):
                name = f"k{broker_id}.{number}"
                self._sim.scheduler.spawn(name, f"endpoint-{broker_id}", EndpointReader(self._sim, self, broker_id).run)


class _Running:
    """The simulated cluster as `server.bootstrap.RunningCluster`."""

    root = METADATA_ROOT

    def __init__(self, sim: SimCluster) -> None:
        self._sim = sim

    def brokers(self) -> Mapping[int, BrokerFace]:
        return {i: host.broker.calls for i, host in self._sim.hosts.items() if host.broker is not None}

    def peers(self) -> Mapping[int, Coordinates]:
        return {i: host.broker.calls for i, host in self._sim.hosts.items() if host.broker is not None}

    def hosts(self, broker_id: int) -> bool:
        return broker_id in self._sim.hosts


class EndpointReader:
    """Fetches what its broker leads, as threads of the endpoint do for their clients."""

    def __init__(self, sim: SimCluster, endpoints: Endpoints, broker_id: int) -> None:
        self._sim = sim
        self._endpoints = endpoints
        self._broker_id = broker_id
        self._random = sim.scheduler.random
        self._process: Broker | None = None
        self._fetch: PartitionFetch | None = None
        self._view: ClusterView | None = None
        self._positions: dict[tuple[str, int], int] = {}

    def run(self) -> None:
        while True:
            self._sim.clock.sleep_ms(self._random.randrange(20, 200))
            try:
                self._step()
            except StratalogError as reason:
                self._sim.log_event(f"not fetched: {reason}")

    def _step(self) -> None:
        broker = self._sim.hosts[self._broker_id].broker
        if broker is None or not self._serves(broker):
            return
        assert self._view is not None
        if self._random.random() < 0.5:  # else it is as old as it is
            self._view.refresh()
        self._view.changes.poll()
        for named, state in list(self._view.image.partitions.items()):
            topic_id = self._view.image.topic_ids.get(named.topic)  # it may be gone since the last read
            if topic_id is not None and state.leader == self._broker_id and not is_internal(named.topic):
                self._read(named, topic_id)

    def _serves(self, broker: Broker) -> bool:
        """Whether there is a view; a new process has a new one."""
        if self._process is not broker:
            self._view = ClusterView(METADATA_ROOT, stores=self._sim, clock=self._sim.clock, ids=self._sim.ids)
            served = ServedBroker(_Running(self._sim), self._broker_id, config=CONFIG, view=self._view)
            served.memory = self._endpoints.memory_of(broker)
            self._fetch, self._process = PartitionFetch(served), broker
        return self._process is self._sim.hosts[self._broker_id].broker

    def _read(self, named: TopicPartition, topic_id: str) -> None:
        assert self._fetch is not None
        log, since_ms = (topic_id, named.partition), self._sim.scheduler.now_ms
        position = self._positions.get(log, 0)
        if self._random.random() < AGAIN:
            position = self._random.randrange(position + 1)
        wanted = WantedPartition(FetchKey(named.topic, topic_id, named.partition), position, FETCH_BYTES_MAX)
        try:
            found = self._fetch.read(
                named, wanted, FETCH_BYTES_MAX, must_return_one=True, is_committed=False, takes_zstd=True
            )
        except OffsetOutOfRangeError:
            self._positions[log] = 0
            return
        if self._view is None or self._view.image.topic_ids.get(named.topic) != topic_id:
            return  # as the request's thread looks again after its read
        for batch in found.batches:
            rows = decode_rows(b"".join(batch.pieces))
            columns = (rows[name].to_pylist() for name in ("offset", "value", "attributes"))
            for offset, value, attributes in zip(*columns, strict=True):
                if offset >= position and not attributes & CONTROL_ATTRIBUTE:
                    self._endpoints.read_count += 1
                    self._check(log, offset, value, since_ms)
            self._positions[log] = batch.last_offset + 1

    def _check(self, log: Log, offset: int, value: bytes | None, since_ms: int) -> None:
        """A record that a client of this broker received."""
        invariants = self._sim.invariants
        invariants.was_read(log, offset, value)
        record, erased = invariants.appended(log, offset, value), invariants.erased
        if record is not None and erased.was_published(log, offset, record, self._broker_id, since_ms - LOOK_MS):
            raise Violation("ErasedIsUnread", f"{record} at {log} {offset}, by broker {self._broker_id}")
