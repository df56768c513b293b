from __future__ import annotations

import pytest

from stratalog.storage.files.data_file import DataFile, FileEntry
from stratalog.storage.log.segments import (
    LogSegment,
    empty_segment,
    files_between,
    segment_jitter_ms,
    segments_of,
    should_roll,
)
from stratalog.storage.topic_config import LogConfig


def file(base: int, count: int, segment: int, *, size: int = 100, times: tuple[int, int] | None = None, epoch: int = 0):
    low, high = times or (None, None)
    return FileEntry(DataFile(f"f{base}", size, count, 0, count - 1, low, high), segment, epoch, base)


def active(**changes) -> LogSegment:
    fields = {
        "base_offset": 0, "end_offset": 10, "size_bytes": 500, "file_count": 5, "record_count": 10,
        "first_timestamp_ms": 1_000, "max_timestamp_ms": 2_000, "epochs": (0,),
    }  # fmt: skip
    return LogSegment(**{**fields, **changes})


def segment(base: int, end: int) -> LogSegment:
    return active(base_offset=base, end_offset=end)


def test_segments_of_adds_up_their_files():
    files = [
        file(0, 5, 0, times=(10, 20)),
        file(5, 5, 0, times=(5, 40), epoch=1),
        file(10, 1, 10),
    ]
    first, second = segments_of(files)
    assert first == LogSegment(0, 10, 200, 2, 10, 10, 40, (0, 1))
    assert second == LogSegment(10, 11, 100, 1, 1, None, None, (0,))


@pytest.mark.parametrize(
    ("segment", "incoming", "properties", "rolls"),
    [
        pytest.param(None, (1, 1, None), {}, True, id="no segment yet"),
        pytest.param(active(), (500, 1, 1_000), {"segment.bytes": 1_000}, False, id="full to the byte"),
        pytest.param(active(), (501, 1, 1_000), {"segment.bytes": 1_000}, True, id="a byte too many"),
        pytest.param(empty_segment(0), (9_999, 1, None), {"segment.bytes": 1_000}, False, id="empty accepts anything"),
        pytest.param(active(), (1, 1, 1_100), {"segment.ms": 100}, False, id="as old as allowed"),
        pytest.param(active(), (1, 1, 1_101), {"segment.ms": 100}, True, id="too old by record time"),
        pytest.param(active(), (1, 1, None), {"segment.ms": 100}, False, id="no timestamp, no age"),
        pytest.param(active(first_timestamp_ms=None), (1, 1, 9_999), {"segment.ms": 100}, False, id="no first time"),
        pytest.param(active(), (1, 1, 1_000), {"segment.files.max": 5}, True, id="too many files"),
        pytest.param(active(), (1, 1, 1_000), {"segment.index.bytes": 40}, True, id="the index is full"),
        pytest.param(active(), (1, (1 << 31) - 10, 1_000), {}, False, id="the last delta is 2^31 - 1"),
        pytest.param(active(), (1, (1 << 31) - 9, 1_000), {}, True, id="deltas would pass 2^31 - 1"),
    ],
)
def test_should_roll(segment, incoming, properties, rolls):
    size_bytes, records, timestamp_ms = incoming
    config = LogConfig.from_properties(properties)
    assert should_roll(segment, size_bytes, records, timestamp_ms, 10, config) is rolls


def test_jitter_lets_a_segment_roll_earlier():
    config = LogConfig.from_properties({"segment.ms": 100})
    assert should_roll(active(), 1, 1, 1_090, 10, config, jitter_ms=20)


def test_jitter_is_spread_over_logs_below_its_limit_and_repeats():
    config = LogConfig.from_properties({"segment.jitter.ms": 1_000})
    spread = [segment_jitter_ms(config, f"t-{i}", 0) for i in range(100)]
    assert all(0 <= jitter < 1_000 for jitter in spread)
    assert len(set(spread)) > 80
    assert spread == [segment_jitter_ms(config, f"t-{i}", 0) for i in range(100)]
    assert segment_jitter_ms(LogConfig(), "t-0", 0) == 0


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        ((0), 100, [0, 10, 30]),
        (5, 6, [0]),
        (9, 11, [0, 10]),
        (10, 20, [10]),
        (20, 30, []),
        (20, 31, [30]),
        (35, 35, []),
        (40, 99, []),
    ],
)
def test_files_between_finds_what_covers_the_range(start, end, found):
    files = [file(0, 10, 0), file(10, 10, 0), file(30, 10, 0)]
    assert [entry.base_offset for entry in files_between(files, start, end)] == found


def test_files_between_finds_the_same_in_a_long_log_near_its_end_and_far_from_it():
    files = [file(base, 2, 0) for base in range(0, 90, 3)]  # each third offset is a gap
    for count in range(len(files) + 1):
        for start in range(92):
            for end in (start, start + 1, start + 5, 200):
                found = [f for f in files[:count] if f.start_offset < end and start < f.end_offset and start < end]
                assert list(files_between(files[:count], start, end)) == found
