from __future__ import annotations

import pytest

from stratalog.storage.delta.table import Committed, Conflict
from stratalog.storage.errors import FencedLeaderEpochError, OffsetOutOfRangeError, UnknownLeaderEpochError
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log import copy
from stratalog.storage.log.append import BatchAppended, HandedFiles
from stratalog.storage.log.copy import Copied, is_behind, lacks_records
from stratalog.storage.log.leader_epochs import LeaderEpochCache
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.rows import merged_rows
from stratalog.storage.producers import Duplicate, SinkBatch
from stratalog.storage.records import data_table
from stratalog.storage.topic_config import LogConfig
from tests.storage.logs import (
    MIB,
    Replicas,
    append,
    batch,
    contents,
    delete_records,
    idempotent,
    started,
    values,
    write,
)


def merge(log: PartitionLog, first: int, last: int, epoch: int = 0) -> None:
    """Merge files `first` to `last` (inclusive) of a log into one."""
    old = log.files[first : last + 1]
    rows = merged_rows([(log.table.read_file(e.file), e.base_offset) for e in old], old[0].base_offset)
    file = log.table.write_file(rows, old[0].partition_values)
    new = FileEntry(file, old[0].segment, old[0].leader_epoch, old[0].base_offset)
    outcome = log.replace_files(old, [new], leader_epoch=epoch, operation="OPTIMIZE", now_ms=1, data_change=False)
    assert isinstance(outcome, Committed)


def truncate_to_leader(log: PartitionLog, leader: PartitionLog, epoch: int) -> int:
    cut = LeaderEpochCache.agreed_end(
        log.epochs, log.log_end_offset, leader.epochs, leader.log_end_offset, leader.log_start_offset
    )
    assert isinstance(log.start_epoch(epoch, as_leader=False, truncate_to=cut), Committed)
    return cut


def test_a_copy_is_the_same_files_under_the_same_labels(replicas):
    leader, follower = replicas.leader(), replicas.follower("2", 0)
    write(leader, "a b", "c")
    assert follower.copy_from(leader, 0, MIB) == Copied(0, 3, 2)
    assert follower.files == leader.files
    assert follower.epochs == leader.epochs
    assert follower.copy_from(leader, 0, MIB) == Copied(3, 3, 2)
    assert contents(replicas.log("2")) == contents(leader)


def test_a_backlog_is_copied_in_bounded_rounds(replicas):
    leader, follower = replicas.leader(), replicas.follower("2", 0)
    write(leader, "a", "b", "c")
    size = leader.files[0].file.size_bytes
    ends = [follower.copy_from(leader, 0, size * 2).end_offset for _ in range(2)]
    assert ends == [2, 3]
    write(leader, "d", "e")
    assert follower.copy_from(leader, 0, 0).end_offset == 4


def test_a_round_of_small_files_is_bounded_too(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "ROUND_FILES_MAX", 2)
    leader, follower = replicas.leader(), replicas.follower("2", 0)
    write(leader, "a", "b", "c", "d", "e")
    rounds = [follower.copy_from(leader, 0, MIB) for _ in range(3)]
    assert [(each.start_offset, each.end_offset) for each in rounds] == [(0, 2), (2, 4), (4, 5)]


def test_a_merged_file_that_straddles_the_log_end_is_sliced(replicas):
    leader, follower = replicas.leader(), replicas.follower("2", 0)
    write(leader, "a", "b c")
    follower.copy_from(leader, 0, MIB)
    write(leader, "d e", "f")
    merge(leader, 0, 3)
    assert follower.copy_from(leader, 0, MIB).end_offset == 6
    assert values(follower) == "a b c d e f"
    assert follower.files[-1].path != leader.files[-1].path
    assert follower.files[-1].base_offset == 0
    assert [t["batch_base_offset"].to_pylist() for t in follower.read_range(3, 6)] == [[3, 3, 5]]


