"""A pass of an erasure belongs to the log: it goes on in another process, and begins again where records came again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.storage.delta.table import Committed
from stratalog.storage.log.cleaner_checkpoint import GONE_TOMBSTONES
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.rows import rebased_rows
from stratalog.storage.upkeep import erasure
from stratalog.storage.upkeep.chore import UpkeepDone, UpkeepView, UpkeepWork, Work
from stratalog.storage.upkeep.erase import Erase, ErasePredicate, erased_by
from stratalog.storage.upkeep.erasure import Erasure
from tests.storage.logs import MIB, Replicas, contents, values, write

BOB = ErasePredicate.parse({"key": {"equals": "bob"}})
EVE = ErasePredicate.parse({"key": {"equals": "eve"}})
FILES = 4
"""Files of one piece in these tests."""


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure, "FILES_MAX", FILES)


def begun(log: PartitionLog, *erases: Erase, chore: Erasure | None = None) -> Work[object] | None:
    """The next piece; without `chore` in a process that knows nothing but the table."""
    chore = chore or Erasure(lambda: erases)
    work = chore.begin(UpkeepView(log, 1_000, log.log_end_offset, log.leader_epoch))
    assert work is None or isinstance(work, Work)
    return work


def ended(work: Work[object] | None) -> UpkeepDone | None:
    """A piece's result; some pieces that find nothing are done together."""
    done = None if work is None else work.finish(work.run())
    return ended(done) if isinstance(done, Work) else done


def pieces(log: PartitionLog, *erases: Erase, count_max: int = 100, chore: Erasure | None = None) -> list[int]:
    """The files that each piece removes, without `chore` each in a process of its own."""
    counts: list[int] = []
    while len(counts) < count_max and (done := ended(begun(log, *erases, chore=chore))) is not None:
        assert done.work is UpkeepWork.ERASE
        counts.append(done.count)
    return counts


def is_done(log: PartitionLog, erase_id: int) -> bool:
    return erased_by(log.state, erase_id).is_complete


def bobs(log: PartitionLog) -> list[int]:
    return [offset for offset, value in contents(log) if value == "bob"]


def test_a_pass_goes_on_in_another_process() -> None:
    log = Replicas.new().leader()
    write(log, *["a bob"] * 10)
    assert pieces(log, Erase(1, 20, BOB)) == [4, 4, 2]
    assert (values(log), is_done(log, 1)) == ("a " * 9 + "a", True)


def test_a_pass_goes_on_under_a_later_leader_epoch() -> None:
    log = Replicas.new().leader()
    write(log, *["a bob"] * 10)
    request = Erase(1, 20, BOB)
    assert pieces(log, request, count_max=1) == [4]
    assert isinstance(log.start_epoch(1, as_leader=True), Committed)
    assert pieces(log, request) == [4, 2]
    assert (bobs(log), is_done(log, 1)) == ([], True)


def test_a_pass_that_finds_nothing_states_how_far_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure, "PIECES_MAX", 2)
    log = Replicas.new().leader()
    write(log, *["a"] * 5 * FILES)
    version = log.version
    assert pieces(log, Erase(1, 20, BOB)) == [0, 0, 0]
    assert (log.version, is_done(log, 1)) == (version + 3, True)


def test_one_pass_does_all_requests_that_are_ready() -> None:
    log = Replicas.new().leader()
    write(log, *["a bob eve", "eve"] * 4, "bob")
    requests = [Erase(1, 8, BOB), Erase(2, 17, EVE), Erase(3, 17, BOB), Erase(4, 18, BOB)]
    assert pieces(log, *requests[:3]) == [4, 4, 1]
    assert contents(log) == [(offset, "a") for offset in (0, 4, 8, 12)]
    found = [erased_by(log.state, each.erase_id) for each in requests]
    assert [(each.record_count, each.file_count, each.is_complete) for each in found] == [
        (2, 2, True),
        (8, 8, True),
        (3, 3, True),
        (0, 0, False),
    ]


def test_a_request_that_comes_meanwhile_has_a_pass_of_its_own() -> None:
    log = Replicas.new().leader()
    write(log, *["a bob eve"] * 6)
    first, second = Erase(1, 18, BOB), Erase(2, 18, EVE)
    assert pieces(log, first, count_max=1) == [4]
    assert pieces(log, first, second, count_max=1) == [2]
    assert (is_done(log, 1), is_done(log, 2)) == (True, False)
    assert pieces(log, first, second) == [4, 2]
    assert (values(log), is_done(log, 2)) == ("a a a a a a", True)


@pytest.mark.parametrize("is_one_process", [True, False])
def test_a_log_that_is_emptied_and_copied_anew_is_read_from_its_start(is_one_process: bool) -> None:
    """In one leader epoch: the follower was away until tombstones above its end were gone from its leader's log."""
    replicas = Replicas.new()
    leader, follower = replicas.leader("1"), replicas.follower("2", 0)
    write(leader, *["a bob"] * 10)
    follower.copy_from(leader, 0, MIB)
    request = Erase(1, 20, BOB)
    chore = Erasure(lambda: [request]) if is_one_process else None
    assert pieces(follower, request, count_max=2, chore=chore) == [4, 4]
    write(leader, "c")
    leader.replace_files([], [], leader_epoch=0, operation="COMPACT", now_ms=1, txns={GONE_TOMBSTONES: 21})
    follower.copy_from(leader, 0, MIB)
    assert (list(follower.files), follower.log_end_offset) == ([], 0)
    follower.copy_from(leader, 0, MIB)
    assert len(bobs(follower)) == 10
    assert pieces(follower, request, chore=chore) == [4, 4, 2]
    assert (bobs(follower), is_done(follower, 1)) == ([], True)


