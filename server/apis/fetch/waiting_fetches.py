"""Fetches that wait, by partition and by deadline, and what news of a partition mean for each. I/O: none of its own.

News of a partition visits the fetches that wait for it, and reads for those alone whose `min_bytes` may be met. The
bytes that came are counted in the encoded tail; where it has not all of them, the log is read.
Source: Kafka's `DelayedOperationPurgatory`, `DelayedFetch.tryComplete`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from stratalog.server.apis.fetch.partition_read import PartitionRead
from stratalog.server.apis.fetch.sessions import FetchContext, FetchKey, WantedPartition
from stratalog.server.request.api import Call
from stratalog.server.view.marks import Watermarks
from stratalog.storage.records import TopicPartition

SPARE_ENTRIES = 64
"""Number of entries of fetches answered before their deadline that the heap may hold besides as many as wait."""


WAITS_TOGETHER = 16
"""A fetch waits at most one part of so many longer than it asks for."""


class Lead(NamedTuple):
    """By which leader's epoch a partition is read: another one ends the waiting."""

    topic_id: str
    leader_epoch: int


@dataclass(slots=True, eq=False)
class FetchRun:
    """A Fetch under way: the request, and what was read so far.

    sequence      of the view's newest change before the reads: later ones are to be looked at
    is_committed  it reads committed records only, so each read folds the log
    has_time      it may be answered later than at once
    leads         as of the beginning of each partition's read
    unread_bytes  of partitions with records that were not read, since `min_bytes` could not be met
    """

    call: Call
    context: FetchContext
    min_bytes: int
    max_bytes: int
    deadline_ms: int
    sequence: int
    is_committed: bool = False
    has_time: bool = True
    reads: Mapping[FetchKey, PartitionRead] = field(default_factory=dict)
    leads: dict[FetchKey, Lead] = field(default_factory=dict)
    unread_bytes: dict[FetchKey, int] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(read.size_bytes for read in self.reads.values())

    @property
    def may_wait(self) -> bool:
        return self.has_time and self.min_bytes > 0

    @property
    def is_enough(self) -> bool:
        """Whether the fetch is answered without more waiting."""
        return self.size_bytes >= self.min_bytes or any(read.is_urgent for read in self.reads.values())

    @property
    def places(self) -> list[TopicPartition]:
        """The partitions that were read."""
        return [read.topic_partition for read in self.reads.values() if read.topic_partition is not None]

    def concerns(self, moved: Iterable[TopicPartition]) -> list[WantedPartition]:
        """The fetch's partitions among those that moved."""
        among = set(moved)
        return [each for each in self.context.wanted if self.reads[each.key].topic_partition in among] if among else []

    @property
    def unread(self) -> list[WantedPartition]:
        """The partitions with records that were not read."""
        return [each for each in self.context.wanted if each.key in self.unread_bytes] if self.unread_bytes else []


