from __future__ import annotations

import pyarrow as pa
import pytest

from stratalog.storage.delta.table import Commit, Conflict
from stratalog.storage.errors import ForeignCommitError, KafkaStorageError, OffsetOutOfRangeError, TableReplacedError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.reader import LogReader
from stratalog.storage.log.rows import READ_SCHEMA
from stratalog.storage.topic_config import LogConfig
from tests.storage.log.test_replication import merge
from tests.storage.logs import MIB, Replicas, append, batch, contents, idempotent, started, values, write


@pytest.fixture
def memory() -> Replicas:
    return Replicas.new()


def test_a_read_has_absolute_offsets_epochs_and_batch_bounds(replicas):
    log = replicas.leader(epoch=3)
    append(log, batch("a"), epoch=3)
    append(log, batch("bc"), idempotent("d", 0), epoch=3)
    table = log.read(2, MIB)
    assert table.schema == READ_SCHEMA
    assert table["offset"].to_pylist() == [2, 3]
    assert table["batch_base_offset"].to_pylist() == [1, 3]
    assert table["leader_epoch"].to_pylist() == [3, 3]
    assert table["producer_id"].to_pylist() == [-1, 7]


@pytest.mark.parametrize(
    "columns",
    [["offset"], ["offset", "value"], ["value", "offset", "leader_epoch"], ["offset", "batch_base_offset", "headers"]],
)
def test_a_read_of_some_columns_has_those_of_a_whole_one(replicas, columns):
    log = replicas.leader(epoch=3)
    append(log, batch("a"), epoch=3)
    append(log, batch("bc"), idempotent("d", 0), epoch=3)
    assert log.read(1, MIB, columns=columns).equals(log.read(1, MIB).select(columns))
    parts = list(log.read_range(0, 4, 1, columns))
    assert [part.num_rows for part in parts] == [1, 3]
    assert pa.concat_tables(parts).equals(log.read(0, MIB).select(columns))
    assert log.read(4, MIB, columns=columns).schema.names == columns


@pytest.mark.parametrize(
    ("start", "max_files", "end", "found"),
    [
        (0, 9, None, "a b c d e f"),
        (0, 1, None, "a b"),
        (1, 0, None, "b"),
        (1, 2, None, "b c"),
        (2, 9, 4, "c d"),
        (0, 9, 99, "a b c d e f"),
        (6, 9, None, ""),
        (3, 9, 3, ""),
    ],
)
def test_a_read_takes_whole_files_up_to_its_size_and_its_bound(replicas, start, max_files, end, found):
    log = replicas.leader()
    write(log, "a b", "c", "d e f")
    size = max(entry.file.size_bytes for entry in log.files[:2])
    table = log.read(start, max_files * size if max_files < 9 else MIB, end)
    assert [v.decode() for v in table["value"].to_pylist()] == found.split()


@pytest.mark.parametrize("offset", [-1, 1, 5])
def test_a_read_outside_the_log_is_out_of_range(replicas, offset):
    log = replicas.leader()
    write(log, "a", "b", "c", "d")
    log.replace_files(log.files[:2], [], leader_epoch=0, operation="DELETE", now_ms=1, data_change=True, log_start=2)
    with pytest.raises(OffsetOutOfRangeError, match=rf"offset {offset} is outside \[2, 4\]"):
        log.read(offset, MIB)
    assert values(log) == "c d"


def test_a_log_start_inside_a_file_hides_the_records_before_it(replicas):
    log = replicas.leader()
    write(log, "a b c")
    log.replace_files([], [], leader_epoch=0, operation="DELETE RECORDS", now_ms=1, data_change=True, log_start=1)
    assert contents(log) == [(1, "b"), (2, "c")]
    assert log.offset_for_timestamp(0) == (1, 1_001)


def test_a_reader_finds_its_offset_after_the_file_was_merged_away(replicas):
    log = replicas.leader()
    write(log, "a", "b c", "d")
    reader = replicas.log()
    assert values(reader) == "a b c d"
    old = [entry.path for entry in log.files]
    merge(log, 0, 2)
    log.table.delete_objects(old)
    assert contents(reader) == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
    assert [t["batch_base_offset"].to_pylist() for t in reader.read_range(0, 4)] == [[0, 1, 1, 3]]