def test_offsets_that_the_leader_lacks_are_gaps(replicas):
    leader, follower = replicas.leader(), replicas.follower("2", 0)
    write(leader, "a", "b", "c", "d", "e")
    gone = [leader.files[1], leader.files[4]]
    leader.replace_files(gone, [], leader_epoch=0, operation="COMPACT", now_ms=1, data_change=True)
    follower.copy_from(leader, 0, MIB)
    assert follower.log_end_offset == 5
    assert contents(follower) == [(0, "a"), (2, "c"), (3, "d")]
    assert follower.read(4, MIB).num_rows == 0


def test_a_gap_at_the_end_moves_the_log_end_alone(replicas):
    leader, follower = replicas.leader(), replicas.follower("2", 0)
    write(leader, "a", "b")
    leader.replace_files(leader.files, [], leader_epoch=0, operation="COMPACT", now_ms=1, data_change=True)
    assert follower.copy_from(leader, 0, MIB).end_offset == 2
    assert follower.files == []


def test_the_log_start_follows_and_a_follower_below_it_starts_anew(replicas):
    leader, follower, late = replicas.leader(), replicas.follower("2", 0), replicas.follower("3", 0)
    write(leader, "a", "b", "c", "d")
    follower.copy_from(leader, 0, MIB)
    late.copy_from(leader, 0, 0)
    leader.replace_files(
        leader.files[:2], [], leader_epoch=0, operation="DELETE", now_ms=1, data_change=True, log_start=2
    )
    assert follower.copy_from(leader, 0, MIB).end_offset == 4
    assert follower.log_start_offset == 2
    assert late.copy_from(leader, 0, MIB) == Copied(2, 4, late.version)
    assert (late.log_start_offset, values(late), late.epochs.entries) == (2, "c d", ((0, 2),))


@pytest.mark.parametrize(
    ("own", "leaders", "asked", "refused"),
    [
        (2, 1, 2, UnknownLeaderEpochError),
        (1, 2, 2, UnknownLeaderEpochError),
        (2, 3, 2, FencedLeaderEpochError),
        (3, 2, 2, FencedLeaderEpochError),
    ],
    ids=["the leader has not started", "the follower has not started", "a newer leader", "a newer follower session"],
)
def test_a_copy_needs_both_tables_at_exactly_its_epoch(replicas, own, leaders, asked, refused):
    leader, follower = replicas.leader(epoch=leaders), replicas.follower("2", own)
    with pytest.raises(refused):
        follower.copy_from(leader, asked, MIB)


def test_a_late_session_gets_conflict_and_then_fenced_leader_epoch(replicas):
    leader, straggler = replicas.leader(epoch=1), replicas.follower("2", 1)
    write(leader, "a", epoch=1)
    replicas.follower("2", 2)
    assert isinstance(straggler.copy_from(leader, 1, MIB), Conflict)
    straggler.refresh()
    with pytest.raises(FencedLeaderEpochError):
        straggler.copy_from(leader, 1, MIB)


def test_a_diverging_follower_must_truncate_before_it_copies(replicas):
    old, new = replicas.leader("1", epoch=1), replicas.follower("2", 1)
    write(old, "a", epoch=1)
    new.copy_from(old, 1, MIB)
    write(old, "m", "n", epoch=1)
    started(new, 2)
    write(new, "x", epoch=2)
    old.start_epoch(2, as_leader=False)
    with pytest.raises(OffsetOutOfRangeError, match="truncate first"):
        old.copy_from(new, 2, MIB)
    assert truncate_to_leader(old, new, 2) == 1
    old.copy_from(new, 2, MIB)
    assert values(old) == "a x"
    assert old.epochs == new.epochs


def test_truncation_is_one_commit_with_the_log_end_and_the_epochs(replicas):
    log = replicas.leader(epoch=1)
    write(log, "a", "b c", epoch=1)
    started(log, 4)
    write(log, "d", epoch=4)
    before = log.version
    assert log.start_epoch(5, as_leader=False, truncate_to=1) == Committed(before + 1)
    reopened = replicas.log()
    for seen in (log, reopened):
        assert (seen.log_end_offset, seen.leader_epoch, values(seen)) == (1, 5, "a")
        assert seen.epochs.entries == ((1, 0),)


