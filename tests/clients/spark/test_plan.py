"""Planning a micro-batch: checkpoint form, rate limits, ranges, and the checks against lost data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

from stratalog.clients.spark.options import GlobalTimestamp, SpecificOffsets, SpecificTimestamps, parse_offsets
from stratalog.clients.spark.source.plan import (
    TASK_RECORDS_MIN,
    FileSpan,
    OffsetsJson,
    PlannedRange,
    backlog,
    batch_ranges,
    bytes_limited,
    check_available_now,
    check_limits,
    check_specified,
    cut_by_bytes,
    must_wait,
    offsets_from_json,
    offsets_to_json,
    rate_limited,
    resolve,
    split_ranges,
    start_within,
    stream_ranges,
    tasks_of,
    with_start,
)
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)
Offsets = Mapping[TopicPartition, int]


def test_offsets_travel_as_the_connectors_json_in_one_key_order() -> None:
    offsets = {TopicPartition("t", 10): 1, B: 2, A: 3, TopicPartition("a", 0): 4}
    text = json.dumps(offsets_to_json(offsets))
    assert text == '{"a": {"0": 4}, "t": {"0": 3, "1": 2, "10": 1}}'
    assert offsets_from_json(json.loads(text)) == offsets


@pytest.mark.parametrize(
    ("start", "end", "carried"),
    [
        ({"t": {"0": 3}}, {A: 9}, {"t": {"0": 9}, "t@start": {"0": 3}}),
        ({"t": {"0": 3}}, {A: 9, B: 1}, {"t": {"0": 9, "1": 1}, "t@start": {"0": 3}}),
        ({}, {A: 9}, {"t": {"0": 9}, "@start": {}}),
        ({}, {}, {"@start": {}}),
    ],
)
def test_the_end_of_a_first_batch_carries_its_start(start: OffsetsJson, end: Offsets, carried: OffsetsJson) -> None:
    assert with_start(end, start) == carried
    assert start_within(carried) == start
    assert offsets_from_json(carried) == parse_offsets(json.dumps(carried)) == end
    assert start_within(offsets_to_json(end)) is None


@pytest.mark.parametrize(
    ("limit", "start", "end", "expected"),
    [
        (10, {A: 0, B: 0}, {A: 100, B: 100}, {A: 5, B: 5}),
        (10, {A: 0, B: 0}, {A: 990, B: 10}, {A: 9, B: 1}),
        (10, {A: 0, B: 7}, {A: 5, B: 7}, {A: 5, B: 7}),
        (10, {A: 5, B: 7}, {A: 5, B: 7}, {A: 5, B: 7}),
        (1000, {A: 0, B: 0}, {A: 10, B: 20}, {A: 10, B: 20}),
        (4, {A: 0}, {A: 100, B: 107}, {A: 2, B: 9}),
    ],
)
def test_a_rate_limit_is_shared_by_backlog_and_starves_no_partition(
    limit: int, start: Offsets, end: Offsets, expected: Offsets
) -> None:
    assert rate_limited(limit, start, end, {B: 7}) == expected


@pytest.mark.parametrize(
    ("limit_bytes", "expected"),
    [
        (300, {A: 30, B: 9}),
        (1_000, {A: 30, B: 9}),
        (150, {A: 10, B: 4}),  # half of the bytes of each
        (100, {A: 6, B: 2}),
        (1, {A: 1, B: 1}),  # a record of each, whatever its size
    ],
)
def test_a_limit_in_bytes_is_shared_by_size(limit_bytes: int, expected: Offsets) -> None:
    spans = {A: [FileSpan(0, 10, 100), FileSpan(10, 30, 100)], B: [FileSpan(0, 9, 100)]}
    assert bytes_limited(limit_bytes, {A: 30, B: 9}, spans) == expected


def test_a_limit_in_bytes_leaves_partitions_without_a_backlog_where_they_are() -> None:
    assert bytes_limited(50, {A: 10, B: 7}, {A: [FileSpan(0, 10, 100)]}) == {A: 5, B: 7}
    assert bytes_limited(50, {A: 10, B: 7}, {A: [FileSpan(0, 10, 100)], B: []}) == {A: 5, B: 7}


@pytest.mark.parametrize(
    ("new_records", "waited_ms", "expected"), [(9, 0, True), (10, 0, False), (0, 900_000, False), (9, 899_999, True)]
)
def test_min_offsets_wait_until_enough_or_too_long(new_records: int, waited_ms: int, expected: bool) -> None:
    assert must_wait(10, new_records, waited_ms, 900_000) is expected


def test_backlog_counts_a_new_partition_from_zero() -> None:
    assert backlog({A: 5}, {A: 7, B: 3}) == 5


def shape(ranges: list[PlannedRange]) -> list[tuple[int, int, int]]:
    return [(r.topic_partition.partition, r.start, r.end) for r in ranges]


@pytest.mark.parametrize(
    ("ranges", "min_partitions", "max_records", "expected"),
    [
        ([(A, 0, 10), (B, 5, 5)], None, None, [(0, 0, 10)]),
        ([(A, 0, 10)], 3, None, [(0, 0, 3), (0, 3, 6), (0, 6, 10)]),
        ([(A, 0, 10), (B, 0, 10)], 1, None, [(0, 0, 10), (1, 0, 10)]),
        ([(A, 0, 1), (B, 0, 100)], 4, None, [(0, 0, 1), (1, 0, 33), (1, 33, 66), (1, 66, 100)]),
        ([(A, 0, 10), (B, 0, 3)], None, 4, [(0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 0, 3)]),
        ([(A, 0, 8)], 4, 4, [(0, 0, 2), (0, 2, 4), (0, 4, 6), (0, 6, 8)]),
        ([(A, 0, 2)], 5, None, [(0, 0, 1), (0, 1, 2)]),
        ([], 5, None, []),
    ],
)
def test_ranges_split_into_tasks(
    ranges: list[tuple[TopicPartition, int, int]],
    min_partitions: int | None,
    max_records: int | None,
    expected: list[tuple[int, int, int]],
) -> None:
    assert shape(split_ranges([PlannedRange(*r) for r in ranges], min_partitions, max_records)) == expected


@pytest.mark.parametrize(
    ("sizes", "min_partitions", "max_records", "expected"),
    [
        ([3, 2, 1], None, None, [[0, 1, 2]]),
        ([TASK_RECORDS_MIN, 1, 2], None, None, [[0], [1, 2]]),
        ([1, TASK_RECORDS_MIN, 2], None, None, [[0, 1], [2]]),
        ([10**6, 10**6, 10**6], None, None, [[0], [1], [2]]),
        ([3, 2, 1], 1, None, [[0], [1], [2]]),
        ([3, 2, 1], None, 10, [[0], [1], [2]]),
        ([0, 0, 0], None, None, []),
    ],
)
def test_small_ranges_share_a_task_unless_the_user_counts_tasks(
    sizes: list[int], min_partitions: int | None, max_records: int | None, expected: list[list[int]]
) -> None:
    ranges = [PlannedRange(tp, 0, size) for tp, size in zip((A, B, C), sizes, strict=True)]
    tasks = tasks_of(ranges, min_partitions, max_records)
    assert [[r.topic_partition.partition for r in task] for task in tasks] == expected


@pytest.mark.parametrize(
    ("start", "end", "earliest_of_new", "expected", "losses"),
    [
        ({A: 1, B: 2}, {A: 3, B: 2}, {}, [(0, 1, 3), (1, 2, 2)], []),
        ({A: 1}, {A: 3, B: 4}, {B: 0}, [(0, 1, 3), (1, 0, 4)], []),
        ({A: 1}, {A: 3, B: 4}, {B: 2}, [(0, 1, 3), (1, 2, 4)], ["Added partition t-1 starts from 2 instead of 0."]),
        (
            {A: 1},
            {A: 3, B: 4},
            {},
            [(0, 1, 3)],
            ["Cannot find initial offsets for partitions Set(t-1). They may have been deleted."],
        ),
        ({A: 1, B: 2, C: 3}, {A: 3}, {}, [(0, 1, 3)], ["Partitions Set(t-1, t-2) have been deleted."]),
        ({A: 9}, {A: 3}, {}, [(0, 9, 3)], ["Partition t-0 offset was changed from 9 to 3."]),
    ],
)
def test_a_micro_batch_reports_every_sign_of_lost_data(
    start: Offsets, end: Offsets, earliest_of_new: Offsets, expected: list[tuple[int, int, int]], losses: list[str]
) -> None:
    reported: list[StratalogError] = []
    assert shape(stream_ranges(start, end, earliest_of_new, reported.append)) == expected
    for loss, error in zip(losses, reported, strict=True):
        assert loss in str(error)
        assert "failOnDataLoss" in str(error)


@pytest.mark.parametrize(
    ("frozen", "end", "latest", "condition"),
    [
        ({A: 5}, {A: 5}, {A: 5, B: 1}, None),
        ({A: 5, B: 1}, {A: 5}, {A: 5}, "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED"),
        ({A: 5}, {A: 6}, {A: 9}, "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED"),
        ({A: 5}, {A: 5}, {}, "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW"),
        (
            {A: 5},
            {A: 5},
            {A: 4},
            "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW",
        ),
    ],
)
def test_available_now_never_passes_the_frozen_offsets(
    frozen: Offsets, end: Offsets, latest: Offsets, condition: str | None
) -> None:
    refused(condition, lambda: check_available_now(frozen, end, latest))


@pytest.mark.parametrize(
    ("call", "condition"),
    [
        (lambda: check_specified(SpecificOffsets({A: 1}), [A], starting=True), None),
        (lambda: check_specified(GlobalTimestamp(1), [A], starting=True), None),
        (lambda: check_specified(SpecificOffsets({A: 1}), [A, B], starting=True), "KAFKA_START_OFFSET_DOES_NOT_MATCH"),
        (
            lambda: check_specified(SpecificTimestamps({A: 1}), [A, B], starting=False),
            "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED",
        ),
        (lambda: check_limits(SpecificOffsets({A: 1}), SpecificOffsets({A: -1})), None),
        (lambda: check_limits(SpecificOffsets({A: 9}), SpecificOffsets({A: 1})), "UNRESOLVED_START_OFFSET_GREATER"),
        (lambda: check_limits(SpecificOffsets({A: 9}), SpecificOffsets({B: 1})), "MISMATCHED_TOPIC_PARTITIONS_BETWEEN"),
        (
            lambda: check_limits(SpecificTimestamps({A: 9}), SpecificTimestamps({A: 1})),
            "UNRESOLVED_START_TIMESTAMP_GREATER",
        ),
        (lambda: batch_ranges({A: 9}, {A: 1}), "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"),
    ],
)
def test_contradicting_offsets_are_refused_by_the_connectors_condition(
    call: Callable[[], object], condition: str | None
) -> None:
    refused(condition, call)


def refused(condition: str | None, call: Callable[[], object]) -> None:
    if condition is None:
        call()
        return
    with pytest.raises(StratalogError) as refusal:
        call()
    assert str(refusal.value).startswith(f"[{condition}")


def test_named_offsets_resolve_per_partition() -> None:
    assert resolve({A: -2, B: -1, C: 7}, {A: 3, B: 4}, {A: 10, B: 11}) == {A: 3, B: 11, C: 7}


@pytest.mark.parametrize(
    ("sizes", "limit_bytes", "expected"),
    [
        ([], 10, [(0, 100)]),
        ([(0, 100, 10)], 10, [(0, 100)]),
        ([(0, 50, 10), (50, 100, 10)], 10, [(0, 50), (50, 100)]),
        ([(0, 10, 90), (10, 100, 10)], 50, [(0, 5), (5, 100)]),
        ([(0, 1, 1_000), (1, 100, 1)], 100, [(0, 1), (1, 100)]),  # a record is not cut
        ([(0, 400, 40)], 5, [(0, 50), (50, 100)]),  # only a part of the file belongs to the range
    ],
)
def test_ranges_are_cut_by_bytes(
    sizes: list[tuple[int, int, int]], limit_bytes: int, expected: list[tuple[int, int]]
) -> None:
    parts = cut_by_bytes([PlannedRange(A, 0, 100)], {A: [FileSpan(*each) for each in sizes]}, limit_bytes)
    assert [(part.start, part.end) for part in parts] == expected
