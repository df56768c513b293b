"""A Spark application beside both clusters: local[2], the format stratalog and the Kafka connector in one session.

I/O: Spark. `python -m tests.lab.bench.benches.spark_app` reads one JSON command a line from standard input and
answers each with one JSON line. Both sides get the same frames and the same sinks, and neither runs its brokers in
this process. With the argument `plain` the session is one without a setting, in which only ours is measured; with
`registered` it has called `register_data_source`, too.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.query import StreamingQuery

from stratalog.clients.spark.registration import register_data_source
from stratalog.clients.spark.sql.committed_view import create_committed_view
from stratalog.replication.spark.session import stratalog_session
from tests.lab.bench.peer.kafka import spark_jars

PLAIN, REGISTERED = "plain", "registered"
VALUE_BYTES = 100
RATE_ROWS_PER_S = 100
WAIT_S = 180
POLL_S = 1.0
"""The pause between two polls of the queries' progress, which cost a good part of a small micro-batch's time."""

Command = dict[str, Any]


class App:
    """Each command is a method; `side` is `ours` or `peer`, `options` where its cluster is and how to read it."""

    def __init__(self, folder: Path, kind: str) -> None:
        """`kind`: of the session; empty for ours."""
        self._folder = folder
        if kind:
            # as in an activated environment into which the package is installed
            os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
            os.environ["PYTHONPATH"] = str(Path(__file__).parents[4])
            self._spark = SparkSession.builder.getOrCreate()
            if kind == REGISTERED:
                register_data_source(self._spark)
            return
        settings = {"spark.master": "local[2]", "spark.jars": spark_jars(), "spark.sql.shuffle.partitions": "2"}
        self._spark = stratalog_session("stratalog bench application", extra=settings, log_dir=folder)

    def write(self, side: str, options: dict[str, str], topic: str, rows: int) -> Command:
        """A batch write of keyed rows with values of 100 bytes."""
        frame = rows_of(self._spark, rows)
        sink = frame.write.format(format_of(side)).options(**options).option("topic", topic)
        return {"s": timed(lambda: sink.mode("append").save())}

    def delta(self, rows: int) -> Command:
        """The same rows appended to a plain Delta table."""
        path = tempfile.mkdtemp(prefix="delta-", dir=self._folder)
        rows_of(self._spark, 10).write.format("delta").mode("append").save(path)
        frame = rows_of(self._spark, rows)
        took_s = timed(lambda: frame.write.format("delta").mode("append").save(path))
        shutil.rmtree(path)
        return {"s": took_s}

    def read(self, side: str, options: dict[str, str], topic: str) -> Command:
        """A batch read of everything: count and sum of the values' lengths. `load_s`: until Spark has the frame."""
        began = time.perf_counter()
        source = self._spark.read.format(format_of(side)).options(**options).option("subscribe", topic).load()
        return sums_of(source, time.perf_counter() - began)

    def view(self, side: str, options: dict[str, str], topic: str) -> Command:
        """The same through the committed view, which is made for it within `load_s`."""
        began = time.perf_counter()
        create_committed_view(self._spark, options["stratalog.root"], topic, "committed")
        return sums_of(self._spark.table("committed"), time.perf_counter() - began)

    def stream(self, side: str, options: dict[str, str], topic: str) -> Command:
        """AvailableNow from the beginning into noop."""
        checkpoint = tempfile.mkdtemp(prefix="checkpoint-", dir=self._folder)
        source = self._spark.readStream.format(format_of(side)).options(**options).option("subscribe", topic)
        frame = source.option("startingOffsets", "earliest").load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        began = time.perf_counter()
        query = writer.start()
        if not query.awaitTermination(WAIT_S):
            query.stop()
            raise RuntimeError(f"AvailableNow did not end in {WAIT_S} s")
        took_s = time.perf_counter() - began
        shutil.rmtree(checkpoint, ignore_errors=True)
        return {"s": took_s, "rows": sum(progress["numInputRows"] for progress in progress_of(query))}

    def trigger(self, side: str, options: dict[str, str], topic: str, batches: int) -> Command:
        """A pipeline: 100 rows a second into the topic, and from there into foreachBatch; medians over batches [ms]."""
        checkpoints = [tempfile.mkdtemp(prefix="checkpoint-", dir=self._folder) for _ in range(2)]
        form = format_of(side)
        source = self._spark.readStream.format(form).options(**options).option("subscribe", topic)
        reader = source.option("startingOffsets", "earliest").load().writeStream.foreachBatch(to_noop)
        rate = self._spark.readStream.format("rate").option("rowsPerSecond", RATE_ROWS_PER_S)
        records = rate.option("numPartitions", 2).load().select(
            F.col("value").cast("string").alias("key"), F.unix_micros("timestamp").cast("string").alias("value")
        )  # fmt: skip
        writer = records.writeStream.format(form).options(**options).option("topic", topic)
        queries = [
            query.option("checkpointLocation", checkpoint).start()
            for query, checkpoint in zip((reader, writer), checkpoints, strict=True)
        ]
        try:
            await_batches(queries, batches)
        finally:
            for query in reversed(queries):
                stop_between_batches(query)
        for checkpoint in checkpoints:
            shutil.rmtree(checkpoint, ignore_errors=True)
        names = ("reader_ms", "writer_ms")
        return {name: median_trigger_ms(query, batches) for name, query in zip(names, queries, strict=True)}

    def stop(self) -> Command:
        self._spark.stop()
        return {}


