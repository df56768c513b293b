"""Typed tables over Spark Connect, with Delta Lake. One broker.

`make test-sessions` runs these tests, in a process of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from stratalog import Admin, AvroSerializer, Cluster, NewTopic, Producer, SchemaFolder, TypedTable
from stratalog.clients.typed_tables.replay import ReplayOutcome
from stratalog.storage.errors import InvalidRequestError
from tests.spark import sessions
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.any_session]
ALONE = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}
JSON = {"value.format": "json", "value.schema": "id BIGINT"}


@pytest.fixture(scope="module")
def connected(spark: SparkSession) -> SparkSession:
    if sessions.kind() != "connect-delta":
        pytest.skip(f"a session of the kind {sessions.kind()} is none of Spark Connect with Delta Lake")
    return spark


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.start(tmp_path_factory.mktemp("typed"), brokers=1, fetcher="thread", config=ALONE) as running:
        yield running


def rows(spark: SparkSession, path: Path | str, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.format("delta").load(str(path)).selectExpr(*columns).collect())


def settings_of(session: SparkSession) -> dict[str, str]:
    """Without those that Delta Lake sets in a session that reads its tables."""
    return {
        name: text for name, text in session.conf.getAll.items() if not name.startswith("spark.sql.parquet.fieldId.")
    }


def test_records_become_rows_or_dead_letters_and_an_erasure_reaches_both(
    connected: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """And a second run goes on where the first one ended; the session of the user stays as it was."""
    Admin(cluster).create_topic("orders", 2, 1)
    path, before = tmp_path / "orders", settings_of(connected)
    with Producer(cluster) as producer:
        for number, value in enumerate([1, "two", 3]):
            producer.send("orders", json.dumps({"id": value}), f"k{number}", partition=number % 2)
    table = TypedTable(connected, cluster, "orders", str(path), JSON)
    state = table.run_available()
    assert (state.row_count, state.dead_letter_count, dict(state.lag)) == (2, 1, {0: 0, 1: 0})
    assert len(list((path / "_delta_log").glob("*.json"))) == 2, "the table with its columns, and the batch"
    assert table.replay() == ReplayOutcome(1, 0, 1)

    with Producer(cluster) as producer:
        producer.send("orders", '{"id": 4}', "k0", partition=0)
    erase_id = Admin(cluster).delete_where("orders", {"key": {"in": ["k0", "k1"]}})
    again = TypedTable(connected, cluster, "orders", str(path), JSON)
    assert (again.run_available().progress.done_batch, again.progress().done_batch) == (1, 1)
    assert rows(connected, path, "_partition", "_offset", "id") == [(0, 1, 3)]
    erased = again.describe_erasure(erase_id)
    assert [(each.is_applied, each.rows_left) for each in erased] == [(True, 0), (True, 0)]
    assert erased[0].log_files_waiting, "Delta's log is not ours to delete there, and the answer says so"
    assert settings_of(connected) == before


def test_upsert_has_the_newest_row_of_each_key_while_the_query_goes_on(
    connected: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """Avro by a registry that the process beside the server opens for itself; the table grows."""
    Admin(cluster).create_topics([NewTopic("latest", 1, 1, {"cleanup.policy": "compact"})])
    registry, path = SchemaFolder.create(cluster), tmp_path / "latest"
    table = TypedTable(connected, cluster, "latest", str(path), {"value.format": "avro"}, registry)
    query = table.start()
    for fields in (["id"], ["id", "count"]):
        kinds = [{"name": name, "type": "long", "default": 0} for name in fields]
        text = json.dumps({"type": "record", "name": "Order", "fields": kinds})
        with Producer(cluster, value_serializer=AvroSerializer(registry, text)) as producer:
            for number in range(2):
                producer.send("latest", dict.fromkeys(fields, number + len(fields)), f"k{number}")
    with Producer(cluster) as producer:
        producer.send("latest", None, "k0")

    def is_there() -> bool:
        assert query.isActive, query.exception()
        columns = connected.read.format("delta").load(str(path)).columns
        return "count" in columns and rows(connected, path, "string(_key)", "id", "count") == [("k1", 3, 3)]

    wait_until(is_there, "the newest row", 200)
    query.stop()


def test_a_relative_path_is_refused_with_what_to_do(connected: SparkSession, cluster: Cluster) -> None:
    Admin(cluster).create_topic("relative", 1, 1)
    with pytest.raises(InvalidRequestError, match="give an absolute path, a URL or a name in the catalog"):
        TypedTable(connected, cluster, "relative", "lake/orders", JSON)
