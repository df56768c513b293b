"""Kafka's `StateChangeLogMerger` for stratalog: several brokers' state-change.log as one, in order of time.

I/O: reads log files, one line of each at a time, so that they may be of any length.
"""

from __future__ import annotations

import argparse
import heapq
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from stratalog.jobs.command.flags import Flag, Rule
from stratalog.jobs.command.terminal import DONE, UsageError
from stratalog.jobs.command.tool import Command
from stratalog.storage.records import TopicPartition

PURPOSE = """A tool for merging the log files from several brokers to reconstruct a unified history of what happened:
the lines of all files in order of time, of one topic or some of its partitions, in a range of time."""
EPILOG = """examples:
  {prog} --logs broker-1/state-change.log,broker-2/state-change.log
  {prog} --logs-regex 'logs/broker-.*/state-change\\.log(\\.[0-9]+)?' --topic events --partitions 0,2
  {prog} --logs-regex 'logs/state-change\\.log.*' --start-time '2026-11-21 18:00:00,000'

Within a file lines are in order of time already; a full file is renamed to .1, .2, ...; larger numbers are
older. A line without a time, as of a stack trace, belongs to the one before and is left out, as in Kafka's tool.
Without --topic lines that name no partition, as registrations, are merged, too.
exit code: 0 when the files were merged, 1 when the command line is wrong
"""
DATE_FORMAT = "yyyy-MM-dd HH:mm:ss,SSS"
START_OF_TIME, END_OF_TIME = "0000-00-00 00:00:00,000", "9999-12-31 23:59:59,999"
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2},[0-9]{3}")
_PARTITION = re.compile(r"\[([a-zA-Z0-9._-]+), *([0-9]+)\]|(?<![\w.-])([a-zA-Z0-9._-]+)-([0-9]+)(?![\w-]|\.\w)")
"""A partition as old brokers of Kafka's wrote it, `[events,3]`, or as brokers write it today, `events-3`."""


@dataclass(frozen=True, slots=True)
class LineFilter:
    """Which lines are wanted. Times are text in `DATE_FORMAT`, both included; no partitions: all."""

    start_time: str = START_OF_TIME
    end_time: str = END_OF_TIME
    topic: str | None = None
    partitions: frozenset[int] = frozenset()

    def time_of(self, line: str) -> str | None:
        """The time of a wanted line; None for any other.

        >>> LineFilter(topic="t").time_of("[2026-11-21 18:00:00,123] INFO [Broker 1] t-0 became leader")
        '2026-11-21 18:00:00,123'
        """
        date = _DATE.search(line)
        if date is None or not self.start_time <= date[0] <= self.end_time:
            return None
        return date[0] if self.topic is None or self._names(line[date.end() :]) else None

    def _names(self, text: str) -> bool:
        return any(
            found.topic == self.topic and (not self.partitions or found.partition in self.partitions)
            for found in partitions_in(text)
        )


def partitions_in(text: str) -> Iterator[TopicPartition]:
    """What reads like a partition in a line, in its order.

    >>> [str(found) for found in partitions_in("[a.b,3] x-1 became follower of y-z-2, not of 127.0.0.1-x")]
    ['a.b-3', 'x-1', 'y-z-2']
    """
    for match in _PARTITION.finditer(text):
        yield TopicPartition(match[1] or match[3], int(match[2] or match[4]))


def merge(logs: Iterable[Iterable[str]], wanted: LineFilter) -> Iterator[str]:
    """The wanted lines of all logs in order of time; of the same time, in the order of the logs."""

    def dated(number: int, lines: Iterable[str]) -> Iterator[tuple[str, int, str]]:
        for line in lines:
            time = wanted.time_of(line)
            if time is not None:
                yield time, number, line.rstrip("\n")

    merged = heapq.merge(*(dated(*numbered) for numbered in enumerate(logs)), key=lambda found: found[:2])
    return (line for _, _, line in merged)


