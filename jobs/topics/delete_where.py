"""Erase the records of a topic that match, on every replica, and prove it. Kafka has no such tool.

I/O: the cluster through the admin client; the brokers run in `strata cluster` or elsewhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from stratalog.jobs.command.arguments import CLUSTER
from stratalog.jobs.command.flags import Flag, Rule
from stratalog.jobs.command.opened import storage_admin
from stratalog.jobs.command.progress import progress
from stratalog.jobs.command.terminal import DONE
from stratalog.jobs.command.tool import Command
from stratalog.server.admin.erasure import ErasureLeftover, ErasureReport, ReplicaErasure
from stratalog.storage.clock import Clock, SystemClock

NOT_YET = 1
POLL_MS = 500
PURPOSE = "Erase the committed records of a topic that match a predicate, on every replica, and prove it."
EPILOG = """examples (ROOT is the metadata root that `strata cluster` printed):
  {prog} --root ROOT --topic events --where '{"key": {"equals": "bob"}}' --wait-seconds 300
  {prog} --root ROOT --topic events --where '{"all": [{"header": {"name": "user", "equals": "bob"}},
                                                    {"timestamp_ms": {"below": 1700000000000}}]}'
  {prog} --root ROOT --topic events --report 3

predicates: key and value with equals, in, begins_with, contains, is_null; timestamp_ms with from, below; header with
  name, equals; all, any, not. Text is UTF-8; other bytes are {"base64": "..."}.
exit code: 0 when every replica has erased and no file that is out of the log is on storage any more; 1 otherwise
"""
HEADINGS = ("partition", "broker", "version", "files rewritten", "records erased", "records left", "files waiting")


# fmt: off
FLAGS = {**CLUSTER, "": (
    Flag("topic", "TOPIC", "REQUIRED: The topic."),
    Flag("where", "JSON", "What is to be erased."),
    Flag("report", "ID", "Erase nothing, report on an earlier erasure.", int),
    Flag("wait-seconds", "SECONDS", "Wait so long until all is gone (default: 0).", int, 0),
)}
RULES = (
    *Rule.required("topic"),
    *Rule.exactly_one(("where", "report"), 'Exactly one of "[where]" and "[report]" is needed'),
)
# fmt: on


def report_lines(report: ErasureReport) -> list[str]:
    """A line of headings, a line for each replica and for each deleted one that is not gone, and a summary."""
    lines = ["\t".join(HEADINGS), *map(_replica_line, report.replicas), *map(_leftover_line, report.leftovers)]
    open_count = sum(not replica.is_erased for replica in report.replicas)
    waiting_count = sum(replica.files_waiting for replica in report.replicas)
    waiting_count += sum(leftover.file_count for leftover in report.leftovers)
    if open_count:
        lines.append(f"Not done yet on {open_count} of {len(report.replicas)} replicas.")
    elif not report.is_gone:
        lines.append(f"Erased on all {len(report.replicas)} replicas; {waiting_count} files wait for their deletion.")
    else:
        lines.append(f"Erased on all {len(report.replicas)} replicas, and gone from storage.")
    return lines


def _replica_line(replica: ReplicaErasure) -> str:
    place = f"{replica.topic_partition}\t{replica.broker_id}"
    if replica.error is not None:
        return f"{place}\terror: {replica.error}"
    if not replica.is_applied:
        return f"{place}\t{replica.version}\tnot applied yet, {replica.records_left} records left"
    records = (replica.files_rewritten, replica.records_erased, replica.records_left)
    return "\t".join(map(str, (place, replica.version, *records, replica.files_waiting)))


def _leftover_line(leftover: ErasureLeftover) -> str:
    if leftover.error is not None:
        return f"broker {leftover.broker_id}: what deleted replicas left there is not known: {leftover.error}"
    return (
        f"broker {leftover.broker_id}: {leftover.file_count} files of a deleted replica in {leftover.directory}, "
        "which the broker deletes when it starts"
    )


def awaited(read: Callable[[], ErasureReport], wait_ms: int, clock: Clock) -> ErasureReport:
    """The first report by which all is erased, or the last one before the deadline."""
    deadline_ms = clock.monotonic_ms() + wait_ms
    report = read()
    while not report.is_gone and clock.monotonic_ms() < deadline_ms:
        clock.sleep_ms(POLL_MS)
        report = read()
    return report


def delete_where(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    with storage_admin(given, "what an erasure leaves is read from replicas, which are") as admin:
        erase_id = given.report if given.report is not None else admin.delete_where(given.topic, given.where)
        print(f"Erasure {erase_id} of topic {given.topic}:", flush=True)
        with progress("replicas that have erased") as bar:

            def read() -> ErasureReport:
                report = admin.describe_erasure(given.topic, erase_id)
                bar.set(sum(replica.is_erased for replica in report.replicas), len(report.replicas))
                return report

            report = awaited(read, given.wait_seconds * 1_000, SystemClock())
    print("\n".join(report_lines(report)))
    return DONE if report.is_gone else NOT_YET


main = Command("delete-where", PURPOSE, EPILOG, FLAGS, delete_where, RULES)
