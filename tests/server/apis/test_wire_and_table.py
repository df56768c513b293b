"""What a client fetches is what the leader's table held at one moment, whatever the broker remembers of its batches.

Random histories of one partition: records come over the wire and otherwise, compaction, erasures, merges, deleted
records, elections that lose records above the high watermark, topics that are created again; some of it in the middle
of a fetch. The moment is between the leader's last publication before the request and the answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from stratalog.clients.wire.rows import decode_rows
from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse, SentBatch
from stratalog.server.apis.fetch.stored_batches import StoredBatches
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.reader import PlannedRead
from stratalog.storage.records import CONTROL_ATTRIBUTE, TRANSACTIONAL_ATTRIBUTE, NewRecordBatch, TopicPartition
from stratalog.storage.transactions import EndMarker, marker_batch
from stratalog.storage.upkeep.chore import UpkeepLimits
from stratalog.storage.upkeep.erase import Erase, ErasePredicate
from stratalog.storage.upkeep.erasure import Erasure
from stratalog.storage.upkeep.upkeep import Upkeep
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.batches.headers import EncodedBatch, batches_in
from stratalog.wire.batches.record_batches import encode_batch, encode_rows
from tests.clients.kafka_client import KafkaClient
from tests.clients.memory_cluster import MemoryBroker, MemoryCluster
from tests.storage.keyed import clean, compacted, keyed, step, view_of

T0 = TopicPartition("t", 0)
KEYS = "abcdef"
PRODUCER = 5
OFFSET_OUT_OF_RANGE = 1
SETTINGS = {"stratalog.encoded.tail.cache.bytes": 1 << 20}

Row = tuple[int, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Fold:
    """The table at one moment: its records, and those that a reader of committed records gets."""

    topic_id: str
    log_start: int
    log_end: int
    rows: tuple[Row, ...]
    stable_end: int
    committed: tuple[Row, ...]

    @staticmethod
    def of(log: PartitionLog) -> Fold:
        start, end = log.log_start_offset, log.log_end_offset
        transactions = log.producers.transactions
        stable_end = max(start, log.last_stable_offset(end))
        aborted = transactions.aborted_between(start, end)
        rows, committed = [], []
        for part in log.read_range(start, end):
            columns = (part[name].to_pylist() for name in ("offset", "key", "value", "producer_id", "attributes"))
            for offset, key, value, producer_id, attributes in zip(*columns, strict=True):
                if attributes & CONTROL_ATTRIBUTE:
                    continue
                rows.append((offset, key, value))
                is_aborted = any(producer_id == each.producer_id and each.first_offset <= offset <= each.last_offset
                                 for each in aborted)  # fmt: skip
                if offset < stable_end and not is_aborted:
                    committed.append((offset, key, value))
        return Fold(log.topic_id, start, end, tuple(rows), stable_end, tuple(committed))

    def between(self, start: int, end: int, *, is_committed: bool) -> list[Row]:
        return [row for row in (self.committed if is_committed else self.rows) if start <= row[0] < end]


class Loop(MemoryBroker):
    """Appends at once, and leaves publishing to the history."""

    def produce_then(self, request: ProduceRequest, complete: Callable[[ProduceResponse], None]) -> None:
        batch = request.batch
        if isinstance(batch, SentBatch):
            (batch,) = batch.read([batch])
        assert isinstance(batch, NewRecordBatch)
        complete(self.cluster.append_batch(request.topic_partition, batch))


@dataclass
class History:
    """One partition, led by broker 1 or 2, and clients of broker 1.

    folds      of the table since the leader's last publication before the present request
    positions  where some readers go on
    """

    rng: random.Random
    cluster: MemoryCluster
    client: KafkaClient
    folds: list[Fold] = field(default_factory=list)
    positions: list[int] = field(default_factory=lambda: [0, 0, 0])
    values: int = 0
    erases: int = 0
    open_since: int | None = None
    sequence: int = 0
    seen: dict[str, int] = field(default_factory=dict)

    @property
    def log(self) -> PartitionLog:
        log = self.cluster.log(self.cluster.state(T0).leader, T0)
        log.config = compacted(segment_files_max=3, delete_retention_ms=5)
        return log

    def count(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1

    # -- what changes the table ----------------------------------------------------------------------------------

    def records(self) -> NewRecordBatch:
        words = []
        for _ in range(self.rng.randint(1, 4)):
            self.values += 1
            key = self.rng.choice(KEYS)
            words.append(key if self.rng.random() < 0.15 else f"{key}={self.values}")
        return keyed(" ".join(words))

    def produce(self) -> None:
        """Over the wire: the batch stays in memory as it came."""
        data = {"name": "t", "partition_data": [{"index": 0, "records": encode_batch(self.records())}]}
        told = self.client.ask(ApiKey.PRODUCE, 9, {"acks": 1, "timeout": 1_000, "topic_data": [data]})
        assert told.responses[0].partition_responses[0].error_code == 0

    def append(self) -> None:
        """In another way, as a Spark sink does."""
        self.cluster.append_batch(T0, self.records())

    def transact(self) -> None:
        """A transaction goes on, or ends."""
        if self.open_since is not None and self.rng.random() < 0.5:
            marker = marker_batch(PRODUCER, 0, EndMarker(self.rng.random() < 0.5, 0), 1)
            self.cluster.append_batch(T0, marker)
            self.open_since = None
            return
        words = f"{self.rng.choice(KEYS)}=tx{self.sequence}"
        batch = keyed(words, producer_id=PRODUCER, sequence=self.sequence, attributes=TRANSACTIONAL_ATTRIBUTE)
        told = self.cluster.append_batch(T0, replace(batch, verified_offset=1 << 40))
        if told.error is None:
            self.sequence += 1
            self.open_since = told.base_offset if self.open_since is None else self.open_since

    def compact(self) -> None:
        log = self.log
        if clean(log, high_watermark=log.last_stable_offset(log.log_end_offset)):
            self.count("compacted")

    def erase(self) -> None:
        log, key = self.log, self.rng.choice(KEYS)
        self.erases += 1
        request = Erase(self.erases, log.log_end_offset, ErasePredicate.parse({"key": {"equals": key}}))
        chore = Erasure(lambda: [request])
        while (done := step(chore, view_of(log, 10_000))) is not None:
            self.count("erased" if done.count else "nothing erased")

    def merge(self) -> None:
        log = self.log
        limits = UpkeepLimits(merge_files_min=2, merge_spread_files=0)
        Upkeep(log, limits).step(10_000, log.log_end_offset, log.leader_epoch)

    def delete_records(self) -> None:
        log = self.log
        start = min(log.log_start_offset + self.rng.randint(1, 4), log.last_stable_offset(log.log_end_offset))
        if start > log.log_start_offset:
            names = {"operation": "DELETE RECORDS", "now_ms": 1, "log_start": start}
            log.replace_files([], [], leader_epoch=log.leader_epoch, **names)

    def fail_over(self) -> None:
        """The other replica has what was published, or more, leads, and appends; the old leader follows it."""
        cluster, old = self.cluster, self.cluster.state(T0).leader
        new = 3 - old
        self.follow(new)
        agreed_end = self.log.log_end_offset
        for _ in range(self.rng.randint(0, 2)):  # records that nobody else has
            (self.produce if self.rng.random() < 0.7 else self.append)()
            self.note()
        cluster.elect(T0, new)
        self.note_fold_of(new)
        cluster.start_leader(T0)
        if self.rng.random() < 0.7:
            self.append()
        self.note()
        self.publish()
        for _ in range(3):
            self.read(agreed_end)
        self.follow(old)
        self.open_since, self.sequence = None, self.sequence + 100
        self.count("failed over")

    def follow(self, broker: int) -> None:
        cluster, epoch = self.cluster, self.cluster.state(T0).leader_epoch
        leader, log = self.log, cluster.log(broker, T0)
        if log.leader_epoch != epoch:
            own = log.epochs.latest_epoch
            end = leader.epochs.end_offset_for(own, leader.log_end_offset).end_offset if own >= 0 else 0
            log.start_epoch(epoch, as_leader=False, truncate_to=max(end, 0))
        before = -1
        while log.log_end_offset != before:
            before = log.log_end_offset
            log.copy_from(leader, epoch, 1 << 30)

    def create_again(self) -> None:
        self.cluster.delete_topic("t")
        self.cluster.create_topic("t")
        self.erases, self.open_since, self.sequence = 0, None, 0
        self.folds = []
        self.note()
        self.count("created again")

    def note(self) -> None:
        """The table has changed, or may have."""
        self.folds.append(Fold.of(self.log))

    def note_fold_of(self, broker: int) -> None:
        self.folds.append(Fold.of(self.cluster.log(broker, T0)))

    def publish(self) -> None:
        self.cluster.publish(T0, log_start=self.log.log_start_offset)
        self.folds = [Fold.of(self.log)]

    # -- what clients see ----------------------------------------------------------------------------------------

    def fetch(self) -> None:
        if self.rng.random() < 0.7:
            reader = self.rng.randrange(len(self.positions))
            self.positions[reader] = self.read(self.positions[reader])
        else:
            self.read(self.rng.randint(0, self.folds[-1].log_end))

    def read(self, offset: int) -> int:
        """One fetch; the offset at which its client goes on."""
        is_committed = self.rng.random() < 0.4
        max_bytes = self.rng.choice([1, 150, 300, 600, 1 << 20])
        if self.rng.random() < 0.3:
            self.meanwhile(self.rng.choice([self.compact, self.erase, self.append, self.merge]))
        wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}
        asked = {"max_wait": 0, "min_bytes": 0, "topics": [{"topic": "t", "partitions": [wanted]}]}
        answer = self.client.ask(ApiKey.FETCH, 12, {**asked, "isolation_level": int(is_committed)})
        self.disk.access = lambda *_: None
        (partition,) = answer.responses[0].partitions
        if partition.error_code:
            assert partition.error_code == OFFSET_OUT_OF_RANGE
            starts = [fold.log_start for fold in self.folds if not fold.log_start <= offset <= fold.log_end]
            assert starts, f"{offset} is in each of the logs"
            return starts[-1]
        rows, end = received(partition, offset)
        expected = [fold.between(offset, end, is_committed=is_committed) for fold in self.folds]
        assert rows in expected, f"at {offset} up to {end}: {rows}, the table: {expected}"
        if end == offset:
            ends = [fold.stable_end if is_committed else fold.log_end for fold in self.folds]
            assert min(ends) <= offset, f"nothing at {offset} of {ends}"
        self.count("rows" if rows else "no rows")
        return end

    @property
    def disk(self) -> Any:
        return self.cluster.stores.disks[self.cluster.root_of(self.cluster.state(T0).leader)]

    def meanwhile(self, change: Callable[[], None]) -> None:
        """Let something happen when the fetch reads its first file."""
        disk, log = self.disk, self.log
        before = [entry.path for entry in log.files]

        def access(operation: str, _table: str, detail: str) -> None:
            if operation == "get" and detail.endswith(".parquet"):
                disk.access = lambda *_: None
                change()
                self.note()
                self.count("meanwhile")
                live = {entry.path for entry in log.files}
                if self.rng.random() < 0.5:
                    log.table.delete_objects([path for path in before if path not in live])
                if self.rng.random() < 0.5:
                    self.cluster.publish(T0, log_start=self.log.log_start_offset)

        disk.access = access


def received(partition: Any, offset: int) -> tuple[list[Row], int]:
    """What a consumer makes of an answer: its records without those of aborted transactions, and where it goes on."""
    data = partition.records or b""
    aborted = sorted((each.first_offset, each.producer_id) for each in partition.aborted_transactions or ())
    rows, ignored, end = [], set(), offset
    for header, _ in batches_in(data):
        end = max(end, header.last_offset + 1)
    table = decode_rows(data)
    columns = (table[name].to_pylist() for name in ("offset", "key", "value", "producer_id", "attributes"))
    for at, key, value, producer_id, attributes in zip(*columns, strict=True):
        while aborted and aborted[0][0] <= at:
            ignored.add(aborted.pop(0)[1])
        if attributes & CONTROL_ATTRIBUTE:
            ignored.discard(producer_id)
        elif at >= offset and not (attributes & TRANSACTIONAL_ATTRIBUTE and producer_id in ignored):
            rows.append((at, key, value))
    return rows, end


Encoded = Callable[[StoredBatches, TopicPartition, int, str, PlannedRead], list[EncodedBatch]]


def reads(rng: random.Random) -> Encoded:
    """As the process beside the broker reads, more than is wanted, so that a rest is left for the next fetch; or as
    little as possible, so that an answer is put together from several reads."""

    def encoded(
        _: StoredBatches, _named: TopicPartition, _size_bytes: int, _root: str, planned: PlannedRead
    ) -> list[EncodedBatch]:
        rows = (planned if rng.random() < 0.5 else replace(planned, decoded_bytes_max=1)).read()
        return [each for first in range(0, rows.num_rows, 3) for each in encode_rows(rows.slice(first, 3))]

    return encoded


CHANGES = {
    History.produce: 10,
    History.append: 4,
    History.transact: 3,
    History.compact: 3,
    History.erase: 2,
    History.merge: 2,
    History.delete_records: 1,
    History.fail_over: 1,
    History.create_again: 0.3,
}


def run(seed: int, steps: int) -> dict[str, int]:
    """How often what happened in the history of a seed."""
    rng, cluster = random.Random(seed), MemoryCluster()
    cluster.create_topic("t")
    for broker in cluster.running:
        cluster.running[broker] = Loop(cluster, broker)
    with KafkaClient(cluster, stores=cluster.stores, settings=SETTINGS) as client:
        history = History(rng, cluster, client)
        history.note()
        history.publish()
        for _ in range(steps):
            (change,) = rng.choices(list(CHANGES), list(CHANGES.values()))
            change(history)
            history.note()
            if rng.random() < 0.7:
                history.publish()
            for _ in range(rng.randint(0, 3)):
                history.fetch()
    return history.seen


def meanwhile(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The log may change within every read of a log's rows."""
    monkeypatch.setattr(StoredBatches, "_encoded", reads(random.Random(seed)))


@pytest.mark.parametrize("seed", range(8))
def test_an_answer_is_the_table_at_one_moment(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile(monkeypatch, seed)
    seen = run(seed, 50)
    assert seen["rows"] > 30


@pytest.mark.long
def test_an_answer_is_the_table_at_one_moment_in_many_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile(monkeypatch, 7)
    total: dict[str, int] = {}
    for seed in range(1_000, 1_400):
        for what, count in run(seed, 100).items():
            total[what] = total.get(what, 0) + count
    assert min(total[what] for what in ("compacted", "erased", "failed over", "created again", "meanwhile")) > 100
