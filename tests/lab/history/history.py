"""Events of clients, one a line: the histories that `tests/lab/history/checker.py` checks. Pure.

A line is a JSON array of an event's fields in their order; fields at the end may be missing. The order of lines is
the order of time: a client writes a line before it calls and one after the answer. Lines of several clients are in one
file, or in files that are merged by `time_ms`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields

from stratalog.storage.errors import CorruptMessageError

SEND = "send"
"""A value is about to be sent."""
ACK = "ack"
"""A send was acknowledged, at this offset."""
FAIL = "fail"
"""A send of unknown outcome: the record may be stored or not."""
ABORT = "abort"
"""A value was refused before it was sent, or (with `txn` alone) a transaction was aborted: it must never be read."""
COMMIT = "commit"
"""The transaction `txn` is about to be committed."""
POLL = "poll"
"""A record was read."""
SEEK = "seek"
"""A reader seeks an offset: its next poll need not follow the one before."""
HIGH_WATERMARK = "high-watermark"
"""An observer read a partition's high watermark: the event's `offset`."""
HOLDS = "holds"
"""The log `client` holds this partition from `offset` on. With such lines, only these partitions are checked."""
STORED = "stored"
"""A record in one replica's table, or in the log as a whole, at the end of the run."""

KINDS = (SEND, ACK, FAIL, ABORT, COMMIT, POLL, SEEK, HIGH_WATERMARK, HOLDS, STORED)
UNKNOWN = -1

Place = tuple[str, int]
"""Topic (empty: the only one) and partition."""


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One line. `time_ms` is the writer's monotonic clock, `value` the record's id: no two records have the same.

    epoch  the leader epoch, where it is known
    call   the number of the client's call, rising; all records of one poll have the same
    txn    the transaction of a send; empty: none
    """

    time_ms: int
    client: str
    kind: str
    partition: int = UNKNOWN
    offset: int = UNKNOWN
    epoch: int = UNKNOWN
    value: str = ""
    topic: str = ""
    call: int = UNKNOWN
    txn: str = ""

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def where(self) -> str:
        """`topic-0@17`; without a topic `0@17`."""
        name = f"{self.topic}-{self.partition}" if self.topic else str(self.partition)
        return f"{name}@{self.offset}"

    def to_line(self) -> str:
        return json.dumps(astuple(self), separators=(",", ":")) + "\n"

    @staticmethod
    def from_line(line: str) -> HistoryEvent:
        """CorruptMessageError for a line that is no event, naming it."""
        try:
            values = json.loads(line)
            event = HistoryEvent(*values)
        except (ValueError, TypeError) as reason:
            raise CorruptMessageError(f"not an event of a history: {line[:200]!r} ({reason})") from reason
        kinds = {"int": int, "str": str}
        wrong = [f.name for f in fields(HistoryEvent) if not isinstance(getattr(event, f.name), kinds[str(f.type)])]
        if wrong or event.kind not in KINDS:
            raise CorruptMessageError(f"not an event of a history: {line[:200]!r} ({', '.join(wrong) or event.kind})")
        return event


def parse_events(lines: Iterable[str]) -> Iterator[HistoryEvent]:
    """The events of lines with their ends; a last line without one was torn by a crash and is left out."""
    return (HistoryEvent.from_line(line) for line in lines if line.endswith("\n"))
