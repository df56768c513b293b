"""Typed tables on Spark and Delta Lake: append, upsert, dead letters, what a killed run leaves. One broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from stratalog import Admin, Cluster, ClusterView, NewTopic, Producer, TypedTable
from stratalog.clients.console.asker import Asker
from stratalog.clients.console.typed.known import typed_tables_of
from stratalog.clients.console.typed.questions import dead_letters, typed_table
from stratalog.clients.schemas.avro_values import AvroSchema, encode_avro
from stratalog.clients.schemas.schema import Schema
from stratalog.clients.schemas.wire_format import SchemaId
from stratalog.clients.typed_tables.delta_table import Txn
from stratalog.clients.typed_tables.notes import TypedTableNote
from stratalog.clients.typed_tables.replay import ReplayOutcome
from stratalog.jobs.command.opened import OpenedCluster
from stratalog.replication.metadata.acls import Principal
from tests.clients.schemas.memory_registry import MemoryRegistry

pytestmark = pytest.mark.long
ALONE = {"offsets.topic.replication.factor": 1}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.start(tmp_path_factory.mktemp("typed"), brokers=1, fetcher="thread", config=ALONE) as running:
        yield running


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions of this test alone."""
    name = request.node.name[:60]
    Admin(cluster).create_topic(name, 2, 1)
    return name


def schema(**kinds: Any) -> str:
    fields = [{"name": name, "type": kind, "default": 0} for name, kind in kinds.items()]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


V1, V2 = schema(id="int"), schema(id="long", count="int")
CONTRADICTS = json.dumps({"type": "record", "name": "Other", "fields": [{"name": "count", "type": "string"}]})


def rows(spark: SparkSession, path: Path | str, columns: str) -> list[tuple[Any, ...]]:
    frame: DataFrame = spark.read.format("delta").load(str(path))
    return sorted(tuple(row) for row in frame.selectExpr(*columns.split(",")).collect())


def shown_by_console(cluster: Cluster, topic: str) -> TypedTableNote:
    """The note that a query has left, and the console's answers by it without Spark."""
    view = ClusterView(cluster)
    asker = Asker(OpenedCluster(view, Admin(cluster), {}), Principal(), None, 0)
    [note] = typed_tables_of(asker, topic)
    found = typed_table(asker, note.location)
    assert (found.row.rows, found.row.dead_letters, found.row.lag, found.row.problem) == (2, 3, 0, "")
    assert {each.offset for each in dead_letters(asker, note.location, "", 0, 50).letters} == {0, 1, 2}
    return note


