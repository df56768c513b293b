from __future__ import annotations

import pytest

from stratalog.storage.cadence import DAY_MS, HOUR_MS
from stratalog.storage.delta.table import Committed
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import UpkeepDone, UpkeepLimits, UpkeepWork
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.storage.hand_executor import HandExecutor
from tests.storage.logs import (
    MIB,
    CountingIds,
    FakeClock,
    Replicas,
    append,
    batch,
    contents,
    idempotent,
    list_files,
    started,
    values,
    write,
)
from tests.storage.memory_table import MemoryDisk, MemoryLogTable

FOREVER = 1 << 60


@pytest.fixture
def replicas() -> Replicas:
    return Replicas.new()


LIMITS = UpkeepLimits(merge_files_min=16, merge_spread_files=0)


def steps(upkeep: Upkeep, now_ms: int, high_watermark: int, epoch: int = 0) -> list[str]:
    """All steps that are due at a time."""
    done = []
    while (step := upkeep.step(now_ms, high_watermark, epoch)) is not None:
        done.append(f"{step.work} {step.count}")
    return done


def test_small_files_are_merged_and_deleted_after_their_delay(replicas):
    log = replicas.leader()
    upkeep = Upkeep(log, UpkeepLimits(merge_files_min=16, merge_spread_files=0, garbage_ms=60_000))
    write(log, *["a"] * 16)
    before = contents(log)
    assert steps(upkeep, 10_000, 16) == ["merge 16"]
    assert (len(log.files), list_files(log)) == (1, 17)
    assert steps(upkeep, 69_999, 16) == []
    assert steps(upkeep, 90_000, 16) == ["checkpoint 1", "delete files 16"]
    assert list_files(log) == 1
    assert contents(log) == contents(replicas.log()) == before
    assert (upkeep.rest_ms(90_000) > 60_000, len(log.state.removed)) == (True, 0)


def test_what_a_merge_replaced_stays_until_a_checkpoint_makes_the_merge_durable(replicas):
    """After a power cut the log may name the small files again (promise 5)."""
    log = replicas.leader()
    upkeep = Upkeep(log, LIMITS)
    write(log, *["a"] * 16)
    assert steps(upkeep, 10_000, 16) == ["merge 16"]
    assert steps(upkeep, 90_000, 16) == []
    log.state.made_durable(log.table.checkpoint())
    assert steps(upkeep, 120_000, 16) == ["delete files 16"]


def test_a_log_whose_removals_wait_for_a_checkpoint_rests_until_that_is_due():
    """With `file.delete.delay.ms` of 0 it must not ask again and again for a deletion that may not be made yet."""
    config = LogConfig.from_properties(
        {"file.delete.delay.ms": 0, "stratalog.snapshot.retention.ms": 0, "retention.ms": -1}
    )
    log = Replicas.new().leader(config=config)
    upkeep = Upkeep(log, UpkeepLimits(merge_files_min=16, merge_spread_files=0, garbage_ms=60_000))
    write(log, *["a"] * 16)
    assert steps(upkeep, 10_000, 16) == ["merge 16"]
    assert upkeep.rest_ms(10_000) == 10_000
    assert steps(upkeep, 69_990, 16) == []
    assert upkeep.rest_ms(69_990) == 10
    assert steps(upkeep, 70_000, 16) == ["checkpoint 1"]
    assert steps(upkeep, 70_000 + upkeep.rest_ms(70_000), 16) == ["delete files 16"]


def test_much_garbage_brings_its_checkpoint_at_once(replicas):
    """Under full load with retention the disk would be full long before so many commits or minutes."""
    log = replicas.leader()
    upkeep = Upkeep(log, UpkeepLimits(merge_files_min=16, merge_spread_files=0, garbage_bytes=1))
    write(log, *["a"] * 16)
    assert steps(upkeep, 10_000, 16) == ["merge 16", "checkpoint 1"]
    assert steps(upkeep, 90_000, 16) == ["delete files 16"]


