"""Erasure removes matching records from every file, keeps offsets, and repeats where records may come back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from stratalog.storage.delta.table import Committed
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.rows import merged_rows
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import UpkeepDone, UpkeepLimits, UpkeepView, UpkeepWork, Work
from stratalog.storage.upkeep.erase import Erase, ErasePredicate, erased_by
from stratalog.storage.upkeep.erasure import Erasure
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.storage.logs import FakeClock, Replicas, append, batch, contents, idempotent, list_files, write

BOB = ErasePredicate.parse({"key": {"equals": "bob"}})


def everything(root: Path) -> bytes:
    """The content of all files."""
    return b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())


def erased(log: PartitionLog, *erases: Erase, high_watermark: int | None = None) -> list[tuple[UpkeepWork, int]]:
    """Run it without any other upkeep; the result of each piece."""
    chore = Erasure(lambda: erases)
    done: list[tuple[UpkeepWork, int]] = []
    for _ in range(200):
        bound = log.log_end_offset if high_watermark is None else high_watermark
        work = chore.begin(UpkeepView(log, 1_000, bound, log.leader_epoch))
        if work is None:
            return done
        assert isinstance(work, Work)
        outcome = work.finish(work.run())
        assert isinstance(outcome, UpkeepDone)
        done.append((outcome.work, outcome.count))
    raise AssertionError("it does not end")


def told(log: PartitionLog, erase_id: int) -> tuple[int, int, bool]:
    """Records and files that were erased by the table's txns, and whether the request is complete."""
    found = erased_by(log.state, erase_id)
    return found.record_count, found.file_count, found.is_complete


@pytest.mark.parametrize("root", [None, "delta"])
def test_matching_records_go_and_offsets_stay(tmp_path: Path, root: str | None) -> None:
    replicas = Replicas.new(tmp_path if root else None)
    log = replicas.leader()
    write(log, "a bob c", "bob bob", "d", "bob", "e bob")
    before = log.log_end_offset
    assert erased(log, Erase(1, before, BOB)) == [(UpkeepWork.ERASE, 4)]
    assert contents(log) == [(0, "a"), (2, "c"), (5, "d"), (7, "e")]
    assert (log.log_end_offset, log.log_start_offset) == (before, 0)
    assert told(log, 1) == (5, 4, True)
    write(log, "bob f")
    assert contents(log)[-2:] == [(9, "bob"), (10, "f")], "records after the request stay"
    again = replicas.log()
    assert (contents(again), told(again, 1)) == (contents(log), (5, 4, True))
    assert erased(log, Erase(1, before, BOB)) == []


def test_only_below_the_end_offset() -> None:
    log = Replicas.new().leader()
    write(log, "bob bob bob")
    erased(log, Erase(1, 2, BOB))
    assert contents(log) == [(2, "bob")]


def test_everything_may_go() -> None:
    log = Replicas.new().leader()
    write(log, "bob", "bob bob")
    erased(log, Erase(1, 3, BOB))
    assert (list(log.files), contents(log), log.log_end_offset) == ([], [], 3)
    write(log, "next")
    assert contents(log) == [(3, "next")]


@pytest.mark.parametrize("log_end", [0, 3])
def test_without_a_match_only_the_txn_is_committed(log_end: int) -> None:
    log = Replicas.new().leader()
    write(log, *["a"] * log_end)
    version = log.version
    assert erased(log, Erase(1, log_end, BOB)) == [(UpkeepWork.ERASE, 0)]
    assert (log.version, told(log, 1)) == (version + 1, (0, 0, True))


def test_it_waits_for_the_high_watermark_and_for_the_records() -> None:
    log = Replicas.new().leader()
    write(log, "a", "bob")
    assert erased(log, Erase(1, 2, BOB), high_watermark=1) == []
    assert erased(log, Erase(1, 3, BOB), high_watermark=3) == [], "this replica lacks a record that it may copy"
    assert erased(log, Erase(1, 2, BOB), high_watermark=2) != []


def test_requests_are_done_in_order_and_each_is_counted() -> None:
    log = Replicas.new().leader()
    write(log, "a bob", "eve", "bob")
    eve = ErasePredicate.parse({"value": {"equals": "eve"}})
    erased(log, Erase(1, 2, BOB), Erase(2, 4, eve), Erase(3, 4, BOB))
    assert contents(log) == [(0, "a")]
    assert [told(log, number) for number in (1, 2, 3, 4)] == [
        (1, 1, True),
        (1, 1, True),
        (1, 1, True),
        (0, 0, False),
    ]


def test_a_long_log_is_done_piece_by_piece() -> None:
    log = Replicas.new().leader()
    write(log, *["a bob"] * 150)
    assert erased(log, Erase(1, 300, BOB)) == [(UpkeepWork.ERASE, 64), (UpkeepWork.ERASE, 64), (UpkeepWork.ERASE, 22)]
    assert contents(log) == [(offset, "a") for offset in range(0, 300, 2)]
    assert told(log, 1) == (150, 150, True)


