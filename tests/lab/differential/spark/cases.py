"""What the script does on each side. A case returns a frame; both sides' have to be equal by chispa. I/O: both sides.

Timestamps are those of the writes, so no frame has them. A refusal is the text that the connector gives; ours contains
it, and goes on with what to do.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's usual name

from tests.lab.differential.spark.sides import PARTITIONS, Side
from tests.waiting import wait_until

REFUSED = (PySparkException, Py4JJavaError)
"""The errors of a query. The second is of a Java class that Spark does not translate, as the connector's own are."""

ROWS = 300
KEPT = ("key", "value", "topic", "partition", "offset", "timestampType")
TRUE, FALSE = "true", "false"


@dataclass(frozen=True, slots=True)
class Case:
    """A part of the script and the options that it tries, as `docs/spark.md` spells them."""

    name: str
    options: tuple[str, ...]
    run: Callable[[Side], DataFrame]


def rows(side: Side, first: int = 0, last: int = ROWS) -> DataFrame:
    """Rows in an order that a topic keeps: one task writes them."""
    number = F.col("id").cast("string")
    return side.spark.range(first, last, 1, 1).select(
        F.when(F.col("id") % 5 != 0, F.concat(F.lit("key-"), (F.col("id") % 17).cast("string"))).alias("key"),
        F.when(F.col("id") % 7 != 0, F.concat(F.lit("value-"), number)).alias("value"),
        (F.col("id") % PARTITIONS).cast("int").alias("partition"),
        F.when(F.col("id") % 3 != 0, F.array(F.struct(F.lit("n").alias("key"), number.cast("binary").alias("value"))))
        .alias("headers"),
    )  # fmt: skip


def filled(side: Side, topic: str, first: int = 0, last: int = ROWS) -> str:
    """A topic with rows."""
    side.create_topic(topic)
    side.write(rows(side, first, last), topic=topic)
    return topic


def kept(frame: DataFrame) -> DataFrame:
    return frame.select(*KEPT)


def of_all(topic: str, offset: int) -> str:
    return json.dumps({topic: {str(number): offset for number in range(PARTITIONS)}})


def counted(side: Side, found: Iterable[tuple[str, Any]]) -> DataFrame:
    return side.spark.createDataFrame([(name, str(value)) for name, value in found], "what string, found string")


# -- writes --------------------------------------------------------------------------------------------------


def columns(side: Side) -> DataFrame:
    """The columns topic, partition, headers; null keys and values."""
    for topic in ("columns-a", "columns-b"):
        side.create_topic(topic)
    topic = F.when(F.col("partition") == 0, "columns-a").otherwise("columns-b").alias("topic")
    side.write(rows(side).select("key", "value", "partition", "headers", topic))
    return side.read(subscribe="columns-a,columns-b", includeHeaders=TRUE).select(*KEPT, "headers")


def partitioner(side: Side) -> DataFrame:
    """Records with keys, without the column partition: the same partition by the key's hash."""
    side.create_topic("by-key")
    side.write(rows(side).where("key IS NOT NULL").select("key", "value"), topic="by-key")
    return kept(side.read(subscribe="by-key"))


def without_keys(side: Side) -> DataFrame:
    """The choice of partitions is the producer's own."""
    side.create_topic("no-key")
    side.write(rows(side).select("value"), topic="no-key")
    return side.read(subscribe="no-key").select("key", "value", "topic")


def producer_configs(side: Side) -> DataFrame:
    side.create_topic("configs")
    given = {
        "kafka.acks": "1", "kafka.compression.type": "lz4", "kafka.batch.size": "1000", "kafka.linger.ms": "5",
        "kafka.delivery.timeout.ms": "60000", "kafka.max.block.ms": "30000", "kafka.buffer.memory": "4000000",
    }  # fmt: skip
    side.write(rows(side), topic="configs", **given)
    return kept(side.read(subscribe="configs"))


# -- batch reads ---------------------------------------------------------------------------------------------


def offsets(side: Side) -> DataFrame:
    topic = filled(side, "offsets")
    start = json.dumps({topic: {"0": -2, "1": 10, "2": 100}})
    end = json.dumps({topic: {"0": 20, "1": -1, "2": 100}})
    between = side.read(subscribe=topic, startingOffsets=start, endingOffsets=end)
    named = side.read(subscribe=topic, startingOffsets="earliest", endingOffsets="latest")
    return kept(between).unionAll(kept(named))


def partitions(side: Side) -> DataFrame:
    filled(side, "pattern-a")
    filled(side, "pattern-b")
    filled(side, "other-pattern")
    by_pattern = side.read(subscribePattern="^pattern-.")
    by_number = side.read(assign=json.dumps({"pattern-a": [0, 2], "other-pattern": [1]}))
    return kept(by_pattern).unionAll(kept(by_number))


