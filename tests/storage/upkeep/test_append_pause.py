"""Back-pressure: when appends wait for upkeep, how long, and what counts as overdue."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import pytest

from stratalog.storage import cadence
from stratalog.storage.cadence import DAY_MS
from stratalog.storage.log.segments import LogSegment, empty_segment
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.append_pause import append_pause_ms, excess_files
from stratalog.storage.upkeep.chore import UpkeepLimits
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.storage.logs import FakeClock, Replicas, write

MIB = 1 << 20
LIMITS = UpkeepLimits(merge_files_min=16, merge_spread_files=0, slowdown_count=40, stop_count=140)


@pytest.mark.parametrize(
    ("overdue", "file_count", "expected"),
    [
        (-500, 1, 0),
        (0, 1, 0),
        (5_000, 1, 0),
        (5_001, 1, 1),
        (5_500, 1, 10),
        (9_999, 1, cadence.APPENDS_SLOWED.ms),
        (10_000, 1, cadence.APPENDS_STOPPED.ms),
        (1_000_000, 1, cadence.APPENDS_STOPPED.ms),
        (5_500, 3, 30),  # a follower's copy brings many files at once
        (5_500, 350, cadence.APPENDS_STOPPED.ms),
        (4_000, 350, 0),
        (10_000, 0, cadence.APPENDS_STOPPED.ms),
    ],
)
def test_the_pause_grows_with_what_is_overdue(overdue: int, file_count: int, expected: int) -> None:
    assert append_pause_ms(overdue, 5_000, 10_000, file_count) == expected


def test_equal_limits_stop_at_once() -> None:
    assert [append_pause_ms(overdue, 1_000, 1_000) for overdue in (999, 1_000, 1_001)] == [
        0,
        cadence.APPENDS_STOPPED.ms,
        cadence.APPENDS_STOPPED.ms,
    ]


@pytest.mark.parametrize(
    ("file_count", "size_bytes", "epochs", "merged_bytes_max", "expected"),
    [
        (0, 0, (), 32 * MIB, 0),
        (3, 10, (0,), 32 * MIB, 0),
        (4, 10, (0,), 32 * MIB, 1),
        (9, 10, (0, 4, 5), 32 * MIB, 0),
        (1_000, 64 * MIB, (0,), 32 * MIB, 989),
        (131, 1_024 * MIB, (0,), 32 * MIB, 0),  # a full segment of full and of half-full files
        (1_000, 64 * MIB, (0,), 0, 0),  # merging is off, so nothing is overdue
    ],
)
def test_files_that_merging_would_take_away(
    file_count: int, size_bytes: int, epochs: tuple[int, ...], merged_bytes_max: int, expected: int
) -> None:
    segment: LogSegment = replace(
        empty_segment(0), file_count=file_count, size_bytes=size_bytes, end_offset=file_count, epochs=epochs
    )
    assert excess_files(segment, merged_bytes_max) == expected


def test_files_that_are_not_merged_slow_appends_until_they_are() -> None:
    log = Replicas.new().leader()
    upkeep = Upkeep(log, LIMITS)
    assert upkeep.overdue_count <= 0, "nothing was written"
    seen = []
    for _ in range(3):
        write(log, *["a"] * 60)
        seen.append((upkeep.overdue_count, upkeep.append_pause_ms(1)))
    assert seen == [(57, 17), (117, 77), (177, cadence.APPENDS_STOPPED.ms)]
    while upkeep.step(1_000, log.log_end_offset, 0) is not None:
        pass
    assert (upkeep.overdue_count <= LIMITS.slowdown_count, upkeep.append_pause_ms(1)) == (True, 0)


def test_segments_that_are_settled_slow_nobody() -> None:
    """A log may have any number of segments; the files that merging leaves are no work for upkeep."""
    log = Replicas.new().leader(config=LogConfig.from_properties({"segment.bytes": "100", "retention.ms": "-1"}))
    write(log, *["a"] * 200)
    assert len(log.segments) >= 100
    assert Upkeep(log, LIMITS).append_pause_ms(1) == 0


def test_files_above_the_high_watermark_count_too() -> None:
    """They cannot be merged, but without a pause acks=1 would add them without limit."""
    log = Replicas.new().leader()
    upkeep = Upkeep(log, LIMITS)
    write(log, *["a"] * 200)
    assert upkeep.step(1_000, 0, 0) is None
    assert upkeep.append_pause_ms(1) == cadence.APPENDS_STOPPED.ms


def test_commits_without_a_checkpoint_are_overdue() -> None:
    log = Replicas.new().leader(config=LogConfig.from_properties({"index.interval.bytes": "0", "retention.ms": "-1"}))
    upkeep = Upkeep(log, replace(LIMITS, checkpoint_commits=100))
    write(log, *["a"] * 145)
    assert (upkeep.overdue_count, upkeep.append_pause_ms(1)) == (log.version - 100, log.version - 100 - 40)
    log.state.made_durable(log.table.checkpoint())
    assert upkeep.overdue_count <= 0


def test_clean_up_is_overdue_only_when_it_is_slower_than_the_commits() -> None:
    """A backlog from before the start slows no append; a clean-up that is slower than the commits does."""
    log = Replicas.new().leader(config=LogConfig.from_properties({"index.interval.bytes": "0", "retention.ms": "-1"}))
    limits = replace(LIMITS, checkpoint_commits=1 << 30, keep_commits=10, keep_ms=1_000)
    upkeep = Upkeep(log, limits)
    write(log, *["a"] * 1_300)
    log.state.made_durable(log.table.checkpoint())
    assert upkeep.step(0, log.log_end_offset, 0) is None
    cleaned = upkeep.step(DAY_MS, log.log_end_offset, 0)
    assert cleaned is not None
    assert (cleaned.work, cleaned.count) == ("clean log", 500)
    assert upkeep.overdue_count <= 0, "there is more to clean, but nothing was committed meanwhile"
    write(log, *["a"] * 600)
    assert upkeep.overdue_count == 100


def test_what_one_clean_up_leaves_over_counts_in_the_next() -> None:
    """Otherwise a clean-up that is always a little slower than the appends would let the log grow without limit."""
    log = Replicas.new().leader(config=LogConfig.from_properties({"index.interval.bytes": "0", "retention.ms": "-1"}))
    limits = replace(LIMITS, checkpoint_commits=1 << 30, keep_commits=10, keep_ms=1_000)
    upkeep = Upkeep(log, limits)
    write(log, *["a"] * 700)
    overdue = []
    assert upkeep.step(0, log.log_end_offset, 0) is None
    for day in (1, 2):
        log.state.made_durable(log.table.checkpoint())
        assert upkeep.step(day * DAY_MS, log.log_end_offset, 0) is not None
        write(log, *["a"] * 900)
        overdue.append(upkeep.overdue_count)
        while upkeep.step(day * DAY_MS + 1, log.log_end_offset, 0) is not None:
            pass
    assert overdue[0] == 400
    assert overdue[1] > 400


class SlowMachine(Executor):
    """An executor that needs so many ms for each piece of work."""

    def __init__(self, clock: FakeClock, piece_ms: int) -> None:
        self._clock, self._piece_ms = clock, piece_ms
        self._begun: list[tuple[int, Future[Any], Callable[..., Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._begun.append((self._clock.now_ms + self._piece_ms, future, fn))
        return future

    def go_on(self) -> None:
        while self._begun and self._begun[0][0] <= self._clock.now_ms:
            _, future, work = self._begun.pop(0)
            future.set_result(work())


@pytest.mark.parametrize(
    ("piece_ms", "live_files_max", "is_slowed"),
    [(1, 2 * 16, False), (100, 40 + 100, True), (500, 140, True), (10_000, 140 + 4 * 10, True)],
    ids=["upkeep keeps pace", "slower", "much slower", "all but still"],
)
def test_live_files_are_bounded_however_slow_upkeep_is(piece_ms: int, live_files_max: int, is_slowed: bool) -> None:
    """A commit each millisecond and its pause. Above stop_count there is one a second while a few pieces end."""
    replicas = Replicas.new()
    log, machine = replicas.leader(), SlowMachine(replicas.clock, piece_ms)
    upkeep = Upkeep(log, LIMITS, machine)
    live_files, pauses_ms = [], []
    for _ in range(2_000):
        pauses_ms.append(upkeep.append_pause_ms(1))
        replicas.clock.sleep_ms(1 + pauses_ms[-1])
        write(log, "a")
        machine.go_on()
        upkeep.step(replicas.clock.now_ms, log.log_end_offset, 0)
        live_files.append(len(log.files))
    assert (max(live_files[1_000:]) <= live_files_max, max(pauses_ms) > 0) == (True, is_slowed), max(live_files)
