"""What left a log is deleted after `file.delete.delay.ms`, and nothing is forgotten before, however busy the log is."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from stratalog.storage import cadence
from stratalog.storage.delta.removed import LIST_FILES
from stratalog.storage.delta.table import DELETED, Committed
from stratalog.storage.files.batch_file import describe
from stratalog.storage.log.append import Appended, HandedFiles
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import data_rows
from stratalog.storage.upkeep.chore import UpkeepLimits
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.storage.logs import Replicas, batch, list_files, values, write
from tests.storage.upkeep.test_append_pause import SlowMachine

LIMITS = UpkeepLimits(merge_files_min=16, merge_spread_files=0, garbage_ms=60_000)
DELAY_MS = 60_000


def hand_over(replicas: Replicas, log: PartitionLog, count: int) -> None:
    """Append so many files of one record by one commit."""
    rows = data_rows([batch(["a"])])
    paths = [f"segment={0:020}/{replicas.ids.new_id()}.00000000.parquet" for _ in range(count)]
    stored = replicas.disks["1"].files_of("t-0")
    stored.data_files.update(dict.fromkeys(paths, rows))
    stored.modified_ms.update(dict.fromkeys(paths, replicas.clock.now_ms))
    handed = HandedFiles(tuple(describe(rows, path, rows.nbytes) for path in paths), "query", log.log_end_offset)
    assert isinstance(log.append_files([handed], 0, replicas.clock.now_ms), Appended)
    log.table.delete_objects(log.left_names)
    log.left_names.clear()


def remove_all(replicas: Replicas, log: PartitionLog) -> None:
    """Remove every file of the log, as retention does."""
    outcome = log.replace_files(
        log.files,
        (),
        leader_epoch=0,
        operation="RETENTION",
        now_ms=replicas.clock.now_ms,
        log_start=log.log_end_offset,
    )
    assert isinstance(outcome, Committed)


def keep_up(replicas: Replicas, log: PartitionLog, upkeep: Upkeep) -> list[str]:
    """All steps that are due now."""
    done = []
    while (step := upkeep.step(replicas.clock.now_ms, log.log_end_offset, 0)) is not None:
        done.append(f"{step.work} {step.count}")
    return done


def test_no_removed_file_is_forgotten_before_it_is_deleted() -> None:
    """25,000 files leave the log within `file.delete.delay.ms`, as 417 a second do."""
    replicas = Replicas.new()
    log = replicas.leader()
    for _ in range(5):
        hand_over(replicas, log, 5_000)
        remove_all(replicas, log)
        replicas.clock.sleep_ms(DELAY_MS // 10)
    assert len(log.state.removed) == 25_000
    assert len(Replicas.log(replicas).state.removed) == 25_000, "a first fold knows them too"
    upkeep = Upkeep(log, LIMITS)
    keep_up(replicas, log, upkeep)
    replicas.clock.sleep_ms(2 * DELAY_MS)
    keep_up(replicas, log, upkeep)
    assert (list_files(log), len(log.state.removed)) == (0, 0)


def test_a_standby_forgets_what_the_active_session_deleted() -> None:
    """Both fold one table for longer than the delay; only one of them deletes."""
    replicas = Replicas.new()
    active = replicas.leader()
    standby = replicas.log()
    upkeep = Upkeep(active, LIMITS)
    left = []
    for _ in range(12):
        hand_over(replicas, active, 100)
        remove_all(replicas, active)
        active.state.made_durable(active.table.checkpoint())
        replicas.clock.sleep_ms(DELAY_MS // 4)
        keep_up(replicas, active, upkeep)
        standby.refresh()
        left.append(len(standby.state.removed))
    assert left == [100, 200, 300, 400, *[400] * 8], "what the last deletion took is stated by the next commit"
    assert set(active.state.removed) < set(standby.state.removed)


def test_a_handle_states_no_version_while_it_has_objects_from_a_checkpoint() -> None:
    """They were removed before it; another handle that knows their versions would forget too much."""
    replicas = Replicas.new()
    old = replicas.leader()
    for _ in range(3):
        hand_over(replicas, old, 10)
        remove_all(replicas, old)
        replicas.clock.sleep_ms(DELAY_MS // 2)
    old.table.checkpoint()
    opened = replicas.log()
    assert {removed.version for _, removed in opened.state.removed.items()} == {old.version}
    upkeep, stated = Upkeep(opened, LIMITS), []
    for _ in range(4):
        keep_up(replicas, opened, upkeep)
        write(opened, "a")
        stated.append((len(opened.state.removed), opened.state.txn_number(DELETED)))
        replicas.clock.sleep_ms(DELAY_MS // 4)
    assert stated == [(30, 0), (10, 0), (0, old.version + 2), (0, old.version + 2)]


def test_due_files_that_are_not_deleted_slow_appends() -> None:
    """Deletions that take longer than the delay between them let the files due grow; then appends wait."""
    replicas = Replicas.new()
    log = replicas.leader()
    machine = SlowMachine(replicas.clock, 10_000)
    upkeep = Upkeep(log, replace(LIMITS, slowdown_count=1_000, stop_count=3_000, checkpoint_commits=1), machine)
    pauses_ms, removed = [], []
    for second in range(400):
        hand_over(replicas, log, 100)
        remove_all(replicas, log)
        if second % 20 == 0:
            log.state.made_durable(log.table.checkpoint())
        pauses_ms.append(upkeep.append_pause_ms(100))
        replicas.clock.sleep_ms(1_000 + (9_000 if pauses_ms[-1] == cadence.APPENDS_STOPPED.ms else 0))
        machine.go_on()
        upkeep.step(replicas.clock.now_ms, log.log_end_offset, 0)
        removed.append(len(log.state.removed))
    assert (pauses_ms[0], max(pauses_ms)) == (0, cadence.APPENDS_STOPPED.ms)
    assert max(removed[200:]) <= 100 * (DELAY_MS // 1_000) + 3_000 + 3_500
    removed_files = [path for path in log.state.removed if path.startswith("segment=")]
    assert list_files(log) == len(log.files) + len(removed_files), "none is forgotten"


def test_a_backlog_of_before_slows_no_append() -> None:
    replicas = Replicas.new()
    log = replicas.leader()
    hand_over(replicas, log, 20_000)
    remove_all(replicas, log)
    log.table.checkpoint()
    replicas.clock.sleep_ms(2 * DELAY_MS)
    opened = replicas.log()
    upkeep, most = Upkeep(opened, LIMITS), 0
    for _ in range(50):
        upkeep.step(replicas.clock.now_ms, 0, 0)
        most = max(most, upkeep.overdue_count)
        replicas.clock.sleep_ms(2_000)
    assert (most, list_files(opened)) == (0, 0)


def test_checkpoints_of_many_tombstones_are_rarer_until_they_name_lists() -> None:
    """A checkpoint costs as much as it has entries: each commit pays for at most 20 of them."""
    replicas = Replicas.new()
    log = replicas.leader()
    hand_over(replicas, log, 4_000)
    remove_all(replicas, log)
    log.state.made_durable(log.table.checkpoint())
    upkeep = Upkeep(log, replace(LIMITS, checkpoint_commits=10))
    made_at = []
    for _ in range(230):
        write(log, "a")
        if "checkpoint 1" in keep_up(replicas, log, upkeep):
            made_at.append(log.version)
    between = [after - before for before, after in pairwise(made_at)]
    assert made_at[0] >= 200
    assert between
    assert max(between) < 20
    assert len(log.state.removed) < 4_000 // LIST_FILES + 230


def test_a_busy_log_keeps_no_more_commits_than_its_limit() -> None:
    """Also of those made within the hour for which commits are kept otherwise."""
    replicas = Replicas.new()
    log = replicas.leader()
    limits = replace(LIMITS, checkpoint_commits=50, keep_commits=10, keep_commits_max=200)
    upkeep = Upkeep(log, limits)
    for _ in range(1_000):
        write(log, "a")
        replicas.clock.sleep_ms(2)
        keep_up(replicas, log, upkeep)
    commits = replicas.disks["1"].files_of("t-0").commits
    assert 200 <= len(commits) <= 200 + 2 * 50
    assert values(replicas.log()) == " ".join(["a"] * 1_000)