def times(side: Side) -> DataFrame:
    """Records before and after a moment, by one time for all partitions and by one for each."""
    topic = filled(side, "times")
    last_ms = side.read(subscribe=topic).agg(F.max(F.unix_millis("timestamp"))).collect()[0][0]
    wait_until(lambda: time.time() * 1_000 > last_ms + 1, "a later time")
    side.write(rows(side, ROWS, 2 * ROWS), topic=topic)
    moment, of_each = last_ms + 1, of_all(topic, last_ms + 1)
    later_ms = int(time.time() * 1_000) + 3_600_000
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    found = [
        side.read(subscribe=topic, startingTimestamp=moment),
        side.read(subscribe=topic, endingTimestamp=moment),
        side.read(subscribe=topic, startingOffsetsByTimestamp=of_each),
        side.read(subscribe=topic, endingOffsetsByTimestamp=of_each),
        side.read(subscribe=topic, startingTimestamp=later_ms, **strategy),
        side.read(subscribe=topic, startingTimestamp=moment, endingTimestamp=later_ms),
    ]
    result = kept(found[0]).withColumn("read", F.lit(0))
    for number, frame in enumerate(found[1:], start=1):
        result = result.unionAll(kept(frame).withColumn("read", F.lit(number)))
    return result


def splits(side: Side) -> DataFrame:
    """The number of tasks. Kafka's connector does not split a batch read by maxRecordsPerPartition alone, as is done
    here; of that only the rows are compared."""
    topic = filled(side, "splits")
    reads = {
        "minPartitions=7": side.read(subscribe=topic, minPartitions=7),
        "minPartitions=2": side.read(subscribe=topic, minPartitions=2),
        "maxRecordsPerPartition=30": side.read(subscribe=topic, maxRecordsPerPartition=30),
    }
    found = {
        f"tasks of {name}": frame.rdd.getNumPartitions() for name, frame in reads.items() if "minPartitions" in name
    }
    return counted(side, [*found.items(), *((f"rows of {name}", frame.count()) for name, frame in reads.items())])


def consumer_configs(side: Side) -> DataFrame:
    topic = filled(side, "consumer-configs")
    given = {
        "kafkaConsumer.pollTimeoutMs": "30000", "fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "50",
        "kafka.isolation.level": "read_committed", "kafka.client.rack": "r", "groupIdPrefix": "p",
        "kafka.fetch.max.wait.ms": "10",
    }  # fmt: skip
    return kept(side.read(subscribe=topic, **given)).unionAll(
        kept(side.read(subscribe=topic, **{"kafka.group.id": "g"}))
    )


def deleted(side: Side) -> DataFrame:
    """Records are gone that startingOffsets names."""
    topic = filled(side, "deleted")
    side.delete_records(topic, {0: 5, 1: 7})
    from_zero = {"subscribe": topic, "startingOffsets": of_all(topic, 0)}
    fails = False
    try:
        side.read(**from_zero).collect()
    except REFUSED:
        fails = True
    assert fails, f"{side.name}: lost records do not fail the query"
    return kept(side.read(**from_zero, failOnDataLoss=FALSE))


