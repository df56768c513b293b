from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from stratalog.storage import cadence
from stratalog.storage.delta.table import Conflict
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.cleaner_checkpoint import CleanerCheckpoint, CleanerPass
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.rows import rebased_rows
from stratalog.storage.records import CONTROL_ATTRIBUTE
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import UpkeepDone, UpkeepLimits, UpkeepWork, Work
from stratalog.storage.upkeep.cleaner import Cleaner, CleanerTurn, GroupRewrite
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.storage.keyed import clean, cleaner_of, compacted, keyed, shown, step, view_of, words
from tests.storage.logs import Replicas, append, list_files

DAY_MS = 86_400_000


def put(log: PartitionLog, *batches: str, epoch: int = 0) -> None:
    """Each batch a commit and a file of its own."""
    for records in batches:
        append(log, keyed(records), epoch=epoch)


def filled(replicas: Replicas, config: LogConfig | None = None) -> PartitionLog:
    """Segments [0, 6) and [6, 12), and the active one [12, 14)."""
    log = replicas.leader(config=config or compacted())
    put(log, "a=1 b=1", "a=2 c=1", "d=1 a=3", "b=2 e=1", "c f=1", "g=1 g=2", "a=4 h=1")
    return log


CLEANED = "4:d=1 5:a=3 6:b=2 7:e=1 8:c 9:f=1 11:g=2 12:a=4 13:h=1"


def test_the_latest_record_of_each_key_stays_at_its_offset(replicas):
    log = filled(replicas)
    assert clean(log) == 3
    assert words(shown(log)) == words(shown(replicas.log())) == CLEANED  # 5:a=3 too: the active segment does not count
    assert (log.log_start_offset, log.log_end_offset) == (0, 14)
    assert log.state.cleaner.first_dirty_offset == 12
    assert clean(log) == 0


def test_cleaned_segments_are_grouped_and_each_group_is_one_commit(replicas):
    log = filled(replicas)
    log.config = compacted(segment_files_max=10)
    before = log.version
    assert clean(log) == 5
    assert log.version == before + 1
    assert [(e.segment, e.start_offset, e.end_offset) for e in log.files] == [(0, 4, 6), (0, 6, 12), (12, 12, 14)]
    assert [segment.base_offset for segment in replicas.log().segments] == [0, 12]
    assert words(shown(log)) == CLEANED


def test_a_segment_too_large_for_its_neighbour_has_a_commit_of_its_own(replicas):
    log = filled(replicas)
    log.config = compacted(segment_files_max=10, segment_bytes=log.segments[0].size_bytes)
    before = log.version
    assert clean(log) == 3
    assert log.version == before + 2
    assert [(entry.segment, entry.start_offset) for entry in log.files] == [(0, 4), (6, 6), (6, 8), (6, 11), (12, 12)]
    assert words(shown(log)) == CLEANED


def test_records_above_the_high_watermark_are_left_alone_and_supersede_nothing(replicas):
    log = filled(replicas)
    assert clean(log, high_watermark=11) == 2
    assert words(shown(log)) == "1:b=1 3:c=1 4:d=1 5:a=3 6:b=2 7:e=1 8:c 9:f=1 10:g=1 11:g=2 12:a=4 13:h=1"
    assert log.state.cleaner.first_dirty_offset == 6


def test_a_log_that_is_not_dirty_enough_or_not_compacted_is_left_alone(replicas):
    log = filled(replicas, compacted(min_cleanable_dirty_ratio=1.0))
    cleaner = cleaner_of(log)
    assert cleaner.begin(view_of(log, 1)) is None
    assert cleaner.rest_ms(view_of(log, 1)) == cadence.CLEANER_RECHECK.ms
    log.config = LogConfig()
    assert cleaner.begin(view_of(log, 1)) is None
    assert cleaner.rest_ms(view_of(log, 1)) is None
    log.config = compacted()  # altered on a running topic
    assert isinstance(cleaner.begin(view_of(log, 1)), Work)


