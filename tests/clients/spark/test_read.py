"""What a source task reads: Arrow batches of exactly the asked range, from any replica that holds it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from stratalog.clients.spark.conditions import DataLossError, TopicRecreatedError
from stratalog.clients.spark.option_names import SOURCE_COLUMNS
from stratalog.clients.spark.source.planned_files import PlannedFiles
from stratalog.clients.spark.source.read import (
    BATCH_ROWS_MAX,
    RangeReaders,
    RangeToRead,
    ReadManner,
    arrow_schema,
    columns_read,
    nearest_first,
)
from stratalog.replication.metadata.records import ConfigRecord, EraseRecord, PartitionRecord, RegisterBrokerRecord
from stratalog.storage.errors import ForeignCommitError, LeaderNotAvailableError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.segments import files_between
from stratalog.storage.records import Header, NewRecordBatch, TopicPartition, payload_table
from stratalog.storage.transactions import EndMarker, marker_batch
from tests.clients.still_cluster import StillCluster
from tests.domains import only_in_roots


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
    columns = (*SOURCE_COLUMNS, "headers") if headers else SOURCE_COLUMNS
    batches = RangeReaders(cluster.view()).record_batches(wanted, ReadManner(columns, fail_on_data_loss, timeout_ms))
    return pa.Table.from_batches(list(batches), arrow_schema(columns))


def values(table: pa.Table) -> list[str]:
    return [value.decode() for value in table["value"].to_pylist()]


def follow(cluster: StillCluster, topic_partition: TopicPartition) -> PartitionLog:
    """Broker 2 copies what broker 1 has."""
    follower = cluster.log(topic_partition, 2)
    follower.exists_or_create("id-of-t")
    follower.start_epoch(0, as_leader=False)
    follower.copy_from(cluster.log(topic_partition, 1), 0, 1 << 20)
    return follower


def test_a_range_is_read_exactly_over_several_files(cluster: StillCluster, t0: TopicPartition) -> None:
    for part in ("abc", "def", "ghi"):
        cluster.commit(t0, list(part))
    table = read(cluster, RangeToRead(t0, 2, 7, 0))
    assert values(table) == list("cdefg")
    assert table["offset"].to_pylist() == [2, 3, 4, 5, 6]
    assert table["topic"].to_pylist() == ["t"] * 5
    assert table["timestampType"].to_pylist() == [0] * 5


@pytest.mark.parametrize(("start", "found"), [(0, "abc"), (1, "bc"), (3, ""), (4, "")])
def test_an_end_beyond_the_log_is_read_up_to_its_end_or_is_a_loss(
    cluster: StillCluster, t0: TopicPartition, start: int, found: str
) -> None:
    """As Spark's connector does after its poll time-out."""
    cluster.commit(t0, list("abc"))
    beyond = RangeToRead(t0, start, 5, 0, end_seen=3)
    assert values(read(cluster, beyond, fail_on_data_loss=False)) == list(found)
    lost = rf"COULD_NOT_READ_OFFSET_RANGE.*\[{max(start, 3)}, 5\) .* the log ends at 3 after 200 ms"
    with pytest.raises(DataLossError, match=f"(?s){lost}"):
        read(cluster, beyond)


def test_records_that_come_in_time_or_are_not_committed_decide_where_an_end_beyond_the_log_is(
    cluster: StillCluster, t0: TopicPartition
) -> None:
    cluster.append(t0, [(None, None, value, None) for value in (b"a", b"b", b"c")])
    cluster.publish(t0, 2)
    beyond = RangeToRead(t0, 0, 3, 0, end_seen=1)
    assert values(read(cluster, beyond, fail_on_data_loss=False)) == list("ab")
    cluster.publish(t0, 3)
    assert values(read(cluster, beyond)) == list("abc")


def test_headers_are_null_when_there_are_none_and_times_may_be_absent(
    cluster: StillCluster, t0: TopicPartition
) -> None:
    cluster.append(t0, [(None, None, b"1", [Header("k", b"v"), Header("k", None)]), (5, b"k", None, [])])
    table = read(cluster, RangeToRead(t0, 0, 2, 0), headers=True)
    assert table["headers"].to_pylist() == [[{"key": "k", "value": b"v"}, {"key": "k", "value": None}], None]
    assert table["timestampType"].to_pylist() == [-1, 0]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [None, 5_000]


@pytest.mark.parametrize("lists", [0, 2_000])
def test_headers_that_records_lack_take_no_room_for_their_elements(
    cluster: StillCluster, t0: TopicPartition, lists: int
) -> None:
    count = 4_000
    header = [Header("k", b"v")]
    cluster.append(t0, [(1, None, b"v", header if number < lists else None) for number in range(count)])

    def sent_bytes(columns: tuple[str, ...]) -> int:
        batches = list(RangeReaders(cluster.view()).record_batches(RangeToRead(t0, 0, count, 0), ReadManner(columns)))
        sent = pa.MockOutputStream()
        with pa.ipc.new_stream(sent, batches[0].schema) as stream:
            for batch in batches:
                batch.validate(full=True)
                stream.write_batch(batch)
        return int(sent.size())

    room = sent_bytes(("offset", "headers")) - sent_bytes(("offset",))
    assert room < 5 * count + 11 * lists + 2_000


