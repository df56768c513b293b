from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from stratalog.storage.errors import OffsetOutOfRangeError, PolicyViolationError, StratalogError
from stratalog.storage.log.segments import LogSegment
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.retention_rules import ExpiredSegments, expired_segments, offset_to_delete_before

GIB = 1 << 30
NEVER = {"retention.ms": "-1", "retention.bytes": "-1"}
DAY_MS = 86_400_000


def segment(base: int, end: int, size_bytes: int = 10, newest_ms: int | None = None) -> LogSegment:
    return LogSegment(base, end, size_bytes, 1, end - base, newest_ms, newest_ms, (0,))


def segments(*sizes: int, newest_ms: Sequence[int | None] = ()) -> list[LogSegment]:
    """Segments of ten offsets each, with these sizes and newest timestamps."""
    times = newest_ms or [None] * len(sizes)
    return [segment(10 * i, 10 * i + 10, size, times[i]) for i, size in enumerate(sizes)]


def expired(
    log: list[LogSegment],
    *,
    log_start: int = 0,
    high_watermark: int | None = None,
    now_ms: int = 0,
    written_ms: Mapping[int, int] | None = None,
    **configs: str,
) -> ExpiredSegments | None:
    end = log[-1].end_offset if log else 0
    config = LogConfig.from_properties({**NEVER, **{k.replace("_", "."): v for k, v in configs.items()}})
    marks = log_start, end, end if high_watermark is None else high_watermark
    return expired_segments(log, *marks, now_ms, config, written_ms or {})


NGINX_LOG = [
    segment(0, 3_257_573),
    segment(3_257_573, 6_506_251),
    segment(6_506_251, 9_751_854),
    segment(9_751_854, 10**7),
]
"""A log of four segments."""


@pytest.mark.parametrize(
    ("log_start", "gone"),
    [
        (0, None),
        (3_257_572, None),
        (3_257_573, ExpiredSegments(1, 3_257_573)),
        (6_506_250, ExpiredSegments(1, 3_257_573)),
        (7_421_048, ExpiredSegments(2, 6_506_251)),
        (9_751_854, ExpiredSegments(3, 9_751_854)),
        (10**7, ExpiredSegments(3, 9_751_854)),
    ],
)
@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
def test_segments_below_the_log_start_go_whatever_the_policy(log_start, gone, policy):
    """A segment whose next one begins at or below the log start; so the active segment stays."""
    assert expired(NGINX_LOG, log_start=log_start, cleanup_policy=policy) == gone


@pytest.mark.parametrize(
    ("retention_bytes", "count"),
    [(-1, 0), (100, 0), (50, 0), (41, 0), (40, 1), (31, 1), (30, 2), (25, 2), (20, 3), (10, 4), (1, 4), (0, 5)],
)
def test_a_log_shrinks_by_size_but_not_below_its_limit(retention_bytes, count):
    """diff = total - limit; a segment expires while diff - its size >= 0 (`deleteRetentionSizeBreachedSegments`)."""
    gone = expired(segments(10, 10, 10, 10, 10), retention_bytes=str(retention_bytes))
    assert gone == (ExpiredSegments(count, 10 * count) if count else None)