# fmt: off
FLAGS = {"": (
    Flag("logs", "FILE1,FILE2", "Comma separated list of state change logs or a regex for the log file names."),
    Flag("logs-regex", "REGEX", "Regex to match the state change log files to be merged."),
    Flag("partitions", "0,1,2", "Comma separated list of partition ids whose state change logs should be merged."),
    Flag("topic", "TOPIC", "The topic whose state change logs should be merged."),
    Flag("start-time", "TIME", f"The earliest timestamp of state change log entries to be merged, as {DATE_FORMAT}.",
         default=START_OF_TIME),
    Flag("end-time", "TIME", "The latest timestamp of state change log entries to be merged.", default=END_OF_TIME),
)}
RULES = (
    Rule('The option "[topic]" needs to be provided an argument when specifying partition ids', "partitions", "topic"),
    *Rule.exactly_one(("logs", "logs-regex"),
                      'Provide arguments to exactly one of the two options "[logs]" or "[logs-regex]"'),
)
# fmt: on


def line_filter(given: argparse.Namespace) -> LineFilter:
    """The lines that the flags ask for. UsageError in Kafka's words."""
    ids = [name.strip() for name in (given.partitions or "").split(",") if name.strip()]
    wrong = [name for name in ids if not name.isdecimal()]
    if wrong:
        raise UsageError(
            f"--partitions expects a comma separated list of numeric partition ids, but received: {wrong[0]}"
        )
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise UsageError(f"The list of partitions contains repeated entries: {', '.join(twice)}")
    for name, time in (("start-time", given.start_time), ("end-time", given.end_time)):
        if time not in (START_OF_TIME, END_OF_TIME) and not is_time(time):
            raise UsageError(f"--{name} {time} is not in the format {DATE_FORMAT}")
    return LineFilter(given.start_time, given.end_time, given.topic, frozenset(map(int, ids)))


def is_time(text: str) -> bool:
    """Whether a text is a time in `DATE_FORMAT`.

    >>> is_time("2026-11-21 18:00:00,123"), is_time("2026-13-21 18:00:00,123"), is_time("2026-11-21")
    (True, False, False)
    """
    if _DATE.fullmatch(text) is None:
        return False
    try:
        datetime.fromisoformat(text.replace(",", "."))
    except ValueError:
        return False
    return True


def log_files(given: argparse.Namespace) -> list[Path]:
    """The files that the flags name. UsageError when there is none."""
    if given.logs is not None:
        named = [Path(name.strip()) for name in given.logs.split(",") if name.strip()]
        absent = [file for file in named if not file.is_file()]
        if absent:
            raise UsageError(f"{absent[0]} cannot be read: No such file")
        return list(dict.fromkeys(named))
    return _matching(given.logs_regex)


def _matching(expression: str) -> list[Path]:
    """Files whose whole path matches. The search begins at the folder that the expression begins with."""
    try:
        pattern = re.compile(expression)
    except re.error as reason:
        raise UsageError(f"{expression} is an invalid regex.") from reason
    plain = re.match(r"[\w./~ -]*/", expression)
    base = Path(plain[0]).expanduser() if plain else Path()
    while not base.is_dir():
        base = base.parent
    found = [path for path in sorted(base.rglob("*"), key=_age) if path.is_file() and pattern.fullmatch(str(path))]
    if not found:
        raise UsageError(f"No file below {base} matches {expression}")
    return found


def _age(file: Path) -> tuple[str, int]:
    """Sort key: older files of one log come first, for their lines of the same millisecond are older."""
    name, _, number = str(file).rpartition(".")
    return (name, -int(number)) if number.isdecimal() else (str(file), 0)


def state_change_log_merger(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    wanted = line_filter(given)
    with ExitStack() as open_files:
        logs = [
            open_files.enter_context(file.open(encoding="utf-8", errors="backslashreplace"))
            for file in log_files(given)
        ]
        for line in merge(logs, wanted):
            print(line)
    return DONE


main = Command("state-change-log-merger", PURPOSE, EPILOG, FLAGS, state_change_log_merger, RULES)
