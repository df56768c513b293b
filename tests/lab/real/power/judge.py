"""The verdict: acknowledged and read records against the replicas after power cuts. Pure.

What a cut may lose is the records of a partition whose whole ISR was cut at once, from the offset on at which the first
leader epoch after the cut begins, and only without `flush.messages=1`. It may not lose an acknowledged record that any
replica of the ISR still had on its disk: the longest log leads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.lab.history.checker import Finding

Place = tuple[str, int]
"""Topic and partition."""
SHOWN = 3


class Ack(NamedTuple):
    """A record that was acknowledged with acks=all. Times are seconds of the monotonic clock."""

    place: Place
    offset: int
    value: str
    sent_s: float
    acked_s: float


class Poll(NamedTuple):
    """A record that a consumer received."""

    place: Place
    offset: int
    epoch: int
    value: str
    at_s: float


class Row(NamedTuple):
    """A record in a replica's table."""

    offset: int
    epoch: int
    value: str


class Loss(NamedTuple):
    """A cut of the whole ISR without flush: what was acknowledged before `until_s` may be gone from `offset` on.

    kept_end    the log end of the replica of the ISR that had the longest log after the cut
    """

    offset: int
    until_s: float
    kept_end: int


class _Known(NamedTuple):
    value: str
    at_s: float
    source: str


class Judge:
    """Collects findings. `losses` is asked for an excuse before anything counts as lost."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.lost_tail = 0
        """Acknowledged records that cuts took with right."""
        self._known: dict[Place, dict[int, _Known]] = defaultdict(dict)
        self._losses: dict[Place, list[Loss]] = defaultdict(list)
        self._by_epoch: dict[tuple[Place, int], dict[int, str]] = defaultdict(dict)
        self._leaders: dict[tuple[Place, int], int] = {}

    # -- what is known -----------------------------------------------------------------------------------

    def acknowledged(self, acks: Iterable[Ack]) -> None:
        for ack in acks:
            self._know(ack.place, ack.offset, _Known(ack.value, ack.acked_s, "acknowledged"))

    def polled(self, polls: Iterable[Poll]) -> None:
        for poll in polls:
            self._of_epoch(poll.place, Row(poll.offset, poll.epoch, poll.value), "a reader")
            self._know(poll.place, poll.offset, _Known(poll.value, poll.at_s, "read"))

    def lost(self, place: Place, loss: Loss) -> None:
        """A cut took the whole ISR of a partition that is not flushed."""
        self._losses[place].append(loss)

    def led(self, place: Place, epoch: int, leader: int) -> None:
        before = self._leaders.setdefault((place, epoch), leader)
        if before != leader:
            self._find("two-leaders", f"{place[0]}-{place[1]}: epoch {epoch} is led by {before} and by {leader}")

    def _know(self, place: Place, offset: int, known: _Known) -> None:
        before = self._known[place].get(offset)
        if before is None or before.value == known.value:
            self._known[place][offset] = before or known
        elif self._excuse(place, offset, before) is not None:
            self._count_lost(place, offset, before)
            self._known[place][offset] = known
        elif self._excuse(place, offset, known) is None:
            self._find(
                "two-values",
                f"{_at(place, offset)}: {before.value} was {before.source}, then {known.value} was {known.source}",
            )

    # -- replicas ----------------------------------------------------------------------------------------

    def check(self, place: Place, replicas: Mapping[str, Sequence[Row]]) -> None:
        """Compare the in-sync replicas, by name, with what is known; their rows are by offset, from 0 on.

        The replicas were read after all that is known happened.
        """
        known = self._known[place]
        self._forget_lost(place, replicas)
        end = max(known, default=-1) + 1
        first: tuple[str, Sequence[Row]] | None = None
        for name, rows in replicas.items():
            self._check_rows(place, name, rows)
            values = {row.offset: row.value for row in rows}
            wrong = [(o, k) for o, k in known.items() if values.get(o) != k.value]
            for offset, wanted in sorted(wrong)[:SHOWN]:
                found = values.get(offset, f"nothing (it ends at {rows[-1].offset + 1 if rows else 0})")
                self._find(
                    "lost-write",
                    f"{_at(place, offset)}: {wanted.value} was {wanted.source}, {name} has {found};"
                    f" {len(wrong)} such records",
                )
            committed = [row for row in rows if row.offset < end]
            if first is None:
                first = name, committed
            elif committed != first[1]:
                differing = next((p for p in zip(first[1], committed, strict=False) if p[0] != p[1]), "their lengths")
                self._find("replicas-differ", f"{place[0]}-{place[1]}: {first[0]} and {name} differ: {differing}")

    def _check_rows(self, place: Place, name: str, rows: Sequence[Row]) -> None:
        if rows and rows[0].offset != 0:
            self._find("hole", f"{place[0]}-{place[1]} on {name} begins at {rows[0].offset}")
        for before, after in pairwise(rows):
            if after.offset != before.offset + 1:
                self._find("hole", f"{_at(place, before.offset)} on {name}: {after.offset} follows")
            if after.epoch < before.epoch:
                epochs = f"{before.epoch} then {after.epoch}"
                self._find("epoch-goes-back", f"{_at(place, after.offset)} on {name}: {epochs}")
        seen: dict[str, int] = {}
        for row in rows:
            if row.value in seen:
                self._find("duplicate", f"{row.value} is at {seen[row.value]} and {row.offset} of {place} on {name}")
            seen[row.value] = row.offset
            self._of_epoch(place, row, name)

    def _of_epoch(self, place: Place, row: Row, source: str) -> None:
        before = self._by_epoch[place, row.epoch].setdefault(row.offset, row.value)
        if before != row.value:
            self._find(
                "epoch-given-twice",
                f"{_at(place, row.offset)}, epoch {row.epoch}: {before}, and {row.value} on {source}",
            )

    def _forget_lost(self, place: Place, replicas: Mapping[str, Sequence[Row]]) -> None:
        """Records that a cut could take, and that no replica has any more."""
        values = [{row.offset: row.value for row in rows} for rows in replicas.values()]
        for offset, known in list(self._known[place].items()):
            if any(found.get(offset) == known.value for found in values):
                continue
            if self._excuse(place, offset, known) is not None:
                self._count_lost(place, offset, known)
                del self._known[place][offset]

    def _excuse(self, place: Place, offset: int, known: _Known) -> Loss | None:
        return next((x for x in self._losses[place] if offset >= x.offset and known.at_s <= x.until_s), None)

    def _count_lost(self, place: Place, offset: int, known: _Known) -> None:
        loss = self._excuse(place, offset, known)
        if known.source == "acknowledged":
            self.lost_tail += 1
            if loss is not None and offset < loss.kept_end:
                self._find(
                    "kept-and-lost",
                    f"{_at(place, offset)}: {known.value} was acknowledged; after the cut a replica's log reached "
                    f"{loss.kept_end}, but another one led",
                )

    def _find(self, rule: str, text: str) -> None:
        finding = Finding(rule, text)
        if finding not in self.findings:
            self.findings.append(finding)


def _at(place: Place, offset: int) -> str:
    return f"{place[0]}-{place[1]}@{offset}"