def test_truncation_slices_a_straddling_file_at_a_batch_boundary(replicas):
    log = replicas.leader()
    append(log, batch("ab"), batch("cde"), batch("f"))
    assert isinstance(log.start_epoch(1, as_leader=False, truncate_to=5), Committed)
    assert (log.log_end_offset, values(log)) == (5, "a b c d e")
    assert isinstance(log.start_epoch(2, as_leader=False, truncate_to=4), Committed)
    assert (log.log_end_offset, values(log)) == (4, "a b"), "the batch that the cut goes through is dropped"


def test_truncation_to_zero_empties_the_log(replicas):
    log = replicas.leader()
    write(log, "a", "b")
    log.start_epoch(1, as_leader=True, truncate_to=0)
    assert (log.log_end_offset, log.files, log.epochs.entries) == (0, [], ((1, 0),))
    write(log, "c", epoch=1)
    assert contents(log) == [(0, "c")]


def test_a_log_start_above_the_log_end_empties_the_log_there(replicas):
    log = replicas.leader()
    write(log, "a")
    log.start_epoch(1, as_leader=False, log_start=7)
    assert (log.log_start_offset, log.log_end_offset, log.files, log.epochs.entries) == (7, 7, [], ())


def test_an_epoch_without_records_is_dropped_by_the_truncation_check(replicas):
    old, new = replicas.leader("1", epoch=1), replicas.follower("2", 1)
    write(old, "a", epoch=1)
    new.copy_from(old, 1, MIB)
    started(old, 3)
    started(new, 4)
    write(new, "b", epoch=4)
    started(new, 6)
    write(new, "c", epoch=6)
    truncate_to_leader(old, new, 6)
    old.copy_from(new, 6, MIB)
    assert old.epochs.entries == new.epochs.entries == ((1, 0), (4, 1), (6, 2))


def test_the_epoch_in_force_of_a_log_without_records_gives_way_to_those_that_wrote(replicas):
    """The newest leader has records of an older epoch there, as after an unclean election."""
    old, new = replicas.leader("1", epoch=1), replicas.follower("2", 1)
    write(old, "a b", epoch=1)
    new.copy_from(old, 1, MIB)
    started(new, 2)
    write(new, "x", epoch=2)
    old.start_epoch(3, as_leader=True, log_start=2)
    assert old.epochs.entries == ((3, 2),)
    started(new, 4)
    write(new, "y", epoch=4)
    assert truncate_to_leader(old, new, 4) == 2
    old.copy_from(new, 4, MIB)
    assert (values(old), old.epochs.entries) == ("x y", ((2, 2), (4, 3)))


def test_truncation_truncates_producer_and_sink_state(replicas):
    log = replicas.leader()
    append(log, idempotent("ab", 0))
    append(log, idempotent("c", 2))
    log.start_epoch(1, as_leader=True, truncate_to=2)
    assert append(replicas.log(), idempotent("ab", 0), epoch=1).results == (BatchAppended(0, 1, duplicate=True),)
    log.refresh()
    assert append(log, idempotent("c", 2), epoch=1).results == (BatchAppended(2, 2),)


def test_a_producer_without_remembered_batches_is_found_in_the_rows(replicas):
    log = replicas.leader()
    for sequence in range(8):
        append(log, idempotent("a", sequence))
    merge(log, 0, 1)
    log.start_epoch(1, as_leader=True, truncate_to=2)
    assert log.producers.check(7, 0, 1, 1) == Duplicate(1, 1)
    assert append(log, idempotent("b", 2), epoch=1).results == (BatchAppended(2, 2),)


