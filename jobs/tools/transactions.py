"""`kafka-transactions` for stratalog: list and describe transactions and producers, find hanging ones; Kafka's output.

I/O: `__transaction_state` and the producer state of partitions, read from storage; no broker is asked. `abort` takes
the partition's leader, which cannot be called from another process until there is a Kafka endpoint.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from stratalog.clients.admin.transactions import StoredTransactions
from stratalog.clients.view.cluster_view import ClusterView
from stratalog.jobs.command.arguments import Parser, add_cluster_flags, cluster_root
from stratalog.jobs.command.terminal import DONE, FAILED, UsageError, complain, run
from stratalog.replication.requests.transactions import ActiveProducer
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition

PURPOSE = (
    "This tool is used to analyze the transactional state of producers in the cluster. It can be used to detect "
    "hanging transactions."
)
EPILOG = """commands, behind the flags of the cluster:
  list [--duration-filter MS]                              transactional ids; those open for longer than MS only
  describe --transactional-id ID                           one of them
  describe-producers --topic T --partition N [--broker-id B]
  find-hanging (--topic T [--partition N] | --broker-id B) [--max-transaction-timeout MINUTES]
  abort --topic T --partition N --start-offset O           refused until there is a Kafka endpoint

example (ROOT is the metadata root that strata-cluster printed):
  {prog} --root ROOT describe-producers --topic events --partition 0

exit code: 0; 1 when something is not known or the command line is wrong
"""
COMMANDS = ("list", "describe", "describe-producers", "find-hanging", "abort")
MINUTE_MS = 60_000
DEFAULT_TIMEOUT_MINUTES = 15
NONE = "None"


def parser() -> Parser:
    """The flags of all commands of kafka-transactions."""
    made = Parser("transactions", PURPOSE, "")
    made.epilog = EPILOG.format(prog=made.prog)
    add_cluster_flags(made)
    made.add_argument("command", nargs="?", choices=COMMANDS, metavar="COMMAND", help=f"One of {', '.join(COMMANDS)}.")
    for name, kind, text in (
        ("duration-filter", int, "Of list: milliseconds; below 0, the default, takes all."),
        ("transactional-id", str, "Of describe."),
        ("topic", str, "Of describe-producers, find-hanging and abort."),
        ("partition", int, "Of describe-producers, find-hanging and abort."),
        ("broker-id", int, "Of describe-producers: look at this replica. Of find-hanging: what this broker leads."),
        ("max-transaction-timeout", int, "Of find-hanging: minutes; 15 by default."),
        ("start-offset", int, "Of abort: where the transaction begins."),
    ):
        made.add_argument(f"--{name}", type=kind, metavar=name.rpartition("-")[2].upper(), help=text)
    return made


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Kafka's table: columns as wide as their widest cell, a tab behind each.

    >>> table(["A", "Long"], [["xyz", "1"]])
    'A  \\tLong\\t\\nxyz\\t1   \\t\\n'
    """
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    lines = ("".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)) for row in (headers, *rows))
    return "".join(f"{line}\n" for line in lines)


def list_table(stored: StoredTransactions, given: argparse.Namespace) -> str:
    wanted = -1 if given.duration_filter is None else given.duration_filter
    rows = [
        (each.transactional_id, str(coordinator), str(each.producer_id), each.transaction_state)
        for coordinator, each in stored.listed(wanted)
    ]
    return table(["TransactionalId", "Coordinator", "ProducerId", "TransactionState"], rows)


def describe_table(stored: StoredTransactions, given: argparse.Namespace, now_ms: int) -> str:
    coordinator, found = stored.described(_required(given, "transactional-id"))
    begun = found.transaction_start_time_ms
    row = (
        str(coordinator),
        found.transactional_id,
        str(found.producer_id),
        str(found.producer_epoch),
        found.transaction_state,
        str(found.transaction_timeout_ms),
        str(begun) if begun >= 0 else NONE,
        str(now_ms - begun) if begun >= 0 else NONE,
        ",".join(map(str, found.topics)),
    )
    headers = (
        "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
    )  # fmt: skip
    return table(headers, [row])