def test_the_cleaner_looks_again_when_a_segment_is_sealed_or_the_high_watermark_may_have_risen(replicas):
    log = replicas.leader(config=compacted())
    cleaner, needed = cleaner_of(log), []
    assert (cleaner.begin(view_of(log, 1)), cleaner.rest_ms(view_of(log, 1))) == (None, None)
    put(log, "a=1")
    cleaner.begin(view_of(log, 1))
    log.on_commit = lambda commit: needed.append(cleaner.needs_step(commit))
    put(log, "a=2", "a=3", "a=4")
    assert needed == [False, False, True]
    assert cleaner.begin(view_of(log, 1, high_watermark=2)) is None
    assert cleaner.rest_ms(view_of(log, 1)) == cadence.RECHECK.ms
    assert isinstance(cleaner.begin(view_of(log, 1, high_watermark=3)), Work)


def test_a_second_pass_maps_the_dirty_section_only_and_cleans_both(replicas):
    log = filled(replicas)
    clean(log)
    put(log, "i=1", "b=3", "i=2", "j=1")
    reads: list[str] = []
    log.config = compacted(min_cleanable_dirty_ratio=0.0)
    if replicas.root is None:
        replicas.disks["1"].access = lambda operation, table, detail: reads.append(f"{operation} {detail}")
    clean_file = log.files[0].path
    assert clean(log) > 0
    assert words(shown(log)) == "4:d=1 7:e=1 8:c 9:f=1 11:g=2 12:a=4 13:h=1 14:i=1 15:b=3 16:i=2 17:j=1"
    if replicas.root is None:
        assert [read for read in reads if read.endswith(clean_file)].index(f"get {clean_file}") == 0
        first_reads = [read for read in reads if read.startswith("get segment=")]
        assert first_reads[0] != f"get {clean_file}"


def test_a_file_of_which_everything_stays_is_not_written_anew(replicas):
    log = replicas.leader(config=compacted(segment_bytes=1_048_576))
    put(log, "a=1", "b=1", "c=1", "d=1", "e=1", "d=2", "x=1")
    log.config = compacted(segment_bytes=log.segments[0].size_bytes + 1)
    before = [entry.path for entry in log.files]
    assert clean(log) == 1
    kept = [entry.path for entry in log.files]
    assert set(before) - set(kept) == {before[3]}
    assert log.state.cleaner.first_dirty_offset == 6


def test_each_leader_epoch_keeps_a_file_of_its_own(replicas):
    log = replicas.leader(config=compacted())
    put(log, "a=1 x=1", "b=1 y=1")
    log.start_epoch(1, as_leader=True)
    put(log, "c=1", "a=2", "b=2 d=1", "c=2", "e=1", epoch=1)
    log.config = compacted(segment_files_max=10)
    assert clean(log) == 6
    assert [(e.segment, e.leader_epoch, e.start_offset) for e in log.files] == [(0, 0, 1), (0, 1, 5), (9, 1, 9)]
    assert log.epochs.entries == ((0, 0), (1, 4))


def test_a_tombstone_lives_for_delete_retention_ms_after_its_first_cleaning(replicas):
    log = filled(replicas)
    clean(log, now_ms=1_000)
    assert log.state.cleaner.passes == (CleanerPass(12, 1_000),)
    put(log, "i=1", "i=2", "i=3", "i=4", "i=5")
    log.config = compacted(min_cleanable_dirty_ratio=0.0)
    assert clean(log, now_ms=999 + DAY_MS) > 0
    assert "8:c " in words(shown(log))
    put(log, "i=6", "i=7", "i=8")
    assert clean(replicas.log(config=log.config), now_ms=1_000 + DAY_MS) > 0
    log.refresh()
    assert "8:c" not in words(shown(log))
    assert log.state.cleaner.passes[0].end_offset > 12


