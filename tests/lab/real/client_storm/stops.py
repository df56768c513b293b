"""How long clients stood still: times between two events of one partition. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.lab.real.harness.history import ACK, POLL, HistoryEvent

PRODUCERS, COPIERS = "producers", "copiers"
GROUPS = ("group-classic", "group-consumer")

Moments = dict[tuple[str, int], list[float]]
"""Milliseconds of the monotonic clock at which a kind of clients got on in a partition."""


class Stop(NamedTuple):
    """A time in which a kind of clients did not get on in one partition; `begun_s`: since the storm's begin."""

    seconds: float
    begun_s: float
    who: str
    partition: int

    def __str__(self) -> str:
        return f"{self.who}, partition {self.partition}: {self.seconds} s from {self.begun_s} s on"


def group_of(client: str) -> str:
    """The group of a reader, by its name."""
    return client.rpartition("-")[0]


def moments_of(events: Iterable[HistoryEvent], copies: Iterable[tuple[int, float]]) -> Moments:
    """Producers get on with an acknowledgement, groups with a poll, copiers with a copy that was committed.

    copies  partition and time of each committed copy
    """
    found: Moments = defaultdict(list)
    for each in events:
        if each.kind == ACK:
            found[PRODUCERS, each.partition].append(each.time_ms)
        elif each.kind == POLL:
            found[group_of(each.client), each.partition].append(each.time_ms)
    for partition, time_ms in copies:
        found[COPIERS, partition].append(time_ms)
    return found


def stops_of(moments: Mapping[tuple[str, int], Sequence[float]], begun_ms: float, ended_ms: float) -> list[Stop]:
    """All times between two moments of one kind and partition between begin and end, the longest first."""
    found = [
        Stop(round((after - before) / 1_000, 1), round((before - begun_ms) / 1_000, 1), who, partition)
        for (who, partition), times in moments.items()
        for before, after in pairwise(
            [begun_ms, *sorted(each for each in times if begun_ms <= each <= ended_ms), ended_ms]
        )
    ]
    return sorted(found, reverse=True)


def unread(events: Sequence[HistoryEvent]) -> dict[str, int]:
    """Acknowledged records that no member of a group read, by group."""
    acknowledged = {each.value for each in events if each.kind == ACK}
    polled: dict[str, set[str]] = defaultdict(set)
    for each in events:
        if each.kind == POLL:
            polled[group_of(each.client)].add(each.value)
    return {group: len(acknowledged - polled[group]) for group in GROUPS}
