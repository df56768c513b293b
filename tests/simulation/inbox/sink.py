"""A sink's driver in a simulated cluster: files that it wrote into leaders' roots, handed over through their inboxes.

The hand-over is the real one. A batch is known by sink id and batch id: whatever is repeated, its records are stored
once (NoDuplicates), and what was answered stays (AckedRecordsNotLost).
"""

from __future__ import annotations

from stratalog.clients.spark.options import SinkOptions
from stratalog.clients.spark.sink.batches import SinkBatchId
from stratalog.clients.spark.sink.hand_over import HandOver
from stratalog.clients.spark.sink.task import WrittenFile
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.metadata.storage_domains import replica_root
from stratalog.replication.requests.produce import ACKS_ALL, ACKS_LEADER
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import NewRecordBatch, data_rows, payload_table
from tests.simulation.clients import KEYS, Client
from tests.simulation.cluster import METADATA_ROOT, SimCluster

DELIVERY_MS = 4_000


class Sink(Client):
    """Hands over one file a batch; stops when faults do."""

    def __init__(self, sim: SimCluster, number: int) -> None:
        super().__init__(sim)
        self._view = ClusterView(METADATA_ROOT, stores=sim, clock=sim.clock, ids=sim.ids)
        self._sink_id = f"sink-{number}"
        self._batch_id = 0

    def run(self) -> None:
        while self.sim.scheduler.faults.is_on:
            states = self.partitions()
            if states:
                try:
                    self._write(self.random.choice(states))
                except StratalogError as reason:
                    self.sim.log_event(f"not handed over: {reason}")
            self.sim.clock.sleep_ms(self.random.randrange(5, self.sim.setting.pause_ms_max))

    def _write(self, state: PartitionRecord) -> None:
        """One batch of one file. A sink's rows name topics: they are for the one that has the name when it is handed
        over, which may be another one than now (so OwnTopic is not asked)."""
        sim, topic_partition = self.sim, state.topic_partition
        leader = self.metadata.image.brokers.get(state.leader)
        if leader is None or sim.is_compacted(state.topic):
            return
        values = [b"v%d" % (sim.value_count + i) for i in range(self.random.randrange(1, 4))]
        sim.value_count += len(values)
        rows = [(sim.clock.wall_ms(), b"k%d" % self.random.randrange(KEYS), value, None) for value in values]
        root = replica_root(self.metadata.image, state, state.leader)
        assert root is not None
        file = sim.table(root, topic_partition).write_file(data_rows([NewRecordBatch(payload_table(rows))]), None)
        self._batch_id += 1
        batch = SinkBatchId(self._sink_id, self._batch_id, is_replayable=False)
        acks = self.random.choice([ACKS_LEADER, ACKS_ALL])
        options = SinkOptions(METADATA_ROOT, acks=acks, delivery_timeout_ms=DELIVERY_MS)
        (response,) = HandOver(self._view, options, batch).run([WrittenFile(topic_partition, root, file)])
        first = response.last_offset - len(values) + 1  # a repeated batch is answered with its last offset alone
        sim.log_event(f"ack {topic_partition} [{first}..] epoch {response.leader_epoch} {values}")
        log = response.partition.topic_id, topic_partition.partition
        if acks == ACKS_ALL:
            for i, value in enumerate(values):
                sim.invariants.acknowledged(log, first + i, value)
