from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stratalog.storage.cadence import DAY_MS
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.errors import OffsetOutOfRangeError
from stratalog.storage.log.append import HandedFiles
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.objects.local import LocalStore
from stratalog.storage.objects.opened import open_store
from stratalog.storage.records import data_table
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import UpkeepDone, UpkeepLimits, UpkeepWork
from stratalog.storage.upkeep.upkeep import Upkeep
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

CHECK_MS = 1_000
LIMITS = UpkeepLimits(retention_check_ms=CHECK_MS, garbage_ms=60_000)
WRITE_OPERATIONS = {"put", "put_new", "put_register", "create", "delete", "sync"}


@pytest.fixture
def replicas() -> Replicas:
    return Replicas.new()


def config(**configs: object) -> LogConfig:
    """One file a segment, and no retention besides the given configs."""
    given = {name.replace("_", "."): value for name, value in configs.items()}
    return LogConfig.from_properties(
        {"segment.files.max": 1, "retention.ms": -1, "stratalog.snapshot.retention.ms": 0, **given}
    )


def steps(upkeep: Upkeep, now_ms: int, high_watermark: int, epoch: int = 0) -> list[str]:
    done = []
    while (step := upkeep.step(now_ms, high_watermark, epoch)) is not None:
        done.append(f"{step.work} {step.count}")
    return done


def begun(log: PartitionLog, limits: UpkeepLimits = LIMITS, **others: Any) -> Upkeep:
    """Upkeep that began at time 0, so that it checks from `CHECK_MS` on."""
    upkeep = Upkeep(log, limits, **others)
    assert upkeep.step(0, -1, log.leader_epoch) is None
    return upkeep


def timed(log: PartitionLog, *times_ms: int) -> None:
    """One record, and so one segment, for each time."""
    for i, time_ms in enumerate(times_ms):
        append(log, batch([f"v{log.log_end_offset}"], timestamps=[time_ms]), now_ms=10_000 + i)


