"""What a task of the sink leaves: data files in the leaders' roots, or its few rows for the driver to write."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stratalog.clients.producer.partitioner import partition_for_key
from stratalog.clients.spark.options import SinkOptions
from stratalog.clients.spark.sink.task import SENT_BYTES_MAX, SinkTask, WrittenFile, few_rows_limit
from stratalog.replication.metadata.records import ConfigRecord, of_broker
from stratalog.storage.errors import InvalidTimestampError, RecordTooLargeError
from stratalog.storage.files.batch_file_fast import TABLE_ROWS_MAX
from stratalog.storage.files.codecs import SMALL_FILE_BYTES
from stratalog.storage.records import PAYLOAD_SCHEMA, NewRecordBatch, data_table
from stratalog.storage.topic_config import LogConfig
from tests.clients.still_cluster import StillCluster


@pytest.fixture
def cluster(tmp_path: Path) -> StillCluster:
    found = StillCluster(tmp_path)
    found.create_topic("t", 3)
    return found


def task(cluster: StillCluster, **options: object) -> SinkTask:
    return SinkTask(cluster.view(), SinkOptions(cluster.root, topic="t", **options), 0)  # type: ignore[arg-type]


def keyed(names: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(names), pa.array(names)], ["key", "value"])


def stored(cluster: StillCluster, files: tuple[WrittenFile, ...]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for written in files:
        table = cluster.stores.table(written.root, written.topic_partition).read_file(written.file)
        found.setdefault(written.topic_partition.partition, []).extend(table["value"].to_pylist())
    return found


def by_partition(names: list[str]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for name in names:
        found.setdefault(partition_for_key(name.encode(), 3), []).append(name.encode())
    return found


def test_few_rows_of_many_tasks_become_one_file_a_partition(cluster: StillCluster) -> None:
    names = [str(i) for i in range(40)]
    driver = task(cluster)
    for start in range(0, 40, 10):
        executor = task(cluster)
        executor.add(keyed(names[start : start + 5]))
        executor.add(keyed(names[start + 5 : start + 10]))
        rows = pickle.loads(pickle.dumps(executor.send()))
        assert executor.finish() == ()
        driver.add_sent(rows)
    files = driver.finish()
    assert len(files) == 3
    assert stored(cluster, files) == by_partition(names)


def test_many_rows_are_written_by_the_task(cluster: StillCluster) -> None:
    names = [str(i) for i in range(SENT_BYTES_MAX // 8)]
    executor = task(cluster)
    executor.add(keyed(names))
    assert executor.send() is None
    assert stored(cluster, executor.finish()) == by_partition(names)


def test_a_task_without_rows_leaves_nothing(cluster: StillCluster) -> None:
    executor = task(cluster)
    assert executor.send() is None
    assert executor.finish() == ()


def test_a_task_that_wrote_a_file_early_writes_the_rest_too(cluster: StillCluster) -> None:
    executor = task(cluster, buffer_memory=1_000)
    executor.add(keyed([str(i) for i in range(100)]))
    assert executor.send() is None
    assert sum(file.file.record_count for file in executor.finish()) == 100


@pytest.mark.parametrize("count", [1, TABLE_ROWS_MAX, TABLE_ROWS_MAX + 1])
def test_a_file_of_few_rows_holds_what_any_other_would(cluster: StillCluster, count: int) -> None:
    driver, executor = task(cluster), task(cluster)
    cells = [str(i) for i in range(count)]
    headers = pa.nulls(count, PAYLOAD_SCHEMA.field("headers").type)
    columns = [pa.array(cells), pa.array(cells), headers, pa.array([1] * count, pa.int32())]
    executor.add(pa.RecordBatch.from_arrays(columns, ["key", "value", "headers", "partition"]))
    sent = executor.send()
    assert sent is not None
    driver.add_sent(sent)
    (written,) = driver.finish()
    rows = cluster.stores.table(written.root, written.topic_partition).read_file(written.file)
    payload = rows.select(PAYLOAD_SCHEMA.names)
    assert rows.equals(data_table([NewRecordBatch(payload.combine_chunks())]))
    assert payload["value"].to_pylist() == [cell.encode() for cell in cells]
    assert (written.file.record_count, written.file.first_delta, written.file.last_delta) == (count, 0, count - 1)


@pytest.mark.parametrize(
    ("properties", "compression_type", "limit"),
    [
        ({}, "zstd", SMALL_FILE_BYTES - 1),
        ({"max.message.bytes": "100"}, "zstd", 100),
        ({"segment.bytes": "2000000", "max.message.bytes": "3000000"}, "none", SMALL_FILE_BYTES - 1),
        ({"compression.type": "zstd"}, "none", -1),
        ({"compression.type": "uncompressed"}, "zstd", SMALL_FILE_BYTES - 1),
        ({"cleanup.policy": "compact"}, "zstd", -1),
        ({"message.timestamp.after.max.ms": "1000"}, "zstd", -1),
    ],
)
def test_when_few_rows_are_written_without_a_check(
    properties: dict[str, str], compression_type: str, limit: int
) -> None:
    assert few_rows_limit(LogConfig.from_properties(properties), compression_type) == limit


def test_few_rows_above_the_limit_of_a_topic_are_refused_as_many_are(cluster: StillCluster) -> None:
    cluster.commit_metadata(ConfigRecord("t", "max.message.bytes", "1000"))
    driver, executor = task(cluster), task(cluster)
    executor.add(keyed(["x" * 2_000]))
    sent = executor.send()
    assert sent is not None
    driver.add_sent(sent)
    with pytest.raises(RecordTooLargeError):
        driver.finish()


@pytest.mark.parametrize("config", ["message.timestamp.before.max.ms", "message.timestamp.after.max.ms"])
def test_a_row_whose_time_is_far_from_the_clock_is_refused(cluster: StillCluster, config: str) -> None:
    cluster.commit_metadata(ConfigRecord("t", config, "3600000"))
    times = pa.array([1_000 if "before" in config else 1 << 42], pa.timestamp("ms", tz="UTC"))
    executor = task(cluster, timestamp_column="at")
    executor.add(pa.RecordBatch.from_arrays([pa.array(["v"]), times], ["value", "at"]))
    sent, driver = executor.send(), task(cluster)
    assert sent is not None
    driver.add_sent(sent)
    with pytest.raises(InvalidTimestampError):
        driver.finish()
    now = task(cluster)
    now.add(keyed(["a"]))
    assert (now.send() is not None, now.finish()) == (True, ())


def test_a_record_above_the_limit_is_refused_where_it_is_written(cluster: StillCluster) -> None:
    executor = task(cluster)
    executor.add(keyed(["x" * (1 << 21)]))
    assert executor.send() is None
    with pytest.raises(RecordTooLargeError):
        executor.finish()


@pytest.mark.parametrize(("asked", "codec"), [("zstd", "ZSTD"), ("none", "UNCOMPRESSED"), ("lz4", "LZ4")])
def test_files_are_written_with_the_codec_that_was_asked_for(cluster: StillCluster, asked: str, codec: str) -> None:
    executor = task(cluster, compression_type=asked)
    executor.add(keyed([str(i) for i in range(SENT_BYTES_MAX)]))
    file = executor.finish()[0]
    path = Path(file.root) / str(file.topic_partition) / file.file.path
    assert pq.ParquetFile(path).metadata.row_group(0).column(2).compression == codec


def test_what_a_leader_has_for_itself_counts(cluster: StillCluster) -> None:
    """The broker does not open the files, so the task checks by the leader's own limits."""
    cluster.commit_metadata(ConfigRecord(of_broker(1), "message.max.bytes", "500"))
    one = task(cluster)
    one.add(keyed(["x" * 600]))
    with pytest.raises(RecordTooLargeError):
        one.finish()
