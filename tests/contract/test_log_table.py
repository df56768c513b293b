"""Every `LogTable`, on any store, keeps the contract: races, orphaned and torn commits, lost answers, clean-up."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from stratalog.storage.delta.checkpoint import checkpoint_file
from stratalog.storage.delta.table import (
    LEADER_EPOCH,
    LOG_END,
    LOG_START,
    PRODUCERS_VERSION,
    Commit,
    Committed,
    Conflict,
)
from stratalog.storage.errors import (
    CorruptMessageError,
    ObjectNotFoundError,
    StoreUnavailableError,
    TableReplacedError,
)
from stratalog.storage.files.data_file import FileEntry, PartitionValues, RowsWanted
from stratalog.storage.records import Header, NewRecordBatch, data_table, payload_table
from tests.contract.table_labs import (
    LATER_MS,
    POINTER,
    DeltaLab,
    Lab,
    StoreLab,
    Table,
    clean_up_to,
    empty,
    grow,
    make_anew,
)


def rows(*values: bytes) -> pa.Table:
    payload = payload_table([(1_700_000_000_000 + i, b"k", v, [Header("h", b"1")]) for i, v in enumerate(values)])
    return data_table([NewRecordBatch(payload, producer_id=7, producer_epoch=0, base_sequence=0)])


def append(table: Table, version: int, base_offset: int, *values: bytes) -> FileEntry:
    file = table.write_file(rows(*values), None)
    entry = FileEntry(file, 0, 3, base_offset)
    txns = {LOG_END: base_offset + len(values), LEADER_EPOCH: 3}
    assert table.commit(version, Commit(f"c{version}", "APPEND", 2_000, (entry,), (), txns)) == Committed(version)
    return entry


def lose_answer() -> None:
    raise StoreUnavailableError("no answer")


def test_a_new_table_is_an_empty_log(lab: Lab, table: Table) -> None:
    snapshot = lab.open().snapshot()
    assert snapshot is not None
    assert (snapshot.version, snapshot.files) == (0, ())
    assert snapshot.txns == {LOG_END: 0, LEADER_EPOCH: -1, LOG_START: 0, PRODUCERS_VERSION: 0}
    assert snapshot.properties == {"stratalog.topic-id": "t1"}


def test_no_table_is_none_and_is_made_once(lab: Lab) -> None:
    assert lab.open().snapshot() is None
    assert lab.open().read_commit(0) is None
    assert [lab.open().create({}, 1, f"c{i}") for i in range(2)] == [True, False]


def test_a_commit_reads_back_as_it_was_written(lab: Lab, table: Table) -> None:
    file = table.write_file(rows(b"a", b"b"), PartitionValues(40, 0, 0))
    commit = Commit("c1", "APPEND", 5, (FileEntry(file, 40, 3, 42),), ("gone",), {LOG_END: 44, LOG_START: -1}, False)
    assert table.commit(1, commit) == Committed(1)
    assert lab.open().read_commit(1) == commit
    assert lab.open().read_commit(2) is None


def test_a_snapshot_folds_adds_removes_and_the_last_txns(lab: Lab, table: Table) -> None:
    first, second = append(table, 1, 0, b"a", b"b"), append(table, 2, 2, b"c")
    table.commit(3, Commit("c3", "TRUNCATE", 9, removes=(second.path,), txns={LOG_END: 2}))
    snapshot = lab.open().snapshot()
    assert snapshot is not None
    assert snapshot.files == (first,)
    assert snapshot.txns == {LOG_END: 2, LEADER_EPOCH: 3, LOG_START: 0, PRODUCERS_VERSION: 0}


def test_one_of_two_writers_wins_a_version(lab: Lab, table: Table) -> None:
    assert table.commit(1, empty("mine")) == Committed(1)
    assert lab.open().commit(1, empty("yours")) == Conflict(1)


def test_racing_committers_win_each_version_once(lab: Lab, table: Table) -> None:
    wins: list[int] = []

    def race(writer: int) -> None:
        handle = lab.open()
        wins.extend(
            version
            for version in range(1, 41)
            if isinstance(handle.commit(version, empty(f"w{writer}-{version}")), Committed)
        )

    threads = [threading.Thread(target=race, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(wins) == list(range(1, 41))


def test_a_version_without_the_one_before_it_is_a_conflict(lab: Lab, table: Table) -> None:
    assert table.commit(5, empty("gap")) == Conflict(5)
    assert not lab.has_commit(5)


@pytest.mark.parametrize("cleaned_to", [5, 6, 7, 12])
def test_a_late_writer_of_a_cleaned_version_has_an_orphaned_commit(lab: Lab, table: Table, cleaned_to: int) -> None:
    grow(table, 4)
    sleeper = lab.open()
    sleeper.snapshot()
    grow(table, 20, first=5)
    clean_up_to(table, cleaned_to)
    assert sleeper.commit(5, empty("orphan")) == Conflict(5)
    reopened = lab.open()
    snapshot = reopened.snapshot()
    assert snapshot is not None
    assert snapshot.version == 20
    assert lab.has_commit(5) == (cleaned_to == 5)  # then it is the valid one


def test_commits_of_two_late_writers_in_a_row_are_both_orphaned(lab: Lab, table: Table) -> None:
    grow(table, 4)
    first, second = lab.open(), lab.open()
    first.snapshot()
    grow(table, 5, first=5)
    second.snapshot()
    grow(table, 20, first=6)
    clean_up_to(table, 12)
    outcomes: list[Committed | Conflict] = []
    lab.on("create:done", 5, lambda: outcomes.append(second.commit(6, empty("orphan 6"))))
    assert first.commit(5, empty("orphan 5")) == Conflict(5)
    assert outcomes == [Conflict(6)]
    assert not lab.has_commit(5)
    assert not lab.has_commit(6)


def test_a_valid_commit_overtaken_by_clean_up_is_committed(lab: Lab, table: Table) -> None:
    grow(table, 4)
    other = lab.open()

    def let_clean_up_overtake() -> None:
        grow(other, 9, first=6)
        clean_up_to(other, 5)

    lab.on("create:done", 5, let_clean_up_overtake)
    assert table.commit(5, empty("c5")) == Committed(5)
    assert lab.has_commit(5)


def test_a_commit_cleaned_up_before_its_check_is_unknown(lab: Lab, table: Table) -> None:
    grow(table, 4)
    other = lab.open()

    def let_clean_up_overtake() -> None:
        grow(other, 9, first=6)
        clean_up_to(other, 8)

    lab.on("create:done", 5, let_clean_up_overtake)
    with pytest.raises(StoreUnavailableError, match="may or may not"):
        table.commit(5, empty("c5"))


def test_a_lost_answer_is_resolved_by_reading_back(lab: Lab, table: Table) -> None:
    lab.on("create:done", 1, lose_answer)
    assert table.commit(1, empty("mine")) == Committed(1)


def test_a_lost_request_raises_and_leaves_nothing(lab: Lab, table: Table) -> None:
    lab.on("create", 1, lose_answer)
    with pytest.raises(StoreUnavailableError):
        table.commit(1, empty("mine"))
    assert not lab.has_commit(1)


def test_a_retried_request_that_finds_its_own_commit_is_committed(lab: Lab, table: Table) -> None:
    lab.open().commit(1, empty("mine"))
    assert table.commit(1, empty("mine")) == Committed(1)


def test_a_lost_answer_to_a_lost_race_is_a_conflict(lab: Lab, table: Table) -> None:
    lab.open().commit(1, empty("yours"))
    lab.on("create:done", 1, lose_answer)
    assert table.commit(1, empty("mine")) == Conflict(1)


def test_create_never_revives_a_table_whose_first_commit_was_cleaned_up(lab: Lab, table: Table) -> None:
    grow(table, 9)
    clean_up_to(table, 9)
    assert not lab.open().create({}, 1, "again")
    assert not lab.has_commit(0)


def test_a_creator_after_version_0_was_cleaned_up_has_an_orphaned_commit(lab: Lab) -> None:
    def live_on() -> None:
        other = lab.open()
        other.create({}, 1, "c0")
        grow(other, 9)
        clean_up_to(other, 5)

    lab.on("create", 0, live_on)
    assert not lab.open().create({}, 1, "orphan")
    assert not lab.has_commit(0)


def test_an_orphaned_commit_does_not_count_for_a_tail_reader(lab: Lab, table: Table) -> None:
    grow(table, 4)
    reader, sleeper = lab.open(), lab.open()
    sleeper.snapshot()
    grow(table, 20, first=5)
    clean_up_to(table, 12)
    seen: list[Commit | None] = []
    lab.on("create:done", 5, lambda: seen.append(reader.read_commit(5)))
    sleeper.commit(5, empty("orphan"))
    assert seen == [None]


def test_an_orphaned_commit_does_not_count_for_a_tail_reader_when_the_pointer_went_back(lab: Lab, table: Table) -> None:
    grow(table, 3)
    point_back = lab.point_back(table.checkpoint)
    grow(table, 4, first=4)
    reader, sleeper = lab.open(), lab.open()
    sleeper.snapshot()
    grow(table, 20, first=5)
    clean_up_to(table, 12)
    point_back()
    seen: list[Commit | None] = []
    lab.on("create:done", 5, lambda: seen.append(reader.read_commit(5)))
    assert sleeper.commit(5, empty("orphan")) == Conflict(5)
    assert seen == [None]


@pytest.mark.parametrize("last", [20, 23])
def test_a_fold_reaches_the_newest_version_when_the_pointer_went_back(lab: Lab, table: Table, last: int) -> None:
    grow(table, 5)
    point_back = lab.point_back(table.checkpoint)
    grow(table, 20, first=6)
    clean_up_to(table, 20)
    grow(table, last, first=21)
    point_back()
    reader = lab.open()
    snapshot = reader.snapshot()
    assert snapshot is not None
    assert snapshot.version == last
    assert reader.commit(last + 1, empty("next")) == Committed(last + 1)


@pytest.mark.parametrize(("checkpoint_at", "counts"), [(0, False), (2, False), (3, False), (4, True), (5, True)])
def test_a_commit_counts_alone_only_where_clean_up_has_been(
    lab: Lab, table: Table, checkpoint_at: int, counts: bool
) -> None:
    """Clean-up stays below the newest checkpoint. Elsewhere somebody has removed the directory under a writer, whose
    next commit then has an unknown outcome: the table was replaced."""
    reader = lab.open()
    for version in range(1, 6):
        grow(table, version, first=version)
        if version == checkpoint_at:
            table.checkpoint()
        if version == 4:
            reader.snapshot()
    for version in range(5):
        lab.lose(version)
    if counts:
        assert reader.read_commit(5) is not None
        return
    with pytest.raises(TableReplacedError):
        reader.read_commit(5)


def test_a_pointer_that_an_earlier_tables_writer_puts_names_no_table(lab: Lab) -> None:
    """It slept before it put the pointer, until the directory was deleted."""
    lab.point_at(7)
    made = lab.open()
    assert made.snapshot() is None
    assert made.create({}, 1, "c0")
    for last in (3, 9):
        grow(made, last, first=last - 2 if last == 3 else 4)
        snapshot = lab.open().snapshot()
        assert snapshot is not None
        assert snapshot.version == last


def test_a_writer_of_a_pointer_ends_where_the_table_was_deleted(lab: Lab, table: Table) -> None:
    grow(table, 5)
    lab.on_put(POINTER, lambda: lab.open().drop())
    assert table.checkpoint() == 5
    assert lab.open().create({}, 1, "d0")


def test_a_deletion_asks_what_stands_there_once_it_has_begun(lab: Lab, table: Table) -> None:
    grow(table, 3)
    asked: list[int] = []

    def is_still() -> bool:
        snapshot = lab.open().snapshot()
        assert snapshot is not None
        asked.append(snapshot.version)
        return snapshot.version == 4

    assert not table.drop(is_still)
    assert lab.has_commit(3)
    grow(table, 4, first=4)
    assert table.drop(is_still)
    assert asked == [3, 4]
    assert lab.open().snapshot() is None
    assert lab.open().drop()


def test_nothing_is_cleaned_up_below_a_pointer_to_no_checkpoint(lab: Lab, table: Table) -> None:
    grow(table, 5)
    lab.point_at(7)
    grow(table, 9, first=6)
    assert list(table.clean_log(9, LATER_MS)) == []
    assert lab.has_commit(0)


def test_a_checkpoint_below_a_pointer_to_none_is_written_and_pointed_at(lab: Lab, table: Table) -> None:
    grow(table, 5)
    lab.point_at(7)
    table.snapshot()
    table.checkpoint()
    assert list(table.clean_log(4, LATER_MS)) == [0, 1, 2, 3]
    assert table.adopt_checkpoint() == 5
    snapshot = lab.open().snapshot()
    assert snapshot is not None
    assert snapshot.version == 5


def test_recovery_keeps_what_is_above_the_newest_checkpoint_when_the_pointer_went_back(lab: Lab, table: Table) -> None:
    grow(table, 5)
    point_back = lab.point_back(table.checkpoint)
    grow(table, 20, first=6)
    clean_up_to(table, 20)
    grow(table, 22, first=21)
    point_back()
    assert lab.open().recover_tail() == 22
    snapshot = lab.open().snapshot()
    assert snapshot is not None
    assert snapshot.version == 22


@pytest.mark.parametrize("asleep_before", [checkpoint_file(5), POINTER])
def test_a_checkpointer_that_slept_leaves_the_newest_pointer(lab: Lab, table: Table, asleep_before: str) -> None:
    grow(table, 5)
    slow = lab.open()
    snapshot = slow.snapshot()
    assert snapshot is not None
    write = slow.checkpointer(snapshot)

    def let_clean_up_overtake() -> None:
        grow(table, 20, first=6)
        clean_up_to(table, 20)

    lab.on_put(asleep_before, let_clean_up_overtake)
    write()
    assert lab.open().adopt_checkpoint() == 20
    found = lab.open().snapshot()
    assert found is not None
    assert found.version == 20


def test_checkpoint_clean_up_and_reopening_keep_the_fold(lab: Lab, table: Table) -> None:
    entries = [append(table, n, n - 1, b"v") for n in range(1, 31)]
    before = table.snapshot()
    assert table.checkpoint() == 30
    assert len(list(table.clean_log(25, 0))) == 0  # none is old enough
    assert len(list(table.clean_log(25, LATER_MS))) == 25
    entries.append(append(table, 31, 30, b"w"))
    after = lab.open().snapshot()
    assert before is not None
    assert after is not None
    assert (after.version, after.properties) == (31, before.properties)
    assert sorted(after.files, key=lambda entry: entry.base_offset) == entries
    assert after.txns == {**before.txns, LOG_END: 31}
    assert len(list(table.clean_log(1_000, LATER_MS))) == 5  # up to the checkpoint, never above


def test_clean_up_that_slept_deletes_nothing_of_a_table_made_anew(lab: Lab, table: Table) -> None:
    """On a local disk; an object store does not tell the two directories apart."""
    if isinstance(lab, StoreLab) and not isinstance(lab, DeltaLab):
        pytest.skip("a deletion names an object, not the directory that it was in")
    grow(table, 20)
    table.checkpoint()
    cleaning = table.clean_log(20, LATER_MS)
    assert next(cleaning) == 0
    other = lab.open()
    make_anew(other, 20)
    assert list(cleaning) == list(range(1, 20))
    assert all(lab.has_commit(version) for version in range(21))


def test_a_commit_that_was_made_again_where_clean_up_has_been_is_found_later(lab: Lab, table: Table) -> None:
    """Its request arrived twice, late. Clean-up, which goes on from the oldest commit of the log, does not meet it."""
    grow(table, 20)
    late = [lab.repeat(3), lab.repeat(5)]
    clean_up_to(table, 12)
    assert table.delete_strays(LATER_MS) == 0
    for send in late:
        send()
    table.checkpoint()
    list(table.clean_log(15, LATER_MS))
    assert [lab.has_commit(version) for version in (3, 5, 14, 15, 16)] == [True, True, False, True, True]
    assert (table.delete_strays(0), table.delete_strays(LATER_MS)) == (0, 2)
    assert [lab.has_commit(version) for version in (3, 5, 14, 15, 16)] == [False, False, False, True, True]
    snapshot = lab.open().snapshot()
    assert snapshot is not None
    assert snapshot.version == 20


def test_reading_continues_after_clean_up(lab: Lab, table: Table) -> None:
    grow(table, 20)
    clean_up_to(table, 15)
    reader = lab.open()
    assert reader.read_commit(15) is None  # no commit before it is valid: it counts as cleaned up
    commits = [reader.read_commit(version) for version in range(16, 21)]
    assert [c and c.commit_id for c in commits] == ["c16", "c17", "c18", "c19", "c20"]


def test_a_snapshot_racing_with_clean_up_starts_again(lab: Lab, table: Table) -> None:
    grow(table, 10)
    table.checkpoint()
    grow(table, 20, first=11)
    reader, cleaner = lab.open(), lab.open()
    lab.on("get", 14, lambda: clean_up_to(cleaner, 20))
    snapshot = reader.snapshot()
    assert snapshot is not None
    assert snapshot.version == 20


def test_a_torn_commit_is_corrupt_and_names_its_version(lab: Lab, table: Table) -> None:
    grow(table, 3)
    lab.tear(2)
    with pytest.raises(CorruptMessageError, match="version 2"):
        lab.open().read_commit(2)
    with pytest.raises(CorruptMessageError, match="version 2"):
        lab.open().snapshot()


def test_recovery_drops_from_the_first_torn_commit(lab: Lab, table: Table) -> None:
    grow(table, 6)
    lab.tear(4)
    recovered = lab.open()
    assert recovered.recover_tail() == 3
    snapshot = recovered.snapshot()
    assert snapshot is not None
    assert snapshot.version == 3
    assert recovered.commit(4, empty("new c4")) == Committed(4)


@pytest.mark.parametrize(("version", "older"), [(4, 2), (4, 3), (1, 3)])
def test_recovery_drops_from_the_first_commit_of_another_version(
    lab: Lab, table: Table, version: int, older: int
) -> None:
    """A power loss may leave such a commit where files are overwritten."""
    grow(table, 6)
    lab.misplace(older, version)
    recovered = lab.open()
    assert recovered.recover_tail() == version - 1
    assert recovered.commit(version, empty("new")) == Committed(version)


def test_recovery_drops_a_first_commit_of_another_table(lab: Lab, table: Table) -> None:
    grow(table, 3)
    lab.misplace(2, 0)
    assert lab.open().recover_tail() == -1


@pytest.mark.parametrize("version", [1, 4, 6])
@pytest.mark.parametrize("is_checkpointed", [True, False])
def test_recovery_drops_from_the_first_commit_of_another_table(
    lab: Lab, table: Table, version: int, is_checkpointed: bool
) -> None:
    """It names no commit before it, as every version 0; it is one only in its own place."""
    grow(table, version - 1)
    if is_checkpointed:
        table.checkpoint()
    grow(table, 6, first=version)
    assert lab.open("other-0").create({"stratalog.topic-id": "t1"}, 1_000, "other 0")
    lab.misplace(0, version, of="other-0")
    recovered = lab.open()
    assert recovered.recover_tail() == version - 1
    assert recovered.commit(version, empty("new")) == Committed(version)


def test_recovery_drops_a_version_0_that_the_next_versions_do_not_name(lab: Lab, table: Table) -> None:
    grow(table, 3)
    assert lab.open("other-0").create({"stratalog.topic-id": "t1"}, 1_000, "other 0")
    lab.misplace(0, 0, of="other-0")
    assert lab.open().recover_tail() == -1


def test_recovery_drops_from_the_first_commit_whose_file_is_not_whole(lab: Lab, table: Table) -> None:
    append(table, 1, 0, b"a")
    lost = append(table, 2, 1, b"b")
    append(table, 3, 2, b"c")
    lab.lose_file(lost.file)
    assert lab.open().recover_tail() == 1
    snapshot = lab.open().snapshot()
    assert snapshot is not None
    assert (snapshot.version, snapshot.txns[LOG_END]) == (1, 1)


def test_recovery_ignores_missing_files_that_were_merged_away(lab: Lab, table: Table) -> None:
    old = append(table, 1, 0, b"a")
    table.commit(2, Commit("c2", "MERGE", 1, removes=(old.path,)))
    table.delete_objects([old.path])
    assert lab.open().recover_tail() == 2


def test_recovery_checks_only_above_the_checkpoint(lab: Lab, table: Table) -> None:
    entry = append(table, 1, 0, b"a")
    table.checkpoint()
    lab.lose_file(entry.file)
    assert lab.open().recover_tail() == 1


def test_recovery_does_not_cut_a_log_that_another_process_writes(
    lab: Lab, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier process merges a file away while the log is examined: the file is gone, and the log is whole."""
    entry = append(table, 1, 0, b"a")
    recovering = lab.open()
    is_whole, examined = recovering._is_whole, []

    def looked_at(asked: FileEntry) -> bool:
        if not examined:
            examined.append(asked.path)
            table.commit(2, Commit("c2", "MERGE", 1, removes=(entry.path,)))
            table.delete_objects([entry.path])
        return is_whole(asked)

    monkeypatch.setattr(recovering, "_is_whole", looked_at)
    assert recovering.recover_tail() == 2
    assert examined == [entry.path]
    snapshot = lab.open().snapshot()
    assert snapshot is not None
    assert snapshot.version == 2