def test_whoever_opens_a_table_knows_what_is_left_to_delete(replicas):
    """Also files removed before the checkpoint that it begins with: a fetch session ends before the delay."""
    log = replicas.leader()
    write(log, *["a"] * 40)
    assert steps(Upkeep(log, LIMITS), 10_000, 32) == ["merge 32"]
    log.table.checkpoint()
    write(log, *["a"] * 8)
    assert steps(Upkeep(replicas.log(), LIMITS), 20_000, 48) == ["merge 16"]
    assert list_files(log) == 50
    opened = replicas.log()
    upkeep = Upkeep(opened, LIMITS)
    assert steps(upkeep, 60_000, 48) == []
    assert steps(upkeep, 76_000, 48) == ["delete files 32"]
    log.table.checkpoint()
    upkeep = Upkeep(replicas.log(), LIMITS)
    assert [*steps(upkeep, 100_000, 48), *steps(upkeep, 120_000, 48)] == ["delete files 48"]
    assert list_files(log) == 2


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "delta"])
def test_a_directory_holds_only_live_files_after_many_sessions(tmp_path, on_disk):
    """Sessions end long before `file.delete.delay.ms`; half of them begin without the state of the one before."""
    replicas = Replicas.new(tmp_path if on_disk else None)
    limits = UpkeepLimits(checkpoint_commits=60, merge_files_min=8, merge_spread_files=0, garbage_ms=60_000)
    leader, follower, view = replicas.leader(), replicas.follower("2", 0), replicas.log("1")
    ours = Upkeep(leader, limits)
    for session in range(24):
        theirs = Upkeep(follower, limits, leader=view)
        for sequence in range(16):
            append(leader, idempotent("a", session * 16 + sequence), now_ms=replicas.clock.now_ms)
            view.refresh()
            follower.copy_from(view, 0, MIB)
            replicas.clock.sleep_ms(1_000)
            steps(ours, replicas.clock.now_ms, follower.log_end_offset)
            view.refresh()
            steps(theirs, replicas.clock.now_ms, follower.log_end_offset)
        if session % 2:
            follower, view = replicas.log("2"), replicas.log("1")
    replicas.clock.sleep_ms(70_000)
    for log in (leader, follower):
        upkeep = Upkeep(log, limits)
        for _ in range(4):
            replicas.clock.sleep_ms(15_000)
            steps(upkeep, replicas.clock.now_ms, 0)
        assert {path for path, _ in log.table.list_objects("segment=")} == {entry.path for entry in log.files}
        assert len(log.table.list_objects("_producers/")) == 1
        assert len(log.state.removed) == 0
    assert [entry.path for entry in follower.files] == [entry.path for entry in leader.files]
    assert values(follower) == values(leader)


def test_merges_keep_off_what_is_above_the_high_watermark(replicas):
    log = replicas.leader()
    write(log, *["a"] * 20)
    assert steps(Upkeep(log, LIMITS), 1, 15) == []


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
    upkeep = Upkeep(log, LIMITS)
    write(log, *["a"] * 16)
    other.refresh()
    write(other, "b")
    assert steps(upkeep, 1, 16) == ["lost race 16", "merge 16"]
    assert list_files(log) == 18
    assert values(log) == " ".join(["a"] * 16 + ["b"])


def begun_merge(replicas: Replicas, epoch: int = 0) -> tuple[PartitionLog, Upkeep, HandExecutor]:
    """A log of 16 files whose merge is written, but not committed yet."""
    log, executor = replicas.leader(epoch=epoch), HandExecutor()
    upkeep = Upkeep(log, LIMITS, executor)
    write(log, *["a"] * 16, epoch=epoch)
    assert steps(upkeep, 1, 16, epoch) == []
    executor.work()
    assert list_files(log) == 17
    return log, upkeep, executor


def test_one_work_at_a_time_is_under_way(replicas):
    """Other due work waits for its turn, and begun work is finished."""
    log, executor = replicas.leader(), HandExecutor()
    upkeep = Upkeep(log, UpkeepLimits(checkpoint_commits=5, merge_files_min=16, merge_spread_files=0), executor)
    write(log, *["a"] * 16)
    done = []
    for _ in range(6):
        done += steps(upkeep, 1, 16)
        assert len(executor.waiting) <= 1
        executor.work()
    assert done == ["checkpoint 1", "merge 16"]
    assert log.state.durable_version == log.version - 1


