"""The table of past lags: rows by day, several writers, retention; other readers find the same rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from stratalog.server.lag.dated_table import (
    CHECKPOINT_INTERVAL,
    REMOVED_KEPT_MS,
    VERSIONS_KEPT,
    DatedTable,
    TableShape,
)
from stratalog.server.lag.group_lag import MeasuredGroup, MeasuredPartition
from stratalog.server.lag.history import DAY_MS, LAG_DIRECTORY, UPKEEP_MS, LagHistory, lag_rows
from stratalog.storage.clock import RandomIds
from stratalog.storage.objects.local import LocalStore
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.records import TopicPartition

DAY_0 = 20_000 * DAY_MS
"""2024-10-04."""
SHAPE = TableShape("table", pa.schema([("number", pa.int64()), ("name", pa.string())]))


def rows(*numbers: int) -> pa.Table:
    return pa.table({"number": list(numbers), "name": [str(number) for number in numbers]}, SHAPE.schema)


def group(offset: int, end: int) -> MeasuredGroup:
    lags = (
        MeasuredPartition(TopicPartition("t", 0), offset, end, offset, DAY_0 - 5_000),
        MeasuredPartition(TopicPartition("t", 1), -1, end),
    )
    return MeasuredGroup("g", 1, lags)


def numbers_in(folder: Path) -> list[int]:
    return sorted(DeltaTable(str(folder)).to_pyarrow_table()["number"].to_pylist())


def test_two_writers_append_and_every_reader_has_the_rows_of_both(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path), create=True)
    one, other = (DatedTable(store, SHAPE, RandomIds()) for _ in range(2))
    for number in range(CHECKPOINT_INTERVAL + 3):
        (one if number % 2 else other).append({"2024-10-04": rows(number)}, DAY_0)
    assert numbers_in(tmp_path / "table") == list(range(CHECKPOINT_INTERVAL + 3))
    late = DatedTable(store, SHAPE, RandomIds())
    late.refresh()
    assert late.version == CHECKPOINT_INTERVAL + 2
    assert len(late.files) == CHECKPOINT_INTERVAL + 3


def test_a_day_becomes_one_file_and_old_days_go(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path), create=True)
    table, other = (DatedTable(store, SHAPE, RandomIds()) for _ in range(2))
    for date, number in (("2024-10-04", 1), ("2024-10-04", 2), ("2024-10-05", 3), ("2024-10-05", 4)):
        table.append({date: rows(number)}, DAY_0)
    other.refresh()
    assert table.merge_day("2024-10-05", DAY_0)
    assert not other.merge_day("2024-10-05", DAY_0), "the other was faster"
    assert numbers_in(tmp_path / "table") == [1, 2, 3, 4]
    assert table.drop_before("2024-10-05", DAY_0)
    assert not table.drop_before("2024-10-05", DAY_0)
    assert numbers_in(tmp_path / "table") == [3, 4]
    assert len(list((tmp_path / "table").glob("date=*/*.parquet"))) == 5
    table.sweep(DAY_0 + REMOVED_KEPT_MS - 1)
    assert len(list((tmp_path / "table").glob("date=*/*.parquet"))) == 5
    table.sweep(DAY_0 + REMOVED_KEPT_MS)
    assert len(list((tmp_path / "table").glob("date=*/*.parquet"))) == 1
    assert numbers_in(tmp_path / "table") == [3, 4]


def test_commits_far_behind_a_checkpoint_go() -> None:
    store = MemoryStore()
    table = DatedTable(store, SHAPE, RandomIds())
    for number in range(VERSIONS_KEPT + 2 * CHECKPOINT_INTERVAL + 1):
        table.append({"2024-10-04": rows(number)}, DAY_0)
    table.sweep(DAY_0)
    commits = [path for path in store.objects if path.endswith(".json") and "_delta_log" in path]
    assert len(commits) == VERSIONS_KEPT + 1
    late = DatedTable(store, SHAPE, RandomIds())
    late.refresh()
    assert (late.version, len(late.files)) == (table.version, VERSIONS_KEPT + 2 * CHECKPOINT_INTERVAL + 1)


def test_lags_are_appended_at_their_interval_and_stay_for_their_retention(tmp_path: Path) -> None:
    history = LagHistory(LocalStore(str(tmp_path), create=True), RandomIds(), 300_000, 7 * DAY_MS)
    folder = tmp_path / LAG_DIRECTORY
    for minute in range(11):
        history.step([group(minute, 20)], DAY_0 + minute * 60_000)
    found = DeltaTable(str(folder)).to_pyarrow_table().sort_by([("timestamp", "ascending"), ("partition", "ascending")])
    assert found["current_offset"].to_pylist() == [5, None, 10, None]
    assert found["lag"].to_pylist() == [15, None, 10, None]
    assert found["lag_seconds"].to_pylist()[0::2] == [305, 605]
    history.step([], DAY_0 + 8 * DAY_MS)
    assert DeltaTable(str(folder)).to_pyarrow_table().num_rows == 0


def test_a_past_day_is_merged(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path), create=True)
    history = LagHistory(store, RandomIds(), 60_000, 7 * DAY_MS)
    for minute in range(4):
        history.step([group(minute, 20)], DAY_0 + minute * 60_000)
    history.step([group(9, 20)], DAY_0 + DAY_MS + UPKEEP_MS)
    table = DeltaTable(str(tmp_path / LAG_DIRECTORY))
    assert len(table.file_uris()) == 2
    assert table.to_pyarrow_table().num_rows == 8


def test_rows_are_ordered_and_without_groups_there_are_none() -> None:
    assert lag_rows([], DAY_0).num_rows == 0
    found = lag_rows([MeasuredGroup("z", 0, group(1, 2).partitions), group(1, 2)], DAY_0)
    assert found["consumergroup"].to_pylist() == ["g", "g", "z", "z"]
