"""`kafka-transactions` for stratalog: list and describe transactions and producers, find hanging ones; Kafka's output.

I/O: `__transaction_state` and the producer state of partitions, read from storage, or brokers. `abort` calls the
partition's leader.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence

from stratalog import StratalogError, TopicPartition
from stratalog.clients.admin.transactions import KnownTransactions, LiveTransactions
from stratalog.clients.client_view import ClientView
from stratalog.jobs.command.arguments import CLUSTER
from stratalog.jobs.command.flags import Flag, Rule
from stratalog.jobs.command.opened import open_cluster
from stratalog.jobs.command.output import JSON, OUTPUT, json_text
from stratalog.jobs.command.terminal import DONE, FAILED, complain
from stratalog.jobs.command.tool import Command
from stratalog.replication.requests.transactions import ActiveProducer
from stratalog.server.bootstrap import RunningCluster
from stratalog.server.view.cluster_view import DEFAULT_TIMEOUT_MS

PURPOSE = (
    "This tool is used to analyze the transactional state of producers in the cluster. It can be used to detect "
    "hanging transactions."
)
EPILOG = """commands, behind the flags of the cluster:
  list [--duration-filter MS]                              transactional ids; those open for longer than MS only
  describe --transactional-id ID                           one of them
  describe-producers --topic T --partition N [--broker-id B]
  find-hanging (--topic T [--partition N] | --broker-id B) [--max-transaction-timeout MINUTES]
  abort --topic T --partition N --start-offset O           end a hanging one; brokers need `listeners`

example (for --root ROOT also --bootstrap-server HOST:PORT):
  {prog} --root ROOT describe-producers --topic events --partition 0

