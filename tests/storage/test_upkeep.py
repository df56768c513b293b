from __future__ import annotations

import pytest

from storage.config import LogConfig
from storage.table import Committed
from storage.upkeep import DAY_MS, HOUR_MS, Upkeep, UpkeepLimits, UpkeepWork
from tests.storage.logs import MIB, Replicas, append, batch, contents, idempotent, list_files, values, write

FOREVER = 1 << 60


@pytest.fixture
def replicas() -> Replicas:
    return Replicas.new()


def steps(upkeep: Upkeep, now_ms: int, high_watermark: int, epoch: int = 0) -> list[str]:
    """Everything that there is to do at a time."""
    done = []
    while (step := upkeep.step(now_ms, high_watermark, epoch)) is not None:
        done.append(f"{step.work} {step.count}")
    return done


def test_small_files_are_merged_and_deleted_after_their_delay(replicas):
    log = replicas.leader()
    upkeep = Upkeep(log, UpkeepLimits(checkpoint_commits=18))
    write(log, *["a"] * 16)
    before = contents(log)
    assert steps(upkeep, 10_000, 16) == ["merge 16", "checkpoint 1"]
    assert (len(log.files), list_files(log)) == (1, 17)
    assert steps(upkeep, 69_999, 16) == []
    assert steps(upkeep, 90_000, 16) == ["delete files 16"]
    assert list_files(log) == 1
    assert contents(log) == contents(replicas.log()) == before


def test_what_a_merge_replaced_stays_until_the_merge_is_durable(replicas):
    """After a power cut the log may name the small files again (hazards 8)."""
    log = replicas.leader()
    upkeep = Upkeep(log)
    write(log, *["a"] * 16)
    assert steps(upkeep, 10_000, 16) == ["merge 16"]
    assert steps(upkeep, 90_000, 16) == []
    log.start_epoch(1, as_leader=True)
    assert steps(upkeep, 120_000, 16, epoch=1) == ["delete files 16"]


def test_merges_keep_off_what_is_above_the_high_watermark(replicas):
    log = replicas.leader()
    write(log, *["a"] * 20)
    assert steps(Upkeep(log), 1, 15) == []


def test_nothing_to_do_costs_no_access(replicas):
    log = replicas.leader()
    upkeep = Upkeep(log)
    write(log, "a", "b")
    assert upkeep.step(1, 2, 0) is None
    accesses: list[str] = []
    replicas.disks["1"].access = lambda operation, table, detail: accesses.append(operation)
    assert upkeep.step(2, 2, 0) is None
    assert accesses == []


def test_a_lost_race_drops_its_own_file_and_tries_later(replicas):
    log, other = replicas.leader(), replicas.log()
    upkeep = Upkeep(log)
    write(log, *["a"] * 16)
    other.refresh()
    write(other, "b")
    assert steps(upkeep, 1, 16) == ["lost race 16", "merge 16"]
    assert list_files(log) == 18
    assert values(log) == " ".join(["a"] * 16 + ["b"])


def test_upkeep_of_a_fenced_epoch_does_nothing(replicas):
    log = replicas.leader(epoch=1)
    write(log, *["a"] * 16, epoch=1)
    assert Upkeep(log).step(1, 16, 0) is None


def test_a_straggler_merges_nothing_after_a_newer_epoch_started(replicas):
    log, newer = replicas.leader(epoch=1), replicas.log()
    upkeep = Upkeep(log)
    write(log, *["a"] * 16, epoch=1)
    newer.refresh()
    assert isinstance(newer.start_epoch(2, as_leader=True, truncate_to=3), Committed)
    assert steps(upkeep, 1, 16, epoch=1) == ["lost race 16"]
    assert values(log) == "a a a"


def test_checkpoints_and_clean_up_keep_an_hour_and_some_commits(replicas):
    log = replicas.leader()
    upkeep = Upkeep(log, UpkeepLimits(checkpoint_commits=10, keep_commits=5))
    start_ms = replicas.clock.now_ms
    assert steps(upkeep, start_ms, 0) == []
    write(log, *["a"] * 30)
    assert steps(upkeep, start_ms, 0) == ["checkpoint 1"]
    assert steps(upkeep, start_ms + HOUR_MS - 1, 0) == []
    assert steps(upkeep, start_ms + HOUR_MS + 1, 0) == [f"clean log {log.version - 5}"]
    assert log.table.read_commit(log.version - 4) is not None
    assert values(replicas.log()) == " ".join(["a"] * 30)


def test_a_truncated_file_is_deleted_only_below_the_log_end(replicas):
    leader, follower = replicas.leader(epoch=1), replicas.follower("2", 1)
    upkeep = Upkeep(follower)
    write(leader, "a", "b", epoch=1)
    follower.copy_from(leader, 1, MIB)
    replicas.clock.now_ms = 0
    follower.start_epoch(2, as_leader=False, truncate_to=1)
    leader.start_epoch(2, as_leader=True)
    assert steps(upkeep, 1, 0, epoch=2) == []
    assert steps(upkeep, 100_000, 0, epoch=2) == []
    follower.copy_from(leader, 2, MIB)
    assert steps(upkeep, 200_000, 0, epoch=2) == ["delete files 1"]
    assert values(follower) == "a b"


def test_replaced_producer_states_go_when_no_kept_commit_names_them(replicas):
    log = replicas.leader()
    upkeep = Upkeep(log, UpkeepLimits(keep_commits=3))
    for sequence in range(10):
        append(log, idempotent("a", sequence))
    assert len(log.table.list_objects("_producers/")) == 10
    assert steps(upkeep, 5_001, 0) == []
    assert steps(upkeep, 70_000, 0) == ["delete producers 6"]
    assert len(log.table.list_objects("_producers/")) == 4
    assert replicas.log().producers == log.producers


def test_files_that_no_commit_named_go_after_a_week(replicas):
    log = replicas.leader()
    upkeep = Upkeep(log)
    write(log, "a")
    steps(upkeep, 0, 1)
    replicas.clock.now_ms = DAY_MS
    log.table.write_file(log.table.read_file(log.files[0].file), 0)
    log.table.write_object("_producers/00000000000000ff.json", b"{}")
    assert steps(upkeep, 8 * DAY_MS, 1) == []
    assert steps(upkeep, 9 * DAY_MS, 1) == ["sweep 2"]
    assert values(replicas.log()) == "a"


def test_sealed_segments_end_as_one_file_per_epoch(replicas):
    log = replicas.leader(config=LogConfig.from_properties({"segment.files.max": 4}))
    upkeep = Upkeep(log)
    write(log, *"abcdef")
    assert steps(upkeep, 1, FOREVER) == ["merge 4"]
    assert [len(e.path) > 0 and e.segment for e in log.files] == [0, 4, 4]
    assert values(log) == "a b c d e f"


def test_the_tables_stay_readable_for_other_instances_during_upkeep(replicas):
    log, reader = replicas.leader(), replicas.log()
    upkeep = Upkeep(log, UpkeepLimits(checkpoint_commits=20, keep_commits=1, keep_ms=0))
    for i in range(100):
        append(log, batch(f"{i % 10}"))
        steps(upkeep, 10_000 + i * 100_000, log.log_end_offset)
        if i % 17 == 0:
            reader.refresh()
        assert len(reader.read(0, FOREVER, 1)) == 1
    replicas.clock.sleep_ms(20_000)
    reader.refresh()
    assert contents(reader) == contents(log)
    assert len(log.files) < 30
    assert UpkeepWork.MERGE == "merge"