def producers_table(producers: Sequence[ActiveProducer]) -> str:
    """`describe-producers`."""
    rows = [
        (
            str(each.producer_id),
            str(each.producer_epoch),
            str(each.coordinator_epoch),
            str(each.last_sequence),
            str(each.last_timestamp),
            str(each.current_txn_start_offset) if each.current_txn_start_offset >= 0 else NONE,
        )
        for each in producers
    ]
    headers = (
        "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
        "CurrentTransactionStartOffset",
    )  # fmt: skip
    return table(headers, rows)


def hanging_table(stored: StoredTransactions, view: ClusterView, given: argparse.Namespace, now_ms: int) -> str:
    if given.topic is None and given.broker_id is None:
        raise UsageError(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
        )
    if given.partition is not None and given.topic is None:
        raise UsageError("The --partition argument requires --topic to be provided")
    topics = view.topics() if given.topic is None else [given.topic]
    partitions = [
        partition
        for topic in topics
        for partition in view.partitions(topic)
        if given.partition in (None, partition.partition) and given.broker_id in (None, view.leader(partition))
    ]
    minutes = DEFAULT_TIMEOUT_MINUTES if given.max_transaction_timeout is None else given.max_transaction_timeout
    rows = [
        (
            partition.topic,
            str(partition.partition),
            str(each.producer_id),
            str(each.producer_epoch),
            str(each.coordinator_epoch),
            str(each.current_txn_start_offset),
            str(each.last_timestamp),
            str((now_ms - each.last_timestamp) // MINUTE_MS),
        )
        for partition, each in stored.hanging(partitions, minutes * MINUTE_MS)
    ]
    headers = (
        "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp",
        "Duration(min)",
    )  # fmt: skip
    return table(headers, rows)


def _required(given: argparse.Namespace, flag: str) -> str:
    value = getattr(given, flag.replace("-", "_"))
    if value is None:
        raise UsageError(f"argument --{flag} is required")
    return str(value)


def transactions(arguments: Sequence[str] | None) -> int:
    """The tool without its terminal: raises UsageError; what is not known is said on standard error."""
    given = parser().parse(arguments)
    if given.command is None:
        raise UsageError("too few arguments: name a command, one of " + ", ".join(COMMANDS))
    return perform(given, ClusterView(cluster_root(given)))


def perform(given: argparse.Namespace, view: ClusterView) -> int:
    """Print what the command asks for; the exit code."""
    stored, now_ms = StoredTransactions(view), view.clock.wall_ms()
    if given.command == "list":
        return _printed(lambda: list_table(stored, given), "Failed to list transactions")
    if given.command == "describe":
        named = _required(given, "transactional-id")
        failure = f"Failed to describe transaction state of transactional-id `{named}`"
        return _printed(lambda: describe_table(stored, given, now_ms), failure)
    if given.command == "find-hanging":
        return _printed(lambda: hanging_table(stored, view, given, now_ms), "Failed to describe topics")
    one = TopicPartition(_required(given, "topic"), int(_required(given, "partition")))
    if given.command == "abort":
        raise UsageError(
            f"{one}: a transaction is aborted by the leader, and no broker can be called from this process. "
            "That needs the Kafka endpoint, which does not exist yet."
        )
    where = "leader" if given.broker_id is None else f"broker {given.broker_id}"
    failure = f"Failed to describe producers for partition {one} on {where}"
    return _printed(lambda: producers_table(stored.producers(one, given.broker_id)), failure)


def _printed(text: Callable[[], str], failure: str) -> int:
    try:
        print(text(), end="")
    except StratalogError as reason:
        complain(f"{failure}: {reason.name}: {reason}")
        return FAILED
    return DONE


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    return run(lambda: transactions(arguments))


if __name__ == "__main__":
    sys.exit(main())