def test_records_that_do_not_fit_are_dead_letters_until_they_do(
    ours: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """Schemas grow the table; an unknown schema, one that contradicts the table and broken bytes are dead letters."""
    registry = MemoryRegistry()
    registry.register("v1", Schema(V1))
    path = tmp_path / "orders"
    table = TypedTable(ours, cluster, topic, str(path), {"value.format": "avro"}, registry)
    with Producer(cluster) as producer:
        for number, text in enumerate([V1, V2, CONTRADICTS, V1]):
            value = {"id": number, "count": 10 * number} if text != CONTRADICTS else {"count": "x"}
            payload = encode_with([V1, V2, CONTRADICTS].index(text) + 1, text, value)
            producer.send(topic, payload, f"k{number}", partition=number % 2)
        producer.send(topic, b"no wire format", partition=0)

    state = table.run_available()
    assert state.row_count == 2, "the rows of the schema that is known"
    assert state.dead_letter_count == 3
    assert state.lag == {0: 0, 1: 0}
    assert rows(ours, path, "_partition,_offset,id") == [(0, 0, 0), (1, 1, 3)]
    assert len(list(Path(f"{path}__dlq").glob("*.parquet"))) == 1, "dead letters of both partitions, in one file"

    seen = shown_by_console(cluster, topic)
    assert (seen.location, seen.topic, seen.mode) == (str(path), topic, "append")

    registry.register("v2", Schema(V2))
    assert table.replay() == ReplayOutcome(3, 1, 2)
    assert rows(ours, path, "_partition,_offset,id,count") == [(0, 0, 0, None), (1, 0, 1, 10), (1, 1, 3, None)]
    assert dict(ours.read.format("delta").load(str(path)).dtypes)["id"] == "bigint"
    assert table.replay() == ReplayOutcome(2, 0, 2), "once"

    registry.register("other", Schema(CONTRADICTS))
    assert table.replay() == ReplayOutcome(2, 0, 2), "it contradicts the table"
    left = rows(ours, f"{path}__dlq", "partition,offset,string(key),error,length(value)")
    assert [row[:3] for row in left] == [(0, 1, "k2"), (0, 2, None)]
    assert "Schema 3 not found" in left[0][3], "the reason when the record came"
    assert "not in Confluent's wire format" in left[1][3]


def test_a_new_run_reads_a_batch_of_known_schemas_once(
    ours: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """A schema that is new to the table makes its batch be read twice, in the run that meets it only."""
    registry = MemoryRegistry()
    registry.register("v1", Schema(V1))
    read = []
    for number in range(2):
        with Producer(cluster) as producer:
            for partition in range(2):
                producer.send(topic, encode_with(1, V1, {"id": number}), "k", partition=partition)
        table = TypedTable(ours, cluster, topic, str(tmp_path / "orders"), {"value.format": "avro"}, registry)
        query = table.start(available_now=True)
        query.awaitTermination()
        read.append(sum(progress.numInputRows for progress in query.recentProgress))
    assert read == [4, 2]
    assert rows(ours, tmp_path / "orders", "_partition,_offset,id") == [(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 1, 1)]


def test_a_state_counts_the_rows_of_its_version_when_it_is_asked(
    ours: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """A description starts no job of Spark's without that, and what comes later is not in it."""
    config = {"value.format": "json", "value.schema": "id BIGINT"}
    table = TypedTable(ours, cluster, topic, str(tmp_path / "orders"), config)
    scheduler = ours.sparkContext._jsc.sc().dagScheduler()
    states = []
    for number in range(2):
        with Producer(cluster) as producer:
            producer.send(topic, json.dumps({"id": number}))
        table.run_available()
        started = scheduler.numTotalJobs()
        states.append(table.describe())
        assert scheduler.numTotalJobs() == started
    assert [state.row_count for state in states] == [1, 2]
    assert states[0].version < states[1].version


def encode_with(schema_id: int, text: str, value: dict[str, Any]) -> bytes:
    return SchemaId(id=schema_id).id_prefix() + encode_avro(AvroSchema.of(Schema(text)), value)


def test_upsert_has_what_compaction_leaves(ours: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """The newest value of each key, deletions applied, in one batch and over batches; JSON into columns."""
    admin, topic = Admin(cluster), "latest"
    admin.create_topics([NewTopic(topic, 2, 1, {"cleanup.policy": "compact"})])
    path = tmp_path / "latest"
    config = {"value.format": "json", "value.schema": "id BIGINT, name STRING", "max.offsets.per.trigger": 7}
    table = TypedTable(ours, cluster, topic, str(path), config)
    with Producer(cluster) as producer:
        for number in range(40):
            key, is_deleted = f"k{number * 7 % 9}", number % 5 == 3
            producer.send(topic, None if is_deleted else json.dumps({"id": number, "name": key}), key)
        producer.send(topic, "no json", "k0")
    state = table.run_available()
    options = {"stratalog.root": cluster.root, "subscribe": topic}
    log = [row.asDict() for row in ours.read.format("stratalog").options(**options).load().orderBy("offset").collect()]
    newest: dict[bytes, dict[str, Any]] = {}
    for row in log:
        if row["value"] != b"no json":
            newest[bytes(row["key"])] = row
    live = [row for row in newest.values() if row["value"] is not None]
    oracle = ours.createDataFrame(
        [(row["key"].decode(), json.loads(row["value"])["id"]) for row in live], "k STRING, id BIGINT"
    )
    found = ours.read.format("delta").load(str(path)).selectExpr("string(_key) AS k", "id")
    assert_df_equality(found, oracle, ignore_row_order=True, ignore_nullable=True)
    assert state.dead_letter_count == 1

    with Producer(cluster) as producer:
        producer.send(topic, None, "k0").result()
    assert table.run_available().dead_letter_count == 0, "what is older than a deletion is outdone"
    assert table.replay() == ReplayOutcome(0, 0, 0)


def test_upsert_knows_deletions_of_connect_and_any_name_of_a_field(
    ours: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """`null` and an envelope of one delete; a field may have a name of our own columns, and be a local time."""
    path = tmp_path / "any"
    names = ("is_tombstone", "read", "error", "unplanned", "found", "key", "t", "s")
    columns = ", ".join(["at TIMESTAMP_NTZ", *(f"{name} BIGINT" for name in names)])
    config = {"value.format": "json", "value.schema": columns, "write.mode": "upsert"}
    with Producer(cluster) as producer:
        for number, key in enumerate("abcde"):
            value = {"at": "2024-03-10T02:30:00", **dict.fromkeys(names, number)}
            producer.send(topic, json.dumps(value), key, partition=0)
        producer.send(topic, "null", "a", partition=0)
        producer.send(topic, " null\n", "b", partition=0)
        producer.send(topic, '"null"', "c", partition=0)
        producer.send(topic, '{"schema": null, "payload": null}', "d", partition=0)
        optional = {"type": "struct", "fields": [], "optional": True, "name": "Value"}
        producer.send(topic, json.dumps({"schema": optional, "payload": None}), "e", partition=0)
    state = TypedTable(ours, cluster, topic, str(path), config).run_available()
    assert rows(ours, path, f"string(_key),string(at),{','.join(names)}") == [("c", "2024-03-10 02:30:00", *[2] * 8)]
    assert state.dead_letter_count == 1


def test_a_date_beyond_all_times_is_a_dead_letter_before_and_after_the_column_grows(
    ours: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """As dates grow into TIMESTAMP_NTZ, which ends in the year 294,247: in Avro, and in JSON by the settings."""
    registry, days = MemoryRegistry(), (0, 106_751_991, 106_751_992)
    of_day, of_time = (
        json.dumps({"type": "record", "name": "R", "fields": [{"name": "at", "type": kind}]})
        for kind in ({"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "local-timestamp-micros"})
    )
    for text in (of_day, of_time):
        registry.register(text, Schema(text))
    paths, config = (tmp_path / "avro", tmp_path / "json"), {"value.format": "json", "value.schema": "at DATE"}
    for turn in range(2):
        with Producer(cluster) as producer:
            for day in days:
                producer.send(topic, SchemaId(id=1).id_prefix() + varint(2 * day), partition=0)
            producer.send(topic, SchemaId(id=1 + turn).id_prefix() + b"\x02", partition=0)
            for text in ("-290307-01-01", "+294246-01-01", "+294245-12-31", "-290308-12-31"):
                producer.send(topic, json.dumps({"at": text}), partition=1)
        avro = TypedTable(ours, cluster, topic, str(paths[0]), {"value.format": "avro"}, registry)
        assert avro.run_available().row_count == 3 * (turn + 1)
        json_config = {**config, "value.schema": "at TIMESTAMP_NTZ"} if turn else config
        state = TypedTable(ours, cluster, topic, str(paths[1]), json_config).run_available()
        assert state.row_count == (2 + 4 if turn else 2), "each of the four is a time, if not a day that is one whole"
    for path in paths:
        assert dict(ours.read.format("delta").load(str(path)).dtypes)["at"] == "timestamp_ntz"
        assert ours.read.format("delta").load(str(path)).selectExpr("max(year(at))").first() is not None
    letters = rows(ours, f"{paths[0]}__dlq", "partition,offset,error")
    assert [row[:2] for row in letters if row[0] == 0] == [(0, 2), (0, 6)]
    assert "more than 106751991 days from 1970" in letters[0][2]


def varint(number: int) -> bytes:
    """Avro's variable-length form of a number that is not negative."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def test_a_batch_that_was_cut_off_is_completed_once(
    ours: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """Dead letters were written, the table was not, and a missing schema came meanwhile."""
    registry = MemoryRegistry()
    registry.register("v1", Schema(V1))
    path = tmp_path / "cut"
    table = TypedTable(ours, cluster, topic, str(path), {"value.format": "avro"}, registry)
    with Producer(cluster) as producer:
        for number in range(6):
            text = V1 if number % 2 else V2
            producer.send(topic, encode_with(1 if text == V1 else 2, text, {"id": number, "count": 1}), partition=0)
    options = {"stratalog.root": cluster.root, "subscribe": topic, "includeHeaders": "true"}
    records = ours.read.format("stratalog").options(**options).load()
    table.prepare()
    writer, batch = table.writer, Txn("query", 4)
    read = writer.reader.read(records, writer.target)
    writer.write_errors(read, batch, may_have_begun=False)
    read.release()

    registry.register("v2", Schema(V2))
    for _ in range(2):
        writer.write(records, batch, may_have_begun=True)
        assert rows(ours, path, "_offset,id") == [(1, 1), (3, 3), (5, 5)]
        assert rows(ours, f"{path}__dlq", "offset") == [(0,), (2,), (4,)]
    assert table.replay() == ReplayOutcome(3, 3, 0)
    assert rows(ours, path, "_offset,id") == [(number, number) for number in range(6)]
