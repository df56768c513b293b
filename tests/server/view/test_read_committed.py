"""read_committed: nothing above the last stable offset, nothing that was aborted, no markers; in memory."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.spark.offsets import OffsetFetcher
from stratalog.clients.spark.options import batch_options
from stratalog.clients.spark.source.read import RangeReaders, RangeToRead, ReadManner
from stratalog.server.offset_spec import LATEST_TIMESTAMP, OffsetSpec
from stratalog.server.view.cluster_view import ClusterView
from stratalog.server.view.read_committed import ReadCommittedView, view_of, without_aborted
from stratalog.storage.errors import InvalidConfigError, LeaderNotAvailableError
from stratalog.storage.records import TRANSACTIONAL_ATTRIBUTE, NewRecordBatch, payload_table
from stratalog.storage.transactions import AbortedTransaction, EndMarker, marker_batch
from tests.clients.memory_cluster import MemoryCluster


class Writer:
    """Producers 7, 8 … with one transaction after the other in partition 0 of topic t."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        (self.partition,) = cluster.create_topic("t")
        self.sequences: dict[int, int] = {}

    def put(self, producer_id: int, *values: str) -> None:
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(values)
        rows = [(1, None, value.encode(), None) for value in values]
        new = NewRecordBatch(payload_table(rows), producer_id, 0, sequence, attributes=TRANSACTIONAL_ATTRIBUTE)
        self.add(replace(new, verified_offset=1 << 40, verified_leader_epoch=0))

    def end(self, producer_id: int, *, committed: bool) -> None:
        self.add(marker_batch(producer_id, 0, EndMarker(committed, 0), 1))

    def plain(self, *values: str) -> None:
        self.cluster.append(self.partition, *[value.encode() for value in values])
        self.cluster.publish(self.partition)

    def add(self, batch: NewRecordBatch) -> None:
        assert self.cluster.append_batch(self.partition, batch).error is None
        self.cluster.publish(self.partition)


@pytest.fixture
def writer() -> Writer:
    return Writer(MemoryCluster())


def consumer(writer: Writer, level: str = "read_committed") -> Consumer:
    view = view_of(level)(writer.cluster.root, stores=writer.cluster.stores, timeout_ms=100)
    made = Consumer(writer.cluster.root, view=view, auto_offset_reset="earliest", isolation_level=level)
    made.assign([writer.partition])
    return made


def polled(reader: Consumer) -> list[str]:
    return [record.value.decode() for record in reader.poll()]


def test_records_show_when_their_transaction_is_committed(writer):
    reader, other = consumer(writer), consumer(writer, "read_uncommitted")
    writer.plain("p")
    writer.put(7, "a", "b")
    writer.plain("q")
    assert (polled(reader), polled(other)) == (["p"], ["p", "a", "b", "q"])
    assert reader.position(writer.partition) == 1
    writer.end(7, committed=True)
    writer.plain("r")
    assert (polled(reader), polled(other)) == (["a", "b", "q", "r"], ["r"])


def test_aborted_records_are_left_out_and_other_producers_between_them_stay(writer):
    reader = consumer(writer)
    writer.put(7, "a")
    writer.put(8, "x")
    writer.put(7, "b")
    writer.end(7, committed=False)
    assert polled(reader) == []
    writer.end(8, committed=True)
    writer.put(7, "c")
    writer.end(7, committed=True)
    assert polled(reader) == ["x", "c"]
    assert reader.position(writer.partition) == 7


def test_a_marker_above_the_high_watermark_decides_nothing(writer):
    reader = consumer(writer)
    writer.put(7, "a")
    assert writer.cluster.append_batch(writer.partition, marker_batch(7, 0, EndMarker(True, 0), 1)).error is None
    writer.cluster.publish(writer.partition, high_watermark=1)
    assert polled(reader) == []
    writer.cluster.publish(writer.partition, high_watermark=2)
    assert polled(reader) == ["a"]


