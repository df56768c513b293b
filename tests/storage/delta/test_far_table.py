"""A table on a distant store: what belongs together is asked for together."""

from __future__ import annotations

import pyarrow as pa
import pytest

from stratalog.storage.clock import RandomIds
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.delta.table import Commit, Committed
from stratalog.storage.errors import TableReplacedError
from stratalog.storage.files.cache import FileCache
from stratalog.storage.files.data_file import DataFile
from stratalog.storage.records import data_table
from tests.storage.far_store import FarStore
from tests.storage.logs import batch

COMMITS = 40


@pytest.fixture
def store() -> FarStore:
    return FarStore()


@pytest.fixture
def table(store: FarStore) -> DeltaLogTable:
    """A table of `COMMITS` commits after its first."""
    made = DeltaLogTable(store, "t-0", RandomIds())
    made.create({}, 0, "c0")
    for version in range(1, COMMITS + 1):
        assert isinstance(made.commit(version, Commit(f"c{version}", "WRITE", version)), Committed)
    store.rounds.clear()
    return made


def test_a_fold_asks_for_more_commits_from_one_time_to_the_next(table: DeltaLogTable, store: FarStore) -> None:
    snapshot = table.reopened().snapshot()
    assert snapshot is not None
    assert snapshot.version == COMMITS
    asked = [size for size in store.rounds if size > 1]
    assert asked == [2, 4, 8, 16, 16]
    assert len(store.rounds) <= 10


def test_a_range_that_was_folded_is_read_in_few_rounds(table: DeltaLogTable, store: FarStore) -> None:
    commits = table.read_commits(1, COMMITS + 1)
    assert commits is not None
    assert [commit.commit_id for commit in commits] == [f"c{version}" for version in range(1, COMMITS + 1)]
    assert len(store.rounds) <= 8


def test_a_range_that_clean_up_has_passed_is_none(table: DeltaLogTable, store: FarStore) -> None:
    for version in (5, COMMITS - 1):
        store.delete(f"t-0/_delta_log/{version:020d}.json")
        assert table.read_commits(5, COMMITS + 1) is None


def test_a_range_counts_only_while_the_last_but_one_stands(table: DeltaLogTable, store: FarStore) -> None:
    """A writer that slept may have made the last one, which nobody folded."""
    store.delete(f"t-0/_delta_log/{COMMITS - 1:020d}.json")
    with pytest.raises(TableReplacedError):
        table.read_commits(COMMITS, COMMITS + 1)


def test_files_whose_rows_are_in_memory_are_not_asked_for(store: FarStore) -> None:
    table = DeltaLogTable(store, "t-0", RandomIds(), FileCache())
    files = [table.write_file(data_table([batch([f"{number}"])]), None) for number in range(3)]
    store.rounds.clear()
    ahead = table.ahead(files)
    assert [table.read_file(file, ahead=ahead).num_rows for file in files] == [1, 1, 1]
    assert store.rounds == []


def test_files_are_copied_and_read_together(store: FarStore) -> None:
    leader, follower = (DeltaLogTable(store, name, RandomIds()) for name in ("a/t-0", "b/t-0"))
    files: list[DataFile] = [leader.write_file(data_table([batch([f"{number}"])]), None) for number in range(3)]
    store.rounds.clear()
    follower.copy_files(leader, files)
    assert store.rounds[0] == 3
    store.rounds.clear()
    follower.check_files(files, bits=False)
    assert store.rounds == [3]
    store.rounds.clear()
    ahead = follower.ahead(files)
    read = [follower.read_file(file, ahead=ahead) for file in files]
    assert pa.concat_tables(read).num_rows == sum(file.record_count for file in files)
    assert store.rounds == [3]
    assert follower.read_files(files).num_rows == pa.concat_tables(read).num_rows