def test_files_are_read_whole_and_by_column(lab: Lab, table: Table) -> None:
    written = rows(b"a", b"b", b"c")
    file = table.write_file(written, None)
    assert (file.record_count, file.first_delta, file.last_delta) == (3, 0, 2)
    assert (file.min_timestamp_ms, file.max_timestamp_ms) == (1_700_000_000_000, 1_700_000_000_002)
    assert lab.open().read_file(file).equals(written)
    assert table.read_file(file, ["value", "offset_delta"]).equals(written.select(["value", "offset_delta"]))


@pytest.mark.parametrize(
    ("wanted", "least"),
    [
        (RowsWanted(), {0, 1, 2, 3}),
        (RowsWanted(1, 3), {1, 2}),
        (RowsWanted(2, bytes_max=0), {2}),
        (RowsWanted(from_timestamp_ms=1_700_000_000_003), {3}),
    ],
)
def test_a_read_of_some_rows_returns_a_run_with_those(table: Table, wanted: RowsWanted, least: set[int]) -> None:
    file = table.write_file(rows(b"a", b"b", b"c", b"d"), None)
    found = table.read_file(file, ["offset_delta"], wanted)["offset_delta"].to_pylist()
    assert least <= set(found)
    assert found == list(range(found[0], found[-1] + 1))


