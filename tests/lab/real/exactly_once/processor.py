"""A process that reads a topic in a group and writes what it read to another topic, in transactions, until killed.

    python -m tests.lab.real.exactly_once.processor <metadata root> <notes file> <transactional id> <life>

Each record is written once more with `|<transactional id>.<life>` behind its value. Events are recorded in the file,
one JSON object a line. It ends by itself when it is fenced, with exit code 3.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.consumer.rebalance_listener import ConsumerRebalanceListener
from stratalog.clients.producer.producer import Producer
from stratalog.clients.records import OffsetAndMetadata
from stratalog.server.remote.remote_cluster import RemoteCluster
from stratalog.storage.errors import (
    InvalidProducerEpochError,
    ProducerFencedError,
    RequestTimedOutError,
    StratalogError,
)
from stratalog.storage.records import TopicPartition

INPUT, OUTPUT, GROUP = "in", "out", "processors"
REQUEST_TIMEOUT_MS = 4_000
CONSUMER = {
    "group_id": GROUP,
    "isolation_level": "read_committed",
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 3_000,
    "heartbeat_interval_ms": 500,
    "partition_assignment_strategy": "cooperative-sticky",
    "fetch_max_bytes": 1,
    "max_partition_fetch_bytes": 65_536,
    "max_poll_interval_ms": 15_000,
    "request_timeout_ms": REQUEST_TIMEOUT_MS,
}
"""The consumer's settings; with `fetch_max_bytes` 1 a poll returns the rows of one partition."""
RECORDS_MAX = 1_000
"""The most records of one transaction."""
PRODUCER = {"request_timeout_ms": REQUEST_TIMEOUT_MS, "delivery_timeout_ms": 30_000, "transaction_timeout_ms": 30_000}
END_TRIES = 10
FENCED = 3
COMMITTED, ABORTED, FENCED_NOTE, ASSIGNED = "committed", "aborted", "fenced", "assigned"
REVOKED, LOST, STARTED = "revoked", "lost", "started"


class Notes(ConsumerRebalanceListener):
    """A processor's record of events. A line is one write, so that a kill leaves none half written."""

    def __init__(self, path: Path, name: str) -> None:
        self._file = path.open("ab", buffering=0)
        self._name = name

    def add(self, kind: str, **facts: object) -> None:
        line = {"at": round(time.time(), 3), "who": self._name, "kind": kind, **facts}
        self._file.write(json.dumps(line).encode() + b"\n")

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.add(ASSIGNED, partitions=[each.partition for each in partitions])

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.add(REVOKED, partitions=[each.partition for each in partitions])

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.add(LOST, partitions=[each.partition for each in partitions])


class Processor:
    """One process under a transactional id."""

    def __init__(self, metadata_root: str, notes: Notes, transactional_id: str, life: str) -> None:
        cluster = RemoteCluster(metadata_root, request_timeout_ms=REQUEST_TIMEOUT_MS)
        self._notes = notes
        self._mark = f"|{transactional_id}.{life}".encode()
        self._consumer = Consumer(cluster, **CONSUMER)
        self._producer = Producer(cluster, transactional_id=transactional_id, **PRODUCER)

    def run(self) -> int:
        """Read and write until it is killed or fenced."""
        self._again(self._producer.init_transactions)
        self._consumer.subscribe([INPUT], listener=self._notes)
        self._notes.add(STARTED)
        try:
            while True:
                self._turn()
        except (ProducerFencedError, InvalidProducerEpochError) as reason:
            self._notes.add(FENCED_NOTE, reason=str(reason))
            return FENCED

    def _turn(self) -> None:
        rows = self._consumer.poll_table(500)
        if rows.num_rows == 0:
            return
        place = TopicPartition(INPUT, rows["partition"][0].as_py())
        rows = rows.slice(0, RECORDS_MAX)
        self._consumer.seek(place, rows["offset"][-1].as_py() + 1)
        begun = time.monotonic()
        self._producer.begin_transaction()
        try:
            self._write(rows, place)
            self._again(self._producer.commit_transaction)
        except (ProducerFencedError, InvalidProducerEpochError):
            raise
        except StratalogError as reason:
            self._notes.add(ABORTED, reason=f"{type(reason).__name__}: {reason}")
            self._again(self._producer.abort_transaction)
            self._rewind()
            return
        self._notes.add(COMMITTED, records=rows.num_rows, took_ms=round((time.monotonic() - begun) * 1000))

    def _write(self, rows: pa.Table, place: TopicPartition) -> None:
        marked = pc.binary_join_element_wise(rows["value"], pa.scalar(self._mark, pa.binary()), b"")
        self._producer.send_table(OUTPUT, pa.table({"key": rows["key"], "value": marked}))
        offsets = {place: OffsetAndMetadata(self._consumer.position(place))}
        self._producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata())

    def _rewind(self) -> None:
        """Continue at the group's committed offsets; partitions may have been assigned to another member meanwhile."""
        mine = self._consumer.assignment()
        for topic_partition, committed in self._consumer.committed(mine).items():
            self._consumer.seek(topic_partition, committed.offset if committed else 0)

    def _again(self, step: Callable[[float], None]) -> None:
        """Call a step again after each time-out."""
        for _ in range(END_TRIES):
            try:
                return step(20)
            except RequestTimedOutError as reason:
                self._notes.add("timed out", reason=str(reason))
        return step(20)


def main(arguments: list[str]) -> int:
    root, path, transactional_id, life = arguments
    notes = Notes(Path(path), f"{transactional_id}.{life}")
    try:
        return Processor(root, notes, transactional_id, life).run()
    except StratalogError as reason:
        notes.add("ended", reason=f"{type(reason).__name__}: {reason}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
