"""The file cache returns the rows of a read, and keeps no more than it may."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from stratalog.storage.clock import RandomIds
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.errors import ObjectNotFoundError
from stratalog.storage.files.cache import CACHED_FILES_MIN, ENTRY_BYTES, ROWS_BYTES_MAX, FileCache, joined
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.objects.opened import open_store
from stratalog.storage.records import NewRecordBatch, OneRecord, data_rows, data_table, payload_table, table_of_rows
from stratalog.storage.topic_config import LogConfig
from tests.storage.logs import Replicas, batch, contents, started, write


def rows(size: int = 10, count: int = 1):
    return data_table([NewRecordBatch(payload_table([(1, None, os.urandom(size), None)] * count))])


def test_what_was_not_used_for_longest_goes_first() -> None:
    each = ENTRY_BYTES + rows().get_total_buffer_size()
    cache = FileCache(3 * each)
    for path in "abc":
        cache.put("t", path, rows())
    assert cache.get("t", "a") is not None
    cache.put("t", "d", rows())
    assert [path for path in "abcd" if cache.get("t", path) is not None] == ["a", "c", "d"]
    assert cache.size_bytes == 3 * each
    cache.put("t", "d", rows())
    assert cache.size_bytes == 3 * each
    cache.discard("t", ["a", "gone"])
    assert cache.size_bytes == 2 * each
    cache.resize(0)
    cache.put("t", "e", rows())
    assert (cache.size_bytes, cache.get("t", "e")) == (0, None)


def test_large_files_are_not_kept_and_a_slice_does_not_hold_on_to_a_large_table() -> None:
    cache = FileCache()
    cache.put("t", "large", rows(ROWS_BYTES_MAX))
    assert cache.size_bytes == 0
    part = rows(1_000, 3_000).slice(5, 1)
    cache.put("t", "slice", part)
    assert cache.get("t", "slice").equals(part)
    assert ENTRY_BYTES < cache.size_bytes < 2 * ENTRY_BYTES


def test_small_files_of_one_log_share_a_table() -> None:
    cache = FileCache()
    written = {str(number): rows(count=1 + number % 3) for number in range(CACHED_FILES_MIN)}
    for path, table in written.items():
        cache.put("t", path, table)
        cache.put("other", path, rows())
        if path == "4":
            cache.discard("t", ["2"])
            cache.put("t", "3", written["3"])  # once more: it must not be twice in the shared table
    assert cache.size_bytes < CACHED_FILES_MIN * ENTRY_BYTES
    assert cache.get("t", "2") is None
    for path in set(written) - {"2"}:
        assert cache.get("t", path).equals(written[path])
    cache.discard("t", written)
    cache.discard("other", written)
    assert cache.size_bytes == 0


def test_few_rows_are_kept_as_such_and_share_a_table_with_small_files() -> None:
    cache = FileCache()
    records = [NewRecordBatch(OneRecord(number, None, b"v")) for number in range(CACHED_FILES_MIN)]
    single = {str(number): data_rows([record] * (1 + number % 3)) for number, record in enumerate(records)}
    written = {path: table_of_rows(row) for path, row in single.items()}
    for path in list(single)[:-1]:
        cache.put("t", path, written[path] if path == "5" else single[path])
        assert cache.get("t", path).equals(written[path])
    last = str(CACHED_FILES_MIN - 1)
    cache.put("t", last, single[last])
    for path, rows_of_file in written.items():
        assert cache.get("t", path).equals(rows_of_file)
    cache.discard("t", written)
    assert cache.size_bytes == 0


@pytest.mark.parametrize(
    "wanted",
    [
        [0],
        list(range(2 * CACHED_FILES_MIN + 5)),  # two blocks and what is not in one yet
        list(range(3, CACHED_FILES_MIN + 3)),
        [0, 1, 3, 4, CACHED_FILES_MIN, 2 * CACHED_FILES_MIN + 1],
        [4, 2, 3],
        [2 * CACHED_FILES_MIN + 2, 0, 2 * CACHED_FILES_MIN + 1],
    ],
)
def test_files_that_are_found_together_are_joined_in_the_order_asked_for(wanted: list[int]) -> None:
    cache = FileCache()
    written = []
    for number in range(2 * CACHED_FILES_MIN + 5):
        batches = [NewRecordBatch(OneRecord(number, None, b"%d" % number))] * (1 + number % 3)
        row = data_rows(batches) if number % 5 else data_table(batches)
        cache.put("t", str(number), row)
        written.append(table_of_rows(row) if isinstance(row, tuple) else row)
    found = cache.find("t", [str(number) for number in wanted])
    assert joined([part for part in found if part]).equals(pa.concat_tables([written[number] for number in wanted]))
    cache.discard("t", ["1"])
    assert [part is None for part in cache.find("t", ["0", "1", "none"])] == [False, True, True]


def test_files_are_read_from_memory_and_storage_in_turns(tmp_path: Path, cache: FileCache) -> None:
    files = [table(tmp_path, cache if number % 3 else None).write_file(rows(count=2), None) for number in range(9)]
    read = table(tmp_path, cache).read_files(files)
    assert read.equals(pa.concat_tables([table(tmp_path, None).read_file(file) for file in files]))
    for number in (1, 2):
        (tmp_path / "t-0" / files[number].path).unlink()
    assert table(tmp_path, cache).read_files(files).equals(read)


def test_tables_do_not_see_each_others_files() -> None:
    cache = FileCache()
    cache.put("t-1", "a", rows())
    assert cache.get("t-2", "a") is None


@pytest.fixture
def cache() -> FileCache:
    return FileCache()


def table(root: Path, cache: FileCache | None) -> DeltaLogTable:
    return DeltaLogTable(open_store(str(root), create=True), "t-0", RandomIds(), cache)


def test_a_written_file_is_read_from_memory_with_what_storage_holds(tmp_path: Path, cache: FileCache) -> None:
    written = table(tmp_path, cache).write_file(rows(count=3), None)
    read = table(tmp_path, cache).read_file(written)
    assert read.equals(table(tmp_path, None).read_file(written))
    assert table(tmp_path, cache).read_file(written, ["value"]).column_names == ["value"]
    (tmp_path / "t-0" / written.path).unlink()
    assert table(tmp_path, cache).read_file(written).equals(read)
    with pytest.raises(ObjectNotFoundError):
        table(tmp_path, None).read_file(written)


def test_files_that_left_the_log_or_were_deleted_are_let_go(tmp_path: Path, cache: FileCache) -> None:
    replicas = Replicas.new(tmp_path)
    log = PartitionLog(table(tmp_path / "1", cache), LogConfig(), replicas.clock, replicas.ids)
    log.exists_or_create("id")
    started(log, 0)
    write(log, *"abcd")
    assert contents(log) == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
    full = cache.size_bytes
    log.start_epoch(1, as_leader=True, truncate_to=2)
    assert cache.size_bytes == full // 2
    log.table.delete_objects([entry.path for entry in log.files])
    assert cache.size_bytes == 0


def test_copies_do_not_fill_it(tmp_path: Path, cache: FileCache) -> None:
    leader, follower = table(tmp_path / "1", None), table(tmp_path / "2", cache)
    follower.copy_file(leader, leader.write_file(data_table([batch("a")]), None))
    assert cache.size_bytes == 0
