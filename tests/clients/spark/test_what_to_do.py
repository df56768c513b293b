"""An error that a user of the Spark source, the sink or the cluster can cause ends with what to do about it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from stratalog import Cluster
from stratalog.clients.spark import conditions
from stratalog.clients.spark.group.offsets import OffsetBounds
from stratalog.clients.spark.option_names import ROOT
from stratalog.clients.spark.options import batch_options, sink_options, stream_options
from stratalog.clients.spark.sink.rows import check_columns
from stratalog.clients.spark.source.source import StratalogDataSource
from stratalog.clients.spark.sql.cluster_tables import cluster_table
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition
from tests.clients.memory_cluster import MemoryCluster

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
BASE = {ROOT: "/cluster", "subscribe": "t"}
_OF_OPTIONS = ("add", "correct", "give", "leave", "make", "name", "raise", "remove", "set", "use", "write")
_OF_QUERIES = ("begin", "cast", "create", "kill", "let", "restart", "start", "stop")
VERBS = frozenset((*_OF_OPTIONS, *_OF_QUERIES))
"""A sentence on what to do begins with one of these; it may follow a colon or a semicolon."""


def says_what_to_do(text: str) -> bool:
    """Whether the last sentence, or what follows its last colon, is an instruction.

    >>> says_what_to_do("There is no topic t. Create it.")
    True
    """
    sentences = re.split(r"(?<=[.?])\s+|\n", text.strip())
    parts = re.split(r"[:;]\s+", sentences[-1])
    to_do = [sentences[-1], *parts, *re.findall(r"(?:To [a-z ]+, )(\w.*)", sentences[-1])]
    return any(part.split()[0].strip(".,").lower() in VERBS for part in to_do if part)


OPTION_ERRORS = [
    (stream_options, {**BASE, "endingOffsets": "latest"}),
    (stream_options, {**BASE, "endingTimestamp": "5"}),
    (stream_options, {ROOT: "/c"}),
    (stream_options, {**BASE, "assign": '{"t":[0]}'}),
    (stream_options, {ROOT: "/c", "assign": "t"}),
    (stream_options, {ROOT: "/c", "assign": "{t}"}),
    (stream_options, {ROOT: "/c", "subscribe": " , "}),
    (stream_options, {ROOT: "/c", "subscribePattern": " "}),
    (stream_options, {ROOT: "/c", "subscribePattern": "("}),
    (stream_options, {"subscribe": "t"}),
    (stream_options, {**BASE, "startingOffsets": "soon"}),
    (stream_options, {**BASE, "startingTimestamp": "soon"}),
    (stream_options, {**BASE, "startingOffsetsByTimestampStrategy": "soon"}),
    (stream_options, {**BASE, "maxTriggerDelay": "5 fortnights"}),
    (stream_options, {**BASE, "minPartitions": "0"}),
    (stream_options, {**BASE, "maxRecordsPerPartition": "0"}),
    (stream_options, {**BASE, "maxBytesPerTrigger": "many"}),
    (stream_options, {**BASE, "minPartitions": "many"}),
    (stream_options, {**BASE, "failOnDataLoss": "perhaps"}),
    (stream_options, {**BASE, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}),
    (stream_options, {**BASE, "columns": "keys"}),
    (stream_options, {**BASE, "columns": "key", "includeHeaders": "true"}),
    (stream_options, {**BASE, "startingOffsets": "group"}),
    (stream_options, {**BASE, "stratalog.group.mode": "share"}),
    (stream_options, {**BASE, "kafka.group.id": " "}),
    (stream_options, {**BASE, "kafka.group.id": "g", "group.id": "h"}),
    (stream_options, {**BASE, "kafka.group.id": "g", "stratalog.group.mode": "share", "startingOffsets": "earliest"}),
    (
        stream_options,
        {ROOT: "/c", "assign": '{"t":[0]}', "kafka.group.id": "g", "stratalog.group.mode": "share"},
    ),
    *(
        (stream_options, {**BASE, f"kafka.{name}": "x"})
        for name in ("key.deserializer", "value.deserializer", "enable.auto.commit", "interceptor.classes")
    ),
    (batch_options, {**BASE, "startingOffsets": "latest"}),
    (batch_options, {**BASE, "startingOffsets": '{"t":{"0":-1}}'}),
    (batch_options, {**BASE, "startingOffsets": "group"}),
    (batch_options, {**BASE, "endingOffsets": "earliest"}),
    (batch_options, {**BASE, "endingOffsets": '{"t":{"0":-2}}'}),
    (sink_options, {"topic": "t"}),
    (sink_options, {ROOT: "/c", "txnAppId": "x"}),
    (sink_options, {ROOT: "/c", "kafka.acks": "0"}),
    (sink_options, {ROOT: "/c", "kafka.batch.size": "large"}),
    (sink_options, {ROOT: "/c", "kafka.key.serializer": "x"}),
    (sink_options, {ROOT: "/c", "kafka.value.serializer": "x"}),
]


@pytest.mark.parametrize(("parse", "options"), OPTION_ERRORS)
def test_a_wrong_option(parse: Callable[[dict[str, str]], object], options: dict[str, str]) -> None:
    with pytest.raises(StratalogError) as refusal:
        parse(options)
    assert says_what_to_do(str(refusal.value)), str(refusal.value)


@pytest.mark.parametrize(
    "error",
    [
        conditions.added_partition_does_not_start_from_zero(A, 3),
        conditions.could_not_read_offset_range(A, 0, 5, "the log starts at 5"),
        conditions.initial_offset_not_found([A]),
        conditions.partitions_deleted([A]),
        conditions.partition_offset_changed(A, 5, 3),
        conditions.TopicRecreatedError("t", "old", "new"),
        conditions.start_offset_does_not_match_assigned([A], [A, B]),
        conditions.timestamp_offset_does_not_match_assigned([A], [A, B], starting=True),
        conditions.no_offset_matched(A, 5),
        conditions.mismatched_start_and_end({A: 0}, {B: 0}),
        conditions.unresolved_start_past_end(A, 5, 3),
        conditions.unresolved_timestamp_start_past_end(A, 5, 3),
        conditions.resolved_start_past_end(A, 5, 3),
        conditions.mismatched_with_prefetched({A: 0}, {B: 0}),
        conditions.end_offset_past_prefetched({A: 0}, {A: 1}),
        conditions.lost_partitions_in_end_offset({A: 0}, {B: 0}),
        conditions.end_offset_past_latest({A: 0}, {A: 1}),
        conditions.null_topic_in_data(),
    ],
    ids=lambda error: str(error)[:40],
)
def test_offsets_that_do_not_fit_the_topic(error: StratalogError) -> None:
    assert says_what_to_do(str(error)), str(error)


@pytest.mark.parametrize(
    ("types", "topic", "timestamp_column"),
    [
        ({"value": "string"}, None, None),
        ({"key": "string"}, "t", None),
        ({"value": "int"}, "t", None),
        ({"value": "string"}, "t", "at"),
    ],
)
def test_rows_that_are_no_records(types: dict[str, str], topic: str | None, timestamp_column: str | None) -> None:
    with pytest.raises(StratalogError) as refusal:
        check_columns(types, topic, timestamp_column)
    assert says_what_to_do(str(refusal.value)), str(refusal.value)


@pytest.mark.parametrize("committed", [None, 99])
def test_a_group_without_an_offset(committed: int | None) -> None:
    with pytest.raises(StratalogError) as refusal:
        OffsetBounds({A: 0}, {A: 5}, "none").start(A, committed)
    assert says_what_to_do(str(refusal.value)), str(refusal.value)


def test_a_schema_of_ones_own() -> None:
    with pytest.raises(StratalogError) as refusal:
        StratalogDataSource(BASE).reader(StructType([StructField("value", StringType())]))
    assert says_what_to_do(str(refusal.value)), str(refusal.value)


def test_calls_of_a_cluster_that_make_no_sense(cluster_root: Path) -> None:
    with pytest.raises(StratalogError) as none_asked:
        Cluster.start(cluster_root, brokers=0)
    with Cluster.start(cluster_root, brokers=1, fetcher="thread") as cluster:
        calls: list[Callable[[], object]] = [
            lambda: cluster.bootstrap_servers,
            lambda: cluster.broker(7),
            lambda: cluster.restart(1),
            lambda: Cluster.start(cluster_root, brokers=1, fetcher="thread"),
        ]
        refusals = [none_asked]
        for call in calls:
            with pytest.raises(StratalogError) as refusal:
                call()
            refusals.append(refusal)
    unclear = [str(refusal.value) for refusal in refusals if not says_what_to_do(str(refusal.value))]
    assert unclear == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Offsets are 5.", False),
        ("Option x must be positive. Give a number above 0.", True),
        ("includeHeaders=true, but columns=key leaves out headers: add it", True),
        ("Reason: gone.\nTo go on without them, set failOnDataLoss to false.", True),
        ("Set(t-0) is Set(t-1). It is.", False),
    ],
)
def test_an_instruction_is_told_from_a_statement(text: str, expected: bool) -> None:
    assert says_what_to_do(text) is expected


def test_an_unknown_table() -> None:
    cluster = MemoryCluster()
    with pytest.raises(StratalogError) as refusal:
        cluster_table(ClusterView(cluster.root, stores=cluster.stores), "topics")
    assert says_what_to_do(str(refusal.value)), str(refusal.value)