@pytest.mark.parametrize(
    ("sizes", "retention_bytes", "count"),
    [
        ((GIB, GIB, GIB // 2), GIB, 1),
        ((GIB, GIB, GIB // 2), GIB + GIB // 2, 1),
        ((GIB, GIB, GIB // 2), GIB + GIB // 2 + 1, 0),
        ((3, 20, 3), 10, 1),
        ((20, 3, 3), 10, 0),
        ((), 0, 0),
    ],
)
def test_size_counts_the_whole_log_and_stops_at_the_first_segment_that_is_needed(sizes, retention_bytes, count):
    gone = expired(segments(*sizes), retention_bytes=str(retention_bytes))
    assert (gone.count if gone else 0) == count


@pytest.mark.parametrize(
    ("newest_ms", "now_ms", "count"),
    [
        ((100, 200, 300), 1_100, 0),
        ((100, 200, 300), 1_101, 1),
        ((100, 200, 300), 1_250, 2),
        ((100, 200, 300), 1_301, 3),
        ((300, 100, 200), 1_250, 0),
        ((100, 5_000, 200), 1_250, 1),
        ((-500, 200), 1_200, 0),
        ((-500, 200), 1_201, 0),
        ((-1, -500), 10**9, 0),
        ((0, -500), 10**9, 1),
        ((None, 200, 300), 1_250, 0),
        ((100, None, 300), 1_250, 1),
        ((100, None, None), 10**9, 1),
        ((None, None), 10**9, 0),
        ((), 10**9, 0),
    ],
)
def test_segments_go_when_their_largest_timestamp_is_older_than_retention_ms(newest_ms, now_ms, count):
    """Oldest first, up to the first that stays, as one of which nothing is known."""
    gone = expired(segments(*[10] * len(newest_ms), newest_ms=newest_ms), now_ms=now_ms, retention_ms="1000")
    assert (gone.count if gone else 0) == count


@pytest.mark.parametrize(
    ("newest_ms", "written_ms", "now_ms", "count"),
    [
        ((None, None), {0: 100, 10: 200}, 1_101, 1),
        ((None, None), {0: 100, 10: 200}, 1_201, 2),
        ((None, None), {0: 100}, 1_201, 1),
        ((None, 5), {0: 5_000, 10: 5_000}, 1_500, 0),
        ((5, -9, 7), {0: 5_000, 10: 100, 20: 5_000}, 1_500, 3),
    ],
)
def test_a_segment_without_timestamps_goes_by_its_last_write(newest_ms, written_ms, now_ms, count):
    """Kafka's `LogSegment.largestTimestamp`."""
    log = segments(*[10] * len(newest_ms), newest_ms=newest_ms)
    gone = expired(log, now_ms=now_ms, retention_ms="1000", written_ms=written_ms)
    assert (gone.count if gone else 0) == count


@pytest.mark.parametrize(("retention_ms", "count"), [("-1", 0), ("604800000", 0), ("604799999", 3), ("0", 3)])
def test_minus_one_keeps_for_ever_and_a_week_is_exact(retention_ms, count):
    gone = expired(segments(1, 1, 1, newest_ms=[0, 0, 0]), now_ms=7 * DAY_MS, retention_ms=retention_ms)
    assert (gone.count if gone else 0) == count


@pytest.mark.parametrize(
    ("high_watermark", "count"), [(-1, 0), (0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (29, 2), (30, 3)]
)
@pytest.mark.parametrize("rule", [{"retention_ms": "1"}, {"retention_bytes": "0"}])
def test_nothing_that_reaches_above_the_high_watermark_goes(high_watermark, count, rule):
    log = segments(10, 10, 10, newest_ms=[0, 0, 0])
    gone = expired(log, high_watermark=high_watermark, now_ms=DAY_MS, **rule)
    assert gone == (ExpiredSegments(count, 10 * count) if count else None)


def test_when_everything_is_expired_the_log_goes_on_at_its_end():
    """Roll first: the log start is the log end, where the next append begins a segment."""
    assert expired(segments(10, 10, newest_ms=[0, 1]), now_ms=DAY_MS, retention_ms="5") == ExpiredSegments(2, 20)


@pytest.mark.parametrize(("policy", "count"), [("delete", 3), ("compact", 0), ("compact,delete", 3), ("", 0)])
def test_time_and_size_apply_with_the_policy_delete_alone_or_with_compact(policy, count):
    for rule in ({"retention_ms": "5"}, {"retention_bytes": "0"}):
        gone = expired(segments(9, 9, 9, newest_ms=[0, 0, 0]), now_ms=DAY_MS, cleanup_policy=policy, **rule)
        assert (gone.count if gone else 0) == count


def test_the_rules_follow_each_other_and_make_one_cut():
    """One below 10 by log start; then a second by the limit of 25; then a third by time."""
    log = segments(10, 10, 10, 10, newest_ms=[9_999, 9_999, 100, 9_999])
    gone = expired(log, log_start=15, now_ms=10_000, retention_bytes="20", retention_ms="1000")
    assert gone == ExpiredSegments(3, 30)


def test_offsets_that_compaction_left_out_do_not_hold_a_segment_back():
    """The bound is where the next segment begins, not where the records of this one end."""
    log = [segment(0, 4), segment(10, 12), segment(20, 30)]
    assert expired(log, log_start=10) == ExpiredSegments(1, 10)
    assert expired(log, high_watermark=9, retention_bytes="0") is None


@pytest.mark.parametrize(
    ("offset", "policy", "result"),
    [
        (5, "delete", 5),
        (0, "delete", 0),
        (8, "compact,delete", 8),
        (-1, "delete", 8),
        (9, "delete", OffsetOutOfRangeError),
        (-2, "delete", OffsetOutOfRangeError),
        (5, "", 5),
        (5, "compact", PolicyViolationError),
    ],
)
def test_records_are_deleted_up_to_the_high_watermark_at_most(
    offset: int, policy: str, result: int | type[StratalogError]
):
    config = LogConfig.from_properties({"cleanup.policy": policy})
    if isinstance(result, int):
        assert offset_to_delete_before(offset, 8, config) == result
        return
    with pytest.raises(result):
        offset_to_delete_before(offset, 8, config)