def test_a_merge_in_between_hides_nothing() -> None:
    log = Replicas.new().leader()
    write(log, *["a bob"] * 150)
    chore = Erasure(lambda: [Erase(1, 300, BOB)])
    upkeep = Upkeep(log, UpkeepLimits(merge_files_min=16, merge_spread_files=0))
    for _ in range(50):
        work = chore.begin(UpkeepView(log, 1_000, 300, 0))
        if work is None:
            break
        assert isinstance(work, Work)
        result = work.run()
        upkeep.step(1_000, 300, 0)
        work.finish(result)
    assert contents(log) == [(offset, "a") for offset in range(0, 300, 2)]
    assert erased_by(log.state, 1).is_complete


def test_a_truncation_below_has_it_done_once_more() -> None:
    """A follower that erased, was truncated, and copied from a leader that has not erased yet."""
    replicas = Replicas.new()
    leader, follower = replicas.leader("1"), replicas.follower("2", 0)
    write(leader, "a bob", "b bob")
    follower.copy_from(leader, 0, 1 << 20)
    request = Erase(1, 4, BOB)
    erased(follower, request)
    assert contents(follower) == [(0, "a"), (2, "b")]
    leader.start_epoch(1, as_leader=True)
    assert isinstance(follower.start_epoch(1, as_leader=False, truncate_to=2), Committed)
    assert not erased_by(follower.state, 1).is_complete
    follower.copy_from(leader, 1, 1 << 20)
    assert contents(follower) == [(0, "a"), (2, "b"), (3, "bob")]
    erased(follower, request)
    assert contents(follower) == [(0, "a"), (2, "b")]
    assert told(follower, 1) == (3, 3, True)


@pytest.mark.parametrize(
    ("leader_epoch", "end_offset", "is_done", "left"),
    [
        pytest.param(1, 1, True, "a bob c bob", id="nothing of it is lost"),
        pytest.param(1, 4, True, "a c bob", id="its end is lost, with records at offsets that are written again"),
        pytest.param(1, 9, True, "a c bob", id="its end is lost, and not reached again"),
        pytest.param(0, 9, True, "a bob c bob", id="of an epoch before the records"),
        pytest.param(2, 9, False, "a bob c bob", id="of the present epoch: the records are yet to be copied"),
        pytest.param(-1, 9, False, "a bob c bob", id="of an unknown epoch, as in records of earlier versions"),
        pytest.param(-1, 4, True, "a c", id="of an unknown epoch, once the end is reached"),
    ],
)
def test_a_request_does_not_wait_for_records_that_are_lost(
    leader_epoch: int, end_offset: int, is_done: bool, left: str
) -> None:
    """A log of epoch 1 lost its end with the power, and continues under epoch 2."""
    log = Replicas.new().leader(epoch=1)
    append(log, batch(["a"]), epoch=1)
    append(log, batch(["bob", "c"]), epoch=1)
    log.start_epoch(2, as_leader=True)
    append(log, batch(["bob"]), epoch=2)
    erased(log, Erase(1, end_offset, BOB, leader_epoch))
    assert (told(log, 1)[2], " ".join(value for _, value in contents(log))) == (is_done, left)


def test_what_an_unclean_leader_brings_back_is_erased_once_more() -> None:
    """A replica erased in a log whose end seemed to be lost, and lost no record of its own when that came back."""
    replicas = Replicas.new()
    longer, shorter = replicas.leader("1"), replicas.follower("2", 0)
    request = Erase(1, 4, BOB, leader_epoch=0)
    write(longer, "a bob")
    shorter.copy_from(longer, 0, 1 << 20)
    write(longer, "bob", "c")
    shorter.start_epoch(1, as_leader=True)
    erased(shorter, request)
    assert (contents(shorter), told(shorter, 1)) == ([(0, "a")], (1, 1, True))
    longer.start_epoch(2, as_leader=True)
    shorter.start_epoch(2, as_leader=False, truncate_to=2, leader=longer.epochs)
    assert not erased_by(shorter.state, 1).is_complete
    shorter.copy_from(longer, 2, 1 << 20)
    assert contents(shorter) == [(0, "a"), (2, "bob"), (3, "c")]
    erased(shorter, request)
    assert (contents(shorter), told(shorter, 1)) == ([(0, "a"), (3, "c")], (2, 2, True))


def test_an_epoch_without_records_has_nothing_done_once_more() -> None:
    replicas = Replicas.new()
    leader, follower = replicas.leader("1"), replicas.follower("2", 0)
    write(leader, "a bob")
    follower.copy_from(leader, 0, 1 << 20)
    for log in (leader, follower):
        erased(log, Erase(1, 2, BOB, leader_epoch=0))
    for epoch in (1, 2):
        leader.start_epoch(epoch, as_leader=True)
        follower.start_epoch(epoch, as_leader=False, truncate_to=2, leader=leader.epochs)
    assert [erased_by(log.state, 1).is_complete for log in (leader, follower)] == [True, True]