def format_of(side: str) -> str:
    return "stratalog" if side == "ours" else "kafka"


def rows_of(spark: SparkSession, count: int) -> DataFrame:
    """The row's number as key, a value of 100 bytes that differs from row to row; two partitions."""
    value = F.rpad(
        F.concat(F.lit("v"), F.col("id").cast("string"), F.lit("-")), VALUE_BYTES, "abcdefghijklmnopqrstuvwxyz"
    )
    return spark.range(0, count, 1, 2).select(F.col("id").cast("string").alias("key"), value.alias("value"))


def sums_of(frame: DataFrame, load_s: float) -> Command:
    """The number of rows and the sum of the values' lengths, and how long Spark took for them."""
    sums = frame.agg(F.count("*").alias("n"), F.sum(F.length("value")).alias("bytes"))
    began = time.perf_counter()
    found = sums.collect()[0]
    return {"s": time.perf_counter() - began, "load_s": load_s, "rows": found.n, "bytes": found.bytes}


def to_noop(frame: DataFrame, _: int) -> None:
    frame.write.format("noop").mode("overwrite").save()


def timed(action: Callable[[], None]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def progress_of(query: StreamingQuery) -> list[dict[str, Any]]:
    return [json.loads(progress.json) for progress in query.recentProgress]


def with_rows(query: StreamingQuery) -> list[dict[str, Any]]:
    return [progress for progress in progress_of(query) if progress["numInputRows"] > 0]


def await_batches(queries: list[StreamingQuery], batches: int) -> None:
    """Return when each query has made this number of micro-batches with rows in them."""
    deadline = time.monotonic() + WAIT_S
    while min(len(with_rows(query)) for query in queries) < batches:
        for query in queries:
            if (reason := query.exception()) is not None:
                raise reason
        if time.monotonic() > deadline:
            raise RuntimeError(f"fewer than {batches} batches in {WAIT_S} s")
        time.sleep(POLL_S)


def median_trigger_ms(query: StreamingQuery, batches: int) -> float:
    """The median over the batches after the first fifth, in which the query still warms up."""
    triggers = [progress["durationMs"]["triggerExecution"] for progress in with_rows(query)[:batches]]
    return float(statistics.median(triggers[batches // 5 :]))


def stop_between_batches(query: StreamingQuery) -> None:
    """Cancelling a batch would fill the log with stack traces."""
    for _ in range(500):
        if not query.status["isTriggerActive"]:
            break
        time.sleep(0.01)
    query.stop()


def answer_commands(app: App) -> int:
    """Answer commands with the methods of an application until standard input ends or `stop` came."""
    print(json.dumps({"is_ready": True}), flush=True)
    for line in sys.stdin:
        command: Command = json.loads(line)
        name = command.pop("do")
        print(json.dumps(getattr(app, name)(**command)), flush=True)
        if name == "stop":
            break
    return 0


def main() -> int:
    """Answer commands until standard input ends or `stop` came."""
    return answer_commands(App(Path(sys.argv[1]), "".join(sys.argv[2:])))


if __name__ == "__main__":
    sys.exit(main())