def test_appends_go_on_while_a_merge_is_written(replicas):
    log, upkeep, _ = begun_merge(replicas)
    write(log, "b")
    assert steps(upkeep, 2, 17) == ["merge 16"]
    assert values(log) == values(replicas.log()) == " ".join(["a"] * 16 + ["b"])


def test_a_merge_that_was_cut_off_under_it_is_dropped(replicas):
    log, upkeep, _ = begun_merge(replicas)
    log.start_epoch(0, as_leader=True, truncate_to=9)
    assert steps(upkeep, 2, 9) == ["lost race 16"]
    assert (values(log), list_files(log)) == (" ".join(["a"] * 9), 16)


def test_a_merge_begun_in_an_older_epoch_is_dropped(replicas):
    log, upkeep, _ = begun_merge(replicas)
    log.start_epoch(1, as_leader=True)
    assert upkeep.step(2, 16, 1) == UpkeepDone(UpkeepWork.LOST_RACE, 16, log.version)
    assert list_files(log) == 16


def test_a_merge_loses_to_a_commit_of_a_newer_epoch_that_its_owner_has_not_seen(replicas):
    log, upkeep, _ = begun_merge(replicas)
    newer = replicas.log()
    newer.start_epoch(1, as_leader=True)
    assert steps(upkeep, 2, 16) == ["lost race 16"]
    assert (list_files(log), log.leader_epoch) == (16, 1)


def followed(replicas: Replicas, limits: UpkeepLimits = LIMITS) -> tuple[PartitionLog, PartitionLog, Upkeep, Upkeep]:
    """A leader and a follower with 16 equal files, and their upkeep."""
    leader, follower, view = replicas.leader(), replicas.follower("2", 0), replicas.log()
    write(leader, *["a"] * 16)
    view.refresh()
    for _ in range(16):
        follower.copy_from(view, 0, 1)
    return leader, follower, Upkeep(leader, limits), Upkeep(follower, limits, leader=view)


def test_a_follower_takes_its_leaders_merged_files(replicas):
    leader, follower, ours, theirs = followed(replicas)
    assert steps(theirs, 1_000, 16) == [], "the leader merges first"
    assert steps(ours, 2_000, 16) == ["merge 16"]
    assert steps(theirs, 3_000, 15) == [], "not above the high watermark"
    assert steps(theirs, 4_000, 16) == ["copy merge 16"]
    assert [entry.path for entry in follower.files] == [entry.path for entry in leader.files]
    assert values(replicas.log("2")) == values(leader)


def test_a_follower_merges_by_itself_when_its_leader_does_not(replicas):
    _, follower, _, theirs = followed(replicas)
    assert steps(theirs, 1_000, 16) == []
    assert steps(theirs, 1_000 + LIMITS.leader_first_ms - 1, 16) == []
    assert steps(theirs, 1_000 + LIMITS.leader_first_ms, 16) == ["merge 16"]
    assert len(follower.files) == 1


def test_a_merged_file_that_was_truncated_here_is_not_taken_under_its_name(replicas):
    leader, follower, ours, theirs = followed(replicas)
    steps(ours, 2_000, 16)
    assert steps(theirs, 3_000, 16) == []
    assert steps(theirs, 4_000, 16) == ["copy merge 16"]
    follower.start_epoch(0, as_leader=False, truncate_to=8)
    follower.copy_from(leader, 0, MIB)
    assert leader.files[0].path in follower.state.removed
    assert steps(theirs, 5_000, 16) == []
    assert values(follower) == values(leader)


def test_a_merged_file_that_the_leader_no_longer_has_is_asked_for_once(replicas):
    """Otherwise a follower would step without pause until its leader's next merge."""
    leader, _, ours, theirs = followed(replicas)
    assert steps(theirs, 1_000, 16) == []
    assert steps(ours, 2_000, 16) == ["merge 16"]
    theirs.step(3_000, 0, 0)  # it folds the leader's log as of now, and the high watermark does not let it take yet
    leader.table.delete_objects([leader.files[0].path])
    assert steps(theirs, 4_000, 16) == ["lost race 0"]
    assert steps(theirs, 4_000, 16) == []


