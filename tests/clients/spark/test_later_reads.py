"""What reads of one session see of changes in between, while no record is appended.

Spark plans and reads in Python processes that it reuses: views and folds stay from read to read. Here all of it is one
process, as with `local[1]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from stratalog.clients.spark import offsets
from stratalog.clients.spark.options import batch_options, stream_options
from stratalog.clients.spark.source import read
from stratalog.clients.spark.source.batch_reader import StratalogReader
from stratalog.clients.spark.source.read import RangeReaders, RangeToRead, ReadManner
from stratalog.clients.spark.source.stream_reader import StratalogStreamReader
from stratalog.clients.spark.worker import view_of
from stratalog.replication.metadata.records import ConfigRecord, EraseRecord
from stratalog.storage.records import TopicPartition
from tests.clients.still_cluster import StillCluster
from tests.storage.keyed import clean, compacted, keyed

LIMIT = ReadMaxRows(2**63 - 1)
MANNERS = ("planned", "many partitions", "rack", "parts", "stream")

Reads = Callable[[], list[str]]


@pytest.fixture
def cluster(tmp_path: Path) -> StillCluster:
    return StillCluster(tmp_path)


@pytest.fixture
def t0(cluster: StillCluster) -> TopicPartition:
    return keyed_topic(cluster)


def keyed_topic(cluster: StillCluster) -> TopicPartition:
    """The partition of a compacted topic "t" with records 1 to 7, each in a file; of 4 to 7 the keys come no more."""
    (made,) = cluster.create_topic("t", 1)
    cluster.commit_metadata(ConfigRecord("t", "cleanup.policy", "compact"))
    log = cluster.log(made, 1)
    log.config = compacted(min_cleanable_dirty_ratio=0)
    for record in ("a=1", "b=2", "a=3", "b=4", "a=5", "c=6", "c=7"):
        cluster.append_batch(made, keyed(record))
    cluster.publish(made, log.log_end_offset)
    return made


def compact(cluster: StillCluster, topic_partition: TopicPartition, *, are_deleted: bool = False) -> None:
    """Run the cleaner on the leader's log; nothing is published. `are_deleted`: `file.delete.delay.ms` has passed."""
    log = cluster.log(topic_partition, 1)
    folder = Path(cluster.roots[1], str(topic_partition))
    before = {entry.path for entry in log.files}
    assert clean(log)
    for path in before - {entry.path for entry in log.files} if are_deleted else ():
        (folder / path).unlink()


def batch(cluster: StillCluster, options: Mapping[str, str]) -> list[str]:
    """The values of a batch read."""
    reader = StratalogReader(batch_options({"stratalog.root": cluster.root, "subscribe": "t", **options}))
    return [value for task in reader.partitions() for value in values(reader, task)]


def values(reader: StratalogReader | StratalogStreamReader, task: Any) -> list[str]:
    return [value.decode() for rows in reader.read(task) for value in rows["value"].to_pylist()]


def stream(cluster: StillCluster) -> list[str]:
    """The values of the first batch of a new query, whose planner is a new process."""
    view_of.cache_clear()
    given = {"stratalog.root": cluster.root, "subscribe": "t", "startingOffsets": "earliest"}
    reader = StratalogStreamReader(stream_options(given))
    start = reader.initialOffset()
    end = reader.latestOffset(start, LIMIT)
    return [value for task in reader.partitions(start, end) for value in values(reader, task)]


@pytest.fixture
def reads(cluster: StillCluster, monkeypatch: pytest.MonkeyPatch, manner: str) -> Reads:
    """A read of the topic from its start, in a manner: a plan with files or without, in one part or several."""
    if manner == "stream":
        return partial(stream, cluster)
    if manner == "many partitions":
        monkeypatch.setattr(offsets, "PLANNED_ON_DISK_MAX", 0)
    options = {"rack": {"client.rack": "a"}, "parts": {"maxRecordsPerPartition": "2"}}.get(manner, {})
    return partial(batch, cluster, options)


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("are_deleted", [False, True])
def test_what_compaction_removed_before_a_read_is_not_in_it(
    cluster: StillCluster, t0: TopicPartition, reads: Reads, are_deleted: bool
) -> None:
    assert reads() == list("1234567")
    compact(cluster, t0, are_deleted=are_deleted)
    assert reads() == list("4567")


def test_files_that_are_deleted_after_the_plan_are_planned_again(
    cluster: StillCluster, t0: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that has begun goes on with what is left, as a Kafka consumer does whose segment was swapped."""
    monkeypatch.setattr(read, "READ_BYTES", 1)
    reader = StratalogReader(batch_options({"stratalog.root": cluster.root, "subscribe": "t"}))
    (before,), (under_way,) = reader.partitions(), reader.partitions()
    rows = reader.read(under_way)
    assert next(rows)["value"].to_pylist() == [b"1"]
    compact(cluster, t0, are_deleted=True)
    assert values(reader, before) == list("4567")
    assert [value for batch in rows for value in batch["value"].to_pylist()] == [b"4", b"5", b"6", b"7"]


@pytest.mark.parametrize("manner", MANNERS)
def test_later_reads_begin_where_retention_and_delete_records_have_moved_the_log_start(
    cluster: StillCluster, t0: TopicPartition, reads: Reads
) -> None:
    assert reads() == list("1234567")
    log = cluster.log(t0, 1)
    moved = partial(log.replace_files, adds=(), leader_epoch=0, operation="RETENTION", now_ms=1)
    moved(log.files[:3], log_start=3)
    cluster.publish(t0, 7)
    assert reads() == list("4567")
    moved((), log_start=5)
    cluster.publish(t0, 7)
    assert reads() == list("67")


@pytest.mark.parametrize("manner", MANNERS)
def test_later_reads_are_of_the_topic_that_was_created_again(
    cluster: StillCluster, t0: TopicPartition, reads: Reads
) -> None:
    assert reads() == list("1234567")
    cluster.create_again("t", 1, "another-id")
    assert reads() == []
    cluster.commit(t0, list("xyz"))
    assert reads() == list("xyz")


def test_an_erasure_that_the_metadata_of_a_task_does_not_show_yet_is_no_loss(
    cluster: StillCluster, t0: TopicPartition
) -> None:
    cluster.commit_metadata(ConfigRecord("t", "cleanup.policy", None))
    readers, wanted = RangeReaders(cluster.view()), RangeToRead(t0, 0, 7, 0)

    def task() -> list[bytes]:
        readers.begin([wanted], ReadManner())
        return [value for rows in readers.record_batches(wanted, ReadManner()) for value in rows["value"].to_pylist()]

    assert b"".join(task()) == b"1234567"
    cluster.commit_metadata(EraseRecord("t", 1, "{}", (7,), "request"))
    log = cluster.log(t0, 1)
    log.replace_files([log.files[2]], [], leader_epoch=0, operation="ERASE 1", now_ms=1)
    assert b"".join(task()) == b"124567"