def segments_of(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_expired_segments_go_in_one_commit_and_leave_storage_after_their_delay(replicas):
    log = replicas.leader(config=config(retention_ms=1_000))
    upkeep = begun(log)
    timed(log, 1_000, 2_000, 3_000, 1_000_000)
    version = log.version
    assert steps(upkeep, 4_001, 4) == ["retention 3"]
    assert (log.version, log.log_start_offset, segments_of(log)) == (version + 1, 3, [3])
    assert (list_files(log), values(log), values(replicas.log())) == (4, "v3", "v3")
    commit = log.table.read_commit(log.version)
    assert commit is not None
    assert (commit.data_change, commit.adds, len(commit.removes)) == (True, (), 3)
    assert steps(upkeep, 4_001 + 49_999, 4) == []
    assert steps(upkeep, 4_001 + 60_000, 4) == ["checkpoint 1", "delete files 3"]
    assert (list_files(log), values(log)) == (1, "v3")


def test_when_everything_is_expired_the_next_record_begins_a_segment_at_the_log_end(replicas):
    log = replicas.leader(config=config(retention_ms=1_000, segment_files_max=100))
    append(log, idempotent(["a"], 0))
    append(log, idempotent(["b"], 1))
    assert segments_of(log) == [0]
    assert steps(begun(log), DAY_MS, 2) == ["retention 1"]
    assert (log.log_start_offset, log.log_end_offset, segments_of(log), contents(log)) == (2, 2, [], [])
    (again,) = append(log, idempotent(["b"], 1)).results
    assert (again.duplicate, again.base_offset) == (True, 1), "producers are known without their records"
    append(log, idempotent(["c"], 2))
    assert (segments_of(log), contents(log), contents(replicas.log())) == ([2], [(2, "c")], [(2, "c")])
    assert log.epochs.entries[0].start_offset == 2


def test_a_reader_in_flight_reads_on_until_the_files_are_deleted(replicas):
    log, reader = replicas.leader(config=config(retention_bytes=0)), replicas.log()
    upkeep = begun(log)
    write(log, "a", "b", "c")
    reader.refresh()
    assert steps(upkeep, 1_000, 3) == ["retention 3"]
    assert values(reader) == "a b c"
    assert steps(upkeep, 59_999, 3) == []
    assert values(reader) == "a b c"
    assert steps(upkeep, 90_000, 3) == ["checkpoint 1", "delete files 3"]
    with pytest.raises(OffsetOutOfRangeError):
        reader.read(0, MIB)
    assert reader.log_start_offset == 3


def test_it_looks_once_in_each_check_interval_of_the_wall_clock_whoever_does_it(replicas):
    log = replicas.leader(config=config(retention_bytes=0))
    upkeep = begun(log)
    assert steps(upkeep, 10_000, 0) == []
    due_ms = 10_000 + upkeep.rest_ms(10_000)
    for tick in range(3):
        other = Upkeep(log, LIMITS)
        write(log, "a", "b")
        end = log.log_end_offset
        assert (steps(upkeep, due_ms - 1, end), steps(other, due_ms - 1, end)) == ([], [])
        assert steps((upkeep, other)[tick % 2], due_ms, end) == ["retention 2"]
        assert steps(upkeep, due_ms, end) == []
        due_ms += CHECK_MS


def test_a_config_that_is_altered_holds_at_the_next_look(replicas):
    log = replicas.leader(config=config())
    upkeep = begun(log)
    timed(log, 1_000, 2_000, 3_000)
    assert steps(upkeep, 10_000, 3) == []
    log.config = config(retention_ms=7_500)
    assert steps(upkeep, 10_000, 3) == []
    assert steps(upkeep, 10_000 + CHECK_MS, 3) == ["retention 3"]


def test_without_a_known_high_watermark_it_waits_for_one(replicas):
    log = replicas.leader(config=config(retention_bytes=0))
    upkeep = begun(log)
    write(log, "a", "b")
    assert steps(upkeep, CHECK_MS, -1) == []
    assert upkeep.rest_ms(CHECK_MS) <= 1_000
    assert steps(upkeep, CHECK_MS, 1) == ["retention 1"]
    assert values(log) == "b"


def test_a_lost_race_takes_nothing_out_and_is_tried_again_at_once(replicas):
    log, other = replicas.leader(config=config(retention_bytes=0)), replicas.log(config=config())
    upkeep = begun(log)
    write(log, "a", "b")
    other.refresh()
    write(other, "c")
    assert steps(upkeep, CHECK_MS, 2) == ["lost race 0", "retention 2"]
    assert values(log) == values(replicas.log()) == "c"


def test_the_start_of_a_newer_epoch_is_left_alone(replicas):
    log, newer = replicas.leader(config=config(retention_bytes=0)), replicas.log(config=config())
    write(log, "a", "b")
    newer.refresh()
    started(newer, 1)
    assert steps(begun(log), CHECK_MS, 2) == ["lost race 0"]
    assert (values(log), log.leader_epoch) == ("a b", 1)


def test_records_below_the_log_start_go_by_whole_segments(replicas):
    log = replicas.leader(config=config(cleanup_policy="compact", segment_files_max=2))
    write(log, *"abcdefg")
    log.replace_files((), (), leader_epoch=0, operation="DELETE RECORDS", now_ms=0, data_change=True, log_start=5)
    assert (values(log), segments_of(log)) == ("f g", [0, 2, 4, 6])
    assert steps(begun(log), CHECK_MS, 7)[:1] == ["retention 2"]
    assert (values(log), segments_of(log), log.log_start_offset) == ("f g", [4, 6], 5)


def test_a_follower_keeps_to_retention_by_itself_and_follows_its_leaders_log_start(replicas):
    """Upkeep is local: the replicas stay equal on every offset that both hold."""
    short, long = config(retention_ms=1_000), config(retention_ms=3_000)
    leader, follower, view = replicas.leader(config=long), replicas.follower("2", 0, config=short), replicas.log()
    timed(leader, 1_000, 2_000, 3_000, 9_000)
    view.refresh()
    follower.copy_from(view, 0, MIB)
    assert steps(begun(follower, leader=view), 3_500, 4) == ["retention 2"]
    assert (follower.log_start_offset, values(follower)) == (2, "v2 v3")
    assert steps(begun(leader), 6_500, 4) == ["retention 3"]
    timed(leader, 9_500)
    view.refresh()
    follower.copy_from(view, 0, MIB)
    assert (follower.log_start_offset, values(follower), values(leader)) == (3, "v3 v4", "v3 v4")


def test_both_policies_expire_and_merged_files_go_with_their_segment(replicas):
    log = replicas.leader(config=config(cleanup_policy="compact,delete", segment_files_max=20, retention_bytes=0))
    limits = UpkeepLimits(merge_files_min=16, merge_spread_files=0, retention_check_ms=CHECK_MS)
    upkeep = begun(log, limits)
    write(log, *(f"k{i}" for i in range(30)))
    assert steps(upkeep, CHECK_MS, 19) == ["merge 19"], "no segment is below the high watermark"
    assert steps(upkeep, 2 * CHECK_MS, 20)[:1] == ["retention 1"]
    assert (log.log_start_offset, segments_of(log)) == (20, [20])
    assert steps(upkeep, 3 * CHECK_MS, 30)[:1] == ["retention 1"]
    assert (log.log_start_offset, segments_of(log)) == (30, [])


class CountingStore:
    """A local store that counts calls."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            return found(*args, **kwargs)

        return counted


def thousand_segments(root: Path) -> tuple[PartitionLog, CountingStore]:
    """A real table with a thousand segments of one file each, made by one commit."""
    local = open_store(str(root), create=True)
    assert isinstance(local, LocalStore)
    store: Any = CountingStore(local)
    log = PartitionLog(
        DeltaLogTable(store, "t-0", CountingIds()), config(retention_ms=1_000), FakeClock(), CountingIds(10**6)
    )
    log.exists_or_create("topic-id")
    started(log, 0)
    rows = data_table([batch(["a"])])
    files = tuple(log.table.write_file(rows, None) for _ in range(1_000))
    log.append_files([HandedFiles(files, "query", 1)], 0, 5_000)
    log.left_names.clear()
    assert len(log.segments) == 1_000
    return log, store


def test_a_thousand_segments_leave_the_log_with_one_commit_and_no_look_at_their_files(tmp_path):
    log, store = thousand_segments(tmp_path)
    upkeep = begun(log, UpkeepLimits(retention_check_ms=CHECK_MS))
    version = log.version
    store.calls.clear()
    assert upkeep.step(DAY_MS, 1_000, 0) == UpkeepDone(UpkeepWork.RETENTION, 1_000, version + 1)
    assert sum(store.calls.values()) <= 4, store.calls
    assert sum(count for name, count in store.calls.items() if name in WRITE_OPERATIONS) == 1, store.calls
    assert (log.version, len(log.files), log.log_start_offset) == (version + 1, 0, 1_000)
    assert list_files(log) == 1_000


def test_records_without_timestamps_expire_after_their_files_last_write(replicas):
    log = replicas.leader(config=config(retention_ms=1_000))
    upkeep = begun(log)
    for wrote_ms in (10_000, 14_000):
        replicas.clock.now_ms = wrote_ms
        append(log, batch(["v"], timestamps=[None]), now_ms=wrote_ms)
    assert steps(upkeep, 11_000, 2) == []
    assert steps(upkeep, 14_500, 2) == ["retention 1"]
    assert steps(upkeep, 16_000, 2) == ["retention 1"]
    assert (log.log_start_offset, segments_of(log)) == (2, [])


def test_only_a_segment_without_timestamps_has_the_files_listed(replicas):
    log = replicas.leader(config=config(retention_ms=1_000))
    upkeep = begun(log)
    timed(log, 1_000, 2_000)
    append(log, batch(["v"], timestamps=[None]), now_ms=10_000)
    lists: list[str] = []
    replicas.disks["1"].access = lambda operation, _, path: lists.append(path) if operation == "list" else None
    assert steps(upkeep, 1_900, 3) == []
    assert lists == []
    assert steps(upkeep, 5_000, 3) == ["retention 2"]
    assert lists == ["segment="]


YEAR_MS = 365 * DAY_MS


def test_after_the_clock_was_set_back_logs_expire_and_their_files_are_deleted(replicas):
    """As in Kafka, whose checks and deletions wait on the monotonic clock."""
    log = replicas.leader(config=config(retention_ms=1_000))
    upkeep = begun(log)
    timed(log, 1_000, 2_000)
    assert steps(upkeep, YEAR_MS, 2) == ["retention 2"]
    timed(log, 3_000)
    assert sorted(steps(upkeep, 10_000, 3)) == ["checkpoint 1", "delete files 2", "retention 1"]
    assert list_files(log) == 1
    timed(log, 11_000, 12_000)
    assert steps(upkeep, 20_000, 5) == ["retention 2"]
    assert upkeep.rest_ms(20_000) <= CHECK_MS


def test_a_later_process_deletes_what_was_removed_before_the_clock_was_set_back(replicas):
    log = replicas.leader(config=config(retention_ms=1_000))
    timed(log, 1_000, 2_000)
    assert steps(begun(log), YEAR_MS, 2) == ["retention 2"]
    later = Upkeep(replicas.log(config=log.config), LIMITS)
    assert steps(later, 10_000, 2) == ["checkpoint 1"]
    assert steps(later, 20_000, 2) == ["delete files 2"]
    assert list_files(log) == 0
