"""Typed tables: erasures, old rows, other formats and policies, the command line. Long: each starts several queries."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from stratalog import Admin, Cluster, Header, Producer, TypedTable
from stratalog.clients.typed_tables.sessions import own_session
from stratalog.jobs import typed_table
from stratalog.server.audit.events import AUDIT_VALUE_SCHEMA, DENIAL, LOGIN, AuditEvent, outcome_of
from stratalog.storage.errors import InvalidRequestError

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ALONE = {"offsets.topic.replication.factor": 1}
COLUMNS = {"value.format": "json", "value.schema": "id BIGINT"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.start(tmp_path_factory.mktemp("upkeep"), brokers=1, fetcher="thread", config=ALONE) as running:
        yield running


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^\w.-]", "-", request.node.name)
    Admin(cluster).create_topic(name, 2, 1)
    return name


def send(cluster: Cluster, topic: str, *values: str, key: str = "ann", headers: list[Header] | None = None) -> None:
    with Producer(cluster) as producer:
        for value in values:
            producer.send(topic, value, key, headers=headers or [], partition=0)


def rows(spark: SparkSession, path: Path | str, *columns: str) -> list[Any]:
    return sorted(tuple(row) for row in spark.read.format("delta").load(str(path)).selectExpr(*columns).collect())


def test_an_erasure_reaches_table_dead_letters_and_their_files(
    ours: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """A request also meets records that the query reads only after it; files go by VACUUM after the delay."""
    path = tmp_path / "orders"
    config = {**COLUMNS, "vacuum.retention.ms": 0}
    table = TypedTable(ours, cluster, topic, str(path), config)
    send(cluster, topic, '{"id": 1}', "bad of ann")
    send(cluster, topic, '{"id": 2}', "bad of bob", key="bob")
    table.run_available()
    send(cluster, topic, '{"id": 3}')
    erase_id = Admin(cluster).delete_where(topic, {"key": {"equals": "ann"}})
    send(cluster, topic, '{"id": 4}')
    state = table.run_available()
    assert state.lag[0] == 0
    assert rows(ours, path, "id") == [(2,), (4,)], "records sent after the request stay"
    assert rows(ours, f"{path}__dlq", "string(key)") == [("bob",)]
    before = table.describe_erasure(erase_id)
    assert [(each.is_applied, each.rows_left) for each in before] == [(True, 0), (True, 0)]
    send(cluster, topic, '{"id": 5}')
    table.run_available()
    assert all(each.is_gone for each in table.describe_erasure(erase_id)), table.describe_erasure(erase_id)
    files = [file for folder in (path, Path(f"{path}__dlq")) for file in folder.glob("*.parquet")]
    assert not [file for file in files if b"bad of ann" in file.read_bytes()]
    unknown = Admin(cluster).delete_where(topic, {"value": {"contains": "bob"}})
    table.run_available()
    of_table, of_letters = table.describe_erasure(unknown)
    assert (of_table.lacking, of_table.rows_left, of_letters.rows_left) == ("value", None, 0)


@pytest.mark.parametrize(("policy", "is_ended"), [("suspend", True), ("skip", False)])
def test_policies_end_the_query_or_drop_the_record(
    ours: SparkSession, cluster: Cluster, topic: str, tmp_path: Path, policy: str, is_ended: bool
) -> None:
    path = tmp_path / "orders"
    table = TypedTable(ours, cluster, topic, str(path), {**COLUMNS, "on.error": policy})
    send(cluster, topic, '{"id": 1}', "no json")
    if is_ended:
        with pytest.raises(StreamingQueryException, match=r"on\.error=suspend"):
            table.run_available()
        assert rows(ours, path, "id") == [], "nothing of the batch"
        widened = TypedTable(ours, cluster, topic, str(path), {**COLUMNS, "on.error": "dlq"})
        assert widened.run_available().dead_letter_count == 1
    else:
        assert table.run_available().dead_letter_count == 0
    assert rows(ours, path, "id")[0] == (1,)


def test_json_without_columns_is_a_variant_with_what_is_kept(
    ours: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "variant"
    config = {"value.format": "json", "keep.columns": "key,headers", "ttl.ms": 10**13, "cluster.by": "_key"}
    send(cluster, topic, '{"a": [1, {"b": "x"}]}', "{", headers=[Header("h", b"1")])
    state = TypedTable(ours, cluster, topic, str(path), {**config, "cluster.by": ""}).run_available()
    assert (state.row_count, state.dead_letter_count) == (1, 1)
    got = rows(ours, path, "variant_get(value, '$.a[1].b', 'string')", "string(_headers[0].value)")
    assert got == [("x", "1")]


def test_columns_that_the_settings_add_let_dead_letters_fit(
    ours: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "wider"
    send(cluster, topic, '{"id": 1}', json.dumps({"id": 2**40, "item": "x"}))
    narrow = {"value.format": "json", "value.schema": "id INT"}
    relative = os.path.relpath(path)
    assert TypedTable(ours, cluster, topic, relative, narrow).run_available().dead_letter_count == 1
    wide = TypedTable(ours, cluster, topic, str(path), {**narrow, "value.schema": "id BIGINT, item STRING"})
    assert wide.replay().left_count == 0
    assert rows(ours, path, "id", "item") == [(1, None), (2**40, "x")]


def test_a_tables_session_has_the_users_settings_and_its_own_changes(ours: SparkSession) -> None:
    name, unknown, unset = "spark.sql.shuffle.partitions", "stratalog.tests.unknown", "spark.sql.session.timeZone"
    ours.sql("CREATE DATABASE IF NOT EXISTS sessions")
    ours.catalog.setCurrentDatabase("sessions")
    before = {each: ours.conf.get(each) or "" for each in (name, unset)}
    try:
        ours.conf.set(name, "3")
        ours.conf.set(unknown, "x")
        ours.conf.unset(unset)
        own = own_session(ours)
        assert (own.conf.get(name), own.conf.get(unknown)) == ("3", "x")
        assert own.conf.getAll == ours.conf.getAll
        assert own.catalog.currentDatabase() == "sessions"
        own.conf.set(name, "5")
        assert ours.conf.get(name) == "3"
    finally:
        for each, value in before.items():
            ours.conf.set(each, value)
        ours.conf.unset(unknown)
        ours.catalog.setCurrentDatabase("default")
        ours.sql("DROP DATABASE sessions CASCADE")


def test_a_table_is_of_one_topic_and_one_mode(ours: SparkSession, cluster: Cluster, topic: str, tmp_path: Path) -> None:
    path = str(tmp_path / "one")
    early = TypedTable(ours, cluster, topic, path, {**COLUMNS, "write.mode": "upsert"})
    TypedTable(ours, cluster, topic, path, COLUMNS).prepare()
    with pytest.raises(InvalidRequestError, match="a table of its own"):
        early.prepare()
    with pytest.raises(InvalidRequestError, match="a table of its own"):
        TypedTable(ours, cluster, topic, path, {**COLUMNS, "write.mode": "upsert"})
    Admin(cluster).create_topic(f"{topic}-2", 1, 1)
    with pytest.raises(InvalidRequestError, match="a table of its own"):
        TypedTable(ours, cluster, f"{topic}-2", path, COLUMNS)


def test_a_table_of_the_catalog_is_named_and_old_rows_go(
    ours: SparkSession, cluster: Cluster, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    send(cluster, topic, '{"id": 1}', "x")
    config = {**COLUMNS, "ttl.ms": 0, "optimize.interval.ms": 0}
    ours.sql("CREATE DATABASE IF NOT EXISTS typed")
    try:
        table = TypedTable(ours, cluster, topic, "typed.orders", config)
        state = table.run_available()
        assert (state.row_count, state.dead_letter_count) == (0, 0), "older than 0 ms"
        assert ours.catalog.tableExists("typed.orders__dlq")
        print("\n".join(typed_table.state_lines(state)))
        assert "Table: typed.orders" in capsys.readouterr().out
    finally:
        ours.sql("DROP DATABASE typed CASCADE")


def test_a_typed_table_has_the_audit_topics_fields_as_columns(
    ours: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    events = [
        AuditEvent(LOGIN, "User:alice", "10.0.0.7:4711", "CLIENTS", detail="PLAIN"),
        AuditEvent(DENIAL, "User:bob", "10.0.0.8:4712", "CLIENTS", "app", "PRODUCE", 9, outcome_of([29]), ("TOPIC:a",)),
    ]
    send(cluster, topic, *(each.to_json(5, 1, "run", number).decode() for number, each in enumerate(events)))
    config = {"value.format": "json", "value.schema": AUDIT_VALUE_SCHEMA}
    state = TypedTable(ours, cluster, topic, str(tmp_path / "audit"), config).run_available()
    assert (state.row_count, state.dead_letter_count) == (2, 0)
    assert rows(ours, tmp_path / "audit", "number", "kind", "principal", "outcome", "get(resources, 0)") == [
        (0, "login", "User:alice", "NONE", None),
        (1, "denial", "User:bob", "TOPIC_AUTHORIZATION_FAILED", "TOPIC:a"),
    ]
