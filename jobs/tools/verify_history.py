"""Check a recorded history of sends and polls: nothing acknowledged is lost, doubled, torn or out of order.

I/O: reads files; with `--root` also the replicas' tables, to see whether what was acknowledged is still there.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from stratalog.clients.history.checker import RULES, Finding, check, unseen
from stratalog.clients.history.history import ACK, HistoryEvent
from stratalog.clients.history.recorder import read_events
from stratalog.clients.history.stored import stored_events
from stratalog.jobs.command.arguments import CLUSTER, open_view
from stratalog.jobs.command.flags import Command, Flag, Rule
from stratalog.jobs.command.terminal import DONE, FAILED, UsageError

PURPOSE = (
    "Check a recorded history of sends and polls. The names of what is found are those of Jepsen's Kafka workload."
)
EPILOG = """examples (ROOT is the metadata root that strata-cluster printed):
  {prog} --history run.jsonl
  {prog} --history sender.jsonl --history reader.jsonl --root ROOT --topic events

A history is written by stratalog's RecordingProducer and RecordingConsumer. Each line is a JSON array: time in ms of a
monotonic clock, client, kind, partition, offset, leader epoch, value, topic, number of the call, transaction; what is
not known at the end is left out. Values are ids: no two records have the same. Several files are merged by time.
With --root and --topic every in-sync replica must hold what was acknowledged, too.

the rules:
{rules}

exit code: 0 for a clean history, 1 when something was found or a file is no history
"""
SHOWN = 20


# fmt: off
FLAGS = {"": (
    Flag("history", "FILE", "REQUIRED: A history; may be repeated.", is_repeated=True),
    Flag("rules", "NAMES", "Check these only, with commas between; everything if not given."),
    Flag("max-findings", "N", f"Most findings to print of each rule (default: {SHOWN}).", int, SHOWN),
    Flag("topic", "TOPIC", "Topics whose replicas to read.", is_repeated=True),
), **CLUSTER}
# fmt: on


def rules_table() -> str:
    """Every rule with what it finds, for `--help`."""
    return "\n".join(f"  {name}\n      {' '.join((rule.__doc__ or '').split())}" for name, rule in RULES.items())


def wanted_rules(names: str | None) -> list[str]:
    """The rules that `--rules` names. UsageError for an unknown one."""
    if names is None:
        return list(RULES)
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in RULES]
    if unknown or not wanted:
        raise UsageError(f"Unknown rule '{','.join(unknown)}': the rules are {', '.join(RULES)}")
    return wanted


def merged(files: Iterable[Path]) -> list[HistoryEvent]:
    """The events of all files; of several, by time. UsageError for a file that does not exist."""
    found = list(files)
    absent = [file for file in found if not file.is_file()]
    if absent:
        raise UsageError(f"{absent[0]} cannot be read: No such file")
    parts = [read_events(file) for file in found]
    events = [event for part in parts for event in part]
    return events if len(parts) == 1 else sorted(events, key=lambda event: event.time_ms)


def report_lines(events: Sequence[HistoryEvent], findings: Sequence[Finding], shown: int) -> list[str]:
    """The events by kind, the first findings of each rule, and the verdict."""
    counts = Counter(event.kind for event in events)
    clients = len({event.client for event in events})
    by_kind = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    lines = [f"{len(events)} events of {clients} clients: {by_kind}" if events else "0 events"]
    late = unseen(events)
    if late:
        lines.append(f"unseen: {len(late)} of {counts[ACK]} acknowledged records lie above all that was polled")
    for rule, count in Counter(finding.rule for finding in findings).items():
        texts = [finding.text for finding in findings if finding.rule == rule]
        lines += [f"{rule}: {text}" for text in texts[:shown]]
        if count > shown:
            lines.append(f"{rule}: {count - shown} more")
    lines.append(f"INVALID: {len(findings)} findings" if findings else "VALID: nothing found")
    return lines


def verify_history(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    rules = wanted_rules(given.rules)
    if bool(given.root or given.bootstrap_server) != bool(given.topic):
        raise UsageError('The options "[root]" and "[topic]" go together')
    events = merged(map(Path, given.history))
    if given.topic:
        view = open_view(given)
        events += [event for topic in given.topic for event in stored_events(view, topic)]
    findings = check(events, rules)
    print("\n".join(report_lines(events, findings, given.max_findings)))
    return FAILED if findings else DONE


main = Command(
    "verify_history", PURPOSE, EPILOG.replace("{rules}", rules_table()), FLAGS, verify_history, Rule.required("history")
)

if __name__ == "__main__":
    sys.exit(main())
