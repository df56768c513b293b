"""A topic as a typed Delta table: run its query, describe it, replay its dead letters. Kafka has no such tool.

I/O: a Spark session, the table, the cluster's storage, the schema registry.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import stratalog
from stratalog import SchemaFolder, SchemaRegistryClient
from stratalog.clients.schemas.schema import SchemaRegistry
from stratalog.clients.schemas.schema_folder import SCHEMAS_TOPIC
from stratalog.clients.typed_tables.config import TYPED_TABLE_CONFIGS
from stratalog.jobs.command.arguments import ROOT, SERVERS, cluster_root
from stratalog.jobs.command.flags import Flag, Rule, switch
from stratalog.jobs.command.progress import progress
from stratalog.jobs.command.properties import key_values, read_properties
from stratalog.jobs.command.terminal import DONE, Stop, complain, stop_signals
from stratalog.jobs.command.tool import Command, settings_table

if TYPE_CHECKING:  # Spark comes with an extra
    from pyspark.sql import SparkSession

    from stratalog import TypedTable, TypedTableState
    from stratalog.clients.typed_tables.erasure import TableErasure

NOT_YET = 1
ON_STORAGE = "what Spark reads is"
WATCH_S = 1
PURPOSE = """This tool brings the records of a topic into a typed Delta table, exactly once. What does not fit is kept
beside it, in <table>__dlq. Without an action it goes on until SIGTERM or Ctrl-C."""
EPILOG = """examples (ROOT is the metadata root that `strata cluster` printed):
  {prog} --root ROOT --topic orders --table lake/orders --schema-folder --config value.format=avro
  {prog} --root ROOT --topic clicks --table main.web.clicks --available-now --config value.format=json
                --config "value.schema=id BIGINT, page STRING"
  {prog} --root ROOT --topic orders --table lake/orders --schema-folder --config value.format=avro --describe

spark-submit jobs/typed_table.py … runs it on a cluster. Give the same --config to all actions.
exit code: 0 when the action is done; of --erasure 1 while something is left; 1 when the query failed