exit code: 0; 1 when something is not known or the command line is wrong
"""
ACTIONS = ("list", "describe", "describe-producers", "find-hanging", "abort")
MINUTE_MS = 60_000


Table = tuple[Sequence[str], Sequence[Sequence[object]]]
"""Headings, and a row for each thing found."""

_REQUIRED = "argument --{} is required"
# fmt: off
FLAGS = {**CLUSTER, "": (
    Flag("action", "COMMAND", f"One of {', '.join(ACTIONS)}.", choices=ACTIONS, is_positional=True),
    Flag("duration-filter", "FILTER", "Of list: milliseconds; below 0, the default, lists all.", int, -1),
    Flag("transactional-id", "ID", "Of describe."),
    Flag("topic", "TOPIC", "Of describe-producers, find-hanging and abort."),
    Flag("partition", "PARTITION", "Of describe-producers, find-hanging and abort.", int),
    Flag("broker-id", "ID", "Of describe-producers: read this replica. Of find-hanging: what this broker leads.", int),
    Flag("max-transaction-timeout", "TIMEOUT", "Of find-hanging: minutes; 15 by default.", int, 15),
    Flag("start-offset", "OFFSET", "Of abort: where the transaction begins.", int),
    OUTPUT,
)}
RULES = (
    Rule(f"too few arguments: name a command, one of {', '.join(ACTIONS)}", lacking="action"),
    *Rule.required("transactional-id", "describe", _REQUIRED),
    *Rule.required("topic partition", "describe-producers", _REQUIRED),
    *Rule.required("topic partition start-offset", "abort", _REQUIRED),
    Rule("The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search",
         "find-hanging", "topic broker-id"),
    Rule("The --partition argument requires --topic to be provided", "find-hanging partition", "topic"),
)
# fmt: on


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Kafka's table: columns as wide as their widest cell, a tab behind each.

    >>> table(["A", "Long"], [["xyz", 1]])
    'A  \\tLong\\t\\nxyz\\t1   \\t\\n'
    """
    cells = [[str(cell) for cell in row] for row in (headers, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "".join(f"{line}\n" for line in lines)


def list_table(known: KnownTransactions, given: argparse.Namespace) -> Table:
    rows = [
        (each.transactional_id, coordinator, each.producer_id, each.transaction_state)
        for coordinator, each in known.listed(given.duration_filter)
    ]
    return ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), rows


def describe_table(known: KnownTransactions, given: argparse.Namespace, now_ms: int) -> Table:
    coordinator, found = known.described(given.transactional_id)
    start_ms = found.transaction_start_time_ms
    times = (start_ms, now_ms - start_ms) if start_ms >= 0 else (None, None)
    row = (
        coordinator, found.transactional_id, found.producer_id, found.producer_epoch, found.transaction_state,
        found.transaction_timeout_ms, *times, ",".join(map(str, found.topic_partitions)),
    )  # fmt: skip
    headers = (
        "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
    )  # fmt: skip
    return headers, [row]


def producers_table(producers: Sequence[ActiveProducer]) -> Table:
    """`describe-producers`."""
    rows = [
        (
            each.producer_id, each.producer_epoch, each.coordinator_epoch, each.last_sequence, each.last_timestamp,
            each.current_txn_start_offset if each.current_txn_start_offset >= 0 else None,
        )
        for each in producers
    ]  # fmt: skip
    headers = (
        "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
        "CurrentTransactionStartOffset",
    )  # fmt: skip
    return headers, rows


def hanging_table(known: KnownTransactions, view: ClientView, given: argparse.Namespace, now_ms: int) -> Table:
    topics = view.topics() if given.topic is None else [given.topic]
    partitions = [
        partition
        for topic in topics
        for partition in view.partitions(topic)
        if given.partition in (None, partition.partition) and given.broker_id in (None, view.leader(partition))
    ]
    rows = [
        (
            partition.topic, partition.partition, each.producer_id, each.producer_epoch, each.coordinator_epoch,
            each.current_txn_start_offset, each.last_timestamp, (now_ms - each.last_timestamp) // MINUTE_MS,
        )
        for partition, each in known.hanging(partitions, given.max_transaction_timeout * MINUTE_MS)
    ]  # fmt: skip
    headers = (
        "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp",
        "Duration(min)",
    )  # fmt: skip
    return headers, rows


def text_of(found: Table, form: str) -> str:
    """A table as text, or as a JSON object for each row."""
    headers, rows = found
    if form != JSON:
        return table(headers, rows)
    names = [camel_case(name) for name in headers]
    return "".join(f"{json_text(dict(zip(names, row, strict=True)))}\n" for row in rows)


def camel_case(heading: str) -> str:
    """A heading of a table as a name in JSON.

    >>> camel_case("TransactionalId"), camel_case("Duration(min)")
    ('transactionalId', 'durationMin')
    """
    first, *units = re.split(r"\W+", heading)
    return first[0].lower() + first[1:] + "".join(each.title() for each in units)


def perform(
    given: argparse.Namespace, view: ClientView, known: KnownTransactions, cluster: RunningCluster | None = None
) -> int:
    """Print what the command asks for; the exit code. `cluster`: the brokers to call, for `abort`."""
    now_ms, one = view.clock.wall_ms(), TopicPartition(given.topic, given.partition)
    match given.action:
        case "list":
            return _printed(given, lambda: list_table(known, given), "Failed to list transactions")
        case "describe":
            failure = f"Failed to describe transaction state of transactional-id `{given.transactional_id}`"
            return _printed(given, lambda: describe_table(known, given, now_ms), failure)
        case "find-hanging":
            return _printed(given, lambda: hanging_table(known, view, given, now_ms), "Failed to describe topics")
        case "abort" if cluster is not None:
            live = LiveTransactions(cluster, view, known)
            return _printed(given, lambda: live.abort(one, given.start_offset), "Failed to abort transaction")
    where = "leader" if given.broker_id is None else f"broker {given.broker_id}"
    failure = f"Failed to describe producers for partition {one} on {where}"
    return _printed(given, lambda: producers_table(known.producers(one, given.broker_id)), failure)


def _printed(given: argparse.Namespace, found: Callable[[], Table | None], failure: str) -> int:
    try:
        made = found()
    except StratalogError as reason:
        complain(f"{failure}: {reason.name}: {reason}")
        return FAILED
    if made is not None:
        print(text_of(made, given.output), end="")
    return DONE


def transactions(given: argparse.Namespace) -> int:
    """`perform` on the cluster that the flags name."""
    with open_cluster(given, wait_ms=DEFAULT_TIMEOUT_MS) as opened:
        if given.action != "abort":
            return perform(given, opened.view, opened.transactions())
        with opened.running() as running:
            return perform(given, opened.view, opened.transactions(), running)


main = Command("transactions", PURPOSE, EPILOG, FLAGS, transactions, RULES)
