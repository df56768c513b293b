"""The demo's input: lines of a web server log in Apache's combined format. Pure, but for `read_lines`.

A line is `client ident user [17/May/2015:10:05:03 +0000] "GET /x HTTP/1.1" 200 203023 "referrer" "agent"`.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

TOPIC = "access-log"
BROKERS = 3
"""Each has a replica of every partition of the topic."""

ACCESS_LOG = Path(__file__).with_name("data") / "access.log.gz"

TIME_PATTERN = r"^\S+ \S+ \S+ \[([^\]]+)\]"
"""Group 1 is the time; Java's and Python's regular expressions read it alike."""

STATUS_PATTERN = r'^\S+ \S+ \S+ \[[^\]]+\] "(?:[^"\\]|\\.)*" (\d{3}) '
"""Group 1 is the status code."""

SPARK_TIME_FORMAT = "dd/MMM/yyyy:HH:mm:ss Z"
_TIME = re.compile(TIME_PATTERN)
_STATUS = re.compile(STATUS_PATTERN)


class Hit(NamedTuple):
    """What the demo counts by: the minute of the hit (UTC offset as in the line) and the status answered."""

    minute: datetime
    status: int


def client_of(line: str) -> str:
    """The client's address, the key of the record. ValueError when the line has none."""
    client, separator, _ = line.partition(" ")
    if not (client and separator):
        raise ValueError(f"not a line of an access log: {line[:80]!r}")
    return client


def hit_of(line: str) -> Hit:
    """The line's minute and status. ValueError when it is not in the combined format."""
    time, status = _TIME.match(line), _STATUS.match(line)
    if time is None or status is None:
        raise ValueError(f"not a line of an access log: {line[:80]!r}")
    at = datetime.strptime(time[1], "%d/%b/%Y:%H:%M:%S %z")
    return Hit(at.replace(second=0), int(status[1]))


def count_hits(lines: Iterable[str]) -> Counter[Hit]:
    """Hits by minute and status."""
    return Counter(hit_of(line) for line in lines)


def chunks(lines: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """The lines in order, `size` at a time; the last chunk may be smaller."""
    return (lines[first : first + size] for first in range(0, len(lines), size))


def read_lines(path: Path = ACCESS_LOG) -> list[str]:
    """All lines of the compressed log, without their ends."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return file.read().removesuffix("\n").split("\n")
