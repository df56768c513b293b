"""What a source task reads: Arrow batches of exactly the asked range, from any replica that holds it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from stratalog.clients.spark.conditions import DataLossError
from stratalog.clients.spark.read import BATCH_ROWS_MAX, RangeReaders, RangeToRead, arrow_schema
from stratalog.storage.errors import ForeignCommitError, LeaderNotAvailableError
from stratalog.storage.records import Header, NewRecordBatch, TopicPartition, payload_table
from stratalog.storage.transactions import EndMarker, marker_batch
from tests.clients.still_cluster import StillCluster


@pytest.fixture
def cluster(tmp_path: Path) -> StillCluster:
    return StillCluster(tmp_path)


@pytest.fixture
def t0(cluster: StillCluster) -> TopicPartition:
    return cluster.create_topic("t", 1)[0]


def read(
    cluster: StillCluster,
    wanted: RangeToRead,
    *,
    headers: bool = False,
    fail_on_data_loss: bool = True,
    timeout_ms: int = 200,
) -> pa.Table:
    batches = RangeReaders(cluster.view()).record_batches(
        wanted, include_headers=headers, fail_on_data_loss=fail_on_data_loss, timeout_ms=timeout_ms
    )
    return pa.Table.from_batches(list(batches), arrow_schema(headers))


def values(table: pa.Table) -> list[str]:
    return [value.decode() for value in table["value"].to_pylist()]


def test_a_range_is_read_exactly_over_several_files(cluster: StillCluster, t0: TopicPartition) -> None:
    for part in ("abc", "def", "ghi"):
        cluster.commit(t0, list(part))
    table = read(cluster, RangeToRead(t0, 2, 7, 0))
    assert values(table) == list("cdefg")
    assert table["offset"].to_pylist() == [2, 3, 4, 5, 6]
    assert table["topic"].to_pylist() == ["t"] * 5
    assert table["timestampType"].to_pylist() == [0] * 5


def test_headers_are_null_when_there_are_none_and_times_may_be_absent(
    cluster: StillCluster, t0: TopicPartition
) -> None:
    cluster.append(t0, [(None, None, b"1", [Header("k", b"v"), Header("k", None)]), (5, b"k", None, [])])
    table = read(cluster, RangeToRead(t0, 0, 2, 0), headers=True)
    assert table["headers"].to_pylist() == [[{"key": "k", "value": b"v"}, {"key": "k", "value": None}], None]
    assert table["timestampType"].to_pylist() == [-1, 0]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [None, 5_000]


def test_control_records_are_left_out(cluster: StillCluster, t0: TopicPartition) -> None:
    cluster.commit(t0, ["a"])
    payload = payload_table([(1, None, b"in a transaction", None)])
    cluster.append_batch(t0, NewRecordBatch(payload, 7, 0, 0, attributes=0x10, verified_offset=1 << 40))
    cluster.append_batch(t0, marker_batch(7, 0, EndMarker(True, 0), 1))
    assert values(read(cluster, RangeToRead(t0, 0, 3, 0))) == ["a", "in a transaction"]


def test_batches_are_small_enough_for_spark(cluster: StillCluster, t0: TopicPartition) -> None:
    cluster.commit(t0, ["x"] * (BATCH_ROWS_MAX + 5))
    batches = list(
        RangeReaders(cluster.view()).record_batches(
            RangeToRead(t0, 0, BATCH_ROWS_MAX + 5, 0), include_headers=True, fail_on_data_loss=True, timeout_ms=100
        )
    )
    assert [batch.num_rows for batch in batches] == [BATCH_ROWS_MAX, 5]
    assert batches[0].schema.equals(arrow_schema(True))


def test_expired_records_are_a_loss_or_skipped(cluster: StillCluster, t0: TopicPartition) -> None:
    for part in ("abc", "def"):
        cluster.commit(t0, list(part))
    cluster.log(t0, 1).start_epoch(0, as_leader=True, log_start=3)
    with pytest.raises(DataLossError, match=r"offset \[1, 5\) for topic partition t-0: the log starts at 3"):
        read(cluster, RangeToRead(t0, 1, 5, 0))
    assert values(read(cluster, RangeToRead(t0, 1, 5, 0), fail_on_data_loss=False)) == ["d", "e"]


def test_after_a_leaders_death_another_replica_serves(cluster: StillCluster, t0: TopicPartition) -> None:
    cluster.commit(t0, list("abc"))
    follower = cluster.log(t0, 2)
    follower.exists_or_create("id-of-t")
    follower.start_epoch(0, as_leader=False)
    follower.copy_from(cluster.log(t0, 1), 0, 1 << 20)
    shutil.rmtree(cluster.roots[1])
    assert values(read(cluster, RangeToRead(t0, 0, 3, 0))) == list("abc")


def test_a_damaged_file_is_read_from_another_replica(cluster: StillCluster, t0: TopicPartition) -> None:
    cluster.commit(t0, list("abc"))
    follower = cluster.log(t0, 2)
    follower.exists_or_create("id-of-t")
    follower.start_epoch(0, as_leader=False)
    follower.copy_from(cluster.log(t0, 1), 0, 1 << 20)
    (file,) = Path(cluster.roots[1]).glob("t-0/segment=*/*.parquet")
    file.write_bytes(file.read_bytes()[:-20] + b"x" * 20)
    assert values(read(cluster, RangeToRead(t0, 0, 3, 0))) == list("abc")


@pytest.mark.parametrize(("end", "epoch"), [(4, 0), (3, 1)])
def test_a_replica_that_lags_or_missed_the_epoch_is_not_read(
    cluster: StillCluster, t0: TopicPartition, end: int, epoch: int
) -> None:
    cluster.commit(t0, list("abc"))
    with pytest.raises(LeaderNotAvailableError, match=rf"no replica has offsets \[0, {end}\) of leader epoch {epoch}"):
        read(cluster, RangeToRead(t0, 0, end, epoch))


def test_a_table_with_a_foreign_commit_is_refused_by_name(cluster: StillCluster, t0: TopicPartition) -> None:
    cluster.commit(t0, list("abc"))
    log = Path(cluster.roots[1]) / "t-0" / "_delta_log"
    foreign = {"commitInfo": {"timestamp": 1, "operation": "DELETE", "engineInfo": "Apache-Spark/4.2.0"}}
    version = len(list(log.glob("*.json")))
    (log / f"{version:020d}.json").write_text(json.dumps(foreign) + "\n")
    with pytest.raises(ForeignCommitError, match=r"t-0 cannot be read as a log.*"):
        read(cluster, RangeToRead(t0, 0, 3, 0))
