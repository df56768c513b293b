"""Histories of real runs as JSON lines, and the checker that reads them (DESIGN §10, §11).

Who takes part writes what it did and saw, one event a line, before and after each call. The checker is pure:
events in, findings out. An event's `value` is the record's id, `<key>:<number>` with numbers rising per key.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise
from pathlib import Path

SEND, ACK, FAIL, POLL = "send", "ack", "fail", "poll"
HIGH_WATERMARK = "high-watermark"
STORED = "stored"
"""A record as it lies in one replica's table, or in the log as a whole, when the run is over."""

UNKNOWN = -1
SHOWN_FINDINGS = 20


@dataclass(frozen=True, slots=True)
class Event:
    """One line. `time_ms` is the writer's monotonic clock; `offset` of a high watermark is the watermark."""

    time_ms: int
    client: str
    kind: str
    partition: int = UNKNOWN
    offset: int = UNKNOWN
    epoch: int = UNKNOWN
    value: str = ""

    def to_line(self) -> str:
        return json.dumps(astuple(self), separators=(",", ":")) + "\n"

    @staticmethod
    def from_line(line: str) -> Event:
        return Event(*json.loads(line))


class History:
    """A file that any number of threads and processes add to. A line is one write: a SIGKILL tears none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._lock = threading.Lock()
        self.counts: dict[str, int] = defaultdict(int)

    def add(
        self,
        client: str,
        kind: str,
        partition: int = UNKNOWN,
        offset: int = UNKNOWN,
        epoch: int = UNKNOWN,
        value: str = "",
    ) -> None:
        event = Event(time.monotonic_ns() // 1_000_000, client, kind, partition, offset, epoch, value)
        os.write(self._file, event.to_line().encode())
        with self._lock:
            self.counts[kind] += 1

    def close(self) -> None:
        os.close(self._file)

    def events(self) -> list[Event]:
        return read_events(self.path)


def read_events(path: Path) -> list[Event]:
    """All whole lines; a file that is not there is an empty history."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [Event.from_line(line) for line in lines if line.endswith("\n")]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a history."""

    rule: str
    text: str


def check(events: Sequence[Event]) -> list[Finding]:
    """Everything that a history must not show; an empty list is a clean run."""
    return [Finding(name, text) for name, rule in RULES.items() for text in rule(events)]


def assert_clean(events: Sequence[Event]) -> None:
    findings = check(events)
    shown = "\n".join(f"{finding.rule}: {finding.text}" for finding in findings[:SHOWN_FINDINGS])
    assert not findings, f"{len(findings)} findings\n{shown}"


def _placed(events: Iterable[Event]) -> Iterator[Event]:
    """Events that say which value is at which offset."""
    return (e for e in events if e.kind in (ACK, POLL, STORED) and e.offset != UNKNOWN)


def lost(events: Sequence[Event]) -> Iterator[str]:
    """An acknowledged record is not at its offset in every log that was read in the end (`stored`)."""
    contents: dict[str, dict[tuple[int, int], str]] = defaultdict(dict)
    for event in events:
        if event.kind == STORED:
            contents[event.client][event.partition, event.offset] = event.value
    for ack in (e for e in events if e.kind == ACK):
        for log, content in contents.items():
            found = content.get((ack.partition, ack.offset))
            if found != ack.value:
                yield f"{ack.value} was acknowledged at {ack.partition}@{ack.offset}, {log} has {found!r} there"


def two_values(events: Sequence[Event]) -> Iterator[str]:
    """One offset, two values: an acknowledgement, a poll and a replica disagree."""
    known: dict[tuple[int, int], Event] = {}
    for event in _placed(events):
        first = known.setdefault((event.partition, event.offset), event)
        if first.value != event.value:
            yield (
                f"{event.partition}@{event.offset}: {first.value} ({first.kind} of {first.client}), "
                f"{event.value} ({event.kind} of {event.client})"
            )


def duplicated(events: Sequence[Event]) -> Iterator[str]:
    """One value at two offsets."""
    known: dict[str, tuple[int, int]] = {}
    for event in _placed(events):
        place = (event.partition, event.offset)
        first = known.setdefault(event.value, place)
        if first != place:
            yield f"{event.value} at {first[0]}@{first[1]} and at {place[0]}@{place[1]}"


def invented(events: Sequence[Event]) -> Iterator[str]:
    """A value that nobody sent."""
    sent = {event.value for event in events if event.kind == SEND}
    for value in sorted({event.value for event in _placed(events)} - sent):
        yield f"{value} was never sent"


def out_of_order(events: Sequence[Event]) -> Iterator[str]:
    """Records of one key are not in the order in which they were sent."""
    places = {event.value: (event.partition, event.offset) for event in _placed(events)}
    by_key: dict[str, list[tuple[tuple[int, int], int]]] = defaultdict(list)
    for value, place in places.items():
        key, number = value.rsplit(":", 1)
        by_key[key].append((place, int(number)))
    for key, found in by_key.items():
        if len({partition for (partition, _), _ in found}) > 1:
            yield f"key {key} is in several partitions"
        numbers = [number for _, number in sorted(found)]
        for before, after in pairwise(numbers):
            if after <= before:
                yield f"key {key}: {after} stands behind {before}"


def poll_not_monotonic(events: Sequence[Event]) -> Iterator[str]:
    """A consumer got an offset twice, or an earlier one later, or one was left out."""
    last: dict[tuple[str, int], int] = {}
    for event in (e for e in events if e.kind == POLL):
        key = (event.client, event.partition)
        if key in last and event.offset != last[key] + 1:
            yield f"{event.client} polled {event.partition}@{event.offset} after {last[key]}"
        last[key] = event.offset


def high_watermark_went_back(events: Sequence[Event]) -> Iterator[str]:
    """An observer saw a partition's high watermark go down, within an epoch or over several."""
    last: dict[tuple[str, int], Event] = {}
    for event in (e for e in events if e.kind == HIGH_WATERMARK):
        before = last.get((event.client, event.partition))
        if before is not None and event.offset < before.offset:
            yield (
                f"{event.client} saw {event.partition}: {event.offset} in epoch {event.epoch} "
                f"after {before.offset} in epoch {before.epoch}"
            )
        last[event.client, event.partition] = event


def beyond_high_watermark(events: Sequence[Event]) -> Iterator[str]:
    """A record was acknowledged above every high watermark that was ever seen; for runs that end quietly."""
    highest: dict[int, int] = defaultdict(int)
    for event in events:
        if event.kind == HIGH_WATERMARK:
            highest[event.partition] = max(highest[event.partition], event.offset)
    for ack in (e for e in events if e.kind == ACK and e.partition in highest):
        if ack.offset >= highest[ack.partition]:
            place, end = f"{ack.partition}@{ack.offset}", highest[ack.partition]
            yield f"{ack.value} was acknowledged at {place}, the watermark ended at {end}"


RULES: dict[str, Callable[[Sequence[Event]], Iterator[str]]] = {
    "lost": lost,
    "two values": two_values,
    "duplicated": duplicated,
    "invented": invented,
    "out of order": out_of_order,
    "poll not monotonic": poll_not_monotonic,
    "high watermark went back": high_watermark_went_back,
    "beyond high watermark": beyond_high_watermark,
}
