"""Rows are written to a topic and read from it, by Spark's own Kafka sink and source."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter

import confluent_kafka
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's usual name
from pyspark.sql.streaming import StreamingQuery

from tests.lab.foreign.checks import fresh
from tests.lab.foreign.python.records import topic_of
from tests.lab.foreign.served import Served
from tests.lab.foreign.spark.session import session
from tests.waiting import wait_until

PARTITIONS, ROWS, STREAM_ROWS = 4, 20_000, 6_000
ROWS_PER_BATCH, WAIT_S = 2_000, 120


def rows(begin: int, end: int) -> DataFrame:
    """Rows as the sink takes them: key, value, partition, headers."""
    numbers = session().range(begin, end, numPartitions=2)
    number = F.col("id").cast("string")
    return numbers.select(
        F.concat(F.lit("key-"), (F.col("id") % 97).cast("string")).alias("key"),
        F.concat(F.lit("value-"), number).alias("value"),
        (F.col("id") % PARTITIONS).cast("int").alias("partition"),
        F.array(F.struct(F.lit("source").alias("key"), number.cast("binary").alias("value"))).alias("headers"),
    )  # fmt: skip


def write(served: Served, topic: str, frame: DataFrame) -> None:
    sink = frame.write.format("kafka").option("kafka.bootstrap.servers", served.bootstrap)
    sink.option("topic", topic).save()


def read(served: Served, topic: str, **options: str) -> DataFrame:
    """All of a topic, if options do not say otherwise."""
    source = session().read.format("kafka").option("kafka.bootstrap.servers", served.bootstrap)
    return source.option("subscribe", topic).options(**options).load()


def values_of(frame: DataFrame) -> Counter[str]:
    return Counter(row.value for row in frame.select(F.col("value").cast("string")).collect())


def batch(served: Served) -> None:
    """Every row comes back once, with its key, partition and headers; offsets have no gaps."""
    topic = topic_of(served, PARTITIONS)
    written = rows(0, ROWS)
    write(served, topic, written)
    found = read(served, topic, includeHeaders="true").cache()
    assert found.count() == ROWS, found.count()
    text = found.select(F.col("key").cast("string"), F.col("value").cast("string"), "partition", "headers")
    assert text.exceptAll(written).isEmpty()
    assert written.exceptAll(text).isEmpty()
    ends = found.groupBy("partition").agg(F.max("offset").alias("last"), F.countDistinct("offset").alias("count"))
    assert {(row.partition, row.last + 1, row["count"]) for row in ends.collect()} == {
        (partition, ROWS // PARTITIONS, ROWS // PARTITIONS) for partition in range(PARTITIONS)
    }
    found.unpersist()


def batch_of_a_range(served: Served) -> None:
    """From offsets to offsets, and from a time on."""
    topic = topic_of(served, PARTITIONS)
    write(served, topic, rows(0, 400))
    begin = json.dumps({topic: {str(number): 10 * number for number in range(PARTITIONS)}})
    end = json.dumps({topic: {str(number): 60 for number in range(PARTITIONS)}})
    found = read(served, topic, startingOffsets=begin, endingOffsets=end)
    places = Counter(row.partition for row in found.select("partition").collect())
    assert places == {number: 60 - 10 * number for number in range(PARTITIONS)}, places
    last_ms = read(served, topic).agg(F.max(F.unix_millis("timestamp"))).collect()[0][0]
    wait_until(lambda: time.time() * 1_000 > last_ms + 1, "a later time")
    write(served, topic, rows(400, 500))
    found = read(served, topic, startingTimestamp=str(last_ms + 1))
    assert values_of(found) == Counter(f"value-{number}" for number in range(400, 500))


def committed(served: Served) -> None:
    """What a transactional producer committed, and not what it aborted: kafka.isolation.level=read_committed."""
    topic = topic_of(served, PARTITIONS)
    producer = confluent_kafka.Producer({"bootstrap.servers": served.bootstrap, "transactional.id": fresh("txn")})
    producer.init_transactions(WAIT_S)
    expected: list[str] = []
    for transaction in range(6):
        producer.begin_transaction()
        for number in range(50):
            producer.produce(topic, f"{transaction}-{number}", partition=number % PARTITIONS)
        if transaction % 3 == 2:
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
            expected += [f"{transaction}-{number}" for number in range(50)]
    found = read(served, topic, **{"kafka.isolation.level": "read_committed"})
    assert values_of(found) == Counter(expected)


def stream(served: Served) -> None:
    """A query copies a topic in micro-batches, ends, and continues from its checkpoint: equal counts, equal rows."""
    source, target = topic_of(served, PARTITIONS), topic_of(served, PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="checkpoint-") as checkpoint:
        for begin in (0, STREAM_ROWS):
            write(served, source, rows(begin, begin + STREAM_ROWS))
            query = copy(served, source, target, checkpoint)
            assert query.awaitTermination(WAIT_S), "the query does not end"
            assert query.exception() is None
            counts = [progress["numInputRows"] for progress in query.recentProgress]
            assert sum(counts) == STREAM_ROWS, counts
            assert max(counts) <= ROWS_PER_BATCH + PARTITIONS, counts
    kept = ("key", "value", "partition", "headers")
    before, after = (read(served, topic, includeHeaders="true").select(*kept).cache() for topic in (source, target))
    assert before.count() == after.count() == 2 * STREAM_ROWS
    assert before.exceptAll(after).isEmpty()
    assert values_of(after) == Counter(f"value-{number}" for number in range(2 * STREAM_ROWS))


def copy(served: Served, source: str, target: str, checkpoint: str) -> StreamingQuery:
    """A query from a topic to another, which ends at what was there when it began."""
    reading = session().readStream.format("kafka").option("kafka.bootstrap.servers", served.bootstrap)
    reading = reading.option("subscribe", source).option("startingOffsets", "earliest").option("includeHeaders", "true")
    frame = reading.option("maxOffsetsPerTrigger", ROWS_PER_BATCH).load()
    writing = frame.select("key", "value", "partition", "headers").writeStream.format("kafka")
    writing = writing.option("kafka.bootstrap.servers", served.bootstrap).option("topic", target)
    return writing.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


CHECKS = {
    f"batch: {ROWS:,} rows with keys, headers and partitions are written, and read equal": batch,
    "batch: from offsets to offsets, and from a time": batch_of_a_range,
    "batch: kafka.isolation.level=read_committed after commits and aborts of a transactional producer": committed,
    f"stream: {2 * STREAM_ROWS:,} rows from topic to topic in micro-batches, and on from the checkpoint: equal": stream,
}