def test_a_tombstone_hides_its_key_until_it_goes_and_the_key_does_not_come_back(replicas):
    """Also if the older record is in a producer's last batch, which must not be removed altogether."""
    log = replicas.leader(config=compacted(min_cleanable_dirty_ratio=0.0, delete_retention_ms=0))
    append(log, keyed("a=1", producer_id=9, sequence=0))
    put(log, "b=1", "a", "b=2", "b=3", "b=4", "b=5", "b=6", "b=7", "b=8")
    for now_ms in (1_000, 2_000):
        clean(log, now_ms=now_ms)
        put(log, "c=1", "c=2", "c=3")
    assert {key for _, key, _ in shown(log)} == {"b", "c"}
    rows = log.read(0, 1 << 20)
    assert (rows["offset"][0].as_py(), rows["attributes"][0].as_py(), rows["producer_id"][0].as_py()) == (
        0,
        CONTROL_ATTRIBUTE,
        9,
    )
    append(log, keyed("z=1", producer_id=9, sequence=1))
    put(log, "y=1", "y=2", "y=3")
    clean(log, now_ms=3_000)
    assert log.read(0, 1 << 20)["offset"][0].as_py() > 0


def test_records_without_a_key_from_before_the_topic_was_compacted_go(replicas):
    log = replicas.leader()
    put(log, "=1 a=1", "=2")
    log.config = compacted(segment_files_max=1)
    put(log, "b=1", "b=2")
    clean(log)
    assert words(shown(log)) == "1:a=1 4:b=2" if len(log.segments) == 1 else "1:a=1 3:b=1 4:b=2"


def test_producer_state_survives_cleaning_and_a_truncation_behind_it(replicas):
    log = replicas.leader(config=compacted())
    for sequence in range(12):
        append(log, keyed(f"a={sequence}", producer_id=7, sequence=sequence))
    append(log, keyed("a=last"))
    clean(log, high_watermark=10)
    assert log.read(0, 1 << 20)["offset"].to_pylist() == [8, 9, 10, 11, 12]
    log.start_epoch(1, as_leader=True, truncate_to=10)
    assert log.producers.producers[7].batches[-1].last_sequence == 9
    result = append(log, keyed("b=1", producer_id=7, sequence=10), epoch=1).results[0]
    assert (result.base_offset, result.duplicate) == (10, False)


def test_a_log_waits_while_a_producers_older_batches_are_not_known(replicas):
    log = replicas.leader(config=compacted())
    for sequence in range(12):
        append(log, keyed(f"a={sequence}", producer_id=7, sequence=sequence))
    cleaner = cleaner_of(log)
    assert cleaner.begin(view_of(log, 1, high_watermark=6)) is None
    assert cleaner.rest_ms(view_of(log, 1)) == cadence.RECHECK.ms
    assert isinstance(cleaner.begin(view_of(log, 1, high_watermark=8)), Work)


def test_a_pass_ends_where_its_map_is_full_and_the_next_one_goes_on(replicas):
    log = replicas.leader(config=compacted(min_cleanable_dirty_ratio=0.0))
    put(log, *[f"key{i}=1 key{i}=2" for i in range(9)], "key0=3", "z=1", "z=2", "z=3")
    cleaner, positions = cleaner_of(log, map_bytes_max=40), []
    while (done := step(cleaner, view_of(log, 1))) is not None:
        assert done.work == UpkeepWork.COMPACTION
        positions.append(log.state.cleaner.first_dirty_offset)
    assert len(set(positions)) > 3
    assert positions == sorted(positions)
    expected = " ".join(f"{2 * i + 1}:key{i}=2" for i in range(1, 9))
    assert words(shown(log)).startswith(expected + " 18:key0=3 20:z=2")


def begun(replicas: Replicas) -> tuple[PartitionLog, Cleaner, Work]:
    """A pass whose first group is written but not committed yet."""
    log = filled(replicas)
    cleaner = cleaner_of(log)
    work = cleaner.begin(view_of(log, 1))
    work = work.finish(work.run())
    return log, cleaner, work


