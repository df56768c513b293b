"""The way of a record in a log that compaction rewrote on one replica and not yet on others."""

from __future__ import annotations

from typing import Any

import pytest

from stratalog.clients.admin.transactions import StoredTransactions
from stratalog.clients.console.asker import Asker
from stratalog.clients.console.stored.commits import COMMITS_READ_MAX, commit_of_offset, oldest_version
from stratalog.clients.console.stored.record_way import record_way
from stratalog.jobs.command.opened import OpenedCluster
from stratalog.replication.metadata.acls import Principal
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.delta.table import LOG_END, Commit
from stratalog.storage.files.data_file import DataFile, FileEntry
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import NewRecordBatch, TopicPartition, payload_table
from stratalog.storage.topic_config import LogConfig
from tests.clients.memory_cluster import MemoryCluster
from tests.storage.keyed import clean, compacted

T0 = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> MemoryCluster:
    """t-0 on brokers 1 to 3: keys a b a b a b, one batch each; the leader's log is compacted, the others are not."""
    made = MemoryCluster()
    made.create_topic("t")
    made.log(1, T0).config = compacted()
    for number in range(6):
        row = (1_000 + number, b"ab"[number % 2 : number % 2 + 1], b"v%d" % number, None)
        made.append_batch(T0, NewRecordBatch(payload_table([row])))
    for broker in (2, 3):
        made.follow(broker, T0)
    made.publish(T0)
    clean(made.log(1, T0), now_ms=10**15, high_watermark=6)
    return made


def asker(cluster: MemoryCluster) -> Asker:
    view = ClusterView(cluster.root, stores=cluster.stores, clock=cluster.clock, ids=cluster.ids)
    opened = OpenedCluster(view, None, {})  # type: ignore[arg-type]
    assert isinstance(opened.transactions(), StoredTransactions)
    return Asker(opened, Principal(), None, 10**15)


def test_a_record_that_compaction_removed_is_absent_there_and_the_other_copies_are_the_same(
    cluster: MemoryCluster,
) -> None:
    found = record_way(asker(cluster), "t", 0, 0)
    assert {copy.broker_id: copy.state for copy in found.copies} == {1: "absent", 2: "same", 3: "same"}
    assert (found.agrees, found.origin is not None) == (True, True)
    kept = record_way(asker(cluster), "t", 0, 5)
    assert {copy.state for copy in kept.copies} == {"same"}
    assert kept.origin is not None
    assert (kept.origin.timestamp_ms, kept.origin.key_bytes, kept.origin.value_bytes) == (1_005, 1, 2)


def test_another_record_at_the_offset_is_found_by_its_checksum(cluster: MemoryCluster) -> None:
    table = cluster.stores.table(cluster.root_of(3), T0)
    log = PartitionLog(table, LogConfig(), cluster.clock, cluster.ids)
    epoch = log.leader_epoch
    log.start_epoch(epoch, as_leader=False, truncate_to=5)
    log.append([NewRecordBatch(payload_table([(1_005, b"b", b"other", None)]))], epoch, 1)
    found = record_way(asker(cluster), "t", 0, 5)
    states = {copy.broker_id: (copy.state, copy.reason) for copy in found.copies}
    assert not found.agrees
    assert states[3] == ("differs", "another value than the first copy's")
    assert states[2][0] == "same"


def entry(start: int, end: int, epoch: int = 0) -> FileEntry:
    return FileEntry(DataFile(f"{start}", 1, end - start, 0, end - start - 1, None, None), 0, epoch, start)


def log_of(*ends: int | None, adds: dict[int, FileEntry] | None = None) -> Any:
    """Commits after which a log ends there; None: cleaned up."""
    found = {
        version: Commit(
            f"{version}", "WRITE", version, (adds[version],) if adds and version in adds else (), (), {LOG_END: end}
        )
        for version, end in enumerate(ends)
        if end is not None
    }
    return found.get


@pytest.mark.parametrize(
    ("ends", "adds", "offset", "expected"),
    [
        ((0, 3, 6, 6, 9), {1: entry(0, 3), 2: entry(3, 6), 4: entry(6, 9)}, 4, 2),
        ((0, 3, 6, 6, 9), {1: entry(0, 3), 2: entry(3, 6), 4: entry(6, 9)}, 8, 4),
        ((None, None, 6, 9), {3: entry(6, 9)}, 7, 3),
        ((None, None, 6, 9), {3: entry(6, 9)}, 4, None),
        ((None, None, 6, 9), {2: entry(3, 6), 3: entry(6, 9)}, 4, 2),
        ((0, 5, 2, 6), {1: entry(0, 5), 3: entry(2, 6, 1)}, 4, 3),
        ((0, 9, 2, 4, 9, 9), {1: entry(0, 9), 3: entry(2, 4, 1), 4: entry(4, 9, 1)}, 3, 3),
    ],
)
def test_the_commit_of_an_offset_is_the_last_one_that_brought_it(
    ends: tuple[int | None, ...], adds: dict[int, FileEntry], offset: int, expected: int | None
) -> None:
    epoch = max(each.leader_epoch for each in adds.values())
    found = commit_of_offset(log_of(*ends, adds=adds), len(ends) - 1, offset, epoch)
    assert (None if found is None else found.version) == expected


def test_the_oldest_version_is_the_first_that_was_not_cleaned_up() -> None:
    assert [oldest_version(log_of(*ends), len(ends) - 1) for ends in ((1, 1), (None, 1, 1), (None, None, 1))] == [
        0,
        1,
        2,
    ]
    assert COMMITS_READ_MAX > 1
