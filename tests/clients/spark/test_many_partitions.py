"""What a read of many partitions asks an object store: offsets and folds are fetched together, not one by one."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.clients.spark.offsets import OffsetFetcher
from stratalog.clients.spark.options import OffsetLimit, batch_options
from stratalog.clients.spark.source import batch_reader, plan
from stratalog.clients.spark.source.batch_reader import StratalogReader
from stratalog.clients.spark.source.plan import PlannedRange
from stratalog.clients.spark.source.read import RangeReaders, RangeToRead, ReadManner
from stratalog.replication.stores import DeltaStores
from stratalog.server.view.cluster_view import ClusterView
from stratalog.server.view.read_committed import view_of
from stratalog.storage.clock import RandomIds
from stratalog.storage.objects.store_settings import StoreSettings
from stratalog.storage.records import TopicPartition
from tests import domains
from tests.clients.still_cluster import StillCluster
from tests.stores.s3_double import BUCKET, S3Double, s3_double

PARTITIONS = 20
START, END = OffsetLimit(-2), OffsetLimit(-1)


@pytest.fixture
def double() -> Iterator[S3Double]:
    with s3_double() as running:
        yield running


@pytest.fixture
def settings(double: S3Double) -> StoreSettings:
    given = {"aws.endpoint.url": double.endpoint, "aws.allow.http": "true"}
    return StoreSettings.of({**given, "aws.access.key.id": "id", "aws.secret.access.key": "secret"})


@pytest.fixture
def cluster(settings: StoreSettings) -> StillCluster:
    made = StillCluster(f"s3://{BUCKET}/c", settings)
    for topic_partition in made.create_topic("t", PARTITIONS):
        made.commit(topic_partition, ["a", "b"])
    return made


def new_view(cluster: StillCluster, settings: StoreSettings, isolation_level: str) -> ClusterView:
    return view_of(isolation_level)(cluster.root, stores=DeltaStores(RandomIds(), settings=settings))


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_offsets_of_all_partitions_cost_one_look_at_metadata_and_progress(
    cluster: StillCluster, settings: StoreSettings, double: S3Double, isolation_level: str
) -> None:
    view = new_view(cluster, settings, isolation_level)
    options = batch_options(
        {"stratalog.root": cluster.root, "subscribe": "t", "kafka.isolation.level": isolation_level}
    )
    fetcher = OffsetFetcher(view, options)
    begun = len(double.requests)
    starts, ends = fetcher.limits(START, starting=True), fetcher.limits(END, starting=False)
    asked = [path for _, path in double.requests[begun:]]
    assert (set(starts.values()), set(ends.values())) == ({0}, {2})
    assert sum("/metadata/" in path for path in asked) < PARTITIONS  # a few; each retry of a slow server adds one
    assert sum("/progress/" in path for path in asked) < PARTITIONS
    tables = sum("/_delta_log/" in path and "/metadata/" not in path for path in asked)
    print(f"{isolation_level}: {len(asked)} requests for {PARTITIONS} partitions, {tables} of them for tables")
    assert tables == 0 or isolation_level == "read_committed" or domains.IS_ON


def test_tasks_of_a_batch_read_ask_for_data_files_only(
    cluster: StillCluster, settings: StoreSettings, double: S3Double
) -> None:
    """The planner has found the files; where they are gone a task folds the log."""
    options = batch_options(
        {"stratalog.root": cluster.root, "subscribe": "t", "kafka.isolation.level": "read_committed"}
    )
    fetcher = OffsetFetcher(new_view(cluster, settings, "read_committed"), options)
    wanted = [PlannedRange(TopicPartition("t", number), 0, 2) for number in range(PARTITIONS)]
    planned = fetcher.planned_files(wanted, read_committed=True)
    assert len(planned) == PARTITIONS
    view = new_view(cluster, settings, "read_uncommitted")
    readers = RangeReaders(view)
    ranges = [RangeToRead(each.topic_partition, 0, 2, 0, True, "", planned[each.topic_partition]) for each in wanted]

    def rows_and_requests() -> tuple[int, list[str]]:
        begun = len(double.requests)
        rows = [batch for each in ranges for batch in readers.record_batches(each, ReadManner())]
        return sum(batch.num_rows for batch in rows), [path for _, path in double.requests[begun:]]

    rows, asked = rows_and_requests()
    print(f"{len(asked)} requests of a task for {PARTITIONS} planned partitions")
    assert rows == 2 * PARTITIONS
    assert not [path for path in asked if "/_delta_log/" in path]
    gone = [replace(entry.file, path=f"{entry.path}.gone") for entry in planned[wanted[0].topic_partition].entries]
    entries = [replace(e, file=f) for e, f in zip(planned[wanted[0].topic_partition].entries, gone, strict=True)]
    ranges[0] = replace(ranges[0], planned=replace(planned[wanted[0].topic_partition], entries=tuple(entries)))
    rows, asked = rows_and_requests()
    assert rows == 2 * PARTITIONS
    assert [path for path in asked if "/t-0/_delta_log/" in path]
    assert not [path for path in asked if "/t-1/_delta_log/" in path]


def test_a_task_of_many_partitions_folds_their_logs_at_once(
    cluster: StillCluster, settings: StoreSettings, double: S3Double
) -> None:
    readers = RangeReaders(new_view(cluster, settings, "read_uncommitted"))
    wanted = [RangeToRead(TopicPartition("t", number), 0, 2, 0) for number in range(PARTITIONS)]
    readers.begin(wanted, ReadManner())
    begun = len(double.requests)
    rows = [batch.num_rows for each in wanted for batch in readers.record_batches(each, ReadManner())]
    assert rows == [2] * PARTITIONS
    asked = [path for _, path in double.requests[begun:]]
    assert not [path for path in asked if "/_delta_log/" in path and "/metadata/" not in path]
    assert len([path for path in asked if "/segment=" in path]) <= PARTITIONS


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_a_partition_is_read_in_parts_by_size_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation_level: str
) -> None:
    """As Spark does it, which passes tasks on as bytes. No log is folded by a task."""
    made = StillCluster(tmp_path / "cluster")
    (t0,) = made.create_topic("t", 1)
    for number in range(6):
        made.commit(t0, [str(2 * number), str(2 * number + 1)])
    reader = StratalogReader(
        batch_options({"stratalog.root": made.root, "subscribe": "t", "kafka.isolation.level": isolation_level})
    )
    assert len(reader.partitions()) == 1
    monkeypatch.setattr(batch_reader, "TASK_BYTES_MAX", 1)
    monkeypatch.setattr(plan, "TASK_RECORDS_MIN", 1)
    tasks = pickle.loads(pickle.dumps(list(reader.partitions())))
    assert len(tasks) == 12
    monkeypatch.setattr(RangeReaders, "_log_with", None)
    values = [value for task in tasks for batch in reader.read(task) for value in batch["value"].to_pylist()]
    assert values == [str(number).encode() for number in range(12)]