def test_appends_go_on_while_a_group_is_written_and_other_commits_are_waited_for(replicas):
    log, cleaner, work = begun(replicas)
    written = work.run()
    put(log, "i=1")
    other = replicas.log()
    put(other, "j=1")
    done = work.finish(written)
    assert (done.work, done.count) == (UpkeepWork.COMPACTION, 2)
    step(cleaner, view_of(log, 2, high_watermark=14))
    assert words(shown(log)) == CLEANED + " 14:i=1 15:j=1"


@pytest.mark.parametrize(
    "cut_in",
    [
        lambda log: log.start_epoch(0, as_leader=True, truncate_to=9),
        lambda log: log.start_epoch(1, as_leader=True),
        lambda log: log.replace_files(
            log.files[:1], [], leader_epoch=0, operation="RETENTION", now_ms=1, data_change=True, log_start=2
        ),
    ],
    ids=["truncation", "epoch", "retention"],
)
@pytest.mark.parametrize("is_seen", [True, False])
def test_a_pass_on_a_log_that_changed_under_it_is_dropped(replicas, cut_in: Callable, is_seen: bool):
    log, _, work = begun(replicas)
    written = work.run()
    before = list_files(log)
    cut_in(log if is_seen else replicas.log(config=log.config))
    done = work.finish(written)
    assert done.work == UpkeepWork.LOST_RACE
    assert list_files(log) <= before
    assert log.state.cleaner.first_dirty_offset == 0
    assert {entry.path for entry in log.files} <= {path for path, _ in log.table.list_objects("segment=")}
    assert shown(log) == shown(replicas.log())


def test_a_commit_whose_answer_is_lost_deletes_nothing_and_is_found_out(replicas):
    log, cleaner, work = begun(replicas)
    written = work.run()
    table, commit = log.table, log.table.commit

    def lost(version: int, *given: object, **options: object) -> Conflict:
        commit(version, *given, **options)
        raise StoreUnavailableError("the answer is lost")

    table.commit = lost  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailableError):
        work.finish(written)
    table.commit = commit  # type: ignore[method-assign]
    done = []
    while (each := step(cleaner, view_of(log, 2))) is not None:
        done.append(each.work)
    assert done == [UpkeepWork.LOST_RACE, UpkeepWork.COMPACTION]
    assert words(shown(log)) == words(shown(replicas.log())) == CLEANED


def test_a_reader_that_stands_on_the_old_files_goes_on_in_the_new_ones(replicas):
    log, reader = filled(replicas), replicas.log()
    first = reader.read(0, 1)
    assert first["offset"].to_pylist() == [0, 1]
    old = {entry.path for entry in log.files}
    clean(log)
    log.table.delete_objects(sorted(old - {entry.path for entry in log.files}))
    assert words(shown(reader, 2)) == CLEANED
    assert reader.version == log.version


def test_one_log_is_cleaned_at_a_time_the_dirtiest_first():
    turn, cleaners = CleanerTurn(), [Cleaner(Replicas.new().leader()) for _ in range(3)]
    assert turn.acquire(cleaners[0], 0.6, 0)
    assert not turn.acquire(cleaners[1], 0.7, 10)
    assert not turn.acquire(cleaners[2], 0.9, 20)
    assert turn.acquire(cleaners[0], 0.6, 30)
    turn.release(cleaners[1])
    assert not turn.acquire(cleaners[1], 0.7, 40)
    turn.release(cleaners[0])
    assert not turn.acquire(cleaners[1], 0.7, 50)
    assert turn.acquire(cleaners[2], 0.9, 60)


def test_a_turn_ends_with_its_cleaner_or_when_it_does_nothing_for_long():
    turn, cleaners = CleanerTurn(), [Cleaner(Replicas.new().leader()) for _ in range(2)]
    assert turn.acquire(cleaners[0], 0.9, 0)
    assert not turn.acquire(cleaners[1], 0.5, cadence.CLEANER_LEASE.ms - 1)
    assert turn.acquire(cleaners[1], 0.5, cadence.CLEANER_LEASE.ms)
    del cleaners[1]
    assert turn.acquire(cleaners[0], 0.9, cadence.CLEANER_LEASE.ms + 1)


