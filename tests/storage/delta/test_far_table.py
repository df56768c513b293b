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
    assert asked == [8, 16, 32]
    assert len(store.rounds) <= 7


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


def grown(table: DeltaLogTable, first: int, last: int) -> None:
    for version in range(first, last + 1):
        assert isinstance(table.commit(version, Commit(f"c{version}", "WRITE", version)), Committed)


def test_a_reader_that_is_behind_takes_new_commits_in_few_rounds(table: DeltaLogTable, store: FarStore) -> None:
    reader = table.reopened()
    reader.snapshot()
    grown(table, COMMITS + 1, 2 * COMMITS)
    store.rounds.clear()
    assert [each.commit_id for each in reader.read_on(COMMITS + 1, 10)] == [f"c{COMMITS + n}" for n in range(1, 11)]
    found = reader.read_on(COMMITS + 11, 128)
    assert [each.commit_id for each in found] == [f"c{COMMITS + n}" for n in range(11, COMMITS + 1)]
    assert reader.read_on(2 * COMMITS + 1, 128) == []
    assert len(store.rounds) <= 15, "two requests for each of 40 commits before"


def test_commits_that_slept_until_clean_up_had_passed_them_are_not_taken(table: DeltaLogTable, store: FarStore) -> None:
    """Two that follow what the reader has folded, and each other: what stands before them is gone, and they are not
    what stood there."""
    reader, kept = table.reopened(), {}
    reader.snapshot()
    grown(table, COMMITS + 1, COMMITS + 6)
    for version in (COMMITS + 1, COMMITS + 2):
        path = f"t-0/_delta_log/{version:020d}.json"
        kept[path] = store.get(path)
    found = table.snapshot()
    assert found is not None
    table.checkpointer(found)()
    for version in range(COMMITS + 6):
        store.delete(f"t-0/_delta_log/{version:020d}.json")
    for path, data in kept.items():
        store.put(path, data)
    assert reader.read_on(COMMITS + 1, 128) == []


def test_a_run_ends_before_the_commit_of_another_table(table: DeltaLogTable, store: FarStore) -> None:
    """The table was deleted and made again up to the reader's version; a commit of the old one came late above it."""
    grown(table, COMMITS + 1, COMMITS + 3)
    late_path = f"t-0/_delta_log/{COMMITS + 3:020d}.json"
    late = store.get(late_path)
    table.drop()
    again = table.reopened()
    again.create({}, 0, "d0")
    for version in range(1, COMMITS + 1):
        again.commit(version, Commit(f"d{version}", "WRITE", version))
    reader = again.reopened()
    reader.snapshot()
    for version in (COMMITS + 1, COMMITS + 2):
        again.commit(version, Commit(f"d{version}", "WRITE", version))
    store.put(late_path, late)
    found = reader.read_on(COMMITS + 1, 128)
    assert [each.commit_id for each in found] == [f"d{COMMITS + 1}", f"d{COMMITS + 2}"]
    assert reader.read_on(COMMITS + 3, 128) == []
