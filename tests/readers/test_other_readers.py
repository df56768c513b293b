"""Polars, DuckDB, Daft, DataFusion and deltalake read replicas and committed records as we do. `make test-readers`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from stratalog import Admin, Cluster, Consumer, Producer, committed_table
from stratalog.server.view.committed_table import CommittedTable
from stratalog.storage.log.append import Appended, HandedFiles
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import data_table
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import UpkeepLimits
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.readers.other_readers import READERS, Rows
from tests.storage.logs import Replicas, batch, write
from tests.storage.upkeep.test_foreign_hands import STAGES

pytestmark = [pytest.mark.readers, pytest.mark.usefixtures("readers")]

MINUTE_MS = 60_000
SENT = 300


def expected(log: PartitionLog) -> Rows:
    found: Rows = []
    for rows in log.read_range(log.log_start_offset, log.log_end_offset):
        columns = [rows[name].to_pylist() for name in ("offset", "leader_epoch", "value")]
        found += zip(*columns, rows["timestamp"].cast(pa.int64()).to_pylist(), strict=True)
    return found


def seen(log: PartitionLog, read: Callable[[], Rows]) -> Rows:
    """A straddling file has records below the log's start, which no reader of a log sees."""
    return [row for row in read() if row[0] >= log.log_start_offset]


@pytest.mark.parametrize("name", READERS)
def test_a_replica_is_read_at_every_stage_with_its_offsets_and_times(name: str, tmp_path: Path) -> None:
    log = Replicas.new(tmp_path).leader()
    write(log, "a b c", *[f"v{number}" for number in range(8)], "x y z w")
    for stage in [lambda _: None, handed_over, *STAGES]:
        stage(log)
        assert seen(log, READERS[name](tmp_path / "1" / "t-0")) == expected(log)


def handed_over(log: PartitionLog) -> None:
    """Append files that another process wrote, when nobody knew their offsets."""
    files = tuple(log.table.write_file(data_table([batch(words)]), None) for words in (["p", "q"], ["r"]))
    assert isinstance(log.append_files([HandedFiles(files, "query", 1)], log.leader_epoch, 5_000), Appended)


@pytest.mark.parametrize("name", READERS)
def test_a_followers_copy_is_read_with_its_offsets(name: str, tmp_path: Path) -> None:
    replicas = Replicas.new(tmp_path)
    log, follower = replicas.leader(), replicas.follower("2", 0)
    write(log, "a b c", "d")
    handed_over(log)
    follower.copy_from(log, 0, 1 << 20)
    assert READERS[name](tmp_path / "2" / "t-0")() == expected(log)


@pytest.mark.parametrize("name", READERS)
def test_a_snapshot_of_a_busy_replica_is_read_fifty_minutes_later(name: str, tmp_path: Path) -> None:
    replicas = Replicas.new(tmp_path)
    log = replicas.leader(config=LogConfig.from_properties({"retention.ms": -1}))
    upkeep = Upkeep(log, UpkeepLimits(merge_files_min=16, merge_spread_files=0, checkpoint_commits=50))

    def run(minutes: int) -> None:
        for number in range(minutes * 4):
            write(log, f"v{number}")
            replicas.clock.sleep_ms(MINUTE_MS // 4)
            while upkeep.step(replicas.clock.now_ms, log.log_end_offset, 0) is not None:
                pass

    run(10)
    read, wanted, files = READERS[name](tmp_path / "1" / "t-0"), expected(log), list(log.files)
    run(50)
    assert len(set(files) & set(log.files)) <= 1, "they were merged meanwhile"
    assert read() == wanted


# -- committed records ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A topic of two partitions with records of committed, aborted and open transactions, and of none."""
    folder = tmp_path_factory.mktemp("cluster")
    config = {"transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1}
    with Cluster.start(folder, brokers=1, fetcher="thread", config=config) as running:
        Admin(running).create_topic("orders", 2, 1)
        with Producer(running) as plain:
            for number in range(SENT):
                plain.send("orders", key=str(number), value=f"p{number}", headers=[("h", b"1")])
        for outcome in ("commit", "abort", "open"):
            producer = Producer(running, transactional_id=outcome)
            producer.init_transactions()
            producer.begin_transaction()
            for number in range(SENT):
                producer.send("orders", key=str(number), value=f"{outcome}{number}")
            producer.flush()
            if outcome == "commit":
                producer.commit_transaction()
            elif outcome == "abort":
                producer.abort_transaction()
        yield running


def consumed(cluster: Cluster) -> list[tuple[int, int, bytes]]:
    consumer = Consumer(cluster, auto_offset_reset="earliest", isolation_level="read_committed")
    consumer.assign_all("orders")
    found: list[tuple[int, int, bytes]] = []
    while len(rows := consumer.poll_table(timeout_ms=500)):
        found += zip(*[rows[name].to_pylist() for name in ("partition", "offset", "value")], strict=True)
    return sorted(found)


def _duckdb(orders: CommittedTable) -> pa.Table:
    import duckdb

    return duckdb.sql("SELECT * FROM orders").to_arrow_table()


def _polars(orders: CommittedTable) -> pa.Table:
    import polars as pl

    return pl.DataFrame(orders).to_arrow()


def _daft(orders: CommittedTable) -> pa.Table:
    import daft

    return daft.from_arrow(orders.read_all()).to_arrow()


def _datafusion(orders: CommittedTable) -> pa.Table:
    import datafusion

    context = datafusion.SessionContext()
    context.from_arrow(orders, "orders")
    return pa.table(context.sql("SELECT * FROM orders"))


@pytest.mark.parametrize("read", [_duckdb, _polars, _daft, _datafusion], ids=["duckdb", "polars", "daft", "datafusion"])
def test_committed_records_are_those_of_a_read_committed_consumer(
    cluster: Cluster, read: Callable[[CommittedTable], pa.Table]
) -> None:
    orders = committed_table(cluster, "orders")
    for _ in range(2):
        rows = read(orders)
        found = sorted(zip(*[rows[name].to_pylist() for name in ("partition", "offset", "value")], strict=True))
        assert found == consumed(cluster)
        assert len(found) == 2 * SENT
