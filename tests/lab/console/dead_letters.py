"""A user puts dead letters back into a typed table in Chromium, by Spark: clicks, fields, seconds.

    python -m tests.lab.console.dead_letters

I/O: a cluster on disk, Spark, a server, a browser. A typed table of Avro records has dead letters of a schema that
nobody has registered; it is registered, and they are replayed. What is not as it should be is a finding; so is a
statement over the table that gives other rows in Spark. Exit code 1 for any.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from stratalog.clients.admin.admin import Admin
from stratalog.clients.console.application import Console, ConsoleSettings
from stratalog.clients.console.asker import Asker
from stratalog.clients.console.doors import RootDoor
from stratalog.clients.console.sql.sql import sql_answer
from stratalog.clients.producer.producer import Producer
from stratalog.clients.schemas.avro_values import AvroSchema, encode_avro
from stratalog.clients.schemas.schema import Schema
from stratalog.clients.schemas.schema_folder import SCHEMAS_TOPIC, SchemaFolder
from stratalog.clients.schemas.wire_format import SchemaId
from stratalog.clients.spark.sql.committed_view import create_committed_view
from stratalog.clients.typed_tables.typed_table import TypedTable
from stratalog.jobs.command.opened import OpenedCluster
from stratalog.replication.metadata.acls import Principal
from stratalog.replication.spark.session import stratalog_session
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import RandomIds, SystemClock
from tests.lab.console.browsing import chromium, noting_page, served
from tests.lab.console.tasks import Hand

REPLAY_MS = 180_000
SETTINGS = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}
GOOD, LATE, BROKEN = 5, 3, 1
"""Numbers of records: of the schema that is known, of the one that is registered later, without a schema."""
STATEMENTS = (
    "SELECT id, count FROM {table} ORDER BY id",
    "SELECT count(*) AS n FROM {table} WHERE _offset >= 2",
    (
        "SELECT t.id, CAST(o.key AS STRING) AS key FROM {table} t JOIN orders o ON o.partition = t._partition "
        "AND o.offset = t._offset ORDER BY t.id"
    ),
    "SELECT error, count(*) AS n FROM {letters} GROUP BY error",
)


def schema(**kinds: str) -> Schema:
    """An Avro record of these fields."""
    fields = [{"name": name, "type": kind, "default": 0} for name, kind in kinds.items()]
    return Schema(json.dumps({"type": "record", "name": "Order", "fields": fields}))


KNOWN, LATER = schema(id="long"), schema(id="long", count="int")


def fill(cluster: Cluster, spark: SparkSession, table: Path) -> None:
    """A typed table with dead letters, whose query has ended."""
    Admin(cluster).create_topic("orders", 1, 1)
    with SchemaFolder.create(cluster, SCHEMAS_TOPIC) as folder:
        known = folder.register("orders-value", KNOWN).id
    with Producer(cluster) as producer:
        for number in range(GOOD + LATE):
            text, id_ = (KNOWN, known) if number < GOOD else (LATER, known + 1)
            value = encode_avro(AvroSchema.of(text), {"id": number, "count": 10 * number})
            producer.send("orders", key=f"customer-{number}", value=SchemaId(id=id_).id_prefix() + value)
        for _ in range(BROKEN):
            producer.send("orders", value=b"no schema")
    config = {"value.format": "avro"}
    state = TypedTable(spark, cluster.root, "orders", str(table), config, SchemaFolder(cluster.root)).run_available()
    assert (state.row_count, state.dead_letter_count) == (GOOD, LATE + BROKEN), state


def put_back(hand: Hand) -> None:
    """From the overview to the page of the table, which has its rows."""
    hand.follow("Tables", within="nav.menu")
    hand.follow(f"▲ {LATE + BROKEN}", within="main table")
    hand.sees(f"{LATE + BROKEN} records of orders that do not fit", "Schema 2 not found", "customer-5")
    hand.follow("Replay dead letters", within="main")
    hand.sees("What would change", f"All {LATE + BROKEN} dead letters are read again")
    hand.page.set_default_timeout(REPLAY_MS)
    hand.follow("Replay dead letters", within="form.confirm")
    hand.sees(f"{LATE + BROKEN} dead letters were read: {LATE} went to the table, {BROKEN} are left", "Columns")


def differing(spark: SparkSession, cluster: Cluster, table: Path) -> list[str]:
    """Statements that do not have the same rows in the console and in Spark."""
    view = ClusterView(cluster)
    asker = Asker(OpenedCluster(view, Admin(cluster, view=view), {}), Principal(), None, 0)
    create_committed_view(spark, cluster.root, "orders", "orders")
    found = []
    for each in STATEMENTS:
        text = each.format(table=f"delta.`{table}`", letters=f"delta.`{table}__dlq`")
        theirs = [list(row) for row in spark.sql(text).collect()]
        ours = [list(row) for row in sql_answer(asker, text, 100).rows]
        short = [
            list(row)
            for row in sql_answer(
                asker, each.format(table=f"typed.{table.name}", letters=f"typed.{table.name}__dlq"), 100
            ).rows
        ]
        if not ours == short == theirs or not ours:
            found.append(f"{text}: {ours}, {short}, in Spark {theirs}")
    return found


def run(folder: Path) -> list[str]:
    """What was found."""
    findings: list[str] = []
    table = folder / "lake" / "orders"
    with Cluster.start(str(folder / "cluster"), 1, fetcher="thread", config=SETTINGS) as cluster:
        spark = stratalog_session("stratalog-dead-letters", log_dir=folder)
        fill(cluster, spark, table)
        with SchemaFolder(cluster, SCHEMAS_TOPIC) as registered:
            registered.register("orders-value", LATER)
        view, ids = ClusterView(cluster), RandomIds()
        opened = OpenedCluster(view, Admin(cluster, view=view), {})
        console = Console(RootDoor(opened), ConsoleSettings("the lab's", allow_changes=True), SystemClock(), ids.new_id)
        with served(console) as url, chromium() as browser:
            page, noted = noting_page(browser)
            hand, begun = Hand(page, url), time.monotonic()
            try:
                put_back(hand)
            except AssertionError as reason:
                findings.append(str(reason)[:600])
            took = f"{hand.clicks} clicks, {hand.fields} fields, {time.monotonic() - begun:.1f} s"
            print(f"put dead letters back: {took}")
            findings += noted.taken(page)
        findings += differing(spark, cluster, table)
        spark.stop()
    return findings


def main() -> int:
    """The exit code."""
    with tempfile.TemporaryDirectory(prefix="dead-letters-") as folder:
        findings = run(Path(folder))
    print(*findings, f"{len(STATEMENTS)} statements, {len(findings)} findings", sep="\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