def test_large_merges_wait_while_the_machine_is_busy_but_not_for_ever(replicas):
    log = replicas.leader()
    write(log, *["a"] * 40)
    bytes_each = log.files[0].file.size_bytes
    patient = Upkeep(
        log, UpkeepLimits(merge_files_min=16, merge_spread_files=0, bulk_bytes=bytes_each + 1, live_files_max=25)
    )
    assert patient.step(1, 40, 0, is_busy=True) is None
    assert Upkeep(log, UpkeepLimits(merge_files_min=16, merge_spread_files=0)).step(1, 20, 0, is_busy=True), (
        "it is small"
    )
    write(log, *["a"] * 31)
    assert len(log.files) == 52
    assert patient.step(2_000, 71, 0, is_busy=True), "there are too many files"
    write(log, *["a"] * 16)
    assert patient.step(3_000, 87, 0, is_busy=True) is None
    assert patient.step(4_000, 87, 0)


def test_large_files_are_merged_only_when_there_are_very_many(replicas):
    log = replicas.leader()
    write(log, *["a"] * 30)
    bytes_each = log.files[0].file.size_bytes
    upkeep = Upkeep(
        log, UpkeepLimits(merge_files_min=16, merge_spread_files=0, bulk_bytes=bytes_each, live_files_max=40)
    )
    assert steps(upkeep, 1, 30) == []
    write(log, *["a"] * 20)
    assert steps(upkeep, 2, 50) == ["merge 50"]


def test_upkeep_of_a_fenced_epoch_does_nothing(replicas):
    log = replicas.leader(epoch=1)
    write(log, *["a"] * 16, epoch=1)
    assert Upkeep(log, LIMITS).step(1, 16, 0) is None


def test_a_straggler_merges_nothing_after_a_newer_epoch_started(replicas):
    log, newer = replicas.leader(epoch=1), replicas.log()
    upkeep = Upkeep(log, LIMITS)
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
    for _ in range(210):
        append(log, batch("a"), now_ms=start_ms)
    assert steps(upkeep, start_ms, 0) == ["checkpoint 1"]
    assert steps(upkeep, start_ms + HOUR_MS - 1, 0) == []
    assert steps(upkeep, start_ms + HOUR_MS + 1, 0) == ["clean log 11"], "what a power cut may need stays"
    assert log.table.read_commit(log.version - 4) is not None
    assert values(replicas.log()) == " ".join(["a"] * 210)


def test_first_checkpoints_of_tables_made_together_are_spread_over_the_time_between_two():
    """Each checkpoint syncs the writes of all tables of its disk since the last one: all at once would wait for all."""
    limits, due = UpkeepLimits(checkpoint_commits=50), []
    for number in range(100):
        ids = CountingIds()
        log = PartitionLog(MemoryLogTable(MemoryDisk(), f"1/t-{number}", ids), LogConfig(), FakeClock(), ids)
        log.exists_or_create("topic-id")
        started(log, 0)
        upkeep = Upkeep(log, limits)
        while not steps(upkeep, 0, 0):
            append(log, batch("a"))
        due.append(log.version)
    in_each_fifth = [sum(first <= version < first + 10 for version in due) for first in range(1, 51, 10)]
    assert (min(due) >= 5, max(due) <= 50) == (True, True)
    assert all(10 <= count <= 30 for count in in_each_fifth), in_each_fifth


@pytest.mark.parametrize(("kept_ms", "most"), [(0, 500), (120_000, 100)])
def test_a_first_fold_reads_fewer_commits_where_each_is_a_request(kept_ms, most):
    """The next leader of a table in a storage domain waits for its fold before it leads."""
    ids = CountingIds()
    disk = MemoryDisk(kept_ms=kept_ms)
    log = PartitionLog(MemoryLogTable(disk, "1/t-0", ids), LogConfig(), FakeClock(), ids)
    log.exists_or_create("topic-id")
    started(log, 0)
    upkeep = Upkeep(log, UpkeepLimits(merge_files_min=10_000))
    found = []
    for _ in range(2 * most):
        append(log, batch("a"))
        if "checkpoint 1" in steps(upkeep, 0, 0):
            found.append(log.version)
    assert len(found) >= 2
    assert found[1] - found[0] == most