def test_ends_are_last_stable_offsets(writer):
    writer.plain("p")
    writer.put(7, "a")
    writer.plain("q")
    reader = consumer(writer)
    view = view_of("read_committed")(writer.cluster.root, stores=writer.cluster.stores, timeout_ms=100)
    assert isinstance(view, ReadCommittedView)
    assert view.offsets.end_offsets([writer.partition]) == {writer.partition: 1}
    assert view.watermarks.of(writer.partition).high_watermark == 3
    assert view.offsets.list_offset(writer.partition, OffsetSpec(LATEST_TIMESTAMP)).offset == 1
    assert view.offsets.offset_for_timestamp(writer.partition, 1).offset == 0
    reader.seek_to_end()
    assert reader.position(writer.partition) == 1


def test_a_reader_of_another_replica_knows_the_same(writer):
    writer.put(7, "a")
    writer.put(8, "x")
    writer.end(7, committed=False)
    writer.end(8, committed=True)
    writer.cluster.follow(2, writer.partition)
    writer.cluster.stores.lost.add(writer.cluster.root_of(1))
    reader = consumer(writer)
    writer.cluster.elect(writer.partition, 2)
    writer.cluster.start_leader(writer.partition)
    writer.cluster.publish(writer.partition)
    assert polled(reader) == ["x"]


def ranges(writer: Writer, *, broker_root: str | None = None, timeout_ms: int = 0, end: int) -> list[str]:
    view = ClusterView(writer.cluster.root, stores=writer.cluster.stores, timeout_ms=100)
    wanted = RangeToRead(writer.partition, 0, end, 0, read_committed=True)
    batches = RangeReaders(view).record_batches(wanted, ReadManner(timeout_ms=timeout_ms))
    return [value.decode() for batch in batches for value in batch["value"].to_pylist()]


def test_the_spark_source_leaves_aborted_records_out(writer):
    writer.put(7, "a")
    writer.plain("p")
    writer.end(7, committed=False)
    writer.put(8, "x")
    assert ranges(writer, end=3) == ["p"]
    options = batch_options({"stratalog.root": "r", "subscribe": "t", "kafka.isolation.level": "read_committed"})
    view = ReadCommittedView(writer.cluster.root, stores=writer.cluster.stores, timeout_ms=100)
    fetcher = OffsetFetcher(view, options)
    assert fetcher.latest() == fetcher.latest_published({}) == {writer.partition: 3}


def test_a_task_does_not_read_a_replica_that_lacks_the_outcome(writer):
    """The range ends at 2, the marker is at 3: a follower that ends at 2 would show what was aborted."""
    writer.put(7, "a", "b")
    writer.cluster.follow(2, writer.partition)
    writer.end(7, committed=False)
    assert ranges(writer, end=2) == []
    writer.cluster.stores.lost.add(writer.cluster.root_of(1))
    with pytest.raises(LeaderNotAvailableError):
        ranges(writer, end=2)


@pytest.mark.parametrize("name", ["kafka.isolation.level", "isolation.level"])
def test_the_option_has_kafkas_name_and_words(name):
    given = {"stratalog.root": "r", "subscribe": "t"}
    assert batch_options(given).isolation_level == "read_uncommitted"
    assert batch_options({**given, name: "read_committed"}).isolation_level == "read_committed"
    with pytest.raises(InvalidConfigError, match="must be one of: read_committed, read_uncommitted"):
        batch_options({**given, name: "serializable"})


def test_a_level_that_kafka_has_not_is_refused(writer):
    with pytest.raises(InvalidConfigError, match="must be one of: read_committed, read_uncommitted"):
        Consumer(writer.cluster.root, isolation_level="serializable")
    with pytest.raises(InvalidConfigError):
        view_of("serializable")


@pytest.mark.parametrize(
    ("aborted", "left"),
    [
        ([], [10, 11, 12, 13, 14]),
        ([(7, 10, 12)], [11, 13, 14]),
        ([(7, 0, 10), (8, 11, 99)], [12, 14]),
        ([(9, 0, 99)], [10, 11, 12, 13, 14]),
    ],
)
def test_without_aborted(aborted, left):
    rows = pa.table(
        {
            "offset": pa.array([10, 11, 12, 13, 14], pa.int64()),
            "producer_id": pa.array([7, 8, 7, 8, -1], pa.int64()),
            "attributes": pa.array([16, 16, 16, 16, 0], pa.int16()),
        }
    )
    assert without_aborted(rows, [AbortedTransaction(*each) for each in aborted])["offset"].to_pylist() == left