def edges(side: Side) -> DataFrame:
    """Values at and beyond the edges of their ranges: which offsets are read, or that the read is refused."""
    topic, gone = filled(side, "edges"), filled(side, "edges-gone")
    side.delete_records(gone, {0: 5, 1: 7, 2: 100})
    of_topic = {"subscribe": topic}
    reads: dict[str, dict[str, object]] = {
        "the start at the end": {**of_topic, "startingOffsets": of_all(topic, 100)},
        "the start beyond the end": {**of_topic, "startingOffsets": of_all(topic, 999)},
        "the end beyond the end": {**of_topic, "endingOffsets": of_all(topic, 999)},
        "both beyond the end": {**of_topic, "startingOffsets": of_all(topic, 500), "endingOffsets": of_all(topic, 600)},
        "the end before the log's start": {"subscribe": gone, "endingOffsets": of_all(gone, 3)},
        "a start of -1": {**of_topic, "startingOffsets": of_all(topic, -1)},
        "a start of -3": {**of_topic, "startingOffsets": of_all(topic, -3)},
        "an end of -2": {**of_topic, "endingOffsets": of_all(topic, -2)},
        "an end of -3": {**of_topic, "endingOffsets": of_all(topic, -3)},
        "an end that is the earliest": {**of_topic, "endingOffsets": "earliest"},
        "an end without a partition": {**of_topic, "endingOffsets": json.dumps({topic: {"0": 1}})},
        "a start with a partition more": {**of_topic, "startingOffsets": json.dumps({topic: dict.fromkeys("0127", 1)})},
        "an offset that is text": {**of_topic, "startingOffsets": json.dumps({topic: dict.fromkeys("012", "5")})},
        "the start in capitals": {**of_topic, "startingOffsets": "EARLIEST"},
        "the end at time 0": {**of_topic, "endingTimestamp": "0"},
        "the start after the end by times": {**of_topic, "startingTimestamp": "1000", "endingTimestamp": "500"},
        "a time for one partition": {**of_topic, "startingOffsetsByTimestamp": json.dumps({topic: {"0": 0}})},
        "a partition of -1": {"assign": json.dumps({topic: [-1]})},
        "a partition twice": {"assign": json.dumps({topic: [0, 0]})},
        "no partition": {"assign": "{}"},
        "a topic twice": {"subscribe": f"{topic}, {topic} ,"},
        "a pattern of nothing": {"subscribePattern": "nothing-like-.*"},
        "a pattern that is none": {"subscribePattern": "("},
        "a number of tasks of -1": {**of_topic, "minPartitions": "-1"},
        "no record a task": {**of_topic, "maxRecordsPerPartition": "0"},
        "retries of -1": {**of_topic, "fetchOffset.numRetries": "-1"},
        "an isolation level that is none": {**of_topic, "kafka.isolation.level": "some"},
        "headers perhaps": {**of_topic, "includeHeaders": "perhaps"},
    }
    found = []
    for name, given in reads.items():
        for fails in (TRUE, FALSE):
            options = {"kafkaConsumer.pollTimeoutMs": "4000", **given, "failOnDataLoss": fails}
            try:
                read = side.read(**options).groupBy("partition").agg(F.min("offset"), F.max("offset")).collect()
                found.append((f"{name}, failOnDataLoss {fails}", sorted(map(tuple, read))))
            except REFUSED:
                found.append((f"{name}, failOnDataLoss {fails}", "refused"))
    return counted(side, found)


# -- streams -------------------------------------------------------------------------------------------------


def stream(side: Side) -> DataFrame:
    """AvailableNow from the beginning, and on from the checkpoint; what the checkpoint has."""
    topic, target, checkpoint = filled(side, "stream"), side.new_folder(), side.new_folder()
    source = side.stream(subscribe=topic, startingOffsets="earliest", includeHeaders=TRUE)
    ends = []
    for first in (ROWS, 2 * ROWS):
        side.run(source, target, checkpoint)
        ends.append(_newest_end(checkpoint, topic))
        side.write(rows(side, first, first + ROWS), topic=topic)
    side.run(source, target, checkpoint)
    ends.append(_newest_end(checkpoint, topic))
    found = side.spark.read.parquet(target).select(*KEPT, F.col("headers").cast("string").alias("headers"))
    checkpoints = side.spark.createDataFrame([(json.dumps(end),) for end in ends], "value string")
    nothing = [F.lit(None).cast(kind).alias(name) for name, kind in found.drop("value").dtypes]
    return found.unionByName(checkpoints.select(F.col("value").cast("binary").alias("value"), *nothing))