def deadline_ms(now_ms: int, wait_ms: int) -> int:
    """When a fetch that waits so long is answered: up to a sixteenth later, so that many are answered together.

    Each answer by itself wakes a thread, which costs more than the answer.

    >>> deadline_ms(1_000_003, 500), deadline_ms(1_000_003, 10)
    (1000512, 1000013)
    """
    step_ms = 1 << (max(WAITS_TOGETHER, wait_ms) // WAITS_TOGETHER).bit_length() - 1
    return -(-(now_ms + max(0, wait_ms)) // step_ms) * step_ms


class PartitionChange:
    """What is known of one partition now: made once for all fetches that wait for it.

    lead      None: there is no such partition
    marks     None: its leader has not started
    readable  the bytes of the encoded tail from an offset up to another; None when it has not all of them
    """

    def __init__(self, lead: Lead | None, marks: Watermarks | None, readable: Callable[[int, int], int | None]) -> None:
        self._lead = lead
        self._marks = marks
        self._readable = readable
        self._by_offset: dict[int, int | None] = {}

    def ends(self, run: FetchRun, wanted: WantedPartition) -> bool:
        """Whether the fetch is to be answered whatever can be read: with an error, as a rule."""
        lead, marks = self._lead, self._marks
        if lead is None or marks is None or run.leads.get(wanted.key) != lead:
            return True
        return wanted.fetch_offset < marks.log_start_offset

    def readable_bytes(self, offset: int) -> int | None:
        """The bytes from `offset` up to the high watermark, as far as they are in memory; None: not all of them are, or
        some of the records were removed."""
        if self._marks is None or offset >= self._marks.high_watermark:
            return 0
        if offset not in self._by_offset:
            self._by_offset[offset] = self._readable(offset, self._marks.high_watermark)
        return self._by_offset[offset]


class Readiness(NamedTuple):
    """What news of partitions mean for a fetch.

    is_due       it is to be read again: an error, or `min_bytes` may be met
    from_memory  all that will be read is in memory
    """

    is_due: bool
    from_memory: bool


NOT_DUE = Readiness(False, True)


def readiness(
    run: FetchRun, wanted: Sequence[WantedPartition], change_of: Callable[[TopicPartition], PartitionChange]
) -> Readiness:
    """Whether a fetch is due after news of some of its partitions; else their new bytes are counted in the fetch.

    A fetch for 100 bytes that has 30 is not due when a batch of 60 is appended; it is when the next one of 10 is.
    """
    for each in wanted:
        named = run.reads[each.key].topic_partition
        if named is None:
            return Readiness(True, False)
        news = change_of(named)
        if news.ends(run, each):
            return Readiness(True, False)
        readable = news.readable_bytes(each.fetch_offset)
        if readable is None:
            return Readiness(True, False)
        if readable > run.reads[each.key].size_bytes:
            run.unread_bytes[each.key] = min(readable, each.max_bytes)
    if not run.unread_bytes:
        return NOT_DUE
    size_bytes = sum(run.unread_bytes.get(key, read.size_bytes) for key, read in run.reads.items())
    return Readiness(size_bytes >= run.min_bytes, not run.is_committed)


class WaitingFetches:
    """The fetches that wait. Not thread-safe: its owner has a lock."""

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, dict[FetchRun, list[WantedPartition]]] = {}
        self._entries: dict[FetchRun, int] = {}
        self._heap: list[tuple[int, int, FetchRun]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def partitions(self) -> list[TopicPartition]:
        """Those that fetches wait for."""
        return list(self._by_partition)

    def add(self, run: FetchRun) -> bool:
        """Let a fetch wait; True when its deadline is the next one."""
        self._count += 1
        self._entries[run] = self._count
        heappush(self._heap, (run.deadline_ms, self._count, run))
        for each in run.context.wanted:
            named = run.reads[each.key].topic_partition
            if named is not None:
                self._by_partition.setdefault(named, {}).setdefault(run, []).append(each)
        return self._heap[0][2] is run

    def remove(self, run: FetchRun) -> bool:
        """A fetch waits no longer; False when it did not wait."""
        if self._entries.pop(run, None) is None:
            return False
        for read in run.reads.values():
            if read.topic_partition is not None:
                self._remove_from(read.topic_partition, run)
        if len(self._heap) > 2 * len(self._entries) + SPARE_ENTRIES:
            self._heap = [entry for entry in self._heap if self._is_current(entry)]
            heapify(self._heap)
        return True

    def _remove_from(self, named: TopicPartition, run: FetchRun) -> None:
        runs = self._by_partition.get(named, {})
        runs.pop(run, None)
        if not runs:
            self._by_partition.pop(named, None)

    def waiting_for(self, partitions: Iterable[TopicPartition]) -> dict[FetchRun, list[WantedPartition]]:
        """The fetches that wait for any of these, each with those of them that it waits for."""
        found: dict[FetchRun, list[WantedPartition]] = {}
        for named in partitions:
            for run, wanted in self._by_partition.get(named, {}).items():
                found.setdefault(run, []).extend(wanted)
        return found

    def next_deadline_ms(self) -> int | None:
        """The deadline that comes first; None when no fetch waits."""
        while self._heap and not self._is_current(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_expired(self, now_ms: int) -> list[FetchRun]:
        """The fetches whose deadline has come, in its order; they wait no longer."""
        expired: list[FetchRun] = []
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            expired.append(heappop(self._heap)[2])
            self.remove(expired[-1])
        return expired

    def pop_all(self) -> list[FetchRun]:
        """All fetches; none waits any longer."""
        left = list(self._entries)
        self._by_partition, self._entries, self._heap = {}, {}, []
        return left

    def _is_current(self, entry: tuple[int, int, FetchRun]) -> bool:
        return self._entries.get(entry[2]) == entry[1]
