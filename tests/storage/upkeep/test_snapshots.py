"""A reader's snapshot of a busy log stays readable for as long as the topic says, and costs checkpoints nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from stratalog.storage.delta.removed import LIST_FILES, is_list
from stratalog.storage.delta.table import Conflict
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import UpkeepLimits
from stratalog.storage.upkeep.erase import Erase, ErasePredicate
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.storage.logs import Replicas, list_files, write
from tests.storage.memory_table import MemoryLogTable

LIMITS = UpkeepLimits(merge_files_min=16, merge_spread_files=0)
MINUTE_MS = 60_000
APPENDS_A_MINUTE = 30


class Busy:
    """A log that takes an append every other second, with its upkeep; `erases` are its requests to erase."""

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        self.replicas = Replicas.new()
        self.log = self.replicas.leader(config=LogConfig.from_properties({"retention.ms": -1, **(given or {})}))
        self.erases: list[Erase] = []
        self.upkeep = Upkeep(self.log, LIMITS, erases=lambda: self.erases)

    def run(self, minutes: int) -> None:
        for _ in range(minutes * APPENDS_A_MINUTE):
            write(self.log, "a")
            self.replicas.clock.sleep_ms(MINUTE_MS // APPENDS_A_MINUTE)
            self.keep_up()

    def rest(self, minutes: int) -> None:
        """Time without appends."""
        for _ in range(minutes):
            self.replicas.clock.sleep_ms(MINUTE_MS)
            self.keep_up()

    def keep_up(self) -> None:
        while self.upkeep.step(self.replicas.clock.now_ms, self.log.log_end_offset, 0) is not None:
            pass

    def gone(self, files: Sequence[FileEntry]) -> int:
        there = {path for path, _ in self.log.table.list_objects("segment=")}
        return sum(entry.path not in there for entry in files)


@pytest.fixture
def busy() -> Busy:
    return Busy()


def test_a_snapshot_of_a_busy_log_is_readable_after_fifty_minutes_and_gone_after_an_hour(busy: Busy) -> None:
    busy.run(5)
    snapshot = list(busy.log.files)
    busy.run(50)
    live = {entry.path for entry in busy.log.files}
    assert sum(entry.path in live for entry in snapshot) < len(snapshot) // 2, "most were merged meanwhile"
    assert busy.gone(snapshot) == 0
    records = [busy.log.table.read_file(entry.file).num_rows for entry in snapshot]
    assert sum(records) == snapshot[-1].end_offset == 5 * APPENDS_A_MINUTE
    busy.run(40)
    assert busy.gone(snapshot) > 0
    busy.rest(150)
    assert list_files(busy.log) == len(busy.log.files), "nothing that left the log is left"


def test_checkpoints_of_a_busy_log_name_lists_and_a_successor_deletes_what_they_name(busy: Busy) -> None:
    busy.run(40)
    waiting = list_files(busy.log) - len(busy.log.files)
    removed = busy.log.state.removed
    assert waiting > 2 * LIST_FILES > len(removed), "few of those that wait are named by themselves"
    assert sum(map(is_list, removed)) >= 2
    busy.log.table.checkpointer(busy.log.state.snapshot())()
    successor = PartitionLog(busy.replicas.table("1"), busy.log.config, busy.replicas.clock, busy.replicas.ids)
    assert sum(map(is_list, successor.state.removed)) >= 2
    busy.log, busy.upkeep = successor, Upkeep(successor, LIMITS)
    busy.rest(150)
    assert (list_files(successor), busy.log.table.list_objects("_removed/")) == (len(successor.files), [])


def test_the_topic_says_how_long(busy: Busy) -> None:
    short = Busy({"stratalog.snapshot.retention.ms": 0})
    for each in (short, busy):
        each.run(5)
        each.log.table.checkpoint()
        each.log.state.made_durable(each.log.version)
        each.rest(3)
    assert list_files(short.log) == len(short.log.files)
    assert list_files(busy.log) > 100


def test_an_erasure_is_over_after_the_delay_of_files_also_in_what_left_the_log_before(busy: Busy) -> None:
    """Files that were merged before the erasure hold its records, too."""
    busy.run(30)
    assert any(map(is_list, busy.log.state.removed))
    before = list(busy.log.files)
    busy.erases.append(Erase(1, busy.log.log_end_offset, ErasePredicate.parse({"key": {"equals": "a"}})))
    busy.rest(4)
    assert busy.gone(before) == len(before)
    assert (list_files(busy.log), len(busy.log.files)) == (0, 0)
    busy.run(5)
    busy.rest(5)
    assert list_files(busy.log) > 100, "later files stay again"


def test_a_full_disk_keeps_nothing_for_readers(busy: Busy, monkeypatch: pytest.MonkeyPatch) -> None:
    busy.run(30)
    assert list_files(busy.log) > 500
    monkeypatch.setattr(MemoryLogTable, "free_share", 0.05)
    busy.log.table.checkpoint()
    busy.log.state.made_durable(busy.log.version)
    busy.rest(3)
    assert list_files(busy.log) == len(busy.log.files)


def copy_all(follower: PartitionLog, leader: PartitionLog, epoch: int) -> None:
    while follower.log_end_offset < leader.log_end_offset:
        follower.copy_from(leader, epoch, 1 << 20)


def test_what_a_truncation_may_bring_back_is_copied_under_another_name(busy: Busy) -> None:
    """A list is not read when a follower copies: so nothing that it may name keeps its name."""
    follower = busy.replicas.follower("2", 0, busy.log.config)
    for _ in range(30):
        write(busy.log, *["a"] * 60)
        copy_all(follower, busy.log, 0)
        busy.replicas.clock.sleep_ms(MINUTE_MS)
        upkeep = Upkeep(follower, LIMITS)
        while upkeep.step(busy.replicas.clock.now_ms, follower.log_end_offset, 0) is not None:
            pass
    written, is_written = follower.checkpoint()
    written()
    is_written()
    assert any(map(is_list, follower.state.removed))
    assert not isinstance(follower.start_epoch(1, as_leader=False, truncate_to=100), Conflict)
    assert not isinstance(busy.log.start_epoch(1, as_leader=True), Conflict)
    copy_all(follower, busy.log, 1)
    copied = [entry for entry in follower.files if entry.start_offset >= 100]
    assert copied[-1].end_offset == busy.log.log_end_offset
    theirs = {entry.path for entry in busy.log.files}
    assert not theirs & {entry.path for entry in copied}
