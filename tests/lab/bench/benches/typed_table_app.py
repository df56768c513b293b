"""A Spark application with a typed table beside a pipeline of Spark's own parts over Kafka: local[2], one session.

I/O: Spark. Commands as of `spark_app`. The peer's pipeline knows all five schemas beforehand, reads by `from_avro` in
the JVM, and writes table and dead letters once each by Delta's `txnAppId`: what a team would build without a registry.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from stratalog import SchemaFolder, TypedTable
from tests.lab.bench import machine
from tests.lab.bench.benches.spark_app import App, Command, answer_commands, format_of, with_rows
from tests.lab.real.typed_tables.orders import COLUMNS, LATE, SCHEMAS
from tests.lab.real.typed_tables.table_process import records_of

PLACES = "_partition INT, _offset BIGINT, _timestamp TIMESTAMP, _key BINARY"
VALUE_COLUMNS = [name.strip() for name in COLUMNS.split("BIGINT, ", 1)[1].removesuffix(", note STRING").split(", ")]
"""The columns of the first five schemas as SQL has them."""
WAIT_S = 600


class TypedTableApp(App):
    """`fill` and `typed_table`; `side` is `ours` or `peer`, `options` where its cluster is."""

    def fill(self, side: str, options: dict[str, str], topic: str, path: str) -> Command:
        """Send the records of a Parquet file with key, value and partition."""
        records = self._spark.read.parquet(path)
        records.write.format(format_of(side)).options(**options).option("topic", topic).mode("append").save()
        return {}

    def typed_table(self, side: str, options: dict[str, str], topic: str, batch: int) -> Command:
        """A whole topic into a new table, in batches of some records; rates of the batches behind the first one."""
        folder = Path(tempfile.mkdtemp(prefix="typed-", dir=self._folder))
        table = str(folder / "table")
        before, began = cpu_s(), time.perf_counter()
        start = self._start_ours if side == "ours" else self._start_peer
        query = start(options, topic, table, batch)
        if not query.awaitTermination(WAIT_S):
            query.stop()
            raise RuntimeError(f"AvailableNow did not end in {WAIT_S} s")
        took_s, after = time.perf_counter() - began, cpu_s()
        batches = with_rows(query)
        steady = batches[1:]
        answer: dict[str, Any] = {
            "s": took_s,
            "rows": sum(records_of(each, topic) for each in batches),
            "steady_rows": sum(records_of(each, topic) for each in steady),
            "steady_s": sum(each["durationMs"]["triggerExecution"] for each in steady) / 1000,
            "cpu_s": {name: after[name] - before[name] for name in after},
            "table": self._count(table),
            "dead_letters": self._count(f"{table}__dlq"),
            "duration_ms": [each["durationMs"] for each in batches],
        }
        shutil.rmtree(folder)
        return answer

    def _count(self, table: str) -> int:
        return self._spark.read.format("delta").load(table).count()

    def _start_ours(self, options: dict[str, str], topic: str, table: str, batch: int) -> StreamingQuery:
        root = options["stratalog.root"]
        settings = {"value.format": "avro", "max.offsets.per.trigger": batch}
        return TypedTable(self._spark, root, topic, table, settings, SchemaFolder(root)).start(available_now=True)

    def _start_peer(self, options: dict[str, str], topic: str, table: str, batch: int) -> StreamingQuery:
        columns = ", ".join([PLACES, *VALUE_COLUMNS])
        self._spark.sql(f"CREATE TABLE delta.`{table}` ({columns}) USING delta CLUSTER BY (_timestamp)")
        source = self._spark.readStream.format("kafka").options(**options).option("subscribe", topic)
        records = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", batch).load()

        def write(frame: DataFrame, number: int) -> None:
            write_batch(frame, table, number)

        writer = records.writeStream.foreachBatch(write).option("checkpointLocation", f"{table}_checkpoint")
        return writer.trigger(availableNow=True).start()


def write_batch(records: DataFrame, table: str, number: int) -> None:
    """A batch of the peer's pipeline: rows, then what has no schema, each once."""
    columns = StructType.fromDDL(", ".join(VALUE_COLUMNS))
    assert isinstance(columns, StructType)
    read = with_orders(records, columns).persist()
    once = {"txnAppId": "bench", "txnVersion": str(number)}
    places = [F.col(name).alias(f"_{name}") for name in ("partition", "offset", "timestamp", "key")]
    rows = read.where("order IS NOT NULL").select(*places, "order.*")
    rows.write.format("delta").mode("append").options(**once).save(table)
    letters = read.where("order IS NULL").select("topic", "partition", "offset", "timestamp", "key", "value")
    letters.write.format("delta").mode("append").options(**once).save(f"{table}__dlq")
    read.unpersist()


def with_orders(records: DataFrame, columns: StructType) -> DataFrame:
    """Records with the column `order`, null where the value names none of the five schemas. Each value is read once."""
    schema_id = F.conv(F.hex(F.substring("value", 2, 4)), 16, 10).cast("int")
    payload = F.expr("substring(value, 6)")
    names = [f"v{version}" for version in range(1, LATE)]
    read = {
        name: F.when(schema_id == version, from_avro(payload, SCHEMAS[version - 1].text, {"mode": "PERMISSIVE"}))
        for version, name in enumerate(names, start=1)
    }
    orders = [F.when(F.col(name).isNotNull(), as_order(version, columns)) for version, name in enumerate(names, 1)]
    return records.withColumns(read).withColumn("order", F.coalesce(*orders)).drop(*names)


def as_order(version: int, columns: StructType) -> Column:
    """An order of a version as the table has it."""
    written = {field["name"] for field in json.loads(SCHEMAS[version - 1].text)["fields"]}
    parts = [
        (F.col(f"v{version}")[each.name] if each.name in written else F.lit(None)).cast(each.dataType).alias(each.name)
        for each in columns
    ]
    return F.struct(*parts)


def cpu_s() -> dict[str, float]:
    """CPU seconds of this application's JVM, and of its Python: this process, the daemon and the workers."""
    whole = machine.cpu_s([os.getpid()])
    [java] = [pid for pid in machine.descendants([os.getpid()]) if machine.name_of(pid) == "java"]
    jvm = machine.own_cpu_s(java)
    return {"jvm": jvm, "python": whole - jvm}


def main() -> int:
    """Answer commands until standard input ends or `stop` came."""
    return answer_commands(TypedTableApp(Path(sys.argv[1]), kind=""))


if __name__ == "__main__":
    sys.exit(main())