@pytest.mark.parametrize("is_planned", [False, True])
def test_records_of_aborted_transactions_are_left_out_and_producers_read_for_that_only(
    cluster: StillCluster, t0: TopicPartition, is_planned: bool
) -> None:
    assert "producer_id" not in columns_read(("value",), has_aborted=False)
    for producer_id, value, is_committed in ((7, "a", True), (8, "b", False), (7, "c", True)):
        payload = payload_table([(1, None, value.encode(), None)])
        first = 0 if value != "c" else 1
        cluster.append_batch(
            t0,
            NewRecordBatch(
                payload, producer_id, 0, first, attributes=0x10, verified_offset=1 << 40, verified_leader_epoch=0
            ),
        )
        cluster.append_batch(t0, marker_batch(producer_id, 0, EndMarker(is_committed, 0), 1))
    log = cluster.log(t0, 1)
    for start, found in ((0, ["a", "c"]), (4, ["c"])):
        entries, aborted = tuple(files_between(log.files, start, 6)), log.aborted_transactions(start, 6)
        assert len(aborted) == (start == 0)
        planned = PlannedFiles(cluster.roots[1], entries, 0, aborted) if is_planned else None
        wanted = RangeToRead(t0, start, 6, 0, read_committed=True, planned=planned)
        assert values(read(cluster, wanted)) == found


def test_control_records_are_left_out(cluster: StillCluster, t0: TopicPartition) -> None:
    cluster.commit(t0, ["a"])
    payload = payload_table([(1, None, b"in a transaction", None)])
    cluster.append_batch(
        t0, NewRecordBatch(payload, 7, 0, 0, attributes=0x10, verified_offset=1 << 40, verified_leader_epoch=0)
    )
    cluster.append_batch(t0, marker_batch(7, 0, EndMarker(True, 0), 1))
    assert values(read(cluster, RangeToRead(t0, 0, 3, 0))) == ["a", "in a transaction"]


def test_batches_are_small_enough_for_spark(cluster: StillCluster, t0: TopicPartition) -> None:
    cluster.commit(t0, ["x"] * (BATCH_ROWS_MAX + 5))
    batches = list(
        RangeReaders(cluster.view()).record_batches(
            RangeToRead(t0, 0, BATCH_ROWS_MAX + 5, 0), ReadManner((*SOURCE_COLUMNS, "headers"))
        )
    )
    assert [batch.num_rows for batch in batches] == [BATCH_ROWS_MAX, 5]
    assert batches[0].schema.equals(arrow_schema((*SOURCE_COLUMNS, "headers")))


def test_expired_records_are_a_loss_or_skipped(cluster: StillCluster, t0: TopicPartition) -> None:
    for part in ("abc", "def"):
        cluster.commit(t0, list(part))
    cluster.log(t0, 1).start_epoch(0, as_leader=True, log_start=3)
    with pytest.raises(DataLossError, match=r"offset \[1, 5\) for topic partition t-0: the log starts at 3"):
        read(cluster, RangeToRead(t0, 1, 5, 0))
    assert values(read(cluster, RangeToRead(t0, 1, 5, 0), fail_on_data_loss=False)) == ["d", "e"]


@pytest.mark.parametrize(
    "columns", [("value",), ("offset", "key"), ("topic", "partition"), ("timestampType", "timestamp", "headers")]
)
def test_columns_are_those_that_are_wanted(cluster: StillCluster, t0: TopicPartition, columns: tuple[str, ...]) -> None:
    cluster.append(t0, [(1_000, b"k", b"v", [Header("h", b"1")]), (1_001, None, None, None)])
    every = read(cluster, RangeToRead(t0, 0, 2, 0), headers=True)
    batches = list(RangeReaders(cluster.view()).record_batches(RangeToRead(t0, 0, 2, 0), ReadManner(columns)))
    assert batches[0].schema.equals(arrow_schema(columns))
    assert pa.Table.from_batches(batches).to_pylist() == every.select(columns).to_pylist()


def lose(log: PartitionLog, number: int) -> None:
    """A commit, of stratalog's own, takes a file away without any reason."""
    log.replace_files([log.files[number]], [], leader_epoch=0, operation="OPTIMIZE", now_ms=1)


