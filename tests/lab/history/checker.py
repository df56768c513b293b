"""The rules of histories: no lost, duplicate, aborted, skipped and reordered records. Pure.

Names and meanings are those of Jepsen's workload for Kafka (`jepsen.tests.kafka`); `int-` means inside one call or
transaction. What Kafka allows is no finding: gaps between offsets, another offset after a seek, a send of unknown
outcome that is stored or not. Cycles between transactions are not searched. Compaction removes records: they show as
lost writes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.lab.history.history import (
    ABORT,
    ACK,
    COMMIT,
    HIGH_WATERMARK,
    HOLDS,
    POLL,
    SEEK,
    SEND,
    STORED,
    UNKNOWN,
    HistoryEvent,
    Place,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation of a rule."""

    rule: str
    text: str


def check(events: Sequence[HistoryEvent], rules: Iterable[str] | None = None) -> list[Finding]:
    """The violations of all rules, or of the named ones; none in a clean run."""
    wanted = set(RULES) if rules is None else set(rules)
    return [Finding(name, text) for name, rule in RULES.items() if name in wanted for text in rule(events)]


def unseen(events: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """Acknowledged sends at or above the last polled offset of their partitions: no finding, since readers may be slow.

    Empty when there are no polls.
    """
    polled = _ends(e for e in events if e.kind == POLL)
    return [e for e in events if e.kind == ACK and polled and e.offset >= polled.get(e.place, 0)]


def _ends(events: Iterable[HistoryEvent]) -> dict[Place, int]:
    """One past the highest offset of each partition."""
    ends: dict[Place, int] = {}
    for event in events:
        ends[event.place] = max(ends.get(event.place, 0), event.offset + 1)
    return ends


def _placed(events: Iterable[HistoryEvent]) -> Iterator[HistoryEvent]:
    """Events with a value and its offset."""
    return (e for e in events if e.kind in (ACK, POLL, STORED) and e.offset != UNKNOWN)


def _aborted(events: Sequence[HistoryEvent]) -> set[str]:
    """Values that must never be read."""
    transactions = {e.txn for e in events if e.kind == ABORT and e.txn}
    values = {e.value for e in events if e.kind == SEND and e.txn in transactions and e.txn}
    return values | {e.value for e in events if e.kind == ABORT and e.value}


@dataclass(slots=True)
class _Run:
    """The polls of one reader of one partition between two seeks; `start`: the sought offset, if known."""

    client: str
    start: int
    polls: list[HistoryEvent] = field(default_factory=list)

    @property
    def first_offset(self) -> int:
        return self.polls[0].offset if self.start == UNKNOWN else self.start

    @property
    def last_offset(self) -> int:
        return max(poll.offset for poll in self.polls)


def _runs(events: Sequence[HistoryEvent]) -> dict[Place, list[_Run]]:
    """Runs with polls, by partition."""
    found: dict[Place, list[_Run]] = defaultdict(list)
    open_runs: dict[tuple[str, Place], _Run] = {}
    for event in events:
        if event.kind not in (POLL, SEEK):
            continue
        key = (event.client, event.place)
        if event.kind == SEEK or key not in open_runs:
            open_runs[key] = _Run(event.client, event.offset if event.kind == SEEK else UNKNOWN)
        if event.kind == POLL:
            run = open_runs[key]
            if not run.polls:
                found[event.place].append(run)
            run.polls.append(event)
    return found


# -- the rules ---------------------------------------------------------------------------------------------------


def lost_write(events: Sequence[HistoryEvent]) -> Iterator[str]:
    """An acknowledged record is not at its offset in a log that was read at the end, or readers read past its offset
    and none of them got it."""
    yield from _lost_from_logs(events)
    aborted, polled = _aborted(events), {event.value for event in events if event.kind == POLL}
    spans = {
        place: [(run.first_offset, run.last_offset, run.client) for run in runs]
        for place, runs in _runs(events).items()
    }
    for ack in (e for e in events if e.kind == ACK and e.value not in polled and e.value not in aborted):
        past = [client for first, last, client in spans.get(ack.place, ()) if first <= ack.offset <= last]
        if past:
            yield f"{ack.value} was acknowledged at {ack.where}; {', '.join(sorted(set(past)))} read past it without it"


def _lost_from_logs(events: Sequence[HistoryEvent]) -> Iterator[str]:
    contents: dict[str, dict[tuple[Place, int], str]] = defaultdict(dict)
    held: dict[str, dict[Place, int]] = defaultdict(dict)
    for event in events:
        if event.kind == STORED:
            contents[event.client][event.place, event.offset] = event.value
        elif event.kind == HOLDS:
            held[event.client][event.place] = event.offset
    for ack in (e for e in events if e.kind == ACK and e.offset != UNKNOWN):
        for log in sorted(contents.keys() | held.keys()):
            if log in held and ack.offset < held[log].get(ack.place, ack.offset + 1):
                continue
            found = contents[log].get((ack.place, ack.offset))
            if found != ack.value:
                yield f"{ack.value} was acknowledged at {ack.where}, {log} has {found!r} there"


def inconsistent_offsets(events: Sequence[HistoryEvent]) -> Iterator[str]:
    """One offset, two values: acknowledgements, polls and replicas disagree."""
    known: dict[tuple[Place, int], HistoryEvent] = {}
    for event in _placed(events):
        first = known.setdefault((event.place, event.offset), event)
        if first.value != event.value:
            yield (
                f"{event.where}: {first.value} ({first.kind} of {first.client}), "
                f"{event.value} ({event.kind} of {event.client})"
            )


def duplicate(events: Sequence[HistoryEvent]) -> Iterator[str]:
    """One value at two offsets."""
    known: dict[str, HistoryEvent] = {}
    for event in _placed(events):
        first = known.setdefault(event.value, event)
        if (first.place, first.offset) != (event.place, event.offset):
            yield f"{event.value} at {first.where} and at {event.where}"


def unsent_read(events: Sequence[HistoryEvent]) -> Iterator[str]:
    """A value that was never sent."""
    sent = {event.value for event in events if event.kind == SEND}
    for value in sorted({event.value for event in _placed(events)} - sent):
        yield f"{value} was never sent"


def aborted_read(events: Sequence[HistoryEvent]) -> Iterator[str]:
    """A reader got a value that was refused, or whose transaction was aborted (G1a)."""
    aborted = _aborted(events)
    for poll in (e for e in events if e.kind == POLL and e.value in aborted):
        yield f"{poll.client} polled {poll.value} at {poll.where}, which was aborted"


def precommitted_read(events: Sequence[HistoryEvent]) -> Iterator[str]:
    """A reader got a value before its transaction was asked to commit."""
    commits: dict[str, int] = {}
    for number, event in enumerate(events):
        if event.kind == COMMIT:
            commits.setdefault(event.txn, number)
    txns = {event.value: event.txn for event in events if event.kind == SEND and event.txn}
    aborted = _aborted(events)
    for number, poll in enumerate(events):
        if poll.kind != POLL or poll.value not in txns or poll.value in aborted:
            continue
        if number < commits.get(txns[poll.value], len(events)):
            yield f"{poll.client} polled {poll.value} at {poll.where} before {txns[poll.value]} was committed"


def _poll_skips(events: Sequence[HistoryEvent], inside: bool) -> Iterator[str]:
    aborted = _aborted(events)
    known: dict[Place, list[int]] = defaultdict(list)
    for place, offset in sorted({(e.place, e.offset) for e in _placed(events) if e.value not in aborted}):
        known[place].append(offset)
    for place, runs in _runs(events).items():
        for run in runs:
            if run.start != UNKNOWN and not inside:
                yield from _skipped(known[place], run.start - 1, run.polls[0])
            for before, after in pairwise(run.polls):
                if _is_inside(before, after) == inside:
                    yield from _skipped(known[place], before.offset, after)


def _skipped(known: Sequence[int], last_offset: int, poll: HistoryEvent) -> Iterator[str]:
    between = known[bisect_left(known, last_offset + 1) : bisect_left(known, poll.offset)]
    if between:
        went = f"{poll.client} polled {poll.where} after {last_offset}"
        yield f"{went}, {len(between)} records between are skipped, the first at {between[0]}"


def _is_inside(before: HistoryEvent, after: HistoryEvent) -> bool:
    return before.call == after.call != UNKNOWN


def poll_skip(events: Sequence[HistoryEvent]) -> Iterator[str]:
    """Between two polls a reader skipped records that are known to be stored."""
    return _poll_skips(events, inside=False)


def int_poll_skip(events: Sequence[HistoryEvent]) -> Iterator[str]:
    """The same inside one poll."""
    return _poll_skips(events, inside=True)


def _backward_polls(events: Sequence[HistoryEvent], inside: bool) -> Iterator[str]:
    for runs in _runs(events).values():
        for run in runs:
            for before, after in pairwise(run.polls):
                if after.offset <= before.offset and _is_inside(before, after) == inside:
                    yield f"{run.client} polled {after.where} after {before.offset}"


def nonmonotonic_poll(events: Sequence[HistoryEvent]) -> Iterator[str]:
    """A reader got an offset again, or an earlier one later, without a seek."""
    return _backward_polls(events, inside=False)


def int_nonmonotonic_poll(events: Sequence[HistoryEvent]) -> Iterator[str]:
    """The same inside one poll."""
    return _backward_polls(events, inside=True)


def _backward_sends(events: Sequence[HistoryEvent], inside: bool) -> Iterator[str]:
    txns = {event.value: event.txn for event in events if event.kind == SEND}
    acks: dict[tuple[str, Place], list[HistoryEvent]] = defaultdict(list)
    for ack in (e for e in events if e.kind == ACK and e.offset != UNKNOWN and e.call != UNKNOWN):
        acks[ack.client, ack.place].append(ack)
    for found in acks.values():
        for before, after in pairwise(sorted(found, key=lambda ack: ack.call)):
            is_inside = bool(txns.get(before.value)) and txns.get(before.value) == txns.get(after.value)
            if after.offset <= before.offset and is_inside == inside:
                sent = f"{after.client} sent {before.value}, then {after.value}"
                yield f"{sent}: they are at {before.where} and {after.where}"


def nonmonotonic_send(events: Sequence[HistoryEvent]) -> Iterator[str]:
    """A producer's later send to a partition has an earlier offset. Legal only without idempotence."""
    return _backward_sends(events, inside=False)


def int_nonmonotonic_send(events: Sequence[HistoryEvent]) -> Iterator[str]:
    """The same inside one transaction."""
    return _backward_sends(events, inside=True)


def out_of_order(events: Sequence[HistoryEvent]) -> Iterator[str]:
    """Values named `<key>:<number>` are not in the order of their numbers, or those of a key in several partitions."""
    by_key: dict[str, list[tuple[Place, int, int]]] = defaultdict(list)
    for value, (place, offset) in {e.value: (e.place, e.offset) for e in _placed(events)}.items():
        key, _, number = value.rpartition(":")
        if key and number.isdecimal():
            by_key[key].append((place, offset, int(number)))
    for key, found in by_key.items():
        if len({place for place, _, _ in found}) > 1:
            yield f"key {key} is in several partitions"
        for (_, _, before), (_, _, after) in pairwise(sorted(found)):
            if after <= before:
                yield f"key {key}: {after} stands behind {before}"


def high_watermark_went_back(events: Sequence[HistoryEvent]) -> Iterator[str]:
    """An observer read a lower high watermark of a partition than before, within an epoch or over several."""
    last: dict[tuple[str, Place], HistoryEvent] = {}
    for event in (e for e in events if e.kind == HIGH_WATERMARK):
        before = last.get((event.client, event.place))
        if before is not None and event.offset < before.offset:
            yield (
                f"{event.client} saw {event.where} in epoch {event.epoch} after {before.offset} in epoch {before.epoch}"
            )
        last[event.client, event.place] = event


def beyond_high_watermark(events: Sequence[HistoryEvent]) -> Iterator[str]:
    """A record was acknowledged above every high watermark that was read; for runs that end without load."""
    highest: dict[Place, int] = {}
    for event in (e for e in events if e.kind == HIGH_WATERMARK):
        highest[event.place] = max(highest.get(event.place, 0), event.offset)
    for ack in (e for e in events if e.kind == ACK and e.place in highest):
        if ack.offset >= highest[ack.place]:
            yield f"{ack.value} was acknowledged at {ack.where}, the watermark ended at {highest[ack.place]}"


RULES: dict[str, Callable[[Sequence[HistoryEvent]], Iterator[str]]] = {
    "lost-write": lost_write,
    "inconsistent-offsets": inconsistent_offsets,
    "duplicate": duplicate,
    "unsent-read": unsent_read,
    "aborted-read": aborted_read,
    "precommitted-read": precommitted_read,
    "poll-skip": poll_skip,
    "int-poll-skip": int_poll_skip,
    "nonmonotonic-poll": nonmonotonic_poll,
    "int-nonmonotonic-poll": int_nonmonotonic_poll,
    "nonmonotonic-send": nonmonotonic_send,
    "int-nonmonotonic-send": int_nonmonotonic_send,
    "out-of-order": out_of_order,
    "high-watermark-went-back": high_watermark_went_back,
    "beyond-high-watermark": beyond_high_watermark,
}