def test_a_log_that_is_emptied_under_a_piece_of_work_is_read_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the piece has read are there again, and one that was not: its records had been compacted."""
    replicas = Replicas.new()
    leader, follower = replicas.leader("1"), replicas.follower("2", 0)
    write(leader, "a", "bob", "c")
    follower.copy_from(leader, 0, MIB)
    compacted = [entry for entry in follower.files if entry.start_offset == 1]
    follower.replace_files(compacted, [], leader_epoch=0, operation="COMPACT", now_ms=1)
    request = Erase(1, 3, BOB)
    work = begun(follower, request)
    write(leader, "d")
    leader.replace_files([], [], leader_epoch=0, operation="COMPACT", now_ms=1, txns={GONE_TOMBSTONES: 4})
    for _ in range(2):
        follower.copy_from(leader, 0, MIB)
    assert bobs(follower) == [1]
    done = ended(work)
    assert done is not None
    assert (done.work, is_done(follower, 1)) == (UpkeepWork.LOST_RACE, False)
    assert pieces(follower, request) == [1]
    assert (values(follower), is_done(follower, 1)) == ("a c d", True)


@pytest.mark.parametrize(
    ("cut", "left"),
    [
        pytest.param(20, [4, 2], id="at its end, above the pass"),
        pytest.param(18, [4, 2], id="above the pass"),
        pytest.param(4, [4, 4], id="in what the pass has gone by"),
        pytest.param(0, [4, 4, 2], id="to nothing"),
    ],
)
def test_a_truncation_takes_a_pass_back_to_the_logs_end(cut: int, left: list[int]) -> None:
    replicas = Replicas.new()
    leader, follower = replicas.leader("1"), replicas.follower("2", 0)
    write(leader, *["a bob"] * 10)
    follower.copy_from(leader, 0, MIB)
    request = Erase(1, 20, BOB)
    assert pieces(follower, request, count_max=1) == [4]
    leader.start_epoch(1, as_leader=True)
    assert isinstance(follower.start_epoch(1, as_leader=False, truncate_to=cut), Committed)
    follower.copy_from(leader, 1, MIB)
    assert pieces(follower, request) == left
    assert (bobs(follower), is_done(follower, 1)) == ([], True)


def test_what_was_erased_below_a_truncation_is_not_read_again() -> None:
    replicas = Replicas.new()
    leader, follower = replicas.leader("1"), replicas.follower("2", 0)
    write(leader, *["a bob"] * 10)
    follower.copy_from(leader, 0, MIB)
    requests = [Erase(1, 12, EVE), Erase(2, 20, BOB)]
    assert pieces(follower, *requests) == [4, 4, 2]
    leader.start_epoch(1, as_leader=True)
    assert isinstance(follower.start_epoch(1, as_leader=False, truncate_to=16), Committed)
    assert not is_done(follower, 1)
    follower.copy_from(leader, 1, MIB)
    assert len(bobs(follower)) == 2
    assert pieces(follower, *requests) == [2]
    assert (bobs(follower), is_done(follower, 2)) == ([], True)


def test_a_request_does_not_wait_for_a_later_one_of_the_same_pass_whose_records_are_gone() -> None:
    """Both were done once; then the log was cut below the end of the second, of which nobody knows whether it comes."""
    log = Replicas.new().leader()
    write(log, *["a bob"] * 3, "eve")
    requests = [Erase(1, 6, BOB), Erase(2, 7, EVE)]
    assert pieces(log, *requests) == [4]
    assert isinstance(log.start_epoch(1, as_leader=True, truncate_to=5), Committed)
    write(log, "bob", epoch=1)
    assert pieces(log, *requests) == [1]
    assert (bobs(log), is_done(log, 1), is_done(log, 2)) == ([], True, False)
    write(log, "eve", epoch=1)
    assert pieces(log, *requests) == [1]
    assert (values(log), is_done(log, 2)) == ("a a a", True)


def test_two_processes_of_one_replica_share_a_pass() -> None:
    replicas = Replicas.new()
    log = replicas.leader()
    write(log, *["a bob"] * 10)
    request, other = Erase(1, 20, BOB), replicas.log()
    mine, theirs = begun(log, request), begun(other, request)
    first, second = ended(mine), ended(theirs)
    assert [done.work for done in (first, second) if done is not None] == [UpkeepWork.ERASE, UpkeepWork.LOST_RACE]
    assert pieces(other, request) == [4, 2]
    log.refresh()
    assert pieces(log, request) == []
    assert (bobs(log), is_done(log, 1)) == ([], True)


def test_a_merge_across_the_position_is_read_again() -> None:
    log = Replicas.new().leader()
    write(log, *["a bob"] * 6)
    request = Erase(1, 12, BOB)
    assert pieces(log, request, count_max=1) == [4]
    merged = log.files[3:5]
    rows = log.table.read_files([entry.file for entry in merged])
    bases = [(entry.file.record_count, entry.base_offset) for entry in merged]
    file = log.table.write_file(rebased_rows(rows, bases, merged[0].base_offset), merged[0].partition_values)
    entry = replace(merged[0], file=file)
    log.replace_files(merged, [entry], leader_epoch=0, operation="OPTIMIZE", now_ms=1, data_change=False)
    assert pieces(log, request) == [2]
    assert (values(log), is_done(log, 1)) == ("a a a a a a", True)
