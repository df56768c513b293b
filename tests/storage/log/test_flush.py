"""`flush.messages` and `flush.ms`: what is synced before an append returns, and what without an append."""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.delta.table import Committed
from stratalog.storage.errors import KafkaStorageError, StoreUnavailableError
from stratalog.storage.log.append import Appended, BatchAppended
from stratalog.storage.log.flush import FlushState
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.objects.local import LocalStore
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import UpkeepDone, UpkeepLimits, UpkeepWork
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.storage.logs import CountingIds, FakeClock, Replicas, append, batch, contents, idempotent, started, write
from tests.storage.memory_table import MemoryDisk
from tests.storage.power_cut_store import PowerCutStore

QUIET = UpkeepLimits(checkpoint_commits=1_000, merge_files_min=1_000)


def config(**properties: object) -> LogConfig:
    return LogConfig.from_properties({name.replace("_", "."): value for name, value in properties.items()})


@pytest.mark.parametrize(
    ("properties", "record_counts", "synced"),
    [
        ({}, [1, 1_000_000], [False, False]),
        ({"flush_messages": 1}, [1, 0, 5], [True, False, True]),
        ({"flush_messages": 3}, [1, 1, 1, 2, 2], [False, False, True, False, True]),
        ({"flush_messages": 3}, [4, 1], [True, False]),
        ({"flush_ms": 0}, [1, 0], [True, True]),
    ],
)
def test_a_flush_is_due_by_records(properties, record_counts, synced):
    flush, found = FlushState(FakeClock()), []
    for record_count in record_counts:
        found.append(flush.is_due(config(**properties), record_count))
        flush.committed(record_count, is_synced=found[-1])
    assert found == synced


def test_a_flush_is_due_by_time():
    clock = FakeClock(10_000)
    flush, each_second = FlushState(clock), config(flush_ms=1_000)
    assert flush.wait_ms(each_second) is None  # nothing was appended
    assert flush.is_due(each_second, 1)
    flush.committed(1, is_synced=True)
    clock.sleep_ms(400)
    assert not flush.is_due(each_second, 1)
    flush.committed(1, is_synced=False)
    assert (flush.wait_ms(each_second), flush.wait_ms(config())) == (600, None)
    clock.sleep_ms(700)
    assert (flush.wait_ms(each_second), flush.is_due(each_second, 1)) == (0, True)
    flush.committed(2, is_synced=False)
    flush.synced(1)  # of the three; the later two still wait
    assert (flush.record_count, flush.wait_ms(each_second)) == (2, 1_000)


def test_a_sync_covers_others_commits():
    flush = FlushState(FakeClock())
    assert flush.others_from is None
    flush.others_committed(7)
    flush.others_committed(9)
    flush.committed(1, is_synced=False)
    assert flush.others_from == 7
    flush.committed(1, is_synced=True)
    assert flush.others_from is None


EPOCH_0 = "segment=0/leader_epoch=0"
"""The directory above those of the data files, each of which has one of its own."""


class Calls(LocalStore):
    """A local disk that records writes and syncs in order, by path below the table."""

    def __init__(self, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root)
        self.calls: list[str] = []
        real_fsync, real_link = os.fsync, os.link

        def fsync(descriptor: int) -> None:
            self._note("sync", os.readlink(f"/proc/self/fd/{descriptor}"))
            real_fsync(descriptor)

        def link(source, target, **options) -> None:
            real_link(source, target, **options)
            self._note("create", target)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "link", link)

    def put_new(self, path, data) -> None:
        super().put_new(path, data)
        self._note("write", f"{self.root}/{path}")

    def _note(self, what: str, path: str) -> None:
        found = path.removeprefix(self.root).removeprefix("/t-0").removeprefix("/")
        kind = "data file" if found.endswith(".parquet") else "commit" if found.endswith(".json") else found or "above"
        self.calls.append(f"{what} {kind.replace('0' * 20, '0')}")