def test_merges_leave_the_log_as_it_was(replicas):
    log = replicas.leader(config=LogConfig.from_properties({"segment.files.max": 3}))
    write(log, "a", "b c", "d", "e", "f")
    before = contents(log)
    merge(log, 1, 2)
    merge(log, 0, 1)
    assert contents(log) == contents(replicas.log()) == before
    assert [(s.base_offset, s.end_offset) for s in log.segments] == [(0, 4), (4, 6)]
    write(log, "g")
    assert contents(log) == [*before, (6, "g")]


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [(0, (0, 10)), (10, (0, 10)), (11, (2, 30)), (30, (2, 30)), (31, (5, 40)), (41, None)],
)
def test_offset_for_timestamp_is_the_first_record_at_or_after(replicas, timestamp, found):
    log = replicas.leader()
    append(log, batch("ab", timestamps=[10, 5]))
    append(log, batch("cd", timestamps=[30, 20]))
    append(log, batch("e", timestamps=[None]))
    append(log, batch("fg", timestamps=[40, None]))
    assert log.offset_for_timestamp(timestamp) == found


def test_look_ups_open_few_files_however_long_the_log_is(memory):
    log = memory.leader()
    for i in range(200):
        append(log, batch("a", timestamps=[i * 10]))
    opened: list[str] = []
    memory.disks["1"].access = lambda operation, table, detail: opened.append(detail) if operation == "get" else None
    assert log.offset_for_timestamp(1_570) == (157, 1_570)
    assert log.read(157, 1)["offset"].to_pylist() == [157]
    assert len(opened) == 2


def test_refresh_returns_whether_anything_changed(replicas):
    log, reader = replicas.leader(), replicas.log()
    assert not reader.refresh()
    write(log, "a")
    assert reader.refresh()
    assert not reader.refresh()
    assert reader.version == log.version


def test_refresh_over_cleaned_up_commits_folds_a_snapshot(replicas):
    log, sleeper = replicas.leader(), replicas.log()
    write(log, *"abcdef")
    log.table.checkpoint()
    replicas.clock.sleep_ms(60_000)
    assert list(log.table.clean_log(log.version, 1 << 60))
    assert sleeper.refresh()
    assert values(sleeper) == "a b c d e f"
    write(log, "g")
    assert sleeper.refresh()
    assert (sleeper.version, values(sleeper)) == (log.version, "a b c d e f g")


def test_a_refresh_for_sure_folds_at_once_what_a_plain_one_misses_for_a_while(replicas):
    log, sleeper = replicas.leader(), replicas.log()
    write(log, *"abcdef")
    log.table.checkpoint()
    assert list(log.table.clean_log(log.version, 1 << 60))
    assert not sleeper.refresh(), "its next version is gone, as if there were none"
    assert values(sleeper) == ""
    assert sleeper.refresh_for_sure()
    assert (sleeper.version, values(sleeper)) == (log.version, "a b c d e f")
    assert not sleeper.refresh_for_sure()
    write(log, "g")
    assert sleeper.refresh_for_sure()
    assert values(sleeper) == "a b c d e f g"


def test_a_refresh_for_sure_leaves_no_doubt_behind(replicas):
    """It checks its own version once; plain refreshes after it do not."""
    log, reader = replicas.leader(), replicas.log()
    reader.refresh_for_sure()
    write(log, *"ab")
    log.table.checkpoint()
    assert list(log.table.clean_log(log.version, 1 << 60))
    assert not reader.refresh()
    assert reader.refresh_for_sure()


def test_a_refresh_for_sure_reads_a_table_that_was_made_anew(replicas):
    log, reader = replicas.leader(), LogReader(replicas.table("1"), replicas.clock)
    write(log, "a")
    reader.refresh()
    log.table.drop()
    other = replicas.leader()
    write(other, "x")
    started(other, 1)
    assert reader.refresh_for_sure()
    assert (reader.leader_epoch, reader.log_end_offset) == (1, 1)


