"""`read_topic` and the committed view: one plan with fixed ends, and a stream that goes on where they end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from stratalog import read_topic
from stratalog.storage.errors import InvalidConfigError, UnknownTopicOrPartitionError
from stratalog.storage.records import TRANSACTIONAL_ATTRIBUTE, NewRecordBatch, TopicPartition, payload_table
from stratalog.storage.transactions import EndMarker, marker_batch
from tests.clients.still_cluster import StillCluster


@pytest.fixture
def cluster(tmp_path: Path) -> StillCluster:
    return StillCluster(tmp_path)


def values(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


def streamed(spark: SparkSession, cluster: StillCluster, folder: Path, start: str, **options: Any) -> list[str]:
    """What a stream with this start has once it has read all."""
    source = spark.readStream.format("stratalog").options(**{"stratalog.root": cluster.root, "subscribe": "t"})
    stream = source.options(startingOffsets=start, **options).load()
    output = str(folder / "output")
    sink = stream.writeStream.format("json").option("path", output)
    query = sink.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(90)
    return values(spark.read.schema("value binary").json(output))


class Transaction:
    """Records of one producer in one partition, between other records."""

    def __init__(self, cluster: StillCluster, topic_partition: TopicPartition, producer_id: int) -> None:
        self._cluster, self._partition, self._producer_id = cluster, topic_partition, producer_id

    def put(self, written: Sequence[str]) -> None:
        payload = payload_table([(1, None, value.encode(), None) for value in written])
        batch = NewRecordBatch(payload, self._producer_id, 0, 0, attributes=TRANSACTIONAL_ATTRIBUTE)
        self._add(replace(batch, verified_offset=1 << 40, verified_leader_epoch=0))

    def end(self, *, committed: bool) -> None:
        self._add(marker_batch(self._producer_id, 0, EndMarker(committed, 0), 1))

    def _add(self, batch: NewRecordBatch) -> None:
        self._cluster.append_batch(self._partition, batch)
        log = self._cluster.log(self._partition, self._cluster.leader(self._partition))
        self._cluster.publish(self._partition, log.log_end_offset)


@pytest.mark.any_session
def test_a_backfill_and_the_stream_that_goes_on_have_each_record_once(
    spark: SparkSession, cluster: StillCluster, tmp_path: Path
) -> None:
    t0, t1, t2 = cluster.create_topic("t", 3)
    cluster.commit(t0, ["a", "b"])
    cluster.commit(t1, ["c"])
    cluster.append(t1, [(1, None, b"d", None)])  # not committed when the read begins
    backfill = read_topic(spark, cluster.root, "t")
    assert json.loads(backfill.starting_offsets) == {"t": {"0": 2, "1": 1, "2": 0}}
    cluster.commit(t0, ["e"])
    cluster.publish(t1, 2)
    before = values(backfill.frame)
    cluster.commit(t2, ["f", "g"])
    after = streamed(spark, cluster, tmp_path, backfill.starting_offsets)
    assert (before, after) == (["a", "b", "c"], ["d", "e", "f", "g"])
    assert values(backfill.frame) == before


@pytest.mark.any_session
def test_with_read_committed_the_seam_is_before_the_first_open_transaction(
    spark: SparkSession, cluster: StillCluster, tmp_path: Path
) -> None:
    (t0,) = cluster.create_topic("t", 1)
    aborted, kept = Transaction(cluster, t0, 7), Transaction(cluster, t0, 8)
    cluster.commit(t0, ["a"])
    aborted.put(["x"])
    kept.put(["b"])
    aborted.end(committed=False)
    cluster.commit(t0, ["c"])
    committed = {"isolation.level": "read_committed"}
    backfill = read_topic(spark, cluster.root, "t", committed)
    assert json.loads(backfill.starting_offsets) == {"t": {"0": 2}}
    kept.end(committed=True)
    assert values(backfill.frame) == ["a"]
    assert streamed(spark, cluster, tmp_path, backfill.starting_offsets, **committed) == ["b", "c"]
    assert values(read_topic(spark, cluster.root, "t").frame) == ["a", "b", "c", "x"]


def test_a_frame_has_what_the_topic_had_when_it_was_made(spark: SparkSession, cluster: StillCluster) -> None:
    t0, t1 = cluster.create_topic("t", 2)
    cluster.commit(t0, ["a"])
    cluster.commit(t1, ["b"])
    frame = read_topic(spark, cluster.root, "t", {"includeHeaders": True}).frame
    assert frame.columns[-1] == "headers"
    new = TopicPartition("t", 2)
    cluster.lead(new, 1, 0)
    cluster.commit(new, ["of a later partition"])
    cluster.commit(t0, ["later"])
    assert values(frame) == ["a", "b"]


def test_records_that_retention_has_removed_are_missed(spark: SparkSession, cluster: StillCluster) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, ["a"])
    cluster.commit(t0, ["b"])
    strict, lenient = (read_topic(spark, cluster.root, "t", {"failOnDataLoss": each}).frame for each in (True, False))
    cluster.log(t0, 1).start_epoch(0, as_leader=True, log_start=1)
    cluster.publish(t0, 2)
    with pytest.raises(PySparkException, match="KAFKA_DATA_LOSS"):
        values(strict)
    assert values(lenient) == ["b"]


def test_an_end_that_is_asked_for_is_kept(spark: SparkSession, cluster: StillCluster, tmp_path: Path) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, ["a", "b", "c", "d"], first_ms=1_000)
    by_time = read_topic(spark, cluster.root, "t", {"startingOffsets": '{"t":{"0":1}}', "endingTimestamp": 1_003})
    assert (values(by_time.frame), json.loads(by_time.starting_offsets)) == (["b", "c"], {"t": {"0": 3}})
    assert streamed(spark, cluster, tmp_path, by_time.starting_offsets) == ["d"]


def test_a_wrong_topic_or_option_is_an_error_at_once(spark: SparkSession, cluster: StillCluster) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="'t' does not exist"):
        read_topic(spark, cluster.root, "t")
    cluster.create_topic("t", 1)
    with pytest.raises(InvalidConfigError, match="can't be latest for batch"):
        read_topic(spark, cluster.root, "t", {"startingOffsets": "latest"})
