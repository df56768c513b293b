"""Kafka's `StateChangeLogMerger` for stratalog: several brokers' state-change.log as one, in order of time.

I/O: reads log files, one line of each at a time, so that they may be as long as they like.
"""

from __future__ import annotations

import argparse
import heapq
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from stratalog.jobs.command.arguments import Parser
from stratalog.jobs.command.terminal import DONE, UsageError, run
from stratalog.storage.records import TopicPartition

PURPOSE = """A tool for merging the log files from several brokers to reconstruct a unified history of what happened:
the lines of all files in order of time, of one topic or some of its partitions, in a range of time."""
EPILOG = """examples:
  {prog} --logs broker-1/state-change.log,broker-2/state-change.log
  {prog} --logs-regex 'logs/broker-.*/state-change\\.log(\\.[0-9]+)?' --topic events --partitions 0,2
  {prog} --logs-regex 'logs/state-change\\.log.*' --start-time '2026-11-21 18:00:00,000'

Within a file lines are in order of time already; a file that was full goes on as .1, .2, ... older ones with larger
numbers. A line without a time, as of a stack trace, belongs to the one before and is left out, as in Kafka's tool.
Without --topic lines that name no partition, as registrations, are merged, too.
exit code: 0 when the files were merged, 1 when the command line is wrong
"""
DATE_FORMAT = "yyyy-MM-dd HH:mm:ss,SSS"
START_OF_TIME, END_OF_TIME = "0000-00-00 00:00:00,000", "9999-12-31 23:59:59,999"
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2},[0-9]{3}")
_PARTITION = re.compile(r"\[([a-zA-Z0-9._-]+), *([0-9]+)\]|(?<![\w.-])([a-zA-Z0-9._-]+)-([0-9]+)(?![\w-]|\.\w)")
"""A partition as Kafka's brokers wrote it, `[events,3]`, or as they and ours write it today, `events-3`."""


@dataclass(frozen=True, slots=True)
class LineFilter:
    """Which lines are wanted: times are text in `DATE_FORMAT`, both ends are in; no partitions mean all."""

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
    """What may be the partitions that a line names, in its order.

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


def parser() -> Parser:
    """All flags of StateChangeLogMerger."""
    made = Parser("state_change_log_merger", PURPOSE, "")
    made.epilog = EPILOG.format(prog=made.prog)
    made.add_argument(
        "--logs", metavar="FILE1,FILE2", help="Comma separated list of state change logs or a regex for the log file "
        "names.",
    )  # fmt: skip
    made.add_argument("--logs-regex", metavar="REGEX", help="Regex to match the state change log files to be merged.")
    made.add_argument(
        "--partitions", metavar="0,1,2", help="Comma separated list of partition ids whose state change logs should "
        "be merged.",
    )  # fmt: skip
    made.add_argument("--topic", metavar="TOPIC", help="The topic whose state change logs should be merged.")
    made.add_argument(
        "--start-time", default=START_OF_TIME, metavar="TIME", help="The earliest timestamp of state change log "
        f"entries to be merged, as {DATE_FORMAT}.",
    )  # fmt: skip
    made.add_argument(
        "--end-time", default=END_OF_TIME, metavar="TIME", help="The latest timestamp of state change log entries to "
        "be merged.",
    )  # fmt: skip
    return made


def line_filter(given: argparse.Namespace) -> LineFilter:
    """What the flags want. UsageError in Kafka's words for what cannot be."""
    if given.partitions is not None and given.topic is None:
        raise UsageError('The option "[topic]" needs to be provided an argument when specifying partition ids')
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
    if (given.logs is None) == (given.logs_regex is None):
        raise UsageError('Provide arguments to exactly one of the two options "[logs]" or "[logs-regex]"')
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
    """Of one log, older files come first: at the same millisecond their lines are older."""
    name, _, number = str(file).rpartition(".")
    return (name, -int(number)) if number.isdecimal() else (str(file), 0)


def state_change_log_merger(arguments: Sequence[str] | None) -> int:
    """The tool without its terminal: raises what went wrong."""
    given = parser().parse(arguments)
    wanted = line_filter(given)
    open_logs = [file.open(encoding="utf-8", errors="backslashreplace") for file in log_files(given)]
    try:
        for line in merge(open_logs, wanted):
            print(line)
    finally:
        for log in open_logs:
            log.close()
    return DONE


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    return run(lambda: state_change_log_merger(arguments))


if __name__ == "__main__":
    sys.exit(main())