settings (name = default unit):
"""
AVAILABLE_NOW, DESCRIBE, REPLAY, ERASURE = "available-now", "describe", "replay", "erasure"

# fmt: off
FLAGS = {
    "the topic and the table": (
        ROOT,
        SERVERS,
        Flag("topic", "TOPIC", "REQUIRED: The topic."),
        Flag("table", "TABLE", "REQUIRED: The table: a path or URL (with a slash), or a name in the catalog."),
        Flag("config", "NAME=VALUE", "A setting, or source.NAME=VALUE for an option of the source; may be repeated.",
             is_repeated=True),
        Flag("config-file", "FILE", "Property file with settings; --config counts before it."),
    ),
    "schemas": (
        Flag("schema-folder", "TOPIC", f"Schemas are in this topic of the cluster (default: {SCHEMAS_TOPIC}).",
             bare=SCHEMAS_TOPIC),
        Flag("schema-registry", "URL", "Schemas are at this registry server."),
        Flag("registry-property", "NAME=VALUE", "A config of the registry's client; may be repeated.",
             is_repeated=True),
    ),
    "actions": (
        switch(AVAILABLE_NOW, "Bring in what is there now, and end."),
        switch(DESCRIBE, "Print the state, the lag and the dead letters."),
        switch(REPLAY, "Read the dead letters again: those that fit now go to the table."),
        Flag(ERASURE, "ID", "Report on an erasure of the topic (strata delete-where) in table and dead letters.", int),
    ),
}
RULES = (
    *Rule.required("topic table"),
    *Rule.at_most_one(("schema-folder", "schema-registry")),
    *Rule.required("schema-registry", "registry-property"),
    *Rule.at_most_one((AVAILABLE_NOW, DESCRIBE, REPLAY, ERASURE)),
)
# fmt: on


def state_lines(state: TypedTableState) -> list[str]:
    """The state as lines: the table, a line for each partition, a line for each error."""
    progress = state.progress
    unfinished = f", batch {progress.planned_batch} is not" if progress.planned_batch > progress.done_batch else ""
    batch = f"batch {progress.done_batch} is done{unfinished}" if progress.query_id else "the query never ran"
    counts = f"Version: {state.version}\tRows: {state.row_count}\tDead letters: {state.dead_letter_count}"
    lines = [
        f"Table: {state.table}\tTopic: {state.topic}\tMode: {state.mode}\t{counts}",
        f"Query: {progress.query_id or '-'}\t{batch}",
        "partition\tposition\tlag",
    ]
    lines += [f"{each}\t{progress.positions.get(each, 0)}\t{lag}" for each, lag in sorted(state.lag.items())]
    if state.dead_letters:
        lines.append("dead letters\terror")
        by_count = sorted(state.dead_letters.items(), key=lambda item: (-item[1], item[0]))
        lines += [f"{count}\t{error}" for error, count in by_count]
    return lines


def erasure_lines(tables: Sequence[TableErasure]) -> list[str]:
    """What each table holds of an erasure, and a summary."""
    lines = ["table\tapplied\trows left\tfiles waiting\tlog files waiting"]
    for each in tables:
        left = f"not known: the table does not keep the {each.lacking}" if each.lacking else each.rows_left
        waiting = f"{each.files_waiting}\t{each.log_files_waiting}"
        lines.append(f"{each.table}\t{'yes' if each.is_applied else 'not yet'}\t{left}\t{waiting}")
    is_gone = all(each.is_gone for each in tables)
    lines.append("Gone from table and dead letters." if is_gone else "Not gone yet.")
    return lines


def settings(given: argparse.Namespace) -> dict[str, object]:
    """The settings of file and flags."""
    from_file = read_properties(given.config_file) if given.config_file else {}
    return {**from_file, **key_values(given.config)}


def registry(given: argparse.Namespace) -> SchemaRegistry | None:
    """The registry that the flags name."""
    if given.schema_folder is not None:
        return SchemaFolder(cluster_root(given, ON_STORAGE), given.schema_folder)
    if given.schema_registry is not None:
        return SchemaRegistryClient({"url": given.schema_registry, **key_values(given.registry_property)})
    return None


def run_query(table: TypedTable, stop: Stop) -> int:
    """Run the query until a signal, or until it fails, which raises its error."""
    query = table.start()
    print("Started. SIGTERM or Ctrl-C stops the query.", flush=True)
    while not stop.is_asked:
        if query.awaitTermination(WATCH_S):
            return DONE
    complain("Stopping ...")
    query.stop()
    return DONE


def act(spark: SparkSession, given: argparse.Namespace, stop: Stop) -> int:
    """Do what the flags ask for; the exit code."""
    root = cluster_root(given, ON_STORAGE)
    table = stratalog.TypedTable(spark, root, given.topic, given.table, settings(given), registry(given))
    if given.describe:
        print("\n".join(state_lines(table.describe())))
    elif given.replay:
        outcome = table.replay()
        print(f"Read {outcome.read_count} dead letters: {outcome.replayed_count} went to the table, "
              f"{outcome.left_count} are left.")  # fmt: skip
    elif given.erasure is not None:
        tables = table.describe_erasure(given.erasure)
        print("\n".join(erasure_lines(tables)))
        return DONE if all(each.is_gone for each in tables) else NOT_YET
    elif given.available_now:
        with progress(f"records of {given.topic} to {given.table}"):
            state = table.run_available()
        print("\n".join(state_lines(state)))
    else:
        return run_query(table, stop)
    return DONE


def typed_table(given: argparse.Namespace) -> int:
    """Start Spark and do what the flags ask for; the exit code."""
    cluster_root(given, ON_STORAGE)
    with stop_signals() as stop:
        spark = stratalog.stratalog_session("strata typed-table")
        stop.listen()
        try:
            return act(spark, given, stop)
        finally:
            with suppress(Exception):  # a JVM that a signal has ended
                spark.stop()


main = Command("typed-table", PURPOSE, EPILOG + settings_table(TYPED_TABLE_CONFIGS), FLAGS, typed_table, RULES)

if __name__ == "__main__":
    sys.exit(main())
