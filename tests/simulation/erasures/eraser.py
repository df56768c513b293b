"""Requests erasures in a simulated cluster, and compares the product's proof of them with what is on the disks."""

from __future__ import annotations

from stratalog.replication.internal_topics import is_internal
from stratalog.replication.metadata.erasures import erase_of, request_erase
from stratalog.replication.metadata.records import EraseRecord
from stratalog.server.admin.erasure import ReplicaErasure, replica_state
from stratalog.storage.errors import StratalogError
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import TopicPartition
from stratalog.storage.transactions import OffsetAndEpoch
from tests.simulation.clients import KEYS, Client
from tests.simulation.cluster import SimCluster
from tests.simulation.erasures.erased import predicate_of
from tests.simulation.invariants import Violation

PAUSE_MS_MAX = 400


class Eraser(Client):
    """Erases a key of a topic now and then, and asks for the proof of an earlier request."""

    def __init__(self, sim: SimCluster) -> None:
        super().__init__(sim)
        self.proved_count = 0

    def run(self) -> None:
        while True:
            self.sim.clock.sleep_ms(self.random.randrange(50, PAUSE_MS_MAX))
            try:
                self.metadata.refresh()
                if self.sim.scheduler.faults.is_on and self.random.random() < 0.4:
                    self._request()
                self._prove()
            except StratalogError as reason:
                self.sim.log_event(f"refused: {reason}")

    def _request(self) -> None:
        topics = [topic for topic in self.metadata.image.topic_ids if not is_internal(topic)]
        if not topics:
            return
        topic, request_id = self.random.choice(topics), self.sim.ids.new_id()
        topic_id = self.metadata.image.topic_ids[topic]
        ends = [self._end_of(place) for place in self.metadata.image.partitions_of(topic)]
        predicate = predicate_of(b"k%d" % self.random.randrange(KEYS))
        made = self.metadata.propose(lambda image: request_erase(image, topic, topic_id, predicate, ends, request_id))
        self.sim.log_event(f"erase {made}")

    def _end_of(self, place: TopicPartition) -> OffsetAndEpoch:
        """The high watermark that the newest leader has published."""
        history = self.sim.invariants.history(place)
        published = {} if history is None else history.high_watermarks
        return OffsetAndEpoch(published[max(published)], max(published)) if published else OffsetAndEpoch(0, 0)

    def _prove(self) -> None:
        """A proof of one partition of one request, on every replica."""
        asked = [each for requests in self.metadata.image.erases.values() for each in requests.values()]
        if not asked:
            return
        record = self.random.choice(asked)
        places = self.metadata.image.partitions_of(record.topic)
        if places:
            self._prove_of(record, self.random.choice(places))

    def _prove_of(self, record: EraseRecord, place: TopicPartition) -> None:
        log = self.sim.invariants.log_id(place)
        state = self.metadata.image.partitions[place]
        if log != self.log_of(state):
            return
        for broker_id in state.replicas:
            if not self._state_of(record, place, broker_id).is_gone:
                return
            # Nothing happens between the last listing and this: a replica may be copied again later.
            self._check_gone(record, place, broker_id)
        self.proved_count += 1

    def _state_of(self, record: EraseRecord, place: TopicPartition, broker_id: int) -> ReplicaErasure:
        log = LogReader(self.sim.replica_table(broker_id, place), self.sim.clock)
        return replica_state(log, place, broker_id, erase_of(record, place.partition))

    def _check_gone(self, record: EraseRecord, place: TopicPartition, broker_id: int) -> None:
        invariants = self.sim.invariants
        log, history = invariants.log_id(place), invariants.history(place)
        owner, table = invariants.place_of(broker_id, place)
        files = invariants.disks[owner].tables.get(table)
        if log is None or history is None or files is None:
            return
        asked = invariants.erased.requests.get(log, {}).get(record.erase_id)
        if asked is None:
            return
        values = {each.value for offset, each in history.committed.items() if asked.matches(offset, each)}
        for path, rows in files.data_files.items():
            if left := values & set(rows["value"].to_pylist()):
                raise Violation("ErasedIsGone", f"{place} on {broker_id}: {path} has {left} of {asked}")