def test_a_copied_file_is_the_same_file(lab: Lab, table: Table) -> None:
    follower = lab.open("copy-0")
    file = table.write_file(rows(b"a", b"b"), None)
    follower.copy_file(table, file)
    assert follower.read_file(file).equals(table.read_file(file))


def test_several_files_are_read_as_one_table_in_the_order_asked_for(lab: Lab, table: Table) -> None:
    parts = [rows(*(b"%d" % each for each in range(count))) for count in (1, 3, 2, 40)]
    files = [table.write_file(part, None) for part in parts]
    for order in ([0, 1, 2, 3], [3, 1], [2]):
        wanted = pa.concat_tables([parts[number] for number in order])
        for each in (table, lab.open()):
            assert each.read_files([files[number] for number in order]).equals(wanted)
    table.delete_objects([files[1].path])
    with pytest.raises(ObjectNotFoundError, match=files[1].path):
        lab.open().read_files(files)


def test_missing_files_and_objects_are_named(table: Table) -> None:
    file = table.write_file(rows(b"a"), None)
    table.check_bits(file)
    table.delete_objects([file.path, "never/there"])
    for use in (table.read_file, table.check_bits):
        with pytest.raises(ObjectNotFoundError, match=file.path):
            use(file)
    with pytest.raises(ObjectNotFoundError, match=r"_producers/1\.json"):
        table.read_object("_producers/1.json")