def test_an_append_that_is_flushed_is_synced_whole_before_it_is_answered(tmp_path, monkeypatch):
    (tmp_path / "t-0").mkdir()
    store = Calls(str(tmp_path), monkeypatch)
    log = PartitionLog(
        DeltaLogTable(store, "t-0", CountingIds()), config(flush_messages=2), FakeClock(), CountingIds(99)
    )
    log.exists_or_create("topic-id")
    started(log, 0)
    store.calls.clear()
    write(log, "a")
    assert store.calls == ["write data file", "create commit"]
    store.calls.clear()
    write(log, "b")
    assert store.calls == [
        "write data file",
        "sync data file", "sync commit", "sync data file",  # the first record's, and the second's file
        f"sync {EPOCH_0}/base_offset=1", f"sync {EPOCH_0}/base_offset=0",
        f"sync {EPOCH_0}", "sync segment=0", "sync _delta_log", "sync above",  # the segment's own entry, too: it is new
        "create commit",
        "sync commit",
        "sync _delta_log",
    ]  # fmt: skip
    store.calls.clear()
    write(log, "c d")
    assert store.calls == [
        "write data file",
        "sync data file", f"sync {EPOCH_0}/base_offset=2", f"sync {EPOCH_0}",
        "create commit",
        "sync commit", "sync _delta_log",
    ]  # fmt: skip


def test_flush_ms_syncs_an_idle_log():
    store, clock, ids = PowerCutStore(random.Random(1)), FakeClock(), CountingIds()
    log = PartitionLog(DeltaLogTable(store, "t-0", ids), config(flush_ms=5_000), clock, ids)
    log.exists_or_create("topic-id")
    started(log, 0)
    upkeep = Upkeep(log, QUIET)
    write(log, "a", "b")

    def step() -> UpkeepDone | None:
        return upkeep.step(clock.wall_ms(), 2, 0)

    assert step() is None
    assert upkeep.rest_ms(clock.wall_ms()) <= 5_000
    clock.sleep_ms(5_000)
    done = step()
    assert done is not None
    assert (done.work, done.count) == (UpkeepWork.FLUSH, 2)
    assert step() is None
    store.restart()
    log = PartitionLog(DeltaLogTable(store, "t-0", ids), config(), clock, ids)
    assert contents(log) == [(0, "a"), (1, "b")]


def test_an_append_during_a_flush_waits_for_the_next_one():
    store, clock, ids = PowerCutStore(random.Random(1)), FakeClock(), CountingIds()
    log = PartitionLog(DeltaLogTable(store, "t-0", ids), config(flush_ms=5_000), clock, ids)
    log.exists_or_create("topic-id")
    started(log, 0)
    write(log, "a")
    flush = log.table.flusher(log.version, None)
    write(log, "b")
    flush()
    assert {path for path in store.objects if store.disk.get(path) != store.objects[path]} == {
        f"t-0/{log.files[-1].path}",
        f"t-0/_delta_log/{log.version:020}.json",
    }


@pytest.mark.parametrize("fault", [errno.EIO, errno.ENOSPC])
def test_after_a_failed_sync_nothing_is_acknowledged_until_the_disk_is_opened_anew(tmp_path, monkeypatch, fault):
    """The kernel reports a failed write once, and regards the pages as written from then on."""
    ids, always = CountingIds(), config(flush_messages=1)
    log = PartitionLog(DeltaLogTable(LocalStore(str(tmp_path)), "t-0", ids), always, FakeClock(), ids)
    log.exists_or_create("topic-id")
    started(log, 0)
    faults, real = [fault], os.fsync

    def fsync(descriptor: int) -> None:
        if faults:
            raise OSError(faults.pop(), "it could not be written")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match="it could not be written"):
            write(log, "a")
    log = PartitionLog(DeltaLogTable(LocalStore(str(tmp_path)), "t-0", ids), always, FakeClock(), ids)
    write(log, "b")
    assert contents(log)[-1][1] == "b"


