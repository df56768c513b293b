"""typed_table: a topic of Avro records into a typed Delta table, beside a pipeline of Spark's own parts over Kafka.

I/O: both clusters, and one Spark application that uses them from outside (`typed_table_app`). Records are orders of
five schema versions, in turns, and one in a hundred of a schema that is not registered. Each round makes new tables of
the same two topics; the first rounds only warm both sides up. Rates leave a query's first batch out, which ours reads
twice, since it names new schemas.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stratalog import Cluster, SchemaFolder
from stratalog.clients.schemas.avro_values import AvroSchema, encode_avro
from tests.lab.bench.benches.spark import SparkApp
from tests.lab.bench.lab import BROKERS, Lab, Outcome, show
from tests.lab.bench.measures import Row, Spread
from tests.lab.real.typed_tables.orders import LATE, PARTITIONS, SCHEMAS, VERSIONS, order

RECORDS, BATCH = 1_000_000, 200_000
WARM_ROUNDS = 1
GROUP_ROWS = 50_000
PEER_IS = "Kafka's connector, from_avro of five known schemas, foreachBatch into two Delta tables"
APPLICATION = "tests.lab.bench.benches.typed_table_app"

Answer = dict[str, Any]


def typed_table(lab: Lab) -> Outcome:
    """A million orders into a table, in batches of 200,000; ours and the peer in turns."""
    path = _written(lab.folder / lab.fresh("orders"))
    found: dict[str, list[Answer]] = {"ours": [], "peer": []}
    with lab.cluster() as cluster, SparkApp(lab, cluster, application=APPLICATION) as app:
        _register(cluster)
        topics = {
            "ours": lab.topic(cluster, "typed-table", PARTITIONS),
            "peer": lab.peer_topic("typed-table", PARTITIONS),
        }
        for side, topic in topics.items():
            app.ask("fill", side, topic=topic, path=str(path))
        for number in range(WARM_ROUNDS + lab.rounds):
            for side, topic in topics.items():
                answer = app.ask("typed_table", side, topic=topic, batch=BATCH)
                _check(side, answer)
                show(f"typed_table {number + 1 - WARM_ROUNDS}, {side}: {_described(answer)}")
                if number >= WARM_ROUNDS:
                    found[side].append(answer)
    lab.peer.delete_topics("typed-table.*")
    return Outcome(_rows(found["ours"], found["peer"]))


def _written(path: Path) -> Path:
    """The orders as a Parquet file: key, value, partition."""
    schema = pa.schema({"key": pa.binary(), "value": pa.binary(), "partition": pa.int32()})
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, RECORDS, GROUP_ROWS):
            numbers = range(first, min(RECORDS, first + GROUP_ROWS))
            columns = [
                pa.array([b"order-%d" % number for number in numbers]),
                pa.array(orders(numbers), pa.binary()),
                pa.array([number % PARTITIONS for number in numbers], pa.int32()),
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))
    return path


def version_of(number: int) -> int:
    """The versions in turns, as of producers of different releases; one in a hundred is not registered."""
    return LATE if number % 100 == LATE else 1 + number % VERSIONS


def orders(numbers: range) -> Iterator[bytes]:
    """The bytes of orders in Confluent's wire format; the ids of their schemas are their versions."""
    parsed = [AvroSchema.of(schema) for schema in SCHEMAS]
    for number in numbers:
        version = version_of(number)
        yield struct.pack(">bI", 0, version) + encode_avro(parsed[version - 1], order(number, version))


def _register(cluster: Cluster) -> None:
    """The five schemas; their ids are their versions."""
    with SchemaFolder.create(cluster, replication_factor=BROKERS) as schemas:
        for version, schema in enumerate(SCHEMAS[: LATE - 1], start=1):
            found = schemas.register(f"order-{version}", schema).id
            if found != version:
                raise RuntimeError(f"schema {version} has id {found}")


def _check(side: str, answer: Answer) -> None:
    """RuntimeError when a record is in neither or both of the tables."""
    bad = sum(version_of(number) == LATE for number in range(RECORDS))
    found = (answer["rows"], answer["table"], answer["dead_letters"])
    if found != (RECORDS, RECORDS - bad, bad):
        raise RuntimeError(f"{side}: read, in the table, dead letters: {found} of {RECORDS}, {bad} of them bad")


def _rate(answer: Answer) -> float:
    return float(answer["steady_rows"] / answer["steady_s"])


def _cpu_us(answer: Answer, *names: str) -> float:
    return float(1e6 * sum(answer["cpu_s"][name] for name in names) / answer["rows"])


def _described(answer: Answer) -> str:
    cpu = ", ".join(f"{name} {_cpu_us(answer, name):.1f} µs" for name in answer["cpu_s"])
    last = ", ".join(f"{name} {ms}" for name, ms in answer["duration_ms"][-1].items())
    return f"{_rate(answer):,.0f} records/s, whole {answer['s']:.1f} s; CPU a record: {cpu}; the last batch, ms: {last}"


def _rows(ours: Sequence[Answer], peer: Sequence[Answer]) -> list[Row]:
    rates = [Spread.of([_rate(answer) for answer in side]) for side in (ours, peer)]
    rows = [Row("typed_table", "", "records/s", False, rates[0], rates[1], PEER_IS)]
    for of, names in (("CPU", ("jvm", "python")), ("CPU of the JVM", ("jvm",)), ("CPU of Python", ("python",))):
        spreads = [Spread.of([_cpu_us(answer, *names) for answer in side]) for side in (ours, peer)]
        rows.append(Row("typed_table", of, "µs/record", True, spreads[0], spreads[1], PEER_IS))
    return rows