@pytest.mark.parametrize(("lost", "gap"), [(0, "0, 3"), (1, "3, 6"), (2, "6, 9")])
def test_a_gap_that_nothing_explains_is_a_loss(cluster: StillCluster, t0: TopicPartition, lost: int, gap: str) -> None:
    for part in ("abc", "def", "ghi"):
        cluster.commit(t0, list(part))
    whole = RangeToRead(t0, 0, 9, 0)
    follower = follow(cluster, t0)
    lose(cluster.log(t0, 1), lost)
    assert values(read(cluster, whole)) == list("abcdefghi"), "the other replica has them"
    lose(follower, lost)
    text = rf"(?s)COULD_NOT_READ_OFFSET_RANGE.*offset \[{gap}\) for topic partition t-0.*lacks offsets \[{gap}\)"
    with pytest.raises(DataLossError, match=text):
        read(cluster, whole)
    rest = [value for number, value in enumerate("abcdefghi") if number // 3 != lost]
    assert values(read(cluster, whole, fail_on_data_loss=False)) == rest


def test_gaps_of_compaction_and_erasure_are_no_loss(cluster: StillCluster, t0: TopicPartition) -> None:
    for part in ("abc", "def", "ghi"):
        cluster.commit(t0, list(part))
    lose(cluster.log(t0, 1), 1)
    cluster.commit_metadata(EraseRecord("t", 1, "{}", (5,), "request"))
    with pytest.raises(DataLossError, match=r"lacks offsets \[5, 6\)"):
        read(cluster, RangeToRead(t0, 0, 9, 0))
    cluster.commit_metadata(EraseRecord("t", 2, "{}", (6,), "request"))
    assert values(read(cluster, RangeToRead(t0, 0, 9, 0))) == list("abcghi")
    lose(cluster.log(t0, 1), 1)
    cluster.commit_metadata(ConfigRecord("t", "cleanup.policy", "compact"))
    assert values(read(cluster, RangeToRead(t0, 0, 9, 0))) == list("abc")


def test_a_range_of_a_topic_that_was_created_again_is_not_read_from_the_new_one(
    cluster: StillCluster, t0: TopicPartition
) -> None:
    cluster.commit(t0, list("abc"))
    planned = RangeToRead(t0, 0, 3, 0, topic_id="id-of-t")
    assert values(read(cluster, planned)) == list("abc")
    cluster.create_again("t", 1, "another-id")
    cluster.commit(t0, list("xyz"))
    with pytest.raises(TopicRecreatedError, match="with id id-of-t, the one with id another-id"):
        read(cluster, planned)
    assert values(read(cluster, planned, fail_on_data_loss=False)) == []


@pytest.mark.parametrize(
    ("rack", "isr", "leader", "order"),
    [
        ("", (1, 2, 3), 1, [1, 2, 3]),
        ("b", (1, 2, 3), 1, [2, 1, 3]),
        ("a", (1, 2, 3), 1, [1, 3, 2]),  # the leader is near itself
        ("b", (1, 3), 1, [1, 3, 2]),  # near, but not in sync
        ("elsewhere", (1, 2, 3), 3, [3, 1, 2]),
        ("b", (1, 2), -1, [2, 1, 3]),
    ],
)
def test_near_replicas_in_sync_are_read_first(rack: str, isr: tuple[int, ...], leader: int, order: list[int]) -> None:
    state = PartitionRecord("t", 0, (1, 2, 3), leader, 0, isr, 0, 1)
    assert nearest_first(state, {1: "a", 2: "b", 3: "a"}, rack) == order


def test_a_task_reads_the_replica_of_its_rack_unless_that_lags(cluster: StillCluster, t0: TopicPartition) -> None:
    for broker_id, rack in ((1, "a"), (2, "b")):
        registered = RegisterBrokerRecord(broker_id, broker_id, f"life-{broker_id}", cluster.roots[broker_id], rack)
        cluster.commit_metadata(registered)
    cluster.commit(t0, list("abc"))
    follow(cluster, t0)
    cluster.commit(t0, ["d"])
    Path(cluster.roots[1], "t-0", cluster.log(t0, 1).files[0].path).unlink()  # so only the follower has it
    near = ReadManner(rack="b")
    batches = RangeReaders(cluster.view()).record_batches(RangeToRead(t0, 0, 3, 0), near)
    assert [value for batch in batches for value in batch["value"].to_pylist()] == [b"a", b"b", b"c"]
    batches = RangeReaders(cluster.view()).record_batches(RangeToRead(t0, 3, 4, 0), near)
    assert [value for batch in batches for value in batch["value"].to_pylist()] == [b"d"]


def test_after_a_leaders_death_another_replica_serves(cluster: StillCluster, t0: TopicPartition) -> None:
    cluster.commit(t0, list("abc"))
    follow(cluster, t0)
    shutil.rmtree(cluster.roots[1])
    assert values(read(cluster, RangeToRead(t0, 0, 3, 0))) == list("abc")


def test_a_damaged_file_is_read_from_another_replica(cluster: StillCluster, t0: TopicPartition) -> None:
    cluster.commit(t0, list("abc"))
    follow(cluster, t0)
    (file,) = Path(cluster.roots[1]).glob("t-0/segment=*/**/*.parquet")
    file.write_bytes(file.read_bytes()[:-20] + b"x" * 20)
    assert values(read(cluster, RangeToRead(t0, 0, 3, 0))) == list("abc")


@pytest.mark.parametrize(("end", "epoch"), [(4, 0), (3, 1)])
def test_a_replica_that_lags_or_missed_the_epoch_is_not_read(
    cluster: StillCluster, t0: TopicPartition, end: int, epoch: int
) -> None:
    cluster.commit(t0, list("abc"))
    if epoch > 0:
        only_in_roots("a replica may have missed an epoch")
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