def test_a_sleeper_cannot_append_on_a_cleaned_up_version(replicas):
    log, sleeper = replicas.leader(), replicas.log()
    write(log, *"abcdefghijklmnopqrs")
    log.table.checkpoint()
    assert list(log.table.clean_log(log.state.oldest_version_needed, 1 << 60))
    assert isinstance(sleeper.append([batch("z")], 0, 1), Conflict)
    assert sleeper.refresh(), "a conflict makes the position doubtful at once"
    write(sleeper, "z")
    log.refresh()
    assert values(log) == "a b c d e f g h i j k l m n o p q r s z"


def test_a_foreign_commit_stops_the_log(memory):
    log, reader = memory.leader(), memory.log()
    foreign = Commit("x", "DELETE", 1, is_foreign=True)
    log.table.commit(log.version + 1, foreign)
    with pytest.raises(ForeignCommitError, match="DELETE"):
        reader.refresh()


def test_a_replaced_table_is_noticed(replicas):
    log, reader = replicas.leader(), replicas.log()
    log.table.drop()
    other = replicas.leader()
    write(other, "x")
    started(other, 1)
    with pytest.raises(KafkaStorageError, match="replaced"):
        reader.refresh()


def test_a_reader_reopens_a_table_that_was_made_anew_and_a_writer_does_not(replicas):
    """A replica was removed from its broker, deleted, made again, and has more commits than the reader had folded."""
    first = replicas.leader(epoch=0)
    write(first, "a", "b")
    reader, writer = LogReader(first.table.reopened(), replicas.clock), replicas.log()
    reader.refresh()
    writer.refresh()
    first.table.drop()
    second = replicas.leader(epoch=0)
    write(second, "c", "d", "e", "f")
    assert reader.refresh()
    assert reader.read(0, MIB)["value"].to_pylist() == [b"c", b"d", b"e", b"f"]
    with pytest.raises(TableReplacedError, match="the table was replaced"):
        writer.refresh()


def test_a_writer_that_slept_does_not_write_to_a_table_that_was_made_anew_up_to_the_same_version(replicas):
    """Its commit is refused, since another one precedes it, and one without content takes its place. The version alone
    does not distinguish its fold from the new table."""
    slept = replicas.leader(epoch=0)
    write(slept, "a", "b", "c")
    replicas.log().table.drop()
    other = replicas.leader(epoch=8)
    while other.version < slept.version:
        write(other, "x", epoch=8)
    assert isinstance(slept.append([batch(["d"])], 0, 1_000), Conflict)
    for _ in range(2):
        with pytest.raises(TableReplacedError, match="the table was replaced"):
            slept.refresh()
    newest = replicas.log()
    newest.refresh()
    assert (newest.version, newest.leader_epoch) == (other.version + 1, 8)


def test_a_writer_that_slept_does_not_write_to_a_shorter_table_of_a_new_topic(replicas):
    slept = replicas.leader(epoch=3)
    write(slept, "a", "b", "c", epoch=3)
    replicas.log().table.drop()
    new = PartitionLog(replicas.table("1"), LogConfig(), replicas.clock, replicas.ids)
    new.exists_or_create("new")
    started(new, 0)
    assert new.version < slept.version
    for _ in range(2):
        with pytest.raises(TableReplacedError, match="of topic new by now"):
            slept.refresh_for_sure()
    with pytest.raises(TableReplacedError):
        slept.refresh()


def test_a_replica_that_was_deleted_and_copied_anew_is_folded_anew(replicas):
    first, slept = replicas.leader(epoch=0), replicas.log()
    write(first, "a", "b", "c")
    slept.refresh()
    first.table.drop()
    other = replicas.leader(epoch=1)
    slept.refresh_for_sure()
    assert (slept.version, slept.leader_epoch) == (other.version, 1)
    write(other, *"vwxyz", epoch=1)
    slept.refresh()
    assert slept.log_end_offset == 5