def test_a_cleaner_without_a_turn_waits_and_one_that_lost_it_begins_anew(replicas):
    log = filled(replicas)
    log.config = compacted(segment_bytes=log.segments[0].size_bytes)
    turn = CleanerTurn()
    cleaner, other = Cleaner(log, turn), Cleaner(log, turn)
    first = step(cleaner, view_of(log, 1))
    assert first == UpkeepDone(UpkeepWork.COMPACTION, 2, log.version)
    assert step(other, view_of(log, 2)) is None
    assert other.rest_ms(view_of(log, 2)) == cadence.RECHECK.ms
    assert turn.acquire(other, 1.0, 1 + cadence.CLEANER_LEASE.ms)
    assert step(cleaner, view_of(log, 2 + cadence.CLEANER_LEASE.ms)) is None
    turn.release(other)
    while step(cleaner, view_of(log, 3 + cadence.CLEANER_LEASE.ms)) is not None:
        pass
    assert words(shown(log)) == CLEANED


def test_an_upkeep_compacts_and_deletes(replicas):
    """Both policies: retention first, then compaction of the rest, and merges beside it."""
    log = filled(
        replicas,
        compacted(
            cleanup_policy="compact,delete",
            retention_ms=DAY_MS,
            file_delete_delay_ms=0,
            stratalog_snapshot_retention_ms=0,
        ),
    )
    upkeep = Upkeep(log, UpkeepLimits(merge_files_min=2, merge_spread_files=0))
    works = []
    while (done := upkeep.step(2_000, log.log_end_offset, 0)) is not None:
        works.append(done.work)
    assert UpkeepWork.COMPACTION in works
    assert words(shown(log)) == CLEANED
    while upkeep.step(2_000 + 2 * DAY_MS, log.log_end_offset, 0) is not None:
        pass
    assert (log.log_start_offset, shown(log)) == (14, [])


def test_a_foreign_reader_sees_the_compacted_log_with_its_offsets(tmp_path):
    log = filled(Replicas.new(tmp_path))
    clean(log)
    log.table.checkpoint()
    rows = pa.table(DeltaTable(str(tmp_path / "1" / "t-0")).to_pyarrow_table()).to_pylist()
    read = sorted((row["base_offset"] + row["offset_delta"], row["key"], row["value"]) for row in rows)
    assert [(offset, key.decode()) for offset, key, _ in read] == [(offset, key) for offset, key, _ in shown(log)]
    assert replicas_position(tmp_path) == log.state.cleaner


def replicas_position(root: Path) -> CleanerCheckpoint:
    """The log as opened from the table's checkpoint."""
    return Replicas.new(root).log().state.cleaner


@pytest.mark.parametrize("segment_count", [2, 5])
def test_a_pass_that_each_process_continues_for_one_group_ends_and_cleans_each_group_once(
    replicas, segment_count: int, monkeypatch: pytest.MonkeyPatch
):
    log = replicas.leader(config=compacted())
    put(log, *[f"a={n} b={n}" for n in range(3 * segment_count + 1)])
    log.config = compacted(segment_bytes=log.segments[0].size_bytes)
    end_offset, cleaned = log.segments[-1].base_offset, []
    clean_files = GroupRewrite.clean

    def noted(rewrite: GroupRewrite, files: Sequence[FileEntry], *, is_last: bool) -> bool:
        cleaned.extend(entry.start_offset for entry in files)
        return clean_files(rewrite, files, is_last=is_last)

    monkeypatch.setattr(GroupRewrite, "clean", noted)
    for number in range(segment_count):
        own = replicas.log(config=log.config)
        done = step(cleaner_of(own), view_of(own, number))
        assert done.work == UpkeepWork.COMPACTION
        log.refresh()
        put(log, "a=x b=x", "c=x d=x", "e=x f=x")
        assert log.state.cleaner.cleaned_end == 6 * (number + 1)
    assert log.state.cleaner.first_dirty_offset == end_offset
    assert log.state.cleaner.under_way is None
    assert cleaned == sorted(set(cleaned))


