"""What of a WHERE narrows the ranges of a batch query, and what is left to Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from stratalog.clients.spark.source.filters import RangeFilters
from stratalog.clients.spark.source.plan import PlannedRange
from stratalog.storage.records import TopicPartition

RANGES = [
    PlannedRange(TopicPartition("a", 0), 0, 100),
    PlannedRange(TopicPartition("a", 1), 50, 200),
    PlannedRange(TopicPartition("b", 0), 0, 10),
]
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
NOON_MS = 1_767_355_200_000


def narrowed(*filters: Filter) -> str:
    """E.g. "a-0 [10, 100) b-0 [0, 10)"; record n of each partition has the time NOON_MS + n."""
    found = RangeFilters.of(filters).narrowed(RANGES, lambda each, ms: min(each.end, max(each.start, ms - NOON_MS)))
    return " ".join(f"{each.topic_partition} [{each.start}, {each.end})" for each in found)


ALL = "a-0 [0, 100) a-1 [50, 200) b-0 [0, 10)"


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], ALL),
        ([EqualTo(("partition",), 1)], "a-1 [50, 200)"),
        ([EqualTo(("topic",), "a"), EqualTo(("partition",), 0)], "a-0 [0, 100)"),
        ([In(("partition",), (0, 7))], "a-0 [0, 100) b-0 [0, 10)"),
        ([In(("partition",), (0, 1)), EqualTo(("partition",), 1)], "a-1 [50, 200)"),
        ([EqualTo(("partition",), 0), EqualTo(("partition",), 1)], ""),
        ([EqualTo(("offset",), 99)], "a-0 [99, 100) a-1 [99, 100)"),
        ([GreaterThanOrEqual(("offset",), 10), LessThan(("offset",), 60)], "a-0 [10, 60) a-1 [50, 60)"),
        ([GreaterThan(("offset",), 99), LessThanOrEqual(("offset",), 100)], "a-1 [100, 101)"),
        ([GreaterThanOrEqual(("offset",), 10), GreaterThan(("offset",), 5)], "a-0 [10, 100) a-1 [50, 200)"),
        ([GreaterThanOrEqual(("timestamp",), NOON + timedelta(milliseconds=60))], "a-0 [60, 100) a-1 [60, 200)"),
        ([EqualTo(("timestamp",), NOON + timedelta(microseconds=99_999))], "a-0 [99, 100) a-1 [99, 200)"),
        ([GreaterThan(("timestamp",), NOON - timedelta(days=1))], ALL),
    ],
)
def test_filters_narrow_the_ranges(filters: list[Filter], expected: str) -> None:
    assert narrowed(*filters) == expected


@pytest.mark.parametrize(
    "understood_by_spark_alone",
    [
        IsNotNull(("value",)),
        Not(EqualTo(("partition",), 1)),
        EqualTo(("value",), b"x"),
        LessThan(("timestamp",), NOON),
        GreaterThan(("timestamp",), NOON.replace(tzinfo=None)),
        EqualTo(("headers", "key"), "x"),
        EqualTo(("offset",), None),
    ],
)
def test_a_filter_that_is_not_understood_narrows_nothing(understood_by_spark_alone: Filter) -> None:
    assert narrowed(understood_by_spark_alone) == ALL


def test_a_time_of_another_zone_is_the_same_time() -> None:
    there = (NOON + timedelta(milliseconds=60)).astimezone(timezone(timedelta(hours=5)))
    assert narrowed(GreaterThanOrEqual(("timestamp",), there)) == "a-0 [60, 100) a-1 [60, 200)"