def test_a_full_copy_carries_producer_and_sink_state(replicas):
    leader, follower = replicas.leader(), replicas.follower("2", 0)
    append(leader, idempotent("ab", 0))
    follower.copy_from(leader, 0, MIB)
    assert replicas.log("2").producers == leader.producers
    started(follower, 1)
    assert append(follower, idempotent("ab", 0), epoch=1).results == (BatchAppended(0, 1, duplicate=True),)


def test_a_partial_copy_knows_no_batch_that_it_does_not_hold(replicas):
    leader, follower = replicas.leader(), replicas.follower("2", 0)
    for sequence in range(7):
        append(leader, idempotent("a", sequence))
    leader._producers = leader.producers.with_sink("q", SinkBatch(1, 0, 1)).with_sink("q", SinkBatch(2, 6, 1))
    follower.copy_from(leader, 0, 0)
    started(follower, 1)
    assert follower.producers.check(7, 0, 0, 1) == Duplicate(0, 0)
    assert follower.producers.check_sink("q", 1) == Duplicate(-1, 0)
    assert append(follower, idempotent("b", 1), epoch=1).results == (BatchAppended(1, 1),)


def test_a_copy_round_takes_a_sinks_batch_of_several_files_wholly(replicas):
    """Half of it without its record in producer state would be appended again by the sink's retry to a new leader."""
    leader, follower = replicas.leader(), replicas.follower("2", 0)
    write(leader, "x")
    files = tuple(leader.table.write_file(data_table([batch(words)]), None) for words in ("ab", "cd"))
    hand_over = HandedFiles(files, "query", 7)
    leader.append_files([hand_over], 0, 1)
    write(leader, "y")
    assert [follower.copy_from(leader, 0, 1).end_offset for _ in range(3)] == [1, 5, 6]
    started(follower, 1)
    assert follower.append_files([hand_over], 1, 1).results[0].duplicate


def test_a_file_merged_away_on_the_leader_while_it_is_copied_is_resolved_again(replicas):
    leader, follower = replicas.leader(), replicas.follower("2", 0)
    write(leader, "a", "b", "c")
    stale = replicas.log("1")
    assert stale.log_end_offset == 3
    old = [entry.path for entry in leader.files]
    merge(leader, 0, 2)
    leader.table.delete_objects(old)
    assert follower.copy_from(stale, 0, MIB).end_offset == 3
    assert values(follower) == "a b c"


def test_a_file_that_left_the_log_is_copied_under_a_new_name(replicas):
    leader, follower = replicas.leader(epoch=1), replicas.follower("2", 1)
    write(leader, "a", "b", epoch=1)
    follower.copy_from(leader, 1, MIB)
    follower.start_epoch(1, as_leader=False, truncate_to=1)
    follower.copy_from(leader, 1, MIB)
    assert values(follower) == "a b"
    assert follower.files[1].path not in follower.state.removed


def test_followers_roll_segments_as_their_leader_did(replicas):
    leader = replicas.leader(config=LogConfig.from_properties({"segment.files.max": 1}))
    follower = replicas.follower("2", 0)
    write(leader, "a", "b")
    follower.copy_from(leader, 0, MIB)
    assert [s.base_offset for s in follower.segments] == [0, 1]


@pytest.mark.parametrize(
    ("appends", "deleted_to", "lacks", "behind"), [(0, 0, False, False), (2, 0, True, True), (0, 3, False, True)]
)
def test_a_log_is_behind_exactly_when_a_copy_changes_it(
    replicas: Replicas, appends: int, deleted_to: int, lacks: bool, behind: bool
) -> None:
    leader, follower = replicas.leader(), replicas.follower("2", 0)
    append(leader, batch("abc"))
    follower.copy_from(leader, 0, MIB)
    for _ in range(appends):
        append(leader, batch("de"))
    if deleted_to:
        delete_records(leader, deleted_to)
    assert (lacks_records(follower, leader), is_behind(follower, leader)) == (lacks, behind)
    version = follower.version
    follower.copy_from(leader, 0, MIB)
    assert (follower.version > version, is_behind(follower, leader)) == (behind, False)
