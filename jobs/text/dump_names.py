"""What a name on dump-log's command line means: a log, a segment, one of its indexes, a data file. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_TABLE = r"(?P<root>.+)/(?P<table>[^/]+-\d+)"
_KAFKA = re.compile(_TABLE + r"/(?P<segment>\d{20})\.(?P<suffix>log|index|timeindex)")
_SEGMENT = re.compile(_TABLE + r"/segment=(?P<segment>\d{20})")
_FILE = re.compile(_TABLE + r"/(?P<path>segment=(?P<segment>\d{20})/[^/]+\.parquet)")
_PRODUCERS = re.compile(_TABLE + r"/_producers(?:/(?P<object>[0-9a-f]{16}\.json))?")
_LOG = re.compile(_TABLE)


class DumpKind(StrEnum):
    """What is shown of a log."""

    LOG = "log"
    INDEX = "index"
    TIME_INDEX = "timeindex"
    PRODUCERS = "snapshot"


@dataclass(frozen=True, slots=True)
class DumpName:
    """A name as given, and what it stands for: the table `table` below the root `root`, and of it …

    segment  … one segment; None: all
    path     … one object, below the table; None: all
    """

    name: str
    root: str
    table: str
    kind: DumpKind = DumpKind.LOG
    segment: int | None = None
    path: str | None = None


def dump_name(name: str) -> DumpName | None:
    """What a name stands for; None when it is none of these.

    `root/t-0` is a log, `root/t-0/segment=<20 digits>` or Kafka's `root/t-0/<20 digits>.log` a segment, with `.index`
    or `.timeindex` its index, `root/t-0/segment=…/….parquet` a data file, `root/t-0/_producers` the producers.

    >>> dump_name("/logs/nginx_access_log-1/00000000000003257573.index").segment
    3257573
    """
    text = name.rstrip("/")
    if not text.startswith("/") and "://" not in text:
        text = f"./{text}"
    if match := _KAFKA.fullmatch(text):
        return DumpName(name, match["root"], match["table"], DumpKind(match["suffix"]), int(match["segment"]))
    if match := _FILE.fullmatch(text):
        return DumpName(name, match["root"], match["table"], DumpKind.LOG, int(match["segment"]), match["path"])
    if match := _SEGMENT.fullmatch(text):
        return DumpName(name, match["root"], match["table"], DumpKind.LOG, int(match["segment"]))
    if match := _PRODUCERS.fullmatch(text):
        path = f"_producers/{match['object']}" if match["object"] else None
        return DumpName(name, match["root"], match["table"], DumpKind.PRODUCERS, path=path)
    if match := _LOG.fullmatch(text):
        return DumpName(name, match["root"], match["table"])
    return None