def _newest_end(checkpoint: str, topic: str) -> Mapping[str, int]:
    newest = max(Path(checkpoint, "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    offsets: Mapping[str, int] = json.loads(newest.read_text().splitlines()[-1])[topic]
    return dict(sorted(offsets.items()))


def from_topic_to_topic(side: Side) -> DataFrame:
    topic = filled(side, "copied")
    side.create_topic("copies")
    checkpoint = side.new_folder()
    for first in (ROWS, 2 * ROWS):
        source = side.stream(subscribe=topic, startingOffsets="earliest", includeHeaders=TRUE)
        writer = source.select("key", "value", "partition", "headers").writeStream.format(side.format)
        writer = writer.options(**{**side.where, "topic": "copies", "checkpointLocation": checkpoint})
        writer.queryName("copier").trigger(availableNow=True).start().awaitTermination()
        side.write(rows(side, first, first + ROWS), topic=topic)
    return side.read(subscribe="copies", includeHeaders=TRUE).select(*KEPT, "headers")


def limits(side: Side) -> DataFrame:
    """The sizes of micro-batches."""
    topic = filled(side, "limits")
    found = {}
    for name, given in {
        "at most 70": {"maxOffsetsPerTrigger": "70"},
        "at least 50, at most 80": {
            "minOffsetsPerTrigger": "50", "maxOffsetsPerTrigger": "80", "maxTriggerDelay": "1s",
        },
        "splits": {"minPartitions": "5"},
    }.items():  # fmt: skip
        source = side.stream(subscribe=topic, startingOffsets="earliest", **given)
        found[name] = side.run(source, side.new_folder(), side.new_folder())
    return counted(side, found.items())


def stream_starts(side: Side) -> DataFrame:
    """Where a stream begins: at the end by default, at offsets, at a time."""
    topic = filled(side, "starts")
    later_ms = int(time.time() * 1_000) + 3_600_000
    starts: dict[str, dict[str, object]] = {
        "by default": {"subscribe": topic},
        "at offsets": {"subscribe": topic, "startingOffsets": of_all(topic, 40)},
        "assigned": {"assign": json.dumps({topic: [1]}), "startingOffsets": "earliest"},
        "pattern": {"subscribePattern": "start.*", "startingOffsets": "earliest", "failOnDataLoss": FALSE},
        "later": {"subscribe": topic, "startingTimestamp": later_ms, "startingOffsetsByTimestampStrategy": "latest"},
    }
    return counted(
        side,
        (
            (name, side.run(side.stream(**given), side.new_folder(), side.new_folder()))
            for name, given in starts.items()
        ),
    )


# -- refusals ------------------------------------------------------------------------------------------------


def refusals(side: Side) -> dict[str, str]:
    """The text of each refusal; "" where nothing is refused."""
    topic = filled(side, "refused")
    one_row = rows(side, 1, 2)
    refused = ("auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit",
               "interceptor.classes")  # fmt: skip
    reads: dict[str, dict[str, object]] = {
        **{f"kafka.{name}": {"subscribe": topic, f"kafka.{name}": "x"} for name in refused},
        "no topic": {},
        "two ways": {"subscribe": topic, "subscribePattern": "r.*"},
        "assign without JSON": {"assign": topic},
        "latest in batch": {"subscribe": topic, "startingOffsets": "latest"},
        "minPartitions=0": {"subscribe": topic, "minPartitions": "0"},
        "start past end": {"subscribe": topic, "startingOffsets": of_all(topic, 9), "endingOffsets": of_all(topic, 3)},
        "partitions are missing": {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 1}})},
        "no record that late": {"subscribe": topic, "startingTimestamp": int(time.time() * 1_000) + 3_600_000},
    }
    writes: dict[str, tuple[DataFrame, dict[str, object]]] = {
        "kafka.key.serializer": (one_row, {"topic": topic, "kafka.key.serializer": "x"}),
        "kafka.value.serializer": (one_row, {"topic": topic, "kafka.value.serializer": "x"}),
        "a write without topic": (one_row.select("value"), {}),
        "a write without value": (one_row.select("key"), {"topic": topic}),
    }
    with_schema = side.spark.read.format(side.format).schema("value string").options(**side.where, subscribe=topic)
    overwrite = one_row.write.format(side.format).mode("overwrite").options(**side.where, topic=topic)
    attempts: dict[str, Callable[[], object]] = {
        **{name: partial(_collect, side, given) for name, given in reads.items()},
        **{name: partial(side.write, frame, **given) for name, (frame, given) in writes.items()},
        "the end of a stream": lambda: side.run(
            side.stream(subscribe=topic, endingOffsets="latest"), side.new_folder(), side.new_folder()
        ),
        "a schema": lambda: with_schema.load().collect(),
        "an overwrite": overwrite.save,
    }
    return {name: _refusal(attempt) for name, attempt in attempts.items()}


def _collect(side: Side, options: Mapping[str, object]) -> None:
    side.read(**options).collect()


def _refusal(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except REFUSED as reason:
        return " ".join(str(reason).split())
    return ""


CASES = (
    Case("columns, headers, null keys and values", ("subscribe", "includeHeaders"), columns),
    Case("keys choose the partition", ("topic",), partitioner),
    Case("rows without keys", (), without_keys),
    Case(
        "producer configs",
        (
            *("kafka.acks", "kafka.compression.type", "kafka.batch.size", "kafka.delivery.timeout.ms"),
            *("kafka.max.block.ms", "kafka.buffer.memory"),
        ),
        producer_configs,
    ),
    Case("offsets", ("startingOffsets", "endingOffsets"), offsets),
    Case("patterns and partitions", ("subscribePattern", "assign"), partitions),
    Case(
        "timestamps",
        (
            *("startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"),
            "startingOffsetsByTimestampStrategy",
        ),
        times,
    ),
    Case("the number of tasks", ("minPartitions", "maxRecordsPerPartition"), splits),
    Case(
        "consumer configs",
        (
            *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
            *("kafka.isolation.level", "kafka.client.rack", "groupIdPrefix", "kafka.group.id"),
        ),
        consumer_configs,
    ),
    Case("deleted records", ("failOnDataLoss",), deleted),
    Case("values at and beyond the edges of their ranges", (), edges),
    Case("AvailableNow, on from the checkpoint", ("checkpointLocation",), stream),
    Case("from topic to topic, on from the checkpoint", ("queryName",), from_topic_to_topic),
    Case("the sizes of batches", ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"), limits),
    Case("where a stream begins", (), stream_starts),
)