def test_what_is_due_is_deleted_a_little_at_a_time(replicas):
    """A log checks once a second: the checks of all replicas at once would keep the machine from other work."""
    log = replicas.leader()
    upkeep = Upkeep(log, LIMITS)
    for removed_ms in (0, 1_500, 3_000):
        replicas.clock.now_ms = removed_ms
        write(log, *["a"] * 16)
        assert steps(upkeep, removed_ms, log.log_end_offset) == ["merge 16"]
    log.state.made_durable(log.table.checkpoint())
    found = {now_ms: done for now_ms in range(60_000, 65_000, 250) if (done := steps(upkeep, now_ms, 48))}
    assert found == {60_000: ["delete files 16"], 62_000: ["delete files 16"], 63_000: ["delete files 16"]}


def test_a_checkpoint_of_another_session_counts(replicas):
    """A follower's two sessions alternate: otherwise each would begin with a checkpoint of every partition."""
    log, limits = replicas.leader(), UpkeepLimits(checkpoint_commits=10, keep_commits=5)
    first, second = Upkeep(log, limits), Upkeep(other := replicas.log(), limits)
    for _ in range(10):
        append(log, batch("a"))
    assert steps(first, 0, 0) == ["checkpoint 1"]
    other.refresh()
    assert steps(second, 0, 0) == []
    assert other.state.durable_version == log.version
    for _ in range(10):
        append(log, batch("a"))
    other.refresh()
    assert steps(second, 0, 0) == ["checkpoint 1"]
    assert steps(first, 0, 0) == []


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
    assert steps(upkeep, 200_000, 0, epoch=2) == []
    follower.state.made_durable(follower.table.checkpoint())
    assert steps(upkeep, 300_000, 0, epoch=2) == ["delete files 1"]
    assert values(follower) == "a b"


def test_files_that_no_commit_named_go_after_a_week(replicas):
    log = replicas.leader(config=LogConfig.from_properties({"retention.ms": -1}))
    upkeep = Upkeep(log)
    write(log, "a")
    steps(upkeep, 0, 1)
    replicas.clock.now_ms = DAY_MS
    log.table.write_file(log.table.read_file(log.files[0].file), None)
    log.table.write_object("_producers/00000000000000ff.json", b"{}")
    assert steps(upkeep, 8 * DAY_MS, 1) == []
    assert steps(upkeep, 9 * DAY_MS, 1) == ["vacuum 2"]
    assert values(replicas.log()) == "a"


def test_commits_that_clean_up_does_not_meet_go_after_a_week(replicas):
    log = replicas.leader(config=LogConfig.from_properties({"retention.ms": -1}))
    upkeep = Upkeep(log)
    for _ in range(8):
        write(log, "a")
    steps(upkeep, 0, 8)
    log.table.checkpoint()
    (disk,) = replicas.disks.values()
    files = disk.files_of("t-0")
    stray = files.commits[2]
    assert list(log.table.clean_log(6, FOREVER))
    replicas.clock.now_ms = DAY_MS
    files.commits[2], files.modified_ms[2] = stray, DAY_MS
    assert "vacuum 1" not in steps(upkeep, 8 * DAY_MS, 1)
    assert "vacuum 1" in steps(upkeep, 9 * DAY_MS, 1)
    assert 2 not in files.commits


def test_sealed_segments_end_as_one_file_per_epoch(replicas):
    log = replicas.leader(config=LogConfig.from_properties({"segment.files.max": 4}))
    upkeep = Upkeep(log)
    write(log, *"abcdef")
    assert steps(upkeep, 1, FOREVER) == ["merge 4"]
    assert [len(e.path) > 0 and e.segment for e in log.files] == [0, 4, 4]
    assert values(log) == "a b c d e f"


def test_the_tables_stay_readable_for_other_instances_during_upkeep(replicas):
    log, reader = replicas.leader(), replicas.log()
    upkeep = Upkeep(
        log, UpkeepLimits(checkpoint_commits=20, keep_commits=1, keep_ms=0, merge_files_min=16, merge_spread_files=0)
    )
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