def test_a_sync_that_the_disk_does_not_know_is_no_loss(tmp_path, monkeypatch):
    def fsync(descriptor: int) -> None:
        raise OSError(errno.EINVAL, "no such call here")

    monkeypatch.setattr(os, "fsync", fsync)
    store = LocalStore(str(tmp_path))
    store.put("a", b"x")
    with pytest.raises(StoreUnavailableError):
        store.sync(["a"])
    monkeypatch.undo()
    store.sync(["a"])


def test_directories_that_another_process_made_are_synced_once(tmp_path, monkeypatch):
    store = LocalStore(str(tmp_path))
    LocalStore(str(tmp_path)).put("t-0/segment=0/1.parquet", b"x")
    calls = Calls(str(tmp_path), monkeypatch)
    assert store.exists("t-0/segment=0/1.parquet")
    expected = [["sync data file", "sync segment=0", "sync above", "sync above"], ["sync data file", "sync segment=0"]]
    for names in expected:
        calls.calls.clear()
        store.sync(["t-0/segment=0/1.parquet"])
        assert calls.calls == names
    store.delete_tree("t-0", "gone")
    LocalStore(str(tmp_path)).put("t-0/segment=0/1.parquet", b"y")
    calls.calls.clear()
    store.sync(["t-0/segment=0/1.parquet"])
    assert calls.calls == expected[0]


@pytest.mark.parametrize("seed", range(20))
def test_an_epoch_start_survives_with_all_that_it_builds_on(seed):
    """On a topic that is never flushed. The writer before, another process, synced nothing."""
    store, clock, ids = PowerCutStore(random.Random(seed)), FakeClock(), CountingIds()

    def opened() -> PartitionLog:
        log = PartitionLog(DeltaLogTable(store, "t-0", ids), config(), clock, ids)
        log.exists_or_create("topic-id")
        return log

    before = opened()
    started(before, 0)
    write(before, "a", "b")
    new = opened()
    write(before, "c")
    new.refresh()
    started(new, 1)
    store.restart()
    DeltaLogTable(store, "t-0", ids).recover_tail()
    log = opened()
    assert (log.leader_epoch, contents(log)) == (1, [(0, "a"), (1, "b"), (2, "c")])


def test_an_epoch_start_above_unsynced_commits_survives_in_memory():
    """The memory table, which the simulation uses, loses what the disk would."""
    replicas = Replicas.new()
    before = replicas.leader()
    write(before, "a", "b")
    log = replicas.log()
    write(before, "c")
    log.refresh()
    started(log, 1)
    replicas.disks["1"].lose_unsynced()
    log = replicas.log()
    assert (log.leader_epoch, contents(log)) == (1, [(0, "a"), (1, "b"), (2, "c")])


def answer_is_lost(disk: MemoryDisk, version: int) -> None:
    """The commit of this version is made, and its writer does not learn it."""
    detail = f"_delta_log/{version}"

    def access(operation: str, _table: str, called: str) -> None:
        if called == detail and operation in ("create:done", "get"):
            raise StoreUnavailableError("no answer")

    disk.access = access


def lost_answer(replicas: Replicas, call: Callable[[], object], version: int) -> None:
    disk = replicas.disks["1"]
    usual = disk.access
    answer_is_lost(disk, version)
    with pytest.raises(StoreUnavailableError):
        call()
    disk.access = usual


def test_an_epoch_whose_answer_was_lost_is_durable_once_it_is_begun_again():
    replicas = Replicas.new()
    log = replicas.log()
    lost_answer(replicas, lambda: log.start_epoch(3, as_leader=True), 1)
    log.refresh()
    assert log.start_epoch(3, as_leader=True) == Committed(1)
    replicas.disks["1"].lose_unsynced()
    assert replicas.log().leader_epoch == 3