def test_two_processes_share_a_pass(replicas):
    log = filled(replicas)
    log.config = compacted(segment_bytes=log.segments[0].size_bytes)
    other = replicas.log(config=log.config)
    one, two = cleaner_of(log), cleaner_of(other)
    here, there = one.begin(view_of(log, 1)), two.begin(view_of(other, 1))
    there = there.finish(there.run())
    assert there.finish(there.run()).work == UpkeepWork.COMPACTION
    here = here.finish(here.run())
    assert here.finish(here.run()).work == UpkeepWork.LOST_RACE, "the same group"
    assert step(one, view_of(log, 2)).work == UpkeepWork.COMPACTION
    other.refresh()
    assert step(two, view_of(other, 3)) is None
    assert words(shown(log)) == words(shown(other)) == CLEANED
    assert log.state.cleaner.first_dirty_offset == 12


def test_a_pass_that_ends_within_the_active_segment_by_now_is_begun_anew(replicas):
    """A truncation to its end reopens the segment below, in which the log goes on: it waited for the next roll."""
    log = filled(replicas)
    log.config = compacted(segment_bytes=log.segments[0].size_bytes)
    assert step(cleaner_of(log), view_of(log, 1)).work == UpkeepWork.COMPACTION
    assert log.state.cleaner.under_way is not None
    log.start_epoch(1, as_leader=True, truncate_to=12)
    log.config = compacted(segment_files_max=100)
    put(log, "x=1", epoch=1)
    assert [segment.base_offset for segment in log.segments][-1] < 12
    clean(log)
    assert log.state.cleaner.first_dirty_offset == log.segments[-1].base_offset


def test_a_pass_goes_on_when_its_last_records_were_erased(replicas):
    """Its last segment ends below the pass then: it waited for ever."""
    log = filled(replicas)
    log.config = compacted(segment_bytes=log.segments[0].size_bytes)
    assert step(cleaner_of(log), view_of(log, 1)).work == UpkeepWork.COMPACTION
    erased = [entry for entry in log.files if 10 <= entry.start_offset < 12]
    log.replace_files(erased, [], leader_epoch=0, operation="ERASE", now_ms=1)
    assert [segment.end_offset for segment in log.segments][-2] == 10
    assert step(cleaner_of(log), view_of(log, 2)).work == UpkeepWork.COMPACTION
    assert log.state.cleaner.under_way is None
    assert log.state.cleaner.first_dirty_offset == 12


def test_merges_of_another_session_do_not_end_a_pass(replicas):
    log = filled(replicas)
    log.config = compacted(segment_bytes=log.segments[0].size_bytes)
    cleaner, other = cleaner_of(log), replicas.log(config=log.config)
    assert step(cleaner, view_of(log, 1)).work == UpkeepWork.COMPACTION
    files = [entry for entry in other.files if 6 <= entry.start_offset < 10]
    rows = other.table.read_files([entry.file for entry in files])
    bases = [(entry.file.record_count, entry.base_offset) for entry in files]
    merged = other.table.write_file(rebased_rows(rows, bases, 6), files[0].partition_values)
    other.replace_files(
        files, [replace(files[0], file=merged)], leader_epoch=0, operation="OPTIMIZE", now_ms=1, data_change=False
    )
    log.refresh()
    assert step(cleaner, view_of(log, 2)).work == UpkeepWork.COMPACTION
    assert log.state.cleaner.first_dirty_offset == 12
    assert words(shown(log)) == words(shown(replicas.log())) == CLEANED


def test_a_truncation_below_its_end_forgets_the_pass_under_way():
    position = CleanerCheckpoint().within_pass(100, 40)
    assert CleanerCheckpoint.from_txns(position.txns_after(CleanerCheckpoint())) == position
    assert position.truncated(100).under_way == position.under_way
    assert position.truncated(99).under_way is None
    assert position.after_pass(100, 1, 5).under_way is None
    assert (position.cleaned_end, position.after_pass(100, 1, 5).cleaned_end) == (40, 100)