def test_objects_are_listed_outside_the_log(table: Table) -> None:
    table.write_object("_producers/01.json", b"{}")
    table.write_object("_producers/02.json", b"[]")
    file = table.write_file(rows(b"a"), None)
    assert [path for path, _ in table.list_objects("_producers/")] == ["_producers/01.json", "_producers/02.json"]
    assert [path for path, _ in table.list_objects("")] == [file.path, "_producers/01.json", "_producers/02.json"]
    assert table.read_object("_producers/02.json") == b"[]"


def test_a_dropped_table_accepts_no_late_commit(lab: Lab, table: Table) -> None:
    grow(table, 3)
    straggler = lab.open()
    straggler.snapshot()
    table.drop()
    assert straggler.commit(4, empty("late")) == Conflict(4)
    assert lab.open().snapshot() is None


def test_a_checkpoint_of_another_handle_counts_for_this_one(lab: Lab, table: Table) -> None:
    assert (table.adopt_checkpoint(), lab.open().adopt_checkpoint()) == (-1, -1)
    grow(table, 5)
    lab.open().checkpoint()
    grow(table, 7, first=6)
    assert table.adopt_checkpoint() == 5
    assert table.commit(8, empty("c8"), sync=True) == Committed(8)


def test_checkpointing_no_table_is_an_error(lab: Lab) -> None:
    with pytest.raises(ObjectNotFoundError):
        lab.open().checkpoint()