def test_copies_from_a_leader_that_has_erased_carry_the_gaps() -> None:
    replicas = Replicas.new()
    leader, follower = replicas.leader("1"), replicas.follower("2", 0)
    write(leader, "a bob", "bob", "c bob")
    erased(leader, Erase(1, 5, BOB))
    follower.copy_from(leader, 0, 1 << 20)
    assert contents(follower) == contents(leader) == [(0, "a"), (3, "c")]
    assert follower.log_end_offset == 5
    assert not erased_by(follower.state, 1).is_complete, "it reads its own files"
    erased(follower, Erase(1, 5, BOB))
    assert told(follower, 1) == (0, 0, True)


def test_a_producer_goes_on_as_if_nothing_had_gone() -> None:
    log = Replicas.new().leader()
    append(log, idempotent(["bob"], 0), idempotent(["bob", "x"], 1))
    erased(log, Erase(1, 3, BOB))
    (result,) = append(log, idempotent(["bob", "x"], 1)).results
    assert getattr(result, "duplicate", False)
    append(log, idempotent(["y"], 3))
    assert contents(log) == [(2, "x"), (3, "y")]


def test_what_was_erased_leaves_storage_after_the_delay(tmp_path: Path) -> None:
    replicas = Replicas.new(tmp_path)
    clock: FakeClock = replicas.clock
    clock.now_ms = 1_700_000_000_000
    log = replicas.leader(config=LogConfig.from_properties({"file.delete.delay.ms": "60000", "retention.ms": "-1"}))
    write(log, "secret bob", "bob", "other")
    match = ErasePredicate.parse({"value": {"in": ["bob", "secret"]}})
    requests: list[Erase] = []
    upkeep = Upkeep(log, erases=lambda: requests)

    def keep_up(passed_ms: int) -> None:
        clock.now_ms += passed_ms
        for _ in range(10):
            upkeep.step(clock.now_ms, log.log_end_offset, 0)

    keep_up(0)
    requests.append(Erase(1, 4, match))
    keep_up(1_000)
    assert contents(log) == [(3, "other")]
    assert list_files(log) == 3
    assert b"secret" in everything(tmp_path)
    keep_up(58_000)
    assert list_files(log) == 3
    assert 0 < upkeep.rest_ms(clock.now_ms) <= 2_000
    keep_up(2_000)
    keep_up(20_000)
    assert list_files(log) == 1
    assert b"secret" not in everything(tmp_path)
    assert b"other" in everything(tmp_path)
    rows: Any = DeltaTable(str(tmp_path / "1" / "t-0")).to_pyarrow_table().to_pylist()
    assert [(row["base_offset"] + row["offset_delta"], row["value"]) for row in rows] == [(3, b"other")]


def test_a_log_that_never_erased_owes_no_checkpoint() -> None:
    replicas = Replicas.new()
    log = replicas.leader(config=LogConfig.from_properties({"file.delete.delay.ms": "0"}))
    write(log, "a", "b")
    log.start_epoch(1, as_leader=True, truncate_to=1)
    view = UpkeepView(log, 1 << 40, 1, 1)
    chore = Erasure(list)
    assert (chore.begin(view), chore.rest_ms(view)) == (None, None)


def test_a_batch_of_which_a_part_went_is_read_around_the_gap() -> None:
    log = Replicas.new().leader()
    append(log, batch(["a", "bob", "c"]), batch(["bob", "bob"]), batch(["d"]))
    erased(log, Erase(1, 6, BOB))
    assert [log.read(offset, 1 << 20)["offset"].to_pylist() for offset in (1, 3, 5, 6)] == [[2, 5], [5], [5], []]


def test_a_merge_of_a_leader_that_has_not_erased_brings_nothing_back() -> None:
    """Its file may cover the same offsets with as many records: it lacks another one, which was compacted there."""
    replicas = Replicas.new()
    leader, follower = replicas.leader("1"), replicas.follower("2", 0)
    append(leader, batch(["a", "bob", "c"]))
    append(leader, batch(["d", "e", "f"]))
    follower.copy_from(leader, 0, 1 << 20)
    erased(follower, Erase(1, 6, BOB))
    first, second = leader.files
    compacted = leader.table.read_file(second.file).slice(1)
    rows = merged_rows([(leader.table.read_file(first.file), 0), (compacted, 3)], 0)
    merged = replace(first, file=leader.table.write_file(rows, first.partition_values))
    leader.replace_files([first, second], [merged], leader_epoch=0, operation="OPTIMIZE", now_ms=1, data_change=True)
    assert leader.files[0].file.record_count == sum(entry.file.record_count for entry in follower.files)
    limits = UpkeepLimits(merge_files_min=2, merge_spread_files=0, leader_first_ms=1 << 40)
    upkeep = Upkeep(follower, limits, leader=leader)
    leader.refresh()
    for _ in range(5):
        upkeep.step(1_000, 6, 0)
    assert [value for _, value in contents(follower)] == ["a", "c", "d", "e", "f"]
