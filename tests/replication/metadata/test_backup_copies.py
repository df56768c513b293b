"""Copies of the metadata log in brokers' roots: when they are made, how many stay, and which one is the newest."""

from __future__ import annotations

from concurrent.futures import Executor

import pytest

from stratalog.replication.metadata.backup.backup import Backup, decode_backup, encode_backup
from stratalog.replication.metadata.backup.copies import COPIES_PREFIX, BackupCopies, newest_copy, take_backup
from stratalog.replication.metadata.records import (
    ClusterRecord,
    ConfigRecord,
    ControllerRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from stratalog.storage.errors import InconsistentClusterIdError, InvalidRequestError
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores, commit
from tests.storage.hand_executor import HandExecutor

INTERVAL_MS = 60_000
ROOTS = "broker-1", "broker-2"


class Copying:
    """A cluster's metadata log in memory, and the copies of its brokers."""

    def __init__(self, interval_ms: int = INTERVAL_MS, executor: Executor | None = None) -> None:
        self.stores = MemoryStores()
        self.metadata = self.stores.metadata()
        registered = [RegisterBrokerRecord(i, i, "run", root) for i, root in enumerate(ROOTS, 1)]
        commit(self.metadata, ClusterRecord("cluster", 1), ControllerRecord(1, 1), *registered, TopicRecord("t", "id"))
        ports = self.stores.ports(executor)
        self.copies = {root: BackupCopies(root, METADATA_ROOT, ports, interval_ms) for root in ROOTS}

    def alter(self, value: str) -> None:
        commit(self.metadata, ConfigRecord("t", "retention.ms", value))

    def after(self, wait_ms: int, *roots: str) -> None:
        """A step of the brokers of these roots, of all without one."""
        self.stores.clock.sleep_ms(wait_ms)
        for root in roots or ROOTS:
            self.copies[root].step(self.metadata.log.log_end_offset)

    def paths(self, root: str) -> list[str]:
        return [meta.path for meta in self.stores.objects(root).list(COPIES_PREFIX)]

    def newest(self, *roots: str) -> tuple[str | None, str]:
        """The topic's retention in the newest copy, and the root that holds it."""
        found = newest_copy(self.stores, roots or ROOTS)
        return found.backup.image().topic_config("t").get("retention.ms"), found.root


@pytest.fixture
def copying() -> Copying:
    return Copying()


def test_a_copy_is_made_after_the_interval_while_the_log_grows(copying: Copying) -> None:
    counts = []
    for wait_ms in (INTERVAL_MS - 1, 1, INTERVAL_MS):
        copying.after(wait_ms, "broker-1")
        counts.append(len(copying.paths("broker-1")))
    assert counts == [0, 1, 1], "nothing has changed in the second interval"
    copying.alter("5")
    copying.after(0, "broker-1")
    assert copying.newest("broker-1") == ("5", "broker-1")
    copying.alter("6")
    copying.after(INTERVAL_MS - 1, "broker-1")
    assert copying.newest("broker-1") == ("5", "broker-1")
    copying.after(1, "broker-1")
    assert copying.newest("broker-1") == ("6", "broker-1")


def test_a_copy_is_a_whole_backup(copying: Copying) -> None:
    copying.stores.objects(METADATA_ROOT).put_register("sinks/q.json", b"{}")
    copying.after(INTERVAL_MS, "broker-1")
    (path,) = copying.paths("broker-1")
    copied = decode_backup(copying.stores.objects("broker-1").get(path).decode())
    clock, ids = copying.stores.clock, copying.stores.ids
    assert copied == take_backup(copying.stores, METADATA_ROOT, clock, ids)
    assert copied.manifests == {"sinks/q.json": "{}"}


def test_the_two_newest_copies_stay_and_a_torn_one_does_not_count(copying: Copying) -> None:
    for value in ("1", "2", "3"):
        copying.alter(value)
        copying.after(INTERVAL_MS, "broker-1")
    older, newer = copying.paths("broker-1")
    objects = copying.stores.objects("broker-1")
    objects.put(newer, objects.get(newer)[:-9])
    assert copying.newest("broker-1") == ("2", "broker-1")
    objects.put(older, b"\xff\xfe")
    with pytest.raises(InvalidRequestError, match=r"no copy of the metadata log was found \(broker-1: no copy\)"):
        copying.newest("broker-1")


def test_a_clock_that_goes_back_removes_no_new_copy(copying: Copying) -> None:
    copying.alter("1")
    copying.after(INTERVAL_MS, "broker-1")
    copying.stores.clock.now_ms += 10**9
    copying.alter("2")
    copying.after(INTERVAL_MS, "broker-1")
    copying.alter("3")
    wall_ms = copying.stores.clock.now_ms
    copying.stores.clock.wall_ms = lambda: wall_ms - 10**9 + 7  # type: ignore[method-assign]
    copying.after(INTERVAL_MS, "broker-1")
    assert len(copying.paths("broker-1")) == 2
    texts = [copying.stores.objects("broker-1").get(path).decode() for path in copying.paths("broker-1")]
    assert {decode_backup(text).image().topic_config("t")["retention.ms"] for text in texts} == {"2", "3"}


def test_the_newest_copy_is_found_through_roots_that_copies_name(copying: Copying) -> None:
    copying.after(INTERVAL_MS)
    copying.alter("5")
    copying.after(INTERVAL_MS, "broker-2")
    assert copying.newest("broker-1") == ("5", "broker-2")
    copying.alter("6")
    copying.after(INTERVAL_MS, "broker-1")
    assert copying.newest("broker-1") == ("6", "broker-1")


def test_after_a_restore_the_copies_of_before_are_older_whatever_their_offsets(copying: Copying) -> None:
    """A restored log is shorter than one that was compacted for months; its controller epochs are higher."""
    copying.after(INTERVAL_MS, "broker-1")
    (path,) = copying.paths("broker-1")
    before = decode_backup(copying.stores.objects("broker-1").get(path).decode())
    old = Backup(before.cluster_id, 9_000, before.taken_ms, before.records)
    copying.stores.objects("broker-2").put(f"{COPIES_PREFIX}{1:020}.jsonl", encode_backup(old).encode())
    assert copying.newest()[1] == "broker-2"
    commit(copying.metadata, ControllerRecord(1, 1_001))
    copying.after(INTERVAL_MS, "broker-1")
    assert copying.newest()[1] == "broker-1"


def test_roots_of_two_clusters_are_refused(copying: Copying) -> None:
    copying.after(INTERVAL_MS, "broker-1")
    (path,) = copying.paths("broker-1")
    text = copying.stores.objects("broker-1").get(path).decode()
    other = decode_backup(text)
    stranger = Backup("another", other.end_offset, other.taken_ms, other.records)
    copying.stores.objects("x").put(f"{COPIES_PREFIX}{1:020}.jsonl", encode_backup(stranger).encode())
    with pytest.raises(InconsistentClusterIdError, match="x belongs to cluster another, broker-1 to cluster"):
        copying.newest("broker-1", "x")


def test_a_metadata_root_that_is_away_is_tried_again(copying: Copying, caplog: pytest.LogCaptureFixture) -> None:
    disk = copying.stores.disk(METADATA_ROOT)
    disk.fault = lambda *_: True
    copying.after(INTERVAL_MS, "broker-1")
    assert "broker-1 has no new copy of the metadata log, trying again" in caplog.text
    disk.fault = None
    copying.after(INTERVAL_MS, "broker-1")
    assert len(copying.paths("broker-1")) == 1


def test_no_copies_where_the_interval_is_0() -> None:
    copying = Copying(interval_ms=0)
    copying.after(INTERVAL_MS)
    assert copying.paths("broker-1") == []


def test_the_caller_does_not_wait_for_a_copy() -> None:
    executor = HandExecutor()
    copying = Copying(executor=executor)
    for _ in range(3):
        copying.after(INTERVAL_MS, "broker-1")
    assert (len(executor.waiting), copying.paths("broker-1")) == (1, [])
    executor.work()
    copying.after(INTERVAL_MS, "broker-1")
    assert (len(executor.waiting), len(copying.paths("broker-1"))) == (0, 1)
