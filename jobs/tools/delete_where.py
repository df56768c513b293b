"""Erase the records of a topic that match, on every replica, and prove it. Ours: Kafka has no such tool.

I/O: the cluster through the admin client; the brokers run in `strata-cluster` or elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from stratalog.clients.admin.admin import Admin
from stratalog.clients.admin.erasure import ErasureReport, ReplicaErasure
from stratalog.jobs.command.arguments import Parser, add_cluster_flags, client_properties, cluster_root, timeout_ms
from stratalog.jobs.command.terminal import DONE, UsageError, run
from stratalog.storage.clock import Clock, SystemClock

NOT_YET = 1
LOOK_MS = 500
PURPOSE = "Erase the committed records of a topic that match a predicate, on every replica, and prove it."
EPILOG = """examples (ROOT is the metadata root that strata-cluster printed):
  {prog} --root ROOT --topic events --where '{{"key": {{"equals": "bob"}}}}' --wait-seconds 300
  {prog} --root ROOT --topic events --where '{{"all": [{{"header": {{"name": "user", "equals": "bob"}}}},
                                                    {{"timestamp_ms": {{"below": 1700000000000}}}}]}}'
  {prog} --root ROOT --topic events --report 3

predicates: key and value with equals, in, begins_with, contains, is_null; timestamp_ms with from, below; header with
  name, equals; all, any, not. Text is UTF-8; other bytes are {{"base64": "..."}}.
exit code: 0 when every replica has erased and no file that is out of the log is on storage any more; 1 otherwise
"""
HEADINGS = ("partition", "broker", "version", "files rewritten", "records erased", "records left", "files waiting")


def parser() -> Parser:
    """All flags."""
    made = Parser("delete_where", PURPOSE, "")
    made.epilog = EPILOG.format(prog=made.prog)
    add_cluster_flags(made)
    made.add_argument("--topic", metavar="TOPIC", help="REQUIRED: The topic.")
    made.add_argument("--where", metavar="JSON", help="What is to be erased.")
    made.add_argument("--report", metavar="ID", type=int, help="Ask for nothing, report on an earlier erasure.")
    made.add_argument(
        "--wait-seconds", metavar="SECONDS", type=int, default=0, help="Wait so long until all is gone (default: 0)."
    )
    return made


def report_lines(report: ErasureReport) -> list[str]:
    """A line of headings, a line for each replica, and the sum of it."""
    lines = ["\t".join(HEADINGS), *map(_replica_line, report.replicas)]
    open_count = sum(not replica.is_erased for replica in report.replicas)
    waiting_count = sum(replica.files_waiting for replica in report.replicas)
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
    numbers = (
        replica.version,
        replica.files_rewritten,
        replica.records_erased,
        replica.records_left,
        replica.files_waiting,
    )
    return "\t".join([place, *map(str, numbers)])


def awaited(look: Callable[[], ErasureReport], wait_ms: int, clock: Clock) -> ErasureReport:
    """The first report by which all is gone, or the last one before the time is over."""
    deadline_ms = clock.monotonic_ms() + wait_ms
    report = look()
    while not report.is_gone and clock.monotonic_ms() < deadline_ms:
        clock.sleep_ms(LOOK_MS)
        report = look()
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; the exit code."""
    return run(lambda: _erase(arguments))


def _erase(arguments: Sequence[str] | None) -> int:
    given = parser().parse(arguments)
    if given.topic is None:
        raise UsageError('Missing required argument "[topic]"')
    if (given.where is None) == (given.report is None):
        raise UsageError('Exactly one of "[where]" and "[report]" is needed')
    with Admin(cluster_root(given), timeout_ms=timeout_ms(client_properties(given.command_config))) as admin:
        erase_id = given.report if given.report is not None else admin.delete_where(given.topic, given.where)
        print(f"Erasure {erase_id} of topic {given.topic}:", flush=True)
        report = awaited(
            lambda: admin.describe_erasure(given.topic, erase_id), given.wait_seconds * 1_000, SystemClock()
        )
    print("\n".join(report_lines(report)))
    return DONE if report.is_gone else NOT_YET


if __name__ == "__main__":
    sys.exit(main())