def test_an_epoch_that_is_begun_again_is_synced_without_the_appends_above_it():
    """As by each fetch session that follows another one: a follower's copies are synced when the topic says so."""
    replicas = Replicas.new()
    log = replicas.log()
    lost_answer(replicas, lambda: log.start_epoch(3, as_leader=True), 1)
    log.refresh()
    write(log, "a", "b", epoch=3)
    later = replicas.log()
    for version in (3, 4):
        later.refresh()
        assert (later.start_epoch(3, as_leader=False), later.flushing.others_from) == (Committed(version), 2)
        write(log, "c", epoch=3)
    replicas.disks["1"].lose_unsynced()
    log = replicas.log()
    assert (log.leader_epoch, contents(log)) == (3, [])


class CountedReads(LocalStore):
    """`read`: the paths of the small objects that were read, in order."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.read: list[str] = []

    def get_optional(self, path: str) -> bytes | None:
        self.read.append(path)
        return super().get_optional(path)


def read_by_store(tmp_path: Path, ids: CountingIds) -> tuple[CountedReads, PartitionLog]:
    """A log with eight records, another handle's, which is not opened yet; and the store that it reads from."""
    before = PartitionLog(DeltaLogTable(LocalStore(str(tmp_path)), "t-0", ids), config(), FakeClock(), ids)
    before.exists_or_create("topic-id")
    started(before, 3)
    write(before, *"abcdefgh", epoch=3)
    store = CountedReads(str(tmp_path))
    return store, PartitionLog(DeltaLogTable(store, "t-0", ids), config(), FakeClock(), ids)


def test_a_session_that_follows_another_one_reads_no_commit_again(tmp_path):
    store, later = read_by_store(tmp_path, CountingIds())
    later.refresh()
    store.read.clear()
    assert later.start_epoch(3, as_leader=False) == Committed(9)
    assert len(store.read) <= 2  # version 0 and the epoch's


def test_a_new_leader_reads_each_commit_once(tmp_path, monkeypatch):
    """Also for its sync of all that it builds on."""
    synced: set[str] = set()
    monkeypatch.setattr(LocalStore, "sync", lambda _store, paths: synced.update(paths))
    store, later = read_by_store(tmp_path, CountingIds())
    synced.clear()
    later.exists_or_create("topic-id")
    later.refresh()
    assert later.start_epoch(4, as_leader=True) == Committed(10)
    commits = [f"t-0/_delta_log/{version:020d}.json" for version in range(11)]
    read = Counter(path for path in store.read if path in commits)
    assert [read[path] for path in commits[:9]] == [1] * 9
    assert {*commits, *(f"t-0/{entry.path}" for entry in later.files)} <= synced


def test_a_sync_for_an_append_covers_what_others_appended_above_the_epoch():
    replicas = Replicas.new()
    before = replicas.leader()
    write(before, "a")
    log = replicas.log(config=config(flush_messages=1))
    log.refresh()
    assert log.start_epoch(0, as_leader=True) == Committed(2)
    write(log, "b")
    replicas.disks["1"].lose_unsynced()
    assert contents(replicas.log()) == [(0, "a"), (1, "b")]


@pytest.mark.parametrize("is_same_group", [True, False])
def test_a_flushed_record_whose_answer_was_lost_is_durable_once_it_is_answered(is_same_group: bool):
    replicas = Replicas.new()
    log = replicas.leader(config=config(flush_messages=1))
    lost_answer(replicas, lambda: append(log, idempotent("a", 0)), 2)
    log.refresh()
    again = [idempotent("a", 0)] if is_same_group else [idempotent("a", 0), batch("")]
    results = log.append(again, 0, 6_000)
    assert isinstance(results, Appended)
    assert isinstance(results.results[0], BatchAppended)
    replicas.disks["1"].lose_unsynced()
    assert contents(replicas.log()) == [(0, "a")]
